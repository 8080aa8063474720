"""What goes into the wheel, as `meson install` puts it there, works from its folder with no compiler on the path."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from try_wheel import PROGRAM

_SOURCES = pathlib.Path(__file__).resolve().parent.parent.parent / "python" / "sparsekiln"
_HEADERS = _SOURCES.parent.parent / "include/sparsekiln"
_BUILD = os.environ["SPARSEKILN_BUILD"]

_PLACES = """
import os, pathlib, sparsekiln
package = pathlib.Path(sparsekiln.__file__).parent
assert os.environ["SPARSEKILN_EMULATOR"] == str(package / "libsparsekiln_emulator.so"), os.environ
assert pathlib.Path(sparsekiln.get_include(), "sparsekiln/c.h").is_file()
"""


class InstalledPackage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="sparsekiln-installed-")
        cls.addClassCleanup(holder.cleanup)
        cls.home = pathlib.Path(holder.name, "installed")
        cls.alone = pathlib.Path(holder.name, "alone")
        subprocess.run(
            ["meson", "install", "-C", _BUILD, "--no-rebuild", "--quiet", "--tags", "python-runtime", "--destdir", cls.home],
            check=True,
        )
        packages = {file.parent for file in cls.home.rglob("sparsekiln/__init__.py")}
        assert len(packages) == 1, packages
        cls.package = packages.pop()

    def test_the_extension_lies_beside_all_modules_the_emulator_and_the_headers_and_nothing_else_is_installed(self):
        wanted = {str(file.relative_to(_SOURCES)) for file in _SOURCES.rglob("*.py*") if "__pycache__" not in file.parts}
        wanted |= {"py.typed", "libsparsekiln_emulator.so"}
        wanted |= {f"include/sparsekiln/{file.name}" for file in _HEADERS.iterdir()}
        installed = {str(file.relative_to(self.package)) for file in self.home.rglob("*") if file.is_file()}
        extensions = installed - wanted - {"_torch_operators.so"}  # it is there if the headers of a PyTorch were found
        self.assertEqual(wanted - installed, set())
        self.assertEqual(len(extensions), 1, extensions)
        self.assertRegex(extensions.pop(), r"^_core\..*\.so$")

    def test_a_layer_compiles_with_no_compiler_on_the_path(self):
        import numpy

        folder = self.alone
        folder.mkdir()
        for name, target in (("sparsekiln", self.package), ("numpy", pathlib.Path(numpy.__file__).parent)):
            (folder / name).symlink_to(target)
        libraries = pathlib.Path(numpy.__file__).parent.parent / "numpy.libs"
        if libraries.is_dir():
            (folder / "numpy.libs").symlink_to(libraries)
        bare = {"PATH": str(folder), "HOME": str(folder), "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1",
                "SPARSEKILN_CACHE_DIR": f"{folder}/cache"}
        for command in (["-c", PROGRAM], ["-c", _PLACES], ["-m", "sparsekiln", "--version"]):
            done = subprocess.run([sys.executable, "-S", *command], cwd=folder, env=bare, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
