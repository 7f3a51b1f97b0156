/*
 * What run and chat share: the options of sampling and machine, and the vocabulary, model, context and
 * sampler that they describe.
 */
#ifndef GS_CLI_SETUP_H
#define GS_CLI_SETUP_H

#include "base/buffer.h"
#include "cli/options.h"

struct gs_setup_settings {
    const char *model;
    int64_t n_tokens; /* -1: no limit */
    double temperature, top_p, min_p;
    double repeat_penalty, presence_penalty, frequency_penalty;
    int64_t top_k;
    struct gs_bias_list bias;
    int64_t seed; /* -1: a random one */
    int64_t n_ctx, n_threads;
    int64_t device; /* which of the backend's */
    const char *backend;
    const char *precision, *weights, *cpu_features; /* NULL: fast, native, the best */
    const char *decode;                             /* NULL: fused */
    const char *script;
    int64_t script_generation;
};

#define GS_SETUP_DEFAULTS                                                                                    \
    {                                                                                                        \
        .n_tokens = -1, .temperature = 1.0, .top_p = 1.0, .repeat_penalty = 1.0, .seed = -1                  \
    }

#define GS_TWO_TO_53 9007199254740992.0 /* whole numbers up to it are exact in JSON's numbers too */

/* Rows of an option table; `member` is the gs_setup_settings in the command's settings. */
#define GS_SETUP_LENGTH_OPTIONS(type, member)                                                                \
    {                                                                                                        \
        .kind = GS_OPTION_INTEGER, .name = "tokens", .letter = 'n', .value = "N",                            \
        .offset = offsetof(type, member.n_tokens), .most = 1e9,                                              \
        .help = "at most N tokens; 0 only reads the prompt\n(default: until a stop token or a full context)" \
    }

#define GS_SETUP_SAMPLING_OPTIONS(type, member)                                                              \
    GS_HEADING_ROW("Sampling:"),                                                                             \
        GS_REAL_ROW("temp", "T", offsetof(type, member.temperature), 0, 100,                                 \
                    "temperature; 0 takes the most likely token (default 1)"),                               \
        GS_INTEGER_ROW("top-k", "K", offsetof(type, member.top_k), 0, INT32_MAX,                             \
                       "only the K most likely tokens; 0: all (default 0)"),                                 \
        GS_REAL_ABOVE_ROW("top-p", "P", offsetof(type, member.top_p), 0, 1,                                  \
                          "only the likeliest whose probability sums to P (default 1)"),                     \
        GS_REAL_ROW("min-p", "P", offsetof(type, member.min_p), 0, 1,                                        \
                    "only tokens at least P times as likely as the likeliest\n(default 0)"),                 \
        GS_REAL_ABOVE_ROW("repeat-penalty", "X", offsetof(type, member.repeat_penalty), 0, 100,              \
                          "logits of tokens seen before, divided by X if positive,\nmultiplied if "          \
                          "not (default 1)"),                                                                \
        GS_REAL_ROW("presence-penalty", "X", offsetof(type, member.presence_penalty), -100, 100,             \
                    "subtracted from the logits of tokens seen before"),                                     \
        GS_REAL_ROW("frequency-penalty", "X", offsetof(type, member.frequency_penalty), -100, 100,           \
                    "the same, once per occurrence"),                                                        \
        {.kind = GS_OPTION_BIAS,                                                                             \
         .name = "logit-bias",                                                                               \
         .value = "ID=X",                                                                                    \
         .offset = offsetof(type, member.bias),                                                              \
         .least = -1e9,                                                                                      \
         .most = 1e9,                                                                                        \
         .help = "added to the logit of token ID; may be repeated"},                                         \
        GS_INTEGER_ROW("seed", "N", offsetof(type, member.seed), 0, GS_TWO_TO_53,                            \
                       "of the random numbers: the same seed gives the same text\n(default: random; "        \
                       "shown in the statistics)")

#define GS_SETUP_MACHINE_OPTIONS(type, member)                                                               \
    GS_HEADING_ROW("The machine:"),                                                                          \
        GS_INTEGER_ROW("ctx", "N", offsetof(type, member.n_ctx), 1, INT32_MAX,                               \
                       "context: prompt and answer, in tokens (default: the largest\nthat fits)"),           \
        GS_INTEGER_ROW("threads", "N", offsetof(type, member.n_threads), 1, 1024,                            \
                       "processor threads (default: one per physical core)"),                                \
        GS_TEXT_ROW("backend", "NAME", offsetof(type, member.backend),                                       \
                    "what computes (default: the best that works here; auto: the\nsame, and why not "        \
                    "a better one; --version lists them)"),                                                  \
        GS_INTEGER_ROW("device", "N", offsetof(type, member.device), 0, 1023,                                \
                       "which of the backend's devices (default 0)"),                                        \
        GS_TEXT_ROW("precision", "P", offsetof(type, member.precision),                                      \
                    "fast (default): what the machine does best; exact: float32,\nthe same bits "            \
                    "everywhere"),                                                                           \
        GS_TEXT_ROW("weights", "W", offsetof(type, member.weights),                                          \
                    "native (default): as in the file; q8: attention and head in 8\nbits, made while "       \
                    "loading"),                                                                              \
        GS_DECODE_ROW(offsetof(type, member.decode)),                                                        \
        GS_TEXT_ROW("cpu-features", "NAME", offsetof(type, member.cpu_features),                             \
                    "processor kernels, such as avx2 (default: the best of this\nprocessor; gossamer "       \
                    "--version lists them)")

#define GS_SETUP_SCRIPT_OPTIONS(type, member)                                                                \
    {.kind = GS_OPTION_TEXT,                                                                                 \
     .name = "script-tokens",                                                                                \
     .value = "FILE",                                                                                        \
     .offset = offsetof(type, member.script),                                                                \
     .hidden = true},                                                                                        \
    {                                                                                                        \
        .kind = GS_OPTION_INTEGER, .name = "script-generation", .value = "N",                                \
        .offset = offsetof(type, member.script_generation), .most = 1e9, .hidden = true                      \
    }

/* Zero-initialise; gs_setup_close releases. */
struct gs_setup {
    struct gs_setup_settings *settings; /* borrowed; its model becomes the path, its seed a real one */
    struct gs_buffer model_path, kernel_cache;
    struct gs_vocab *vocab;
    struct gs_engine *engine; /* NULL: a script stands in */
    struct gs_sampler *sampler;
    struct gs_memory_plan plan;
    size_t n_vocab; /* of the logits */
};

/* Chooses a seed where none was given, finds the model and opens its vocabulary. */
gs_status gs_setup_open(struct gs_setup *setup, struct gs_setup_settings *settings, struct gs_error *error);

/* Loads the model and plans its memory; with a script only counts the vocabulary. */
gs_status gs_setup_load(struct gs_setup *setup, struct gs_error *error);

gs_status gs_setup_sampler(struct gs_setup *setup, struct gs_error *error);

/* "model ... on backend ..." and the memory plan, on standard error. */
void gs_setup_print_plan(const struct gs_setup *setup);
void gs_setup_print_sampling(const struct gs_setup *setup);

/* Also the settings' list of biases. */
void gs_setup_close(struct gs_setup *setup);

#endif
