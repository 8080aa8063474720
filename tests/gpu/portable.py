"""Collects what a GPU server needs from a build: tests/gpu/portable.py BUILD FOLDER COMMIT.

FOLDER/ gets the programs that ./dev gpu runs, without symbols, the conformance cases, the emulator's library for
rehearsals, the Python package where the build has one, and COMMIT. Its former contents are removed. The last line says how
large it is.
"""

import pathlib
import shutil
import subprocess
import sys

PROGRAMS = ("tools/sparsekiln", "tests/kernels/test_kernels", "tests/conformance/test_conformance")
EMULATOR = "emulator/driver/libsparsekiln_emulator.so"
CASES = "tests/conformance/cases"
PACKAGE = "python/sparsekiln"
_OF_THE_BUILD = shutil.ignore_patterns("*.p", "__pycache__", "meson.build")


def _strip(file: pathlib.Path) -> None:
    subprocess.run(["strip", "--strip-unneeded", file], check=True)


def _package_of(build: pathlib.Path) -> pathlib.Path | None:
    """The one without LLVM where a build has two; None where it has none."""
    made = (build / "python/without_llvm/sparsekiln", build / PACKAGE)
    return next((package for package in made if any(package.glob("_core.*.so"))), None)


def lay_out(build: pathlib.Path, folder: pathlib.Path, commit: str) -> None:
    made = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    for name in (*PROGRAMS, EMULATOR):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(build / name, made / name)
        _strip(made / name)
    if package := _package_of(build):
        shutil.copytree(package, made / PACKAGE, ignore=_OF_THE_BUILD)  # files in place of links to the tree
        for library in (made / PACKAGE).glob("*.so"):
            _strip(library)
    shutil.copytree(build / CASES, made / CASES)
    (made / "COMMIT").write_text(f"{commit}\n")
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)


def main() -> int:
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[2])
    lay_out(pathlib.Path(sys.argv[1]), folder, sys.argv[3])
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    extensions = ", ".join(str(file.relative_to(folder)) for file in (folder / PACKAGE).glob("_core.*.so"))
    print(f"{folder}/ is {size / 1e6:.1f} MB, with {extensions or 'no Python package'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
