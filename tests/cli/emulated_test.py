"""The command on emulated devices: run with counters, verify, doctor. Needs NVRTC, and no GPU."""

import os
import pathlib
import unittest

from command import CommandTest, compilable_targets

_LIBRARY = pathlib.Path(os.environ["SPARSEKILN_EMULATOR"])


class DoctorTest(CommandTest):
    def test_doctor_names_the_emulator_that_was_found(self):
        found = self.answer("doctor")["emulator"]
        self.assertEqual((found["found"], pathlib.Path(found["path"]).resolve()), (True, _LIBRARY.resolve()))
        self.assertIn("emulator: ", self.succeed("doctor").out)

    def test_it_is_found_in_a_folder_that_the_environment_names_and_missed_where_it_is_not(self):
        folder = str(_LIBRARY.parent)
        self.assertTrue(self.answer("doctor", SPARSEKILN_EMULATOR=folder)["emulator"]["found"])
        missing = self.answer("doctor", SPARSEKILN_EMULATOR="/nowhere/e.so")["emulator"]
        self.assertFalse(missing["found"])
        self.assertIn("SPARSEKILN_EMULATOR=/nowhere/e.so could not be loaded", missing["why"])


@unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
class EmulatedTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.make("random", "--rows", 5, "--cols", 7, "--density", 0.3, "--seed", 2)

    def run_emulated(self, *arguments: object, target: str = "emulated", **environment: str) -> dict:
        return self.answer("run", "L.npy", "--block", 16, "--batch", 9, "--target", target, *arguments, **environment)

    def test_a_kernel_is_right_on_an_emulated_device_of_each_architecture(self):
        for arch in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"):
            with self.subTest(arch):
                answer = self.run_emulated("--check", target=f"emulated:{arch}")
                self.assertEqual((answer["exact"]["ok"], answer["random"]["ok"]), (True, True))
                self.assertIn(f"Sparsekiln emulator ({arch})", answer["device"])
                self.assertTrue(answer["target"].startswith(f"{arch}:"))

    def test_the_number_of_workers_may_be_given(self):
        self.assertEqual(self.run_emulated("--check", target="emulated:sm_80:3")["target"], "sm_80:3")

    def test_an_attached_layout_computes_what_a_baked_one_does_and_says_so(self):
        answer = self.run_emulated("--attached", "--check")
        self.assertEqual((answer["exact"]["ok"], answer["random"]["ok"]), (True, True))
        self.assertEqual((answer["attached"], answer["tier"]), (True, "attached"))
        self.assertGreater(answer["resources"][0]["table_bytes"], 0)
        self.assertIs(self.run_emulated()["attached"], False)

    def test_a_tiered_kernel_ends_up_baked(self):
        answer = self.run_emulated("--tiered", "--check")
        self.assertEqual((answer["exact"]["ok"], answer["random"]["ok"]), (True, True))
        self.assertEqual((answer["attached"], answer["tier"]), (False, "baked"))
        self.assertEqual(self.run_emulated("--tiered")["first_tier"], "baked", "the store has it by now")

    def test_it_is_not_timed_and_says_so(self):
        answer = self.run_emulated("--time")
        self.assertIs(answer["timed"], False)
        self.assertNotIn("run_ms", answer)
        self.assertIn("emulated: not timed", self.succeed("run", "L.npy", "--target", "emulated").out)

    def test_the_second_run_takes_the_binary_from_the_store_although_its_cubin_is_refused(self):
        self.assertEqual([self.run_emulated()["from"] for _ in range(2)], ["compiled", "store"])

    def test_counters_are_totals_of_one_launch_and_the_same_every_time(self):
        first = self.run_emulated("--counters")["counters"]
        self.assertEqual(first, self.run_emulated("--counters", "--check")["counters"])
        (kernel,) = first
        self.assertTrue(kernel["kernel"].startswith("sparsekiln_forward"))
        self.assertEqual(kernel["warp_instructions"], sum(kernel["by_kind"].values()))
        self.assertGreater(kernel["by_kind"]["floating"], 0)
        self.assertGreaterEqual(kernel["global"]["ratio"], 1)
        self.assertGreaterEqual(kernel["shared"]["ratio"], 1)
        self.assertGreater(kernel["barriers"], 0)
        self.assertEqual(kernel["tensor_operations"], 0)
        self.assertNotIn("lines", kernel)

    def test_annotate_says_the_same_of_each_line(self):
        (kernel,) = self.run_emulated("--annotate")["counters"]
        lines = kernel["lines"]
        self.assertEqual(sum(line["executed"] for line in lines), kernel["warp_instructions"])
        self.assertEqual(sum(line.get("global_sectors", 0) for line in lines), kernel["global"]["sectors"])
        self.assertEqual([line["ptx_line"] for line in lines], sorted(line["ptx_line"] for line in lines))
        self.assertTrue(any(line["instruction"].startswith("st.global") for line in lines))
        text = self.succeed("run", "L.npy", "--target", "emulated", "--annotate").out
        self.assertRegex(text, r"counters of sparsekiln_forward\w*: \d+ warp instructions\n")
        self.assertRegex(text, r"(?m)^ +\d+ +\d+ .* ret;$")

    def test_only_the_emulator_counts(self):
        for flag in ("--counters", "--annotate"):
            self.assert_refused(2, ["run", "L.npy", "--target", "sm_90", flag], ["only the emulator counts"])

    def test_targets_that_are_not_emulated_are_refused_with_those_that_are(self):
        cases = [
            (2, "emulated:sm_90a", ["only sm_90a has are not emulated yet", "emulated:sm_90 would work"]),
            (2, "emulated:sm_1", ["target 'sm_1' is not known"]),
            (1, "emulated:sm_87", ["no device of architecture sm_87", "sm_90"]),
        ]
        for status, target, needles in cases:
            with self.subTest(target):
                self.assert_refused(status, ["run", "L.npy", "--target", target], needles)

    def test_a_missing_emulator_is_an_error_that_says_what_was_looked_for(self):
        self.assert_refused(
            1, ["run", "L.npy", "--target", "emulated"], ["SPARSEKILN_EMULATOR=/nowhere/e.so"],
            SPARSEKILN_EMULATOR="/nowhere/e.so",
        )  # fmt: skip

    def test_a_planned_fault_fails_the_run_with_what_was_asked(self):
        planned = {"SPARSEKILN_EMULATOR_FAULT": "launch:1:701"}
        self.assert_refused(
            1, ["run", "L.npy", "--target", "emulated", "--check"],
            ["launching sparsekiln_forward", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"], **planned,
        )  # fmt: skip


@unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
class VerifyTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.make("random", "--rows", 2, "--cols", 24, "--density", 0.7, "--seed", 5)

    def test_a_right_kernel_is_verified_under_each_seed(self):
        answer = self.answer("verify", "L.npy", "--block", 16, "--batch", 9, "--seeds", 3, "--first-seed", 40)
        self.assertEqual([seed["seed"] for seed in answer["seeds"]], [40, 41, 42])
        self.assertTrue(all(seed["ok"] and seed["exact"]["ok"] and seed["random"]["ok"] for seed in answer["seeds"]))
        self.assertEqual((answer["found"], answer["target"]), (0, "sm_90:132"))
        text = self.succeed("verify", "L.npy", "--seeds", 1).out
        self.assertIn("seed 0: nothing found\nverified under 1 seed\n", text)

    def test_what_is_found_under_a_seed_is_reported_and_the_next_seed_is_tried(self):
        # The fourth wait fails, once: three are for copies to the device, this one is for the launch.
        found = self.run_tool(
            "verify", "L.npy", "--block", 16, "--batch", 9, "--seeds", 3, "--json",
            SPARSEKILN_EMULATOR_FAULT="synchronize:4:719",
        )  # fmt: skip
        self.assertEqual(found.status, 1, found.err)
        answer = found.json
        self.assertIs(answer["ok"], False)
        self.assertEqual((answer["found"], [seed["ok"] for seed in answer["seeds"]]), (1, [False, True, True]))
        self.assertIn("CUDA_ERROR_LAUNCH_FAILED", answer["seeds"][0]["found"])

    def test_a_dynamic_batch_is_verified_at_the_n_that_is_asked_for(self):
        answer = self.answer("verify", "L.npy", "--batch", "up-to:40", "--n", 7, "--seeds", 1, "--target", "emulated:sm_80")
        self.assertEqual((answer["n"], answer["found"]), (7, 0))

    def test_requests_that_make_no_sense_are_refused(self):
        self.assert_refused(2, ["verify", "L.npy", "--target", "sm_90"], ["verified on the emulator"])
        self.assert_refused(2, ["verify", "L.npy", "--seeds", 0], ["1 or more"])
        self.assert_refused(2, ["verify", "L.npy", "--seeds", "many"], ["whole number"])


if __name__ == "__main__":
    unittest.main()
