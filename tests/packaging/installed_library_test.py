"""What `meson install` installs serves C++ programs, also after the folder has moved: find_package(sparsekiln) and pkg-config
build examples/first_light.cpp, which compiles a kernel and checks it, and the program of docs/cpp.md."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_BUILD = pathlib.Path(os.environ["SPARSEKILN_BUILD"])


def option(name: str) -> str:
    options = json.loads((_BUILD / "meson-info/intro-buildoptions.json").read_text())
    return next(entry["value"] for entry in options if entry["name"] == name)


class InstalledLibrary(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="sparsekiln-installed-")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        subprocess.run(
            ["meson", "install", "-C", _BUILD, "--no-rebuild", "--quiet", "--destdir", cls.folder / "there"], check=True
        )
        cls.prefix = cls.folder / "moved"
        (cls.folder / "there" / option("prefix").lstrip("/")).rename(cls.prefix)
        cls.libraries = cls.prefix / option("libdir")

    def run_program(self, program: pathlib.Path) -> None:
        cache = {"SPARSEKILN_CACHE_DIR": str(self.folder / "cache")}
        done = subprocess.run([program], env={**os.environ, **cache}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_no_installed_text_names_where_it_was_built(self):
        for file in [*self.libraries.rglob("*.cmake"), *self.libraries.rglob("*.pc")]:
            for place in (_ROOT, _BUILD, self.folder, option("prefix")):
                self.assertNotIn(f"{place}/", file.read_text(), file)

    @unittest.skipUnless(shutil.which("cmake"), "no cmake")
    @unittest.skipIf(option("cpu") == "disabled", "no cpu target")
    def test_cmake_finds_it(self):
        build = self.folder / "cmake"
        configure = ["cmake", "-S", _ROOT / "examples/installed", "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}"]
        for command in (configure, ["cmake", "--build", build]):
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.run_program(build / "first_light")

    @unittest.skipUnless(shutil.which("cmake"), "no cmake")
    def test_cmake_refuses_it_for_another_version(self):
        for version, accepted in (("0.1", True), ("0.2", False), ("1.0", False)):
            source = self.folder / f"wants-{version}"
            source.mkdir()
            (source / "CMakeLists.txt").write_text(
                f"cmake_minimum_required(VERSION 3.16)\nproject(wants LANGUAGES CXX)\nfind_package(sparsekiln {version} REQUIRED)\n"
            )
            configure = ["cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}"]
            done = subprocess.run(configure, capture_output=True, text=True)
            self.assertEqual(done.returncode == 0, accepted, done.stdout + done.stderr)

    def pkg_config_builds(self, source: pathlib.Path) -> None:
        """Compiles a program as docs/cpp.md says, and runs it."""
        found = {"PKG_CONFIG_PATH": str(self.libraries / "pkgconfig")}
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "sparsekiln"],
            check=True, capture_output=True, text=True, env={**os.environ, **found},
        ).stdout.split()  # fmt: skip
        program = self.folder / source.stem
        compiler = os.environ.get("CXX", "g++").split()
        done = subprocess.run(
            [*compiler, source, "-o", program, *flags], capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.run_program(program)

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    @unittest.skipIf(option("cpu") == "disabled", "no cpu target")
    def test_pkg_config_finds_it(self):
        self.pkg_config_builds(_ROOT / "examples/first_light.cpp")

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    @unittest.skipIf(option("cpu") == "disabled", "no cpu target")
    def test_the_program_of_the_document_runs(self):
        (code,) = re.findall(r"^```cpp\n(.*?)^```", (_ROOT / "docs/cpp.md").read_text(), re.M | re.S)
        source = self.folder / "document.cpp"
        source.write_text(code)
        self.pkg_config_builds(source)


if __name__ == "__main__":
    unittest.main()
