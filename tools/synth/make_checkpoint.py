#!/usr/bin/env python3
"""Writes a synthetic gpt-oss checkpoint: the published layout to the byte, random weights inside.

    make_checkpoint.py OUT --scale 20b                     13.8 GB, three shards, as published
    make_checkpoint.py OUT --scale 120b --plan             only say which files of which size it would be
    make_checkpoint.py OUT --scale 20b --layers 2 --vocab 1024 --layout original

For --scale 20b and 120b without other shape options the names, shapes, dtypes, shard split, file sizes,
index and config are those of the published checkpoints (index and config byte for byte). A tensor's bytes
depend on --seed and its name alone, so both layouts and every split hold the same weights.

Weights are drawn so that every layer adds about a tenth of a residual stream of order one: embedding and sinks normal,
other BF16 matrices and biases normal * 0.02 (o_proj: 0.003), norm weights 1 + normal * 0.1, MXFP4 codes uniform with
scale bytes 118 ... 122 (down: 112 ... 116). Routers are confident, normal * 0.08 with biases normal * 1.2: the fourth
expert weighs a few per cent, as in a trained model, so that rounding which exchanges it for the fifth changes
little, and the busiest of 32 experts gets some three times its share. With flat routers and larger layers a random
model is chaotic: even transformers' own bfloat16 run then has little in common with its float32 run.

tokenizer.json is the file that --tokenizer names; by default the published one where it has been made
(build/o200k/tokenizer.json) and the vocabulary is the published, else one of bytes, pairs and triples of bytes.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import statistics
import sys
import time

import numpy as np
import vocabulary

CHUNK = 16 << 20  # bytes written at a time; even, so that it holds whole BF16 elements

# The published files' tensor order inside a layer (the order of the original files, qkv split).
LAYER_ORDER = [
    "input_layernorm.weight", "self_attn.o_proj.bias", "self_attn.o_proj.weight", "self_attn.q_proj.bias",
    "self_attn.k_proj.bias", "self_attn.v_proj.bias", "self_attn.q_proj.weight", "self_attn.k_proj.weight",
    "self_attn.v_proj.weight", "self_attn.sinks", "mlp.router.bias", "mlp.router.weight",
    "mlp.experts.gate_up_proj_bias", "mlp.experts.gate_up_proj_blocks", "mlp.experts.gate_up_proj_scales",
    "mlp.experts.down_proj_bias", "mlp.experts.down_proj_blocks", "mlp.experts.down_proj_scales",
    "post_attention_layernorm.weight",
]
OUTER_ORDER = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]

# Original name of each Hugging Face name; the three projections share one tensor.
ORIGINAL_LAYER = {
    "input_layernorm.weight": "attn.norm.scale",
    "self_attn.o_proj.bias": "attn.out.bias",
    "self_attn.o_proj.weight": "attn.out.weight",
    "self_attn.q_proj.bias": "attn.qkv.bias",
    "self_attn.q_proj.weight": "attn.qkv.weight",
    "self_attn.sinks": "attn.sinks",
    "mlp.router.bias": "mlp.gate.bias",
    "mlp.router.weight": "mlp.gate.weight",
    "mlp.experts.gate_up_proj_bias": "mlp.mlp1_bias",
    "mlp.experts.gate_up_proj_blocks": "mlp.mlp1_weight.blocks",
    "mlp.experts.gate_up_proj_scales": "mlp.mlp1_weight.scales",
    "mlp.experts.down_proj_bias": "mlp.mlp2_bias",
    "mlp.experts.down_proj_blocks": "mlp.mlp2_weight.blocks",
    "mlp.experts.down_proj_scales": "mlp.mlp2_weight.scales",
    "post_attention_layernorm.weight": "mlp.norm.scale",
}
ORIGINAL_OUTER = {
    "model.embed_tokens.weight": "embedding.weight",
    "model.norm.weight": "norm.scale",
    "lm_head.weight": "unembedding.weight",
}

PUBLISHED_VOCAB = 201088
PUBLISHED_TOKENIZER = "build/o200k/tokenizer.json"

HF_SHARD_BYTES = 4_800_000_000
# The 120b's original layout has six files of up to this size and a seventh with embedding, norm and head.
ORIGINAL_SHARD_BYTES = 10_550_000_000
# The converter that made the published 120b read those seven files in this order.
ORIGINAL_READ_ORDER_120B = [3, 2, 5, 1, 0, 6, 4]


class Shape:
    def __init__(self, arguments):
        published = {"20b": (24, 32), "120b": (36, 128)}[arguments.scale]

        def pick(value, default):
            return default if value is None else value

        self.layers = pick(arguments.layers, published[0])
        self.experts = pick(arguments.experts, published[1])
        self.active = pick(arguments.active, min(4, self.experts))
        self.hidden = pick(arguments.hidden, 2880)
        self.intermediate = pick(arguments.intermediate, 2880)
        self.heads = pick(arguments.heads, 64)
        self.kv_heads = pick(arguments.kv_heads, 8)
        self.head_dim = pick(arguments.head_dim, 64)
        self.vocab = pick(arguments.vocab, PUBLISHED_VOCAB)
        self.window = pick(arguments.window, 128)
        self.initial_context = pick(arguments.initial_context, 4096)
        self.is_120b = arguments.scale == "120b" and self.layers == 36 and self.experts == 128 and (
            self.hidden == self.intermediate == 2880)
        self.check()

    def check(self):
        for name, value in vars(self).items():
            if name != "is_120b" and value < 1:
                sys.exit(f"--{name.replace('_', '-')}: {value} must be at least 1")
        least = vocabulary.LEAST
        if self.vocab < least:
            sys.exit(f"--vocab: {self.vocab} must be at least {least}, for the bytes and the special tokens")
        for name in ("hidden", "intermediate"):
            if getattr(self, name) % 32:
                sys.exit(f"--{name}: {getattr(self, name)} must be a multiple of 32")
        if self.heads % self.kv_heads:
            sys.exit(f"--heads: {self.heads} must be a multiple of --kv-heads {self.kv_heads}")
        if self.head_dim % 2:
            sys.exit(f"--head-dim: {self.head_dim} must be even")
        if self.active > self.experts:
            sys.exit(f"--active: {self.active} must be at most --experts {self.experts}")

    def layer_tensors(self):
        """Hugging Face suffix -> (dtype, shape)."""
        hidden, inter, experts = self.hidden, self.intermediate, self.experts
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "input_layernorm.weight": ("BF16", (hidden,)),
            "post_attention_layernorm.weight": ("BF16", (hidden,)),
            "self_attn.q_proj.weight": ("BF16", (query, hidden)),
            "self_attn.q_proj.bias": ("BF16", (query,)),
            "self_attn.k_proj.weight": ("BF16", (key, hidden)),
            "self_attn.k_proj.bias": ("BF16", (key,)),
            "self_attn.v_proj.weight": ("BF16", (key, hidden)),
            "self_attn.v_proj.bias": ("BF16", (key,)),
            "self_attn.o_proj.weight": ("BF16", (hidden, query)),
            "self_attn.o_proj.bias": ("BF16", (hidden,)),
            "self_attn.sinks": ("BF16", (self.heads,)),
            "mlp.router.weight": ("BF16", (experts, hidden)),
            "mlp.router.bias": ("BF16", (experts,)),
            "mlp.experts.gate_up_proj_blocks": ("U8", (experts, 2 * inter, hidden // 32, 16)),
            "mlp.experts.gate_up_proj_scales": ("U8", (experts, 2 * inter, hidden // 32)),
            "mlp.experts.gate_up_proj_bias": ("BF16", (experts, 2 * inter)),
            "mlp.experts.down_proj_blocks": ("U8", (experts, hidden, inter // 32, 16)),
            "mlp.experts.down_proj_scales": ("U8", (experts, hidden, inter // 32)),
            "mlp.experts.down_proj_bias": ("BF16", (experts, hidden)),
        }

    def outer_tensors(self):
        return {
            "model.embed_tokens.weight": ("BF16", (self.vocab, self.hidden)),
            "model.norm.weight": ("BF16", (self.hidden,)),
            "lm_head.weight": ("BF16", (self.vocab, self.hidden)),
        }


class Tensor:
    """One tensor of the file; `sources` are the Hugging Face tensors whose bytes follow one another in it."""

    def __init__(self, name, dtype, shape, sources):
        self.name, self.dtype, self.shape, self.sources = name, dtype, shape, sources
        self.bytes = sum(count for _, count in sources)


def byte_count(dtype, shape):
    count = {"BF16": 2, "U8": 1}[dtype]
    for size in shape:
        count *= size
    return count


def hf_tensors(shape):
    """Every tensor, in the order of the original files: layers sorted as text."""
    tensors = []
    for layer in sorted(range(shape.layers), key=str):
        described = shape.layer_tensors()
        for suffix in LAYER_ORDER:
            dtype, dims = described[suffix]
            name = f"model.layers.{layer}.{suffix}"
            tensors.append(Tensor(name, dtype, dims, [(name, byte_count(dtype, dims))]))
    for name in OUTER_ORDER:
        dtype, dims = shape.outer_tensors()[name]
        tensors.append(Tensor(name, dtype, dims, [(name, byte_count(dtype, dims))]))
    return tensors


def original_tensors(tensors):
    renamed, by_name = [], {tensor.name: tensor for tensor in tensors}
    for tensor in tensors:
        if tensor.name in ORIGINAL_OUTER:
            renamed.append(Tensor(ORIGINAL_OUTER[tensor.name], tensor.dtype, tensor.shape, tensor.sources))
            continue
        _, _, layer, suffix = tensor.name.split(".", 3)
        if suffix not in ORIGINAL_LAYER:
            continue  # k and v follow q in the fused tensor
        name = f"block.{layer}.{ORIGINAL_LAYER[suffix]}"
        parts = [tensor]
        if ".q_proj." in tensor.name:
            parts += [by_name[tensor.name.replace(".q_proj.", other)] for other in (".k_proj.", ".v_proj.")]
        rows = sum(part.shape[0] for part in parts)
        renamed.append(Tensor(name, tensor.dtype, (rows,) + tensor.shape[1:],
                              [source for part in parts for source in part.sources]))
    return renamed


def split(tensors, limit):
    """A new shard whenever the next tensor would pass the limit."""
    shards, total = [[]], 0
    for tensor in tensors:
        if shards[-1] and total + tensor.bytes > limit:
            shards.append([])
            total = 0
        shards[-1].append(tensor)
        total += tensor.bytes
    return shards


def plan_hf(shape, limit):
    tensors = hf_tensors(shape)
    if shape.is_120b:
        files = split(tensors[:-3], ORIGINAL_SHARD_BYTES) + [tensors[-3:]]
        tensors = [tensor for i in ORIGINAL_READ_ORDER_120B for tensor in files[i]]
    shards = split(tensors, limit)
    last = len(shards) - 1
    names = [f"model-{i:05d}-of-{last:05d}.safetensors" for i in range(len(shards))]
    index = {
        "metadata": {"total_size": sum(tensor.bytes for tensor in tensors)},
        "weight_map": {tensor.name: name for name, shard in zip(names, shards) for tensor in shard},
    }
    return list(zip(names, shards)), json.dumps(index)


def plan_original(shape):
    tensors = original_tensors(hf_tensors(shape))
    if sum(tensor.bytes for tensor in tensors) < 2 * ORIGINAL_SHARD_BYTES:
        return [("model.safetensors", tensors)]
    shards = split(tensors[:-3], ORIGINAL_SHARD_BYTES) + [tensors[-3:]]
    return [(f"model--{i + 1:05d}-of-{len(shards):05d}.safetensors", shard) for i, shard in enumerate(shards)]


def hf_config(shape):
    types = ["sliding_attention" if layer % 2 == 0 else "full_attention" for layer in range(shape.layers)]
    config = {
        "architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0,
        "eos_token_id": vocabulary.special(shape.vocab, "<|return|>"), "experts_per_token": shape.active,
        "head_dim": shape.head_dim, "hidden_act": "silu", "hidden_size": shape.hidden,
        "initial_context_length": shape.initial_context, "initializer_range": 0.02,
        "intermediate_size": shape.intermediate, "layer_types": types,
        "max_position_embeddings": shape.initial_context * 32, "model_type": "gpt_oss",
        "num_attention_heads": shape.heads, "num_experts_per_tok": shape.active,
        "num_hidden_layers": shape.layers, "num_key_value_heads": shape.kv_heads,
        "num_local_experts": shape.experts, "output_router_logits": False,
        "pad_token_id": vocabulary.special(shape.vocab, "<|endoftext|>"),
        "quantization_config": {
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                       "model.embed_tokens", "lm_head"],
            "quant_method": "mxfp4",
        },
        "rms_norm_eps": 1e-05,
        "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
                         "original_max_position_embeddings": shape.initial_context, "rope_type": "yarn",
                         "truncate": False},
        "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": shape.window,
        "swiglu_limit": 7.0, "tie_word_embeddings": False, "transformers_version": "4.55.0.dev0",
        "use_cache": True, "vocab_size": shape.vocab,
    }
    return json.dumps(config, indent=2, sort_keys=True) + "\n"


def hf_generation_config(shape):
    ids = [vocabulary.special(shape.vocab, text) for text in ("<|return|>", "<|endoftext|>", "<|call|>")]
    config = {"bos_token_id": vocabulary.special(shape.vocab, "<|startoftext|>"), "do_sample": True, "eos_token_id": ids,
              "pad_token_id": vocabulary.special(shape.vocab, "<|endoftext|>"), "transformers_version": "4.55.0.dev0"}
    return json.dumps(config, indent=2, sort_keys=True) + "\n"


def original_config(shape):
    return json.dumps({
        "num_hidden_layers": shape.layers, "num_experts": shape.experts, "experts_per_token": shape.active,
        "vocab_size": shape.vocab, "hidden_size": shape.hidden, "intermediate_size": shape.intermediate,
        "swiglu_limit": 7.0, "head_dim": shape.head_dim, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "sliding_window": shape.window,
        "initial_context_length": shape.initial_context, "rope_theta": 150000, "rope_scaling_factor": 32.0,
        "rope_ntk_alpha": 1, "rope_ntk_beta": 32,
    })


def original_dtypes(files):
    def kind(tensor):
        return {"blocks": "FP4", "scales": "UE8"}.get(tensor.name.rsplit(".", 1)[-1], "BF16")

    return json.dumps({tensor.name: kind(tensor) for _, shard in files for tensor in shard})


def header(tensors):
    """The official writer's: by alignment, then by name; compact JSON padded with blanks to 8 bytes."""
    ordered = sorted(tensors, key=lambda tensor: (tensor.dtype != "BF16", tensor.name))
    described, offset = {}, 0
    for tensor in ordered:
        described[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape),
                                  "data_offsets": [offset, offset + tensor.bytes]}
        offset += tensor.bytes
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, ordered, offset


def bf16_normal_table():
    """65536 equally likely normal values: a random 16-bit index into it is a normal draw."""
    normal = statistics.NormalDist()
    return np.array([normal.inv_cdf((i + 0.5) / 65536) for i in range(65536)])


def to_bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class Generator:
    def __init__(self, seed):
        self.seed = seed
        normal = bf16_normal_table()
        self.matrix = to_bf16(normal * 0.02)
        self.norm = to_bf16(1 + normal * 0.1)
        self.out = to_bf16(normal * 0.003)
        self.unit = to_bf16(normal)
        self.router = to_bf16(normal * 0.08)
        self.skew = to_bf16(normal * 1.2)
        self.scales = np.array([118 + i % 5 for i in range(256)], dtype=np.uint8)
        self.down_scales = self.scales - 6

    def chunks(self, name, count):
        """The bytes of a Hugging Face tensor, in pieces."""
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        source = np.random.SFC64(np.random.SeedSequence(list(np.frombuffer(digest, dtype=np.uint32))))
        while count > 0:
            size = min(count, CHUNK)
            raw = source.random_raw((size + 7) // 8).view(np.uint8)[:size]
            count -= size
            if name.endswith("_blocks"):
                yield raw
            elif name.endswith("down_proj_scales"):
                yield self.down_scales[raw]
            elif name.endswith("_scales"):
                yield self.scales[raw]
            else:
                table = self.matrix
                if name.endswith("norm.weight"):
                    table = self.norm
                elif name.endswith(("sinks", "embed_tokens.weight")):
                    table = self.unit
                elif name.endswith("o_proj.weight"):
                    table = self.out
                elif name.endswith("router.weight"):
                    table = self.router
                elif name.endswith("router.bias"):
                    table = self.skew
                yield table[raw.view(np.uint16)]


TASKS = []  # (path, offset, Hugging Face name, bytes): of this run; processes that are forked after it is filled have it too
GENERATORS = []


def write_task(number):
    path, offset, name, count = TASKS[number]
    with open(path, "r+b", buffering=0) as file:
        file.seek(offset)
        for chunk in GENERATORS[0].chunks(name, count):
            view = memoryview(chunk).cast("B")
            while len(view):
                view = view[file.write(view):]


def write_files(folder, files, generator, jobs):
    """All files, each first as NAME.part; the longest tensors first if several processes write."""
    began = time.monotonic()
    GENERATORS.append(generator)
    total = 0
    for name, tensors in files:
        head, ordered, data_bytes = header(tensors)
        path, at = os.path.join(folder, name) + ".part", len(head)
        with open(path, "wb") as file:
            file.write(head)
            file.truncate(len(head) + data_bytes)
        for tensor in ordered:
            for source, count in tensor.sources:
                TASKS.append((path, at, source, count))
                at += count
        total += at
    if jobs > 1:
        TASKS.sort(key=lambda task: -task[3])
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            pool.map(write_task, range(len(TASKS)), chunksize=1)
    else:
        for number in range(len(TASKS)):
            write_task(number)
    for name, _ in files:
        path = os.path.join(folder, name)
        os.replace(path + ".part", path)
        print(f"{path}: {os.path.getsize(path)} bytes")
    seconds = max(time.monotonic() - began, 1e-9)
    print(f"{folder}: {total} bytes, {seconds:.1f} s, {total / seconds / 1e9:.2f} GB/s", flush=True)


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"{path}: {len(text.encode())} bytes, sha256 {hashlib.sha256(text.encode()).hexdigest()}")


def tokenizer_text(source, n_vocab):
    if source is None and n_vocab == PUBLISHED_VOCAB and os.path.exists(PUBLISHED_TOKENIZER):
        source = PUBLISHED_TOKENIZER
    if source is None:
        return json.dumps(vocabulary.make(n_vocab), ensure_ascii=False) + "\n"
    with open(source, encoding="utf-8", newline="") as file:
        return file.read()


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="folder to write, made if absent")
    parser.add_argument("--scale", choices=("20b", "120b"), default="20b")
    parser.add_argument("--layout", choices=("hf", "original"), default="hf")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard-bytes", type=int, default=HF_SHARD_BYTES, help="limit of one file (hf layout)")
    parser.add_argument("--tokenizer", help="tokenizer.json to copy beside the weights")
    parser.add_argument("--jobs", type=int, default=1, help="processes that write (default: 1)")
    parser.add_argument("--plan", action="store_true", help="print files and sizes, write nothing")
    for name in ("layers", "experts", "active", "hidden", "intermediate", "heads", "kv-heads", "head-dim",
                 "vocab", "window", "initial-context"):
        parser.add_argument(f"--{name}", type=int)
    return parser.parse_args(arguments)


def main():
    arguments = parse_arguments()
    shape = Shape(arguments)
    if arguments.layout == "hf":
        files, index = plan_hf(shape, arguments.shard_bytes)
        texts = {"config.json": hf_config(shape), "generation_config.json": hf_generation_config(shape),
                 "model.safetensors.index.json": index}
    else:
        files = plan_original(shape)
        texts = {"config.json": original_config(shape), "dtypes.json": original_dtypes(files)}
    if arguments.plan:
        for name, text in texts.items():
            print(f"{name}: {len(text)} bytes, sha256 {hashlib.sha256(text.encode()).hexdigest()}")
        for name, tensors in files:
            head, _, data_bytes = header(tensors)
            print(f"{name}: {len(head) + data_bytes} bytes, {len(tensors)} tensors")
        return
    os.makedirs(arguments.out, exist_ok=True)
    texts = {"tokenizer.json": tokenizer_text(arguments.tokenizer, shape.vocab), **texts}
    for name, text in texts.items():
        write_text(os.path.join(arguments.out, name), text)
    write_files(arguments.out, files, Generator(arguments.seed), arguments.jobs)


if __name__ == "__main__":
    main()
