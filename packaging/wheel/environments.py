"""Virtual environments in build-wheel/, each with one CPython of this machine and what extensions for it are built with.

environments.py [VERSION] prints the interpreter for which ./dev build --portable makes the Python package.
"""

import pathlib
import shutil
import subprocess
import sys

import interpreters

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORK = ROOT / "build-wheel"
# XLA takes what was compiled with older headers than its own.
_XLA = ("jaxlib==0.6.2; python_version < '3.14'", "jaxlib>=0.8; python_version >= '3.14'")
_BUILT_WITH = ("meson-python>=0.17", "meson>=1.3", "ninja", "nanobind>=2.4", *_XLA)
_OF_SERVERS = "3.12"  # what GPU servers have, as far as nothing else is known


def environment(name: str, python: str, packages: tuple[str, ...]) -> pathlib.Path:
    """The bin folder of a virtual environment with these packages, without those that they depend on at run time."""
    folder = WORK / name
    wanted = "\n".join(packages)
    if not (folder / "complete").is_file() or (folder / "complete").read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", folder], check=True, stdout=sys.stderr)
        pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        alone = [package for package in packages if package in _XLA]
        subprocess.run([*pip, *(package for package in packages if package not in alone)], check=True, stdout=sys.stderr)
        if alone:
            subprocess.run([*pip, "--no-deps", *alone], check=True, stdout=sys.stderr)
        (folder / "complete").write_text(wanted)
    return folder / "bin"


def to_build(version: str, python: str) -> pathlib.Path:
    """The bin folder of the environment that extensions for this CPython are built in."""
    return environment(f"env-{version}", python, _BUILT_WITH)


def of_portable(wanted: str | None) -> pathlib.Path:
    """The interpreter of the CPython that is wanted. Without a wish, it is the one of servers, or else that of .venv."""
    version = wanted or _OF_SERVERS
    python = interpreters.find(version)
    if python is None or not interpreters.has_headers(python):
        why = f"no CPython {version} with its headers was found, on PATH or from pyenv or uv"
    else:
        try:
            return to_build(version, python) / "python"
        except subprocess.CalledProcessError as error:
            why = f"what builds extensions for CPython {version} could not be installed ({error})"
    if wanted:
        sys.exit(f"dev: {why}")
    own = ROOT / ".venv/bin/python"
    asked = [own, "-c", "import platform; print(platform.python_version())"]
    found = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    print(f"dev: {why}: the Python package is for {found}", file=sys.stderr)
    return own


if __name__ == "__main__":
    print(of_portable(sys.argv[1] if len(sys.argv) > 1 else None))
