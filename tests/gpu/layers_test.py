"""The layers of ./dev gpu layers, measured on the cpu, and what is made of the results."""

import importlib.util
import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))

import gpu_contest  # noqa: E402
import gpu_layer_contest  # noqa: E402
import gpu_layers  # noqa: E402
import layer_cases  # noqa: E402
from gpu_contest_process import Unavailable  # noqa: E402
from gpu_layer_contest import ATTACHED, BAKED  # noqa: E402

_HAS_LAYERS = all(importlib.util.find_spec(name) is not None for name in ("torch", "sparsekiln"))
_US = {"us": 10.0}


def contestant(**us):
    return {"ok": True, "first_s": [1.0, 2.5], "refused": {}, **{way: {"us": value} for way, value in us.items()}}


class Tables(unittest.TestCase):
    def test_the_fastest_dense_form_counts_and_is_held_against_baked_kernels(self):
        part = {"contestants": {
            ATTACHED: contestant(graph=20.0, host=90.0), BAKED: contestant(graph=10.0, host=90.0),
            "one": contestant(graph=40.0, host=30.0), "other": contestant(graph=25.0),
        }}  # fmt: skip
        row = dict(zip(gpu_layers.head(), gpu_layers.cells(part)))
        self.assertEqual([row[f"graph, {column}"] for column in ("attached, µs", "baked, µs", "dense, ×")], ["20", "10", "2.50"])
        self.assertEqual((row["host, dense, ×"], row["training, baked, µs"], row["first, s"]), ("0.33", "-", "1.0 + 2.5"))

    def test_without_a_gpu_a_layer_has_a_reason_and_does_not_fail(self):
        contest = mock.Mock()
        contest.measure.side_effect = Unavailable("no PyTorch")
        part = gpu_layers.part_of(contest, layer_cases.FIRST[0], 0)
        self.assertEqual(part, {"ok": True, "no_contest": "no PyTorch"})
        self.assertEqual(gpu_layers.reasons({"a layer": part}), ["a layer: no PyTorch"])

    def test_a_layer_fails_where_ours_does_and_not_where_a_dense_one_does(self):
        wrong = {"ok": False, "why": "the result is wrong"}
        for name, ok in ((ATTACHED, False), (BAKED, False), ("dense", True)):
            contest = mock.Mock(about="a test")
            contest.measure.return_value = {ATTACHED: contestant(), BAKED: contestant(), "dense": contestant(), name: wrong}
            part = gpu_layers.part_of(contest, layer_cases.FIRST[0], 0)
            self.assertEqual(part["ok"], ok, name)
            self.assertIn(f"{name}: the result is wrong", gpu_layers.reasons({"a layer": part})[0])

    def test_a_process_that_breaks_before_any_contestant_is_a_failure(self):
        contest = mock.Mock(about="a test")
        contest.measure.return_value = {"the dense layer": {"ok": False, "why": "it crashed"}}
        self.assertFalse(gpu_layers.part_of(contest, layer_cases.FIRST[0], 0)["ok"])

    def test_titles_tell_the_layers_apart(self):
        titles = [one.title for one in layer_cases.FIRST]
        self.assertEqual(len(titles), len(set(titles)))


@unittest.skipUnless(_HAS_LAYERS, "not installed: torch, or not built: the Python package")
class OnTheCpu(unittest.TestCase):
    def measure(self, case, **more):
        return gpu_layer_contest.measure(gpu_contest.CpuClock(), case, 2, more.get("left_out", {}), lambda name: None)

    def test_each_kind_of_layer_is_right_and_timed_in_both_forms(self):
        for case in layer_cases.SHORT:
            with self.subTest(case=case.title):
                found = self.measure(case)
                self.assertTrue({ATTACHED, BAKED} < found.keys(), found)
                for name, one in found.items():
                    self.assertTrue(one["ok"], (name, one))
                    for way in ("events", "training", "host"):
                        self.assertGreater(one[way]["us"], 0)
                        self.assertEqual(one[way]["samples"], 2)

    def test_a_wrong_layer_has_no_time(self):
        with mock.patch.dict(gpu_layer_contest._BOUNDS, f32=-1):
            found = self.measure(layer_cases.SHORT[0])
        for one in found.values():
            self.assertIn("the result is wrong", one["why"])
            self.assertNotIn("events", one)

    def test_one_that_is_left_out_keeps_its_reason(self):
        found = self.measure(layer_cases.SHORT[0], left_out={BAKED: "it crashed"})
        self.assertEqual(found[BAKED], {"ok": False, "why": "it crashed"})
        self.assertTrue(found[ATTACHED]["ok"])


if __name__ == "__main__":
    unittest.main()
