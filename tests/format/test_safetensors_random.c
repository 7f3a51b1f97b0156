/* src/format/safetensors.c: random valid files, random violations, every truncation, every changed byte. */
#include "files.h"

#include "base/buffer.h"

#define MAX_TENSORS 12
#define MAX_RANK    5

static uint64_t seed;

/* splitmix64 */
static uint64_t draw(uint64_t below)
{
    uint64_t z = seed += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % below;
}

/* A tensor as it will be written, and as it must be read. */
struct plan {
    char name[40];
    enum gs_dtype dtype;
    size_t rank;
    uint64_t shape[MAX_RANK];
    uint64_t begin, end;
};

struct plans {
    struct plan items[MAX_TENSORS];
    size_t count;
    uint64_t data_size;
};

static void draw_plan(struct plan *plan, size_t number, uint64_t begin)
{
    static const char *const names[] = {"w", "model.layers.%zu", "block \xC3\xA9\xE6\xA8\xA1", "a\"b\\", ""};
    snprintf(plan->name, sizeof plan->name, "%zu%s", number, names[draw(5)]);
    uint64_t bits, n;
    do {
        plan->dtype = (enum gs_dtype)draw(GS_DTYPE_COUNT);
        plan->rank = (size_t)draw(MAX_RANK + 1);
        n = 1;
        for (size_t i = 0; i < plan->rank; i++) {
            plan->shape[i] = draw(7);
            n *= plan->shape[i];
        }
        bits = n * gs_dtype_bits(plan->dtype);
    } while (bits % 8 != 0);
    plan->begin = begin;
    plan->end = begin + bits / 8;
}

static void draw_plans(struct plans *plans)
{
    *plans = (struct plans){.count = (size_t)draw(MAX_TENSORS + 1)};
    for (size_t i = 0; i < plans->count; i++) {
        draw_plan(&plans->items[i], i, plans->data_size);
        plans->data_size = plans->items[i].end;
    }
}

/* The string in JSON, by chance with escapes. */
static void print_string(struct gs_buffer *out, const char *text)
{
    gs_buffer_append_text(out, "\"", NULL);
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            gs_buffer_print(out, NULL, "\\%c", *c);
        else if ((unsigned char)*c < 0x80 && draw(8) == 0)
            gs_buffer_print(out, NULL, draw(2) ? "\\u%04x" : "\\u%04X", *c);
        else
            gs_buffer_append(out, c, 1, NULL);
    }
    gs_buffer_append_text(out, "\"", NULL);
}

static void print_blanks(struct gs_buffer *out)
{
    static const char blanks[] = " \t\n\r";
    while (draw(4) == 0)
        gs_buffer_append(out, &blanks[draw(4)], 1, NULL);
}

static void print_mark(struct gs_buffer *out, const char *mark)
{
    print_blanks(out);
    gs_buffer_append_text(out, mark, NULL);
    print_blanks(out);
}

static void print_entry(struct gs_buffer *out, const struct plan *plan)
{
    unsigned order = (unsigned)draw(3);
    print_string(out, plan->name);
    print_mark(out, ":");
    print_mark(out, "{");
    for (unsigned i = 0; i < 3; i++) {
        if (i > 0)
            print_mark(out, ",");
        switch ((i + order) % 3) {
        case 0:
            print_string(out, "dtype");
            print_mark(out, ":");
            print_string(out, gs_dtype_name(plan->dtype));
            break;
        case 1:
            print_string(out, "shape");
            print_mark(out, ":");
            gs_buffer_append_text(out, "[", NULL);
            for (size_t k = 0; k < plan->rank; k++)
                gs_buffer_print(out, NULL, "%s%llu", k ? ", " : "", (unsigned long long)plan->shape[k]);
            gs_buffer_append_text(out, "]", NULL);
            break;
        default:
            print_string(out, "data_offsets");
            print_mark(out, ":");
            gs_buffer_print(out, NULL, "[%llu,%llu]", (unsigned long long)plan->begin,
                            (unsigned long long)plan->end);
        }
    }
    print_mark(out, "}");
}

/* The header with its entries in a random order and, by chance, metadata at a random place. */
static void print_header(struct gs_buffer *out, const struct plans *plans)
{
    size_t order[MAX_TENSORS + 1];
    for (size_t i = 0; i <= MAX_TENSORS; i++)
        order[i] = i;
    size_t count = plans->count + (size_t)draw(2); /* the one past the tensors stands for the metadata */
    for (size_t i = count; i > 1; i--) {
        size_t other = (size_t)draw(i), kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
    gs_buffer_append_text(out, "{", NULL);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            print_mark(out, ",");
        if (order[i] < plans->count)
            print_entry(out, &plans->items[order[i]]);
        else
            gs_buffer_append_text(out, "\"__metadata__\":{\"format\":\"pt\",\"\xC3\xA9\":\"\\ud83d\\ude00\"}",
                                  NULL);
    }
    gs_buffer_append_text(out, "}", NULL);
    print_blanks(out);
}

static bool has_view(const struct parsed *parsed, const struct plan *plan, const unsigned char *data)
{
    for (size_t i = 0; i < parsed->tensors.count; i++) {
        const struct gs_tensor *t = &parsed->tensors.tensors[i];
        if (strcmp(t->name, plan->name) != 0)
            continue;
        return t->dtype == plan->dtype && t->rank == plan->rank &&
               (t->rank == 0 || memcmp(t->shape, plan->shape, t->rank * sizeof *t->shape) == 0) &&
               t->data == data + plan->begin && t->bytes == plan->end - plan->begin;
    }
    return false;
}

/* Expects the views of `plans`, or where `rule` is given a refusal with that in its message. */
static void check_plans(const struct plans *plans, uint64_t data_size, const char *rule)
{
    struct gs_buffer header = {0};
    print_header(&header, plans);
    size_t size;
    unsigned char *bytes = build_file(header.data, header.size, (size_t)data_size, &size);
    struct parsed parsed;
    parse_bytes(&parsed, bytes, size);
    if (rule) {
        if (parsed.status == GS_OK || !strstr(parsed.error.message, rule))
            fail_msg("%s: expected \"%s\", got \"%s\"", header.data, rule, parsed.error.message);
    } else {
        if (parsed.status != GS_OK)
            fail_msg("%s: %s", header.data, parsed.error.message);
        assert_int_equal(parsed.tensors.count, plans->count);
        uint64_t covered = 0;
        for (size_t i = 0; i < plans->count; i++) {
            assert_true(has_view(&parsed, &plans->items[i], bytes + 8 + header.size));
            assert_ptr_equal(parsed.tensors.tensors[i].data, bytes + 8 + header.size + covered);
            covered += parsed.tensors.tensors[i].bytes;
        }
    }
    gs_arena_free(&parsed.arena);
    gs_buffer_free(&header);
    free(bytes);
}

static void random_files_load(void **state)
{
    (void)state;
    seed = 1;
    for (unsigned round = 0; round < 5000; round++) {
        struct plans plans;
        draw_plans(&plans);
        check_plans(&plans, plans.data_size, NULL);
    }
}

static void random_violations_are_refused(void **state)
{
    (void)state;
    seed = 2;
    for (unsigned round = 0; round < 5000; round++) {
        struct plans plans;
        do
            draw_plans(&plans);
        while (plans.count < 2 || plans.items[0].end == 0 ||
               plans.items[plans.count - 1].begin == plans.items[plans.count - 1].end);
        size_t at = (size_t)draw(plans.count);
        struct plan *plan = &plans.items[at], *last = &plans.items[plans.count - 1];
        switch (draw(8)) {
        case 0:
            check_plans(&plans, plans.data_size + 1 + draw(9), "trailing data");
            break;
        case 1:
            check_plans(&plans, draw(plans.data_size), "truncated");
            break;
        case 2:
            plan->end += 1 + draw(1000);
            check_plans(&plans, plans.data_size, "size mismatch");
            break;
        case 3:
            last->begin++;
            last->end++;
            check_plans(&plans, plans.data_size + 1, "hole");
            break;
        case 4:
            last->begin--;
            last->end--;
            check_plans(&plans, plans.data_size - 1, "overlap");
            break;
        case 5:
            plan->begin = plan->end + 1 + draw(1000);
            check_plans(&plans, plans.data_size, "reversed offsets");
            break;
        case 6:
            strcpy(plan->name, plans.items[(at + 1) % plans.count].name);
            check_plans(&plans, plans.data_size, "duplicate key");
            break;
        default:
            plan->rank = 2;
            plan->shape[0] = UINT64_MAX - draw(1000);
            plan->shape[1] = 2 + draw(1000);
            check_plans(&plans, plans.data_size, "overflow");
        }
    }
}

static const char sample[] = "{\"__metadata__\":{\"format\":\"pt\"},\"a\\u00e9\":{\"dtype\":\"BF16\","
                             "\"shape\":[2,4],\"data_offsets\":[0,16]},"
                             "\"b\":{\"data_offsets\":[16,19],\"shape\":[3],\"dtype\":\"U8\"},"
                             "\"\xE6\xA8\xA1\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[19,23]}} ";

/* Parses a copy of exactly this size, so that a sanitizer sees a read past its end. */
static gs_status parse_copy(const unsigned char *bytes, size_t size)
{
    unsigned char *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    struct parsed parsed;
    parse_bytes(&parsed, copy, size);
    gs_status status = parsed.status;
    if (status != GS_OK)
        assert_clean_failure(status, &parsed.error);
    for (size_t i = 0; i < parsed.tensors.count; i++) {
        const struct gs_tensor *t = &parsed.tensors.tensors[i];
        assert_true(t->data >= copy && t->bytes <= (uint64_t)(copy + size - t->data));
    }
    gs_arena_free(&parsed.arena);
    free(copy);
    return status;
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = build_file(sample, sizeof sample - 1, 23, &size);
    for (size_t kept = 0; kept < size; kept++) {
        assert_int_equal(parse_copy(bytes, kept), GS_MALFORMED);
        /* and with the length made to fit, wherever the cut leaves a header */
        if (kept >= 8 && kept < 8 + sizeof sample - 2) {
            bytes[0] = (unsigned char)(kept - 8);
            bytes[1] = (unsigned char)((kept - 8) >> 8);
            assert_int_equal(parse_copy(bytes, kept), GS_MALFORMED);
            bytes[0] = (unsigned char)(sizeof sample - 1);
            bytes[1] = (unsigned char)((sizeof sample - 1) >> 8);
        }
    }
    assert_int_equal(parse_copy(bytes, size), GS_OK);
    free(bytes);
}

static void every_changed_byte_is_survived(void **state)
{
    (void)state;
    size_t size, n_ok = 0, n_refused = 0;
    unsigned char *bytes = build_file(sample, sizeof sample - 1, 23, &size);
    for (size_t at = 0; at < 8 + sizeof sample - 1; at++) {
        unsigned char kept = bytes[at];
        for (unsigned value = 0; value < 256; value++) {
            bytes[at] = (unsigned char)value;
            if (parse_copy(bytes, size) == GS_OK)
                n_ok++;
            else
                n_refused++;
        }
        bytes[at] = kept;
    }
    /* Both kinds must occur: a letter of a name may change, a digit of an offset may not. */
    assert_true(n_ok > 8 + sizeof sample - 1);
    assert_true(n_refused > n_ok);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_files_load),
        cmocka_unit_test(random_violations_are_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_changed_byte_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
