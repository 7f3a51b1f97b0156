/*
 * How fast text becomes tokens.
 *
 * usage: bench_tokenizer [--tokenizer FILE] [TEXT...]
 * Prints the time to open the vocabulary, then MB/s (10^6 bytes) for each text file; without files, for three
 * made-up texts. Processor time of the one thread; medians of RUNS runs, with the slowest and the fastest.
 */
#include "base/buffer.h"
#include "gossamer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS       9
#define TEXT_BYTES (2u << 20)

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Words at random, the early ones more often, as in any language. */
static gs_status make_text(struct gs_buffer *text, const char *const *words, size_t n_words)
{
    uint32_t state = 1;
    gs_status status = GS_OK;
    while (text->size < TEXT_BYTES && status == GS_OK) {
        size_t a = next_random(&state) % n_words, b = next_random(&state) % n_words;
        status = gs_buffer_append_text(text, words[a < b ? a : b], NULL);
    }
    return status;
}

static const char *const english[] = {
    " the",        " of",          " and",           " to",    " in",     " a",      ", ",
    " is",         ". The",        " that",          " for",   " was",    " with",   " as",
    " it's",       " by",          " which",         " river", " people", " early",  " winter",
    "; however,",  " language",    " mountain",      " 1984",  " church", " little", " professor",
    " remarkably", " engineering", " circumstances", ".\n\n",
};
static const char *const code[] = {
    "    ",
    " = ",
    "(",
    ")",
    ";\n",
    "i",
    " + ",
    "if (",
    ") {\n",
    "    }\n",
    "return ",
    "size_t ",
    "count",
    "->",
    "buffer_append",
    "NULL",
    "0",
    " // ",
    "[i]",
    "for (int ",
    "struct ",
    "self.",
    "getHTTPResponse",
    "0x7fff",
    "\"%s\\n\"",
    "/* ",
    " */\n",
    "\t\t",
    "!= ",
    "static ",
};
static const char *const chinese[] = {
    "的",   "是",   "在",   "我们", "，",   "。",   "和",   "一个",   "中国", "可以",
    "时间", "语言", "模型", "学习", "问题", "发展", "北京", "因为",   "所以", "经济",
    "文化", "科学", "研究", "历史", "！",   "山水", "春天", "图书馆",
};

/* Processor time of this thread, so that neighbours on the machine disturb the figures less. */
static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static gs_status measure(const struct gs_vocab *vocab, const char *name, const char *text, size_t size,
                         struct gs_error *error)
{
    double seconds[RUNS];
    struct gs_tokens tokens = {0};
    gs_status status = GS_OK;
    for (int run = 0; run < RUNS && status == GS_OK; run++) {
        tokens.count = 0;
        double start = thread_seconds();
        status = gs_vocab_encode(vocab, text, size, &tokens, error);
        seconds[run] = thread_seconds() - start;
    }
    if (status == GS_OK) {
        qsort(seconds, RUNS, sizeof(*seconds), compare_doubles);
        double megabytes = (double)size / 1e6;
        printf("%-24s %8.2f MB/s  (%.2f ... %.2f)  %zu bytes, %zu tokens\n", name,
               megabytes / seconds[RUNS / 2], megabytes / seconds[RUNS - 1], megabytes / seconds[0], size,
               tokens.count);
    }
    gs_tokens_free(&tokens);
    return status;
}

static gs_status read_file(const char *path, struct gs_buffer *text)
{
    char chunk[65536];
    size_t n;
    FILE *file = fopen(path, "rb");
    if (!file)
        return GS_IO;
    gs_status status = GS_OK;
    while (status == GS_OK && (n = fread(chunk, 1, sizeof(chunk), file)) > 0)
        status = gs_buffer_append(text, chunk, n, NULL);
    fclose(file);
    return status;
}

static gs_status measure_file(const struct gs_vocab *vocab, const char *path, struct gs_error *error)
{
    struct gs_buffer text = {0};
    gs_status status = read_file(path, &text);
    if (status != GS_OK)
        snprintf(error->message, sizeof(error->message), "cannot read %s", path);
    else
        status = measure(vocab, path, text.data, text.size, error);
    gs_buffer_free(&text);
    return status;
}

static gs_status measure_made_up(const struct gs_vocab *vocab, struct gs_error *error)
{
    static const struct {
        const char *name;
        const char *const *words;
        size_t n_words;
    } kinds[] = {
        {"English (made up)", english, sizeof(english) / sizeof(*english)},
        {"code (made up)", code, sizeof(code) / sizeof(*code)},
        {"Chinese (made up)", chinese, sizeof(chinese) / sizeof(*chinese)},
    };
    gs_status status = GS_OK;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && status == GS_OK; i++) {
        struct gs_buffer text = {0};
        status = make_text(&text, kinds[i].words, kinds[i].n_words);
        if (status == GS_OK)
            status = measure(vocab, kinds[i].name, text.data, text.size, error);
        gs_buffer_free(&text);
    }
    return status;
}

int main(int argc, char **argv)
{
    const char *path = "build/o200k/tokenizer.json";
    int first = 1;
    if (argc > 2 && strcmp(argv[1], "--tokenizer") == 0) {
        path = argv[2];
        first = 3;
    }
    double seconds[RUNS];
    struct gs_vocab *vocab = NULL;
    struct gs_error error = {0};
    for (int run = 0; run < RUNS; run++) {
        gs_vocab_close(vocab);
        double start = thread_seconds();
        if (gs_vocab_open(path, &vocab, &error) != GS_OK) {
            printf("skipped: %s\n", error.message);
            return 0;
        }
        seconds[run] = thread_seconds() - start;
    }
    qsort(seconds, RUNS, sizeof(*seconds), compare_doubles);
    printf("%-24s %8.3f s     (%.3f ... %.3f)  %s\n", "open", seconds[RUNS / 2], seconds[0],
           seconds[RUNS - 1], path);

    gs_status status = GS_OK;
    for (int i = first; i < argc && status == GS_OK; i++)
        status = measure_file(vocab, argv[i], &error);
    if (first >= argc)
        status = measure_made_up(vocab, &error);
    gs_vocab_close(vocab);
    if (status != GS_OK)
        fprintf(stderr, "%s\n", error.message);
    return status == GS_OK ? 0 : 1;
}
