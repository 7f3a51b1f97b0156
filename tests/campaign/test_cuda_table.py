#!/usr/bin/env python3
"""cuda_table.py of the campaign: what is made of the logs of cuda.sh, of those that are not there, and of misses."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CAMPAIGN = Path(__file__).resolve().parents[2] / "bench" / "campaign"
sys.path.insert(0, str(CAMPAIGN))
import cuda_table  # noqa: E402

DECODE = "decode at {}, chain of 128"


def rows(**figures):
    return {"rows": [{"name": name, key: {"median": value, "min": value, "max": value}}
                     for key, found in figures.items() for name, value in found.items()]}


class Table(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.write("ceiling-20b.json", {"read_gb_per_second": 4500.0, "token_bytes": 3.7e9})
        self.write("speed-20b.json", rows(
            tokens_per_second={DECODE.format(128): 800.0, DECODE.format(32768): 650.0},
            seconds={"load": 0.4},
            gb_per_second={"load, of the file": 33.0, "host to device, pinned": 55.0}))
        (self.folder / "sections.tsv").write_text("speed-20b\tpass\t39\nceiling-20b\tFAIL (exit code 1)\t3\n")

    def write(self, name, document):
        (self.folder / name).write_text(json.dumps(document))

    def run_it(self):
        done = subprocess.run([sys.executable, CAMPAIGN / "cuda_table.py", self.folder], capture_output=True, text=True,
                              check=False)
        figures = json.loads((self.folder / "sitting.json").read_text())["figures"]
        return done, {figure["figure"]: figure for figure in figures}

    def test_figures(self):
        done, figures = self.run_it()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(figures["20b native, one stream"]["outcome"], "must")
        self.assertEqual(figures["loading the 20b"]["outcome"], "aim")
        share = figures["the same, share of the rate of pinned copies"]
        self.assertAlmostEqual(share["seen"], 60.0)
        self.assertEqual(share["outcome"], "must")
        deep = figures["20b native at 32,768, with keys and values"]
        self.assertAlmostEqual(deep["seen"], 100 * 650 * (3.7e9 + 12 * 2048 * 32896) / 4500e9)
        self.assertTrue(figures["20b native at 130,000, with keys and values"]["outcome"].startswith("not measured"))
        self.assertIn("1 of 2 sections pass", done.stdout)
        self.assertIn("ceiling-20b: FAIL (exit code 1), 3 s", done.stdout)

    def test_a_miss_is_the_exit_code(self):
        self.write("speed-20b.json", rows(tokens_per_second={DECODE.format(128): 649.0}))
        done, figures = self.run_it()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(figures["20b native, one stream"]["outcome"], "MISSED")

    def test_bars(self):
        for seen, must, aim, outcome in ((650, 650, 950, "must"), (949, 650, 950, "must"), (950, 650, 950, "aim"),
                                         (649, 650, 950, "MISSED"), (4.1, -4, -1.5, "MISSED"), (4, -4, -1.5, "must"),
                                         (1.5, -4, -1.5, "aim"), (5, None, None, ""), (1, 1, None, "must")):
            self.assertEqual(cuda_table.outcome_of(seen, must, aim), outcome, (seen, must, aim))

    def test_what_was_cut_off_is_missing(self):
        (self.folder / "speed-20b.json").write_text('{"rows": [')
        with self.assertRaises(cuda_table.Missing):
            cuda_table.Logs(self.folder).row("speed-20b.json", "load", "seconds")


if __name__ == "__main__":
    unittest.main()
