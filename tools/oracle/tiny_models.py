"""Six tiny random gpt-oss checkpoints in the published layout (BF16, MXFP4 experts), for the golden tests.

    python tools/oracle/tiny_models.py [FOLDER]        default: tests/golden/models

The sizes are chosen so that an engine that mixes two of them up reads wrong numbers: no two of a model's
widths agree unless the architecture says so. Weights are scaled so that what distinguishes gpt-oss shows:
attention is far from uniform, sinks take a visible share, activations pass the SwiGLU limits, the scales of
an expert's groups differ, and a few are so small that their groups vanish.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

YARN = {
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "rope_type": "yarn",
    "truncate": False,
}


@dataclass(frozen=True)
class Shape:
    name: str
    n_layer: int
    d_model: int
    d_head: int
    n_head: int
    n_kv_head: int
    n_expert: int
    n_active: int
    d_ff: int
    n_vocab: int
    window: int
    layer_types: str = ""  # "s" slides, "f" is full; empty: the published pattern, sliding first
    rope: dict = field(default_factory=lambda: YARN)
    rope_theta: float = 150000
    max_ctx: int = 131072
    rope_parameters: bool = False  # the newer spelling of rope_scaling and rope_theta

    def types(self):
        letters = self.layer_types or ("sf" * self.n_layer)[: self.n_layer]
        return [{"s": "sliding_attention", "f": "full_attention"}[letter] for letter in letters]


SHAPES = [
    Shape("one-layer", 1, 32, 16, 2, 1, 3, 1, 64, 97, 16),
    Shape("two-layers", 2, 64, 24, 6, 2, 5, 2, 32, 131, 16),
    Shape("three-layers", 3, 96, 32, 4, 1, 7, 2, 32, 257, 33, layer_types="fss"),
    Shape("published-pattern", 4, 64, 64, 4, 2, 8, 4, 32, 300, 128),
    Shape("five-layers", 5, 32, 20, 5, 5, 9, 3, 64, 199, 16, layer_types="ffsfs", rope_theta=10000,
          rope={**YARN, "factor": 4.0, "original_max_position_embeddings": 512}, max_ctx=2048, rope_parameters=True),
    Shape("one-expert", 2, 96, 16, 3, 3, 1, 1, 32, 110, 7,
          rope={**YARN, "factor": 8.0, "truncate": True}, max_ctx=32768),
]


def config(shape):
    """config.json as the published models have it."""
    rope = {"rope_scaling": shape.rope, "rope_theta": shape.rope_theta}
    if shape.rope_parameters:
        rope = {"rope_parameters": {**shape.rope, "rope_theta": shape.rope_theta}}
    return {
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "attention_dropout": 0.0,
        "eos_token_id": shape.n_vocab - 1,
        "experts_per_token": shape.n_active,
        "head_dim": shape.d_head,
        "hidden_act": "silu",
        "hidden_size": shape.d_model,
        "initial_context_length": shape.rope["original_max_position_embeddings"],
        "initializer_range": 0.02,
        "intermediate_size": shape.d_ff,
        "layer_types": shape.types(),
        "max_position_embeddings": shape.max_ctx,
        "model_type": "gpt_oss",
        "num_attention_heads": shape.n_head,
        "num_experts_per_tok": shape.n_active,
        "num_hidden_layers": shape.n_layer,
        "num_key_value_heads": shape.n_kv_head,
        "num_local_experts": shape.n_expert,
        "output_router_logits": False,
        "pad_token_id": shape.n_vocab - 2,
        "quantization_config": {
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
            "quant_method": "mxfp4",
        },
        "rms_norm_eps": 1e-05,
        **rope,
        "router_aux_loss_coef": 0.9,
        "sliding_window": shape.window,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": shape.n_vocab,
    }


class Weights:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.tensors = {}

    def normal(self, name, shape, deviation, mean=0.0):
        values = mean + deviation * self.random.standard_normal(shape)
        self.tensors[name] = torch.from_numpy(values.astype(np.float32)).to(torch.bfloat16)

    def mxfp4(self, name, n_expert, rows, columns, deviation):
        """Uniform codes (root mean square 2.9) under scales spread over five powers of two."""
        groups = (n_expert, rows, columns // 32)
        codes = self.random.integers(0, 256, (*groups, 16), dtype=np.uint8)
        middle = 127 + int(np.round(np.log2(deviation / 2.9)))
        scales = middle + self.random.choice([-3, -2, -1, 0, 1], groups, p=[0.1, 0.15, 0.2, 0.4, 0.15])
        tiny = self.random.random(groups) < 0.02
        scales[tiny] = self.random.choice([0, 1, 2, 60], int(tiny.sum()))
        self.tensors[f"{name}_blocks"] = torch.from_numpy(codes)
        self.tensors[f"{name}_scales"] = torch.from_numpy(scales.astype(np.uint8))


def weights(shape, seed):
    made = Weights(seed)
    d_model, d_ff, n_expert = shape.d_model, shape.d_ff, shape.n_expert
    q_width, kv_width = shape.n_head * shape.d_head, shape.n_kv_head * shape.d_head
    made.normal("model.embed_tokens.weight", (shape.n_vocab, d_model), 1.0)
    made.normal("model.norm.weight", d_model, 0.2, mean=1.0)
    made.normal("lm_head.weight", (shape.n_vocab, d_model), 3 / np.sqrt(d_model))
    for i in range(shape.n_layer):
        at = f"model.layers.{i}"
        made.normal(f"{at}.input_layernorm.weight", d_model, 0.2, mean=1.0)
        made.normal(f"{at}.post_attention_layernorm.weight", d_model, 0.2, mean=1.0)
        for part, width, deviation in (("q", q_width, 1.1), ("k", kv_width, 1.1), ("v", kv_width, 1.0)):
            made.normal(f"{at}.self_attn.{part}_proj.weight", (width, d_model), deviation / np.sqrt(d_model))
            made.normal(f"{at}.self_attn.{part}_proj.bias", width, 0.3)
        made.normal(f"{at}.self_attn.o_proj.weight", (d_model, q_width), 1.2 / np.sqrt(q_width))
        made.normal(f"{at}.self_attn.o_proj.bias", d_model, 0.2)
        made.normal(f"{at}.self_attn.sinks", shape.n_head, 2.0, mean=5.0)
        made.normal(f"{at}.mlp.router.weight", (n_expert, d_model), 1.5 / np.sqrt(d_model))
        made.normal(f"{at}.mlp.router.bias", n_expert, 0.3)
        made.mxfp4(f"{at}.mlp.experts.gate_up_proj", n_expert, 2 * d_ff, d_model, 4 / np.sqrt(d_model))
        made.normal(f"{at}.mlp.experts.gate_up_proj_bias", (n_expert, 2 * d_ff), 0.5)
        made.mxfp4(f"{at}.mlp.experts.down_proj", n_expert, d_model, d_ff, 0.15 / np.sqrt(d_ff))
        made.normal(f"{at}.mlp.experts.down_proj_bias", (n_expert, d_model), 0.3)
    return made.tensors


def write(shape, seed, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(shape), indent=2, sort_keys=True) + "\n")
    save_file(weights(shape, seed), folder / "model.safetensors")
    (folder / "model.safetensors").chmod(0o644)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/models")
    for seed, shape in enumerate(SHAPES, start=1):
        write(shape, seed, root / shape.name)
        size = (root / shape.name / "model.safetensors").stat().st_size
        print(f"{root / shape.name}: {size} bytes")


if __name__ == "__main__":
    main()
