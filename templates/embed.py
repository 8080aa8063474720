"""Embeds templates into a C++ source that answers templates::text(file name), without comments: so that these change no
kernel."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "compiler"))
sys.dont_write_bytecode = True

from cpp_tokens import without_comments  # noqa: E402


def literal(text: str) -> str:
    """Raw string literals, in pieces below the length that compilers must accept."""
    pieces = [text[i : i + 8000] for i in range(0, len(text), 8000)] or [""]
    return "\n      ".join(f'R"embedded({piece})embedded"' for piece in pieces)


def main(output: str, inputs: list[str]) -> None:
    cases = "".join(
        f'  if (file == "{path.name}")\n    return {literal(without_comments(path.read_text()))};\n'
        for path in map(pathlib.Path, inputs)
    )
    pathlib.Path(output).write_text(
        "#include <string>\n\n"
        "#include <sparsekiln/error.h>\n\n"
        '#include "templates/templates.h"\n\n'
        "namespace sparsekiln::templates {\n\n"
        "std::string_view text(std::string_view file) {\n"
        f"{cases}"
        '  throw Error(ErrorKind::internal, "no template is called \'" + std::string(file) + "\'");\n'
        "}\n\n"
        "}  // namespace sparsekiln::templates\n"
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
