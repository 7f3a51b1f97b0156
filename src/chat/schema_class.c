#include "chat/schema_class.h"

#include "text/unicode_tables.h"

#include <stdlib.h>

static const struct gs_range digits[] = {{'0', '9'}};
static const struct gs_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct gs_range spaces[] = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},
                                         {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                         {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
/* ECMA counts U+FEFF as a blank and Python does not; with U+001C ... 1F and U+0085 it is the other way round.
 */
static const struct gs_range not_quite_spaces[] = {{0x1C, 0x1F}, {0x85, 0x85}, {0xFEFF, 0xFEFF}};
static const struct gs_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

static gs_status add_list(const struct gs_range *list, size_t count, struct gs_char_set *set,
                          struct gs_error *error)
{
    gs_status status = GS_OK;
    for (size_t i = 0; i < count && status == GS_OK; i++)
        status = gs_char_set_add(set, list[i].first, list[i].last, error);
    return status;
}

static gs_status add_table(unsigned classes, struct gs_char_set *set, struct gs_error *error)
{
    gs_status status = GS_OK;
    for (uint32_t c = 0; c <= GS_UNICODE_TABLE_END && status == GS_OK; c++) {
        if (!(gs_unicode_class(c) & classes))
            continue;
        uint32_t first = c;
        while (c < GS_UNICODE_TABLE_END && (gs_unicode_class(c + 1) & classes))
            c++;
        status = gs_char_set_add(set, first, c, error);
    }
    return status;
}

#define LIST(list) list, sizeof(list) / sizeof *(list)

gs_status gs_char_class(char name, bool negated, struct gs_char_set *set, struct gs_error *error)
{
    struct gs_char_set own = {0};
    gs_status status = GS_OK;
    if (name == 'd')
        status = add_list(LIST(digits), &own, error);
    else if (name == 'w')
        status = add_list(LIST(words), &own, error);
    else if (name == 's')
        status = add_list(LIST(spaces), &own, error);
    else if (name == '.')
        status = add_list(LIST(line_ends), &own, error);
    /* Python's \d and \w hold all of Unicode's; so their complements are those of the larger sets. */
    if (status == GS_OK && (name == 'N' || (name == 'd' && negated)))
        status = add_table(GS_CLASS_NUMBER, &own, error);
    if (status == GS_OK && name == 'L')
        status = add_table(GS_CLASS_LETTER, &own, error);
    if (status == GS_OK && name == 'w' && negated)
        status = add_table(GS_CLASS_LETTER | GS_CLASS_NUMBER, &own, error);
    if (status == GS_OK && name == 's' && negated)
        status = add_list(LIST(not_quite_spaces), &own, error);
    gs_char_set_normalise(&own);
    if (status == GS_OK && negated != (name == '.'))
        status = gs_char_set_complement(&own, error);
    if (status == GS_OK)
        status = add_list(own.list, own.count, set, error);
    free(own.list);
    return status;
}
