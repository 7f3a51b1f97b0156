/*
 * What is this path, and which tensors does it hold: one list of views, whatever the layout on disk.
 * A checkpoint owns its mappings; tensors and names live until it is closed.
 */
#ifndef GS_FORMAT_CHECKPOINT_H
#define GS_FORMAT_CHECKPOINT_H

#include "format/gguf.h"

enum gs_layout {
    GS_LAYOUT_HUGGING_FACE, /* model.layers.0.self_attn.q_proj.weight ... */
    GS_LAYOUT_ORIGINAL,     /* block.0.attn.qkv.weight ... */
    GS_LAYOUT_GGUF,         /* blk.0.attn_q.weight ...; the configuration is in the file's metadata */
    GS_LAYOUT_COUNT,
};

struct gs_checkpoint;

/*
 * `path` may be: a folder in Hugging Face layout (model.safetensors.index.json and its shards, or one
 * model.safetensors), a folder in original layout (config.json and *.safetensors), a folder that contains
 * or lies beside one of these (the root, original/ or metal/ folder of a download), one .safetensors file, a
 * .gguf file (any part of a split one means them all), or a folder that holds one and none of the others.
 * Missing pieces are named, with what was found instead.
 */
gs_status gs_checkpoint_open(const char *path, struct gs_checkpoint **out, struct gs_error *error);
void gs_checkpoint_close(struct gs_checkpoint *checkpoint);

enum gs_layout gs_checkpoint_layout(const struct gs_checkpoint *checkpoint);
const char *gs_checkpoint_folder(const struct gs_checkpoint *checkpoint);

/* The metadata of a GGUF (of a split one: of its first part); NULL in the other layouts. */
const struct gs_gguf *gs_checkpoint_gguf(const struct gs_checkpoint *checkpoint);

/*
 * Paths of the model's other files, looked for in its folder and then in the parent; NULL if absent. A GGUF
 * has none: it describes itself, and what lies beside it may belong to another model.
 */
const char *gs_checkpoint_config(const struct gs_checkpoint *checkpoint); /* config.json */
const char *gs_checkpoint_generation_config(
    const struct gs_checkpoint *checkpoint); /* generation_config.json */

size_t gs_checkpoint_count(const struct gs_checkpoint *checkpoint);
const struct gs_tensor *gs_checkpoint_tensor(const struct gs_checkpoint *checkpoint, size_t index);
const struct gs_tensor *gs_checkpoint_find(const struct gs_checkpoint *checkpoint, const char *name);

/* GS_FILE_CHANGED if any mapped file changed (gs_file_map_check on each). */
gs_status gs_checkpoint_check(const struct gs_checkpoint *checkpoint, struct gs_error *error);

/* Cheap: has a read hit a page that is no longer in its file? */
bool gs_checkpoint_damaged(const struct gs_checkpoint *checkpoint);

#endif
