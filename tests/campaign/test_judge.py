#!/usr/bin/env python3
"""judge.py and stages.py of the campaign: how predictions are judged, and what is made of ncu's table. Every file
that judge.py is for must ask for rows that a recorded result has."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CAMPAIGN = ROOT / "bench" / "campaign"
sys.path.insert(0, str(CAMPAIGN))
import judge  # noqa: E402
import stages  # noqa: E402

MORE = {"continue": ">= 10", "strong": ">= 20", "close-out": "< 5", "row": "a", "figure": "speed"}
LESS = {"continue": "<= 10", "strong": "<= 5", "close-out": "> 20", "row": "a", "figure": "speed"}
KEYS = {"hypothesis", "machine", "model", "command", "runs", "row", "figure", "predicted", "basis", "continue", "strong",
        "close-out"}


class Judge(unittest.TestCase):
    def test_outcomes(self):
        for question, cases in ((MORE, {25: "strong", 20: "strong", 10: "continue", 7: "undecided", 4: "close-out"}),
                                (LESS, {5: "strong", 10: "continue", 15: "undecided", 25: "close-out"})):
            for seen, outcome in cases.items():
                self.assertEqual(judge.judge(question, {"a": {"speed": seen}}), (seen, outcome))

    def test_medians_and_quotients(self):
        rows = {"a": {"speed": {"median": 30, "min": 1, "max": 99}}, "b": {"speed": 2}}
        self.assertEqual(judge.judge(MORE, rows), (30, "strong"))
        self.assertEqual(judge.judge({**MORE, "over": "b"}, rows), (15, "continue"))

    def test_the_files(self):
        paths = sorted(CAMPAIGN.glob("ceiling-*.txt"))
        judged = 0
        for path in paths:
            question = judge.read_question(path)
            self.assertEqual(set(question) - {"over", "note"}, KEYS, path)
            float(question["predicted"])
            shape = path.name.split("-")[1]
            results = ROOT / "bench" / "results" / f"cuda-ceiling-{shape}.json"
            rows = {row["name"]: row for row in json.loads(results.read_text())["rows"]}
            if question["row"] in rows:  # else it was asked after the recorded run
                judge.judge(question, rows)
                judged += 1
        self.assertGreater(judged, 10)

    def test_a_row_that_is_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.json"
            path.write_text('{"rows": []}')
            done = subprocess.run([sys.executable, CAMPAIGN / "judge.py", path, CAMPAIGN / "ceiling-20b-a.txt"],
                                  capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)


def table(rows):
    """ncu's CSV of (kernel, nanoseconds, bytes) launches, with the lines around it."""
    lines = ["==PROF== Connected", '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    for index, (kernel, time, count) in enumerate(rows):
        lines.append(f'"{index}","{kernel}","{stages.TIME}","ns","{time:,}"')
        lines.append(f'"{index}","{kernel}","{stages.BYTES}","byte","{count:,}"')
    return "\n".join(lines)


class Stages(unittest.TestCase):
    def convert(self, rows):
        with tempfile.TemporaryDirectory() as folder:
            source, result = Path(folder) / "stages.csv", Path(folder) / "stages.json"
            source.write_text(table(rows))
            done = subprocess.run([sys.executable, CAMPAIGN / "stages.py", source, result, "4500"], capture_output=True,
                                  text=True, check=False)
            chart = Path(folder) / "chart.svg"
            if done.returncode == 0:
                subprocess.run([sys.executable, ROOT / "tools/plot/stages.py", result, "-o", chart], check=True)
                self.assertIn("2 MB", chart.read_text())
            return done, json.loads(result.read_text()) if done.returncode == 0 else None

    def test_two_tokens(self):
        token = [("gs_decode_qkv(args)", 9000, 1_500_000), ("gs_decode_o_q8(args)", 8000, 1), ("other", 7, 7),
                 ("gs_decode_qkv(args)", 11_000, 500_000), ("gs_decode_head", 20_000, 3_000_000)]
        done, found = self.convert(token + token)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(found["tokens"], 2)
        self.assertEqual([row["name"] for row in found["rows"]], ["norm, QKV", "output, router", "head"])
        self.assertEqual(found["rows"][0]["launches_per_token"], 2)
        self.assertEqual(found["rows"][0]["microseconds_per_token"], 20.0)
        self.assertEqual(found["rows"][0]["bytes_per_token"], 2_000_000)

    def test_no_whole_token(self):
        done, _found = self.convert([("gs_decode_qkv", 1, 1)])
        self.assertEqual(done.returncode, 2)
        self.assertIn("no whole token", done.stderr)


if __name__ == "__main__":
    unittest.main()
