"""The command on a driver made for tests (SPARSEKILN_TEST_DRIVER): two devices with 50 MiB of L2, whose launches do nothing."""

import os
import unittest

from command import CommandTest, compilable_targets

_STUB = {"SPARSEKILN_CUDA_DRIVER": os.environ["SPARSEKILN_TEST_DRIVER"]}
_L2 = 50 << 20


class CudaTest(CommandTest):
    def test_doctor_says_what_each_device_is_and_where_on_the_bus(self):
        driver = self.answer("doctor", **_STUB)["cuda_driver"]
        self.assertEqual((driver["found"], driver["cuda_version"]), (True, 13000))
        found = [(d["name"], d["arch"], d["pci_bus_id"], d["l2_bytes"]) for d in driver["devices"]]
        wanted = [("Stub H100", "sm_90", "0000:65:00.0", _L2), ("Stub T4", "sm_75", "0000:b3:00.0", _L2)]
        self.assertEqual(found, wanted)
        text = self.succeed("doctor", **_STUB).out
        self.assertIn("cuda:1: Stub T4, sm_75, 40 multiprocessors, 80.0 GiB, 50 MiB of L2, at 0000:b3:00.0", text)

    @unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
    def test_run_times_by_events_with_operands_larger_than_the_cache(self):
        self.make("random", "--size", 32, "--density", 0.5)
        timing = self.answer("run", "L.npy", "--block", 32, "--target", "cuda", "--time", "--repeat", 3, **_STUB)["timing"]
        self.assertEqual((timing["clock"], timing["cold"], timing["samples"]), ("cuda events", True, 3))
        self.assertEqual(timing["l2_bytes"], _L2)
        one = timing["operand_bytes"] // timing["copies"]
        self.assertGreater(timing["operand_bytes"], 4 * _L2)
        self.assertLessEqual(timing["operand_bytes"], 4 * _L2 + one, "no more memory than that takes")

    @unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
    def test_a_layer_too_small_to_leave_the_cache_is_not_called_cold(self):
        self.make("random", "--size", 1, "--density", 1)
        request = ("run", "L.npy", "--block", 32, "--batch", 1, "--target", "cuda", "--time", "--repeat", 1)
        self.assertIs(self.answer(*request, **_STUB)["timing"]["cold"], False)
        self.assertIn("NOT cold", self.succeed(*request, **_STUB).out)


if __name__ == "__main__":
    unittest.main()
