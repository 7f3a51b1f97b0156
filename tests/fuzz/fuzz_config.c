/* config.json and generation_config.json: any bytes are refused with a message, or give numbers in range. */
#include "model/config.h"
#include "model/yarn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_numbers(const struct gs_config *config)
{
    require(config->n_layer >= 1 && config->n_layer <= GS_MAX_LAYERS);
    require(config->n_head % config->n_kv_head == 0 && config->d_head % 2 == 0);
    require(config->d_model % 32 == 0 && config->d_ff % 32 == 0);
    require(config->n_active >= 1 && config->n_active <= config->n_expert);
    require(config->max_ctx >= 1 && config->max_ctx <= GS_MAX_CONTEXT);
    require(config->n_stop_ids <= GS_MAX_STOP_IDS);
    for (size_t i = 0; i < config->n_stop_ids; i++)
        require(config->stop_ids[i] >= 0 && config->stop_ids[i] < config->n_vocab);

    struct gs_yarn yarn;
    float cosine[GS_MAX_D_HEAD / 2], sine[GS_MAX_D_HEAD / 2];
    gs_yarn_init(config, &yarn);
    gs_yarn_angles(&yarn, config->max_ctx - 1, cosine, sine);
    for (int64_t j = 0; j < yarn.n_freq; j++)
        require(isfinite(cosine[j]) && isfinite(sine[j]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    for (int layout = 0; layout < 2; layout++) {
        struct gs_config config;
        struct gs_error error = {0};
        if (gs_config_parse("config.json", text, size, (enum gs_layout)layout, &config, &error) == GS_OK)
            check_numbers(&config);
        else
            require(error.message[0] != '\0' && !strchr(error.message, '\n'));
    }
    struct gs_config config = {.n_vocab = 1000};
    struct gs_error error = {0};
    gs_config_parse_generation("generation_config.json", text, size, &config, &error);
    require(config.n_stop_ids <= GS_MAX_STOP_IDS);
    return 0;
}
