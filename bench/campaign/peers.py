#!/usr/bin/env python3
"""Decode on the CPU against another engine's llama-bench: the same weights, in turn, in one sitting.

    peers.py BUILD MODEL GGUF NAME=LLAMA_BENCH[,OPTION...] ... [--weights q8] [--rounds 3] [--tokens 16] [--runs 32]
             [--threads 2] [--begin near|far] [--json FILE]

BUILD is where make put gossamer and bench/bench_cores; GGUF holds MODEL's weights (tools/synth/make_gguf.py; "-": none).
While an engine runs, bench_cores is asked every half second how far the processors are from each other: on a
virtual machine that changes, and the memory's bandwidth with it. A run counts as "near" (a shared cache: under 60 ns)
or "far" (over 90 ns) where all answers during it agree, else as "mixed". Prints the median, least and most of each
engine in each state, and the ratio to the best other engine. NAME=gossamer,OPTION... is gossamer once more with
further options (deep=gossamer,-d,16384). --begin: a turn waits, two minutes at most, until it has been in that state
for three seconds, so that engines are more often seen in the same one. Files are dropped from the page cache before each turn: gossamer then maps
them in large pages, and an engine that copies them reads them as it does at its first start.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

NEAR, FAR = 60.0, 90.0 # ns
STATES = ("near", "far", "mixed")


class States:
    """Asks for the distance of the processors, in the background."""

    def __init__(self, program):
        self.program, self.answers, self.going = program, [], True
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        while self.going:
            said = subprocess.run([self.program], capture_output=True, text=True, check=False).stdout
            if said:
                self.answers.append((time.monotonic(), float(said.split()[0])))
            time.sleep(0.5)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.going = False
        self.thread.join()

    def between(self, begin, end):
        seen = [ns for at, ns in self.answers if begin - 0.5 <= at <= end + 0.5]
        if seen and max(seen) < NEAR:
            return "near"
        return "far" if seen and min(seen) > FAR else "mixed"


def processor_name():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def drop(paths):
    for path in paths:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def wait_for(state, program):
    """Until the last three seconds' answers are all of that state; two minutes at most."""
    with States(program) as states:
        give_up = time.monotonic() + 120.0
        while time.monotonic() < give_up:
            time.sleep(3.0)
            if states.between(time.monotonic() - 2.5, time.monotonic()) == state:
                return


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def turn(command, tokens, seconds_of, after, states_program):
    """Runs the command; pairs of (state, tokens/s). `after`: seconds from its last run to its end."""
    with States(states_program) as states:
        said = run(command)
        at = time.monotonic() - after
    pairs = []
    for seconds in reversed(seconds_of(said)):
        pairs.append((states.between(at - seconds, at), tokens / seconds))
        at -= seconds
    return pairs


def ours_seconds(said):
    return [row for row in json.loads(said)["rows"] if row["name"].startswith("tg")][0]["seconds"]


def theirs_seconds(said):
    return [ns * 1e-9 for ns in json.loads(said[said.index("["):])[0]["samples_ns"]]


def show(name, pairs):
    parts = []
    for state in STATES:
        values = [speed for of, speed in pairs if of == state]
        if values:
            parts.append(f"{state} {statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f}, {len(values)})")
    print(f"{name:12} all {statistics.median([speed for _, speed in pairs]):.2f}; " + "; ".join(parts), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("build", "model", "gguf"):
        parser.add_argument(name)
    parser.add_argument("peers", nargs="+", metavar="NAME=LLAMA_BENCH[,OPTION...]")
    parser.add_argument("--weights", default="q8")
    for name, value in (("rounds", 3), ("tokens", 16), ("runs", 32), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--begin", choices=STATES[:2])
    parser.add_argument("--json")
    given = parser.parse_args()
    build, cores = Path(given.build), str(Path(given.build) / "bench/bench_cores")
    shape = ["-n", str(given.tokens), "-t", str(given.threads), "-p", "0"]
    ours = [str(build / "gossamer"), "bench", given.model, "--weights", given.weights, *shape, "--json"]
    engines = {"gossamer": (ours, ours_seconds, 1.5)}
    for peer in given.peers:
        name, _, rest = peer.partition("=")
        program, *options = rest.split(",")
        if program == "gossamer":
            engines[name] = ([*ours, *options], ours_seconds, 1.5)
            continue
        engines[name] = ([program, "-m", given.gguf, *options, *shape, "-o", "json"], theirs_seconds, 0.3)
    shards = sorted(Path(given.model).glob("*.safetensors"))
    pairs = {name: [] for name in engines}
    for _ in range(given.rounds):
        for name, (command, seconds_of, after) in engines.items():
            drop(shards if given.gguf == "-" else [*shards, given.gguf])
            if name == "gossamer":
                run([*command, "-r", "1"]) # brings the pages
            if given.begin:
                wait_for(given.begin, cores)
            seen = turn([*command, "-r", str(given.runs)], given.tokens, seconds_of, after, cores)
            pairs[name] += seen
            show(name, seen)
    print("-- in all")
    for name, seen in pairs.items():
        show(name, seen)
    for state in ("all", *STATES):
        medians = {name: statistics.median(of) for name in pairs
                   if (of := [speed for at, speed in pairs[name] if state in ("all", at)])}
        if "gossamer" in medians and len(medians) > 1:
            best = max((speed, name) for name, speed in medians.items() if name != "gossamer")
            print(f"ratio to the best other, {state}: {medians['gossamer'] / best[0]:.2f} ({best[1]})")
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"machine": processor_name(), "date": time.strftime("%Y-%m-%d %H:%M"),
                       "commands": {name: " ".join(Path(word).name if "/" in word else word for word in command)
                                    for name, (command, _, _) in engines.items()},
                       "runs": {name: [{"state": state, "tokens_per_second": round(speed, 3)} for state, speed in seen]
                                for name, seen in pairs.items()}}, file, indent=1)


if __name__ == "__main__":
    main()
