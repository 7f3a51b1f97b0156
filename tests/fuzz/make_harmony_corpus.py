"""Writes the seeds of fuzz_harmony: outputs good and damaged, taken from the test of the parser.

    python tests/fuzz/make_harmony_corpus.py tests/chat/test_harmony_parse.c tests/fuzz/corpus/harmony
"""

import hashlib
import os
import re
import sys

STRING = r'"((?:[^"\\]|\\.)*)"'
MACROS = {"FINAL": "<|start|>assistant<|channel|>final<|message|>", "TOKYO": '{"location": "Tokyo"}'}


def inputs(source):
    """Every C string with a marker in it, neighbouring ones joined."""
    for match in re.finditer(rf"(?:(?:{STRING}|\b(?:FINAL|TOKYO)\b)\s*)+", source):
        parts = re.findall(rf"{STRING}|\b(FINAL|TOKYO)\b", match.group(0))
        text = "".join(MACROS[name] if name else text for text, name in parts)
        text = text.replace("\\n", "\n").replace('\\"', '"')
        if "<|" in text:
            yield text


def main():
    source, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    with open(source, encoding="utf-8") as file:
        texts = sorted(set(inputs(file.read())))
    raw = "<|channel|>final<|message|>" + "\x01\x30\x02\x01\x31\x02" + "a\x01\xff\x0f" + "<|return|>"
    for number, text in enumerate(texts + [raw]):
        data = bytes([number % 16 | (number % 7) << 4]) + text.encode("latin-1", "replace")
        name = hashlib.sha256(data).hexdigest()[:16]
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    main()
