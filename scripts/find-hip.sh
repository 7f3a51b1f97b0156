#!/bin/sh
# The first clang++ here that compiles and links for all these AMD GPUs; nothing where there is none.
#
#   scripts/find-hip.sh gfx90a gfx942 gfx1100 gfx1201
object=$(mktemp)
trap 'rm -f "$object"' EXIT
for compiler in clang++-19 clang++-20 clang++-21 clang++-22 clang++-18 clang++; do
    command -v "$compiler" >/dev/null 2>&1 || continue
    for arch in "$@"; do
        echo 'extern "C" __attribute__((global)) void k(int *x) { *x = 1; }' |
            "$compiler" -x hip --cuda-device-only --offload-arch="$arch" -nogpuinc -nogpulib --no-gpu-bundle-output \
                -c -o "$object" - 2>/dev/null || continue 2
    done
    echo "$compiler"
    exit 0
done
