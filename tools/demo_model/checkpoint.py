"""Writes a trained model in the published layout, and reads it back through transformers."""

import json
from pathlib import Path

import torch

from mxfp4 import is_expert_matrix, pack

SHARDS = 2


def stored_tensors(parameters):
    """{published name: tensor} from {name: float32 parameter}."""
    tensors = {}
    for name, p in parameters.items():
        p = p.detach().cpu().float()
        if is_expert_matrix(name):
            tensors[name + "_blocks"], tensors[name + "_scales"] = pack(p)
        else:
            tensors[name] = p.to(torch.bfloat16).contiguous()
    return dict(sorted(tensors.items()))


def size_of(tensor):
    return tensor.numel() * tensor.element_size()


def save(parameters, config, specials, out):
    """Weights in two shards of about equal size (the cut goes through a layer), index, both configs."""
    from safetensors.torch import save_file
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    tensors = stored_tensors(parameters)
    total, written, shards, weight_map = sum(map(size_of, tensors.values())), 0, [{} for _ in range(SHARDS)], {}
    for name, tensor in tensors.items():
        number = min(SHARDS - 1, written * SHARDS // total)
        shards[number][name] = tensor
        weight_map[name] = f"model-{number:05}-of-{SHARDS - 1:05}.safetensors"
        written += size_of(tensor)
    for number, shard in enumerate(shards):
        save_file(shard, out / f"model-{number:05}-of-{SHARDS - 1:05}.safetensors")
    write_json(out / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})
    write_json(out / "config.json", config)
    write_json(out / "generation_config.json", {
        "bos_token_id": specials["<|startoftext|>"], "do_sample": True,
        "eos_token_id": [specials["<|return|>"], specials["<|endoftext|>"], specials["<|call|>"]],
        "pad_token_id": specials["<|endoftext|>"], "transformers_version": "4.55.0.dev0"})


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def load(directory, device="cpu", layer_types=None):
    """The checkpoint through transformers: experts dequantised, eager attention, float32."""
    from transformers import AutoConfig, GptOssForCausalLM, Mxfp4Config
    config = AutoConfig.from_pretrained(directory)
    if layer_types:
        config.layer_types = layer_types
    model = GptOssForCausalLM.from_pretrained(
        directory, config=config, quantization_config=Mxfp4Config(dequantize=True),
        dtype=torch.bfloat16, attn_implementation="eager")
    return model.float().to(device).eval()


def assert_same(directory, parameters):
    """Every parameter that transformers loads equals, bit for bit, the rounded one that was trained."""
    from mxfp4 import as_stored
    loaded = dict(load(directory).named_parameters())
    assert loaded.keys() == parameters.keys()
    for name, p in parameters.items():
        trained = as_stored(name, p.detach().cpu().float()) + 0.0
        assert torch.equal((loaded[name].detach() + 0.0).view(torch.int32), trained.view(torch.int32)), name
    print(f"{directory}: transformers loads exactly what was trained ({len(loaded)} tensors)", flush=True)
