"""The command as it is built without LLVM (SPARSEKILN_TOOL), for servers that have a GPU: it lacks the cpu target alone."""

import unittest

from command import CommandTest, compilable_targets


class WithoutLlvmTest(CommandTest):
    def test_doctor_says_that_there_is_no_cpu_target(self):
        self.assertIs(self.answer("doctor")["cpu"]["found"], False)

    def test_the_cpu_target_is_refused_with_a_sentence(self):
        self.make("random", "--size", 2, "--density", 1)
        for command in ("compile", "run"):
            refused = self.run_tool(command, "L.npy", "--block", 32, "--target", "cpu")
            self.assertNotEqual(refused.status, 0)
            self.assertIn("no LLVM", refused.err)

    @unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
    def test_kernels_for_gpus_compile_and_run_on_the_emulator(self):
        self.make("random", "--size", 2, "--density", 1)
        self.assertEqual(self.answer("compile", "L.npy", "--block", 32, "--target", "sm_80")["from"], "compiled")
        self.assertIs(self.answer("run", "L.npy", "--block", 32, "--target", "emulated", "--check")["ok"], True)


if __name__ == "__main__":
    unittest.main()
