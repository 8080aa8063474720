"""Puts the report's page together and embeds it into a C++ source that answers tools::page_template().

    embed_page.py OUTPUT PAGE.html FILE…

Where the page says "@NAME@", NAME being the name of a file, the file's text is put.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "templates"))
from embed import literal

# What would end the element or comment that a file is put into.
_ENDS = {".css": ["</style"], ".js": ["</script", "<!--"], ".txt": ["--"]}


def page(template: pathlib.Path, parts: list[pathlib.Path]) -> str:
    text = template.read_text(encoding="utf-8")
    for part in parts:
        content = part.read_text(encoding="utf-8")
        for end in _ENDS[part.suffix]:
            if end in content.lower():
                raise SystemExit(f"{part}: '{end}' would end the element that it is put into")
        if text.count(f"@{part.name}@") != 1:
            raise SystemExit(f"{template}: '@{part.name}@' must be there once")
        text = text.replace(f"@{part.name}@", content)
    return text


def main(output: str, template: str, parts: list[str]) -> None:
    pathlib.Path(output).write_text(
        '#include "tools/report_page.h"\n\n'
        "namespace sparsekiln::tools {\n\n"
        "std::string_view page_template() {\n"
        f"  return {literal(page(pathlib.Path(template), [*map(pathlib.Path, parts)]))};\n"
        "}\n\n"
        "}  // namespace sparsekiln::tools\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
