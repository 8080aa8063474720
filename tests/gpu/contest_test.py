"""The contest of ./dev gpu bench: what counts as right, a process that crashes or hangs, and, where PyTorch is installed, all of
it on the cpu."""

import importlib.util
import os
import pathlib
import sys
import time
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))

import gpu_contest  # noqa: E402
import gpu_contest_process  # noqa: E402
from gpu_contest_process import ContestProcess, NotReached, Unavailable  # noqa: E402
from workloads import Workload  # noqa: E402

_LAYER = Workload("test", 128, 96, 0.5, 32, "f32", 12, "forward")
_FILE = pathlib.Path("layout.npy")
_HAS_TORCH = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("numpy") is not None


def serve(pipe, folders, rounds, environment):
    """Contestants `first`, and one that does what its folder says, unless it is left out."""
    pipe.send(("ready", "a test"))
    while True:
        _, _, left_out = pipe.recv()
        found = {}
        for name in ("first", folders[0]):
            if name in left_out:
                found[name] = {"ok": False, "why": left_out[name]}
                continue
            pipe.send(("at", name))
            if name == "crashes":
                os.abort()
            if name == "hangs":
                time.sleep(60)
            if name == "breaks":
                pipe.send(("broken", "RuntimeError: an illegal memory access"))
                return
            found[name] = {"ok": True}
        pipe.send(("done", found))


def unavailable(pipe, folders, rounds, environment):
    pipe.send(("unavailable", "ModuleNotFoundError: No module named 'torch'"))


def ends(pipe, folders, rounds, environment):
    sys.exit(3)


class Process(unittest.TestCase):
    def contest(self, second, serve=serve):
        made = ContestProcess([second], 1, {}, serve)
        self.addCleanup(made.stop)
        return made

    def measure(self, second):
        return self.contest(second).measure(_LAYER, _FILE, time.monotonic() + 100)

    def test_a_contestant_that_crashes_is_left_out_with_the_reason(self):
        found = self.measure("crashes")
        self.assertEqual(found["first"], {"ok": True})
        self.assertEqual(found["crashes"], {"ok": False, "why": "its process ended with status -6"})

    def test_a_contestant_that_breaks_the_context_is_left_out_with_the_reason(self):
        self.assertEqual(self.measure("breaks")["breaks"]["why"], "RuntimeError: an illegal memory access")

    def test_a_contestant_that_hangs_is_left_out(self):
        with mock.patch.object(gpu_contest_process, "_SECONDS", 1):
            found = self.measure("hangs")
        self.assertEqual(found, {"first": {"ok": True}, "hangs": {"ok": False, "why": "it ran longer than 1 s"}})

    def test_the_end_of_the_minutes_is_no_fault_of_a_contestant(self):
        with self.assertRaises(NotReached):
            self.contest("hangs").measure(_LAYER, _FILE, time.monotonic() + 2)

    def test_one_process_serves_many_workloads(self):
        contest = self.contest("second")
        first = contest.measure(_LAYER, _FILE, time.monotonic() + 100)
        self.assertEqual(contest.measure(_LAYER, _FILE, time.monotonic() + 100), first)
        self.assertEqual((contest.about, list(first)), ("a test", ["first", "second"]))

    def test_where_libraries_are_missing_the_reason_is_told_and_kept(self):
        contest = self.contest("second", unavailable)
        for _ in range(2):
            with self.assertRaisesRegex(Unavailable, "No module named 'torch'"):
                contest.measure(_LAYER, _FILE, time.monotonic() + 100)

    def test_without_a_gpu_or_its_libraries_the_real_process_says_what_is_missing(self):
        with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=""):
            with self.assertRaisesRegex(Unavailable, "No module named|finds no CUDA device"):
                ContestProcess([], 1, {}).measure(_LAYER, _FILE, time.monotonic() + 100)

    def test_a_process_that_ends_before_it_is_ready_is_no_contest(self):
        with self.assertRaisesRegex(Unavailable, "status 3"):
            self.contest("second", ends).measure(_LAYER, _FILE, time.monotonic() + 100)


@unittest.skipUnless(_HAS_TORCH, "not installed: torch or numpy")
class OnTheCpu(unittest.TestCase):
    def measure(self, workload, *contestants, left_out=(), rounds=2):
        import contestants as known
        import torch

        torch.manual_seed(3)
        mask = torch.rand(workload.grid) < workload.density
        mask[0, 0] = True
        told = []
        chosen = contestants or [one for one in known.CONTESTANTS if one is not known.Ours]
        found = gpu_contest.measure(workload, mask, gpu_contest.CpuClock(), chosen, rounds, dict(left_out), told.append)
        return found, told

    def test_the_dense_product_is_right_and_timed_cold_and_warm_for_every_operation(self):
        for operation in ("forward", "grad_input", "grad_weight"):
            for kind in ("f32", "bf16"):
                with self.subTest(operation=operation, kind=kind):
                    found, told = self.measure(Workload("test", 128, 96, 0.5, 32, kind, 12, operation))
                    dense = found["cuBLAS, dense"]
                    self.assertTrue(dense["ok"] and dense["check"]["exact"], dense)
                    for cache in ("cold", "warm"):
                        self.assertGreater(dense[cache]["events"]["us"], 0)
                    self.assertEqual((told[0], told[-1]), (gpu_contest.BEFORE, "cuBLAS, dense"))

    def test_what_needs_a_gpu_says_so(self):
        found, _ = self.measure(_LAYER)
        for name in ("cuSPARSE SpMM, BSR", "cuSPARSE sbsrmm", "PyTorch BSR", "plain Triton", "reads W"):
            self.assertEqual((found[name]["ok"], found[name]["why"]), (False, "it needs a CUDA device"), name)

    def test_a_wrong_result_has_no_time(self):
        import contestants as known

        class Wrong(known.Dense):
            name = "wrong"

            def launch(self, one):
                super().launch(one)
                one.output[3, 5] += 1

        class Incomplete(known.Dense):
            name = "incomplete"

            def launch(self, one):
                super().launch(one)
                one.output[0, 0] = float("nan")  # as if it was not written

        found, _ = self.measure(_LAYER, Wrong, Incomplete, known.Dense)
        for name in ("wrong", "incomplete"):
            self.assertEqual((found[name]["ok"], "cold" in found[name]), (False, False))
            self.assertIn("the result is wrong", found[name]["why"])
        self.assertTrue(found["cuBLAS, dense"]["ok"])

    def test_one_that_takes_long_has_fewer_samples(self):
        import contestants as known

        class Slow(known.Dense):
            name = "slow"

            def launch(self, one):
                super().launch(one)
                time.sleep(0.002)

        with mock.patch.object(gpu_contest, "_SHARE", 0.01):
            found, _ = self.measure(_LAYER, Slow, known.Dense, rounds=8)
        self.assertEqual(found["slow"]["warm"]["events"]["samples"], gpu_contest._FEWEST)
        with mock.patch.object(gpu_contest, "_SHARE", 60):
            found, _ = self.measure(_LAYER, Slow, rounds=8)
        self.assertEqual(found["slow"]["warm"]["events"]["samples"], 8)

    def test_one_that_computes_something_else_is_held_to_that(self):
        import contestants as known

        class Sum(known.Dense):
            name, is_wrong = "sum", False

            def __init__(self, case):
                super().__init__(case)
                self.expected = case.expected.sum() + (1 if self.is_wrong else 0)

            def result(self, one):
                return one.output.float().sum()

        class WrongSum(Sum):
            name, is_wrong = "wrong sum", True

        found, _ = self.measure(_LAYER, Sum, WrongSum)
        self.assertEqual((found["sum"]["ok"], found["wrong sum"]["ok"]), (True, False))

    def test_one_that_is_left_out_keeps_its_reason(self):
        found, told = self.measure(_LAYER, left_out={"cuBLAS, dense": "it crashed"})
        self.assertEqual(found["cuBLAS, dense"], {"ok": False, "why": "it crashed"})
        self.assertNotIn("cuBLAS, dense", told)

    def test_blocks_of_a_dense_weight_are_those_of_a_bsr_tensor(self):
        import contestants as known
        import torch

        mask = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]) != 0
        case = known.Case(_LAYER, mask, "cpu")
        weight = torch.sparse_bsr_tensor(case.crow, case.col, case.values, size=(128, 96)).to_dense()
        self.assertTrue(torch.equal(case.dense_weight(torch.float32), weight))
        self.assertTrue(torch.equal(case.blocks_of(weight), case.values))


if __name__ == "__main__":
    unittest.main()
