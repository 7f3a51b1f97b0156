#!/bin/sh
# Two checks of what CUDA and HIP share, for which neither a GPU nor a toolkit is needed. Nothing is run.
#
#   The kernels compile for AMD GPUs beyond those that make builds code objects for, where a clang that can is there.
#   Our declarations of the libraries' functions are the vendors', where their headers are there.
#
#   scripts/check-hip.sh [FOLDER]       FOLDER: for what is compiled (build/hip)
set -eu
cd "$(dirname "$0")/.."
out=${1:-build/hip}
mkdir -p "$out"

known="" compiler=""
for arch in gfx906 gfx908 gfx1030 gfx1151; do
    found=$(sh scripts/find-hip.sh "$arch")
    if [ -n "$found" ]; then
        compiler=$found known="$known $arch"
        "$compiler" -x hip --cuda-device-only --offload-arch="$arch" -nogpuinc -nogpulib -O3 -std=c++17 -ffp-contract=off \
            -Wall -Wno-pass-failed -Isrc -S src/backend/hip/kernels.cu -o "$out/kernels-$arch.s"
    fi
done
if [ -n "$known" ]; then
    echo "hip: the kernels compile for$known ($compiler)"
else
    echo "hip: no clang here that compiles and links for AMD GPUs: the kernels are not compiled for them"
fi

# compare NAME SOURCE FLAGS...: compiles, and refuses a copy of the list of functions in which one is wrong.
compare() {
    name=$1 source=$2
    shift 2
    ${CC:-cc} -std=c11 -Isrc -Iinclude -Wall -Wextra -Werror -Wno-unused-const-variable "$@" -fsyntax-only "$source"
    mkdir -p "$out/wrong/backend/gpu"
    sed 's/(GS_GPU_ADDRESS \* pointer, size_t bytes)/(GS_GPU_ADDRESS * pointer, int bytes)/' src/backend/gpu/driver.h \
        > "$out/wrong/backend/gpu/driver.h"
    if ${CC:-cc} -std=c11 "-I$out/wrong" -Isrc -Iinclude -Werror -Wno-unused-const-variable "$@" -fsyntax-only "$source" \
        2>/dev/null; then
        echo "$name: a wrong prototype was not noticed" >&2
        exit 1
    fi
    echo "$name: the functions' types are the header's"
}
if [ -f /usr/include/hip/hip_runtime_api.h ]; then
    compare hip tests/backend/check_hip_header.c -D__HIP_PLATFORM_AMD__
else
    echo "hip: no HIP header here: the functions' types are not compared"
fi
cuda_header=$(ls /usr/local/cuda/include/cuda.h build/cuda/lib/python3*/site-packages/nvidia/cu13/include/cuda.h 2>/dev/null |
    head -n 1 || true)
if [ -n "$cuda_header" ]; then
    compare cuda tests/backend/check_cuda_header.c -isystem "$(dirname "$cuda_header")"
else
    echo "cuda: no cuda.h here: the functions' types are not compared"
fi
