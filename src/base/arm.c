#include "base/arm.h"

#include <stddef.h>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

/* The kernel's numbers, which older headers lack. */
#define DOTPROD_BIT (1ul << 20) /* HWCAP_ASIMDDP */
#define I8MM_BIT2   (1ul << 13) /* HWCAP2_I8MM */
#define BF16_BIT2   (1ul << 14) /* HWCAP2_BF16 */

unsigned gs_arm_features(void)
{
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    return (first & DOTPROD_BIT ? GS_ARM_DOTPROD : 0u) | (second & I8MM_BIT2 ? GS_ARM_I8MM : 0u) |
           (second & BF16_BIT2 ? GS_ARM_BF16 : 0u);
}

#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>

unsigned gs_arm_features(void)
{
    static const char *const names[] = {"hw.optional.arm.FEAT_DotProd", "hw.optional.arm.FEAT_I8MM",
                                        "hw.optional.arm.FEAT_BF16"};
    unsigned features = GS_ARM_DOTPROD; /* the M1 and all since; the names came a year after it */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int value = 0;
        size_t size = sizeof value;
        if (sysctlbyname(names[i], &value, &size, NULL, 0) == 0 && value != 0)
            features |= 1u << i;
    }
    return features;
}

#else

unsigned gs_arm_features(void)
{
    return 0;
}

#endif
