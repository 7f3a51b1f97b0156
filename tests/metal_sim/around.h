/*
 * Around a test on the simulator: at its beginning, that it is skipped where there is none, and that nothing
 * of an earlier test is left in the stand-in; at its end, that the backend has let go of everything.
 */
#ifndef GS_TESTS_METAL_SIM_AROUND_H
#define GS_TESTS_METAL_SIM_AROUND_H

#include "tests/metal_sim/metal_stand_in.h"
#include "tests/support/check.h"

static inline void need_simulator(void)
{
    static char why[METALSIM_MESSAGE];
    if (metalsim_available(why, sizeof why))
        return;
    print_message("  skipped: %s\n", why);
    skip();
}

static inline void need_stand_in(bool encode_only)
{
    *metalsim_controls() = (struct metalsim_controls){.encode_only = encode_only};
    metalsim_reset_counts();
    need_simulator();
}

static inline void assert_nothing_left(void)
{
    if (metalsim_counts().live_objects != 0)
        fail_msg("still there: %s", metalsim_live());
    assert_int_equal(metalsim_counts().autoreleased_without_pool, 0);
}

#endif
