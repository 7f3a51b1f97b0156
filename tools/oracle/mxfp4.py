"""MXFP4 in torch, written from the format's definition and not from anybody's code, and a checksum that C repeats."""

import functools

import torch

CODE_VALUES = (0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6)
CHECKSUM_FACTOR = 0x100000001B3


def dequantize(blocks, scales):
    """blocks [..., groups, 16], scales [..., groups] -> float32 [..., 32*groups]; exact for scales 0 ... 252."""
    codes = torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2).int()
    values = torch.tensor(CODE_VALUES, dtype=torch.float64, device=blocks.device)[codes]
    factors = torch.ldexp(torch.ones_like(scales, dtype=torch.float64), scales.int() - 127)
    return (values * factors[..., None]).float().flatten(-2)


@functools.lru_cache(maxsize=4)
def powers(count, device):
    """factor^(count-1) ... factor^1, 1, modulo 2^64: int64 [count]."""
    factors = torch.full((count,), CHECKSUM_FACTOR, dtype=torch.int64, device=device)
    factors[0] = 1
    return torch.cumprod(factors, 0).flip(0)


def checksum(values):
    """hash = hash * factor + bits, over the float32 words of `values` in C order, modulo 2^64, as int64.

    The factor is odd, so that one wrong bit anywhere always shows.
    """
    words = values.float().contiguous().view(torch.int32).reshape(-1).long() & 0xFFFFFFFF
    return int(torch.sum(words * powers(words.numel(), words.device)))
