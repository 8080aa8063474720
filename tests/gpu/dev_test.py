"""`./dev gpu` in a tree that was copied to a server: it takes the portable programs, and installs nothing."""

import json
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
# In place of each program: notes its arguments, and ends with the status that the file `statuses` says.
_PROGRAM = """import json, os, pathlib, sys
name = pathlib.Path(sys.argv[0]).stem
open('took', 'w').write(sys.argv[sys.argv.index('--build') + 1])
open('arguments', 'a').write(json.dumps([name, *sys.argv[1:]]) + '\\n')
sys.exit(json.load(open('statuses')).get(name, 0) if os.path.exists('statuses') else 0)
"""


class Gpu(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.tree = pathlib.Path(holder.name).resolve() / "tree"
        self.tree.mkdir()
        shutil.copy(_DEV, self.tree / "dev")
        for program in ("tests/gpu/suite.py", "tests/gpu/conformance.py", "bench/gpu_workloads.py", "bench/gpu_layers.py", "bench/gpu_profile.py",
                        "bench/gpu_tune.py"):  # fmt: skip
            self.write(program, _PROGRAM)
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

    def gpu(self, *arguments, nvrtc="cuda"):
        """Exit status, messages, the build that the suite was run on, and what was called to build or install."""
        environment = dict(
            os.environ, PATH=f"{self.tree / 'bin'}:{os.environ['PATH']}", CALLS=str(self.tree / "calls"),
            SPARSEKILN_NVRTC=str(self.tree / nvrtc), SPARSEKILN_CUDA_INCLUDE=str(self.tree / "cuda"),
        )  # fmt: skip
        command = ["bash", "dev", "gpu", *(arguments or ["test"])]
        done = subprocess.run(command, cwd=self.tree, env=environment, capture_output=True, text=True)
        took, calls = self.tree / "took", self.tree / "calls"
        return done.returncode, done.stderr, took.read_text() if took.exists() else None, calls.exists()

    def given(self, *arguments):
        """Exit status, and the arguments of each program apart from --build."""
        (self.tree / "arguments").unlink(missing_ok=True)
        status, self.said, _, _ = self.gpu(*arguments)
        lines = (self.tree / "arguments").read_text().splitlines() if (self.tree / "arguments").exists() else []
        calls = [json.loads(line) for line in lines]
        self.assertTrue(all(call[1:3] == ["--build", "build-portable"] for call in calls))
        return status, {call[0]: call[3:] for call in calls}

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
        self.assertIn("supports CUDA 12.4", said)
        self.assertIn("pip install 'nvidia-cuda-nvrtc-cu12<12.5'", said)
        self.write("cuda/libnvrtc.so.12", "")
        self.assert_takes_portable("there is no build/")

    def test_a_wrong_nvrtc_in_the_environment_ends_the_command_and_installs_nothing(self):
        self.make_build(self.tree)
        self.write("bin/dpkg-query", _ALL_INSTALLED)
        self.write(".venv/bin/python", _RUNS)
        status, said, took, called = self.gpu(nvrtc="nowhere")
        self.assertEqual((status, took, called), (1, None, False), said)
        self.assertIn("no file or folder with an NVRTC that fits", said)

    def test_what_failed_decides_the_status_and_then_what_was_not_reached(self):
        programs = ("suite", "conformance", "gpu_workloads")
        for statuses in ((1, 3, 0), (3, 1, 0), (0, 3, 1), (3, 3, 0), (0, 0, 3), (0, 0, 0)):
            self.write("statuses", json.dumps(dict(zip(programs, statuses))))
            status, calls = self.given("test", "conformance", "bench")
            self.assertEqual((status, list(calls)), (1 if 1 in statuses else max(statuses), list(programs)), statuses)

    def test_each_verb_is_given_the_options_that_it_takes(self):
        options = ("--out", "a", "--minutes=3", "--every", "7", "--only", "two words", "--workers", "2", "--short")
        for_all = ["--out", "out/gpu", "--out=a", "--minutes=3"]
        suite = [*for_all, "--every=7", "--only=two words", "--workers=2"]
        bench = [*for_all, "--only=two words", "--short"]
        short = [*for_all, "--short"]
        expected = {"suite": suite, "conformance": [*for_all, "--every=7"], "gpu_workloads": bench, "gpu_layers": short,
                    "gpu_profile": bench, "gpu_tune": short}  # fmt: skip
        self.assertEqual(self.given(*options), (0, expected))
        self.assertEqual(self.given("tune", "--short"), (0, {"gpu_tune": ["--out", "out/gpu", "--short"]}))

    def test_an_option_that_no_verb_takes_is_refused(self):
        self.assertEqual(self.given("test", "--fast"), (1, {}))
        self.assertIn("not '--fast'", self.said)
        self.assertEqual(self.given("test", "conformance", "--short"), (1, {}))
        self.assertIn("gpu test conformance takes no --short", self.said)

    def test_a_portable_build_takes_the_version_of_a_cpython_and_nothing_else(self):
        for arguments, said in ((["--fast"], "takes --python VERSION, not '--fast'"), (["--python"], "--python needs a version, such as 3.12")):
            done = subprocess.run(["bash", "dev", "build", "--portable", *arguments], cwd=self.tree, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
