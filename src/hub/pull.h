/*
 * Fetching a model into the Hugging Face cache: what is needed, what is there already, the rest over the
 * network, checked against the hub's sizes and hashes before it gets its name. Interrupted at any moment, the
 * same call goes on from there.
 *
 * A build without libcurl and libcrypto has these functions too (absent.c): they fail with GS_UNSUPPORTED.
 */
#ifndef GS_HUB_PULL_H
#define GS_HUB_PULL_H

#include "hub/cache.h"
#include "hub/listing.h"

enum gs_pull_event {
    GS_PULL_PRESENT,  /* the file was there already */
    GS_PULL_FETCHING, /* from zero, or from where an earlier run stopped */
    GS_PULL_CHECKING, /* its hash is computed */
    GS_PULL_DONE,     /* it is in the cache */
    GS_PULL_AGAIN,    /* what an earlier run had left was damaged: from zero */
    GS_PULL_WAITING,  /* `detail` went wrong; the next try comes after a pause */
};

/* gs_pull_options_default() gives all but cache, endpoint and callbacks. Texts are borrowed. */
struct gs_pull_options {
    const char *cache;
    const char *endpoint;          /* "https://huggingface.co" */
    const char *token;             /* NULL: none. Goes to the endpoint alone, and into no message */
    bool verify;                   /* hashes of files that are there are checked again */
    size_t n_connections;          /* 1 ... 32 */
    uint64_t piece_bytes;          /* what one connection fetches at a time */
    double stall_seconds;          /* a connection without data for so long is given up */
    double retry_seconds;          /* the first pause after a failure; each is twice the one before */
    unsigned max_failures;         /* in a row */
    bool (*cancelled)(void *user); /* may be NULL */
    void (*progress)(void *user, uint64_t done, uint64_t total); /* bytes of all files; may be NULL */
    void (*checking)(void *user, uint64_t done, uint64_t size);  /* bytes of one file's hash; likewise */
    void (*event)(void *user, enum gs_pull_event event, const char *file, const char *detail); /* likewise */
    void *user;
};
struct gs_pull_options gs_pull_options_default(void);

struct gs_pull_file {
    const struct gs_hub_file *file;
    uint64_t present; /* bytes: all of them, or what an earlier run left */
};

/* What is to be done. Borrows the options; zero-initialise, release with gs_pull_plan_free. */
struct gs_pull_plan {
    const struct gs_pull_options *options;
    struct gs_hub_name name;
    struct gs_hub_listing listing; /* the commit that the revision stands for now */
    struct gs_pull_file *files;    /* [count] */
    size_t count;
    uint64_t total, present; /* bytes */
    uint64_t free_bytes;     /* of the disk that the cache is on */
    struct gs_hub_store store;
    struct gs_arena arena;
};

/* False in a build that lacks the libraries. */
bool gs_can_pull(void);

/* Asks the hub and looks into the cache. Writes nothing. GS_INVALID_ARGUMENT: the hub has no such model. */
gs_status gs_pull_plan_make(const struct gs_pull_options *options, const struct gs_hub_name *name,
                            struct gs_pull_plan *plan, struct gs_error *error);
void gs_pull_plan_free(struct gs_pull_plan *plan);

/*
 * Does it. GS_IO where the disk is too small, with both numbers; GS_MALFORMED for a wrong hash. The snapshot
 * appears when all contents are there, its config.json last (gs_hub_find looks for it).
 */
gs_status gs_pull_run(struct gs_pull_plan *plan, struct gs_error *error);

#endif
