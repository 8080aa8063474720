"""The tests of `sparsekiln.torch` with the lowest PyTorch that it takes, where SPARSEKILN_LOWEST_PYTORCH names a Python that has it,
such as that of an environment with torch==2.10.0 and the other packages of requirements-torch.txt."""

import os
import pathlib
import re
import subprocess
import unittest

_TESTS = pathlib.Path(__file__).resolve().parent
_PACKAGE = _TESTS.parent.parent / "python/sparsekiln"
_PYTHON = os.environ.get("SPARSEKILN_LOWEST_PYTORCH", "")


@unittest.skipUnless(_PYTHON, "SPARSEKILN_LOWEST_PYTORCH names no Python")
class LowestPyTorch(unittest.TestCase):
    def test_it_is_the_one_that_is_asked_for(self):
        asked_for = re.search(r'^LOWEST_PYTORCH = "([\d.]+)"$', (_PACKAGE / "torch/__init__.py").read_text(), re.M)[1]
        found = subprocess.run([_PYTHON, "-c", "import torch; print(torch.__version__)"], check=True, capture_output=True, text=True)
        self.assertRegex(found.stdout, rf"^{re.escape(asked_for)}\.")

    def test_all_tests_of_layers_pass(self):
        for file in sorted(_TESTS.glob("test_torch_*.py")):
            with self.subTest(file.stem):
                command = [_PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                self.assertIn(done.returncode, (0, 5), done.stdout)  # 5: all were skipped


if __name__ == "__main__":
    unittest.main()
