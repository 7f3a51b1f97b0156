"""Writes the seeds of fuzz_gguf (valid files, and malformed ones, one rule each) to a corpus folder.

    python tests/fuzz/make_gguf_corpus.py tests/fuzz/corpus
"""

import os
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SIZES = {U8: 1, I8: 1, U16: 2, I16: 2, U32: 4, I32: 4, F32: 4, BOOL: 1, U64: 8, I64: 8, F64: 8}


def string(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key, kind, raw):
    return string(key) + struct.pack("<I", kind) + raw


def u32(key, value):
    return entry(key, U32, struct.pack("<I", value))


def f32(key, value):
    return entry(key, F32, struct.pack("<f", value))


def text(key, value):
    return entry(key, STRING, string(value))


def array(key, kind, count, raw=b""):
    return entry(key, ARRAY, struct.pack("<IQ", kind, count) + raw)


def texts(key, values):
    return array(key, STRING, len(values), b"".join(string(value) for value in values))


def info(name, shape, kind, offset):
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(entries=(), infos=(), data=b"", version=3, n_entry=None, n_tensor=None, alignment=32):
    raw = b"GGUF" + struct.pack("<IQQ", version, len(infos) if n_tensor is None else n_tensor,
                                len(entries) if n_entry is None else n_entry)
    raw += b"".join(entries) + b"".join(infos)
    return raw + bytes(-len(raw) % alignment) + data


MODEL = [
    text("general.architecture", "gpt-oss"), u32("gpt-oss.block_count", 4), u32("gpt-oss.context_length", 4096),
    u32("gpt-oss.embedding_length", 64), u32("gpt-oss.attention.head_count", 8),
    u32("gpt-oss.attention.head_count_kv", 2), f32("gpt-oss.rope.freq_base", 150000.0),
    f32("gpt-oss.attention.layer_norm_rms_epsilon", 1e-5), u32("gpt-oss.expert_count", 8),
    u32("gpt-oss.expert_used_count", 2), u32("gpt-oss.attention.key_length", 16),
    u32("gpt-oss.attention.sliding_window", 16), u32("gpt-oss.expert_feed_forward_length", 96),
    text("gpt-oss.rope.scaling.type", "yarn"), f32("gpt-oss.rope.scaling.factor", 32.0),
    u32("gpt-oss.rope.scaling.original_context_length", 128),
]
PATTERN = "gpt-oss.attention.sliding_window_pattern"


def alphabet():
    """The characters that stand for the bytes 0 ... 255."""
    itself = [b for b in range(256) if 0x21 <= b <= 0x7E or (b >= 0xA1 and b != 0xAD)]
    others = [b for b in range(256) if b not in itself]
    return [chr(b) if b in itself else chr(0x100 + others.index(b)) for b in range(256)]


def vocabulary():
    tokens = alphabet() + ["ab", "<|call|>", "<x>", "[PAD]"]
    kinds = [1] * 257 + [3, 4, 5]
    return [text("tokenizer.ggml.model", "gpt2"), text("tokenizer.ggml.pre", "gpt-4o"),
            texts("tokenizer.ggml.tokens", tokens),
            array("tokenizer.ggml.token_type", I32, len(kinds), struct.pack(f"<{len(kinds)}i", *kinds)),
            texts("tokenizer.ggml.merges", ["a b"]), u32("tokenizer.ggml.eos_token_id", 257)]


def all_kinds():
    entries = [entry(f"one.{kind}", kind, b"\1" + bytes(size - 1)) for kind, size in SIZES.items()]
    entries += [array(f"two.{kind}", kind, 2, bytes(2 * size)) for kind, size in SIZES.items()]
    return entries + [text("text", "x"), texts("texts", ["a", "", b"b\0\xff"])]


TENSORS = [info("f32", [3], 0, 0), info("f16", [3, 2], 1, 32), info("empty", [3, 0, 5], 30, 64),
           info("q8_0", [32, 3], 8, 64), info("mxfp4", [64, 1, 2, 1], 39, 192), info("scalar", [], 0, 288)]

FILES = {
    "empty": b"",
    "magic": b"GGUF",
    "ggml": b"GGML" + bytes(20),
    "valid_nothing": gguf(),
    "valid_all_kinds": gguf(all_kinds()),
    "valid_tensors": gguf([], TENSORS, bytes(320)),
    "valid_unaligned": gguf([u32("general.alignment", 1)], [info("t", [3], 0, 0)], bytes(12), alignment=1),
    "valid_model": gguf(MODEL, [info("t", [32], 39, 0)], bytes(32)),
    "valid_version_2": gguf(MODEL, version=2),
    "valid_vocabulary": gguf(vocabulary()),
    "valid_pattern": gguf(MODEL + [array(PATTERN, BOOL, 4, b"\1\0\0\1")]),
    "version_1": gguf(version=1),
    "big_endian": gguf(version=0x03000000),
    "n_entry": gguf(n_entry=1 << 63),
    "n_tensor": gguf(n_tensor=(1 << 64) - 1),
    "array_count": gguf([array("a", U32, 1 << 62)]),
    "array_nested": gguf([array("a", ARRAY, 1, struct.pack("<IQ", U8, 0))]),
    "string_size": gguf([entry("a", STRING, struct.pack("<Q", (1 << 64) - 9))]),
    "value_type": gguf([entry("a", 13, b"")]),
    "bool_2": gguf([entry("a", BOOL, b"\2")]),
    "duplicate_key": gguf([u32("a", 1), u32("b", 1), u32("a", 2)]),
    "alignment_0": gguf([u32("general.alignment", 0)]),
    "alignment_3": gguf([u32("general.alignment", 3)]),
    "alignment_large": gguf([u32("general.alignment", 1 << 31)]),
    "alignment_type": gguf([text("general.alignment", "32")]),
    "duplicate_tensor": gguf([], [info("a", [1], 0, 0), info("a", [1], 0, 32)], bytes(64)),
    "rank_5": gguf([], [info("a", [1] * 5, 0, 0)], bytes(32)),
    "overflow": gguf([], [info("a", [1 << 32, 1 << 32], 0, 0)], bytes(32)),
    "overflow_bytes": gguf([], [info("a", [1 << 62], 0, 0)], bytes(32)),
    "type_q4_k": gguf([], [info("a", [256], 12, 0)], bytes(160)),
    "block": gguf([], [info("a", [31], 8, 0)], bytes(64)),
    "offset": gguf([], [info("a", [1], 0, 0), info("b", [1], 0, 4)], bytes(64)),
    "offset_large": gguf([], [info("a", [1], 0, (1 << 64) - 32)], bytes(64)),
    "past_the_end": gguf([], [info("a", [9], 0, 0)], bytes(32)),
    "trailing": gguf([], [info("a", [1], 0, 0)], bytes(33)),
    "heads": gguf([entry for entry in MODEL if b"head_count_kv" not in entry]
                  + [u32("gpt-oss.attention.head_count_kv", 3)]),
    "pattern": gguf(MODEL + [array(PATTERN, I64, 4, bytes(32)), u32("gpt-oss.vocab_size", 7)]),
    "merge": gguf(vocabulary()[:4] + [texts("tokenizer.ggml.merges", ["ab"])]),
}


def main():
    folder = os.path.join(sys.argv[1], "gguf")
    os.makedirs(folder, exist_ok=True)
    for name, data in FILES.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    main()
