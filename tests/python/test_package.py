"""What is installed is what lies in the source tree."""

import pathlib
import re

_PACKAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "python/sparsekiln"


def test_every_module_is_on_the_list_of_what_is_installed():
    listed = re.findall(r"'([\w.]+\.(?:pyi?|typed))'", (_PACKAGE / "meson.build").read_text())
    there = [file.name for file in _PACKAGE.rglob("*") if file.suffix in (".py", ".pyi", ".typed")]
    assert sorted(listed) == sorted(there)
