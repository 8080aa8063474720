"""What runs of the tests remember on this machine, so that the next one is shorter."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess

_MOST_BYTES = 2 << 30  # of one folder: what was used last stays
_MEMO = "tests/nvrtc_memo/libnvrtc_memo.so"


def place(name: str) -> pathlib.Path:
    """A folder of that name for what is remembered."""
    usual = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sparsekiln-tests"
    return pathlib.Path(os.environ.get("SPARSEKILN_TEST_CACHE") or usual) / name


def folder(name: str) -> pathlib.Path:
    """The same, with no more files in it than it may have."""
    found = place(name)
    trim(found, _MOST_BYTES)
    return found


def trim(within: pathlib.Path, most_bytes: int) -> None:
    """Removes the files that were used longest ago until the rest has no more than so many bytes."""
    files = []
    for file in within.glob("*"):
        try:
            status = file.stat()
        except FileNotFoundError:
            continue  # another run removed it
        files.append((status.st_mtime, status.st_size, file))
    total = sum(size for _, size, _ in files)
    for _, size, file in sorted(files):
        if total <= most_bytes:
            break
        file.unlink(missing_ok=True)
        total -= size


def said_of(file: str | None) -> str:
    """A file's path and size, which tell versions apart."""
    return f"{file} {os.path.getsize(file)}" if file and os.path.exists(file) else ""


@dataclasses.dataclass
class Compiler:
    """The NVRTC that programs of a build find."""

    path: str
    memo: pathlib.Path  # the library that remembers what it makes

    @classmethod
    def of(cls, builds: list[pathlib.Path], environment: dict) -> Compiler | None:
        """Of the first build that has the command and the memo; None where there is none, or no NVRTC."""
        for build in builds:
            tool, memo = build / "tools/sparsekiln", build / _MEMO
            if tool.exists() and memo.exists():
                said = subprocess.run([tool, "doctor", "--json"], capture_output=True, text=True, env=environment).stdout
                path = json.loads(said)["nvrtc"].get("path") if said else None
                return cls(path, memo.resolve()) if path else None
        return None

    @property
    def said(self) -> str:
        return said_of(self.path)

    def remembering(self, where: pathlib.Path) -> dict[str, str]:
        """The variables with which programs take the library that remembers; none where the folder cannot be made."""
        try:
            where.mkdir(parents=True, exist_ok=True)
        except OSError:
            return {}
        return {"SPARSEKILN_NVRTC": str(self.memo), "SPARSEKILN_MEMO_NVRTC": self.path, "SPARSEKILN_MEMO": str(where)}
