"""How the scripts of this folder are called, and how a result goes into a document, between the marks

    <!-- bench/NAME.py writes from here -->
    <!-- to here -->
"""

import argparse
import pathlib
from collections.abc import Iterable

SHORT = "small layers, a few times each: seconds that say whether this works, and figures that mean nothing"


def parser(description: str, *, build: bool = True) -> argparse.ArgumentParser:
    """With --short, which all scripts and programs here have, and BUILD_DIR."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if build:
        made.add_argument("build", type=pathlib.Path, metavar="BUILD_DIR")
    made.add_argument("--short", action="store_true", help=SHORT)
    return made


def table(columns: list[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """The lines of a table of Markdown."""
    head, *lines = [f"| {' | '.join(map(str, cells))} |" for cells in [columns, *rows]]
    return [head, f"|{'---|' * len(columns)}", *lines]


def marks(script: str) -> tuple[str, str]:
    return f"<!-- bench/{pathlib.Path(script).name} writes from here -->", "<!-- to here -->"


def add_write(to: argparse.ArgumentParser, script: str) -> None:
    """--write FILE, refused at once if the file lacks the marks of `script`."""

    def document(text: str) -> pathlib.Path:
        path = pathlib.Path(text)
        begin, end = marks(script)
        if end not in path.read_text().partition(begin)[2]:
            raise argparse.ArgumentTypeError(f"{text} lacks the marks {begin} and {end}")
        return path

    to.add_argument("--write", type=document, metavar="FILE", help="puts the result between its marks in this document")


def write(document: pathlib.Path, text: str, script: str) -> None:
    begin, end = marks(script)
    before, rest = document.read_text().split(begin)
    after = rest.split(end, maxsplit=1)[1]
    document.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")
