/* With NEON: elements 0 to 3, and 4 to 7, each added to lanes of their own. */
#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))
#define STEP   8 /* elements of a register */

struct wide {
    float32x4_t low, high;
};

struct sums {
    float32x4_t low, high;
};

INLINE struct wide load_wide(const void *from, size_t n_left)
{
    uint16_t values[STEP] = {0};
    if (n_left < STEP)
        from = memcpy(values, from, n_left * sizeof *values);
    uint16x8_t bits = vreinterpretq_u16_u8(vld1q_u8(from));
    return (struct wide){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16)),
                         vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(bits), 16))};
}

INLINE struct sums no_sums(void)
{
    return (struct sums){vdupq_n_f32(0), vdupq_n_f32(0)};
}

INLINE struct sums add_products(struct sums sums, struct wide a, struct wide b)
{
    return (struct sums){vfmaq_f32(sums.low, a.low, b.low), vfmaq_f32(sums.high, a.high, b.high)};
}

INLINE float total_of(struct sums sums)
{
    return vaddvq_f32(vaddq_f32(sums.low, sums.high));
}

#include "backend/cpu/kernels/bf16_widened.h"
