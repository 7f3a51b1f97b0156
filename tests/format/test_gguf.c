/* src/format/gguf.c: every rule of the format from both sides, truncations and mutations. */
#include "tests/support/check.h"
#include "tests/support/tiny_gguf.h"

#include <stdio.h>
#include <stdlib.h>

struct parsed {
    unsigned char *bytes; /* of exactly the file's size, so that a sanitizer sees a read beyond it */
    struct gs_file_map map;
    struct gs_arena arena;
    struct gs_gguf gguf;
    struct gs_error error;
    gs_status status;
};

static struct parsed *parse(const void *bytes, size_t size)
{
    static char path[] = "f.gguf";
    struct parsed *parsed = calloc(1, sizeof *parsed);
    assert_non_null(parsed);
    parsed->bytes = malloc(size ? size : 1);
    assert_non_null(parsed->bytes);
    memcpy(parsed->bytes, bytes, size);
    parsed->map = (struct gs_file_map){
        .path = path, .data = size ? parsed->bytes : NULL, .size = size, .descriptor = -1, .slot = -1};
    parsed->status = gs_gguf_parse(&parsed->map, &parsed->arena, &parsed->gguf, &parsed->error);
    if (parsed->status != GS_OK) {
        assert_int_equal(parsed->status, parsed->error.code);
        assert_true(parsed->status == GS_MALFORMED || parsed->status == GS_UNSUPPORTED);
        assert_null(strpbrk(parsed->error.message, "\n\r\033"));
        assert_true(!parsed->gguf.entries && !parsed->gguf.tensors && parsed->gguf.count == 0);
    }
    return parsed;
}

static void drop(struct parsed *parsed)
{
    gs_arena_free(&parsed->arena);
    free(parsed->bytes);
    free(parsed);
}

/* Takes the buffer. */
static void expect(struct gs_buffer bytes, gs_status status, const char *part)
{
    struct parsed *parsed = parse(bytes.data, bytes.size);
    if (parsed->status != status)
        fail_msg("status %d, not %d: %s", parsed->status, status, parsed->error.message);
    if (status != GS_OK && !strstr(parsed->error.message, part))
        fail_msg("expected \"%s\" in \"%s\"", part, parsed->error.message);
    drop(parsed);
    gs_buffer_free(&bytes);
}

static void expect_file(struct gguf_file *file, gs_status status, const char *part)
{
    expect(gguf_finish(file), status, part);
}

/* Every value type, arrays of each kind, and tensors of each type and rank. */
static struct gguf_file make_sample(uint32_t alignment)
{
    static const unsigned char zeros[256];
    static const uint8_t sizes[GS_GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    struct gguf_file file = {.alignment = alignment};
    for (uint32_t type = 0; type < GS_GGUF_TYPE_COUNT; type++) {
        char key[40];
        if (type == GS_GGUF_STRING || type == GS_GGUF_ARRAY)
            continue;
        snprintf(key, sizeof key, "one.%u", type);
        gguf_value(&file, key, type);
        gguf_put(&file.entries, "\1\0\0\0\0\0\0\0", sizes[type]);
        snprintf(key, sizeof key, "three.%u", type);
        gguf_array(&file, key, type, 3);
        gguf_put(&file.entries, zeros, 3u * sizes[type]);
    }
    gguf_text(&file, "text", "some text");
    gguf_text(&file, "empty text", "");
    gguf_array(&file, "texts", GS_GGUF_STRING, 3);
    gguf_put_text(&file.entries, "a", 1);
    gguf_put_text(&file.entries, "", 0);
    gguf_put_text(&file.entries, "b\0c", 3);
    gguf_array(&file, "no texts", GS_GGUF_STRING, 0);
    gguf_tensor(&file, "f32", GGUF_F32, 1, (uint64_t[]){3}, zeros, 12);
    gguf_tensor(&file, "f16", GGUF_F16, 2, (uint64_t[]){3, 2}, zeros, 12);
    gguf_tensor(&file, "empty", GGUF_BF16, 3, (uint64_t[]){3, 0, 5}, zeros, 0);
    gguf_tensor(&file, "q8_0", GGUF_Q8_0, 2, (uint64_t[]){32, 3}, zeros, 102);
    gguf_tensor(&file, "mxfp4", GGUF_MXFP4, 4, (uint64_t[]){64, 1, 2, 1}, zeros, 68);
    gguf_tensor(&file, "scalar", GGUF_F32, 0, NULL, zeros, 4);
    gguf_tensor(&file, "bf16", GGUF_BF16, 1, (uint64_t[]){5}, zeros, 10);
    return file;
}

/* ---------------------------------------------------------------- what is right */

static void a_sample_is_read(void **state)
{
    (void)state;
    static const uint32_t alignments[] = {0, 1, 2, 8, 64, 65536};
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        struct gguf_file file = make_sample(alignments[i]);
        struct gs_buffer bytes = gguf_finish(&file);
        struct parsed *parsed = parse(bytes.data, bytes.size);
        assert_ok(parsed->status, &parsed->error);
        const struct gs_gguf *gguf = &parsed->gguf;
        assert_int_equal(gguf->version, 3);
        assert_int_equal(gguf->alignment, alignments[i] ? alignments[i] : 32);
        assert_int_equal(gguf->count, 7);
        const struct gs_tensor *q8 = &gguf->tensors[3];
        assert_string_equal(q8->name, "q8_0");
        assert_int_equal(q8->dtype, GS_DTYPE_Q8_0);
        assert_int_equal(q8->rank, 2);
        assert_int_equal(q8->shape[0], 3);
        assert_int_equal(q8->shape[1], 32);
        assert_int_equal(q8->bytes, 102);
        assert_int_equal(gguf->tensors[4].bytes, 68);
        assert_int_equal(gguf->tensors[5].rank, 0);
        for (size_t k = 0; k < gguf->count; k++)
            assert_true(gguf->tensors[k].file == &parsed->map && gguf->tensors[k].data >= parsed->bytes &&
                        gguf->tensors[k].data + gguf->tensors[k].bytes <= parsed->bytes + bytes.size);
        drop(parsed);
        gs_buffer_free(&bytes);
    }
}

static void values_are_given_back(void **state)
{
    (void)state;
    struct gguf_file file = make_sample(0);
    struct gs_buffer bytes;
    const struct gs_gguf_entry *entry;
    const char *text;
    size_t size;
    int64_t integer;
    double real;
    gguf_value(&file, "minus", GS_GGUF_I16);
    gguf_put(&file.entries, "\xfe\xff", 2);
    gguf_value(&file, "minus one", GS_GGUF_I64);
    gguf_put_u64(&file.entries, UINT64_MAX);
    gguf_value(&file, "large", GS_GGUF_U64);
    gguf_put_u64(&file.entries, UINT64_MAX);
    gguf_f32(&file, "half", 0.5f);
    gguf_array(&file, "list", GS_GGUF_I32, 2);
    gguf_put_u32(&file.entries, 7);
    gguf_put_u32(&file.entries, (uint32_t)-7);
    bytes = gguf_finish(&file);
    struct parsed *parsed = parse(bytes.data, bytes.size);
    assert_ok(parsed->status, &parsed->error);
    const struct gs_gguf *gguf = &parsed->gguf;

    assert_null(gs_gguf_find(gguf, "tex"));
    assert_null(gs_gguf_find(gguf, "text "));
    assert_null(gs_gguf_find(gguf, ""));
    entry = gs_gguf_find(gguf, "text");
    assert_true(entry && gs_gguf_text(entry, &text, &size) && size == 9 && memcmp(text, "some text", 9) == 0);
    assert_false(gs_gguf_integer(entry, 0, &integer) || gs_gguf_real(entry, &real));
    entry = gs_gguf_find(gguf, "minus");
    assert_true(entry && gs_gguf_integer(entry, 0, &integer) && integer == -2);
    assert_false(gs_gguf_integer(entry, 1, &integer) || gs_gguf_text(entry, &text, &size));
    entry = gs_gguf_find(gguf, "minus one");
    assert_true(entry && gs_gguf_integer(entry, 0, &integer) && integer == -1);
    assert_false(gs_gguf_integer(gs_gguf_find(gguf, "large"), 0, &integer));
    entry = gs_gguf_find(gguf, "half");
    assert_true(entry && gs_gguf_real(entry, &real) && real == 0.5 && !gs_gguf_integer(entry, 0, &integer));
    entry = gs_gguf_find(gguf, "list");
    assert_true(entry && gs_gguf_integer(entry, 1, &integer) && integer == -7);
    assert_false(gs_gguf_integer(entry, 2, &integer) || gs_gguf_real(entry, &real));

    struct gs_gguf_strings strings = gs_gguf_strings(gs_gguf_find(gguf, "texts"));
    assert_false(gs_gguf_text(gs_gguf_find(gguf, "texts"), &text, &size));
    assert_true(gs_gguf_strings_next(&strings, &text, &size) && size == 1 && *text == 'a');
    assert_true(gs_gguf_strings_next(&strings, &text, &size) && size == 0);
    assert_true(gs_gguf_strings_next(&strings, &text, &size) && size == 3 && memcmp(text, "b\0c", 3) == 0);
    assert_false(gs_gguf_strings_next(&strings, &text, &size));
    strings = gs_gguf_strings(gs_gguf_find(gguf, "list"));
    assert_false(gs_gguf_strings_next(&strings, &text, &size));
    strings = gs_gguf_strings(NULL);
    assert_false(gs_gguf_strings_next(&strings, &text, &size));
    drop(parsed);
    gs_buffer_free(&bytes);
}

/* A string that grows after it was checked (the file is mapped) ends the list instead of leaving the map. */
static void strings_are_checked_again(void **state)
{
    (void)state;
    struct gguf_file file = {0};
    gguf_array(&file, "texts", GS_GGUF_STRING, 2);
    gguf_put_text(&file.entries, "a", 1);
    gguf_put_text(&file.entries, "b", 1);
    struct gs_buffer bytes = gguf_finish(&file);
    struct parsed *parsed = parse(bytes.data, bytes.size);
    assert_ok(parsed->status, &parsed->error);
    const struct gs_gguf_entry *entry = gs_gguf_find(&parsed->gguf, "texts");
    const char *text;
    size_t size;
    memset(parsed->bytes + (entry->data - parsed->bytes), 0xFF, 8);
    struct gs_gguf_strings strings = gs_gguf_strings(entry);
    assert_false(gs_gguf_strings_next(&strings, &text, &size));
    drop(parsed);
    gs_buffer_free(&bytes);
}

static void versions(void **state)
{
    (void)state;
    for (uint32_t version = 1; version <= 4; version++) {
        struct gguf_file file = {.version = version};
        bool known = version == 2 || version == 3;
        expect_file(&file, known ? GS_OK : GS_UNSUPPORTED, "versions 2 and 3 are read");
    }
    struct gguf_file file = {.version = 0x03000000};
    expect_file(&file, GS_UNSUPPORTED, "big-endian");
    struct gs_buffer other = {0};
    gguf_put(&other, "GGML\3\0\0\0", 8);
    expect(other, GS_MALFORMED, "is no GGUF file");
}

/* ---------------------------------------------------------------- counts and sizes */

static struct gs_buffer header(uint64_t n_tensor, uint64_t n_entry, size_t rest)
{
    struct gs_buffer bytes = {0};
    gguf_put(&bytes, "GGUF", 4);
    gguf_put_u32(&bytes, 3);
    gguf_put_u64(&bytes, n_tensor);
    gguf_put_u64(&bytes, n_entry);
    for (size_t i = 0; i < rest; i++)
        gguf_put(&bytes, "", 1);
    return bytes;
}

static void counts_beyond_the_file(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1u << 16, (uint64_t)1 << 32, (uint64_t)1 << 63, UINT64_MAX, 100};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        expect(header(0, counts[i], 1000), GS_MALFORMED, "metadata entries, at most 71 are possible");
        expect(header(counts[i], 0, 1000), GS_MALFORMED, "tensors, at most 40 are possible");
    }
    expect(header(0, 0, 0), GS_OK, "");
    expect(header(0, 0, 8), GS_OK, "");
    expect(header(0, 0, 9), GS_MALFORMED, "1 bytes follow the last tensor");
    expect(header(0, 1, 14), GS_MALFORMED, "a key of 0 bytes");

    static const uint32_t types[] = {GS_GGUF_U8, GS_GGUF_I32, GS_GGUF_F64, GS_GGUF_STRING, GS_GGUF_BOOL};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            struct gguf_file file = {0};
            gguf_array(&file, "tokens", types[t], counts[i]);
            expect_file(&file, GS_MALFORMED, "f.gguf: tokens: ");
        }
    }
    struct gguf_file file = {0};
    gguf_value(&file, "text", GS_GGUF_STRING);
    gguf_put_u64(&file.entries, UINT64_MAX - 3);
    expect_file(&file, GS_MALFORMED, "a string reaches beyond the end of the file");
    file = (struct gguf_file){0};
    gguf_put_u64(&file.entries, (uint64_t)1 << 63);
    gguf_put_u64(&file.entries, 0);
    file.n_entry = 1;
    expect_file(&file, GS_MALFORMED, "a key of the metadata");
}

static void rules_of_the_metadata(void **state)
{
    (void)state;
    struct gguf_file file = {0};
    gguf_array(&file, "nested", GS_GGUF_ARRAY, 0);
    expect_file(&file, GS_MALFORMED, "nested: an array of arrays");
    file = (struct gguf_file){0};
    gguf_value(&file, "new", GS_GGUF_TYPE_COUNT);
    expect_file(&file, GS_MALFORMED, "new: value type 13, must be 0 ... 12");
    file = (struct gguf_file){0};
    gguf_array(&file, "new", UINT32_MAX, 0);
    expect_file(&file, GS_MALFORMED, "value type 4294967295");
    file = (struct gguf_file){0};
    gguf_value(&file, "truth", GS_GGUF_BOOL);
    gguf_put(&file.entries, "\2", 1);
    expect_file(&file, GS_MALFORMED, "truth: a truth value must be 0 or 1");
    file = (struct gguf_file){0};
    gguf_array(&file, "truths", GS_GGUF_BOOL, 2);
    gguf_put(&file.entries, "\1\xff", 2);
    expect_file(&file, GS_MALFORMED, "must be 0 or 1");

    for (size_t apart = 0; apart < 3; apart++) {
        file = (struct gguf_file){0};
        gguf_u32(&file, "same", 1);
        for (size_t i = 0; i < apart; i++)
            gguf_u32(&file, i ? "zzz" : "aaa", 1);
        gguf_text(&file, "same", "x");
        expect_file(&file, GS_MALFORMED, "same: the key is there twice");
    }
    file = (struct gguf_file){0};
    gguf_u32(&file, "", 1);
    expect_file(&file, GS_MALFORMED, "a key of 0 bytes");
    file = (struct gguf_file){0};
    gguf_put_text(&file.entries, "a\0b", 3);
    gguf_put(&file.entries, "\0\0\0\0\1\0\0\0", 8);
    file.n_entry = 1;
    expect_file(&file, GS_MALFORMED, "none of them NUL");
    for (size_t size = 65535; size <= 65536; size++) {
        char *key = malloc(size + 1);
        assert_non_null(key);
        memset(key, 'k', size);
        key[size] = '\0';
        file = (struct gguf_file){0};
        gguf_u32(&file, key, 1);
        expect_file(&file, size == 65535 ? GS_OK : GS_MALFORMED, "a key of 65536 bytes");
        free(key);
    }
    file = (struct gguf_file){0};
    gguf_u32(&file, "x\n[ERROR] \033]52;fake", 1);
    gguf_u32(&file, "x\n[ERROR] \033]52;fake", 1);
    expect_file(&file, GS_MALFORMED, "\\x0A[ERROR] \\x1B]52;fake: the key is there twice");
}

static void alignments(void **state)
{
    (void)state;
    static const uint32_t wrong[] = {0, 3, 24, 33, 131072, 0x80000000, UINT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct gguf_file file = {0};
        gguf_u32(&file, "general.alignment", wrong[i]);
        expect_file(&file, GS_MALFORMED, "must be a power of two up to 65536");
    }
    struct gguf_file file = {0};
    gguf_value(&file, "general.alignment", GS_GGUF_U64);
    gguf_put_u64(&file.entries, 32);
    expect_file(&file, GS_MALFORMED, "general.alignment: must be of type u32");
    file = (struct gguf_file){0};
    gguf_array(&file, "general.alignment", GS_GGUF_U32, 1);
    gguf_put_u32(&file.entries, 32);
    expect_file(&file, GS_MALFORMED, "general.alignment: must be of type u32");
}

/* ---------------------------------------------------------------- tensors */

/* One tensor described word for word, with `data` bytes after it. */
static struct gguf_file one_tensor(const char *name, uint32_t rank, const uint64_t *ne, uint32_t type,
                                   uint64_t offset, size_t data)
{
    struct gguf_file file = {.alignment = 1, .n_tensor = 1};
    gguf_put_text(&file.infos, name, strlen(name));
    gguf_put_u32(&file.infos, rank);
    for (uint32_t i = 0; i < rank && i < 8; i++)
        gguf_put_u64(&file.infos, ne[i]);
    gguf_put_u32(&file.infos, type);
    gguf_put_u64(&file.infos, offset);
    for (size_t i = 0; i < data; i++)
        gguf_put(&file.data, "", 1);
    return file;
}

static void shapes(void **state)
{
    (void)state;
    const uint64_t large = (uint64_t)1 << 63;
    static const struct {
        uint32_t rank;
        uint64_t ne[8];
        uint32_t type;
        const char *message;
    } cases[] = {
        {5, {1, 1, 1, 1, 1}, GGUF_F32, "has 5 dimensions, at most 4"},
        {UINT32_MAX, {1, 1, 1, 1, 1, 1, 1, 1}, GGUF_F32, "has 4294967295 dimensions"},
        {2, {2, UINT64_MAX - 1}, GGUF_F32, "the product of the dimensions overflows"},
        {2, {(uint64_t)1 << 32, (uint64_t)1 << 32}, GGUF_F32, "the product of the dimensions overflows"},
        {2, {(uint64_t)1 << 32, (uint64_t)1 << 31}, GGUF_F32, "the product of the dimensions overflows"},
        {3, {(uint64_t)1 << 62, 2, 0}, GGUF_F32, "the product of the dimensions overflows"},
        {1, {(uint64_t)1 << 62}, GGUF_F32, "the size in bytes overflows"},
        {1, {((uint64_t)1 << 42) + 1}, GGUF_F32, "do not fit in the data part of 12 bytes"},
        {1, {4}, GGUF_F32, "16 bytes at offset 0 do not fit in the data part of 12 bytes"},
        {1, {31}, GGUF_Q8_0, "rows of 31 elements, must be a multiple of 32, the block of Q8_0"},
        {2, {16, 2}, GGUF_MXFP4, "rows of 16 elements, must be a multiple of 32, the block of MXFP4"},
        {0, {0}, GGUF_MXFP4, "rows of 1 elements, must be a multiple of 32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_file file = one_tensor("t", cases[i].rank, cases[i].ne, cases[i].type, 0, 12);
        expect_file(&file, GS_MALFORMED, cases[i].message);
    }
    struct gguf_file file = one_tensor("t", 1, &large, GGUF_F32, 0, 12);
    expect_file(&file, GS_MALFORMED, "the product of the dimensions overflows");
    file = one_tensor("t", 1, (uint64_t[]){3}, GGUF_F32, 0, 12);
    expect_file(&file, GS_OK, "");
    file = one_tensor("t", 1, (uint64_t[]){3}, GGUF_F32, 0, 13);
    expect_file(&file, GS_MALFORMED, "1 bytes follow the last tensor");
}

static void types_of_tensors(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < 60; type++) {
        bool read = type == GGUF_F32 || type == GGUF_F16 || type == GGUF_BF16 || type == GGUF_Q8_0 ||
                    type == GGUF_MXFP4;
        struct gguf_file file = one_tensor("t", 1, (uint64_t[]){0}, type, 0, 0);
        expect_file(&file, read ? GS_OK : GS_UNSUPPORTED, "supported are F32, F16, BF16, Q8_0 and MXFP4");
    }
    struct gguf_file file = one_tensor("t", 1, (uint64_t[]){256}, GGUF_Q4_K, 0, 144);
    expect_file(&file, GS_UNSUPPORTED, "f.gguf: t: is of type Q4_K (number 12)");
    file = one_tensor("t", 1, (uint64_t[]){256}, UINT32_MAX, 0, 144);
    expect_file(&file, GS_UNSUPPORTED, "is of type unknown (number 4294967295)");
}

static void names_and_offsets(void **state)
{
    (void)state;
    char name[80];
    for (size_t size = 0; size <= 65; size++) {
        memset(name, 'n', size);
        name[size] = '\0';
        struct gguf_file file = one_tensor(name, 1, (uint64_t[]){3}, GGUF_F32, 0, 12);
        expect_file(&file, size >= 1 && size <= 63 ? GS_OK : GS_MALFORMED, "must have 1 ... 63");
    }
    static const uint64_t offsets[] = {1, 32, UINT64_MAX, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        struct gguf_file file = one_tensor("t", 1, (uint64_t[]){3}, GGUF_F32, offsets[i], 64);
        expect_file(&file, GS_MALFORMED, "must be 0: tensors follow one another");
    }
    for (int step = -32; step <= 32; step += 8) {
        struct gguf_file file = {0};
        gguf_tensor(&file, "a", GGUF_F32, 1, (uint64_t[]){3}, "123456789012", 12);
        gguf_tensor(&file, "b", GGUF_F32, 1, (uint64_t[]){3}, "123456789012", 12);
        uint64_t offset = (uint64_t)(32 + step);
        memcpy(file.infos.data + file.infos.size - 8, &offset, 8);
        expect_file(&file, step == 0 ? GS_OK : GS_MALFORMED, "must be 32: tensors follow one another, each");
    }
    struct gguf_file file = {0};
    gguf_tensor(&file, "same", GGUF_F32, 1, (uint64_t[]){3}, "123456789012", 12);
    gguf_tensor(&file, "other", GGUF_F32, 1, (uint64_t[]){3}, "123456789012", 12);
    gguf_tensor(&file, "same", GGUF_F16, 1, (uint64_t[]){3}, "123456", 6);
    expect_file(&file, GS_MALFORMED, "same: the tensor is there twice");
}

/* ---------------------------------------------------------------- every byte */

static void every_truncation(void **state)
{
    (void)state;
    struct gguf_file file = make_sample(0);
    struct gs_buffer bytes = gguf_finish(&file);
    /* The last tensor has 10 bytes, and then there is padding, which may be missing. */
    size_t end = bytes.size - 32 + 10;
    for (size_t size = 0; size <= bytes.size; size++) {
        struct parsed *parsed = parse(bytes.data, size);
        if ((parsed->status == GS_OK) != (size >= end))
            fail_msg("%zu of %zu bytes: %s", size, bytes.size, parsed->error.message);
        drop(parsed);
    }
    gs_buffer_free(&bytes);
}

/* What is accepted after any change of one byte is still within the file. */
static void every_mutation(void **state)
{
    (void)state;
    struct gguf_file file = make_sample(8);
    struct gs_buffer bytes = gguf_finish(&file);
    static const unsigned char flips[] = {0x01, 0x02, 0x10, 0x7F, 0x80, 0xFF};
    size_t n_refused = 0;
    for (size_t at = 0; at < bytes.size; at++) {
        for (size_t i = 0; i < sizeof flips; i++) {
            bytes.data[at] = (char)((unsigned char)bytes.data[at] ^ flips[i]);
            struct parsed *parsed = parse(bytes.data, bytes.size);
            n_refused += parsed->status != GS_OK;
            for (size_t k = 0; k < parsed->gguf.count; k++) {
                const struct gs_tensor *tensor = &parsed->gguf.tensors[k];
                assert_true(tensor->data >= parsed->bytes &&
                            tensor->bytes <= (uint64_t)(parsed->bytes + bytes.size - tensor->data));
            }
            drop(parsed);
            bytes.data[at] = (char)((unsigned char)bytes.data[at] ^ flips[i]);
        }
    }
    assert_true(n_refused > 2000);
    gs_buffer_free(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_is_read),
        cmocka_unit_test(values_are_given_back),
        cmocka_unit_test(strings_are_checked_again),
        cmocka_unit_test(versions),
        cmocka_unit_test(counts_beyond_the_file),
        cmocka_unit_test(rules_of_the_metadata),
        cmocka_unit_test(alignments),
        cmocka_unit_test(shapes),
        cmocka_unit_test(types_of_tensors),
        cmocka_unit_test(names_and_offsets),
        cmocka_unit_test(every_truncation),
        cmocka_unit_test(every_mutation),
    };
    return cmocka_run_group_tests_name("format/gguf", tests, NULL, NULL);
}
