"""Cut a small tokenizer for the demo model out of the o200k vocabulary.

The result has the form of the published gpt-oss tokenizer.json: the same split pattern, byte
mapping, special tokens and merge order, with about four thousand ordinary tokens instead of
two hundred thousand. It consists of the first KEEP_RANKS ranks of o200k, a few words that the
model or its users rely on being one token (EXTRA_WORDS), and whatever intermediate tokens those
words are merged from. Ids are given densely in rank order, so id order is still merge order.

    python make_tokenizer.py OUT_DIR
"""

import argparse
import base64
import gzip
import hashlib
import json
import random
from pathlib import Path

KEEP_RANKS = 4096
O200K_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"

# One token each, as in the published vocabulary: the words of harmony headers, the answer to the
# model's best known question, and two-digit numbers (without them arithmetic sees 17 and 1,8).
EXTRA_WORDS = (
    [" Paris", "system", "developer", "user", "assistant", "analysis", "final", "functions", "json", " json"]
    + [str(n) for n in range(10, 100)]
)

SPECIALS = (
    ["<|startoftext|>", "<|endoftext|>", "<|reserved_200000|>", "<|reserved_200001|>", "<|return|>",
     "<|constrain|>", "<|reserved_200004|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>"]
    + [f"<|reserved_{n}|>" for n in (200009, 200010, 200011)]
    + ["<|call|>"]
    + [f"<|reserved_{n}|>" for n in range(200013, 200018)]
    + ["<|endofprompt|>"]
)

SPLIT_PATTERN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
])


def load_o200k(path=None):
    """The o200k ranks, bytes -> rank, from a .tiktoken file (or the copy in the package bpe-openai)."""
    if path is None:
        import bpe_openai
        path = Path(bpe_openai.__file__).parent / "data" / "o200k_base.tiktoken.gz"
    raw = Path(path).read_bytes()
    if str(path).endswith(".gz"):
        raw = gzip.decompress(raw)
    digest = hashlib.sha256(raw).hexdigest()
    if digest != O200K_SHA256:
        raise SystemExit(f"{path}: sha256 {digest}, expected {O200K_SHA256}")
    lines = (line.split() for line in raw.splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def merge_steps(word, ranks):
    """Rank BPE on `word`: the final pieces, and every token made on the way."""
    pieces, made = [bytes([b]) for b in word], []
    while True:
        pairs = [(ranks.get(pieces[i] + pieces[i + 1]), i) for i in range(len(pieces) - 1)]
        pairs = [p for p in pairs if p[0] is not None]
        if not pairs:
            return pieces, made
        _, i = min(pairs)
        pieces[i:i + 2] = [pieces[i] + pieces[i + 1]]
        made.append(pieces[i])


def choose_tokens(ranks):
    """Tokens in rank order: the prefix, the extra words and the tokens those are merged from."""
    kept = {token for token, rank in ranks.items() if rank < KEEP_RANKS}
    for word in EXTRA_WORDS:
        pieces, made = merge_steps(word.encode(), ranks)
        assert pieces == [word.encode()], word
        kept.update(made)
    tokens = sorted(kept, key=ranks.get)
    assert all(bytes([b]) in kept for b in range(256))
    small = {token: i for i, token in enumerate(tokens)}
    unreachable = [t for t in tokens if merge_steps(t, small)[0] != [t]]
    assert not unreachable, unreachable
    return small


def byte_to_unicode():
    """GPT-2's mapping of bytes to printable characters, as tokenizer.json uses it."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, spare = {b: chr(b) for b in printable}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(0x100 + spare)
            spare += 1
    return table


def all_merges(small):
    """Every split of every token into two tokens, by resulting id, then (left id, right id)."""
    merges = []
    for token in small:
        splits = [(token[:i], token[i:]) for i in range(1, len(token))]
        splits = [s for s in splits if s[0] in small and s[1] in small]
        merges += sorted(splits, key=lambda s: (small[s[0]], small[s[1]]))
    return merges


def build(small):
    """The tokenizer.json object."""
    table = byte_to_unicode()
    text = lambda token: "".join(table[b] for b in token)
    special = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": len(small) + i, "content": s, **special} for i, s in enumerate(SPECIALS)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": SPLIT_PATTERN}, "behavior": "Isolated", "invert": False},
            byte_level]},
        "post_processor": {**byte_level, "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        "decoder": {**byte_level, "add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
            "vocab": {text(token): i for token, i in small.items()},
            "merges": [[text(a), text(b)] for a, b in all_merges(small)]},
    }


def check(path, small):
    """Loads in `tokenizers`, and encodes like rank BPE does, on words and on random bytes of text."""
    import regex
    from tokenizers import Tokenizer
    tokenizer, split = Tokenizer.from_file(str(path)), regex.compile(SPLIT_PATTERN)
    rng = random.Random(0)
    alphabet = "abcdefghij ABC  éßñ日本語\n\t'.,0123456789{}\"_=/-🙂"
    samples = ["The capital of France is Paris.", "hello world", "a" * 300, " to=functions.get_weather"]
    samples += ["".join(rng.choice(alphabet) for _ in range(rng.randrange(80))) for _ in range(2000)]
    names = [t for t in (t.decode("utf-8", "ignore") for t in small) if t]
    samples += ["".join(rng.choices(names, k=8)) for _ in range(2000)]
    for s in samples:
        expected = [small[p] for piece in split.findall(s) for p in merge_steps(piece.encode(), small)[0]]
        assert tokenizer.encode(s, add_special_tokens=False).ids == expected, s
        assert tokenizer.decode(expected, skip_special_tokens=False) == s
    for word in EXTRA_WORDS:
        assert len(tokenizer.encode(word, add_special_tokens=False).ids) == 1, word
    for i, s in enumerate(SPECIALS):
        assert tokenizer.token_to_id(s) == len(small) + i


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--o200k", type=Path, help="o200k_base.tiktoken[.gz]; default: the package bpe-openai's")
    args = parser.parse_args()
    small = choose_tokens(load_o200k(args.o200k))
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "tokenizer.json"
    path.write_text(json.dumps(build(small), indent=2, ensure_ascii=False), encoding="utf-8")
    config = {
        "added_tokens_decoder": {
            str(len(small) + i): {"content": s, "lstrip": False, "normalized": False, "rstrip": False,
                                  "single_word": False, "special": True} for i, s in enumerate(SPECIALS)},
        "bos_token": "<|startoftext|>", "clean_up_tokenization_spaces": False, "eos_token": "<|return|>",
        "extra_special_tokens": {}, "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 1000000000000000019884624838656, "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (args.out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    check(path, small)
    print(f"{path}: {len(small)} ordinary tokens, {len(all_merges(small))} merges, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
