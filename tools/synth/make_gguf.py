#!/usr/bin/env python3
"""Converts a gpt-oss checkpoint in Hugging Face layout (real or synthetic) into one GGUF v3 file.

    make_gguf.py MODEL OUT.gguf                 as published: matrices Q8_0, experts MXFP4, vectors F32
    make_gguf.py MODEL OUT.gguf --dense bf16    matrices as they are: lossless (also f32; f16 rounds)
    make_gguf.py scale:120b OUT.gguf --jobs 16  the weights of `make_checkpoint.py --scale 120b`, without its files

MODEL is a folder with config.json, model.safetensors or its shards and index, and, for the vocabulary,
tokenizer.json; generation_config.json, tokenizer_config.json and chat_template.jinja are used if they are there.
Names, types and metadata are those of the files that ggml-org publishes. The experts' values do not change: codes
and scales are put in GGUF's order, gate and up (even and odd rows) in two tensors. Needs numpy only, and memory
for about one expert of one layer; with scale: for a layer's experts, times --jobs.
"""

import argparse
import json
import multiprocessing
import os
import struct
import sys
import time

import make_checkpoint
import numpy as np

ALIGNMENT = 32
CHUNK = 1 << 18  # elements of a matrix converted at a time: they stay in a cache

U32, F32_VALUE, STRING, ARRAY, I32 = 4, 6, 8, 9, 5  # types of metadata
F32, F16, Q8_0, BF16, MXFP4 = 0, 1, 8, 30, 39  # types of tensors
FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 38}
DENSE = {"f32": F32, "f16": F16, "bf16": BF16, "q8_0": Q8_0}
BLOCKS = {F32: (1, 4), F16: (1, 2), Q8_0: (32, 34), BF16: (1, 2), MXFP4: (32, 17)}

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # kinds of tokens

LAYER = [
    ("input_layernorm.weight", "attn_norm.weight", False),
    ("self_attn.q_proj.weight", "attn_q.weight", True),
    ("self_attn.q_proj.bias", "attn_q.bias", False),
    ("self_attn.k_proj.weight", "attn_k.weight", True),
    ("self_attn.k_proj.bias", "attn_k.bias", False),
    ("self_attn.v_proj.weight", "attn_v.weight", True),
    ("self_attn.v_proj.bias", "attn_v.bias", False),
    ("self_attn.o_proj.weight", "attn_output.weight", True),
    ("self_attn.o_proj.bias", "attn_output.bias", False),
    ("self_attn.sinks", "attn_sinks.weight", False),
    ("post_attention_layernorm.weight", "post_attention_norm.weight", False),
    ("mlp.router.weight", "ffn_gate_inp.weight", False),
    ("mlp.router.bias", "ffn_gate_inp.bias", False),
    ("mlp.experts.down_proj_bias", "ffn_down_exps.bias", False),
]


# ---------------------------------------------------------------- the checkpoint

class Checkpoint:
    """The tensors of a folder, as views of its mapped files."""

    def __init__(self, folder):
        self.folder = folder
        self.tensors = {}
        index = self.json("model.safetensors.index.json")
        names = sorted(set(index["weight_map"].values())) if index else ["model.safetensors"]
        for name in names:
            self.read_file(os.path.join(folder, name))

    def read_file(self, path):
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        data = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + size)
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            kind = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32, "U8": np.uint8}[entry["dtype"]]
            view = np.frombuffer(data, dtype=np.uint8, count=end - begin, offset=begin)
            if begin % np.dtype(kind).itemsize:
                view = view.copy()
            self.tensors[name] = (entry["dtype"], view.view(kind).reshape(entry["shape"]))

    def tensor(self, name):
        """Its type, its shape, and what gives its values."""
        kind, values = self.tensors[name]
        return kind, values.shape, lambda: values

    def json(self, name):
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def text(self, name):
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return file.read()


class Synthetic:
    """What make_checkpoint.py would write, made when it is asked for."""

    def __init__(self, scale):
        arguments = make_checkpoint.parse_arguments(["none", "--scale", scale])
        self.shape = make_checkpoint.Shape(arguments)
        self.generator = make_checkpoint.Generator(arguments.seed)
        self.tensors = {tensor.name: tensor for tensor in make_checkpoint.hf_tensors(self.shape)}

    def tensor(self, name):
        described = self.tensors[name]
        return described.dtype, described.shape, lambda: self.values(described)

    def values(self, described):
        raw = np.empty(described.bytes, dtype=np.uint8)
        at = 0
        for chunk in self.generator.chunks(described.name, described.bytes):
            part = chunk.view(np.uint8)
            raw[at:at + part.size] = part
            at += part.size
        return raw.view({"BF16": np.uint16, "U8": np.uint8}[described.dtype]).reshape(described.shape)

    def json(self, name):
        made = {"config.json": make_checkpoint.hf_config, "generation_config.json": make_checkpoint.hf_generation_config}
        if name in made:
            return json.loads(made[name](self.shape))
        if name == "tokenizer.json":
            return json.loads(make_checkpoint.tokenizer_text(None, self.shape.vocab))
        return None

    def text(self, _name):
        return None


# ---------------------------------------------------------------- metadata

def packed_string(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


class Metadata:
    def __init__(self):
        self.parts, self.count = [], 0

    def add(self, key, kind, raw):
        self.parts.append(packed_string(key) + struct.pack("<I", kind) + raw)
        self.count += 1

    def u32(self, key, value):
        self.add(key, U32, struct.pack("<I", value))

    def f32(self, key, value):
        self.add(key, F32_VALUE, struct.pack("<f", value))

    def string(self, key, text):
        self.add(key, STRING, packed_string(text))

    def strings(self, key, texts):
        raw = b"".join(packed_string(text) for text in texts)
        self.add(key, ARRAY, struct.pack("<IQ", STRING, len(texts)) + raw)

    def i32s(self, key, values):
        raw = np.array(values, dtype="<i4").tobytes()
        self.add(key, ARRAY, struct.pack("<IQ", I32, len(values)) + raw)


def rope_block(config):
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def add_model(metadata, config, name, dense):
    layers, rope = config["num_hidden_layers"], rope_block(config)
    metadata.string("general.architecture", "gpt-oss")
    metadata.string("general.type", "model")
    metadata.string("general.name", name)
    metadata.u32("gpt-oss.block_count", layers)
    metadata.u32("gpt-oss.context_length", config["max_position_embeddings"])
    metadata.u32("gpt-oss.embedding_length", config["hidden_size"])
    metadata.u32("gpt-oss.feed_forward_length", config["intermediate_size"])
    metadata.u32("gpt-oss.attention.head_count", config["num_attention_heads"])
    metadata.u32("gpt-oss.attention.head_count_kv", config["num_key_value_heads"])
    metadata.f32("gpt-oss.rope.freq_base", config.get("rope_theta") or rope["rope_theta"])
    metadata.f32("gpt-oss.attention.layer_norm_rms_epsilon", config.get("rms_norm_eps", 1e-5))
    metadata.u32("gpt-oss.expert_count", config["num_local_experts"])
    metadata.u32("gpt-oss.expert_used_count", config["num_experts_per_tok"])
    metadata.u32("gpt-oss.attention.key_length", config.get("head_dim", 64))
    metadata.u32("gpt-oss.attention.value_length", config.get("head_dim", 64))
    metadata.u32("general.file_type", FILE_TYPES[dense])
    metadata.u32("gpt-oss.attention.sliding_window", config.get("sliding_window", 128))
    metadata.u32("gpt-oss.expert_feed_forward_length", config["intermediate_size"])
    if rope.get("rope_type", rope.get("type")) == "yarn":
        metadata.string("gpt-oss.rope.scaling.type", "yarn")
        metadata.f32("gpt-oss.rope.scaling.factor", rope["factor"])
        metadata.u32("gpt-oss.rope.scaling.original_context_length", rope["original_max_position_embeddings"])
        betas = (rope.get("beta_fast", 32.0), rope.get("beta_slow", 1.0))
        if betas != (32.0, 1.0):
            metadata.f32("gpt-oss.rope.scaling.yarn_beta_fast", betas[0])
            metadata.f32("gpt-oss.rope.scaling.yarn_beta_slow", betas[1])
        if rope.get("truncate", False):
            sys.exit("rope_scaling.truncate is true, which GGUF cannot say")
    else:
        metadata.string("gpt-oss.rope.scaling.type", "none")
    types = config.get("layer_types")
    if types and types != ["sliding_attention" if i % 2 == 0 else "full_attention" for i in range(layers)]:
        sys.exit("layer_types is not the pattern that GGUF implies: a window in every second layer from the first")
    if config.get("swiglu_limit", 7.0) != 7.0 or config.get("swiglu_alpha", 1.702) != 1.702:
        sys.exit("swiglu_limit and swiglu_alpha are not 7 and 1.702, which GGUF implies")


def vocabulary(tokenizer, n_vocab):
    """Texts and kinds of the n_vocab tokens."""
    texts = [f"[PAD{i}]" for i in range(n_vocab)]
    kinds = [UNUSED] * n_vocab
    for text, token in tokenizer["model"]["vocab"].items():
        texts[token], kinds[token] = text, NORMAL
    for added in tokenizer["added_tokens"]:
        texts[added["id"]] = added["content"]
        kinds[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    return texts, kinds


def first_id(value):
    return value[0] if isinstance(value, list) else value


def add_tokenizer(metadata, checkpoint, config):
    tokenizer = checkpoint.json("tokenizer.json")
    n_vocab = config["vocab_size"]
    if not tokenizer:
        metadata.string("tokenizer.ggml.model", "none")
        metadata.u32("gpt-oss.vocab_size", n_vocab)
    else:
        texts, kinds = vocabulary(tokenizer, n_vocab)
        merges = tokenizer["model"]["merges"]
        metadata.string("tokenizer.ggml.model", "gpt2")
        metadata.string("tokenizer.ggml.pre", "gpt-4o")
        metadata.strings("tokenizer.ggml.tokens", texts)
        metadata.i32s("tokenizer.ggml.token_type", kinds)
        metadata.strings("tokenizer.ggml.merges",
                         [merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    generation = checkpoint.json("generation_config.json") or {}
    for key, name in (("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding")):
        value = first_id(config.get(key, generation.get(key)))
        if value is not None:
            metadata.u32(f"tokenizer.ggml.{name}_token_id", value)
    template = checkpoint.text("chat_template.jinja")
    template = template or (checkpoint.json("tokenizer_config.json") or {}).get("chat_template")
    if template:
        metadata.string("tokenizer.chat_template", template)
    metadata.u32("general.quantization_version", 2)


# ---------------------------------------------------------------- tensors

def to_float(kind, values):
    if kind == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def to_bf16(values):
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_q8_0(values):
    """Blocks of 32: an F16 scale, the largest magnitude / 127, and int8 quotients, halves away from zero."""
    blocks = values.reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    scaled = blocks * inverse[:, None]
    rounded = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled).astype(np.int8)
    out = np.empty((len(blocks), 34), dtype=np.uint8)
    out[:, :2] = scale.astype(np.float16).view(np.uint8).reshape(-1, 2)
    out[:, 2:] = rounded.view(np.uint8)
    return out


def dense_chunks(kind, values, target):
    flat = values.reshape(-1)
    for begin in range(0, flat.size, CHUNK):
        part = flat[begin:begin + CHUNK]
        if kind == "BF16" and target == BF16:
            yield np.ascontiguousarray(part)
            continue
        floats = to_float(kind, part)
        if target == F32:
            yield floats
        elif target == F16:
            yield floats.astype(np.float16)
        elif target == BF16:
            yield to_bf16(floats)
        else:
            yield to_q8_0(floats)


def expert_chunks(blocks, scales, first, step):
    """blocks [E][rows][G][16], scales [E][rows][G], of the rows first, first + step ..."""
    for codes, exponents in zip(blocks, scales):
        codes, exponents = codes[first::step], exponents[first::step]
        low, high = codes[..., :8], codes[..., 8:]
        out = np.empty(exponents.shape + (17,), dtype=np.uint8)
        out[..., 0] = exponents
        out[..., 1::2] = (low & 0x0F) | (high << 4)
        out[..., 2::2] = (low >> 4) | (high & 0xF0)
        yield out


class Tensor:
    def __init__(self, name, kind, shape, chunks):
        self.name, self.kind, self.shape, self.chunks = name, kind, shape, chunks
        block, size = BLOCKS[kind]
        if shape[-1] % block:
            sys.exit(f"{name}: rows of {shape[-1]} elements cannot be in blocks of {block}; choose another --dense")
        self.bytes = int(np.prod(shape, dtype=np.int64)) // block * size


def dense(checkpoint, source, name, target):
    kind, shape, load = checkpoint.tensor(source)
    return Tensor(name, target, shape, lambda: dense_chunks(kind, load(), target))


def experts(checkpoint, source, name, first, step):
    (_, blocks, load_blocks), (_, _, load_scales) = (checkpoint.tensor(f"{source}_{part}")
                                                    for part in ("blocks", "scales"))
    shape = (blocks[0], blocks[1] // step, blocks[2] * 32)
    return Tensor(name, MXFP4, shape, lambda: expert_chunks(load_blocks(), load_scales(), first, step))


def bias_half(checkpoint, source, name, first):
    kind, shape, load = checkpoint.tensor(source)
    return Tensor(name, F32, (shape[0], shape[1] // 2),
                  lambda: dense_chunks(kind, np.ascontiguousarray(load()[:, first::2]), F32))


def all_tensors(checkpoint, layers, target):
    tensors = [dense(checkpoint, "model.embed_tokens.weight", "token_embd.weight", target)]
    for i in range(layers):
        source, name = f"model.layers.{i}.", f"blk.{i}."
        tensors += [dense(checkpoint, source + old, name + new, target if is_matrix else F32)
                    for old, new, is_matrix in LAYER]
        for first, half in enumerate(("gate", "up")):
            tensors.append(experts(checkpoint, source + "mlp.experts.gate_up_proj",
                                   f"{name}ffn_{half}_exps.weight", first, 2))
            tensors.append(bias_half(checkpoint, source + "mlp.experts.gate_up_proj_bias",
                                     f"{name}ffn_{half}_exps.bias", first))
        tensors.append(experts(checkpoint, source + "mlp.experts.down_proj", name + "ffn_down_exps.weight", 0, 1))
    tensors.append(dense(checkpoint, "model.norm.weight", "output_norm.weight", F32))
    tensors.append(dense(checkpoint, "lm_head.weight", "output.weight", target))
    return tensors


# ---------------------------------------------------------------- the file

def header(metadata, tensors):
    parts, offset = [], 0
    for tensor in tensors:
        parts.append(packed_string(tensor.name) + struct.pack("<I", len(tensor.shape)))
        parts.append(struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape)))
        parts.append(struct.pack("<IQ", tensor.kind, offset))
        offset += padded(tensor.bytes)
    raw = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), metadata.count)
    raw += b"".join(metadata.parts) + b"".join(parts)
    return raw + bytes(-len(raw) % ALIGNMENT)


def padded(count):
    return count + -count % ALIGNMENT


def write_tensor(task):
    path, offset, tensor = task
    written = 0
    with open(path, "r+b") as file:
        file.seek(offset)
        for chunk in tensor.chunks():
            written += file.write(memoryview(np.ascontiguousarray(chunk)).cast("B"))
    if written != tensor.bytes:
        raise ValueError(f"{tensor.name}: {written} bytes, {tensor.bytes} expected")


TASKS = []  # of this run; processes that are forked after it is filled have it too


def write_task(number):
    write_tensor(TASKS[number])


def write(path, metadata, tensors, jobs):
    began = time.monotonic()
    part = path + ".part"
    head = header(metadata, tensors)
    at = len(head)
    for tensor in tensors:
        TASKS.append((part, at, tensor))
        at += padded(tensor.bytes)
    with open(part, "wb") as file:
        file.write(head)
        file.truncate(at)
    if jobs > 1:
        TASKS.sort(key=lambda task: -task[2].bytes)  # the longest first
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            pool.map(write_task, range(len(TASKS)), chunksize=1)
    else:
        for task in TASKS:
            write_tensor(task)
    os.replace(part, path)
    seconds = max(time.monotonic() - began, 1e-9)
    print(f"{path}: {len(tensors)} tensors, {metadata.count} metadata entries, {at} bytes, {seconds:.1f} s, "
          f"{at / seconds / 1e9:.2f} GB/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder in Hugging Face layout; scale:20b or scale:120b: a synthetic model")
    parser.add_argument("out", help="the .gguf file to write")
    parser.add_argument("--dense", choices=sorted(DENSE), default="q8_0",
                        help="type of embedding, head and attention matrices (default: q8_0, as published)")
    parser.add_argument("--name", help="general.name (default: the folder's)")
    parser.add_argument("--jobs", type=int, default=1, help="processes that convert (default: 1)")
    arguments = parser.parse_args()
    synthetic = arguments.model.startswith("scale:")
    checkpoint = Synthetic(arguments.model.removeprefix("scale:")) if synthetic else Checkpoint(arguments.model)
    config = checkpoint.json("config.json")
    metadata = Metadata()
    name = arguments.name or os.path.basename(os.path.abspath(arguments.model)).replace("scale:", "synthetic-")
    add_model(metadata, config, name, arguments.dense)
    add_tokenizer(metadata, checkpoint, config)
    tensors = all_tensors(checkpoint, config["num_hidden_layers"], DENSE[arguments.dense])
    write(arguments.out, metadata, tensors, arguments.jobs)


if __name__ == "__main__":
    main()
