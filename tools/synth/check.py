#!/usr/bin/env python3
"""Checks what make_checkpoint.py and make_gguf.py write.

    python tools/synth/check.py --gossamer build/gossamer      (make oracle)

The plans of the full shapes are those of the published files; one small model in its three forms (Hugging Face,
original, GGUF) gives the same tokens; equal seeds give equal bytes. Exit status 1 if anything differs.
"""

import argparse
import filecmp
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PUBLISHED = {
    "20b": {
        "model.safetensors.index.json": (36355, "0e085b977c4c9942f85938828e8c989ed7d5cdabf852e4da6a67c116cd502cd1"),
        "generation_config.json": (177, "f9970ada892d2d1f72e3ed0a6535ccebadd11897318794ca671d8c7014c957da"),
        "model-00000-of-00002.safetensors": (4792272488, None),
        "model-00001-of-00002.safetensors": (4798702184, None),
        "model-00002-of-00002.safetensors": (4170342232, None),
    },
    "120b": {
        "model.safetensors.index.json": (54511, "ede2655fdc05008561983b6e0829c600727c28d591e071077377059f03a6c00e"),
        "generation_config.json": (177, "f9970ada892d2d1f72e3ed0a6535ccebadd11897318794ca671d8c7014c957da"),
    },
}
SMALL = "--layers 3 --experts 8 --hidden 64 --intermediate 96 --heads 4 --kv-heads 2 --head-dim 16 --vocab 700 --window 8"


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stderr.decode()}")
    return done.stdout.decode(errors="replace")


def make(out, *options):
    return run(sys.executable, HERE / "make_checkpoint.py", out, *options)


def check_plans():
    wrong = []
    for scale, files in PUBLISHED.items():
        text = make("nowhere", "--scale", scale, "--plan")
        for name, (size, digest) in files.items():
            line = re.search(rf"^{re.escape(name)}: (\d+) bytes(?:, sha256 (\w+))?", text, re.MULTILINE)
            if not line or int(line[1]) != size or (digest and line[2] != digest):
                wrong.append(f"{scale} {name}: {line[0] if line else 'missing'}, published {size} bytes {digest or ''}")
    return wrong


def check_forms(gossamer, folder):
    forms = {"hf": folder / "hf", "original": folder / "hf" / "original", "gguf": folder / "model.gguf"}
    make(forms["hf"], *SMALL.split())
    make(forms["original"], *SMALL.split(), "--layout", "original")
    run(sys.executable, HERE / "make_gguf.py", forms["hf"], forms["gguf"], "--dense", "bf16")
    make(folder / "again", *SMALL.split())
    make(folder / "other", *SMALL.split(), "--seed", "1")

    def answer(path):
        return run(gossamer, "run", path, "--raw", "-p", "The five boxing wizards", "-n", 24, "--temp", 0,
                   "--precision", "exact")

    wrong = [f"{name}: {answer(path)!r}, hf {answer(forms['hf'])!r}" for name, path in forms.items()
             if answer(path) != answer(forms["hf"])]
    weights = sorted(path.name for path in forms["hf"].glob("*.safetensors"))
    if filecmp.cmpfiles(forms["hf"], folder / "again", weights, shallow=False)[0] != weights:
        wrong.append("the same seed gives other bytes")
    make(folder / "shared", *SMALL.split(), "--jobs", "2")
    run(sys.executable, HERE / "make_gguf.py", forms["hf"], folder / "shared.gguf", "--dense", "bf16", "--jobs", "2")
    if filecmp.cmpfiles(forms["hf"], folder / "shared", weights, shallow=False)[0] != weights:
        wrong.append("several processes write another checkpoint than one")
    if not filecmp.cmp(forms["gguf"], folder / "shared.gguf", shallow=False):
        wrong.append("several processes write another GGUF than one")
    if filecmp.cmpfiles(forms["hf"], folder / "other", weights, shallow=False)[0]:
        wrong.append("another seed gives the same bytes")
    run(gossamer, "verify", forms["hf"])
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gossamer", default="build/gossamer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = check_plans() + check_forms(options.gossamer, Path(folder))
    for line in wrong:
        print(line)
    print("synthetic checkpoints: " + ("; ".join(wrong) and f"{len(wrong)} faults" or
                                      "plans as published, three forms agree, seeds decide"))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
