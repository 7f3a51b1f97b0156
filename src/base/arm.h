/* Which of 64-bit Arm's optional instructions this processor and its system let a program use. */
#ifndef GS_BASE_ARM_H
#define GS_BASE_ARM_H

enum {
    GS_ARM_DOTPROD = 1, /* sdot: four products of bytes into each lane */
    GS_ARM_I8MM = 2,    /* smmla: a 2 x 8 by 8 x 2 product of bytes */
    GS_ARM_BF16 = 4,    /* bfdot and bfmmla */
};

/* Those of them that are there; 0 on other architectures and where the system does not tell. */
unsigned gs_arm_features(void);

#endif
