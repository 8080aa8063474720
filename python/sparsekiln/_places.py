"""Where the parts are that are installed with the package: the extension, the emulator, kernels, the headers, and NVRTC from PyPI."""

import importlib.machinery
import os
import pathlib
import sys

_PACKAGE = pathlib.Path(__file__).parent


def get_include() -> str:
    """The folder to include <sparsekiln/sparsekiln.h> and <sparsekiln/c.h> from. The package has no library to link: that is
    what `meson install` installs."""
    return str(_PACKAGE / "include")


def check_extension() -> None:
    """Says for which CPython this package is, where that is another one."""
    found = {file.name for file in _PACKAGE.glob("_core.*so")}
    if found and found.isdisjoint(f"_core{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES):
        raise ImportError(
            f"sparsekiln in {_PACKAGE} is for another Python than {sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}: "
            f"its extension is {', '.join(sorted(found))}; ./dev build --portable --python VERSION makes it for the one named"
        )


def name_places() -> None:
    """Tells the library where the parts are, in the environment. Variables that are set stay, and packs that they name come
    first; SPARSEKILN_PACKS that is empty is for no packs, not those of the package either."""
    emulator = _PACKAGE / "libsparsekiln_emulator.so"
    if emulator.is_file():
        os.environ.setdefault("SPARSEKILN_EMULATOR", str(emulator))
    common = _PACKAGE / "common.pack"
    packs = os.environ.get("SPARSEKILN_PACKS")
    if packs is None and common.is_file():
        os.environ["SPARSEKILN_PACKS"] = str(common)
    elif packs and common.is_file() and str(common) not in packs.split(":"):
        os.environ["SPARSEKILN_PACKS"] = f"{packs}:{common}"
    # The library looks for NVRTC in the active environment. A Python that is called by its path activates none.
    if "VIRTUAL_ENV" not in os.environ and any(pathlib.Path(sys.prefix, "lib").glob("python*/site-packages/nvidia/*/lib")):
        os.environ["VIRTUAL_ENV"] = sys.prefix


check_extension()
name_places()
