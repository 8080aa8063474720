"""The installed files are those of the source tree."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

_TESTS = pathlib.Path(__file__).resolve().parent
_ROOT = _TESTS.parent.parent
_PACKAGE = _ROOT / "python/sparsekiln"


def test_every_module_is_on_the_list_of_what_is_installed():
    listed = re.findall(r"'([\w.]+\.(?:pyi?|typed))'", (_PACKAGE / "meson.build").read_text())
    there = [file.name for file in _PACKAGE.rglob("*") if file.suffix in (".py", ".pyi", ".typed")]
    assert sorted(listed) == sorted(there)


def test_the_lowest_pytorch_is_the_same_everywhere_and_the_tests_have_no_older_one():
    asked_for = re.search(r'^LOWEST_PYTORCH = "([\d.]+)"$', (_PACKAGE / "torch/__init__.py").read_text(), re.M)[1]
    extras = (_ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    assert re.search(r'^torch = \["torch>=([\d.]+)"\]$', extras, re.M)[1] == asked_for
    assert re.search(r"^torch>=([\d.]+)$", (_ROOT / "examples/python/requirements.txt").read_text(), re.M)[1] == asked_for
    tested = re.search(r"^torch==([\d.]+)$", (_TESTS / "requirements-torch.txt").read_text(), re.M)[1]
    assert [int(part) for part in tested.split(".")] >= [int(part) for part in asked_for.split(".")]


def test_an_older_pytorch_is_refused_with_the_lowest_that_works():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    program = "import torch; del torch.Tensor.__dlpack_c_exchange_api__; import sparsekiln.torch"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and re.search(r"ImportError: .* pip install 'torch>=[\d.]+'$", done.stderr.strip())


def test_a_package_for_another_cpython_says_so(tmp_path):
    package = tmp_path / "sparsekiln"
    package.mkdir()
    for file in _PACKAGE.glob("*.py"):
        (package / file.name).symlink_to(file)
    (package / "_core.cpython-39-x86_64-linux-gnu.so").touch()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", "import sparsekiln"], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert re.search(r"ImportError: sparsekiln in .* is for another Python than cpython 3\.\d+: its extension is _core\.cpython-39-", done.stderr)
