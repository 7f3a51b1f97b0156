#!/usr/bin/env python3
"""Compares gossamer's tokenizer with Hugging Face `tokenizers` and with `tiktoken` on random strings.

Literal text is compared with both, text with special tokens with Hugging Face. Strings that are not UTF-8 go
to gossamer as they are and to the others with U+FFFD for each ill-formed part. `--unicode` compares every
code point instead, assigned or not, in the contexts "a" c "B", " " c "a" and c c among others.

usage: compare_tokenizers.py [--driver BIN] [--tokenizer FILE] [--unicode] [N [SEED]]
"""

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import time
import unicodedata

import tiktoken
import tokenizers

BATCH = 20000


# ---------------------------------------------------------------- the three tokenizers


class Gossamer:
    """The driver, run once a batch."""

    def __init__(self, driver, path):
        self.command = [driver, path]

    def encode(self, texts, special):
        request = b"".join(struct.pack("=BI", special, len(text)) + text for text in texts)
        replies = subprocess.run(self.command, input=request, stdout=subprocess.PIPE, check=True).stdout
        at = 0
        for _ in texts:
            count = struct.unpack_from("=I", replies, at)[0]
            yield list(struct.unpack_from(f"={count}i", replies, at + 4))
            at += 4 + 4 * count


def byte_of_character():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(0x100 + n): byte for n, byte in enumerate(others)}}


def make_tiktoken(path):
    """A tiktoken Encoding of the file's ordinary tokens; only right where ids are ranks, as in o200k."""
    with open(path, encoding="utf-8") as file:
        layout = json.load(file)
    alphabet = byte_of_character()
    ranks = {bytes(alphabet[c] for c in token): rank for token, rank in layout["model"]["vocab"].items()}
    pattern = layout["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    return tiktoken.Encoding("o200k", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


# ---------------------------------------------------------------- random strings


class Strings:
    def __init__(self, seed, specials):
        self.random = random.Random(seed)
        self.specials = specials
        self.by_category = {}
        for c in range(0x110000):
            if not 0xD800 <= c < 0xE000:
                self.by_category.setdefault(unicodedata.category(chr(c)), []).append(chr(c))
        del self.by_category["Co"][2000:]
        self.categories = sorted(self.by_category)
        self.kinds = [
            self.category_mix, self.category_mix, self.case_mix, self.words, self.code, self.spaces, self.contractions,
            self.emoji, self.marks, self.numbers, self.repeats, self.special_text, self.ill_formed, self.scripts, self.east_asian,
        ]  # fmt: skip

    def make(self):
        """bytes, perhaps not UTF-8"""
        text = self.random.choice(self.kinds)()
        if self.random.random() < 0.3:
            text += self.random.choice(["", " ", "\n", "'s"]).encode() + self.random.choice(self.kinds)()
        return text

    def many(self, choices, most):
        return [self.random.choice(choices) for _ in range(self.random.randint(0, most))]

    def category_mix(self):
        return "".join(self.random.choice(self.by_category[c]) for c in self.many(self.categories, 24)).encode()

    def case_mix(self):
        some = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Zs"]
        return "".join(self.random.choice(self.by_category[c]) for c in self.many(some, 16)).encode()

    def words(self):
        text = ["the", " quick", "Brown", " fox", ", ", ". ", "naïve", "HTTPServer", "iPhone", "ÀÉÎ", "straße", "élan", " of"]
        return "".join(self.many(text, 20)).encode()

    def code(self):
        text = ["    ", "\t", "if (", "x1", "_name", "==", "!=", "->", "();\n", "{\n", "}\r\n", "//", "/*", " */\n", "0xFF", "\\n", '"', "'", "#", "$a", "@b", "  "]
        return "".join(self.many(text, 30)).encode()

    def spaces(self):
        text = [" ", "  ", "\t", "\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\xa0", "\u2003", "\u2028", "\u2029", "\u3000", "\u200b", "\ufeff", "a", "1", "!", "/"]
        return "".join(self.many(text, 16)).encode()

    def contractions(self):
        heads = ["I", "we", "DON", "x", "1", " ", "é", "É", "\u0301", "中", "", "ǅ", "ʰ"]
        tails = ["'s", "'S", "'\u017f", "'t", "'T", "'re", "'Re", "'rE", "'VE", "'ll", "'lL", "'m", "'d", "'r", "'l", "'", "’s", "''s", "'\u212a", "'ß"]
        return "".join(self.random.choice(heads) + self.random.choice(tails) for _ in range(self.random.randint(1, 6))).encode()

    def emoji(self):
        text = ["👨", "👩", "👧", "\u200d", "\ufe0f", "🏽", "❤", "🇫", "🇷", "🏴", "\U000e0067", "\U000e007f", "☺", " ", "\u20e3", "1", "💖"]
        return "".join(self.many(text, 14)).encode()

    def marks(self):
        text = ["a", "A", " ", "!", "\u0301", "\u0308", "\u20dd", "\u093f", "\u0903", "न", "1", "\n", "\u200f", "\U000e0100", "'s"]
        return "".join(self.many(text, 14)).encode()

    def numbers(self):
        text = [*"0123456789", ".", ",", " ", "½", "²", "٣", "Ⅷ", "ⅷ", "१", "a", "\n"]
        return "".join(self.many(text, 24)).encode()

    def repeats(self):
        unit = self.random.choice(["a", "ab", " ", "=", "\n", "é", "中", "-", "0", "Aa", "💖", "zq"])
        return (unit * self.random.randint(1, 300)).encode()

    def special_text(self):
        text = [*self.specials, "<|end|", "<|END|>", "<| end|>", "<|", "|>", "<<|end|>>", "<|reserved_200500|>", "a", " "]
        return "".join(self.many(text, 8)).encode()

    def ill_formed(self):
        parts = [b"\x80", b"\xc0\xaf", b"\xe2\x82", b"\xf0\x9f\x98", b"\xf0\x9f", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff", b"a", b" ", "é".encode(), b"\xc3", "中".encode()]
        if self.random.random() < 0.5:
            return self.random.randbytes(self.random.randint(0, 30))
        return b"".join(self.many(parts, 10))

    def scripts(self):
        ranges = [(0x400, 0x4FF), (0x370, 0x3FF), (0x5D0, 0x5EA), (0x620, 0x64A), (0x904, 0x94D), (0xE01, 0xE4E), (0x3041, 0x30FE), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x10A0, 0x10FF), (0x1E00, 0x1FFF)]
        low, high = self.random.choice(ranges)
        return "".join(chr(self.random.randint(low, high)) if self.random.random() < 0.85 else " " for _ in range(self.random.randint(1, 40))).encode()

    def east_asian(self):
        wide = [(0x4E00, 0x9FFF)] * 4 + [(0x3000, 0x30FF), (0xAC00, 0xD7A3), (0xFF00, 0xFFEF), (0x3400, 0x4DBF), (0x20000, 0x20100)]
        text = ""
        for _ in range(self.random.randint(1, 30)):
            low, high = self.random.choice(wide) if self.random.random() < 0.5 else (0x4E00, 0x4F00)
            text += chr(self.random.randint(low, high))
            text += self.random.choice(["", "", "", "", "", "", " ", "a", "é", "ก", "ü", "の", "的", "是", "💖", "\u0301"])
        return text.encode()


def every_code_point():
    """One string a code point; its contexts are lines, so that each stands alone."""
    contexts = "\n".join(["a%sB", " %sa", "%s%s", "A%sb", "1%s2", "!%s", " %s", "\t%sA", "a'%s", "\u0301%sA"])
    for c in range(0x110000):
        if not 0xD800 <= c < 0xE000:
            yield contexts.replace("%s", chr(c)).encode()


# ---------------------------------------------------------------- comparing


class Comparison:
    def __init__(self, driver, path):
        self.gossamer = Gossamer(driver, path)
        self.hugging_face = tokenizers.Tokenizer.from_file(path)
        self.literal = tokenizers.Tokenizer.from_file(path)
        # With the split applied to the whole text, special tokens are text like any other.
        self.literal.encode_special_tokens = True
        self.tiktoken = make_tiktoken(path)
        self.counts = {"tokenizers": [0, 0], "tokenizers, special": [0, 0], "tiktoken": [0, 0]}
        self.shown = 0

    def record(self, name, raw, ours, theirs):
        self.counts[name][0] += 1
        if ours != theirs:
            self.counts[name][1] += 1
            self.shown += 1
            if self.shown <= 20:
                print(f"{name}: {raw!r}\n  gossamer {ours}\n  {name} {theirs}")

    def run(self, raws):
        texts = [raw.decode("utf-8", "replace") for raw in raws]
        ordinary = list(self.gossamer.encode(raws, 0))
        special = list(self.gossamer.encode(raws, 1))
        literal = self.literal.encode_batch_fast(texts, add_special_tokens=False)
        whole = self.hugging_face.encode_batch_fast(texts, add_special_tokens=False)
        for n, text in enumerate(texts):
            self.record("tokenizers", raws[n], ordinary[n], literal[n].ids)
            self.record("tokenizers, special", raws[n], special[n], whole[n].ids)
            self.record("tiktoken", raws[n], ordinary[n], self.tiktoken.encode_ordinary(text))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--driver", default="build/tests/text/tokenize_driver")
    parser.add_argument("--tokenizer", default="build/o200k/tokenizer.json")
    parser.add_argument("--unicode", action="store_true")
    parser.add_argument("n", nargs="?", type=int, default=20000)
    parser.add_argument("seed", nargs="?", type=int, default=1)
    options = parser.parse_args()
    if not os.path.exists(options.tokenizer):
        print(f"skipped: no {options.tokenizer} (make it with tools/vocab/make_tokenizer.py)")
        return
    start = time.time()
    comparison = Comparison(options.driver, options.tokenizer)
    if options.unicode:
        source = every_code_point()
    else:
        specials = [token.content for token in comparison.hugging_face.get_added_tokens_decoder().values()]
        strings = Strings(options.seed, specials)
        source = (strings.make() for _ in range(options.n))
    batch = []
    for raw in source:
        batch.append(raw)
        if len(batch) == BATCH:
            comparison.run(batch)
            batch = []
    comparison.run(batch)
    for name, (compared, different) in comparison.counts.items():
        print(f"{name}: {compared} strings compared, {different} differ")
    print(f"{time.time() - start:.1f} s")
    sys.exit(1 if any(different for _, different in comparison.counts.values()) else 0)


if __name__ == "__main__":
    main()
