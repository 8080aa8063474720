"""The King James Bible, as Debian ships it: 31102 verses that the examples learn from, and are measured on."""

import functools
import re
import subprocess


@functools.cache
def books() -> dict[str, list[str]]:
    """Verses by book, both in the order of the Bible; books as `bible` abbreviates them, such as "Ge", "1Sm", "Psa", "Rev"."""
    try:
        printed = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, check=True, text=True).stdout
    except FileNotFoundError:
        raise SystemExit("the text of this example is the package bible-kjv of Debian: apt-get install bible-kjv") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"bible, of the package bible-kjv of Debian, failed: {error.stderr.strip() or error}") from None
    found: dict[str, list[str]] = {}
    for book, verse in re.findall(r"^(\d?[A-Za-z]+)\d+:\d+ (.+?)\s*$", printed, re.MULTILINE):
        found.setdefault(book, []).append(verse)
    return found


def verses() -> list[str]:
    """All verses in the order of the Bible, without their numbers."""
    return [verse for book in books().values() for verse in book]


def text() -> str:
    """The whole text, a line a verse."""
    return "\n".join(verses())
