"""Exits with 0 where all packages of a requirements file are installed, in versions that it takes: installed.py FILE"""

import importlib.metadata
import pathlib
import re
import sys


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))


def installed(requirement: str) -> bool:
    name, relation, version = re.fullmatch(r"([\w-]+)(>=|==)?([\d.]*)", requirement).groups()
    try:
        found = numbers(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False
    return relation is None or (found == numbers(version) if relation == "==" else found >= numbers(version))


sys.exit(0 if all(map(installed, pathlib.Path(sys.argv[1]).read_text().split())) else 1)
