#!/usr/bin/env python3
"""What cuda.sh saw, as one table and one JSON.

    cuda_table.py LOGS             the table of a run of cuda.sh, and LOGS/sitting.json; exit code 1: a figure misses its must
    cuda_table.py --gate FILE      the outcome of a campaign's file (gossamer bench --gate --json)
    cuda_table.py --rows FILE      the rows of gossamer bench --json
    cuda_table.py --peer FILE      the rows of llama-bench -o json

A figure whose section was not run is "not measured", and no miss: the section's own outcome says so.
"""
import json
import re
import sys
from pathlib import Path


class Missing(Exception):
    """What a section would have written is not there."""


class Logs:
    """The folder of a run."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.read_rate = None

    def text(self, name):
        try:
            return (self.folder / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            raise Missing(name) from None

    def json(self, name):
        try:
            return json.loads(self.text(name))
        except json.JSONDecodeError: # cut off while it was written
            raise Missing(name) from None

    def row(self, name, row, key):
        """A row's figure: its median where it has one."""
        for found in self.json(name)["rows"]:
            if found["name"] == row and found.get(key) is not None:
                value = found[key]
                return value["median"] if isinstance(value, dict) else value
        raise Missing(f"{name}: {row}")

    def pattern(self, name, pattern):
        found = re.search(pattern, self.text(name), re.MULTILINE)
        if not found:
            raise Missing(f"{name}: {pattern}")
        return float(found[1])

    def read(self):
        """GB/s that streaming kernels read."""
        return self.json("ceiling-20b.json")["read_gb_per_second"]

    def peer(self, name, prompt, generated, depth):
        for row in self.json(name):
            if (row["n_prompt"], row["n_gen"], row["n_depth"]) == (prompt, generated, depth):
                return row["avg_ts"]
        raise Missing(name)

    def batch(self, timelines):
        """llama-batched-bench's tokens a second of generation."""
        for line in self.text("peer-batches.jsonl").splitlines():
            row = json.loads(line) if line.startswith("{") else {}
            if row.get("pl") == timelines:
                return row["speed_tg"]
        raise Missing("peer-batches.jsonl")


def share_at(logs, depth):
    """Of bench_cuda's chain: a token's weights, and 2 x 8 x 64 bfloat16 in each of 24 layers for each token that it sees."""
    keys_values = 12 * 2048 * (depth + 128)
    rate = logs.row("speed-20b.json", f"decode at {depth}, chain of 128", "tokens_per_second")
    return 1e-7 * rate * (logs.json("ceiling-20b.json")["token_bytes"] + keys_values) / logs.read()


def prompt_rate(logs, n):
    return 1e3 * n / logs.row("speed-20b.json", f"prompt of {n}, first token after", "milliseconds")


def speed(name, row):
    return lambda logs: logs.row(name, row, "tokens_per_second")


def cosine_of(section):
    """bench_agree's mean over all positions."""
    return lambda logs: logs.pattern(f"{section}.log", r"^all +\d+ positions: .* mean ([\d.]+)")


CHAIN = "decode at 128, chain of 128"
# figure, unit, must, aim (None: nothing is asked; a minus: at most), how it is had
FIGURES = [
    ("20b native, one stream", "tokens/s", 650, 950, speed("speed-20b.json", CHAIN)),
    ("the same, logits on the host", "tokens/s", None, None,
     speed("speed-20b.json", "decode at 128, step by step with logits")),
    ("the same over llama.cpp", "x", 1.8, None,
     lambda logs: logs.row("speed-20b.json", CHAIN, "tokens_per_second") / logs.peer("peer-20b.json", 0, 128, 0)),
    ("20b q8, one stream", "tokens/s", 850, 1200, speed("speed-20b-q8.json", CHAIN)),
    ("120b native, one stream", "tokens/s", 450, 680, speed("speed-120b.json", CHAIN)),
    ("120b q8, one stream", "tokens/s", None, None, speed("speed-120b-q8.json", CHAIN)),
    ("four experts of a layer, cold", "% of read", 60, 85,
     lambda logs: logs.pattern("kernels-20b.log", r"^four experts, chained .* ([\d.]+) %")),
    ("20b native at 32,768, with keys and values", "% of read", 50, 75, lambda logs: share_at(logs, 32768)),
    ("20b native at 130,000, with keys and values", "% of read", 50, 75, lambda logs: share_at(logs, 130000)),
    ("20b, 8 timelines", "tokens/s", 2500, 3500, speed("speed-20b.json", "batch of 8, in all")),
    ("the same, tokens chosen on the device", "tokens/s", None, None,
     speed("speed-20b.json", "batch of 8, in all, tokens alone")),
    ("20b, 64 timelines", "tokens/s", 7000, 14000, speed("speed-20b.json", "batch of 64, in all")),
    ("the same, tokens chosen on the device", "tokens/s", None, None,
     speed("speed-20b.json", "batch of 64, in all, tokens alone")),
    ("20b, prompt of 2,048", "tokens/s", 25000, 60000, lambda logs: prompt_rate(logs, 2048)),
    ("20b, prompt of 8,192", "tokens/s", 25000, 60000, lambda logs: prompt_rate(logs, 8192)),
    ("first token of a prompt of 1,024", "ms", -60, -25,
     lambda logs: logs.row("speed-20b.json", "prompt of 1024, first token after", "milliseconds")),
    ("loading the 20b", "s", -4, -1.5, lambda logs: logs.row("speed-20b.json", "load", "seconds")),
    ("the same, share of the rate of pinned copies", "%", 60, None,
     lambda logs: 100.0 * logs.row("speed-20b.json", "load, of the file", "gb_per_second") /
     logs.row("speed-20b.json", "host to device, pinned", "gb_per_second")),
    ("cosine, exact: demo, single steps", "", 0.99999, None, cosine_of("demo-steps-exact")),
    ("cosine, exact: 20b, single steps", "", 0.99999, None, cosine_of("full-steps-exact")),
    ("cosine, fast: 20b, single steps", "", 0.99999, None, cosine_of("full-steps-fast")),
    ("cosine, fast: 20b, prompt", "", 0.9995, None, cosine_of("full-prompt-fast")),
    ("cosine, fast: demo, prompt", "", 0.9995, None, cosine_of("demo-prompt-fast")),
    ("cosine, fast: demo, single steps", "", 0.9995, None, cosine_of("demo-steps-fast")),
    ("llama.cpp: 20b, one stream", "tokens/s", None, None, lambda logs: logs.peer("peer-20b.json", 0, 128, 0)),
    ("llama.cpp: 20b at 32,768", "tokens/s", None, None, lambda logs: logs.peer("peer-20b.json", 0, 128, 32768)),
    ("llama.cpp: 20b, prompt of 2,048", "tokens/s", None, None, lambda logs: logs.peer("peer-20b.json", 2048, 0, 0)),
    ("llama.cpp: 20b, 8 timelines", "tokens/s", None, None, lambda logs: logs.batch(8)),
    ("llama.cpp: 20b, 64 timelines", "tokens/s", None, None, lambda logs: logs.batch(64)),
    ("llama.cpp: 120b, one stream", "tokens/s", None, None, lambda logs: logs.peer("peer-120b.json", 0, 128, 0)),
    ("llama.cpp: 120b at 32,768", "tokens/s", None, None, lambda logs: logs.peer("peer-120b.json", 0, 128, 32768)),
    ("llama.cpp: 120b, prompt of 2,048", "tokens/s", None, None, lambda logs: logs.peer("peer-120b.json", 2048, 0, 0)),
]


def outcome_of(seen, must, aim):
    def reaches(bar):
        return seen <= -bar if bar < 0 else seen >= bar

    if must is None:
        return ""
    if not reaches(must):
        return "MISSED"
    return "aim" if aim is not None and reaches(aim) else "must"


def number(value):
    if value is None:
        return "-"
    if 0 < abs(value) < 2 and value != round(value, 3):
        return f"{value:.7f}"
    return f"{abs(value):,.0f}" if abs(value) >= 100 else f"{abs(value):.4g}"


def bar(value):
    if value is None:
        return "-"
    return ("<= " if value < 0 else ">= ") + (f"{abs(value):,g}" if abs(value) >= 1 else f"{abs(value)}")


def print_table(folder):
    logs, rows, missed = Logs(folder), [], 0
    for name, unit, must, aim, find in FIGURES:
        try:
            seen = find(logs)
        except Missing as error:
            rows.append({"figure": name, "unit": unit, "must": must, "aim": aim, "seen": None,
                         "outcome": f"not measured ({error})"})
            continue
        rows.append({"figure": name, "unit": unit, "must": must, "aim": aim, "seen": seen,
                     "outcome": outcome_of(seen, must, aim)})
        missed += rows[-1]["outcome"] == "MISSED"
    sections = [line.split("\t") for line in logs.text("sections.tsv").splitlines()]
    gates = []
    for path in sorted(logs.folder.glob("cuda-*.json")):
        try:
            gate = logs.json(path.name)
            gates.append({"file": path.stem + ".txt",
                          **{key: gate[key] for key in ("predicted", "median", "min", "max", "outcome")}})
        except (Missing, KeyError):
            pass
    print("\n| figure | must | aim | seen | outcome |\n|---|---:|---:|---:|---|")
    for row in rows:
        shown = "-" if row["seen"] is None else f"{number(row['seen'])} {row['unit']}".strip()
        print(f"| {row['figure']} | {bar(row['must'])} | {bar(row['aim'])} | {shown} | {row['outcome']} |")
    print("\n| campaign's file | predicted | seen | outcome |\n|---|---:|---:|---|")
    for gate in gates:
        print(f"| {gate['file']} | {number(gate['predicted'])} | {number(gate['median'])} "
              f"({number(gate['min'])} to {number(gate['max'])}) | {gate['outcome']} |")
    passed = sum(outcome == "pass" for _, outcome, _ in sections)
    print(f"\n{passed} of {len(sections)} sections pass")
    for name, outcome, seconds in sections:
        if outcome != "pass":
            print(f"  {name}: {outcome}, {seconds} s")
    document = {"program": "cuda.sh", "figures": rows, "gates": gates,
                "sections": [{"name": name, "outcome": outcome, "seconds": float(seconds)}
                             for name, outcome, seconds in sections]}
    (logs.folder / "sitting.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if missed else 0


def main():
    if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        sys.exit(print_table(sys.argv[1]))
    if len(sys.argv) != 3 or sys.argv[1] not in ("--gate", "--rows", "--peer"):
        sys.exit(__doc__)
    document = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    if sys.argv[1] == "--gate":
        print(f"predicted {number(document['predicted'])}, seen {number(document['median'])} "
              f"({number(document['min'])} to {number(document['max'])}): {document['outcome']}")
    elif sys.argv[1] == "--rows":
        for row in document["rows"]:
            rate = row["tokens_per_second"]
            print(f"{row['name']:24} {rate['median']:10.1f} ({rate['min']:.1f} to {rate['max']:.1f}) tokens/s")
    else:
        for row in document:
            print(f"pp{row['n_prompt']} tg{row['n_gen']} @ {row['n_depth']}: {row['avg_ts']:.1f} +- {row['stddev_ts']:.1f}")


if __name__ == "__main__":
    main()
