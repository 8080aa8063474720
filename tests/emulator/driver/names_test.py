"""The exports of the emulator's library: names that cuda.h (or control.h) declares, all of which libcuda has as well.

SPARSEKILN_EMULATOR names the library, SPARSEKILN_CUDA_HEADER the cuda.h that it was built with. The compiler has checked
that a function has the type that cuda.h gives it, since the library includes cuda.h.
"""

import glob
import os
import pathlib
import re
import subprocess
import unittest

_LIBRARY = os.environ["SPARSEKILN_EMULATOR"]
_HEADER = pathlib.Path(os.environ["SPARSEKILN_CUDA_HEADER"])
_CONTROL = pathlib.Path(__file__).resolve().parents[3] / "emulator" / "control.h"


def exported(library: str) -> set[str]:
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    return {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines()}


def declared(header: pathlib.Path, prefix: str) -> set[str]:
    """Names that a header declares, calls by a macro, or (cuda.h's older interfaces) mentions."""
    return set(re.findall(rf"\b({prefix}[A-Z]\w*)", header.read_text()))


def libcuda() -> str | None:
    """The toolkit's stub, which is there to be linked with, or a real one."""
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    patterns = [f"{folder}/{lib}/stubs/libcuda.so" for folder in folders if folder for lib in ("lib64", "lib", "targets/*/lib")]
    found = [path for pattern in patterns for path in glob.glob(pattern)]
    return found[0] if found else None


class NamesTest(unittest.TestCase):
    def test_only_the_two_interfaces_are_exported(self):
        names = exported(_LIBRARY)
        self.assertGreater(len(names), 100)
        self.assertEqual({name for name in names if not re.match(r"(cu|emulator)[A-Z]", name)}, set())

    def test_every_driver_function_is_one_of_cuda_h(self):
        functions = {name for name in exported(_LIBRARY) if name.startswith("cu")}
        self.assertEqual(functions - declared(_HEADER, "cu"), set())

    def test_the_control_functions_are_those_of_control_h(self):
        functions = {name for name in exported(_LIBRARY) if name.startswith("emulator")}
        self.assertEqual(functions, set(re.findall(r"\b(emulator[A-Z]\w*)\(", _CONTROL.read_text())))

    def test_the_library_has_a_name_of_its_own(self):
        shown = subprocess.run(["readelf", "-d", _LIBRARY], capture_output=True, text=True, check=True).stdout
        self.assertIn("[libsparsekiln_emulator.so]", shown)
        self.assertNotIn("libcuda", shown)

    @unittest.skipUnless(libcuda(), "no CUDA toolkit with its stub libcuda here")
    def test_every_driver_function_is_one_that_libcuda_exports(self):
        functions = {name for name in exported(_LIBRARY) if name.startswith("cu")}
        self.assertEqual(functions - exported(libcuda()), set())


if __name__ == "__main__":
    unittest.main()
