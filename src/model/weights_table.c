#include "model/weights_table.h"

#include "model/mxfp4.h"

#include <stdio.h>

#define LAYER(member) offsetof(struct gs_layer_weights, member)
#define OUTER(member) offsetof(struct gs_weights, member)

/* clang-format off */
#define MODEL      {GS_DIM_MODEL}
#define HEADS      {GS_DIM_HEADS}
#define QUERY      {GS_DIM_QUERY}
#define KEY        {GS_DIM_KEY}
#define QKV        {GS_DIM_QKV}
#define EXPERTS    {GS_DIM_EXPERTS}
#define MATRIX(rows, columns) {GS_DIM_##rows, GS_DIM_##columns}
#define SCALES(rows, groups)  {GS_DIM_EXPERTS, GS_DIM_##rows, GS_DIM_##groups}
#define EXPERT(rows, columns) {GS_DIM_EXPERTS, GS_DIM_##rows, GS_DIM_##columns}
#define BLOCKS(rows, groups)  {GS_DIM_EXPERTS, GS_DIM_##rows, GS_DIM_##groups, GS_DIM_GROUP_BYTES}

const struct gs_weight_rule gs_layer_rules[] = {
    {{"input_layernorm.weight", "attn.norm.scale", "attn_norm.weight"}, GS_RULE_DENSE, MODEL, LAYER(attention_norm), false},
    {{"self_attn.q_proj.weight", NULL, "attn_q.weight"}, GS_RULE_DENSE, MATRIX(QUERY, MODEL), LAYER(q), false},
    {{"self_attn.q_proj.bias", NULL, "attn_q.bias"}, GS_RULE_DENSE, QUERY, LAYER(q_bias), false},
    {{"self_attn.k_proj.weight", NULL, "attn_k.weight"}, GS_RULE_DENSE, MATRIX(KEY, MODEL), LAYER(k), false},
    {{"self_attn.k_proj.bias", NULL, "attn_k.bias"}, GS_RULE_DENSE, KEY, LAYER(k_bias), false},
    {{"self_attn.v_proj.weight", NULL, "attn_v.weight"}, GS_RULE_DENSE, MATRIX(KEY, MODEL), LAYER(v), false},
    {{"self_attn.v_proj.bias", NULL, "attn_v.bias"}, GS_RULE_DENSE, KEY, LAYER(v_bias), false},
    {{NULL, "attn.qkv.weight"}, GS_RULE_DENSE_QKV, MATRIX(QKV, MODEL), LAYER(q), false},
    {{NULL, "attn.qkv.bias"}, GS_RULE_DENSE_QKV, QKV, LAYER(q_bias), false},
    {{"self_attn.sinks", "attn.sinks", "attn_sinks.weight"}, GS_RULE_DENSE, HEADS, LAYER(sinks), false},
    {{"self_attn.o_proj.weight", "attn.out.weight", "attn_output.weight"}, GS_RULE_DENSE, MATRIX(MODEL, QUERY), LAYER(o), false},
    {{"self_attn.o_proj.bias", "attn.out.bias", "attn_output.bias"}, GS_RULE_DENSE, MODEL, LAYER(o_bias), false},
    {{"post_attention_layernorm.weight", "mlp.norm.scale", "post_attention_norm.weight"}, GS_RULE_DENSE, MODEL, LAYER(mlp_norm), false},
    {{"mlp.router.weight", "mlp.gate.weight", "ffn_gate_inp.weight"}, GS_RULE_DENSE, MATRIX(EXPERTS, MODEL), LAYER(router), false},
    {{"mlp.router.bias", "mlp.gate.bias", "ffn_gate_inp.bias"}, GS_RULE_DENSE, EXPERTS, LAYER(router_bias), false},
    {{"mlp.experts.gate_up_proj_blocks", "mlp.mlp1_weight.blocks"}, GS_RULE_BLOCKS,
     BLOCKS(GATE_UP, MODEL_GROUPS), LAYER(gate_up), true},
    {{"mlp.experts.gate_up_proj_scales", "mlp.mlp1_weight.scales"}, GS_RULE_SCALES,
     SCALES(GATE_UP, MODEL_GROUPS), LAYER(gate_up), true},
    {{"mlp.experts.gate_up_proj_bias", "mlp.mlp1_bias"}, GS_RULE_DENSE,
     MATRIX(EXPERTS, GATE_UP), LAYER(gate_up_bias), true},
    {{"mlp.experts.down_proj_blocks", "mlp.mlp2_weight.blocks"}, GS_RULE_BLOCKS,
     BLOCKS(MODEL, FF_GROUPS), LAYER(down), true},
    {{"mlp.experts.down_proj_scales", "mlp.mlp2_weight.scales"}, GS_RULE_SCALES,
     SCALES(MODEL, FF_GROUPS), LAYER(down), true},
    {{"mlp.experts.down_proj_bias", "mlp.mlp2_bias", "ffn_down_exps.bias"}, GS_RULE_DENSE,
     MATRIX(EXPERTS, MODEL), LAYER(down_bias), true},
    {{NULL, NULL, "ffn_gate_exps.weight"}, GS_RULE_MXFP4_EVEN, EXPERT(FF, MODEL), LAYER(gate_up), true},
    {{NULL, NULL, "ffn_up_exps.weight"}, GS_RULE_MXFP4_ODD, EXPERT(FF, MODEL), LAYER(gate_up), true},
    {{NULL, NULL, "ffn_gate_exps.bias"}, GS_RULE_DENSE_EVEN, MATRIX(EXPERTS, FF), LAYER(gate_up_bias), true},
    {{NULL, NULL, "ffn_up_exps.bias"}, GS_RULE_DENSE_ODD, MATRIX(EXPERTS, FF), LAYER(gate_up_bias), true},
    {{NULL, NULL, "ffn_down_exps.weight"}, GS_RULE_MXFP4, EXPERT(MODEL, FF), LAYER(down), true},
};

const struct gs_weight_rule gs_outer_rules[] = {
    {{"model.embed_tokens.weight", "embedding.weight", "token_embd.weight"}, GS_RULE_DENSE, MATRIX(VOCAB, MODEL),
     OUTER(embedding), false},
    {{"model.norm.weight", "norm.scale", "output_norm.weight"}, GS_RULE_DENSE, MODEL, OUTER(norm), false},
    {{"lm_head.weight", "unembedding.weight", "output.weight"}, GS_RULE_DENSE, MATRIX(VOCAB, MODEL), OUTER(head), false},
};
/* clang-format on */

const size_t gs_layer_rule_count = sizeof gs_layer_rules / sizeof gs_layer_rules[0];
const size_t gs_outer_rule_count = sizeof gs_outer_rules / sizeof gs_outer_rules[0];

int64_t gs_dim_size(const struct gs_config *config, enum gs_dim dim)
{
    switch (dim) {
    case GS_DIM_NONE:
        return 0;
    case GS_DIM_VOCAB:
        return config->n_vocab;
    case GS_DIM_MODEL:
        return config->d_model;
    case GS_DIM_FF:
        return config->d_ff;
    case GS_DIM_MODEL_GROUPS:
        return config->d_model / GS_MXFP4_GROUP;
    case GS_DIM_FF_GROUPS:
        return config->d_ff / GS_MXFP4_GROUP;
    case GS_DIM_GATE_UP:
        return 2 * config->d_ff;
    case GS_DIM_HEADS:
        return config->n_head;
    case GS_DIM_QUERY:
        return config->n_head * config->d_head;
    case GS_DIM_KEY:
        return config->n_kv_head * config->d_head;
    case GS_DIM_QKV:
        return (config->n_head + 2 * config->n_kv_head) * config->d_head;
    case GS_DIM_EXPERTS:
        return config->n_expert;
    case GS_DIM_GROUP_BYTES:
        return GS_MXFP4_GROUP_BYTES;
    }
    return 0;
}

bool gs_weight_name(const struct gs_weight_rule *rule, enum gs_layout layout, int64_t layer, char *text,
                    size_t size)
{
    static const char *const prefixes[GS_LAYOUT_COUNT] = {"model.layers", "block", "blk"};
    int length = layer < 0 ? snprintf(text, size, "%s", rule->name[layout])
                           : snprintf(text, size, "%s.%lld.%s", prefixes[layout], (long long)layer,
                                      rule->name[layout]);
    return length >= 0 && (size_t)length < size;
}
