"""Tests of the scripts that write what the cost model of CUDA says of layers: a part of bench_test.py."""

import json
import os
import pathlib
import shlex
import sys

import disassembly
from documented import documented

_BENCH = pathlib.Path(disassembly.__file__).parent
_ROOT = _BENCH.parent
_BUILD = pathlib.Path(os.environ.get("SPARSEKILN_BUILD", _ROOT / "build"))


class PredictedCases:
    def assert_current(self, table: str, name: str, arguments: list[str]):
        """That a table of the model is in its document as the model says it now."""
        if table.strip() not in (_ROOT / arguments[-1]).read_text():
            self.fail(f"the model has changed since: python3 bench/{name} {shlex.join(arguments)}")

    def test_predictions(self):
        """What docs/gpu.md says of configs that a GPU has measured is what the model says now."""
        self.program("predictions")
        shown = [one for one in documented("model_accuracy.py") if "--from" in one]
        self.assertTrue(shown)
        for arguments in shown:
            file = _ROOT / arguments[arguments.index("--from") + 1]
            places = {"build": _BUILD, arguments[arguments.index("--from") + 1]: file}
            wanted = self.placed(arguments[: arguments.index("--write")], places)
            table = self.script("model_accuracy.py", *wanted)
            self.assert_current(table, "model_accuracy.py", arguments)
            rows = json.loads(self.script("model_accuracy.py", *wanted, "--json"))
            self.assertGreater(len(rows), 1)
            for row in rows:
                self.assertGreaterEqual(row["pick"], 1)
                self.assertTrue(-1 <= row["correlation"] <= 1)
        wrong = self.folder / "wrong.jsonl"
        wrong.write_text(file.read_text().splitlines()[0].replace("tile_n", "tile_m"))
        self.assertIn("tile_m", self.call([self.program("predictions"), wrong], status=2).stderr)

    def test_predicted(self):
        """The table of docs/gpu.md is what the model says now."""
        self.program("predictions")
        (arguments,) = documented("predicted.py")
        self.assert_current(self.call([sys.executable, _BENCH / "predicted.py", _BUILD]).stdout, "predicted.py", arguments)
        rows = self.written("predicted.py")
        for row in rows:
            for figure in ("predicted, µs", "memory, MB", "L2, MB", "products, GFLOP"):
                self.assert_positive(float(row[figure]), figure)

    def test_first_screen(self):
        """The tables of README.md are what was measured, and what the model says now."""
        self.program("predictions")
        (arguments,) = documented("first_screen.py")
        self.assert_current(self.call([sys.executable, _BENCH / "first_screen.py", _BUILD]).stdout, "first_screen.py", arguments)
        gpu, *cpu = self.written("first_screen.py")
        self.assertEqual(len(gpu), 6)
        self.assertEqual([row["ms"] for row in cpu], ["inference", "training step"])
        for row in (gpu, *cpu):
            for title, cell in list(row.items())[1:]:
                self.assert_positive(float(cell), title)

    def test_block_sizes(self):
        """The table of docs/gpu.md is what the model says now: blocks of 16 make what blocks of 64 do where layouts have structure."""
        self.program("predictions")
        (arguments,) = documented("block_sizes.py")
        self.assert_current(self.call([sys.executable, _BENCH / "block_sizes.py", _BUILD]).stdout, "block_sizes.py", arguments)
        rows = self.written("block_sizes.py")
        for row in rows:
            self.assert_positive(float(row["predicted, µs"]), "predicted, µs")
            if not row["layout"].startswith("random"):
                self.assertGreaterEqual(float(row["rate beside blocks of 64"]), 0.85, row)
