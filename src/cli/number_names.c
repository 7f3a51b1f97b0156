#include "cli/number_names.h"

#include "base/status.h"

#include <string.h>

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
