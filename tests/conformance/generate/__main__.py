"""Writes the case files that are worked out by rule: python3 tests/conformance/generate [--check]

From the tables of the PTX ISA and exact arithmetic alone. With --check nothing is written; the exit status says
whether the files are what this writes.
"""

import importlib
import pathlib
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


def files():
    """Path and text of each."""
    for module in _MODULES:
        for family in importlib.import_module(module).families():
            yield _HERE.parent / "cases" / f"{family.name}.cases", family.write()


def main():
    stale = [path for path, text in files() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.name} is not what python3 tests/conformance/generate writes")
        return int(bool(stale))
    for path, text in files():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
