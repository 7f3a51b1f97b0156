"""MXFP4 in numpy, written from the format's definition and not from anybody's code, and a checksum that C repeats."""

import numpy as np

CODE_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
CHECKSUM_FACTOR = 0x100000001B3


def dequantize(blocks, scales):
    """blocks [..., groups, 16], scales [..., groups] -> float32 [..., 32*groups]; exact for scales 0 ... 252."""
    codes = np.empty((*blocks.shape[:-1], 32), dtype=np.uint8)
    codes[..., 0::2] = blocks & 15
    codes[..., 1::2] = blocks >> 4
    factors = np.ldexp(np.float64(1), scales.astype(np.int32) - 127)
    with np.errstate(over="ignore"):
        values = (CODE_VALUES[codes] * factors[..., None]).astype(np.float32)
    return values.reshape(*blocks.shape[:-2], 32 * blocks.shape[-2])


def checksum(values):
    """hash = hash * factor + bits, over the float32 words of `values` in C order, modulo 2^64, as int64.

    The factor is odd, so that one wrong bit anywhere always shows.
    """
    words = np.ascontiguousarray(values, dtype=np.float32).reshape(-1).view(np.uint32).astype(np.uint64)
    powers = np.full(words.size, CHECKSUM_FACTOR, dtype=np.uint64)
    powers[0] = 1
    np.multiply.accumulate(powers, out=powers)
    return np.sum(words * powers[::-1], dtype=np.uint64).astype(np.int64)
