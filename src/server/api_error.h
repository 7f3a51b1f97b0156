/* An error as clients see it: a status, a kind, which parameter, one line. */
#ifndef GS_SERVER_API_ERROR_H
#define GS_SERVER_API_ERROR_H

#include "gossamer.h"

#include <jansson.h>

struct gs_api_error {
    int status;       /* of HTTP: 400 ... 599; 0: no error */
    const char *type; /* "invalid_request_error", "rate_limit_error", "server_error", ...; a literal */
    const char *code; /* "model_not_found", "context_length_exceeded", ... or NULL; a literal */
    char param[400];  /* "messages[2].content"; "": none */
    char message[1000];
    unsigned retry_after; /* seconds; 0: no such header */
};

/* 400 with the parameter's name; returns the status 400. */
__attribute__((format(printf, 3, 4))) int gs_api_bad(struct gs_api_error *error, const char *param,
                                                     const char *format, ...);

/* An error about a member of the object at `path`: that path comes before its parameter and its message. */
int gs_api_within(struct gs_api_error *error, const char *path);

/* Any status, without a parameter; returns it. */
__attribute__((format(printf, 4, 5))) int gs_api_fail(struct gs_api_error *error, int status,
                                                      const char *code, const char *format, ...);

/*
 * What a failure below the server means to a client: GS_INVALID_ARGUMENT, GS_MALFORMED and GS_UNSUPPORTED are
 * 400, a full context is 400 with its code, memory is 503, what cannot be computed is 500. A message that
 * begins with a JSON path and ": " names the parameter. Returns the status.
 */
int gs_api_error_from(struct gs_api_error *error, gs_status status, const struct gs_error *cause);

/* {"error": {"message", "type", "param", "code"}}; NULL if memory is out. */
json_t *gs_api_error_json(const struct gs_api_error *error);

/* {"type": "error", "error": {"type", "message"}} */
json_t *gs_api_error_anthropic(const struct gs_api_error *error);

#endif
