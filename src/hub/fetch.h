/*
 * The contents of one file into an open descriptor: pieces side by side, each from where it stopped, tried
 * again after a pause when it fails. Neither names nor checks the result: pull.c does.
 */
#ifndef GS_HUB_FETCH_H
#define GS_HUB_FETCH_H

#include "hub/http.h"
#include "hub/listing.h"
#include "hub/ranges.h"

#define GS_FETCH_MAX_CONNECTIONS 32

struct gs_fetch {
    const struct gs_http_options *http;
    const struct gs_hub_file *file;
    const char *url;        /* at the endpoint */
    size_t n_connections;   /* 1 ... GS_FETCH_MAX_CONNECTIONS */
    int descriptor;         /* open for writing */
    const char *path;       /* of it, for messages */
    const char *state_path; /* where the ranges are saved while it runs and when it fails */
    void (*progress)(void *user, uint64_t done);
    void *user;
};

/*
 * Fetches what `ranges` lacks. If the server cannot give a part of a file, the ranges become one piece that
 * starts at zero. GS_OK means that every byte is there, not that it is right. GS_CANCELLED, GS_IO (nothing
 * helped) or GS_MALFORMED (the server contradicts the hub's list) otherwise.
 */
gs_status gs_fetch_run(const struct gs_fetch *fetch, struct gs_ranges *ranges, struct gs_error *error);

#endif
