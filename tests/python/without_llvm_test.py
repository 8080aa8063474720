"""The package as a build without LLVM has it, for servers that have a GPU: it lacks the cpu target alone."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import sparsekiln
from sparsekiln import _core

_GLIBC = {"linux-vdso.so.1", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"}
_OF_COMPILERS = {"libstdc++.so.6", "libgcc_s.so.1", "libfmt.so.9"}  # linked statically where the build is portable


def emulates() -> bool:
    try:
        sparsekiln.compile([[1]], 16, target="emulated:sm_80")
    except sparsekiln.Error:
        return False
    return True


class WithoutLlvm(unittest.TestCase):
    def test_the_cpu_target_is_refused_with_a_sentence(self):
        with self.assertRaisesRegex(sparsekiln.InvalidArgument, "this build of Sparsekiln has no LLVM"):
            sparsekiln.compile([[1]], 16, target="cpu")

    def test_a_team_of_threads_is_taken_though_no_launch_uses_it(self):
        _core.set_team(0)

    def test_the_extension_loads_no_llvm(self):
        listed = subprocess.run(["ldd", _core.__file__], check=True, capture_output=True, text=True).stdout
        names = {pathlib.Path(line.split()[0]).name for line in listed.splitlines()}
        self.assertEqual(names - _GLIBC - _OF_COMPILERS - {"ld-linux-x86-64.so.2"}, set())

    @unittest.skipUnless(emulates(), "no emulator, or no NVRTC")
    def test_a_kernel_for_gpus_compiles_and_runs_on_the_emulator(self):
        with tempfile.TemporaryDirectory() as folder:
            sparsekiln.patterns.random(3, 4, 0.5, seed=1).save(f"{folder}/L.npy")
            problem = ["L.npy", "--block", "32", "--batch", "8", "--target", "emulated", "--check"]
            done = subprocess.run([sys.executable, "-m", "sparsekiln", "run", *problem], cwd=folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
