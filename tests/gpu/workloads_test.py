"""bench/gpu_workloads.py, with a GPU, a command and a contest that are made up: a workload that fails or hangs is one part."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))

import gpu_kernels  # noqa: E402
import gpu_tables  # noqa: E402
import gpu_workloads  # noqa: E402
from gpu_contest_process import NotReached, Unavailable  # noqa: E402
from workloads import Workload, workloads  # noqa: E402

_SMI = '#!/bin/sh\necho "Test GPU, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1"\n'
# A batch of 1 is right; at 2 the oracle finds a wrong element; at 3 it does what BREAKS says.
_TOOL = """#!/usr/bin/env python3
import json, os, sys, time
def answer(status, **document):
    print(json.dumps({"ok": status == 0, **document}))
    sys.exit(status)
if sys.argv[1] == "doctor":
    answer(0, cuda_driver={"cuda_version": 13000, "devices": [{"name": "Test GPU", "pci_bus_id": "0000:65:00.0"}]})
if sys.argv[1] in ("layout", "compile"):
    open("prepared", "a").write(sys.argv[1] + " ")
    answer(0, config="simt")
if sys.argv[1] == "tune":
    answer(0, problems=[{"floor_us": 5.0, "model": {"default": {"predicted_us": 20.0, "bound": "memory"}}}])
batch = sys.argv[sys.argv.index("--batch") + 1]
open("ran", "a").write(batch + " ")
figures = {"run_ms": 0.5, "gflops": 100.0, "rel_error": 1e-7, "timing": {"cold": True}}
if batch == "2" and os.environ["BREAKS"] != "nothing":
    answer(1, exact={"ok": False, "wrong": 3, "first_failure": "y[0, 7] is 5, not 4"}, random={"first_failure": ""}, **figures)
if batch == "3" and os.environ["BREAKS"] in ("hangs", "sleeps"):
    time.sleep(60)
if batch == "3" and os.environ["BREAKS"] == "error":
    answer(2, error={"kind": "driver", "message": "out of memory"})
if batch == "3" and os.environ["BREAKS"] == "aborts":
    sys.stderr.write("terminate called")
    os.abort()
answer(0, **figures)
"""
_LAYERS = [Workload("test", 256, 256, 0.5, 32, "f16", batch, "forward") for batch in (1, 2, 3)]
_TIMES = {"graph": {"us": 100.0}, "events": {"us": 120.0}}
_RIGHT = {"ok": True, "check": {"ok": True}, "cold": _TIMES, "warm": _TIMES}
_CONTEST = {
    "Sparsekiln": _RIGHT,
    "cuBLAS, dense": {**_RIGHT, "cold": {"graph": {"us": 250.0}}},
    "plain Triton": {"ok": False, "why": "ImportError: No module named 'triton'"},
}


class Workloads(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        for name, text in (("bin/nvidia-smi", _SMI), ("build/tools/sparsekiln", _TOOL)):
            file = self.folder / name
            file.parent.mkdir(parents=True)
            file.write_text(text)
            file.chmod(0o755)
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)

    def measure(self, breaks, *options, contest=None):
        """Exit status, parts by batch, and what was printed. `contest`: an exception, or what it finds; where None, there is none."""
        (self.folder / "ran").write_text("")
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        said = io.StringIO()
        answer = mock.Mock(side_effect=contest if isinstance(contest, Exception) else None, return_value=contest)
        answer.side_effect = Unavailable("no PyTorch") if contest is None else answer.side_effect
        with (
            mock.patch.dict(os.environ, PATH=path, BREAKS=breaks),
            mock.patch.object(sys, "argv", ["gpu_workloads.py", "--build", "build", "--out", "out", *options]),
            mock.patch.object(gpu_workloads, "ordered", lambda: _LAYERS),
            mock.patch.object(gpu_workloads.ContestProcess, "measure", lambda self, *job: answer(*job)),
            mock.patch.object(gpu_kernels, "_SECONDS", 2 if breaks == "hangs" else 60),
            contextlib.redirect_stdout(said),
        ):
            status = gpu_workloads.main()
        self.document = json.loads((self.folder / "out" / "bench.json").read_text())
        batches = {one.title: one.batch for one in _LAYERS}
        return status, {batches.get(title, title): part for title, part in self.document["parts"].items()}, said.getvalue()

    def ran(self):
        return sorted((self.folder / "ran").read_text().split())

    def test_without_a_contest_the_command_measures_and_the_reason_is_told(self):
        status, parts, said = self.measure("nothing")
        self.assertEqual((status, self.ran()), (0, ["1", "2", "3"]))
        self.assertEqual(parts[1]["command"]["run_ms"], 0.5)
        self.assertIn("every peer: no PyTorch (3 workloads)", said)
        self.assertRegex(said, r"n=1 forward +500 +- +- +20 +5 ")
        self.assertTrue(said.endswith("3 passed, 0 failed\n"), said)

    def test_with_a_contest_the_command_does_not_run_and_peers_without_a_time_are_named(self):
        status, parts, said = self.measure("nothing", contest=_CONTEST)
        self.assertEqual((status, self.ran()), (0, []))
        self.assertRegex(said, r"n=1 forward +100 +100 +120 +20 +5 +2\.50 ")
        self.assertIn("plain Triton: ImportError: No module named 'triton' (3 workloads)", said)

    def test_a_wrong_result_of_ours_in_the_contest_fails_and_no_time_counts(self):
        wrong = {"Sparsekiln": {"ok": False, "check": {"ok": False}, "why": "the result is wrong: relative error 2.0"}}
        status, parts, said = self.measure("nothing", contest=wrong)
        self.assertEqual((status, self.ran()), (1, []))
        self.assertIn("n=1 forward failed: the result is wrong", said)

    def test_without_the_package_peers_have_times_and_the_command_has_ours(self):
        missing = {**_CONTEST, "Sparsekiln": {"ok": False, "why": "ModuleNotFoundError: No module named 'sparsekiln'"}}
        status, parts, said = self.measure("nothing", contest=missing)
        self.assertEqual((status, self.ran()), (0, ["1", "2", "3"]))
        self.assertRegex(said, r"n=1 forward +500 +- +- +20 +5 +0\.50 ")
        self.assertIn("Sparsekiln: ModuleNotFoundError", said)

    def test_a_failed_oracle_leaves_its_reason(self):
        status, parts, said = self.measure("error")
        self.assertEqual((status, parts[2]["ok"], parts[2]["command"]["exact"]["wrong"]), (1, False, 3))
        self.assertIn("n=2 forward failed: y[0, 7] is 5, not 4", said)
        self.assertIn("n=3 forward failed: out of memory", said)

    def test_a_command_that_hangs_is_a_failure_of_its_part_alone(self):
        status, parts, said = self.measure("hangs")
        self.assertEqual((status, parts[1]["ok"]), (1, True))
        self.assertIn("ran longer than 2 s", parts[3]["why"])

    def test_a_command_that_aborts_leaves_what_it_said_and_only_failures_run_again(self):
        self.assertIn("terminate called", self.measure("aborts")[1][3]["why"])
        self.measure("aborts")
        self.assertEqual(self.ran(), ["2", "3"])

    def test_what_time_does_not_allow_is_left_to_the_next_call(self):
        status, parts, said = self.measure("error", "--minutes", "0")
        self.assertEqual((status, parts), (3, {}))
        self.assertTrue(said.endswith("0 passed, 0 failed, 3 not reached: call it again\n"), said)
        self.assertEqual(len(self.measure("error")[1]), 3)

    def test_a_workload_that_the_end_of_the_minutes_cuts_off_is_not_reached(self):
        status, parts, said = self.measure("nothing", contest=NotReached())
        self.assertEqual((status, parts), (3, {}))

    def test_kernels_are_compiled_before_any_is_run_and_all_is_in_one_archive(self):
        self.measure("error")
        prepared = (self.folder / "prepared").read_text().split()
        self.assertEqual((prepared.count("layout"), prepared.count("compile")), (1, 3))
        self.assertEqual(len(list((self.folder / "out").glob("gpu-Test-GPU-*.tar.gz"))), 1)

    def test_what_was_measured_of_small_layers_is_not_taken_for_the_others(self):
        self.measure("nothing", "--short")
        self.measure("nothing")
        self.assertEqual(self.ran(), ["1", "2", "3"])

    def test_a_part_is_chosen_by_words_of_titles_and_kept(self):
        self.measure("nothing", "--only", "n=2")
        self.assertEqual(self.ran(), ["2"])
        self.measure("nothing")
        self.assertEqual(self.ran(), ["1", "3"])

    def test_results_become_a_table_of_a_document(self):
        self.measure("nothing", contest=_CONTEST)
        marks = "before\n<!-- bench/gpu_workloads.py writes from here -->\n\nNot measured yet.\n\n<!-- to here -->\nafter\n"
        (self.folder / "gpu.md").write_text(marks)
        with mock.patch.object(sys, "argv", ["gpu_workloads.py", "--from", "out/bench.json", "--write", "gpu.md"]):
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(gpu_workloads.main(), 0)
        written = (self.folder / "gpu.md").read_text()
        self.assertNotIn("Not measured yet", written)
        self.assertIn("Test GPU", written)
        self.assertIn("- cuBLAS, dense takes 2.50 times as long (geometric mean of 3), 2.50 at worst", written)
        self.assertIn("| 100 | 100 | 20 | 5 | 2.50 | - | - | - | - | - | - |", written)
        self.assertIn("- plain Triton: ImportError: No module named 'triton' (3 workloads)", written)
        self.assertTrue(written.startswith("before\n") and written.endswith("after\n"))

    def test_the_first_workloads_are_of_all_layers(self):
        every = [Workload(name, 64, 64, 1, 32, "f16", n, "forward") for name, n in (("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2))]
        order = [(one.name, one.batch) for one in gpu_workloads.spread_out(every)]
        self.assertEqual(order, [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3)])

    def test_the_important_ones_come_first_and_none_is_missing(self):
        order = gpu_workloads.ordered()
        self.assertEqual(order[:2], [one for one in order[:2] if (one.name, one.batch) in (("llama-8b-ffn", 8192), ("headline", 32))])
        self.assertEqual(sorted(one.title for one in order), sorted(one.title for one in workloads()))

    def test_a_minute_that_is_over_stops_what_runs(self):
        began = time.monotonic()
        with mock.patch.object(gpu_workloads, "_END", 0.2), mock.patch.object(gpu_workloads, "_BEGIN", 0.2):
            status, parts, said = self.measure("sleeps", "--minutes", "1")
        self.assertLess(time.monotonic() - began, 40)
        self.assertEqual((status, list(parts), gpu_tables.ours(parts[1], "cold")), (1, [1, 2], 500.0))


if __name__ == "__main__":
    unittest.main()
