"""Writes a folder with all case files: python3 tests/conformance/generate FOLDER NAME…

Most of them are worked out by rule, from the tables of the PTX ISA and exact arithmetic alone. The files of ../cases are
written by hand, and are copied: their names are given, so that a build knows of each.
"""

import importlib
import pathlib
import shutil
import sys

_HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE))
_MODULES = (
    "integer",
    "bits",
    "comparison",
    "single",
    "double",
    "halves",
    "conversion",
    "matrix",
    "lanes",
    "bulk",
    "wgmma",
)


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in sys.argv[2:]:
        shutil.copy(_HERE.parent / "cases" / f"{name}.cases", folder)
    for module in _MODULES:
        for family in importlib.import_module(module).families():
            with open(folder / f"{family.name}.cases", "x") as file:  # a name is given once
                file.write(family.write())
    return 0


if __name__ == "__main__":
    sys.exit(main())
