"""packaging/components.json lists all that is compiled or linked into what the wheel has: the extension, the operators of PyTorch and the emulator.

What the build used is in ninja's log: the headers of each object, and the archives that the links name.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_BUILD = pathlib.Path(os.environ["SPARSEKILN_BUILD"])
sys.path.insert(0, str(_ROOT / "packaging/wheel"))

import sbom  # noqa: E402

# Declarations of what a program finds where it runs: glibc and the kernel, CPython, the CUDA driver.
_DECLARATIONS = re.compile(
    r"/include/(x86_64-linux-gnu/)?(bits|sys|gnu|asm|asm-generic|linux|arpa|net|netinet|rpc)/|/include/(x86_64-linux-gnu/)?python3[^/]*/"
    r"|/include/python3|/include/[a-z0-9_-]+\.h$|/nvidia/[^/]*/include/|/cuda[^/]*/include/"
)


def _ninja(*arguments: str) -> str:
    return subprocess.run(["ninja", "-C", _BUILD, "-t", *arguments], check=True, capture_output=True, text=True).stdout


@unittest.skipUnless(shutil.which("ninja"), "no ninja")
class Components(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cores = [str(file.relative_to(_BUILD)) for file in _BUILD.glob("python/sparsekiln/_core.*.so")]
        operators = [str(file.relative_to(_BUILD)) for file in _BUILD.glob("python/sparsekiln/_torch_operators.so")]
        cls.targets = [*cores, *operators, "emulator/driver/libsparsekiln_emulator.so"]
        inputs = {line for target in cls.targets for line in _ninja("inputs", target).splitlines()}
        cls.headers = set()
        wanted = False
        for line in _ninja("deps").splitlines():
            if line and not line.startswith(" "):
                wanted = line.partition(":")[0] in inputs
            elif wanted and line.strip():
                cls.headers.add(os.path.normpath(_BUILD / line.strip()))
        cls.own = (f"{_ROOT}/", f"{_BUILD}/")
        cls.packages = f"{_ROOT}/.venv/"

    def test_every_header_is_a_components_or_a_declaration(self):
        self.assertGreater(len(self.headers), 100)
        patterns = [re.compile(pattern) for component in sbom.components() for pattern in component["headers"]]
        unknown = []
        for header in sorted(self.headers):
            if header.startswith(self.own) and not header.startswith(self.packages):
                continue
            if not any(pattern.search(header) for pattern in patterns) and not _DECLARATIONS.search(header):
                unknown.append(header)
        self.assertEqual(unknown, [], "in no component of packaging/components.json")

    def test_every_archive_is_a_components(self):
        patterns = [pattern for component in sbom.components() for pattern in component["archives"]]
        archive = re.compile(rf"(?:{'|'.join(patterns)})\.a")
        unknown, found = set(), set()
        for target in self.targets:
            link = _ninja("commands", "-s", target)
            for file in re.findall(r"(?<=\s)(/\S+\.a)\b", link):
                if file.startswith(self.own):
                    continue
                (found if archive.fullmatch(pathlib.Path(file).name.removeprefix("lib")) else unknown).add(file)
        self.assertEqual(unknown, set())
        if any("_core" in target for target in self.targets):
            self.assertTrue(any("LLVM" in file for file in found), found)

    def test_every_component_with_headers_is_used(self):
        if not any("_core" in target for target in self.targets):
            self.skipTest("the Python package was not built")
        for component in sbom.components():
            if component["headers"] and component["name"] not in ("XLA FFI", "PyTorch, headers"):  # used where they are installed
                used = any(re.search(pattern, header) for pattern in component["headers"] for header in self.headers)
                self.assertTrue(used, f"{component['name']} is listed, but no header of it is included")


class Glibc(unittest.TestCase):
    def test_no_code_waits_as_the_glibc_of_wheels_cannot(self):
        """Waits of the C++ library by the steady clock, which takes what glibc has from 2.30 on; wheels are for 2.28. Linked with
        stubs of that, they would fail after minutes."""
        archives = sorted(_BUILD.glob("libsparsekiln*.a"))
        self.assertTrue(archives)
        for archive in archives:
            said = subprocess.run(["nm", "-u", archive], check=True, capture_output=True, text=True).stdout
            self.assertIn(" pthread_", said)
            self.assertEqual(re.findall(r"\b(?:pthread_\w+_clock\w*|sem_clockwait)\b", said), [], archive.name)


if __name__ == "__main__":
    unittest.main()
