#!/usr/bin/env python3
"""Makes gpt-oss's tokenizer.json from the o200k ranks in the Python package `bpe-openai`.

The result is the published file, byte for byte, and is checked to be. `--tokens N` keeps only the first N
ranks, which gives a small vocabulary of the same kind (and no check).

usage: make_tokenizer.py [--tokens N] [OUTPUT]        OUTPUT defaults to build/o200k/tokenizer.json
"""

import argparse
import base64
import gzip
import hashlib
import importlib.resources
import json
import os
import sys

RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
PUBLISHED_SHA256 = "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3"

WORD = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}]%s(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
)
PATTERN = "|".join(
    [
        WORD % ("*", "+"),
        WORD % ("+", "*"),
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

N_ORDINARY = 199998
SPECIALS = {
    0: "<|startoftext|>",
    1: "<|endoftext|>",
    4: "<|return|>",
    5: "<|constrain|>",
    7: "<|channel|>",
    8: "<|start|>",
    9: "<|end|>",
    10: "<|message|>",
    14: "<|call|>",
    20: "<|endofprompt|>",
}


def read_ranks():
    """The o200k ranks: token bytes -> rank, in the order of the ranks."""
    packed = importlib.resources.files("bpe_openai").joinpath("data/o200k_base.tiktoken.gz").read_bytes()
    text = gzip.decompress(packed)
    found = hashlib.sha256(text).hexdigest()
    if found != RANKS_SHA256:
        sys.exit(f"o200k_base.tiktoken.gz: sha256 of the ranks is {found}, expected {RANKS_SHA256}")
    ranks = {}
    for line in text.splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    assert list(ranks.values()) == list(range(N_ORDINARY))
    return ranks


def byte_alphabet():
    """The code point that stands for each byte in tokenizer.json."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {byte: chr(byte) for byte in printable}
    alphabet.update({byte: chr(0x100 + n) for n, byte in enumerate(others)})
    return alphabet


def merges_of(ranks):
    """Every split of every token into two tokens: by the token's rank, then by those of the two parts."""
    merges = []
    for token in ranks:
        splits = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        splits = [(left, right) for left, right in splits if left in ranks and right in ranks]
        merges += sorted(splits, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return merges


def layout(vocab, merges, specials):
    """The object that tokenizer.json holds, keys in the published order."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    added = [
        {
            "id": number,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for number, content in specials
    ]
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": {**byte_level, "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        "decoder": {**byte_level, "add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": vocab,
            "merges": merges,
        },
    }


def make(n_tokens=N_ORDINARY):
    """tokenizer.json's object from the first n_tokens ranks; special ids follow them."""
    ranks = {token: rank for token, rank in read_ranks().items() if rank < n_tokens}
    alphabet = byte_alphabet()
    spell = {token: "".join(alphabet[byte] for byte in token) for token in ranks}
    vocab = {spell[token]: rank for token, rank in ranks.items()}
    merges = [[spell[left], spell[right]] for left, right in merges_of(ranks)]
    specials = [
        (n_tokens + n, SPECIALS.get(n, f"<|reserved_{N_ORDINARY + n}|>")) for n in range(max(SPECIALS) + 1)
    ]
    return layout(vocab, merges, specials)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tokens", type=int, default=N_ORDINARY)
    parser.add_argument("output", nargs="?", default="build/o200k/tokenizer.json")
    options = parser.parse_args()

    data = json.dumps(make(options.tokens), indent=2, ensure_ascii=False).encode()
    os.makedirs(os.path.dirname(options.output) or ".", exist_ok=True)
    with open(options.output + ".part", "wb") as file:
        file.write(data)
    os.replace(options.output + ".part", options.output)
    digest = hashlib.sha256(data).hexdigest()
    print(f"{options.output}: {len(data)} bytes, sha256 {digest}")
    if options.tokens == N_ORDINARY and digest != PUBLISHED_SHA256:
        sys.exit(f"this is not the published file (sha256 {PUBLISHED_SHA256})")


if __name__ == "__main__":
    main()
