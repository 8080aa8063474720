"""Checks what no compiler checks: which module includes which, circles of includes, what lies at the top, stray paths,
file length, functions of Python that replace others.

Prints one line a finding (file, line, what is wrong) and exits 1 if there is any.
"""

import ast
import pathlib
import re
import subprocess
import sys

# Which module may include which; each may include itself and, except for the emulator, the public headers.
_MAY_INCLUDE = {
    "include": set(),
    "templates": set(),
    "system": set(),
    "cache": {"system"},
    "compiler": {"system", "templates"},
    "autotune": {"compiler", "cache"},
    "oracle": {"compiler", "system"},
    "runtime": {"oracle", "autotune", "compiler", "cache", "system"},
    "tools": {"runtime", "oracle", "autotune", "compiler", "cache", "system", "templates"},
    "emulator": set(),
    "examples": set(),
    "python": {"tools"},
}
# The emulator stands alone, and its users see one header of it: what it has beside cuda.h, in C, as a program that
# loads the library would.
_EMULATOR_FACE = "emulator/control.h"
_SEPARATE = {(f"{module}/cuda", f"{module}/cpu") for module in ("compiler", "autotune", "runtime")}  # within one module
# Which kind a target is concerns its backend alone, and the type.
_KIND_OF_TARGET = re.compile(r"(?<!Driver)Kind::(?:cuda|cpu)\b")
_OF_BACKENDS = re.compile(r"/(?:cuda|cpu)/|^(?:include/sparsekiln|compiler)/target\.(?:h|cpp)$")
_NO_CLOCK = {"compiler", "templates"}
_TOP = {
    *("meson.build meson_options.txt pyproject.toml dev README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md LICENSE .clang-format .gitignore .ci".split()),
    *("include system compiler templates autotune oracle cache runtime emulator tools python tests bench examples docs packaging".split()),
}
_LONGEST = 700
_BY_PROGRAMS = ("tests/emulator/triton/ptx/", "tests/conformance/golden/", "bench/measured/")  # not for people to read
_INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
_SOURCES = {".h", ".cpp", ".cuh"}
_STRAY_PATH = re.compile(r"(?<![\w.~}])/(?:home|work|opt|root|Users)/\w+")


def include_finding(file: str, quote: str, target: str) -> str | None:
    module = file.partition("/")[0]
    if module not in _MAY_INCLUDE:
        return None
    if module in _NO_CLOCK and target in ("chrono", "ctime", "time.h"):
        return f"{module} may not read a clock, but includes <{target}>"
    if target.startswith("sparsekiln/"):
        return "the emulator stands alone" if module == "emulator" else None
    to_module = target.partition("/")[0]
    if quote == "<" or "/" not in target or to_module == module:
        for one, other in _SEPARATE | {(b, a) for a, b in _SEPARATE}:
            if file.startswith(f"{one}/") and target.startswith(f"{other}/"):
                return f"{one} may not include {other}"
        return None
    if to_module not in _MAY_INCLUDE[module] and (module, target) != ("runtime", _EMULATOR_FACE):
        return f"{module} may not include {to_module}"
    return None


def asks_for_kind(file: str, line: str) -> bool:
    module = file.partition("/")[0]
    return module in _MAY_INCLUDE and not _OF_BACKENDS.search(file) and _KIND_OF_TARGET.search(line) is not None


def findings(file: str, text: str):
    lines = text.splitlines()
    if len(lines) > _LONGEST and not file.startswith(_BY_PROGRAMS):
        yield f"{file}: {len(lines)} lines, {_LONGEST} at most"
    for number, line in enumerate(lines, 1):
        include = _INCLUDE.match(line)
        if include and pathlib.PurePath(file).suffix in _SOURCES:
            finding = include_finding(file, *include.groups())
            if finding:
                yield f"{file}:{number}: {finding}"
        if asks_for_kind(file, line):
            yield f"{file}:{number}: asks which kind a target is: that is a row of its backend"
        stray = _STRAY_PATH.search(line)
        if stray:
            yield f"{file}:{number}: a path of one machine: {stray.group()}"
    if file.endswith(".py"):
        yield from overwritten(file, text)


def overwritten(file: str, text: str):
    """Functions that another one of the same name replaces, such as tests that never run."""
    defined: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name != "_":
            if node.name in defined:
                yield f"{file}:{node.lineno}: {node.name} is defined above, too; only this one remains"
            defined.add(node.name)


def includes_of(texts: dict[str, str]) -> dict[str, dict[str, str]]:
    """By the stem of each source: the stems that it includes, each with "FILE:LINE" of one include.

    A header and the source file beside it have one stem. A public header has its own: what implements it lies elsewhere.
    """
    graph: dict[str, dict[str, str]] = {}
    for file in sorted(texts):
        path = pathlib.PurePosixPath(file)
        stem = str(path.with_suffix(""))
        to = graph.setdefault(stem, {})
        for number, line in enumerate(texts[file].splitlines(), 1):
            include = _INCLUDE.match(line)
            if not include:
                continue
            target = include[2]
            for candidate in (target, f"include/{target}", f"templates/{target}", str(path.parent / target)):
                if candidate in texts:
                    other = str(pathlib.PurePosixPath(candidate).with_suffix(""))
                    if other != stem:
                        to.setdefault(other, f"{file}:{number}")
                    break
    return graph


def components(graph: dict[str, dict[str, str]]) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []
    for root in sorted(graph):
        if root in order:
            continue
        open_nodes = [(root, iter(sorted(graph[root])))]
        while open_nodes:
            node, successors = open_nodes[-1]
            if node not in order:
                order[node] = lowest[node] = len(order)
                stack.append(node)
            for successor in successors:
                if successor not in order:
                    open_nodes.append((successor, iter(sorted(graph[successor]))))
                    break
                if successor in stack:
                    lowest[node] = min(lowest[node], order[successor])
            else:
                open_nodes.pop()
                if open_nodes:
                    above = open_nodes[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] == order[node]:
                    at = stack.index(node)
                    if len(stack) - at > 1:
                        found.append(sorted(stack[at:]))
                    del stack[at:]
    return sorted(found)


def shortest_circle(graph: dict[str, dict[str, str]], component: list[str]) -> list[str]:
    """From the component's first node back to it, that node at both ends."""
    start = component[0]
    came_from = {start: start}
    queue = [start]
    for node in queue:
        for successor in sorted(set(graph[node]) & set(component)):
            if successor == start:
                circle = [start, node]
                while circle[-1] != start:
                    circle.append(came_from[circle[-1]])
                return circle[::-1]
            if successor not in came_from:
                came_from[successor] = node
                queue.append(successor)
    raise AssertionError("a component is strongly connected")


def circles(texts: dict[str, str]):
    """One finding for each set of files that include one another in a circle, with one circle of it in full."""
    graph = includes_of(texts)
    for component in components(graph):
        circle = shortest_circle(graph, component)
        first = graph[circle[0]][circle[1]]
        others = f", in a knot of {len(component)} files" if len(component) > len(circle) - 1 else ""
        yield f"{first}: files include one another in a circle: {' → '.join(circle)}{others}"


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = []
    sources = {}
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
        if pathlib.PurePath(file).suffix in _SOURCES:
            sources[file] = text
    found.extend(circles(sources))
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
