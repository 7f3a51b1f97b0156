#include "cli/number_names.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static const char *const decodes[] = {[GS_DECODE_FUSED] = "fused",
                                      [GS_DECODE_LEGACY] = "legacy",
                                      [GS_DECODE_SERIAL] = "serial",
                                      [GS_DECODE_STAGED] = "staged"};
static const char *const precisions[] = {[GS_PRECISION_EXACT] = "exact", [GS_PRECISION_FAST] = "fast"};
static const char *const formats[] = {[GS_WEIGHTS_NATIVE] = "native", [GS_WEIGHTS_Q8] = "q8"};

const char *gs_precision_name(enum gs_precision precision)
{
    return precisions[precision];
}

const char *gs_weight_format_name(enum gs_weight_format weight_format)
{
    return formats[weight_format];
}

static gs_status find_name(const char *option, const char *const names[2], const char *text, int *out,
                           struct gs_error *error)
{
    for (int i = 0; i < 2; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return GS_OK;
        }
    return gs_fail(error, GS_INVALID_ARGUMENT, "%s: \"%s\" is neither %s nor %s", option, gs_quote(text).text,
                   names[0], names[1]);
}

gs_status gs_parse_precision(const char *text, enum gs_precision *out, struct gs_error *error)
{
    int found = (int)*out;
    gs_status status = text ? find_name("--precision", precisions, text, &found, error) : GS_OK;
    *out = (enum gs_precision)found;
    return status;
}

gs_status gs_parse_weight_format(const char *text, enum gs_weight_format *out, struct gs_error *error)
{
    int found = (int)*out;
    gs_status status = text ? find_name("--weights", formats, text, &found, error) : GS_OK;
    *out = (enum gs_weight_format)found;
    return status;
}

gs_status gs_parse_levers(const char *decode, bool scalar_load, struct gs_levers *out, struct gs_error *error)
{
    const char *groups = getenv("GOSSAMER_SIMDGROUPS");
    *out = (struct gs_levers){.scalar_load = scalar_load};
    if (groups && strcmp(groups, "1") != 0 && strcmp(groups, "2") != 0 && strcmp(groups, "4") != 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "GOSSAMER_SIMDGROUPS: \"%s\" is neither 1, 2 nor 4",
                       gs_quote(groups).text);
    out->simdgroups = groups ? groups[0] - '0' : 0;
    for (int i = 0; decode && i < GS_DECODE_COUNT; i++)
        if (strcmp(decode, decodes[i]) == 0) {
            out->decode = (enum gs_decode)i;
            return GS_OK;
        }
    if (decode)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "--decode: \"%s\" is neither fused, legacy, serial nor staged", gs_quote(decode).text);
    return GS_OK;
}
