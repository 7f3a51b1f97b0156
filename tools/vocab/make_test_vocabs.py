#!/usr/bin/env python3
"""Makes the small vocabularies of tests/data/text and their goldens, by Hugging Face `tokenizers`.

ranks.json      the first tokens of o200k: every split of a token is a merge, ids are ranks
trained.json    trained here: one merge a token, ids shuffled, merges as strings, merges honoured before whole
                pieces, added tokens that overlap, that are not special, and that the vocabulary lists too

*_golden.json   strings with their ids, as literal text and with added tokens cut out

Also the seeds of the fuzzer under tests/fuzz/corpus/tokenizer: a vocabulary of the 256 bytes, and texts.

usage: make_test_vocabs.py        from the repository's root
"""

import json
import os
import random

from make_tokenizer import make
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

N_RANKS = 600
N_TRAINED = 700

TRAINING = """It was the best of times, it was the worst of times; don't you think they'd've said so? The quick
brown fox jumps over the lazy dog, and over HTTPServer.getResponse(iPhone) { return count_of_items[i] == 0x1F; }
Größe, naïve café, élan vital, Straße. Пример текста на русском языке, чтобы было что объединять.
这是一个测试文本,世界你好。日本語のテキストもここにあります。 한국어 문장도 있습니다. नमस्ते दुनिया 👨‍👩‍👧 💖 12345 67890 3.14159
    for (size_t i = 0; i < size; i++)\n        total += values[i];\n\n\n"""

TEXTS = [
    "", " ", "a", "hello world", "The quick brown fox jumps over the lazy dog.", "it was the best of times",
    "I'M don't they'd've", "HTTPServer iPhoneXR getResponse", "1234567 3.14159", "    indented\n  two  three\n\n",
    "naïve café Straße GRÖSSE", "текст на русском", "这是一个测试文本,世界你好。", "日本語のテキスト", "नमस्ते दुनिया", "👨‍👩‍👧💖",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "a" * 300, "=" * 200, " " * 150 + "x", "ab" * 120,
    "the" * 90, "timestimestimes" * 15, "\u0000\u0001\u007f", "x<|end|>y", "<|start|>user<|message|>hi<|end|>",
    "<|end|><|end|> <|endo|><|en", "<|END|> <| end|>", "tool_call tool_call_end tool_", "of of-of ofof", "é é", "<|é|>",
]  # fmt: skip


def trained():
    tokenizer = Tokenizer(models.BPE())
    split = make(300)["pre_tokenizer"]
    layout = json.loads(tokenizer.to_str())
    layout["pre_tokenizer"] = split
    tokenizer = Tokenizer.from_str(json.dumps(layout))
    trainer = trainers.BpeTrainer(
        vocab_size=N_TRAINED,
        special_tokens=["<|end|>", "<|start|>", "<|é|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TRAINING], trainer)
    layout = json.loads(tokenizer.to_str())
    vocab = layout["model"]["vocab"]
    ids = list(range(len(vocab)))
    random.Random(1).shuffle(ids)
    layout["model"]["vocab"] = {token: ids[old] for token, old in vocab.items()}
    layout["model"]["merges"] = [" ".join(merge) for merge in layout["model"]["merges"]]
    layout["decoder"] = make(300)["decoder"]
    for token in layout["added_tokens"]:
        token["id"] = ids[token["id"]]
    listed = layout["model"]["vocab"]["es"]
    extra = [("<|message|>", True, False, None), ("<|endo|>", True, False, None), ("tool_call", False, False, None)]
    extra += [("<|end|><|end|>", True, False, None), ("tool_call_end", False, True, None)]
    extra += [("ofof", False, True, None), ("es", False, False, listed)]
    for content, special, normalized, number in extra:
        number = number if number is not None else max(max(ids), layout["added_tokens"][-1]["id"]) + 1
        token = {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False}
        layout["added_tokens"].append({**token, "normalized": normalized, "special": special})
    return layout


def goldens(layout):
    cut = Tokenizer.from_str(json.dumps(layout))
    # Without added tokens nothing is cut out, whatever their flags.
    literal = Tokenizer.from_str(json.dumps({**layout, "added_tokens": []}))
    return [
        {
            "utf8_hex": text.encode().hex(),
            "ids_literal": literal.encode(text, add_special_tokens=False).ids,
            "ids_special": cut.encode(text, add_special_tokens=False).ids,
        }
        for text in TEXTS
    ]


def write(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


def write_seeds(folder):
    smallest = make(260)
    smallest["added_tokens"] = smallest["added_tokens"][-2:]
    for key in ("version", "truncation", "padding", "post_processor"):
        del smallest[key]
    write(os.path.join(folder, "bytes.json"), smallest)
    mixed = "I'm <|end|> 中文，HTTPServer é\u0301 12345\n\t x".encode() + b"\xf0\x9f\x98 \xed\xa0\x80"
    for name, text in {"mixed": mixed, "run": b"a" * 200 + b" " * 200, "special": b"<|end|><|start|>tool_call_end"}.items():
        with open(os.path.join(folder, name + ".txt"), "wb") as file:
            file.write(text)


def main():
    folder = "tests/data/text"
    for name, layout in {"ranks": make(N_RANKS), "trained": trained()}.items():
        write(os.path.join(folder, f"{name}.json"), layout)
        write(os.path.join(folder, f"{name}_golden.json"), goldens(layout))
    write_seeds("tests/fuzz/corpus/tokenizer")


if __name__ == "__main__":
    main()
