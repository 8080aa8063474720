"""Which tests need not be repeated: those that passed on this machine with the files that they depend on.

Meson's list says of a test that it belongs to a suite of DEPENDS. Its programs are then taken as unchanged while no file of
that suite's folders has changed, and the build's options and compilers are the same.
"""

import functools
import hashlib
import json
import pathlib
import subprocess

from counting import Count

_ROOT = pathlib.Path(__file__).resolve().parent.parent
# The emulator includes nothing of ours.
DEPENDS = {"emulator": ("emulator", "tests/emulator", "tests/conformance", "tests/main.cpp", "meson.build", "tests/meson.build")}


def files_of(entries: tuple[str, ...], root: pathlib.Path = _ROOT) -> list[pathlib.Path]:
    found: list[pathlib.Path] = []
    for entry in entries:
        path = root / entry
        found += [path] if path.is_file() else (file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return sorted(found)


class Gate:
    """What has passed, as files in `folder` with the number of cases, for tests of one build folder."""

    def __init__(self, folder: pathlib.Path, build: pathlib.Path, root: pathlib.Path = _ROOT):
        self._folder, self._build, self._root = folder, build.resolve(), root

    def passed(self, test: dict) -> int:
        """The cases that passed when all that the test depends on was the same; 0 if that is not known."""
        file = self._file(test)
        return int(file.read_text()) if file and file.exists() else 0

    def note(self, test: dict, count: Count) -> None:
        """That a test passed. One of which a part was skipped is repeated: what it lacked may be there then."""
        file = self._file(test)
        if file and count.passed and not count.failed and not count.skipped:
            file.parent.mkdir(parents=True, exist_ok=True)
            made = file.with_suffix(".new")
            made.write_text(str(count.passed))
            made.rename(file)

    def _file(self, test: dict) -> pathlib.Path | None:
        suites = [name for name in (suite.rpartition(":")[2] for suite in test["suite"]) if name in DEPENDS]
        if not suites:
            return None
        # Where build and tree lie does not matter.
        command = json.dumps([test["cmd"], test["env"]]).replace(str(self._build), "BUILD").replace(str(self._root), "TREE")
        total = hashlib.sha256(f"{test['name']}\0{command}\0{self._options}\0".encode())
        for suite in suites:
            total.update(self._digest(suite))
        return self._folder / total.hexdigest()

    @functools.cached_property
    def _options(self) -> str:
        info = self._build / "meson-info"
        options = {one["name"]: one["value"] for one in json.loads((info / "intro-buildoptions.json").read_text())}
        chosen = {name: options.get(name) for name in ("buildtype", "optimization", "cpp_args", "cpp_link_args", "cpp_std")}
        targets = json.loads((info / "intro-targets.json").read_text())
        compilers = {tuple(one["compiler"]) for target in targets for one in target["target_sources"] if "compiler" in one}
        versions = [
            subprocess.run([*one, "--version"], capture_output=True, text=True).stdout for one in sorted(compilers) if one
        ]
        return json.dumps([chosen, versions], sort_keys=True)

    @functools.lru_cache
    def _digest(self, suite: str) -> bytes:
        total = hashlib.sha256()
        for file in files_of(DEPENDS[suite], self._root):
            content = file.read_bytes()
            total.update(f"{file.relative_to(self._root)}\0{len(content)}\0".encode())
            total.update(content)
        return total.digest()
