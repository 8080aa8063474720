"""The files in ptx/ are those that compile_triton.py writes, where the Triton that wrote them is installed."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

_HERE = pathlib.Path(__file__).resolve().parent
_PTX = _HERE / "ptx"


def installed_version():
    if importlib.util.find_spec("triton") is None:
        return None
    from importlib.metadata import version

    return version("triton")


class Anew(unittest.TestCase):
    def setUp(self):
        wrote = json.loads((_PTX / "kernels.json").read_text())["triton"]
        if wrote != installed_version():
            self.skipTest(f"written by Triton {wrote}; installed is {installed_version() or 'none'}")

    def test_the_files_are_what_the_script_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = dict(os.environ, TRITON_CACHE_DIR=f"{folder}/cache")
            command = [sys.executable, _HERE / "compile_triton.py", folder]
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
            new = {file.name: file.read_text() for file in pathlib.Path(folder).iterdir() if file.is_file()}
        self.assertEqual(new, {file.name: file.read_text() for file in _PTX.iterdir()})


if __name__ == "__main__":
    unittest.main()
