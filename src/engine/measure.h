/*
 * Single experts for measurements, found in a checkpoint without binding the model: by name, through the
 * header alone. Shapes come from the tensors themselves, so that one shard is enough and no config.json is
 * needed.
 */
#ifndef GS_ENGINE_MEASURE_H
#define GS_ENGINE_MEASURE_H

#include "format/checkpoint.h"
#include "format/slice.h"
#include "model/mxfp4.h"

/* The kernels, named by stage, weight type and activation type; each is a pair of tensors of a layer. */
struct gs_measure_kernel {
    const char *name;   /* "moe_gate_up_mxfp4_f32" */
    size_t weight;      /* offset of the gs_mxfp4_matrix in gs_layer_weights */
    const char *tensor; /* for messages: "gate_up" */
};

/* GS_INVALID_ARGUMENT lists the names. */
gs_status gs_measure_kernel_find(const char *name, const struct gs_measure_kernel **out,
                                 struct gs_error *error);

#define GS_MEASURE_MAX_SLICES 2 /* blocks and scales; GGUF: even and odd rows, or one */

struct gs_measure_expert {
    struct gs_mxfp4_matrix matrix; /* of this one expert: n_expert is 1 */
    struct gs_slice slices[GS_MEASURE_MAX_SLICES];
    size_t n_slices;
    int64_t expert;
    uint64_t bytes; /* of the slices */
};

/*
 * One expert's matrix in a layer. Reads none of its bytes. GS_INVALID_ARGUMENT for a layer or expert that
 * the checkpoint does not hold, GS_MALFORMED for tensors whose shapes are not those of MXFP4.
 */
gs_status gs_measure_expert_find(const struct gs_checkpoint *checkpoint,
                                 const struct gs_measure_kernel *kernel, int64_t layer, int64_t expert,
                                 struct gs_measure_expert *out, struct gs_error *error);

/* How many experts the layer's tensors hold. */
gs_status gs_measure_expert_count(const struct gs_checkpoint *checkpoint,
                                  const struct gs_measure_kernel *kernel, int64_t layer, int64_t *count,
                                  struct gs_error *error);

#endif
