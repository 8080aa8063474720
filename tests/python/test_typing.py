"""Type annotations: a user's program passes mypy --strict, and the stubs of the extension are complete."""

import ast
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

from sparsekiln import _core

_HERE = pathlib.Path(__file__).resolve().parent
_PACKAGE = _HERE.parent.parent / "python/sparsekiln"
_PROGRAM = _HERE / "typed_program.py"


def test_a_program_of_a_user_passes_mypy_strict(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed: its types are part of the program")
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    # In site-packages, where users have it, mypy reads the package without reporting on it.
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\n[mypy-sparsekiln.*]\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", tmp_path / "cache", _PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"MYPYPATH": str(_PACKAGE.parent)}, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("Success: no issues found in 1 source file")


def test_the_program_runs():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    done = subprocess.run([sys.executable, _PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(4, 64)" in done.stdout and "0.25" in done.stdout


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_the_stubs_name_all_that_the_extension_has_and_nothing_else():
    stubs = ast.parse((_PACKAGE / "_core.pyi").read_text())
    declared = {one.target.id for one in stubs.body if isinstance(one, ast.AnnAssign)}
    declared |= {one.name for one in stubs.body if isinstance(one, (ast.FunctionDef, ast.ClassDef))}
    without_jaxlib = {"register_xla_kernel", "has_xla_kernel", "xla_handlers"}
    assert public(dir(_core)) | without_jaxlib == declared | without_jaxlib
    for one in stubs.body:
        if isinstance(one, ast.ClassDef):
            members = {member.name for member in one.body if isinstance(member, ast.FunctionDef)}
            assert public(dir(getattr(_core, one.name))) == public(members), one.name


def test_every_function_of_the_stubs_is_annotated_in_full():
    stubs = ast.parse((_PACKAGE / "_core.pyi").read_text())
    functions = [one for one in ast.walk(stubs) if isinstance(one, ast.FunctionDef)]
    assert len(functions) > 20
    for function in functions:
        arguments = function.args.args + function.args.kwonlyargs
        bare = [argument.arg for argument in arguments if argument.annotation is None and argument.arg != "self"]
        assert not bare and function.returns is not None, function.name
