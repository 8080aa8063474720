"""The snippets of a document: what is fenced, with its language, the line it begins in, and the mark above it."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
_FENCED = re.compile(r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\S*)\n(?P<code>.*?)^```$", re.M | re.S)


@dataclasses.dataclass(frozen=True)
class Snippet:
    language: str
    code: str
    line: int  # its first line of code, in the document
    mark: str  # of a comment in the line above: "file: NAME", "not run: REASON", or nothing

    @property
    def file(self) -> str:
        """The name of the file that it shows; empty if it is none."""
        return self.mark.removeprefix("file: ") if self.mark.startswith("file: ") else ""

    @property
    def runs(self) -> bool:
        return not self.mark.startswith("not run: ")


def snippets(text: str) -> list[Snippet]:
    return [
        Snippet(found["language"], found["code"], text.count("\n", 0, found.start("code")) + 1, found["mark"] or "")
        for found in _FENCED.finditer(text)
    ]


def program(found: list[Snippet]) -> str:
    """The Python of a document, each line where the document has it, so that a traceback names that line."""
    lines: list[str] = []
    for one in found:
        if one.language == "python" and not one.file and one.runs:
            lines += [""] * (one.line - 1 - len(lines)) + one.code.splitlines()
    return "\n".join([*lines, ""])


def not_fenced(text: str) -> list[str]:
    """Lines of code that are indented instead of fenced, with their numbers: nothing would run them."""
    fenced: set[int] = set()
    for one in snippets(text):
        fenced.update(range(one.line, one.line + one.code.count("\n")))
    return [f"{number}: {line}" for number, line in enumerate(text.splitlines(), 1) if line.startswith("    ") and number not in fenced]
