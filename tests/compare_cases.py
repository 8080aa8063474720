"""Which test cases are gone and which are new between two revisions: tests/compare_cases.py BEFORE [AFTER]

AFTER is HEAD if it is not given. A case is a TEST_CASE of doctest, a test of pytest or unittest, or a fuzzer's function, in a
file that a meson.build of the revision names. Cases are told apart by their names, not by their files. Prints a line for each
that is gone ("- NAME  FILE") or new ("+ NAME  FILE"), and the numbers; the exit status is 1 if any is gone.
"""

import ast
import pathlib
import re
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_DOCTEST = re.compile(r'^\s*(?:TEST_CASE|TEST_CASE_FIXTURE|SCENARIO)\((?:[A-Za-z_:]+,\s*)?((?:\s*"(?:\\.|[^"\\])*")+)', re.M)
_FUZZER = re.compile(r"LLVMFuzzerTestOneInput")


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(_ROOT), *arguments], check=True, capture_output=True, text=True).stdout


def cases_of(file: str, text: str) -> list[str]:
    if file.endswith(".py"):
        return python_cases(text)
    found = ["".join(re.findall(r'"((?:\\.|[^"\\])*)"', written)) for written in _DOCTEST.findall(text)]
    return found + [file for _ in _FUZZER.findall(text)[:1]]


def python_cases(text: str) -> list[str]:
    found = []
    for node in ast.parse(text).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        found += [one.name for one in members if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")]
    return found


def is_named(file: str, builds: dict[str, str]) -> bool:
    """Whether a meson.build in a folder of the file names it: as it is, or as the part of a name that is put together."""
    path = pathlib.PurePosixPath(file)
    names = {path.name, path.stem.removeprefix("test_")}
    texts = [builds[str(folder)] for folder in path.parents if str(folder) in builds]
    return any(re.search(rf"['/]{re.escape(name)}'", text) for name in names for text in texts)


def cases(revision: str) -> dict[str, str]:
    """The file of each case."""
    listed = git("ls-tree", "-r", "--name-only", revision, "tests").splitlines()
    builds = {str(pathlib.PurePosixPath(file).parent): git("show", f"{revision}:{file}") for file in listed if file.endswith("meson.build")}
    found: dict[str, str] = {}
    for file in listed:
        if file.endswith((".cpp", ".h", ".py")):
            for case in cases_of(file, git("show", f"{revision}:{file}")):
                if is_named(file, builds):
                    found[case] = file
                else:
                    print(f"! {case}  {file}, which no meson.build of {revision} names")
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    before, after = cases(arguments[0]), cases(arguments[1] if len(arguments) == 2 else "HEAD")
    gone, new = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    for case in gone:
        print(f"- {case}  {before[case]}")
    for case in new:
        print(f"+ {case}  {after[case]}")
    print(f"{len(before)} cases before, {len(after)} after: {len(gone)} gone, {len(new)} new")
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
