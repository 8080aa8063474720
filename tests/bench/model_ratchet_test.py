"""The cost model ranks configs that a GPU has measured as well as it did: bench/measured/*.accuracy.json has what it reached.
bench/l2 expects the bytes from memory that Nsight Compute counted, as throughput and duration: bench/measured/*.dram.json.
By it defaults for large batches read about what the fastest measured configs read.
Kernels take what others of their structures took: bench/measured/*.structures.json.

    python3 bench/model_accuracy.py BUILD_DIR --from bench/measured/NAME.jsonl --json > bench/measured/NAME.accuracy.json

writes that file again, where the model has become better.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

_BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
_BUILD = os.environ["SPARSEKILN_BUILD"]
_ROUNDING = 1e-3
_PROBLEM = ("rows", "cols", "density", "block", "type", "n", "op", "layout_seed")
_LARGE = 512  # batch rows from which x is loaded again and again


def memory_bytes(one: dict, *config: str) -> int:
    """What bench/l2 expects a config to read and write, with partial sums; the default without one."""
    with tempfile.TemporaryDirectory() as folder:
        layout = pathlib.Path(folder) / "L.npy"
        grid = [f"--{name}={one[name] // one['block']}" for name in ("rows", "cols")]
        random = [f"--density={one['density']}", f"--seed={one['layout_seed']}"]
        make = [f"{_BUILD}/tools/sparsekiln", "layout", "make", "random", *grid, *random, "-o", layout]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        asked = [f"--{option}={one[name]}" for option, name in (("block", "block"), ("batch", "n"), ("dtype", "type"), ("op", "op"))]
        command = [f"{_BUILD}/bench/l2", layout, *(word for option in asked for word in option.split("=")), *config]
        said = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        return said["with_partial_sums"]["memory_bytes"]


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

    def test_bench_l2_reads_what_a_gpu_has_read(self):
        files = sorted((_BENCH / "measured").glob("*.dram.json"))
        self.assertTrue(files)
        for file, one in [(file, one) for file in files for one in json.loads(file.read_text())]:
            if one.get("rescheduled"):  # as bench/measured_configs.py has it
                continue
            with self.subTest(f"{file.name}: {one['config']}, {one['op']}"):
                measured = one["us"] * one["memory_tb_per_s"] * 1e6
                self.assertLess(abs(memory_bytes(one, "--config", one["config"]) / measured - 1), 0.15)

    def test_defaults_for_large_batches_read_about_what_the_fastest_configs_read(self):
        fastest: dict[tuple, dict] = {}
        for line in (line for file in sorted((_BENCH / "measured").glob("*.jsonl")) for line in file.read_text().splitlines()):
            one = json.loads(line)
            key = tuple(one[name] for name in _PROBLEM)
            if one["n"] >= _LARGE and one["right"] and not one.get("rescheduled") and one["warm_us"] < fastest.get(key, {"warm_us": float("inf")})["warm_us"]:
                fastest[key] = one
        self.assertTrue(fastest)
        for key, one in fastest.items():
            with self.subTest(key):
                config = one["config"].replace("in_flight=0", "in_flight=all")
                self.assertLess(memory_bytes(one) / memory_bytes(one, "--config", config), 1.1)

    def test_kernels_take_about_what_their_structures_took(self):
        """Kernels that are not of this project, but each of the structure of a config (docs/tuning-model.md)."""
        for file in sorted((_BENCH / "measured").glob("*.structures.json")):
            measured = json.loads(file.read_text())
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as lines:
                lines.write("".join(f"{json.dumps(one)}\n" for one in measured))
                lines.flush()
                command = [f"{_BUILD}/bench/predictions", lines.name, "--target", "h100"]
                said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            for one, answer in zip(measured, map(json.loads, said.splitlines()), strict=True):
                with self.subTest(f"{file.name}: {one['rows']}x{one['cols']} {one['density']} {one['block']} {one['type']}, {one['config']}"):
                    self.assertLess(abs(answer["predicted_us"] / one["measured_us"] - 1), 0.15)


if __name__ == "__main__":
    unittest.main()
