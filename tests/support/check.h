/* What every test includes: cmocka with its prerequisites, and assertions on statuses and messages. */
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include "gossamer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* GS_OK, or the message is printed and the test fails. */
#define assert_ok(call, error)                                                                               \
    do {                                                                                                     \
        if ((call) != GS_OK)                                                                                 \
            fail_msg("%s: %s", #call, (error)->message);                                                     \
    } while (0)

/* Fails with this status and a one-line message that contains `part`. */
#define assert_fails(call, status, part, error)                                                              \
    do {                                                                                                     \
        memset((error), 0, sizeof *(error));                                                                 \
        assert_int_equal((call), (status));                                                                  \
        assert_int_equal((error)->code, (status));                                                           \
        if (!strstr((error)->message, (part)))                                                               \
            fail_msg("message \"%s\" lacks \"%s\"", (error)->message, (part));                               \
        assert_null(strchr((error)->message, '\n'));                                                         \
    } while (0)

#endif
