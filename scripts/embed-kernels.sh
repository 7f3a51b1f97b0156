#!/bin/sh
# Writes the assembler file that puts compiled kernels into the program: the table of src/backend/cuda/modules.h or
# src/backend/hip/modules.h. A file's name up to the first dot becomes its name in the table.
#
#   scripts/embed-kernels.sh gs_cuda 64 13000 build/src/backend/gpu/simple.fatbin ...
#   scripts/embed-kernels.sh gs_hip 4096 - build/src/backend/hip/gfx942.co ...
#
# Arguments: beginning of the symbols, alignment of images, the toolkit's version or -, files.
set -eu
prefix=$1 alignment=$2 toolkit=$3
shift 3

echo '    .section .rodata'
count=0
for image in "$@"; do
    name=$(basename "$image")
    printf 'name%d:\n    .asciz "%s"\n' $count "${name%%.*}"
    printf '    .balign %d\nimage%d:\n    .incbin "%s"\n    .byte 0\n' "$alignment" $count "$image"
    count=$((count + 1))
done
printf '    .balign 8\n    .globl %s_module_count\n%s_module_count:\n    .quad %d\n' "$prefix" "$prefix" $count
if [ "$toolkit" != - ]; then
    printf '    .globl %s_toolkit\n%s_toolkit:\n    .long %d\n' "$prefix" "$prefix" "$toolkit"
fi

# Pointers are filled in by the loader where the program may lie anywhere.
echo '    .section .data.rel.ro,"aw"'
printf '    .balign 8\n    .globl %s_modules\n%s_modules:\n' "$prefix" "$prefix"
i=0
while [ $i -lt $count ]; do
    printf '    .quad name%d, image%d\n' $i $i
    i=$((i + 1))
done
echo '    .section .note.GNU-stack,"",%progbits'
