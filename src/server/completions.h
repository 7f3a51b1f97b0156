/* POST /v1/completions: raw text. */
#ifndef GS_SERVER_COMPLETIONS_H
#define GS_SERVER_COMPLETIONS_H

#include "server/http.h"

gs_handler_fn gs_completions;

#endif
