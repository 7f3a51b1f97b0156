/*
 * gossamer: gpt-oss inference from scratch, in C.
 *
 * The library's only public header. Four kinds of object:
 *
 *   gs_vocab    text <-> token ids (needs only a tokenizer.json)
 *   gs_engine   a model loaded on a backend; immutable, shared by sessions
 *   gs_session  one mutable timeline of tokens on an engine
 *   gs_sampler  logits -> the next token; gs_source joins it to a session, or replays a script
 *
 * Every fallible function returns a gs_status and, where it is not GS_OK, fills `error` (which may be
 * NULL) with a one-line message: what is wrong, where, and what would be right. On failure output pointers
 * are left NULL. Release functions accept NULL. Objects may be used from any thread, one thread at a time,
 * except gs_session_cancel, which may be called from any thread at any time. An engine and a vocabulary
 * must outlive what was opened on them.
 *
 * Opening a model installs a process-wide SIGBUS handler (faults outside its files go to the handler that was
 * there before), so that a model file which shrinks while in use ends in GS_FILE_CHANGED, not in a crash.
 */
#ifndef GOSSAMER_H
#define GOSSAMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GS_VERSION_MAJOR 0
#define GS_VERSION_MINOR 1
#define GS_VERSION_PATCH 0

/* ---------------------------------------------------------------- status */

typedef enum gs_status {
    GS_OK = 0,
    GS_INVALID_ARGUMENT, /* the caller asked for something that cannot be */
    GS_IO,               /* the operating system refused: missing file, permission, disk */
    GS_MALFORMED,        /* a file breaks the rules of its format */
    GS_UNSUPPORTED,      /* a well-formed file or option that gossamer does not handle */
    GS_OUT_OF_MEMORY,    /* an allocation failed, or the memory plan does not fit */
    GS_CONTEXT_FULL,     /* more tokens than the context holds */
    GS_NON_FINITE,       /* the logits hold a NaN or an infinity */
    GS_CANCELLED,        /* gs_session_cancel was called */
    GS_FILE_CHANGED,     /* a mapped file shrank while in use */
} gs_status;

struct gs_error {
    gs_status code;
    char message[1000]; /* UTF-8, one line, control characters escaped */
};

/* "major.minor.patch" */
const char *gs_version(void);

/* ---------------------------------------------------------------- vocabulary */

struct gs_vocab;

/*
 * `path` is a tokenizer.json or a .gguf file, a folder that holds one (or whose parent has the first), or a
 * .safetensors file in such a folder.
 */
gs_status gs_vocab_open(const char *path, struct gs_vocab **out, struct gs_error *error);
void gs_vocab_close(struct gs_vocab *vocab);

/* One past the highest id that has a token. Models may have more logits than this. */
size_t gs_vocab_size(const struct gs_vocab *vocab);

/* The id of a special token by its exact text, e.g. "<|end|>"; -1 if there is none, or it is not special. */
int32_t gs_vocab_special(const struct gs_vocab *vocab, const char *text);
bool gs_vocab_is_special(const struct gs_vocab *vocab, int32_t id);

/* The bytes of a token (of a special token: its text), not NUL-terminated; NULL if `id` has none. */
const char *gs_vocab_bytes(const struct gs_vocab *vocab, int32_t id, size_t *size);

/* A growable list of token ids; zero-initialise, release with gs_tokens_free. */
struct gs_tokens {
    int32_t *ids;
    size_t count;
    size_t capacity;
};
void gs_tokens_free(struct gs_tokens *tokens);

/*
 * Appends the tokens of `text` [size bytes]. Text is literal: "<|end|>" in it becomes ordinary tokens.
 * Each maximal ill-formed UTF-8 subsequence is read as U+FFFD. GS_OUT_OF_MEMORY is the only failure.
 */
gs_status gs_vocab_encode(const struct gs_vocab *vocab, const char *text, size_t size,
                          struct gs_tokens *tokens, struct gs_error *error);

/* The same, except that the texts of special tokens become those tokens. Never for text from outside. */
gs_status gs_vocab_encode_special(const struct gs_vocab *vocab, const char *text, size_t size,
                                  struct gs_tokens *tokens, struct gs_error *error);

/* Token ids to UTF-8, incrementally: never half a character, each ill-formed part becomes one U+FFFD. */
struct gs_detokenizer;
gs_status gs_detokenizer_open(const struct gs_vocab *vocab, struct gs_detokenizer **out,
                              struct gs_error *error);
void gs_detokenizer_close(struct gs_detokenizer *detokenizer);

/*
 * Feeds one token. *text [*size bytes, NUL-terminated, valid until the next call] is what has become
 * certain; it may be empty. GS_INVALID_ARGUMENT for an id without a token.
 */
gs_status gs_detokenizer_feed(struct gs_detokenizer *detokenizer, int32_t id, const char **text, size_t *size,
                              struct gs_error *error);

/* Ends the text: an incomplete tail becomes U+FFFD. The detokenizer is then as new. */
gs_status gs_detokenizer_finish(struct gs_detokenizer *detokenizer, const char **text, size_t *size,
                                struct gs_error *error);

/* ---------------------------------------------------------------- engine */

struct gs_engine;

/* Called while loading or prefilling: `done` of `total` units, monotone. Runs on the calling thread. */
typedef void gs_progress_fn(void *user, uint64_t done, uint64_t total);

/* How numbers are computed. Router, softmax, norms and the residual stream are float32 in both. */
enum gs_precision {
    GS_PRECISION_EXACT = 0, /* float32 activations and sums in a fixed order: the executable specification */
    GS_PRECISION_FAST,      /* what the backend does best; gossamer verify measures its distance from exact */
};

/* How attention and head are kept; embedding and experts are as in the file in both. */
enum gs_weight_format {
    GS_WEIGHTS_NATIVE = 0, /* as in the file */
    GS_WEIGHTS_Q8,         /* quantised to 8 bits while loading */
};

/*
 * How a token is decoded by a backend that has several ways; docs/metal.md. Two levers, each in both
 * positions: a command buffer a token, or one each half layer that is waited for; its experts as one grid, or
 * one after another.
 */
enum gs_decode {
    GS_DECODE_FUSED = 0, /* one command buffer, one grid */
    GS_DECODE_LEGACY,    /* many, one after another: slow on purpose */
    GS_DECODE_SERIAL,    /* one command buffer, experts one after another */
    GS_DECODE_STAGED,    /* many command buffers, one grid */
    GS_DECODE_COUNT,
};

/* Levers for measurements. Zeros are what the backend does best; only "metal" has others. */
struct gs_levers {
    enum gs_decode decode;
    int simdgroups;   /* that share a row of a matrix, 1, 2 or 4; 0: the default */
    bool scalar_load; /* MXFP4 weights are loaded byte by byte */
};

struct gs_engine_options {
    const char *backend; /* "cpu", "cuda"; NULL or "auto": the best that this binary and this machine have */
    int device;          /* which of the backend's devices */
    enum gs_precision precision;
    enum gs_weight_format weights;
    size_t n_threads;         /* CPU: 0: one per physical core that the process may use */
    const char *cpu_features; /* CPU: the kernels' instruction set, e.g. "generic"; NULL: the best */
    struct gs_levers levers;
    const char *cache_folder; /* for compiled kernels, made if need be; NULL: none are kept */
    gs_progress_fn *progress; /* may be NULL */
    void *progress_user;
};

/* What a context of `n_ctx` tokens costs, in bytes. */
struct gs_memory_plan {
    int64_t n_ctx;
    uint64_t weight_bytes;    /* mapped from the files, shared with the page cache */
    uint64_t kv_bytes;        /* one session */
    uint64_t scratch_bytes;   /* does not grow with n_ctx */
    uint64_t available_bytes; /* what the machine has free now; 0 if unknown */
    int64_t largest_n_ctx;    /* the largest context whose kv + scratch fit in available_bytes */
};

struct gs_model_info {
    int64_t n_layer, d_model, d_head, n_head, n_kv_head, n_expert, n_active, d_ff, n_vocab, window;
    int64_t max_ctx;         /* positions the model was made for */
    uint64_t n_param;        /* parameters, embedding and head included */
    uint64_t n_param_active; /* parameters that one token touches, head included, embedding not */
};

/* `path`: a model's folder, or its .gguf or .safetensors file (docs/formats.md). options may be NULL. */
gs_status gs_engine_open(const char *path, const struct gs_engine_options *options, struct gs_engine **out,
                         struct gs_error *error);
void gs_engine_close(struct gs_engine *engine);

const struct gs_model_info *gs_engine_info(const struct gs_engine *engine);
const char *gs_engine_backend(const struct gs_engine *engine);

/* The ids that end a generation, from generation_config.json (else config.json), or a GGUF's metadata. */
const int32_t *gs_engine_stop_ids(const struct gs_engine *engine, size_t *count);

/* The plan for one session of `n_ctx` tokens (1 <= n_ctx <= max_ctx). */
gs_status gs_engine_plan(const struct gs_engine *engine, int64_t n_ctx, struct gs_memory_plan *plan,
                         struct gs_error *error);

/* ---------------------------------------------------------------- session */

struct gs_session;

/*
 * n_ctx: tokens the session can hold; 0: the largest that fits in memory, at most max_ctx. GS_OUT_OF_MEMORY,
 * with the largest that fits, if that is less.
 */
gs_status gs_session_open(struct gs_engine *engine, int64_t n_ctx, struct gs_session **out,
                          struct gs_error *error);
void gs_session_close(struct gs_session *session);

/* A second session with the same tokens and cache; the two then go their own ways. */
gs_status gs_session_fork(const struct gs_session *session, struct gs_session **out, struct gs_error *error);

int64_t gs_session_n_ctx(const struct gs_session *session);
const int32_t *gs_session_tokens(const struct gs_session *session, size_t *count);

/*
 * Brings the timeline to exactly these tokens, reusing what it can. The logits are then those after the
 * last of them. *n_computed (may be NULL) says how many tokens were run through the model.
 * GS_CONTEXT_FULL, with the timeline as it was, if count > n_ctx; GS_INVALID_ARGUMENT for an id that
 * is not in 0 ... n_vocab-1, or for count 0. After GS_CANCELLED or a failure under way the timeline holds
 * what was computed: a prefix of what was asked for, from which another sync continues.
 */
gs_status gs_session_sync(struct gs_session *session, const int32_t *tokens, size_t count, size_t *n_computed,
                          struct gs_error *error);

/* Appends tokens; errors as gs_session_sync. */
gs_status gs_session_append(struct gs_session *session, const int32_t *tokens, size_t count,
                            struct gs_error *error);

/*
 * Keeps the first `count` tokens and computes nothing: there are no logits until the next sync or append,
 * which also runs again what the cache could not keep.
 */
gs_status gs_session_truncate(struct gs_session *session, size_t count, struct gs_error *error);

/* The logits [n_vocab] after the last token; NULL if there are none. Valid until the next call. */
const float *gs_session_logits(const struct gs_session *session);

/* Prefill progress of this session, in tokens. fn may be NULL. */
void gs_session_on_progress(struct gs_session *session, gs_progress_fn *fn, void *user);

/*
 * From any thread: the running or next sync/append returns GS_CANCELLED, within about one layer of its own
 * work or while it waits for another session's.
 */
void gs_session_cancel(struct gs_session *session);

/*
 * The timeline and its cache as a file (docs/chat.md has its form), written whole or not at all, readable by
 * its owner alone. What the cache does not hold yet is left out; GS_INVALID_ARGUMENT if that is everything.
 */
gs_status gs_session_save(const struct gs_session *session, const char *path, struct gs_error *error);

/*
 * Replaces the timeline by a saved one, without logits: the next sync runs only what is not in the file (and
 * a last token for the logits). GS_UNSUPPORTED if it is of another version, model or backend, GS_MALFORMED if
 * it is damaged, GS_CONTEXT_FULL if the context is smaller; the session is then as it was.
 */
gs_status gs_session_load(struct gs_session *session, const char *path, struct gs_error *error);

/* ---------------------------------------------------------------- sampling */

struct gs_logit_bias {
    int32_t id;
    float bias; /* added to the logit */
};

/*
 * How the next token is drawn. Order: penalties, logit bias; then at temperature 0 the argmax (ties to the
 * lowest id), else logits / temperature, top-k, softmax, top-p, min-p, and one draw.
 * gs_sampling_default() gives temperature 1, top-p 1 and everything else off.
 */
struct gs_sampling {
    float temperature;        /* >= 0 */
    int32_t top_k;            /* 0: off */
    float top_p;              /* 0 < p <= 1; 1: off. Keeps the smallest set whose probability reaches p */
    float min_p;              /* 0 <= p <= 1; 0: off. Keeps tokens of at least p times the best one's */
    float repetition_penalty; /* > 0; 1: off. Logit of a seen token / penalty if positive, else * penalty */
    float presence_penalty;   /* subtracted once from the logit of a seen token */
    float frequency_penalty;  /* subtracted from it once per occurrence */
    const struct gs_logit_bias *bias; /* copied */
    size_t n_bias;
    uint64_t seed;
};
struct gs_sampling gs_sampling_default(void);

struct gs_sampler;

/* GS_INVALID_ARGUMENT names the setting that is out of its range. */
gs_status gs_sampler_open(const struct gs_sampling *sampling, size_t n_vocab, struct gs_sampler **out,
                          struct gs_error *error);
void gs_sampler_close(struct gs_sampler *sampler);

/*
 * Draws from logits [n_vocab]. `seen` [n_seen] are the tokens that the penalties count. The n-th draw of a
 * sampler depends on its seed, n and the logits alone: see docs/sampling.md for the generator.
 * GS_NON_FINITE if a logit is NaN or infinite.
 */
gs_status gs_sampler_draw(struct gs_sampler *sampler, const float *logits, const int32_t *seen, size_t n_seen,
                          int32_t *token, struct gs_error *error);

/*
 * The same among the tokens whose bit is set: bit id % 64 of allowed[id / 64], [(n_vocab + 63) / 64] words;
 * NULL: all. The others take no part in anything, top-k and top-p included; the n-th draw uses the same
 * random number as without a mask. GS_INVALID_ARGUMENT, without counting a draw, if no bit is set.
 */
gs_status gs_sampler_draw_masked(struct gs_sampler *sampler, const float *logits, const uint64_t *allowed,
                                 const int32_t *seen, size_t n_seen, int32_t *token, struct gs_error *error);

struct gs_logprob {
    int32_t id;
    float logprob; /* natural logarithm of softmax(logits), before any sampling setting */
};

/* The log-probability of `token`, and the `n_top` most likely tokens in `top`, best first. */
gs_status gs_logprobs(const float *logits, size_t n_vocab, int32_t token, float *logprob,
                      struct gs_logprob *top, size_t n_top, struct gs_error *error);

/* ---------------------------------------------------------------- token source */

/* Where generated tokens come from: a session and a sampler, or a script. Consumers cannot tell which. */
struct gs_source;

/* Borrows both. The session must have logits (a prompt was synced). Penalties count the whole timeline. */
gs_status gs_source_open_model(struct gs_session *session, struct gs_sampler *sampler, struct gs_source **out,
                               struct gs_error *error);

/*
 * Replays generation number `generation` (0-based) of a script file: its line of that number. A line is
 * ids separated by commas or blanks; or "logits:" and rows separated by ';', each "id=value ..." (the
 * others -1e9), which go through `sampler` (may be NULL for lines of ids). docs/scripts.md has the form.
 */
gs_status gs_source_open_script(const char *path, size_t generation, struct gs_sampler *sampler,
                                size_t n_vocab, struct gs_source **out, struct gs_error *error);
void gs_source_close(struct gs_source *source);

/*
 * The next token. *token is -1 when the source has no more: a script that ran out, or a session whose
 * context is full. Stop ids are delivered like any other; it is the caller who stops.
 */
gs_status gs_source_next(struct gs_source *source, int32_t *token, struct gs_error *error);

/* The same through a mask, as gs_sampler_draw_masked has it. The ids of a script stay as they are. */
gs_status gs_source_next_masked(struct gs_source *source, const uint64_t *allowed, int32_t *token,
                                struct gs_error *error);

/* The logits [n_vocab] that the last token was drawn from; NULL if it came from a script of ids. */
const float *gs_source_logits(const struct gs_source *source);

/*
 * Lets a model's source have several tokens chosen in a row before it hands out the first, where nothing is
 * to be decided between them: no mask, a sampler without penalties, biases and filters, a backend that can.
 * The tokens are the same and none comes more than some milliseconds later, nor does a cancel. `most`: how
 * many more the caller will take; -1: not known. Until 0 is set, as at first, or the source is closed (before
 * its session), the timeline may hold tokens that were not handed out yet, and gs_source_logits may be NULL;
 * then it holds what it would have held without this, though it may have no logits.
 */
void gs_source_run_ahead(struct gs_source *source, int64_t most);

#ifdef __cplusplus
}
#endif

#endif
