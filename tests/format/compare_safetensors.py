"""Compares src/format/safetensors.c with the official safetensors library on generated files.

    python tests/format/compare_safetensors.py build/tests/format/safetensors_driver [files] [seed]

Both must accept the same files and find the same tensors in them. Where gossamer refuses what the library
accepts, its message must be one of the stricter rules of docs/formats.md, listed here; the other way round
there is no exception.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter

import safetensors

BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
        "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
        "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64}

STRICTER = {
    "duplicate key": "duplicate keys",
    "unknown key": "unknown keys in an entry",
    "must begin with '{'": "blanks before the header",
    "bad entry: an array": "an entry as an array",
    "bad dtype: an object": "a dtype as an object",
    "bad value: null": "__metadata__ null",
    "must not hold a NUL": "NUL in a name",
    "a string of over 65536 bytes": "strings of more than 64 KiB",
}

NUMBERS = ["-1", "-0", "0.0", "1.0", "1e0", "1E2", "true", "null", '"1"', "[]", "{}", "18446744073709551615",
           "18446744073709551616", "9223372036854775808", "4398046511105", "01", "+1", ".5", "1e400", "0"]
TOKENS = ["{", "}", "[", "]", ",", ":", '"', " ", "\\", "\\u0000", "\\ud800", "\\u00e9", "é", "模", "null",
          "true", "-", "0", "1", "e", ".", '"a"', '"dtype"', '"shape"', '"data_offsets"', '"__metadata__"',
          '"__metadata__":null,', '"a":["U8",[0],[0,0]],', '"x":1,', "\t", "\n", "\r", "\f", "\0", "\x7f",
          "\ufeff", "[[[[[[[[[", '{"U8":null}']


class Entry:
    def __init__(self, rng, number, begin):
        self.name = f"{number}" + rng.choice(["", ".weight", "é", "模型", 'a"b\\', "\u001b", " ", "x" * 300])
        while True:
            self.dtype = rng.choice(list(BITS))
            self.shape = [rng.choice([0, 1, 2, 3, 4, 8, 16]) for _ in range(rng.randrange(5))]
            n = 1
            for d in self.shape:
                n *= d
            # Now and then a tensor that ends within a byte, with the offsets of its whole bytes.
            whole = n * BITS[self.dtype] % 8 == 0 or rng.random() < 0.03
            if whole and n < 5000:
                break
        self.offsets = [begin, begin + n * BITS[self.dtype] // 8]

    def text(self, rng):
        parts = [f'"dtype":{json.dumps(self.dtype)}', f'"shape":{json.dumps(self.shape)}',
                 f'"data_offsets":{json.dumps(self.offsets)}']
        rng.shuffle(parts)
        return json.dumps(self.name, ensure_ascii=rng.random() < 0.5) + ":{" + ",".join(parts) + "}"


def violate(rng, entries):
    """Breaks one number of one entry, by a little or by much."""
    entry = rng.choice(entries)
    which = rng.randrange(4)
    delta = rng.choice([-8, -4, -1, 1, 4, 8, 2**32, 2**63])
    if which == 0 and entry.shape:
        entry.shape[rng.randrange(len(entry.shape))] += delta
    elif which == 1:
        entry.offsets[rng.randrange(2)] += delta
    elif which == 2:
        entry.offsets.reverse()
    else:
        entry.offsets = [entry.offsets[0] + delta, entry.offsets[1] + delta]


def generate(rng):
    entries, begin = [], 0
    for number in range(rng.randrange(6)):
        entries.append(Entry(rng, number, begin))
        begin = entries[-1].offsets[1]
    size = begin
    kind = rng.randrange(14)  # 9 and more: as it is
    if kind == 0:
        size = max(0, size + rng.choice([-8, -1, 1, 8]))
    elif kind == 1 and entries:
        violate(rng, entries)
    texts = [entry.text(rng) for entry in entries]
    if kind == 2 and texts:
        texts.append(rng.choice(texts))
    if rng.random() < 0.3:
        texts.append('"__metadata__":' + rng.choice(['{}', '{"format":"pt"}', '{"a":"b","é":"\\ud83d\\ude00"}']))
    rng.shuffle(texts)
    header = "{" + ",".join(texts) + "}" + " " * rng.choice([0, 0, 1, 7])
    if kind in (3, 4):
        for _ in range(rng.choice([1, 1, 2])):
            at = rng.randrange(len(header) + 1)
            cut = rng.choice([0, 0, 1, 2])
            header = header[:at] + rng.choice(TOKENS) + header[at + cut:]
    elif kind == 5:
        digits = [i for i, c in enumerate(header) if c.isdigit()]
        if digits:
            at = rng.choice(digits)
            header = header[:at] + rng.choice(NUMBERS) + header[at + 1:]
    data = header.encode()
    if kind == 6:
        data = bytearray(data)
        for _ in range(rng.choice([1, 1, 2])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data = bytes(data)
    length = len(data)
    if kind == 7:
        length = rng.choice([0, 1, length - 1, length + 1, length + size, 2**64 - 1, 100_000_001, 2**63])
    file = length.to_bytes(8, "little") + data + rng.randbytes(size)
    if kind == 8:
        file = file[:rng.randrange(len(file) + 1)]
    return file


def fixed():
    """Cases whose outcome is a rule of its own: sizes at their bounds, long strings, every stricter rule."""
    def file(header, size=0):
        header = header.encode()
        return len(header).to_bytes(8, "little") + header + bytes(size)
    entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    for n in (65536, 65537):
        yield file('{"' + "n" * n + '":' + entry + "}")
    for shape in ("[0,18446744073709551615]", "[18446744073709551615,0]", "[18446744073709551615,2,0]",
                  "[0,18446744073709551615,2]", "[18446744073709551615]", "[2305843009213693952,8]"):
        yield file('{"a":' + entry.replace("[0]", shape) + "}")
    for header in ('{}', ' {}', '[]', 'null', '{"a":["U8",[0],[0,0]]}', '{"__metadata__":null}',
                   '{"a":' + entry + ',"a":' + entry + '}', '{"a":' + entry.replace("{", '{"x":[[1]],') + '}',
                   '{"a\\u0000":' + entry + '}', '{"__metadata__":{"a":"b","a":"b"}}',
                   '{"a":' + entry.replace('"U8"', '{"U8":null}') + '}', '{"__metadata__":{"a\\u0000":"\\u0000"}}',
                   '{"__metadata__":{},"__metadata__":{}}', '{"a":' + entry.replace("{", '{"dtype":"U8",') + '}'):
        yield file(header)
    yield b""
    yield bytes(8)


def official(file):
    """A sorted list of (name, dtype, shape, data), or None where the library refuses."""
    try:
        found = safetensors.deserialize(file)
    except safetensors.SafetensorError:
        return None
    return sorted((name, t["dtype"], list(t["shape"]), bytes(t["data"])) for name, t in found)


def ours(line, file):
    """The same from a line of the driver, or the message where it is an error."""
    if line.startswith("ERR "):
        return line[4:]
    tensors = []
    for item in line.split("\t")[1:]:
        name, dtype, shape, begin, size = item.split(" ")
        begin, size = int(begin), int(size)
        tensors.append((bytes.fromhex(name).decode(), dtype, json.loads(shape), file[begin:begin + size]))
    return sorted(tensors)


def main():
    driver = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    files = list(fixed()) + [generate(rng) for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, file in enumerate(files):
            paths.append(os.path.join(folder, str(i)))
            with open(paths[-1], "wb") as out:
                out.write(file)
        result = subprocess.run([driver], input="\n".join(paths) + "\n", capture_output=True, text=True, check=True)
    lines = result.stdout.rstrip("\n").split("\n")
    assert len(lines) == len(files), (len(lines), len(files))
    tally, stricter, differ = Counter(), Counter(), 0
    for file, line in zip(files, lines):
        theirs, mine = official(file), ours(line, file)
        refused = isinstance(mine, str)
        if theirs is None and refused:
            tally["refused by both"] += 1
        elif theirs is not None and mine == theirs:
            tally["loaded by both, same tensors"] += 1
        else:
            rule = next((name for part, name in STRICTER.items() if refused and part in mine), None)
            if theirs is not None and rule:
                stricter[rule] += 1
            else:
                differ += 1
                print(f"DIFFERENT: {file[:400]!r}\n  ours: {mine}\n  theirs: {str(theirs)[:400]}", file=sys.stderr)
    print(f"{len(files)} files with safetensors {safetensors.__version__}: {dict(tally)}")
    print(f"stricter by rule: {dict(stricter)}; different: {differ}")
    missing = set(STRICTER.values()) - set(stricter)
    if missing:
        print(f"never met: {sorted(missing)}", file=sys.stderr)
    return 1 if differ or missing else 0


if __name__ == "__main__":
    sys.exit(main())
