"""transformers' own gpt-oss in float32 or bfloat16, eager, with every intermediate that gossamer's taps name."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors import safe_open
from transformers import AutoModelForCausalLM, Mxfp4Config

import mxfp4

transformers.utils.logging.disable_progress_bar()

EXPERT_MATRICES = ("gate_up_proj", "down_proj")


class TensorFiles:
    """Tensors by name over the safetensors files of a folder, a golden beside the weights left out."""

    def __init__(self, folder):
        paths = [path for path in sorted(Path(folder).glob("*.safetensors")) if not path.name.startswith("golden")]
        self.files = [safe_open(path, "pt") for path in paths]
        self.where = {name: file for file in self.files for name in file.keys()}

    def tensor(self, name):
        return self.where[name].get_tensor(name)


def load(folder, dtype, device="cpu"):
    """The model with dequantised experts, on a torch device. Its weights are checked bit for bit against the files."""
    torch.set_grad_enabled(False)
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=dtype,
        attn_implementation="eager",
        experts_implementation="eager",
        quantization_config=Mxfp4Config(dequantize=True),
        local_files_only=True,
        device_map=None if device == "cpu" else device,
    ).eval()
    model = model.float() if dtype == torch.float32 else model
    used = (model.config._attn_implementation, model.config._experts_implementation)
    if used != ("eager", "eager"):
        raise SystemExit(f"{folder}: transformers chose {used} instead of eager attention and experts")
    check_loaded(model, folder)
    return model


def same_bits(found, expected):
    return torch.equal(found.float().contiguous().view(torch.int32), expected.float().contiguous().view(torch.int32))


def check_loaded(model, folder):
    """Every parameter is the checkpoint's: loading that silently initialised one would make a false golden."""
    files = TensorFiles(folder)
    seen = set()
    for name, parameter in model.named_parameters():
        if name.endswith(EXPERT_MATRICES):
            blocks, scales = (files.tensor(f"{name}_{part}") for part in ("blocks", "scales"))
            same = all(
                same_bits(expert, mxfp4.dequantize(blocks[i].to(expert.device), scales[i].to(expert.device)).T)
                for i, expert in enumerate(parameter.detach())
            )
            seen |= {f"{name}_blocks", f"{name}_scales"}
        else:
            same = same_bits(parameter.detach(), files.tensor(name).to(parameter.device))
            seen.add(name)
        if not same:
            raise SystemExit(f"{folder}: transformers loaded other bits than the file has for {name}")
    if seen != set(files.where):
        raise SystemExit(f"{folder}: transformers left out {sorted(set(files.where) - seen)[:3]}")


def expert_checksums(model):
    """{name: int64 [n_expert]} over transformers' dequantised experts, rows as gossamer has them: [out][in]."""
    sums = {}
    for i, layer in enumerate(model.model.layers):
        for part in EXPERT_MATRICES:
            experts = getattr(layer.mlp.experts, part).detach()
            key = f"layers.{i}.{part.removesuffix('_proj')}_checksum"
            sums[key] = np.array([mxfp4.checksum(expert.T) for expert in experts], dtype=np.int64)
    return sums


def array(tensor):
    """A numpy copy of its own."""
    return tensor.detach().cpu().numpy().copy()


def forward(model, tokens):
    """One prefill of `tokens`: {component: float32 or int array [n_tokens][...]}."""
    seen, handles = {}, []

    def hook(module, pick):
        handles.append(module.register_forward_hook(lambda _module, _inputs, output: pick(output)))

    def keep(key):
        def pick(output):
            tensor = output[0] if isinstance(output, tuple) else output
            seen[key] = array(tensor.float().reshape(-1, tensor.shape[-1]))

        return pick

    def keep_router(i):
        def pick(output):
            logits, weights, choice = output
            seen[f"layers.{i}.router"] = array(logits.float())
            seen[f"layers.{i}.router_weight"] = array(weights.float())
            seen[f"layers.{i}.router_choice"] = array(choice).astype(np.int64)

        return pick

    hook(model.model.embed_tokens, keep("embedding"))
    for i, layer in enumerate(model.model.layers):
        hook(layer.self_attn, keep(f"layers.{i}.attention"))
        hook(layer.mlp.router, keep_router(i))
        hook(layer.mlp, keep(f"layers.{i}.moe"))
        hook(layer, keep(f"layers.{i}.layer"))
    hook(model.model.norm, keep("final_norm"))
    hook(model.lm_head, keep("logits"))
    try:
        model(torch.tensor([list(map(int, tokens))], device=model.device), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def rope_tables(model, positions):
    """inv_freq [d_head/2], attention scaling [1] and cos, sin [positions][d_head/2], in float32."""
    rotary = model.model.rotary_emb
    device = rotary.inv_freq.device
    ids = torch.tensor([[int(position) for position in positions]], device=device)
    cosine, sine = rotary(torch.zeros(1, dtype=torch.float32, device=device), ids)
    return {
        "rope.inv_freq": array(rotary.inv_freq.float()),
        "rope.attention_scaling": np.array([rotary.attention_scaling], dtype=np.float32),
        "rope.positions": np.array(positions, dtype=np.int32),
        "rope.cos": array(cosine[0]),
        "rope.sin": array(sine[0]),
    }


def versions():
    return {"torch": torch.__version__, "transformers": transformers.__version__}
