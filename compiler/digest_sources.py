"""Writes compiler_digest(): a SHA-256 over the tokens of all sources that decide what a Binary is.

What counts is stated here and nowhere else: every source of ROOMS, unless a pattern of LEFT_OUT matches its
path. A file counts by its path (relative to the project) and its tokens; comments, the space between tokens, absolute paths,
times and what else is in the tree do not count.

    digest_sources.py OUTPUT ROOT DEPFILE
"""

import hashlib
import pathlib
import re
import sys
from collections.abc import Iterator

ROOMS = ("compiler", "templates", "include")
SUFFIXES = {".h", ".cpp", ".cuh"}
# Decides no byte of a Binary of a given layout, problem, config and target. A new file counts.
LEFT_OUT = (
    "compiler/**/*_tuning.*",  # what the tuner knows of families of kernels
    "compiler/family_tuning.h",
    "compiler/layout_file*",  # layouts are identified by their blocks, wherever these come from
    "compiler/layout_file/*",
    "compiler/layout_picture.*",
    "compiler/pattern*",
    "compiler/row_trades.*",
    "compiler/tap_file.*",
    "compiler/pch/*",
)

# C++'s tokens, the longest spelling first where one begins like another (C++20, [lex.pptoken]).
_TOKEN = re.compile(
    r"""
    (?P<comment> //(?:\\\n|[^\n])* | /\*.*?\*/ )
  | (?P<space> (?:[ \t\r\f\v] | \\\n)+ )
  | (?P<newline> \n )
  | (?P<raw> (?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)" )
  | (?P<string> (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" )
  | (?P<character> (?:u8|[uUL])?'(?:\\.|[^'\\\n])+' )
  | (?P<number> \.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z_]|[0-9A-Za-z_.])* )
  | (?P<word> [^\W\d]\w* )
  | (?P<sign> %:%: | \.\.\. | <=> | <<= | >>= | ->\* | [-+*/%^&|=!<>]= | << | >> | && | \|\| | \+\+ | -- | -> | :: | \.\* | \#\# | . )
    """,
    re.X | re.S,
)


def tokens(text: str) -> Iterator[str]:
    """What a compiler reads, without comments and space. A directive has its end as a token."""
    directive = False
    before: list[str] = []  # the tokens of this line
    for found in _TOKEN.finditer(text):
        kind, token = found.lastgroup, found.group()
        if kind == "newline":
            if directive:
                yield token
            directive, before = False, []
        elif kind not in ("comment", "space"):
            directive = directive or token == "#" and not before
            # "#define F (x)" and "#define F(x)" differ by space alone.
            if directive and token == "(" and before[1:2] == ["define"] and len(before) == 3 and text[found.start() - 1].isspace():
                yield " "
            before.append(token)
            yield token


def counted(base: pathlib.Path) -> list[pathlib.Path]:
    """The files that count, in order. Raises ValueError where a pattern of LEFT_OUT matches none."""
    left_out: set[pathlib.Path] = set()
    for pattern in LEFT_OUT:
        matched = set(base.glob(pattern))
        if not matched:
            raise ValueError(f"{pattern} is left out of the digest, but nothing has such a name")
        left_out |= matched
    found = (path for room in ROOMS for path in (base / room).rglob("*") if path.suffix in SUFFIXES)
    return sorted(path for path in found if path not in left_out)


def digest(base: pathlib.Path, files: list[pathlib.Path]) -> str:
    total = hashlib.sha256()
    for path in files:
        read = "".join(f"{token}\0" for token in tokens(path.read_text()))
        total.update(f"{path.relative_to(base).as_posix()}\0{len(read)}\0{read}".encode())
    return total.hexdigest()


def main(output: str, root: str, depfile: str) -> None:
    base = pathlib.Path(root)
    files = counted(base)
    pathlib.Path(output).write_text(
        '#include "compiler/build.h"\n\n'
        "namespace sparsekiln {\n\n"
        f'std::string_view compiler_digest() {{ return "{digest(base, files)}"; }}\n\n'
        "}  // namespace sparsekiln\n"
    )
    pathlib.Path(depfile).write_text(f"{output}: {' '.join(str(path) for path in files)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
