"""Installs wheels into fresh virtual environments, one for each CPython here that takes them, and uses them with no compiler
on the path; then once more where there is nothing else (bare_wheel.py): try_wheel.py WHEEL…"""

import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(_ROOT / "packaging/wheel"))

PROGRAM = """
import os, shutil
import numpy as np
import sparsekiln as sk
assert not any(shutil.which(name) for name in ("gcc", "g++", "cc", "clang", "ld", "llc", "opt", "nvcc")), os.environ["PATH"]
layout = sk.patterns.random(4, 6, 0.4, seed=1)
random = np.random.default_rng(1)
x, w = random.standard_normal((5, 96), np.float32), random.standard_normal((layout.blocks, 16, 16), np.float32)
kernel = sk.compile(layout, 16, 5, target="cpu")
dense = np.zeros((4, 16, 6, 16))
dense[np.repeat(np.arange(4), np.diff(layout.crow)), :, layout.col, :] = w
np.testing.assert_allclose(kernel(x, w), x @ dense.reshape(64, 96).T, rtol=1e-4, atol=1e-4)
print("compiled", kernel.source, kernel.target, "in", sk.__file__)
"""
ONE_LINE = (
    "import numpy as np, sparsekiln as sk; l = sk.patterns.random(4, 6, 0.4, seed=1); "
    "print(sk.compile(l, block=16, batch=5)(np.ones((5, 96), 'f4'), np.ones((l.blocks, 16, 16), 'f4')).sum())"
)
_PROBLEM = ("L.npy", "--block", "32", "--batch", "8")
#: What the command must do, in a folder of its own; in the last one, the emulator runs what NVRTC compiled.
COMMANDS = (
    ("--version",),
    ("doctor",),
    ("layout", "make", "random", "--rows", "8", "--cols", "8", "--density", "0.3", "--seed", "1", "-o", "L.npy"),
    ("run", *_PROBLEM, "--target", "cpu", "--check"),
    ("tune", *_PROBLEM, "--target", "cpu", "--budget", "5s"),
    ("report", "--html", "report.html"),
    ("run", *_PROBLEM, "--dtype", "f16", "--target", "emulated:sm_90", "--check", "--counters"),
)


def fits(wheel: pathlib.Path, version: str) -> bool:
    """Whether a CPython, "3.12", takes a wheel by its tags."""
    major, minor, abi = re.search(r"-cp(\d)(\d+)-(\w+)-", wheel.name).groups()
    wanted, has = (int(major), int(minor)), tuple(map(int, version.split(".")))
    return has == wanted or (abi == "abi3" and has > wanted)


def check_contents(wheel: pathlib.Path) -> None:
    """What a wheel must have inside beside the package: notices, the bill of materials, the emulator, headers."""
    names = set(zipfile.ZipFile(wheel).namelist())
    (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
    wanted = {f"{info}/licenses/packaging/licences/{file.name}" for file in (_ROOT / "packaging/licences").iterdir()}
    wanted |= {f"sparsekiln/include/sparsekiln/{file.name}" for file in (_ROOT / "include/sparsekiln").iterdir()}
    wanted |= {f"{info}/licenses/LICENSE", f"{info}/sboms/sparsekiln.cdx.json", "sparsekiln/libsparsekiln_emulator.so", "sparsekiln/common.pack"}
    assert wanted <= names, f"{wheel.name} lacks {sorted(wanted - names)}"


def make_environment(python: str, folder: pathlib.Path, wheel: pathlib.Path) -> pathlib.Path:
    subprocess.run([python, "-m", "venv", folder], check=True)
    own = folder / "bin/python"
    subprocess.run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[cuda]"], check=True)
    return own


def use(python: pathlib.Path, folder: pathlib.Path) -> None:
    bare = {"PATH": str(python.parent), "HOME": str(folder), "SPARSEKILN_CACHE_DIR": f"{folder}/cache"}
    for program in (PROGRAM, ONE_LINE):
        subprocess.run([python, "-c", program], check=True, cwd=folder, env=bare)
    for command in COMMANDS:
        subprocess.run([python.parent / "sparsekiln", *command], check=True, cwd=folder, env=bare, stdout=subprocess.DEVNULL)
    subprocess.run([python, "-m", "sparsekiln", "--version"], check=True, cwd=folder, env=bare, stdout=subprocess.DEVNULL)


def main() -> None:
    import bare_wheel
    import interpreters
    from bare_root import Impossible

    tried = []
    for wheel in map(pathlib.Path.resolve, map(pathlib.Path, sys.argv[1:])):
        check_contents(wheel)
        for version in interpreters.VERSIONS:
            python = interpreters.find(version) if fits(wheel, version) else None
            if python is None:
                continue
            with tempfile.TemporaryDirectory(prefix="sparsekiln-wheel-") as name:
                folder = pathlib.Path(name)
                use(make_environment(python, folder / "env", wheel), folder)
                tried.append(version)
        print(f"{wheel.name} installs and works, {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
    print("tried with CPython", ", ".join(tried))
    try:
        python = interpreters.find(tried[-1])
        wheel = [file for file in map(pathlib.Path, sys.argv[1:]) if fits(file, tried[-1])][-1]
        bare_wheel.use(python, wheel.resolve())
        print(f"{wheel.name} works where there is only CPython {tried[-1]} and glibc")
    except Impossible as reason:
        print(f"not tried where there is nothing else: {reason}")


if __name__ == "__main__":
    main()
