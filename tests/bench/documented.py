"""How the documents call programs and scripts of bench/."""

import pathlib
import re
import shlex

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def documented(name: str) -> list[list[str]]:
    """The arguments of each call of a program or script that the documents show."""
    pattern = rf"`(?:python3 )?(?:bench/)?{name} ([^`]+)`|^ +python3 bench/{name} ([^#\n]+)"
    texts = [file.read_text() for file in (_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md")))]
    return [shlex.split(inline or block) for text in texts for inline, block in re.findall(pattern, text, re.M)]
