"""The cost model ranks configs that a GPU has measured as well as it did: bench/measured/*.accuracy.json has what it reached.

    python3 bench/model_accuracy.py BUILD_DIR --from bench/measured/NAME.jsonl --json > bench/measured/NAME.accuracy.json

writes that file again, where the model has become better.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

_BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
_BUILD = os.environ["SPARSEKILN_BUILD"]
_ROUNDING = 1e-3


class Ratchet(unittest.TestCase):
    def test_no_pick_and_no_correlation_is_worse_than_what_is_committed(self):
        files = sorted((_BENCH / "measured").glob("*.jsonl"))
        self.assertTrue(files)
        for file in files:
            reached = json.loads(file.with_suffix(".accuracy.json").read_text())
            command = [sys.executable, _BENCH / "model_accuracy.py", _BUILD, "--from", file, "--json"]
            now = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            self.assertEqual([row["problem"] for row in now], [row["problem"] for row in reached])
            for mine, before in zip(now, reached):
                with self.subTest(f"{file.name}: {mine['problem']}"):
                    self.assertLessEqual(mine["pick"], before["pick"] + _ROUNDING)
                    self.assertGreaterEqual(mine["correlation"], before["correlation"] - _ROUNDING)


if __name__ == "__main__":
    unittest.main()
