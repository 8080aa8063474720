"""The CPythons of this machine, by version."""

import functools
import os
import pathlib
import shutil
import subprocess

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
_HAS_HEADERS = "import sysconfig, pathlib, sys; sys.exit(not pathlib.Path(sysconfig.get_path('include'), 'Python.h').is_file())"


def _works(python: str, version: str) -> bool:
    check = f"import sys, ensurepip; assert sys.version_info[:2] == {tuple(map(int, version.split('.')))}"
    return subprocess.run([python, "-c", check], capture_output=True).returncode == 0


@functools.cache
def find(version: str) -> str | None:
    """On PATH, or one that pyenv or uv has installed; with what makes virtual environments."""
    homes = [pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv", "versions")]
    homes.append(pathlib.Path.home() / ".local/share/uv/python")
    places = [shutil.which(f"python{version}"), f"/usr/bin/python{version}"]
    for home in homes:
        places += sorted(map(str, home.glob(f"*/bin/python{version}")))
    return next((place for place in places if place and os.path.isfile(place) and _works(place, version)), None)


def has_headers(python: str) -> bool:
    return subprocess.run([python, "-c", _HAS_HEADERS], capture_output=True).returncode == 0
