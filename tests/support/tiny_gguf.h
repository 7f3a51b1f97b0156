/* GGUF files made in memory: piece by piece for tests of the format, or whole from a tiny model. */
#ifndef TESTS_SUPPORT_TINY_GGUF_H
#define TESTS_SUPPORT_TINY_GGUF_H

#include "base/buffer.h"
#include "format/gguf.h"
#include "tests/support/tiny_model.h"

/* The numbers of ggml's tensor types. */
enum {
    GGUF_F32 = 0,
    GGUF_F16 = 1,
    GGUF_Q4_K = 12,
    GGUF_Q8_0 = 8,
    GGUF_BF16 = 30,
    GGUF_MXFP4 = 39,
};

/* Zero-initialise; version 0 means 3, alignment 0 means 32 without a key that says so. */
struct gguf_file {
    uint32_t version, alignment;
    struct gs_buffer entries, infos, data;
    uint64_t n_entry, n_tensor;
};

void gguf_put(struct gs_buffer *buffer, const void *bytes, size_t size);
void gguf_put_u32(struct gs_buffer *buffer, uint32_t value);
void gguf_put_u64(struct gs_buffer *buffer, uint64_t value);
void gguf_put_text(struct gs_buffer *buffer, const char *text, size_t size);

/* Metadata. gguf_value begins any entry: what follows is put to file->entries. */
void gguf_value(struct gguf_file *file, const char *key, uint32_t type);
void gguf_array(struct gguf_file *file, const char *key, uint32_t type, uint64_t count);
void gguf_u32(struct gguf_file *file, const char *key, uint32_t value);
void gguf_f32(struct gguf_file *file, const char *key, float value);
void gguf_text(struct gguf_file *file, const char *key, const char *text);

/* ne [rank]: fastest axis first. The data are padded. */
void gguf_tensor(struct gguf_file *file, const char *name, uint32_t type, uint32_t rank, const uint64_t *ne,
                 const void *data, uint64_t bytes);

/* All of it in one buffer; the parts are released. */
struct gs_buffer gguf_finish(struct gguf_file *file);

/* A model in Hugging Face layout with BF16 matrices as a GGUF; vectors and router are F32 in it. */
struct tiny_gguf_options {
    enum gs_dtype dense; /* of the matrices: F32, F16, BF16 or Q8_0 */
    bool mixed;          /* the projections of keys and values have types of their own */
    enum gs_dtype keys, values;
    uint32_t version, alignment;
    size_t n_parts;      /* > 1: tiny_gguf_write makes "stem-00001-of-0000N.gguf" ... */
    bool has_vocabulary; /* tokens "t0", "t1" ...; the last three are <|endoftext|>, <|return|>, <|call|> */
};
struct gguf_file tiny_gguf_begin(const struct tiny_model *model, const struct tiny_gguf_options *options);
struct gs_buffer tiny_gguf_make(const struct tiny_model *model, const struct tiny_gguf_options *options);

/* To "folder/stem.gguf". */
void tiny_gguf_write(const struct tiny_model *model, const struct tiny_gguf_options *options,
                     const char *folder, const char *stem);

/* Q8_0 of values [count], a multiple of 32, and back: exactly what a reader must give. */
void tiny_q8_0_quantize(const float *values, uint64_t count, unsigned char *blocks);
void tiny_q8_0_dequantize(const unsigned char *blocks, uint64_t count, float *values);

#endif
