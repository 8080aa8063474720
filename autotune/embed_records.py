"""Embeds the tuning records of autotune/records/ into a C++ source that answers shipped_record_lines()."""

import pathlib
import sys


def main(output: str, inputs: list[str]) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in map(pathlib.Path, inputs))
    # Pieces below the length that compilers must accept of one literal.
    pieces = [text[i : i + 8000] for i in range(0, len(text), 8000)] or [""]
    literal = "\n      ".join(f'R"embedded({piece})embedded"' for piece in pieces)
    pathlib.Path(output).write_text(
        '#include "autotune/shipped_records.h"\n\n'
        "namespace sparsekiln {\n\n"
        f"std::string_view shipped_record_lines() {{\n  return {literal};\n}}\n\n"
        "}  // namespace sparsekiln\n"
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
