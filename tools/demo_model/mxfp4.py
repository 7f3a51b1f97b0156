"""MXFP4 and bf16 rounding with straight-through gradients, and MXFP4's stored form.

transformers keeps expert weights as [expert, in, out]; a group is 32 consecutive values along `in`.
The checkpoint stores [expert, out, in/32, 16] bytes, two codes a byte, the even element in the low
nibble, and [expert, out, in/32] scale bytes s, value = FP4[code] * 2^(s - 127).
"""

import torch

GROUP = 32
STEPS = ((0.25, 0.5), (0.75, 0.5), (1.25, 0.5), (1.75, 0.5), (2.5, 1.0), (3.5, 1.0), (5.0, 2.0))
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def scale_bytes(grouped):
    """[..., groups, 32, out] -> s, [..., groups, 1, out]: floor(log2(max|x|)) - 2 + 127, kept normal."""
    largest = grouped.abs().amax(-2, keepdim=True)
    return (((largest.view(torch.int32) >> 23) & 255) - 2).clamp(1, 252)


def power_of_two(s):
    return (s << 23).view(torch.float32)


def round_mxfp4(w):
    """w rounded to MXFP4, float32 [expert, in, out]. The nearest code; the smaller one on ties; never -0."""
    e, n_in, n_out = w.shape
    grouped = w.reshape(e, n_in // GROUP, GROUP, n_out)
    scale = power_of_two(scale_bytes(grouped))
    size = (grouped / scale).abs()
    value = sum((size > edge) * step for edge, step in STEPS)
    return (torch.where(grouped < 0, -value, value) * scale).reshape(e, n_in, n_out) + 0.0


def straight_through(w, rounded):
    """The rounded value, exactly, with the gradient of w."""
    return rounded.detach() + (w - w.detach())


def is_expert_matrix(name):
    return name.endswith("experts.gate_up_proj") or name.endswith("experts.down_proj")


def as_stored(name, w):
    """The value that a checkpoint will hold for parameter `name`, in float32."""
    return round_mxfp4(w) if is_expert_matrix(name) else w.to(torch.bfloat16).float()


def pack(w):
    """Weights [expert, in, out] -> (blocks, scales), uint8. Rounding first changes nothing: the largest value of a
    group becomes 4 or 6 times the scale, which gives the same scale again."""
    e, n_in, n_out = w.shape
    grouped = w.float().reshape(e, n_in // GROUP, GROUP, n_out)
    s = scale_bytes(grouped)
    size = (grouped / power_of_two(s)).abs()
    codes = sum((size > edge).to(torch.uint8) for edge, _ in STEPS)
    codes = codes + 8 * ((grouped < 0) & (codes > 0)).to(torch.uint8)
    codes = codes.permute(0, 3, 1, 2)                             # [expert, out, groups, 32]
    blocks = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return blocks.contiguous(), s[:, :, 0].permute(0, 2, 1).to(torch.uint8).contiguous()


def unpack(blocks, scales):
    """(blocks, scales) -> float32 [expert, in, out]."""
    codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(-2)   # [expert, out, groups, 32]
    values = FP4.to(blocks.device)[codes.long()] * power_of_two(scales.int())[..., None]
    return values.flatten(-2).transpose(1, 2).contiguous() + 0.0
