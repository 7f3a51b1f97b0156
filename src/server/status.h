/* What is asked about the server itself: models, health, figures, tokens. */
#ifndef GS_SERVER_STATUS_H
#define GS_SERVER_STATUS_H

#include "server/http.h"

gs_handler_fn gs_get_health, gs_get_version, gs_get_models, gs_get_model, gs_get_metrics, gs_get_slots;
gs_handler_fn gs_post_tokenize, gs_post_detokenize;

#endif
