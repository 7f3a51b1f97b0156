#!/usr/bin/env python3
"""silicon.sh and rocm.sh without their hardware: what they say there, a whole run on the CPU, a run that fails, and
how figures are judged. GOSSAMER names the program (build/gossamer)."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CAMPAIGN = ROOT / "bench" / "campaign"
GOSSAMER = Path(os.environ.get("GOSSAMER", "build/gossamer")).resolve()
sys.path.insert(0, str(CAMPAIGN))
os.chdir(ROOT)
import device  # noqa: E402


def run(script, build, results, **environment):
    return subprocess.run(["sh", str(CAMPAIGN / script), str(build), "models/demo", str(results)],
                          capture_output=True, text=True, check=False, env={**os.environ, **environment})


class Scripts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.results = Path(self.folder.name) / "results"

    def tearDown(self):
        self.folder.cleanup()

    def works(self, backend):
        return f"backend {backend}" in subprocess.run([GOSSAMER, "--version"], capture_output=True, text=True,
                                                      check=True).stdout

    def test_without_the_backend_there_is_one_line_and_exit_code_2(self):
        for script, backend in (("silicon.sh", "metal"), ("rocm.sh", "hip")):
            if self.works(backend):
                continue
            done = run(script, GOSSAMER.parent, self.results)
            self.assertEqual((done.returncode, done.stdout), (2, ""), script)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertFalse(self.results.exists())

    def test_without_the_program_too(self):
        done = run("silicon.sh", self.folder.name, self.results)
        self.assertEqual(done.returncode, 2)
        self.assertIn("run make", done.stderr)

    def test_a_whole_run(self):
        done = run("silicon.sh", GOSSAMER.parent, self.results, BACKEND="cpu", QUICK="1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = json.loads((self.results / "results.json").read_text())
        self.assertEqual({s["kind"] for s in result["sections"]},
                         {"verify", "controls", "expert", "decode", "prefill", "frontier"})
        self.assertEqual(result["failed"], 0)
        for section in result["sections"]:
            self.assertEqual(section["exit_code"], 0)
            if section["kind"] in ("decode", "prefill", "frontier"):
                self.assertTrue(all(row["tokens_per_second"]["median"] > 0 for row in section["output"]["rows"]))
        # Nothing is judged that is not the registered model on the registered backend.
        self.assertEqual({a["outcome"] for a in result["answers"]}, {"not judged"})
        report = (self.results / "report.md").read_text()
        self.assertIn("| verify: demo | pass |", report)
        self.assertIn("| decode: fused | tg4 |", report)

    def test_what_fails_is_told(self):
        build = Path(self.folder.name) / "build"
        build.mkdir()
        stand_in = build / "gossamer"
        stand_in.write_text(f'#!/bin/sh\ncase "$*" in\n*--frontier*) echo broken >&2; exit 1 ;;\n*--kill*) echo "{{}}"; exit 0 ;;\n'
                            f'verify*) echo "{{}}"; exit 0 ;;\nesac\nexec "{GOSSAMER}" "$@"\n')
        stand_in.chmod(0o755)
        done = run("silicon.sh", build, self.results, BACKEND="cpu", QUICK="1")
        self.assertEqual(done.returncode, 1, done.stdout)
        failed = [s["kind"] for s in json.loads((self.results / "results.json").read_text())["sections"] if s["exit_code"]]
        self.assertEqual(failed, ["controls", "frontier"]) # a control that nobody notices is a failure
        self.assertIn("FAIL broken", (self.results / "report.md").read_text())


class Judgement(unittest.TestCase):
    def judge(self, chip, rates, predictions="silicon-predictions.json", layers=24):
        campaign = device.Campaign(CAMPAIGN / predictions, "build", "MODEL", "results")
        campaign.backend = campaign.predictions["backend"]
        campaign.sections = [
            {"kind": "decode", "name": name, "exit_code": 0, "output": {
                "model": {"layers": layers},
                "rows": [{"name": "tg128", "tokens_per_second": {"median": rate, "min": rate, "max": rate}}]}}
            for name, rate in rates.items()]
        read_chip, device.read_chip = device.read_chip, lambda: chip
        try:
            return {a["name"]: a for a in campaign.judge()[2]}
        finally:
            device.read_chip = read_chip

    def test_the_report_is_judged_by_its_own_numbers_on_its_own_machine(self):
        for rate, outcome in ((17.9, "close-out"), (18, "undecided"), (24, "continue"), (30, "strong")):
            answer = self.judge("Apple M1 Ultra", {"fused": rate})["report"]
            self.assertEqual((answer["outcome"], answer["continue"], answer["strong"], answer["close_out"]),
                             (outcome, 24, 30, 18))

    def test_elsewhere_by_its_shares(self):
        answer = self.judge("Apple M2 Max", {"fused": 12.1})["report"]
        self.assertEqual((answer["continue"], answer["strong"], answer["close_out"]), (12.0, 15.0, 9.0))
        self.assertEqual(answer["outcome"], "continue")

    def test_quotients(self):
        answers = self.judge("Apple M1 Ultra", {"fused": 80, "legacy": 40, "scalar load": 79})
        self.assertEqual((answers["grid"]["seen"], answers["grid"]["outcome"]), (2.0, "continue"))
        self.assertEqual(answers["scalar"]["outcome"], "close-out")
        self.assertEqual((answers["chain"]["seen"], answers["chain"]["outcome"]), (None, "not judged"))

    def test_what_is_not_registered_is_not_judged(self):
        self.assertEqual(self.judge("Apple M9", {"fused": 80})["report"]["outcome"], "not judged")
        self.assertEqual(self.judge("Apple M1 Ultra", {"fused": 80}, layers=36)["report"]["outcome"], "not judged")

    def test_predictions_follow_from_their_basis(self):
        for name, overhead in (("silicon-predictions.json", 0.3e-3), ("rocm-predictions.json", 1.2e-3)):
            predictions = json.loads((CAMPAIGN / name).read_text())
            self.assertGreater(len(predictions["chips"]), 3)
            for chip in predictions["chips"]:
                seconds = predictions["gb_per_token"]["native"] / (chip["share"] * chip["gb_per_second"]) + overhead
                self.assertAlmostEqual(chip["ceiling"]["predicted"] * seconds, 1, delta=0.01, msg=chip["chip"])

    def test_the_two_levers_are_registered_in_all_four_positions(self):
        predictions = json.loads((CAMPAIGN / "silicon-predictions.json").read_text())
        measured = {name: options for name, options, _ in device.DECODE["metal"]}
        for name in ("legacy", "serial", "staged"):
            self.assertEqual(measured[name], ["--decode", name])
            self.assertIn(["--decode", name], device.PROOFS["metal"])
        for chip in predictions["chips"]:
            at = {name: 1 / chip[name]["predicted"] for name in ("ceiling", "legacy", "serial", "staged")}
            waits = 49 * 0.2e-3 - 0.3e-3  # what one command buffer saves, whatever the experts do
            self.assertAlmostEqual(at["legacy"] - at["serial"], waits, delta=0.012 * at["legacy"], msg=chip["chip"])
            self.assertAlmostEqual(at["staged"] - at["ceiling"], waits, delta=0.012 * at["staged"], msg=chip["chip"])
            self.assertAlmostEqual(at["staged"] / at["ceiling"], chip["buffers"]["predicted"], delta=0.02)
            self.assertAlmostEqual(at["serial"] / at["ceiling"], chip["experts"]["predicted"], delta=0.02)


if __name__ == "__main__":
    unittest.main(verbosity=1)
