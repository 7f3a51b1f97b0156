/*
 * objc_msgSend: finds the method and jumps to it with every argument where it was. So methods are plain C
 * functions of their true types, and the compiler knows the rest: on arm64 a struct MTLSize comes as an
 * address in a register, on x86-64 its bytes lie on the stack.
 */
#include "tests/metal_sim/objects.h"

#if defined(__x86_64__)
/* clang-format off */
#define SAVE_AND_LOOK_UP(object, selector)                                                                   \
    "    pushq %rbp\n    movq %rsp, %rbp\n    subq $192, %rsp\n"                                             \
    "    movq %rdi, 0(%rsp)\n    movq %rsi, 8(%rsp)\n    movq %rdx, 16(%rsp)\n    movq %rcx, 24(%rsp)\n"     \
    "    movq %r8, 32(%rsp)\n    movq %r9, 40(%rsp)\n    movq %rax, 48(%rsp)\n"                              \
    "    movups %xmm0, 64(%rsp)\n    movups %xmm1, 80(%rsp)\n    movups %xmm2, 96(%rsp)\n"                   \
    "    movups %xmm3, 112(%rsp)\n    movups %xmm4, 128(%rsp)\n    movups %xmm5, 144(%rsp)\n"                \
    "    movups %xmm6, 160(%rsp)\n    movups %xmm7, 176(%rsp)\n"                                             \
    "    movq " object ", %rdi\n    movq " selector ", %rsi\n"                                               \
    "    call metalsim_lookup@PLT\n    movq %rax, %r11\n"                                                    \
    "    movq 0(%rsp), %rdi\n    movq 8(%rsp), %rsi\n    movq 16(%rsp), %rdx\n    movq 24(%rsp), %rcx\n"     \
    "    movq 32(%rsp), %r8\n    movq 40(%rsp), %r9\n    movq 48(%rsp), %rax\n"                              \
    "    movups 64(%rsp), %xmm0\n    movups 80(%rsp), %xmm1\n    movups 96(%rsp), %xmm2\n"                   \
    "    movups 112(%rsp), %xmm3\n    movups 128(%rsp), %xmm4\n    movups 144(%rsp), %xmm5\n"                \
    "    movups 160(%rsp), %xmm6\n    movups 176(%rsp), %xmm7\n"                                             \
    "    leave\n    jmp *%r11\n"
/* clang-format on */
__asm__(".text\n"
        ".globl objc_msgSend\n.type objc_msgSend, @function\n"
        "objc_msgSend:\n"
        "    testq %rdi, %rdi\n    jz 1f\n" SAVE_AND_LOOK_UP(
            "%rdi", "%rsi") "1:  xorl %eax, %eax\n    xorl %edx, %edx\n    pxor %xmm0, %xmm0\n    ret\n"
                            ".size objc_msgSend, . - objc_msgSend\n"
                            /* A result of more than 16 bytes: its address comes first. */
                            ".globl objc_msgSend_stret\n.type objc_msgSend_stret, @function\n"
                            "objc_msgSend_stret:\n"
                            "    testq %rsi, %rsi\n    jz 2f\n" SAVE_AND_LOOK_UP(
                                "%rsi", "%rdx") "2:  movq %rdi, %rax\n    ret\n"
                                                ".size objc_msgSend_stret, . - objc_msgSend_stret\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl objc_msgSend\n.type objc_msgSend, %function\n"
        "objc_msgSend:\n"
        "    cbz x0, 1f\n"
        "    stp x29, x30, [sp, #-224]!\n    mov x29, sp\n"
        "    stp x0, x1, [sp, #16]\n    stp x2, x3, [sp, #32]\n    stp x4, x5, [sp, #48]\n"
        "    stp x6, x7, [sp, #64]\n    str x8, [sp, #80]\n"
        "    stp q0, q1, [sp, #96]\n    stp q2, q3, [sp, #128]\n    stp q4, q5, [sp, #160]\n"
        "    stp q6, q7, [sp, #192]\n"
        "    bl metalsim_lookup\n    mov x16, x0\n"
        "    ldp x0, x1, [sp, #16]\n    ldp x2, x3, [sp, #32]\n    ldp x4, x5, [sp, #48]\n"
        "    ldp x6, x7, [sp, #64]\n    ldr x8, [sp, #80]\n"
        "    ldp q0, q1, [sp, #96]\n    ldp q2, q3, [sp, #128]\n    ldp q4, q5, [sp, #160]\n"
        "    ldp q6, q7, [sp, #192]\n"
        "    ldp x29, x30, [sp], #224\n"
        "    br x16\n"
        "1:  mov x1, xzr\n    movi d0, #0\n    ret\n"
        ".size objc_msgSend, . - objc_msgSend\n");
#else
#error "objc_msgSend is written for x86-64 and aarch64"
#endif

typedef int translation_unit_is_not_empty;
