"""A machine that has nothing: a root of its own with one CPython, the libraries that it and NumPy load, and wheels. No shell,
no compiler, no LLVM, no CUDA, no network."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from try_wheel import COMMANDS, ONE_LINE, PROGRAM

_LEFT_OUT = shutil.ignore_patterns("test", "tests", "site-packages", "dist-packages", "__pycache__", "idlelib", "config-*", "*.a")
_PATHS = "import json, sys, sysconfig; print(json.dumps([sys.executable, *map(sysconfig.get_path, ('stdlib', 'platstdlib'))]))"
_GLIBC = {f"lib{name}.so.{n}" for name, n in {"c": 6, "m": 6, "pthread": 0, "dl": 2, "rt": 1, "util": 1}.items()} | {"ld-linux-x86-64.so.2"}
_NAMESPACES = ["--mount", "--net", "--pid", "--fork"]
_ENTER = """
root=$1; shift
for device in null urandom; do mount --bind /dev/$device "$root/dev/$device" || exit; done
mount -t proc proc "$root/proc" && exec env -i PATH=/venv/bin HOME=/home "$(command -v chroot)" "$root" "$@"
"""


class Impossible(Exception):
    """Why this machine cannot make such a root."""


def _libraries(files) -> set[str]:
    """What the loader would load for these files, and the loader."""
    found = set()
    for file in files:
        for line in subprocess.run(["ldd", file], capture_output=True, text=True).stdout.splitlines():
            words = line.split()
            path = words[2] if "=>" in words[:-1] else words[0]
            if path.startswith("/"):
                found.add(path)
    return found


def _make(python: str, wheel: pathlib.Path, root: pathlib.Path) -> str:
    """Fills the root; returns the path of its interpreter."""
    executable, *folders = json.loads(subprocess.run([python, "-I", "-c", _PATHS], check=True, capture_output=True).stdout)
    executable = os.path.realpath(executable)
    for folder in set(folders):
        shutil.copytree(folder, root / folder.lstrip("/"), ignore=_LEFT_OUT, dirs_exist_ok=True)
    wheels = root / "wheels"
    wheels.mkdir()
    shutil.copy(wheel, wheels)
    download = [python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "--dest", wheels]
    subprocess.run([*download, f"{wheel}[cuda]", "pip"], check=True)
    with tempfile.TemporaryDirectory(prefix="sparsekiln-unpacked-") as unpacked:
        for file in (*wheels.glob("numpy*.whl"), wheel):
            shutil.unpack_archive(file, unpacked, "zip")
        ours = _libraries(pathlib.Path(unpacked, "sparsekiln").rglob("*.so"))
        assert {os.path.basename(library) for library in ours} <= _GLIBC, ours
        needed = ours | _libraries([executable, *root.rglob("*.so"), *pathlib.Path(unpacked).rglob("*.so*")])
        (libc,) = (library for library in ours if library.endswith("/libc.so.6"))
        needed |= {str(file) for name in _GLIBC if (file := pathlib.Path(libc).with_name(name)).exists()}
        outside = [library for library in needed if not library.startswith((unpacked, str(root)))]
    for file in [executable, *outside]:
        target = root / file.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    for folder in ("proc", "tmp", "dev", "home"):
        (root / folder).mkdir()
    for device in ("null", "urandom"):
        (root / "dev" / device).touch()
    return executable


def use(python: str, wheel: pathlib.Path) -> None:
    """Installs the wheel there, without a network, and lets it compile, tune, report and emulate."""
    unshare = ["unshare", *_NAMESPACES, *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        raise Impossible("unshare makes no namespaces here")
    with tempfile.TemporaryDirectory(prefix="sparsekiln-root-") as root:
        executable = _make(python, wheel, pathlib.Path(root))
        (pip,) = pathlib.Path(root, "wheels").glob("pip-*.whl")

        def there(*command: str, output: int | None = subprocess.DEVNULL) -> None:
            subprocess.run([*unshare, "sh", "-c", _ENTER, "sh", root, *command], check=True, stdout=output)

        there(executable, "-m", "venv", "--without-pip", "/venv")
        there("/venv/bin/python", f"/wheels/{pip.name}/pip", "install", "--no-index", "--find-links", "/wheels", "sparsekiln[cuda]")
        there("/venv/bin/python", "-c", PROGRAM, output=None)
        there("/venv/bin/python", "-c", ONE_LINE, output=None)
        for command in COMMANDS:
            there("/venv/bin/sparsekiln", *command)
