#!/bin/sh
# Writes the assembler file that puts fat binaries into the program: the table of src/backend/cuda/modules.h.
#
#   scripts/embed-cuda.sh 13000 build/src/backend/gpu/simple.fatbin ...
set -eu
toolkit=$1
shift

echo '    .section .rodata'
count=0
for image in "$@"; do
    name=$(basename "$image" .fatbin)
    printf 'name%d:\n    .asciz "%s"\n' $count "$name"
    printf '    .balign 64\nimage%d:\n    .incbin "%s"\n    .byte 0\n' $count "$image"
    count=$((count + 1))
done
printf '    .balign 8\n    .globl gs_cuda_module_count\ngs_cuda_module_count:\n    .quad %d\n' $count
printf '    .globl gs_cuda_toolkit\ngs_cuda_toolkit:\n    .long %d\n' "$toolkit"

# Pointers are filled in by the loader where the program may lie anywhere.
echo '    .section .data.rel.ro,"aw"'
printf '    .balign 8\n    .globl gs_cuda_modules\ngs_cuda_modules:\n'
i=0
while [ $i -lt $count ]; do
    printf '    .quad name%d, image%d\n' $i $i
    i=$((i + 1))
done
echo '    .section .note.GNU-stack,"",%progbits'
