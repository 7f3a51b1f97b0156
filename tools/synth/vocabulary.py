"""A tokenizer.json for a checkpoint that has no language: bytes, pairs of bytes and triples of bytes, special ids.

The ordinary tokens are the 256 bytes, then what a byte appended to an earlier token gives, in order; every one has
exactly one merge. Special tokens have the published ids where the vocabulary reaches them, else they are the
last ids.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vocab"))

from make_tokenizer import N_ORDINARY, SPECIALS, byte_alphabet, layout  # noqa: E402

N_SPECIAL = max(SPECIALS) + 1
LEAST = 256 + N_SPECIAL  # tokens


def count_ordinary(n_vocab):
    return min(n_vocab - N_SPECIAL, N_ORDINARY)


def special(n_vocab, text):
    """The id of a special token."""
    return count_ordinary(n_vocab) + next(n for n, name in SPECIALS.items() if name == text)


def make(n_vocab):
    """tokenizer.json's object for a model of n_vocab >= LEAST logits; past the special tokens ids have no token."""
    n_ordinary = count_ordinary(n_vocab)
    letters = [byte_alphabet()[byte] for byte in range(256)]
    tokens, merges, parent = list(letters), [], 0
    while len(tokens) < n_ordinary:
        for letter in letters[: n_ordinary - len(tokens)]:
            merges.append([tokens[parent], letter])
            tokens.append(tokens[parent] + letter)
        parent += 1
    specials = [(n_ordinary + n, SPECIALS.get(n, f"<|reserved_{N_ORDINARY + n}|>")) for n in range(N_SPECIAL)]
    return layout({token: number for number, token in enumerate(tokens)}, merges, specials)
