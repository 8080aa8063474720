"""`./dev gpu` in a tree that was copied to a server: it takes the portable programs, and installs nothing."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

_DEV = pathlib.Path(__file__).resolve().parent.parent.parent / "dev"
_RUNS = "#!/bin/sh\nexit 0\n"
_INSTALLS = '#!/bin/sh\necho "$0 $*" >> "$CALLS"\nexit 1\n'
_ALL_INSTALLED = '#!/bin/sh\nshift 3\nfor package; do echo "installed $package"; done\n'
_SUITE = "import sys\nopen('took', 'w').write(sys.argv[sys.argv.index('--build') + 1])\n"


class Gpu(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.tree = pathlib.Path(holder.name).resolve() / "tree"
        self.tree.mkdir()
        shutil.copy(_DEV, self.tree / "dev")
        self.write("tests/gpu/suite.py", _SUITE)
        self.write("bin/nvidia-smi", "#!/bin/sh\necho 'GPU 0: Test GPU'\n")
        self.write("bin/dpkg-query", _RUNS)  # knows of no package
        for program in ("apt-get", "sudo", "meson", "ninja", "g++"):
            self.write(f"bin/{program}", _INSTALLS)
        self.write("cuda/libnvrtc.so.13", "")
        self.write("cuda/cuda.h", "")
        for program in ("tools/sparsekiln", "tests/kernels/test_kernels", "tests/conformance/test_conformance"):
            self.write(f"build-portable/{program}", _RUNS)

    def write(self, name, text):
        file = self.tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def make_build(self, source, program=_RUNS):
        self.write("build/meson-info/meson-info.json", f'{{"directories": {{"source": "{source}"}}}}')
        self.write("build/build.ninja", "")
        self.write("build/tools/sparsekiln", program)

    def gpu(self):
        """Exit status, messages, the build that the suite was run on, and what was called to build or install."""
        environment = dict(
            os.environ, PATH=f"{self.tree / 'bin'}:{os.environ['PATH']}", CALLS=str(self.tree / "calls"),
            SPARSEKILN_NVRTC=str(self.tree / "cuda"), SPARSEKILN_CUDA_INCLUDE=str(self.tree / "cuda"),
        )  # fmt: skip
        done = subprocess.run(["bash", "dev", "gpu", "test"], cwd=self.tree, env=environment, capture_output=True, text=True)
        took, calls = self.tree / "took", self.tree / "calls"
        return done.returncode, done.stderr, took.read_text() if took.exists() else None, calls.exists()

    def assert_takes_portable(self, why):
        status, said, took, called = self.gpu()
        self.assertEqual((status, took, called), (0, "build-portable", False), said)
        self.assertIn(why, said)

    def test_without_another_build_the_portable_one_is_taken(self):
        self.assert_takes_portable("there is no build/")

    def test_the_build_of_the_tree_it_was_copied_from_is_not_taken(self):
        self.make_build("/elsewhere/tree")
        self.assert_takes_portable("build/ belongs to another tree")

    def test_a_build_that_does_not_run_here_is_not_taken(self):
        self.make_build(self.tree, "#!/bin/sh\nexit 127\n")
        self.assert_takes_portable("build/tools/sparsekiln does not run here")

    def test_a_build_that_needs_packages_is_not_taken(self):
        self.make_build(self.tree)
        self.assert_takes_portable("would install something")

    def test_a_build_that_needs_nothing_is_brought_up_to_date_and_taken(self):
        self.make_build(self.tree)
        self.write("bin/dpkg-query", _ALL_INSTALLED)
        self.write("bin/ninja", _RUNS)
        self.write(".venv/bin/python", _RUNS)  # finds every package of a requirements file
        status, said, took, called = self.gpu()
        self.assertEqual((status, took, called), (0, "build", False), said)

    def test_a_build_whose_python_packages_are_missing_is_not_taken(self):
        self.make_build(self.tree)
        self.write("bin/dpkg-query", _ALL_INSTALLED)
        self.write(".venv/bin/python", "#!/bin/sh\nexit 1\n")
        self.assert_takes_portable("would install something")

    def test_a_missing_portable_program_is_named_and_nothing_installed(self):
        (self.tree / "build-portable/tests/kernels/test_kernels").unlink()
        status, said, took, called = self.gpu()
        self.assertEqual((status, took, called), (1, None, False), said)
        self.assertIn("build-portable/tests/kernels/test_kernels is missing: ./dev build --portable makes it", said)

    def test_an_nvrtc_that_is_too_new_for_the_driver_is_not_taken_and_the_message_says_what_fits(self):
        self.write("bin/nvidia-smi", "#!/bin/sh\necho 'GPU 0: Test GPU'\necho '| CUDA Version: 12.4  |'\n")
        status, said, took, called = self.gpu()
        self.assertEqual((status, took, called), (1, None, False), said)
        self.assertIn("knows CUDA 12.4", said)
        self.assertIn("pip install 'nvidia-cuda-nvrtc-cu12<12.5'", said)
        self.write("cuda/libnvrtc.so.12", "")
        self.assert_takes_portable("there is no build/")


if __name__ == "__main__":
    unittest.main()
