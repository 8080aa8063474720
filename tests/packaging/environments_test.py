"""The CPython for which ./dev build --portable makes the Python package."""

import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(_ROOT / "packaging/wheel"))

import environments  # noqa: E402


class OfPortable(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        own = self.root / ".venv/bin/python"
        own.parent.mkdir(parents=True)
        own.symlink_to(sys.executable)
        self.here = {}  # interpreters by version
        for module, name, value in (
            (environments, "ROOT", self.root), (environments, "to_build", lambda version, python: self.root / f"env-{version}/bin"),
            (environments.interpreters, "find", self.here.get), (environments.interpreters, "has_headers", lambda python: "headless" not in python),
        ):  # fmt: skip
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def asked(self, version=None):
        """The interpreter, relative to the tree, and what was said."""
        with contextlib.redirect_stderr(io.StringIO()) as said:
            return str(environments.of_portable(version).relative_to(self.root)), said.getvalue()

    def test_it_is_the_one_of_servers_where_that_is_here(self):
        self.here["3.12"] = "servers/python"
        self.assertEqual(self.asked(), ("env-3.12/bin/python", ""))

    def test_it_is_the_one_that_is_named(self):
        self.here.update({"3.12": "servers/python", "3.10": "named/python"})
        self.assertEqual(self.asked("3.10"), ("env-3.10/bin/python", ""))

    def test_it_is_that_of_the_tree_where_the_one_of_servers_is_missing_or_has_no_headers_and_a_line_says_so(self):
        for self.here["3.12"] in (None, "headless/python"):
            python, said = self.asked()
            self.assertEqual(python, ".venv/bin/python")
            self.assertRegex(said, r"^dev: no CPython 3\.12 with its headers was found, .*: the Python package is for 3\.[\d.]+\n$")

    def test_it_is_that_of_the_tree_where_nothing_can_be_installed(self):
        self.here["3.12"] = "servers/python"
        with mock.patch.object(environments, "to_build", side_effect=subprocess.CalledProcessError(1, ["pip"])):
            python, said = self.asked()
            self.assertEqual(python, ".venv/bin/python")
            self.assertIn("what builds extensions for CPython 3.12 could not be installed", said)
            with self.assertRaisesRegex(SystemExit, "could not be installed"):
                self.asked("3.12")

    def test_one_that_is_named_and_missing_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "no CPython 3.9 with its headers was found"):
            self.asked("3.9")


if __name__ == "__main__":
    unittest.main()
