#!/bin/sh
# Compiles the kernels that CUDA and HIP share for AMD GPUs, where a clang that can is there: does the source still mean
# something to another compiler, with waves of 32 and of 64? Nothing is run.
#
#   scripts/check-hip.sh [FOLDER]       FOLDER: for the code objects (build/hip)
set -eu
cd "$(dirname "$0")/.."
out=${1:-build/hip}
compiler=""
for candidate in clang++-20 clang++-19 clang++-18 clang++-17 clang++; do
    if command -v "$candidate" >/dev/null 2>&1; then compiler=$candidate; break; fi
done
if [ -z "$compiler" ]; then
    echo "hip: no clang here: the shared kernels are not compiled for AMD GPUs"
    exit 0
fi
mkdir -p "$out"
known=""
for arch in gfx90a gfx942 gfx1030 gfx1100; do
    # A device that this compiler does not know is no fault of the kernels.
    if echo '' | "$compiler" -x hip --cuda-device-only --offload-arch=$arch -nogpuinc -nogpulib -S -o /dev/null - 2>/dev/null
    then known="$known $arch"; fi
done
for arch in $known; do
    for kernels in simple convert; do
        "$compiler" -x hip --cuda-device-only --offload-arch="$arch" -nogpuinc -nogpulib -O3 -std=c++17 -ffp-contract=off \
            -Wall -Wno-pass-failed -Isrc -S "src/backend/gpu/$kernels.cu" -o "$out/$kernels-$arch.s"
    done
done
echo "hip: simple.cu and convert.cu compile for${known:- no device that $compiler knows} ($compiler)"
