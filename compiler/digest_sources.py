"""Writes compiler_digest(): a SHA-256 over the sources of compiler/, templates/ and the public headers.

File names (relative to the project) and contents count; absolute paths, times and what else is in the tree do not. Nor
do files whose names end in _tuning: what the tuner knows of families of kernels, which decides no byte of a Binary.
"""

import hashlib
import pathlib
import sys


def main(output: str, root: str, depfile: str) -> None:
    base = pathlib.Path(root)
    files = sorted(
        path
        for room in ("compiler", "templates", "include")
        for path in (base / room).rglob("*")
        if path.suffix in {".h", ".cpp", ".cuh"} and not path.stem.endswith("_tuning")
    )
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(base).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    pathlib.Path(output).write_text(
        '#include "compiler/build.h"\n\n'
        "namespace sparsekiln {\n\n"
        f'std::string_view compiler_digest() {{ return "{digest.hexdigest()}"; }}\n\n'
        "}  // namespace sparsekiln\n"
    )
    pathlib.Path(depfile).write_text(f"{output}: {' '.join(str(path) for path in files)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
