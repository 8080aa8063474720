"""Where programs of a CUDA toolkit are."""

import os
import pathlib
import shutil
from collections.abc import Iterable


def find(name: str, given: str | None, beside: Iterable[pathlib.Path] = ()) -> pathlib.Path | None:
    """The one that is given; else of PATH, a toolkit, or these folders; None if there is none."""
    if given:
        return pathlib.Path(given) if os.access(given, os.X_OK) else None
    if found := shutil.which(name):
        return pathlib.Path(found)
    toolkits = [pathlib.Path(os.environ[home]) / "bin" for home in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(home)]
    folders = [*toolkits, pathlib.Path("/usr/local/cuda/bin"), *beside]
    return next((folder / name for folder in folders if os.access(folder / name, os.X_OK)), None)
