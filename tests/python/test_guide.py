"""Every snippet of README.md, of the guide, and of the documents about the command line, C++ and GPU servers runs, or says why not."""

import ast
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from snippets import ROOT, not_fenced, program, snippets

from sparsekiln import _core

_GUIDE = sorted((ROOT / "docs/guide").glob("*.md"))
_DOCUMENTS = [ROOT / "README.md", *(ROOT / "docs" / name for name in ("command-line.md", "cpp.md", "gpu-server.md")), *_GUIDE]
_NAMES = [str(one.relative_to(ROOT)) for one in _DOCUMENTS]
#: Reasons not to run a snippet here. `python` and `sh` are what this test runs; the rest is no program, or has a test of its own.
_REASONS = {"it needs a GPU", "it needs an installed library", "it takes minutes"}
#: These tune, and what they find must not be in the store that other tests share.
_TUNE = {"docs/command-line.md", "docs/guide/first-kernel.md"}
_ELSEWHERE = {"cpp": "tests/packaging/installed_library_test.py", "cmake": "examples/installed/CMakeLists.txt", "text": ""}


def read(name):
    return snippets((ROOT / name).read_text())


def skip_without_its_packages(name, code):
    modules = {one.module for one in ast.walk(ast.parse(code)) if isinstance(one, ast.ImportFrom)}
    modules |= {alias.name for one in ast.walk(ast.parse(code)) if isinstance(one, ast.Import) for alias in one.names}
    for module in sorted({one.partition(".")[0] for one in modules}):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{name} needs {module}, which is not installed")
    if "sparsekiln.jax" in modules and not hasattr(_core, "xla_handlers"):
        pytest.skip("sparsekiln was built without jaxlib's headers: it has no XLA handlers")


def run(command, name, folder):
    """Runs it for a document in a folder, where `sparsekiln` and `torchrun` are those of this Python."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for program_name, module in {"sparsekiln": "sparsekiln", "torchrun": "torch.distributed.run"}.items():
        shim = programs / program_name
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        shim.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    if name in _TUNE:
        environment["SPARSEKILN_CACHE_DIR"] = str(folder / "cache")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", [name for name in _NAMES if program(read(name)).strip()])
def test_the_python_of_a_document_runs(name, tmp_path):
    code = program(read(name))
    skip_without_its_packages(name, code)
    file = tmp_path / f"snippets of {pathlib.Path(name).stem}.py"  # no name of a module
    file.write_text(code)
    run([sys.executable, file], name, tmp_path)


@pytest.mark.parametrize("name", [name for name in _NAMES if any(one.language == "sh" and one.runs for one in read(name))])
def test_the_commands_of_a_document_run(name, tmp_path):
    found = read(name)
    commands = "\n".join(one.code for one in found if one.language == "sh" and one.runs)
    if "sm_90" in commands and not json.loads(run(["sparsekiln", "doctor", "--json"], name, tmp_path))["nvrtc"]["found"]:
        pytest.skip("no NVRTC")
    for one in found:
        if one.file:
            skip_without_its_packages(name, one.code)
            (tmp_path / one.file).write_text(one.code)
    run(["bash", "-euo", "pipefail", "-c", commands], name, tmp_path)


@pytest.mark.parametrize("name", _NAMES)
def test_every_snippet_is_one_that_a_test_knows(name):
    text = (ROOT / name).read_text()
    assert not_fenced(text) == []
    assert text.count("```") == 2 * len(snippets(text)), "a fence that is not closed, or is indented"
    for one in snippets(text):
        where = f"{name}:{one.line}"
        assert one.language in ("python", "sh", *_ELSEWHERE), where
        assert not one.mark or one.file or one.mark.removeprefix("not run: ") in _REASONS, where
        if one.language == "python" or one.file.endswith(".py"):
            compile(one.code, where, "exec")
    if any(one.language == "cpp" for one in snippets(text)):
        assert name in (ROOT / _ELSEWHERE["cpp"]).read_text()


@pytest.mark.parametrize("name", [name for name in _NAMES if any(not one.runs for one in read(name))])
def test_what_is_not_run_is_well_formed_and_calls_verbs_that_dev_has(name):
    verbs = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True).stdout
    for one in read(name):
        if one.runs:
            continue
        subprocess.run(["bash", "-n", "-c", one.code], check=True)
        for verb, option in re.findall(r"^\./dev (\w+)(?: (--\w+|\w+))?", one.code, re.M):
            lines = [line for line in verbs.splitlines() if line.startswith(f"./dev {verb}")]
            assert lines and (not option or any(option in line for line in lines)), f"{name}: ./dev {verb} {option}"
