"""Makes a folder to link with instead of this machine's glibc: glibc_stubs.py FOLDER [VERSION]

`g++ -shared -LFOLDER` then makes libraries for every glibc from VERSION (2.28) on. The folder has Zig's stubs of
that glibc (symbols and their versions, without code), the static part of its libc, and newer_glibc.c, which has what the
objects that are linked may use and this glibc lacks. Programs would also need the start files of that glibc: before 2.34,
constructors were run by them, not by libc.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

_HERE = pathlib.Path(__file__).resolve().parent
_LIBRARIES = {"c": 6, "m": 6, "pthread": 0, "dl": 2, "rt": 1, "util": 1, "ld": 2}
# Objects compiled with a newer glibc expect all that was moved into libc in one place.
_LIBC = "GROUP ( libc.so.6 libpthread.so.0 libdl.so.2 librt.so.1 libutil.so.1 libc_nonshared.a libnewer.a AS_NEEDED ( libld.so.2 ) )\n"


def make(folder: pathlib.Path, version: str) -> None:
    with tempfile.TemporaryDirectory(prefix="sparsekiln-stubs-") as name:
        work = pathlib.Path(name)
        (work / "empty.c").write_text("int sparsekiln_empty;\n")
        cache = {"ZIG_GLOBAL_CACHE_DIR": str(work / "cache"), "ZIG_LOCAL_CACHE_DIR": str(work / "cache")}
        zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"x86_64-linux-gnu.{version}"]
        subprocess.run([*zig, "-shared", "-o", work / "empty.so", work / "empty.c"], check=True, env={**os.environ, **cache})
        fresh = work / "folder"
        fresh.mkdir()
        wanted = [f"lib{library}.so.{number}" for library, number in _LIBRARIES.items()] + ["libc_nonshared.a"]
        for file in wanted:
            (made,) = (work / "cache").rglob(file)
            shutil.copy(made, fresh)
        for library, number in _LIBRARIES.items():
            if library not in ("c", "ld"):
                (fresh / f"lib{library}.so").symlink_to(f"lib{library}.so.{number}")
        (fresh / "libc.so").write_text(_LIBC)
        compile_ = [os.environ.get("CC", "gcc"), "-std=c11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror", "-c"]
        subprocess.run([*compile_, "-o", work / "newer.o", _HERE / "newer_glibc.c"], check=True)
        subprocess.run(["ar", "rcs", fresh / "libnewer.a", work / "newer.o"], check=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(fresh, folder)


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "2.28")
