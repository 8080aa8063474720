"""A tree as it is copied to a GPU server, for rehearsals: what the verbs of ./dev gpu and the tests of layers read, and
build-portable/.

TEST_BUILD is the build whose programs and package are collected. TEST_PORTABLE, instead, is a folder that
./dev build --portable made.
"""

import json
import os
import pathlib
import shutil
import subprocess

import portable

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LARGEST = 45e6  # bytes
_CARRIED = ("dev", "bench", "tests/gpu", "tests/python", "tests/counting.py")


def make(tree: pathlib.Path) -> None:
    for name in _CARRIED:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tree / name)
    if os.environ.get("TEST_PORTABLE"):
        shutil.copytree(os.environ["TEST_PORTABLE"], tree / "build-portable")
    else:
        portable.lay_out(pathlib.Path(os.environ["TEST_BUILD"]), tree / "build-portable", "0123456789abcdef")


def nvrtc() -> str | None:
    """Where this machine has it; None where it has none."""
    if os.environ.get("SPARSEKILN_MEMO_NVRTC"):  # the one that tests/run.py found, and not that which remembers
        return os.environ["SPARSEKILN_MEMO_NVRTC"]
    build = pathlib.Path(os.environ.get("TEST_BUILD") or ROOT / "build")
    done = subprocess.run([build / "tools" / "sparsekiln", "doctor", "--json"], capture_output=True, text=True)
    return json.loads(done.stdout)["nvrtc"].get("path")
