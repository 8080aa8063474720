"""Which tests need not be repeated: those of the emulator, and those of kernels on it, that passed on this machine with the very
same files.

Meson's list says of a test that it belongs to suite `emulator` or `emulated`. The latter are programs that hold the whole compiler,
so that any change of it repeats them; some draw problems by the date, and each is repeated once a day. A test's files are those that its command, its environment and its
dependencies name: programs as they are built, scripts with what lies beside them, folders with all that is in them. A test of
the emulator that links the library or reads what NVRTC writes is thus repeated when these have changed, too.
"""

import datetime
import functools
import hashlib
import json
import os
import pathlib

from counting import Count

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_SUITES = {"emulator": False, "emulated": True}  # whether what its tests do depends on the date


def processor(what: str) -> str:
    """What /proc/cpuinfo says of the first one: its "model name", its "flags". Empty where it says nothing."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(what)), "")


def files_of(named: str, folder: pathlib.Path) -> list[pathlib.Path]:
    """What a word of a command stands for: itself if it is a file, with its neighbors if it is a script, or all of a folder.
    Empty if it is neither. Words without a folder are programs of the system."""
    path = folder / named
    if "/" not in named or not path.exists():
        return []
    if path.is_file() and path.suffix != ".py":
        return [path]
    inside = path if path.is_dir() else path.parent
    return sorted(file for file in inside.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


class Gate:
    """What has passed, as files in `folder` with the number of cases, for tests of one build folder. `beside` names what else
    decides what a test does: the NVRTC that it is given."""

    def __init__(self, folder: pathlib.Path, build: pathlib.Path, beside: str = "", root: pathlib.Path = _ROOT, day: str = ""):
        self._folder, self._build, self._beside, self._root = folder, build.resolve(), beside, root
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        self._day = day or f"{today} {os.environ.get('SPARSEKILN_TEST_SEED', '')}"
        self._keys: dict[str, str | None] = {}

    def passed(self, test: dict) -> int:
        """The cases that passed with the same files; 0 if that is not known. To be asked before the test runs."""
        key = self._key(test)
        try:
            return int((self._folder / key).read_text()) if key else 0
        except (OSError, ValueError):
            return 0

    def note(self, test: dict, count: Count) -> None:
        """That a test passed, with the files of when `passed` was asked. One of which a part was skipped is repeated: what it
        lacked may be there then. A folder that cannot be written remembers nothing."""
        key = self._keys.get(test["name"])
        if not key or not count.passed or count.failed or count.skipped:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / key).write_text(str(count.passed))
        except OSError:
            pass

    def _key(self, test: dict) -> str | None:
        if test["name"] not in self._keys:
            gated = [suite for suite in (named.rpartition(":")[2] for named in test["suite"]) if suite in _SUITES]
            self._keys[test["name"]] = self._made_key(test, _SUITES[gated[0]]) if gated else None
        return self._keys[test["name"]]

    def _made_key(self, test: dict, daily: bool) -> str:
        # Where build and tree lie does not matter.
        said = json.dumps([test["name"], test["cmd"], test["env"], self._beside, processor("model name"), processor("flags"),
                           self._day if daily else ""])  # fmt: skip
        total = hashlib.sha256(said.replace(str(self._build), "BUILD").replace(str(self._root), "TREE").encode())
        words = [*test["cmd"], *test["env"].values(), *self._made_by(test.get("depends", []))]
        for file in dict.fromkeys(file for word in words for file in files_of(word, self._build)):
            total.update(self._digest(file))
        return total.hexdigest()

    def _made_by(self, targets: list[str]) -> list[str]:
        return [file for target in targets for file in self._targets.get(target, [])]

    @functools.cached_property
    def _targets(self) -> dict[str, list[str]]:
        listed = self._build / "meson-info/intro-targets.json"
        return {target["id"]: target["filename"] for target in json.loads(listed.read_text())} if listed.exists() else {}

    @functools.lru_cache
    def _digest(self, file: pathlib.Path) -> bytes:
        return hashlib.sha256(file.read_bytes()).digest()
