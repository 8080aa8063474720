"""Writes compiler_digest(): a SHA-256 over the tokens of all sources that decide what a Binary is.

What counts is stated here and nowhere else: every source of FOLDERS, unless a pattern of LEFT_OUT matches its
path. A file counts by its path (relative to the project) and its tokens; comments, the space between tokens, absolute paths,
times and what else is in the tree do not count. Templates are emitted without their comments (templates/embed.py), so
that a comment changes no byte of a Binary, either.

    digest_sources.py OUTPUT ROOT DEPFILE
"""

import hashlib
import pathlib
import sys

from cpp_tokens import tokens

FOLDERS = ("compiler", "templates", "include")
SUFFIXES = {".h", ".cpp", ".cuh"}
BESIDES = ("compiler/cpp_tokens.py", "templates/embed.py")  # decide how templates are emitted
# Decides no byte of a Binary of a given layout, problem, config and target. A new file counts.
LEFT_OUT = (
    "compiler/**/*_tuning.*",  # what the tuner knows of families of kernels
    "compiler/layout_file*",  # layouts are identified by their blocks, wherever these come from
    "compiler/layout_file/*",
    "compiler/layout_picture.*",
    "compiler/pattern*",
    "compiler/row_trades.*",
    "compiler/tap_file.*",
    "compiler/pch/*",
)


def counted(base: pathlib.Path) -> list[pathlib.Path]:
    """The files that count, in order. Raises ValueError where a pattern of LEFT_OUT matches none."""
    left_out: set[pathlib.Path] = set()
    for pattern in LEFT_OUT:
        matched = set(base.glob(pattern))
        if not matched:
            raise ValueError(f"{pattern} is left out of the digest, but nothing has such a name")
        left_out |= matched
    found = (path for folder in FOLDERS for path in (base / folder).rglob("*") if path.suffix in SUFFIXES)
    return sorted([*(path for path in found if path not in left_out), *(base / name for name in BESIDES)])


def digest(base: pathlib.Path, files: list[pathlib.Path]) -> str:
    total = hashlib.sha256()
    for path in files:
        text = path.read_text()
        read = text if path.suffix == ".py" else "".join(f"{token}\0" for token in tokens(text))
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
