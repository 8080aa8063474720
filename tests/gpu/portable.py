"""Collects what a GPU server needs from a build: tests/gpu/portable.py BUILD FOLDER COMMIT.

FOLDER/ gets the programs that ./dev gpu runs, without symbols, the emulator's library for rehearsals, and COMMIT. Its former
contents are removed. The last line says how large it is.
"""

import pathlib
import shutil
import subprocess
import sys

PROGRAMS = ("tools/sparsekiln", "tests/kernels/test_kernels", "tests/conformance/test_conformance")
EMULATOR = "emulator/driver/libsparsekiln_emulator.so"


def lay_out(build: pathlib.Path, folder: pathlib.Path, commit: str) -> int:
    """Bytes of what is there then."""
    made = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    for name in (*PROGRAMS, EMULATOR):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(build / name, made / name)
        subprocess.run(["strip", "--strip-unneeded", made / name], check=True)
    (made / "COMMIT").write_text(f"{commit}\n")
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main() -> int:
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[2])
    size = lay_out(pathlib.Path(sys.argv[1]), folder, sys.argv[3])
    print(f"{folder}/ is {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
