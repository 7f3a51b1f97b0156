"""Goldens that cannot rot: make them anew with the transformers that is installed, and compare twice.

    python tools/oracle/check_live.py --gossamer build/gossamer      (make oracle)

First the committed goldens with the new ones, then gossamer with the new ones: these hold every row, not
only those that are committed, and in a second round other tokens than the committed ones. The tests'
binaries beside --gossamer do the second comparison. Exit status 1 if anything is beyond its bar.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from make_golden import DATA, DEMO, MODELS, golden_path, make, make_mxfp4, read, write
from tiny_models import SHAPES

TOLERANCE = 2e-5  # between two runs of transformers: other processors and versions sum in another order
ULP = 1.3e-7
OTHER_SEED = 1000


class Table:
    """Worst agreement of each kind of component."""

    def __init__(self):
        self.rows = {}
        self.failures = []

    def add(self, where, key, found, expected, tolerance):
        kind = key.split(".")[-1] if key.startswith("layers.") else key
        if found.shape != expected.shape or found.dtype != expected.dtype:
            self.failures.append(f"{where}: {key} is {found.dtype} {found.shape}, "
                                 f"not {expected.dtype} {expected.shape}")
            return
        if found.dtype != np.float32:
            cosine, error = None, float(np.mean(found != expected))
            tolerance = 0.0
        else:
            a, b = found.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
            cosine = float(a @ b / max(np.sqrt((a @ a) * (b @ b)), 1e-300))
            error = float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-300))
        worst = self.rows.get(kind, (cosine, 0.0))
        self.rows[kind] = (None if cosine is None else min(worst[0], cosine), max(worst[1], error))
        if not error <= tolerance:
            self.failures.append(f"{where}: {key} differs by {error:.2e}, more than {tolerance:.0e}")

    def print(self):
        print("committed goldens against live ones (without a cosine: the share that differs)")
        print(f"  {'component':20} {'worst cosine':>14} {'worst error':>12}")
        for kind, (cosine, error) in sorted(self.rows.items()):
            shown = "-" if cosine is None else f"{cosine:.9f}"
            print(f"  {kind:20} {shown:>14} {error:12.2e}")


def tolerance_of(key):
    # An angle at position 131071 moves by up to 0.008 if a frequency moves by its last bit.
    return {"rope.inv_freq": ULP, "rope.cos": 1e-2, "rope.sin": 1e-2}.get(key, TOLERANCE)


def compare_committed(table, name, golden, live):
    """`live` has every row, the committed golden a few."""
    rows, logit_rows = golden["rows"], golden["logit_rows"]
    if set(golden) != set(live):
        table.failures.append(f"{name}: other tensors: {sorted(set(golden) ^ set(live))[:5]}")
    for key in sorted(set(golden) & set(live) - {"rows", "logit_rows"}):
        found = live[key]
        if key == "logits":
            found = found[logit_rows]
        elif found.dtype == np.float32 and not key.startswith("rope."):
            found = found[rows]
        table.add(name, key, found, golden[key], tolerance_of(key))


def compare_mxfp4(table):
    golden, _ = read(DATA / "mxfp4.safetensors")
    live, _ = make_mxfp4()
    for key, expected in golden.items():
        table.add("mxfp4", key, live[key].view(np.uint32), expected.view(np.uint32), 0)


class GossamerTable:
    """Worst of the tables that test_golden prints: component, rows, cosine, error, wrong."""

    def __init__(self):
        self.rows = {}
        self.good = True

    def run(self, test, folder, golden):
        done = subprocess.run([test, folder, golden], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.good = False
            print(done.stdout + done.stderr)
        for line in done.stdout.splitlines():
            cells = line.split()
            if len(cells) == 5 and cells[4].isdigit():
                self.add(cells[0], int(cells[1]), cells[2], cells[3], int(cells[4]))
            elif "bit-exact" in line:
                print(line)

    def add(self, component, count, cosine, error, wrong):
        cosine, error = (1.0, 0.0) if cosine == "-" else (float(cosine), float(error))
        before = self.rows.get(component, (0, 1.0, 0.0, 0))
        self.rows[component] = (before[0] + count, min(before[1], cosine), max(before[2], error), before[3] + wrong)

    def print(self):
        print(f"gossamer against live goldens, every row\n  {'component':20} {'rows':>9} {'worst cosine':>14} "
              f"{'worst error':>12} {'wrong':>6}")
        for component, (count, cosine, error, wrong) in self.rows.items():
            print(f"  {component:20} {count:9} {cosine:14.9f} {error:12.2e} {wrong:6}")
        if not self.rows:
            self.good = False
            print("  nothing was compared")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gossamer", type=Path, default=Path("build/gossamer"))
    options = parser.parse_args()
    build = options.gossamer.parent
    tests = [build / "tests/golden" / name for name in ("test_golden", "test_golden_tables")]
    for test in tests:
        if not test.exists():
            raise SystemExit(f"{test} is missing: build it with make BUILD={build} {test}")

    table, gossamer = Table(), GossamerTable()
    compare_mxfp4(table)
    folders = [MODELS / shape.name for shape in SHAPES] + [DEMO] * (DEMO / "config.json").exists()
    with tempfile.TemporaryDirectory() as scratch:
        for folder in folders:
            committed, _ = read(golden_path(folder))
            live, metadata = make(folder, tokens=committed["tokens"], rows="all")
            compare_committed(table, folder.name, committed, live)
            write(Path(scratch) / f"{folder.name}.safetensors", live, metadata)
            for test in tests:
                gossamer.run(test, folder, Path(scratch) / f"{folder.name}.safetensors")
            other = Path(scratch) / f"{folder.name}-other-tokens.safetensors"
            write(other, *make(folder, torch.float32, seed=OTHER_SEED, rows="all"))
            gossamer.run(tests[0], folder, other)
    table.print()
    gossamer.print()
    for failure in table.failures:
        print(failure)
    good = gossamer.good and not table.failures
    print("oracle: all agree" if good else "oracle: DISAGREEMENT, see above")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
