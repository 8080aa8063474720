"""What a wheel says about itself: one version everywhere, the extras, the licences, and the bill of materials."""

import json
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


def built_version() -> str:
    return json.loads((_BUILD / "meson-info/intro-projectinfo.json").read_text())["version"]


def project() -> dict:
    import tomllib

    return tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]


@unittest.skipIf(sys.version_info < (3, 11), "this Python has no tomllib")
class Project(unittest.TestCase):
    def test_the_version_is_that_of_meson(self):
        self.assertNotIn("version", project())
        self.assertIn("version", project()["dynamic"])

    def test_the_extra_cuda_brings_nvrtc(self):
        (needed,) = project()["optional-dependencies"]["cuda"]
        self.assertRegex(needed, r"^nvidia-cuda-nvrtc\b")

    def test_nothing_but_numpy_is_needed(self):
        self.assertEqual([re.match(r"[\w-]+", needed)[0] for needed in project()["dependencies"]], ["numpy"])

    def test_all_notices_go_into_the_wheel(self):
        listed = {file for pattern in project()["license-files"] for file in _ROOT.glob(pattern)}
        self.assertEqual(listed, {_ROOT / "LICENSE", *(_ROOT / "packaging/licences").iterdir()})


class Version(unittest.TestCase):
    def test_the_changelog_begins_with_it(self):
        first = re.search(r"^## (\S+)", (_ROOT / "CHANGELOG.md").read_text(), re.M)
        self.assertEqual(first[1], built_version())

    def test_the_command_prints_it(self):
        printed = subprocess.run([_BUILD / "tools/sparsekiln", "--version"], check=True, capture_output=True, text=True).stdout
        self.assertIn(built_version(), printed.split())

    def test_cmake_and_pkg_config_know_it(self):
        self.assertIn(f'set(PACKAGE_VERSION "{built_version()}")', (_BUILD / "packaging/sparsekilnConfigVersion.cmake").read_text())
        self.assertIn(f"Version: {built_version()}\n", (_BUILD / "meson-private/sparsekiln.pc").read_text())


class Licences(unittest.TestCase):
    def test_each_component_has_its_text_and_each_text_a_component(self):
        texts = {text for component in sbom.components() for text in component["text"]}
        self.assertEqual(texts, {file.name for file in (_ROOT / "packaging/licences").iterdir()})

    def test_the_expression_names_each_licence_once(self):
        named = sbom.licence_expression().split(" AND ")
        self.assertEqual(len(named), len(set(named)))
        self.assertEqual({component["licence"] for component in sbom.components()} | {"Apache-2.0"}, set(named))


class Bill(unittest.TestCase):
    def setUp(self):
        self.bill = sbom.bill("1.2.3", [])

    def test_it_is_cyclonedx_of_this_package(self):
        self.assertEqual((self.bill["bomFormat"], self.bill["specVersion"]), ("CycloneDX", "1.6"))
        self.assertEqual(self.bill["metadata"]["component"]["purl"], "pkg:pypi/sparsekiln@1.2.3")

    def test_the_package_depends_on_each_component(self):
        names = [component["name"] for component in sbom.components()]
        self.assertEqual([entry["name"] for entry in self.bill["components"]], names)
        self.assertEqual(self.bill["dependencies"], [{"ref": "sparsekiln", "dependsOn": names}])

    @unittest.skipUnless(shutil.which("dpkg-query"), "not a Debian machine")
    def test_what_debian_packages_is_named_with_its_version(self):
        for entry in self.bill["components"]:
            if entry["purl"].startswith("pkg:deb/"):
                self.assertRegex(entry.get("version", ""), r"^\d", entry)
                self.assertIn("@", entry["purl"])


if __name__ == "__main__":
    unittest.main()
