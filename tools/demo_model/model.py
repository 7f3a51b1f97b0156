"""The model's configuration and starting weights, and a fast forward pass for training.

The weights live in transformers' own GptOssForCausalLM. Its eager code is the reference, and what the
evaluation runs; FastForward computes the same function from the same parameters, rounded as the
checkpoint will hold them, in a form that a compiler can fuse: attention through flex_attention
(sinks from the log-sum-exp), and every expert on every token, weighted by zero where not chosen.
`assert_parity` compares the two.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from mxfp4 import as_stored, straight_through

WINDOW = 128
VOCAB_PADDING = 128


def hf_config(vocab, specials, layers=6):
    """The published config.json with this model's sizes. `specials`: id by name."""
    padded = -(-vocab // VOCAB_PADDING) * VOCAB_PADDING
    kinds = ["sliding_attention", "full_attention"]
    return {
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "attention_dropout": 0.0,
        "eos_token_id": specials["<|return|>"],
        "experts_per_token": 4,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 192,
        "initial_context_length": 4096,
        "initializer_range": 0.02,
        "intermediate_size": 256,
        "layer_types": [kinds[i % 2] for i in range(layers)],
        "max_position_embeddings": 131072,
        "model_type": "gpt_oss",
        "num_attention_heads": 16,
        "num_experts_per_tok": 4,
        "num_hidden_layers": layers,
        "num_key_value_heads": 2,
        "num_local_experts": 8,
        "output_router_logits": False,
        "pad_token_id": specials["<|endoftext|>"],
        "quantization_config": {
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                       "model.embed_tokens", "lm_head"],
            "quant_method": "mxfp4",
        },
        "rms_norm_eps": 1e-05,
        "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
                         "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": False},
        "rope_theta": 150000,
        "router_aux_loss_coef": 0.9,
        "sliding_window": WINDOW,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "transformers_version": "4.55.0.dev0",
        "use_cache": True,
        "vocab_size": padded,
    }


def build_model(config, seed):
    """GptOssForCausalLM in float32 with fresh weights, scaled for a narrow model."""
    from transformers import GptOssConfig, GptOssForCausalLM
    plain = copy.deepcopy({k: v for k, v in config.items() if k != "quantization_config"})   # the class edits it
    model = GptOssForCausalLM._from_config(GptOssConfig(**plain), attn_implementation="eager").float()
    torch.manual_seed(seed)
    residual = 1 / math.sqrt(2 * config["num_hidden_layers"])
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias") or name.endswith("sinks"):
                p.zero_()
            elif name.endswith("norm.weight"):
                p.fill_(1)
            elif "embed_tokens" in name:
                p.normal_(0, 0.3)
            else:   # by fan-in; what writes to the residual stream is scaled by depth
                fan_in = p.shape[1]
                gain = residual if "o_proj" in name or "down_proj" in name else 1
                gain = 0.5 if "lm_head" in name or "router" in name else gain
                p.normal_(0, gain / math.sqrt(fan_in))
    return model


def rms_norm(x, weight, eps=1e-5):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def rotate(x, cos, sin):
    """x [batch, head, token, 64], pairs (j, j + 32)."""
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


class FastForward(nn.Module):
    """Tokens to loss (or logits) with the parameters of a GptOssForCausalLM. `dtype` is the type of the
    matrix products; the residual stream, norms, router and softmaxes stay in float32."""

    def __init__(self, model, length, device, dtype=torch.bfloat16):
        super().__init__()
        self.weights, self.dtype = dict(model.named_parameters()), dtype
        self.n_layer = model.config.num_hidden_layers
        self.n_head, self.n_kv = model.config.num_attention_heads, model.config.num_key_value_heads
        with torch.no_grad():
            positions = torch.arange(length, device=device)[None]
            self.cos, self.sin = model.model.rotary_emb(torch.zeros(1, device=device), positions)

        def causal(b, h, q, k):
            return q >= k

        def window(b, h, q, k):
            return (q >= k) & (q - k < WINDOW)

        self.masks = [create_block_mask(m, None, None, length, length, device=device) for m in (window, causal)]

    def w(self, name):
        p = self.weights[name]
        return straight_through(p, as_stored(name, p))

    def linear(self, x, name):
        return F.linear(x, self.w(name + ".weight").to(self.dtype), self.w(name + ".bias").to(self.dtype))

    def attention(self, x, prefix, mask):
        b, t, _ = x.shape
        heads = lambda name, n: self.linear(x, prefix + name).view(b, t, n, 64).transpose(1, 2)
        q, k, v = heads("q_proj", self.n_head), heads("k_proj", self.n_kv), heads("v_proj", self.n_kv)
        q, k = rotate(q, self.cos, self.sin), rotate(k, self.cos, self.sin)
        out, lse = flex_attention(q, k, v, block_mask=mask, scale=0.125, enable_gqa=True, return_lse=True)
        # softmax over keys and sink = softmax over keys, times the keys' share against the sink
        share = torch.sigmoid(lse.float() - self.w(prefix + "sinks")[None, :, None])
        out = (out * share[..., None]).to(self.dtype)
        return self.linear(out.transpose(1, 2).reshape(b, t, -1), prefix + "o_proj")

    def experts(self, x, prefix):
        """x [tokens, d_model], float32 -> (output, load balancing loss)"""
        logits = F.linear(x, self.w(prefix + "router.weight"), self.w(prefix + "router.bias"))
        top, index = logits.topk(4, dim=-1)
        share = torch.zeros_like(logits).scatter(1, index, top.softmax(-1))           # [tokens, expert]
        balance = logits.shape[1] * ((share > 0).float().mean(0) / 4 * logits.softmax(-1).mean(0)).sum()
        gate_up, down = self.w(prefix + "experts.gate_up_proj"), self.w(prefix + "experts.down_proj")
        n_expert, d_model, width = gate_up.shape
        h = x.to(self.dtype) @ gate_up.permute(1, 0, 2).reshape(d_model, -1).to(self.dtype)
        h = h.view(-1, n_expert, width).float() + self.w(prefix + "experts.gate_up_proj_bias")
        gate, up = h[..., ::2].clamp(max=7.0), h[..., 1::2].clamp(-7.0, 7.0)
        h = (up + 1) * gate * torch.sigmoid(1.702 * gate) * share[..., None]
        out = h.flatten(1).to(self.dtype) @ down.reshape(-1, d_model).to(self.dtype)
        return out.float() + share @ self.w(prefix + "experts.down_proj_bias"), balance

    def logits(self, ids):
        x = F.embedding(ids, self.w("model.embed_tokens.weight"))
        balance = 0.0
        for i in range(self.n_layer):
            p = f"model.layers.{i}."
            y = rms_norm(x, self.w(p + "input_layernorm.weight")).to(self.dtype)
            x = x + self.attention(y, p + "self_attn.", self.masks[i % 2]).float()
            y = rms_norm(x, self.w(p + "post_attention_layernorm.weight"))
            out, loss = self.experts(y.flatten(0, 1), p + "mlp.")
            x, balance = x + out.view_as(x), balance + loss / self.n_layer
        y = rms_norm(x, self.w("model.norm.weight")).to(self.dtype)
        return F.linear(y, self.w("lm_head.weight").to(self.dtype)), balance

    def forward(self, ids, targets, weights):
        """(mean loss of the weighted tokens, balance loss, share of fully weighted tokens predicted right)"""
        logits, balance = self.logits(ids)
        logits = logits.flatten(0, 1).float()
        targets, weights = targets.flatten(), weights.flatten()
        losses = F.cross_entropy(logits, targets, reduction="none")
        loss = (losses * weights).sum() / weights.sum()
        full = (weights > 0.99).float()
        right = ((logits.argmax(-1) == targets) * full).sum() / full.sum().clamp(min=1)
        return loss, balance, right


def round_parameters(model):
    """The model's parameters, in place, as the checkpoint will hold them."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(as_stored(name, p))


def assert_parity(config, device, length, dtype, tolerance, compile_it):
    """FastForward against transformers' eager class on random tokens, random sinks and biases."""
    model = build_model(config, seed=7).to(device)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias") or name.endswith("sinks"):
                p.normal_(0, 0.3)
    round_parameters(model)
    ids = torch.randint(0, config["vocab_size"], (2, length), device=device)
    fast = FastForward(model, length, device, dtype)
    run = torch.compile(fast.logits) if compile_it else fast.logits
    with torch.no_grad():
        expected = model.eval()(input_ids=ids).logits
        got = run(ids)[0].float()
    error = ((got - expected).norm() / expected.norm()).item()
    print(f"parity with transformers' eager class: relative error {error:.2e} (at most {tolerance:g})", flush=True)
    assert error < tolerance
