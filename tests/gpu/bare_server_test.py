"""A GPU server that has CPython, its packages (NumPy, PyTorch), NVRTC and a few programs, but no compiler, no LLVM, no libraries
for development and no network: what is copied there works. The emulator is the driver.

server_tree.py says what is copied. TEST_PYTHON is the interpreter whose CPython and packages are there.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(_ROOT / "tests/gpu"), str(_ROOT / "tests/python")]

import portable  # noqa: E402
import server_tree  # noqa: E402
from bare_root import GLIBC, BareRoot, Impossible, libraries  # noqa: E402

_PYTHON = os.environ.get("TEST_PYTHON") or sys.executable
_ASKED = "import json, importlib.util as i, sysconfig; print(json.dumps([sysconfig.get_path('purelib'), *(bool(i.find_spec(n)) for n in ('numpy', 'torch', 'pytest'))]))"
_PROGRAMS = ("bash", "env", "dirname", "readlink", "realpath", "sed", "head", "grep", "mkdir", "rm", "cat")
_BUILT = pathlib.PurePath("/tree/build-portable")
_SECONDS = 300

_IMPORTS = """
import sparsekiln, sys
assert sparsekiln.__file__ == "/tree/build-portable/python/sparsekiln/__init__.py", sparsekiln.__file__
try:
    sparsekiln.compile([[1]], 16, target="cpu")
except sparsekiln.InvalidArgument as error:
    assert "has no LLVM" in str(error), error
else:
    raise AssertionError("this package has LLVM")
sparsekiln.patterns.random(3, 4, 0.5, seed=1).save("/tmp/L.npy")
"""
_PROBLEM = ("/tmp/L.npy", "--block", "32", "--batch", "8", "--dtype", "f16")


class BareServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        asked = subprocess.run([_PYTHON, "-c", _ASKED], check=True, capture_output=True, text=True)
        packages, numpy, cls.torch, cls.pytest = json.loads(asked.stdout)
        nvrtc = server_tree.nvrtc()
        if nvrtc is None or not numpy:
            raise unittest.SkipTest("no NVRTC here" if numpy else f"{_PYTHON} has no NumPy")
        try:
            cls.root = BareRoot()
        except Impossible as why:
            raise unittest.SkipTest(str(why)) from None
        cls.addClassCleanup(cls.root.remove)
        server_tree.make(cls.root.path / "tree")
        if not (cls.root.path / "tree/build-portable" / portable.PACKAGE).is_dir():
            raise unittest.SkipTest("the build has no Python package")
        cls.add_server(packages, nvrtc)
        cls.environment = {
            "PATH": "/usr/bin", "HOME": "/home", "USER": "root", "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1",
            "SPARSEKILN_NVRTC": nvrtc, "SPARSEKILN_CUDA_DRIVER": str(_BUILT / portable.EMULATOR),
        }  # fmt: skip
        cls.with_package = {**cls.environment, "PYTHONPATH": f"{_BUILT}/python:{packages}"}

    @classmethod
    def add_server(cls, packages: str, nvrtc: str) -> None:
        python = cls.root.add_python(_PYTHON)
        cls.root.add_programs(*_PROGRAMS)
        if not (cls.root.path / "usr/bin/python3").exists():
            (cls.root.path / "usr/bin/python3").symlink_to(python)
        built = cls.root.path / "tree/build-portable"
        cls.copied = [built / portable.PROGRAMS[0], built / portable.EMULATOR, *(built / portable.PACKAGE).glob("*.so")]
        cls.root.mount(packages)
        cls.root.mount(os.path.dirname(nvrtc))
        loaded = [file for package in ("numpy", "torch") for file in pathlib.Path(packages, package).rglob("*.so*")]
        cls.root.add_libraries_of([*cls.copied, *loaded, nvrtc], besides=packages)

    def there(self, *command: str, environment: dict[str, str]) -> str:
        """What it prints."""
        try:
            done = self.root.run(*command, environment=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 timeout=_SECONDS)  # fmt: skip
        except subprocess.TimeoutExpired as error:
            self.fail(f"{command} ran longer than {_SECONDS} s: {error.stdout}")
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    @unittest.skipUnless(os.environ.get("TEST_PORTABLE"), "only by hand, on what is portable")
    def test_what_is_copied_loads_nothing_but_glibc(self):
        self.assertLessEqual({pathlib.Path(library).name for library in libraries(self.copied)}, GLIBC)

    def test_the_package_is_imported_and_its_kernel_is_right(self):
        self.there("python3", "-c", _IMPORTS, environment=self.with_package)
        self.there("python3", "-m", "sparsekiln", "run", *_PROBLEM, "--target", "cuda", "--check", environment=self.with_package)

    def test_the_tests_of_layers_on_gpus_find_the_package_and_pass(self):
        if not (self.torch and self.pytest):
            self.skipTest(f"{_PYTHON} has no PyTorch, or no pytest")
        test = "tests/python/test_torch_lstm_cuda.py"
        said = self.there("bash", "-c", f"cd /tree && python3 -m pytest -q -p no:cacheprovider {test}", environment=self.environment)
        self.assertRegex(said, r"\d+ passed")

    def test_bench_measures_every_layer(self):
        said = self.there("bash", "/tree/dev", "gpu", "bench", "--short", environment=self.environment)
        self.assertEqual(said.splitlines()[-1], "2 passed, 0 failed", said)


if __name__ == "__main__":
    unittest.main()
