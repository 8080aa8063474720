"""What a build asks for: a missing library is named with the command that gets it, and the demo builds what it runs alone."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_BUILD = pathlib.Path(os.environ["SPARSEKILN_BUILD"])


class Build(unittest.TestCase):
    def configure_without(self, prefix: str) -> subprocess.CompletedProcess:
        """Configures with a PATH on which no program begins with `prefix`."""
        holder = tempfile.TemporaryDirectory(prefix="sparsekiln-build-")
        self.addCleanup(holder.cleanup)
        programs = pathlib.Path(holder.name, "bin")
        programs.mkdir()
        for folder in os.environ["PATH"].split(":"):
            for file in pathlib.Path(folder).glob("*"):
                if not file.name.startswith(prefix) and not (programs / file.name).is_symlink():
                    (programs / file.name).symlink_to(file)
        return subprocess.run(
            ["meson", "setup", "-Dpython=disabled", "-Dtests=false", "-Dbench=disabled", pathlib.Path(holder.name, "build"), _ROOT],
            env={**os.environ, "PATH": str(programs)}, capture_output=True, text=True,
        )  # fmt: skip

    def test_without_llvm_it_says_which_command_gets_it(self):
        done = self.configure_without("llvm-config")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("apt-get install llvm-19-dev", done.stdout)
        self.assertIn("./dev setup", done.stdout)

    @unittest.skipUnless(shutil.which("ninja"), "no ninja")
    def test_the_demo_builds_no_test_no_emulator_and_no_python_package(self):
        inputs = subprocess.run(
            ["ninja", "-C", _BUILD, "-t", "inputs", "demo"], check=True, capture_output=True, text=True
        ).stdout.splitlines()
        compiled = [name for name in inputs if name.endswith(".o")]
        self.assertTrue(any("compiler_build.cpp" in name for name in compiled), inputs)
        for room in ("tests/", "emulator/", "python/", "examples/"):
            self.assertEqual([name for name in compiled if name.startswith(room)], [])


if __name__ == "__main__":
    unittest.main()
