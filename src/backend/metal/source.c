#include "backend/metal/source.h"

#include "base/embed.h"

GS_EMBED(metal_contract, "src/backend/metal/kernels.h");
GS_EMBED(metal_common, "src/backend/metal/common.metal");
GS_EMBED(metal_dense, "src/backend/metal/dense.metal");
GS_EMBED(metal_attention, "src/backend/metal/attention.metal");
GS_EMBED(metal_router, "src/backend/metal/router.metal");
GS_EMBED(metal_experts, "src/backend/metal/experts.metal");
GS_EMBED(metal_prefill, "src/backend/metal/prefill.metal");
GS_EMBED(metal_prefill_attention, "src/backend/metal/prefill_attention.metal");
GS_EMBED(metal_head, "src/backend/metal/head.metal");
GS_EMBED(metal_few, "src/backend/metal/few.metal");
GS_EMBED(metal_measure, "src/backend/metal/measure.metal");

/* In the order of kernels.h. */
static const struct {
    const unsigned char *begin, *end;
} files[] = {
    {gs_metal_contract_begin, gs_metal_contract_end},
    {gs_metal_common_begin, gs_metal_common_end},
    {gs_metal_dense_begin, gs_metal_dense_end},
    {gs_metal_attention_begin, gs_metal_attention_end},
    {gs_metal_router_begin, gs_metal_router_end},
    {gs_metal_experts_begin, gs_metal_experts_end},
    {gs_metal_prefill_begin, gs_metal_prefill_end},
    {gs_metal_prefill_attention_begin, gs_metal_prefill_attention_end},
    {gs_metal_head_begin, gs_metal_head_end},
    {gs_metal_few_begin, gs_metal_few_end},
    {gs_metal_measure_begin, gs_metal_measure_end},
};

gs_status gs_metal_source(struct gs_buffer *out, struct gs_error *error)
{
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < sizeof files / sizeof *files; i++)
        status = gs_buffer_append(out, files[i].begin, gs_embed_size(files[i].begin, files[i].end), error);
    return status;
}
