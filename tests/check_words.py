"""Checks comments, titles, messages and documents for words that must not return, and the glossary of ARCHITECTURE.md.

Prints one line for each finding (file, line, what is wrong) and exits 1 if there is any. `python3 tests/check_words.py FILE…`
checks these files instead of the folders below.
"""

import io
import pathlib
import re
import subprocess
import sys
import tokenize

_ROOT = pathlib.Path(__file__).resolve().parent.parent
# Folders and files whose words have been gone through.
_CHECKED = (
    "include system compiler runtime autotune oracle tools templates cache emulator docs README.md ARCHITECTURE.md CHANGELOG.md dev bench examples "
    "packaging python tests/autotune tests/bench tests/cache tests/cli tests/compiler tests/conformance tests/counters tests/emulator "
    "tests/faults tests/fuzz tests/gpu tests/kernels tests/mutations tests/oracle tests/packaging tests/python tests/runtime tests/system "
    "tests/check_tree.py tests/check_tree_test.py tests/code_sections.py tests/code_sections_test.py"
).split()
# A word, and what to write instead.
_WORDS = {
    r"anew": "again",
    r"behind": "after",
    r"in the place of": "instead of, where … should be",
    r"as (?:it lies|they lie|it lay|they lay)": "in place, unpacked",
    r"held to": "checked against",
    r"an only|a lone|lone": "a single, a batch of one",
    r"house": "tree, module",
    r"to be had": "available",
    r"nobody|anybody": "no thread, no process",
    r"whoever": "the process that, the caller",
    r"thin": "few batch rows, small batch",
    r"batch entr(?:y|ies)": "batch row",
    r"verdicts?": "check result",
    r"gated pairs?": "GLU",
    r"cut edges?": "partial edge blocks",
}
_FIND = [(re.compile(rf"\b(?:{word})\b", re.I), instead) for word, instead in _WORDS.items()]
_FIND += [
    (re.compile(r"(?:^|(?<=[.!?] ))(?:Of|Likewise|Besides)(?= )(?! course)"), "a sentence that starts with its subject"),
    (re.compile(r"(?:^|(?<=[.!?] ))Nor(?= )"), "a sentence that starts with its subject"),
    # The capital letter says that a sentence begins here.
    (re.compile(r"\b(?:Those|That) of\b"), "the noun that it stands for, such as 'The end matrices of'"),
    (re.compile(r"\bThe same (?:of|for)\b"), "what it is, such as 'The overload for' or 'Points of all phases'"),
    (re.compile(r"\bWhat is\b"), "a noun, such as 'An output must not overlap' or 'The properties of'"),
]
_C_TEXT = re.compile(r'"((?:\\.|[^"\\\n])*)"|//+<?\s*([^\n]*)|/\*(.*?)\*/', re.S)
_KEYS = re.compile(r"`[^`]*`")  # names in documents and comments


def _c_texts(text: str):
    for match in _C_TEXT.finditer(text):
        if match[1] and " " not in match[1]:  # a key or a name
            continue
        first = text.count("\n", 0, match.start()) + 1
        for further, line in enumerate((match[1] or match[2] or match[3] or "").split("\n")):
            yield first + further, line.lstrip("* ")


def _python_texts(text: str):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or token.type == tokenize.STRING and " " in token.string:
            for further, line in enumerate(token.string.split("\n")):
                yield token.start[0] + further, line.strip().lstrip("#: \"'")


def _lines(text: str, begin: str):
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith(begin):
            yield number, line.strip().lstrip("# ")


def _markdown_texts(text: str):
    """Headings come without their marks, and without the words that only they may begin with."""
    for number, line in enumerate(text.split("\n"), 1):
        yield number, re.sub(r"^#+ +(?:What is\b)?", "", line.strip()).strip()


def _texts(file: str, text: str):
    """The texts of a file that people read, each with its line."""
    suffix = pathlib.PurePath(file).suffix
    if suffix in (".h", ".cpp", ".cuh", ".c"):
        return _c_texts(text)
    if suffix in (".py", ".pyi"):
        return _python_texts(text)
    if suffix == ".md":
        return _markdown_texts(text)
    if suffix == ".build" or file == "dev":
        return _lines(text, "#")
    return ()


def findings(file: str, text: str):
    for number, line in _texts(file, text):
        line = _KEYS.sub("", line)
        for word, instead in _FIND:
            if found := word.search(line):
                yield f"{file}:{number}: '{found[0]}': write {instead}"


def glossary_findings():
    """Each term of the glossary must occur in the file that the glossary names."""
    text = (_ROOT / "ARCHITECTURE.md").read_text()
    rows = [row.split(" | ") for row in re.findall(r"^\| (.*`) \|$", text.partition("## Glossary")[2].partition("\n## ")[0], re.M)]
    if not 0 < len(rows) <= 20:
        yield f"ARCHITECTURE.md: a glossary of {len(rows)} terms; 1 to 20 are expected"
    for terms, _, file in rows:
        path = _ROOT / file.strip("`")
        for term in terms.split(", "):
            if not path.is_file() or not re.search(rf"(?<![a-z]){re.escape(term)}", path.read_text(), re.I):
                yield f"ARCHITECTURE.md: the glossary's '{term}' is not in {file}"


def main(files: list[str]) -> int:
    listed = files or subprocess.run(
        ["git", "ls-files", "-z", "--", *_CHECKED], cwd=_ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    found = list(glossary_findings())
    for file in filter(None, listed):
        path = _ROOT / file
        if path.is_file() and (file == "dev" or path.suffix in (".h", ".cpp", ".cuh", ".c", ".py", ".pyi", ".md", ".build")):
            found.extend(findings(file, path.read_text()))
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
