/*
 * The contract between the host and the kernels of a GPU backend: what lies where in device memory, and the
 * one struct that every stage kernel takes by value. Included by C (host) and by the kernels' C++.
 *
 * A forward runs over T rows: a row is a token of some timeline, and rows of several timelines may share a
 * call. Every stage is told the layer by its arguments; which token, which position and which timeline it is
 * about stands in device memory (gs_gpu_row), so a captured graph is replayed without an update.
 *
 * Stages of a layer, in order, and what each reads and writes (all in struct gs_gpu_scratch):
 *   A  hidden -> qkv [T][q|k|v]: norm, projections, bias, RoPE on q and k; k and v into the timeline's cache
 *   B  qkv.q, cache -> attended [T][n_head*d_head]: softmax over the sink and the visible keys
 *   C  attended -> hidden += o + bias; router sums of the new hidden
 *   E  hidden -> choice, choice_weight; activated [T][n_active][d_ff]
 *   F  activated -> hidden += the weighted sum of the experts, in ascending order of the expert
 * and around the layers: embed (rows -> hidden), head (hidden -> logits, argmax).
 *
 * Numbers: hidden, router, softmax and norms are float32 always. Sums are float32 and have a fixed order that
 * does not depend on the run. Ties of the router go to the lower expert, of the argmax to the lower token.
 */
#ifndef GS_BACKEND_GPU_KERNELS_H
#define GS_BACKEND_GPU_KERNELS_H

#include <stdint.h>

#define GS_GPU_MAX_ACTIVE 16 /* experts a token that the kernels can take */

/* How a dense matrix is stored on the device. */
enum gs_gpu_type {
    GS_GPU_F32,  /* [rows][columns] */
    GS_GPU_BF16, /* [rows][columns] */
    GS_GPU_F16,  /* [rows][columns] */
    GS_GPU_Q8,   /* int8 [rows][columns], and float16 scales [rows][columns/32]: value = scale * code */
};

struct gs_gpu_matrix {
    const void *data;
    const uint16_t *scales; /* GS_GPU_Q8 alone */
    const void *relaid;     /* the same in the decode kernels' order (decode_launch.h); NULL: none */
    int32_t type;           /* enum gs_gpu_type */
    int32_t rows, columns;
    int32_t unused;
};

/*
 * The experts' matrices: planar MXFP4. Codes as in safetensors (byte k of a group: element 2k in the low
 * nibble, 2k+1 in the high one), 16 bytes a group of 32, 16-byte aligned. Scale bytes of a row are padded to
 * scale_stride, a multiple of 16, with zeros. Whatever the file's form (GGUF, shards), this is what is here.
 */
struct gs_gpu_experts {
    const uint8_t *codes;  /* [n_expert][rows][columns/32][16] */
    const uint8_t *scales; /* [n_expert][rows][scale_stride] */
    const float *bias;     /* [n_expert][rows] */
    const void *relaid;    /* the same codes and scales in the fast kernels' order; NULL: none */
    int32_t rows, columns;
    int32_t scale_stride;
    int32_t unused;
};

struct gs_gpu_layer {
    const float *attention_norm;   /* [d_model] */
    struct gs_gpu_matrix qkv;      /* [(n_head + 2*n_kv_head)*d_head][d_model]: rows of q, then k, then v */
    const float *qkv_bias;         /* [the same rows] */
    const float *sinks;            /* [n_head] */
    struct gs_gpu_matrix o;        /* [d_model][n_head*d_head] */
    const float *o_bias;           /* [d_model] */
    const float *mlp_norm;         /* [d_model] */
    struct gs_gpu_matrix router;   /* [n_expert][d_model] */
    const float *router_columns;   /* [d_model][n_expert]: the router transposed, float32, times mlp_norm */
    const float *router_bias;      /* [n_expert] */
    struct gs_gpu_experts gate_up; /* rows 2*d_ff: gate u is row 2u, up u row 2u+1; columns d_model */
    struct gs_gpu_experts down;    /* rows d_model, columns d_ff */
};

/*
 * A layer's cache of one timeline: [n_kv_head][n_slot][d_head] keys (rotated) and as many values, float32
 * (exact precision) or bfloat16 (fast). Position p lies in slot p mod n_slot: a window layer is a ring of the
 * window and the largest step, a full layer has a slot for every position.
 */
struct gs_gpu_kv_layer {
    void *keys, *values;
    int32_t n_slot;
    int32_t is_f32;
};

/* A row of a forward. */
struct gs_gpu_row {
    const struct gs_gpu_kv_layer *kv; /* [n_layer] */
    int32_t token;
    int32_t position;
    int32_t logit_row; /* where its logits go; -1: none are wanted */
    int32_t first;     /* index of the first row of this timeline in the call; rows of one are neighbours */
};

/* How a token is drawn from its row of logits; temperature 0: not at all, the largest is taken. */
struct gs_gpu_draw {
    double uniform; /* in [0, 1) */
    float temperature;
    int32_t unused;
};

struct gs_gpu_dims {
    int32_t n_layer, d_model, d_head, n_head, n_kv_head;
    int32_t n_expert, n_active, d_ff, n_vocab, window, max_ctx;
    int32_t max_rows; /* T at most */
    float rms_norm_eps, swiglu_limit, swiglu_alpha;
    float attention_scale; /* 1/sqrt(d_head) */
};

/* Device memory that stages hand over in. Sizes with T = max_rows. */
struct gs_gpu_scratch {
    struct gs_gpu_row *rows;   /* [T] */
    float *hidden;             /* [T][d_model]: the residual stream */
    float *normed;             /* [T][d_model] */
    float *qkv;                /* [T][(n_head + 2*n_kv_head)*d_head]: q and k rotated */
    float *attended;           /* [T][n_head*d_head] */
    float *projected;          /* [T][d_model]: what attention, then the experts add to hidden (taps) */
    float *router;             /* [T][n_expert]: logits */
    int32_t *choice;           /* [T][n_active]: experts, best first */
    float *choice_weight;      /* [T][n_active] */
    int32_t *route_first;      /* [n_expert+1]: routes of expert e are route_first[e] ... [e+1]-1 */
    int32_t *routes;           /* [T*n_active]: row*n_active + k, sorted by expert, then row */
    float *activated;          /* [T][n_active][d_ff] */
    float *expert_out;         /* [T][n_active][d_model] */
    float *logits;             /* [logit rows][n_vocab] */
    uint64_t *argmax;          /* [T]: of each logit row, packed: see gs_gpu_pack_argmax */
    int32_t *tokens;           /* [1 + chain]: what a chain of steps chose; tokens[0] counts them */
    struct gs_gpu_draw *draws; /* of each logit row; in a chain of each step */
    double *draw_sums;         /* [logit rows][GS_SIMPLE_PARTS]: weights of each part of the vocabulary */
    int32_t *picked;           /* [logit rows]: what gs_simple_pick chose */
    void *decode;              /* gs_decode_scratch_bytes bytes, for the decode kernels alone */
    void *prefill;             /* gs_prefill_scratch_bytes bytes, for the prefill kernels alone */
    const float *rope;         /* [max_ctx][d_head/2][2]: cosine and sine, attention scaling included */
};

/* What every stage kernel gets. About 700 bytes of the constant bank. */
struct gs_gpu_args {
    struct gs_gpu_dims dims;
    struct gs_gpu_scratch s;
    struct gs_gpu_layer w;      /* of `layer`; unset for embed and head */
    struct gs_gpu_matrix outer; /* embed: the embedding; head: the head */
    const float *norm;          /* head: the last norm; stage F: the next layer's norm (may be NULL) */
    int32_t n_rows;             /* T of this call */
    int32_t n_logit_rows;       /* head */
    int32_t layer;
    int32_t is_window; /* does this layer see only dims.window positions? */
    int32_t n_ctx;     /* positions of the call are below */
};

/* ---------------------------------------------------------------- the fast kernels' side */

/*
 * A set of kernels that may replace the simple ones (simple.cu) for some calls gives, in a header of its own,
 *   decode_launch.h    gs_decode_plan, gs_decode_scratch_bytes, gs_decode_relaid_bytes
 *   prefill_launch.h   gs_prefill_plan, gs_prefill_scratch_bytes
 * plain C, without side effects. A plan is the list of launches of one stage of one layer.
 */
enum gs_gpu_stage {
    GS_GPU_EMBED,
    GS_GPU_ATTENTION_IN,  /* A */
    GS_GPU_ATTENTION,     /* B */
    GS_GPU_ATTENTION_OUT, /* C */
    GS_GPU_MOE_IN,        /* E */
    GS_GPU_MOE_OUT,       /* F */
    GS_GPU_HEAD,
    GS_GPU_STAGE_COUNT,
};

#define GS_GPU_MAX_LAUNCHES 8 /* of one stage */

struct gs_gpu_launch {
    const char *kernel; /* the name of an extern "C" kernel that takes struct gs_gpu_args alone */
    uint32_t grid[3];
    uint32_t block;        /* threads */
    uint32_t shared_bytes; /* dynamic */
    uint32_t cooperative;  /* 1: all blocks must be resident at once */
};

struct gs_gpu_machine {
    int32_t n_sm;
    int32_t shared_bytes; /* a block may have at most */
    int32_t capability;   /* 90 for 9.0 */
    int32_t l2_bytes;
};

struct gs_gpu_plan {
    struct gs_gpu_launch launches[GS_GPU_MAX_LAUNCHES];
    int32_t count; /* 0: these kernels do not take this call; the simple ones do it */
};

/*
 * typedef of both plan functions: n_rows is T (a decode graph is captured per T); n_ctx bounds the positions
 * of the call (for the split of the keys), for a captured graph the context's capacity.
 *
 *   void gs_decode_plan(const struct gs_gpu_args *args, const struct gs_gpu_machine *machine,
 *                       enum gs_gpu_stage stage, int64_t n_ctx, struct gs_gpu_plan *out);
 */

#if defined(__HIP__)
#define GS_GPU_INLINE static inline __attribute__((device))
#elif defined(__cplusplus) && !defined(GS_GPU_SIM)
#define GS_GPU_INLINE static __device__ __forceinline__
#else
#define GS_GPU_INLINE static inline
#endif

/*
 * The larger logit, then the lower token, is the larger number: an unsigned maximum has no order of its own.
 * Both zeros are one value, and what is not finite comes before everything.
 */
GS_GPU_INLINE uint64_t gs_gpu_pack_argmax(uint32_t logit_bits, uint32_t token)
{
    uint32_t bits = logit_bits == 0x80000000u ? 0u : logit_bits;
    uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    if ((bits & 0x7f800000u) == 0x7f800000u)
        ordered = 0xffffffffu;
    return (uint64_t)ordered << 32 | (uint32_t)~token;
}

/* -1: a logit is not finite. */
GS_GPU_INLINE int32_t gs_gpu_argmax_token(uint64_t packed)
{
    return packed >> 32 == 0xffffffffu ? -1 : (int32_t) ~(uint32_t)packed;
}

/* The largest logit's bits, where it is finite. */
GS_GPU_INLINE uint32_t gs_gpu_argmax_bits(uint64_t packed)
{
    uint32_t ordered = (uint32_t)(packed >> 32);
    return ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered;
}

#endif
