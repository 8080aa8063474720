"""A machine that has nothing: a root of its own with the files that it is given and the libraries that those load. No compiler,
no LLVM, no CUDA, no network, and no shell unless one is given."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

GLIBC = {f"lib{name}.so.{n}" for name, n in {"c": 6, "m": 6, "pthread": 0, "dl": 2, "rt": 1, "util": 1}.items()} | {"ld-linux-x86-64.so.2"}

_LEFT_OUT = shutil.ignore_patterns("test", "tests", "site-packages", "dist-packages", "__pycache__", "idlelib", "config-*", "*.a")
_PATHS = """
import json, os, sys, sysconfig
base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
folders = [sysconfig.get_path(name, vars=base) for name in ("stdlib", "platstdlib")]
print(json.dumps([os.path.realpath(sys.executable), *folders]))
"""
_NAMESPACES = ["--mount", "--net", "--pid", "--fork"]
# The arguments are the root, the folders to mount there, an empty one, and what then enters.
_ENTER = """
root=$1; shift
for device in null urandom; do mount --bind /dev/$device "$root/dev/$device" || exit; done
while [ -n "$1" ]; do mkdir -p "$root$1" && mount --bind "$1" "$root$1" || exit; shift; done
shift
mount -t proc proc "$root/proc" && exec "$@"
"""


class Impossible(Exception):
    """Why this machine cannot make such a root."""


def libraries(files) -> set[str]:
    """What the loader would load for these files, and the loader."""
    found = set()
    for file in files:
        for line in subprocess.run(["ldd", file], capture_output=True, text=True).stdout.splitlines():
            words = line.split()
            path = words[2] if "=>" in words[:-1] else words[0]
            if path.startswith("/"):
                found.add(path)
    return found


class BareRoot:
    """A context, at whose end the root is removed."""

    def __init__(self) -> None:
        self._unshare = ["unshare", *_NAMESPACES, *([] if os.geteuid() == 0 else ["--map-root-user"])]
        if shutil.which("unshare") is None or subprocess.run([*self._unshare, "true"], capture_output=True).returncode != 0:
            raise Impossible("unshare makes no namespaces here")
        self._holder = tempfile.TemporaryDirectory(prefix="sparsekiln-root-")
        self.path = pathlib.Path(self._holder.name)
        self._mounted: list[str] = []
        for folder in ("proc", "tmp", "dev", "home"):
            (self.path / folder).mkdir()
        for device in ("null", "urandom"):
            (self.path / "dev" / device).touch()

    def __enter__(self) -> "BareRoot":
        return self

    def __exit__(self, *_) -> None:
        self.remove()

    def remove(self) -> None:
        self._holder.cleanup()

    def _copy(self, files) -> None:
        for file in files:
            target = self.path / str(file).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)

    def add_libraries_of(self, files, besides: str | pathlib.Path | None = None) -> None:
        """All but those that are in the root, or in the folder `besides`."""
        needed = libraries(files)
        for libc in [library for library in needed if library.endswith("/libc.so.6")]:  # which loads more when it is asked
            needed |= {str(file) for name in GLIBC if (file := pathlib.Path(libc).with_name(name)).exists()}
        there = tuple(f"{folder}/" for folder in (self.path, besides) if folder)
        self._copy(library for library in needed if not library.startswith(there))

    def add_programs(self, *names: str) -> None:
        """Those that PATH finds here, in /usr/bin."""
        found = [shutil.which(name) for name in names]
        self.add_libraries_of(found)
        (self.path / "usr/bin").mkdir(parents=True, exist_ok=True)
        for name, file in zip(names, found):
            shutil.copy(file, self.path / "usr/bin" / name)

    def add_python(self, python: str | pathlib.Path) -> str:
        """The CPython of an interpreter without any packages; returns its path there."""
        executable, *folders = json.loads(subprocess.run([python, "-I", "-c", _PATHS], check=True, capture_output=True).stdout)
        for folder in set(folders):
            shutil.copytree(folder, self.path / folder.lstrip("/"), ignore=_LEFT_OUT, dirs_exist_ok=True)
        self._copy([executable])
        self.add_libraries_of([executable, *(self.path / folders[0].lstrip("/")).rglob("*.so")])
        return executable

    def mount(self, folder: str | pathlib.Path) -> None:
        """A folder of this machine is there, too, under its own name."""
        self._mounted.append(str(folder))

    def run(self, *command: str, environment: dict[str, str], **options) -> subprocess.CompletedProcess:
        """Runs a command there, in that environment; the options are those of subprocess.run."""
        mounts = [*self._unshare, "sh", "-c", _ENTER, "sh", str(self.path), *self._mounted, ""]
        enters = ["env", "-i", *(f"{name}={value}" for name, value in environment.items()), shutil.which("chroot"), str(self.path)]
        return subprocess.run([*mounts, *enters, *command], **options)
