"""Runs the `sparsekiln` command that SPARSEKILN_TOOL names, in a folder and with a store of its own."""

import dataclasses
import functools
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

_TOOL = os.environ.get("SPARSEKILN_TOOL", "build/tools/sparsekiln")


@functools.cache
def _doctor() -> dict:
    return json.loads(subprocess.run([_TOOL, "doctor", "--json"], capture_output=True, timeout=120).stdout)


def compilable_targets() -> list[str]:
    """A target of each kind that this build and this machine can compile for."""
    targets = ["cpu"] if _doctor()["cpu"]["found"] else []
    return targets + (["sm_90"] if _doctor()["nvrtc"]["found"] else [])


def runs_level(level: str) -> bool:
    """Whether this machine runs code for a level of the cpu target; their names sort as what they need grows."""
    return "cpu" in compilable_targets() and level <= _doctor()["cpu"]["level"]


def npy(header: str, data: bytes, length: int | None = None, version: bytes = b"\x01\x00") -> bytes:
    """A .npy file whose header may lie."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text) if length is None else length) + text + data


def shaped(shape: str, data: bytes = b"\1" * 4, descr: str = "|u1") -> bytes:
    return npy(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}", data)


@dataclasses.dataclass
class Result:
    command: str
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        """The one document on standard output; anything beside it is an error."""
        return json.loads(self.out)


class CommandTest(unittest.TestCase):
    tool = _TOOL

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="sparsekiln-cli-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name) / "work"
        self.cache = pathlib.Path(holder.name) / "cache"
        self.folder.mkdir()

    def run_tool(self, *arguments: object, before=None, **environment: str | None) -> Result:
        """Runs the command in self.folder; an environment variable of None is taken away. `before` is called in
        the new process before the command begins."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("SPARSEKILN_REMOTE")}
        variables = {**own, "SPARSEKILN_CACHE_DIR": str(self.cache), **environment}
        variables = {name: value for name, value in variables.items() if value is not None}
        command = [str(pathlib.Path(self.tool).resolve()), *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, cwd=self.folder, env=variables, timeout=120, preexec_fn=before
        )
        shown = "sparsekiln " + " ".join(map(str, arguments))
        return Result(shown, done.returncode, done.stdout.decode(), done.stderr.decode())

    def run_into(self, output: object, *arguments: object) -> tuple[int, str]:
        """Runs the command with standard output as given (a path or a file descriptor): status and messages."""
        variables = {**os.environ, "SPARSEKILN_CACHE_DIR": str(self.cache)}
        command = [str(pathlib.Path(self.tool).resolve()), *map(str, arguments)]
        sink = os.open(output, os.O_WRONLY) if isinstance(output, str) else os.dup(output)
        try:
            done = subprocess.run(command, stdout=sink, stderr=subprocess.PIPE, cwd=self.folder, env=variables, timeout=120)
        finally:
            os.close(sink)
        return done.returncode, done.stderr.decode()

    def succeed(self, *arguments: object, **environment: str | None) -> Result:
        result = self.run_tool(*arguments, **environment)
        self.assertEqual(result.status, 0, f"{result.command}\n{result.out}{result.err}")
        return result

    def answer(self, *arguments: object, **environment: str | None) -> dict:
        """The document of a command that succeeds with --json."""
        result = self.succeed(*arguments, "--json", **environment)
        self.assertIs(result.json["ok"], True, result.out)
        return result.json

    def make(self, *arguments: object, file: str = "L.npy") -> str:
        """Makes a layout in self.folder."""
        self.succeed("layout", "make", *arguments, "-o", file)
        return file

    def write(self, file: str, content: bytes | str) -> str:
        (self.folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*")}

    def assert_refused(self, status: int, arguments: list, needles: list[str], **environment: str | None):
        """With and without --json: the status, a message with every needle, no crash, and no files left."""
        before = self.files()
        plain = self.run_tool(*arguments, **environment)
        document = self.run_tool(*arguments, "--json", **environment)
        for result in (plain, document):
            said = f"{result.command}\nended with {result.status} and said: {result.err}{result.out}"
            self.assertEqual(result.status, status, said)
            self.assertTrue(result.err.startswith("sparsekiln: "), said)
            for needle in needles:
                self.assertIn(needle, result.err, said)
            self.assertNotIn("terminate called", result.err, said)
        self.assertEqual(plain.out, "", "a failure prints nothing on standard output")
        self.assertIs(document.json["ok"], False)
        self.assertEqual(set(document.json["error"]) - {"log"}, {"kind", "message"})
        for needle in needles:
            self.assertIn(needle, document.json["error"]["message"])
        self.assertEqual(self.files(), before, f"{plain.command} left files")
