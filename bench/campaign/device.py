#!/usr/bin/env python3
"""The campaign on a machine with a GPU that gossamer's developers do not have; silicon.sh and rocm.sh call it.

    device.py PREDICTIONS BUILD MODEL RESULTS

Runs the proof (verify, its controls), then the figures, and writes RESULTS/results.json (every command, its exit
code, its JSON), RESULTS/report.md (the same in tables, beside what PREDICTIONS registered before anybody had run it)
and what each command said. QUICK=1: seconds instead of an hour, of the same sections, for any model. BACKEND: another
backend than the predictions' own, to try the program itself.

Exit code 0: every check of the proof passed and every command ran; 1: not so; 2: there is no such backend here.
"""
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

DEMO = "models/demo"
GOLDEN_MODELS = Path("tests/golden/models")
KERNEL = "moe_gate_up_mxfp4_f32"

# name, further options, environment: how a token is decoded. The first is the default.
DECODE = {
    "metal": [
        ("fused", [], {}),
        ("chained", ["--chain"], {}),
        ("legacy", ["--decode", "legacy"], {}),
        ("serial", ["--decode", "serial"], {}),
        ("staged", ["--decode", "staged"], {}),
        ("scalar load", ["--scalar-load"], {}),
        ("1 SIMD-group a row", [], {"GOSSAMER_SIMDGROUPS": "1"}),
        ("2 SIMD-groups a row", [], {"GOSSAMER_SIMDGROUPS": "2"}),
        ("8-bit attention and head", ["--weights", "q8"], {}),
    ],
    "hip": [
        ("fused", [], {}),
        ("chained", ["--chain"], {}),
        ("8-bit attention and head", ["--weights", "q8"], {}),
    ],
    "cpu": [("fused", [], {}), ("8-bit attention and head", ["--weights", "q8"], {})],
}
# Further ways to compute, which must pass the proof too.
PROOFS = {
    "metal": [["--precision", "fast"], ["--decode", "legacy"], ["--decode", "serial"], ["--decode", "staged"],
              ["--scalar-load"]],
    "hip": [["--precision", "fast"]],
    "cpu": [["--precision", "fast"]],
}
# bench --kernel, and its further options: the scalar-load control is not there on every backend.
EXPERT = {"cpu": ["--scalar-load"], "metal": ["--scalar-load"], "hip": []}


def read_chip():
    """What the machine calls its processor or GPU, as the predictions name it."""
    if platform.system() == "Darwin":
        return text_of(["sysctl", "-n", "machdep.cpu.brand_string"])
    return text_of(["sh", "-c", "rocminfo 2>/dev/null | sed -n 's/^ *Marketing Name: *//p' | tail -n 1"])


def text_of(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


class Campaign:
    def __init__(self, predictions, build, model, results):
        self.predictions = json.loads(Path(predictions).read_text())
        self.backend = os.environ.get("BACKEND", self.predictions["backend"])
        self.gossamer = str(Path(build) / "gossamer")
        self.model = model
        self.quick = os.environ.get("QUICK", "0") != "0"
        self.results = Path(results)
        self.sections = []

    def run(self, kind, name, arguments, environment=None, as_json=True):
        """One command of gossamer; what it says is kept."""
        command = [self.gossamer, *arguments, "--backend", self.backend, *(["--json"] if as_json else [])]
        print(f"== {kind}, {name}", flush=True)
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env={**os.environ, **(environment or {})})
        section = {"kind": kind, "name": name, "command": ["gossamer", *command[1:]],
                   "environment": environment or {}, "exit_code": done.returncode,
                   "seconds": round(time.monotonic() - began, 3),
                   "message": done.stderr.strip().splitlines()[-1:] if done.returncode else [], "output": None}
        log = self.results / f"{len(self.sections):02d}-{kind}-{name.replace(' ', '-').replace('/', '-')}.log"
        log.write_text(done.stdout + done.stderr)
        if as_json and done.returncode in (0, 1):
            try:
                section["output"] = json.loads(done.stdout)
            except ValueError:
                if done.returncode == 0:
                    section["exit_code"] = 3
                    section["message"] = [f"its output is no JSON: see {log.name}"]
        self.sections.append(section)
        print("-- " + ("pass" if section["exit_code"] == 0 else
                       f"FAIL (exit code {section['exit_code']}) {' '.join(section['message'])}"), flush=True)
        return section

    def prove(self):
        few = ["-n", "64"] if self.quick else []
        self.run("verify", "demo", ["verify", DEMO, *few])
        for options in PROOFS[self.backend]:
            self.run("verify", "demo " + " ".join(options), ["verify", DEMO, *few, *options])
        if not self.quick:
            for golden in sorted(Path("tests/golden/data").glob("*.safetensors")):
                if (GOLDEN_MODELS / golden.stem).is_dir():
                    self.run("verify", golden.stem,
                             ["verify", str(GOLDEN_MODELS / golden.stem), "--golden", str(golden)])
            self.run("verify", "demo against cpu exact", ["verify", DEMO, "--against", "cpu:exact"])
            self.run("controls", "all", ["verify", DEMO, "--controls"])
        else: # each control must fail a check: exit code 1, where 2 would be a command that is wrong
            section = self.run("controls", "sinks", ["verify", DEMO, *few, "--kill", "sinks"])
            noticed = section["exit_code"] == 1 and section["output"] is not None
            section["exit_code"] = 0 if noticed else section["exit_code"] or 1
            print("   (noticed, as a control must be)" if section["exit_code"] == 0 else "   NOT NOTICED")

    def measure(self):
        runs = ["-r", "2" if self.quick else "5"]
        tokens = "4" if self.quick else "128"
        if self.backend in EXPERT:
            place = ["--layer", "2", "--expert", "3"] if self.quick else ["--layer", "12", "--expert", "7"]
            self.run("expert", "one and four", ["bench", self.model, "--kernel", KERNEL, *place, "--experts",
                                                "1,4", *EXPERT[self.backend], "-r", "5" if self.quick else "51"])
        for name, options, environment in DECODE[self.backend]:
            self.run("decode", name, ["bench", self.model, "-p", "0", "-n", tokens, *runs, *options], environment)
        self.run("prefill", "prompts", ["bench", self.model, "-n", "0", "-p", "16" if self.quick else "512,2048", *runs])
        self.run("frontier", "contexts", ["bench", self.model, "--frontier", "32:64" if self.quick else "1k:32k",
                                          "-n", "4" if self.quick else "32", "-r", "1" if self.quick else "3"])

    def figure(self, kind, name, row_begins):
        """(median, min, max) of a row's figure; None where it was not measured."""
        for section in self.sections:
            if (section["kind"], section["name"]) == (kind, name) and section["output"]:
                for row in section["output"].get("rows", []):
                    rate = row.get("tokens_per_second") or row.get("gb_per_second") # of an expert
                    if row["name"].startswith(row_begins) and rate:
                        return rate["median"], rate["min"], rate["max"]
        return None

    def judge(self):
        """Each registered question: its numbers, what was seen, the outcome."""
        chip = read_chip()
        known = next((c for c in self.predictions["chips"] if c["chip"].lower() == chip.lower()), None)
        answers = []
        for question in self.predictions["questions"]:
            seen = self.figure(*question["figure"])
            over = self.figure(*question["over"]) if "over" in question else None
            value = seen and (seen[0] / over[0] if over else seen[0]) if "over" not in question or over else None
            numbers = {key: question.get(key) for key in ("continue", "strong", "close_out")}
            if "share" in question: # thresholds that are shares of the bandwidth, for every chip that has one
                at = known["gb_per_second"] / self.predictions["gb_per_token"][question["share"]] if known else None
                numbers = {key: at and round(number * at, 1) for key, number in numbers.items()}
            for key in numbers: # the report's own machine has the report's own numbers
                numbers[key] = (known or {}).get(question["name"], {}).get(key, numbers[key])
            predicted = (known or {}).get(question["name"], {}).get("predicted")
            outcome = "not judged"
            if value is not None and numbers["continue"] is not None and self.model_counts():
                outcome = ("strong" if value >= numbers["strong"] else "continue" if value >= numbers["continue"]
                           else "close-out" if value < numbers["close_out"] else "undecided")
            answers.append({"name": question["name"], "question": question["question"], "predicted": predicted,
                            **numbers, "seen": value, "range": seen, "outcome": outcome})
        return chip, known is not None, answers

    def model_counts(self):
        """Predictions are for a 20b on the backend that they name."""
        layers = next((s["output"]["model"]["layers"] for s in self.sections
                       if s["kind"] == "decode" and s["output"]), 0)
        return layers == 24 and self.backend == self.predictions["backend"]

    def write(self):
        chip, known, answers = self.judge()
        failed = [s for s in self.sections if s["exit_code"] != 0]
        machine = {"chip": chip, "has_predictions": known, "system": " ".join(platform.uname()),
                   "memory": text_of(["sysctl", "-n", "hw.memsize"]) if platform.system() == "Darwin" else
                   text_of(["sh", "-c", "grep MemTotal /proc/meminfo"])}
        result = {"what": "gossamer's campaign on a device", "backend": self.backend, "quick": self.quick,
                  "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine,
                  "gossamer": text_of([self.gossamer, "--version"]),
                  "commit": text_of(["git", "rev-parse", "HEAD"]), "predictions": self.predictions,
                  "answers": answers, "sections": self.sections, "failed": len(failed)}
        (self.results / "results.json").write_text(json.dumps(result, indent=1) + "\n")
        (self.results / "report.md").write_text(self.report(result))
        print(f"{self.results}/report.md and {self.results}/results.json: " +
              (f"{len(failed)} of {len(self.sections)} sections FAILED" if failed else
               f"all {len(self.sections)} sections pass"))
        return 1 if failed else 0

    def report(self, result):
        def number(value):
            return "–" if value is None else f"{value:.3g}"

        out = [f"# gossamer, backend {self.backend}, on {result['machine']['chip'] or 'an unknown device'}", "",
               f"{result['when']}, commit {result['commit'] or 'unknown'}, {result['machine']['system']}. " +
               f"Model: {self.model}." + (" Quick run: its figures mean nothing." if self.quick else ""), "",
               "## The registered questions", "",
               "| question | predicted | continue / strong / close-out | seen | outcome |", "|---|---:|---|---:|---|"]
        for a in result["answers"]:
            bounds = f">= {number(a['continue'])} / >= {number(a['strong'])} / < {number(a['close_out'])}"
            out.append(f"| {a['question']} | {number(a['predicted'])} | {bounds} | {number(a['seen'])} | {a['outcome']} |")
        out += ["", "## The proof", "", "| what | outcome |", "|---|---|"]
        for s in self.sections:
            if s["kind"] in ("verify", "controls"):
                out.append(f"| {s['kind']}: {s['name']} | " +
                           ("pass" if s["exit_code"] == 0 else f"FAIL {' '.join(s['message'])}") + " |")
        out += ["", "## The figures", "", "| section | row | median | min | max | GB/s | a token: command buffers, dispatches |",
                "|---|---|---:|---:|---:|---:|---|"]
        for s in self.sections:
            if s["kind"] in ("verify", "controls"):
                continue
            if s["exit_code"] != 0 or not s["output"]:
                out.append(f"| {s['kind']}: {s['name']} | FAIL {' '.join(s['message'])} | | | | | |")
                continue
            for row in s["output"]["rows"]:
                rate = row.get("tokens_per_second") or {"median": None, "min": None, "max": None}
                counts = ", ".join(number(row[key]) for key in ("command_buffers_per_token", "dispatches_per_token")
                                   if row.get(key) is not None)
                out.append(f"| {s['kind']}: {s['name']} | {row['name']} | {number(rate['median'])} | {number(rate['min'])} "
                           f"| {number(rate['max'])} | {number(row['gb_per_second']['median'])} | {counts} |")
        return "\n".join(out + ["", "Medians of the runs; tokens a second where nothing else is said.", ""])


def find_backend(campaign):
    """None if it works here, else why not, in a line."""
    if campaign.backend not in DECODE:
        return f"no backend {campaign.backend}: metal, hip and cpu are known"
    if not os.access(campaign.gossamer, os.X_OK):
        return f"{campaign.gossamer} is not there: run make"
    probe = subprocess.run([campaign.gossamer, "run", DEMO, "--backend", campaign.backend, "--raw", "-p", "x", "-n", "1"],
                           capture_output=True, text=True, check=False)
    return (probe.stderr.strip().splitlines() or ["?"])[-1] if probe.returncode == 2 else None


def main():
    arguments = sys.argv[1:]
    probe = arguments[:1] == ["--probe"]
    if len(arguments) != (3 if probe else 4):
        print("usage: device.py PREDICTIONS BUILD MODEL RESULTS\n       device.py --probe PREDICTIONS BUILD", file=sys.stderr)
        return 2
    campaign = Campaign(*(arguments[1:] + ["", ""] if probe else arguments))
    reason = find_backend(campaign)
    if reason:
        print(f"campaign: {reason}", file=sys.stderr)
        return 2
    if probe:
        return 0
    campaign.results.mkdir(parents=True, exist_ok=True)
    campaign.prove()
    campaign.measure()
    return campaign.write()


if __name__ == "__main__":
    sys.exit(main())
