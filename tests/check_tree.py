"""Checks what no compiler checks: which room includes which, what lies at the top, stray paths, file length.

Prints one line a finding (file, line, what is wrong) and exits 1 if there is any.
"""

import pathlib
import re
import subprocess
import sys

# Who may include whom; a room may always include itself and, but for the emulator, the public headers.
_MAY_INCLUDE = {
    "include": set(),
    "templates": set(),
    "cache": set(),
    "compiler": {"templates"},
    "autotune": {"compiler", "cache"},
    "oracle": {"compiler"},
    "runtime": {"oracle", "autotune", "compiler", "cache"},
    "tools": {"runtime", "oracle", "autotune", "compiler", "cache", "templates"},
    "emulator": set(),
    "examples": set(),
    "python": {"tools"},
}
# The emulator stands alone, and its users see one header of it: what it has beside cuda.h, in C, as a program that
# loads the library would.
_EMULATOR_FACE = "emulator/control.h"
_SEPARATE = {("compiler/cuda", "compiler/cpu"), ("runtime/cuda", "runtime/cpu")}  # within one room
_NO_CLOCK = {"compiler", "templates"}
_TOP = {
    *("meson.build meson_options.txt pyproject.toml dev README.md ARCHITECTURE.md LICENSE .clang-format .gitignore .ci".split()),
    *("include compiler templates autotune oracle cache runtime emulator tools python tests bench examples docs".split()),
}
_LONGEST = 700
_BY_PROGRAMS = ("tests/emulator/triton/ptx/", "docs/examples/")  # not for people to read
_INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
_STRAY_PATH = re.compile(r"(?<![\w.~}])/(?:home|work|opt|root|Users)/\w+")


def include_finding(file: str, quote: str, target: str) -> str | None:
    room = file.partition("/")[0]
    if room not in _MAY_INCLUDE:
        return None
    if room in _NO_CLOCK and target in ("chrono", "ctime", "time.h"):
        return f"{room} knows no clock, but includes <{target}>"
    if target.startswith("sparsekiln/"):
        return "the emulator stands alone" if room == "emulator" else None
    to_room = target.partition("/")[0]
    if quote == "<" or "/" not in target or to_room == room:
        for one, other in _SEPARATE | {(b, a) for a, b in _SEPARATE}:
            if file.startswith(f"{one}/") and target.startswith(f"{other}/"):
                return f"{one} may not include {other}"
        return None
    if to_room not in _MAY_INCLUDE[room] and (room, target) != ("runtime", _EMULATOR_FACE):
        return f"{room} may not include {to_room}"
    return None


def findings(file: str, text: str):
    lines = text.splitlines()
    if len(lines) > _LONGEST and not file.startswith(_BY_PROGRAMS):
        yield f"{file}: {len(lines)} lines, {_LONGEST} at most"
    for number, line in enumerate(lines, 1):
        include = _INCLUDE.match(line)
        if include and pathlib.PurePath(file).suffix in {".h", ".cpp", ".cuh"}:
            finding = include_finding(file, *include.groups())
            if finding:
                yield f"{file}:{number}: {finding}"
        stray = _STRAY_PATH.search(line)
        if stray:
            yield f"{file}:{number}: a path of one machine: {stray.group()}"


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = []
    for file in sorted(set(filter(None, listed.split("\0")))):
        if file.partition("/")[0] not in _TOP:
            found.append(f"{file}: nothing else belongs at the top")
        if file == "LICENSE" or not (root / file).is_file():
            continue
        try:
            text = (root / file).read_text()
        except UnicodeDecodeError:
            continue  # a picture, a layout, a fuzzer's seed
        found.extend(findings(file, text))
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
