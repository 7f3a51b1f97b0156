/* The server's own parts, for server.c and the handlers of figures. */
#ifndef GS_SERVER_SERVER_STATE_H
#define GS_SERVER_SERVER_STATE_H

#include "base/arena.h"
#include "engine/batch.h"
#include "server/guard.h"
#include "server/server.h"
#include "server/steer.h"

#include <pthread.h>

struct gs_http;

struct gs_server {
    struct gs_server_config config;
    struct gs_guard guard;
    struct gs_http *http;
    int64_t created;
    _Atomic bool ready, hurries;

    /* from the start on */
    struct gs_vocab *vocab;
    struct gs_engine *engine;
    struct gs_token_trie *trie;    /* NULL: the vocabulary cannot be masked */
    struct gs_prefix_store *store; /* NULL: no cache folder */
    struct gs_scheduler *scheduler;
    int64_t n_ctx;
    size_t n_vocab, n_parallel;
    uint64_t cache_bytes;

    struct gs_grammar_cache *grammars;
    struct gs_metrics metrics;
    struct gs_response_store *responses;
    struct gs_replay *replay;
    pthread_mutex_t replay_mutex, log_mutex, date_mutex;
    struct gs_arena dates;
    const char *date; /* of today */
};

struct gs_steer_tools gs_server_steer_tools(struct gs_server *server);

#endif
