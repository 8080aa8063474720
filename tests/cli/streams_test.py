"""Standard streams that are closed, full or read by no process, and limits of file sizes: no command is ended by a signal."""

import json
import os
import pathlib
import resource
import subprocess
import unittest

from command import CommandTest, compilable_targets

_FAILED, _NO_SENSE = 1, 2
_TARGET = compilable_targets()[0]
_COMPILE = ["compile", "L.npy", "--target", _TARGET]
_PRECOMPILE = ["precompile", "L.npy", "--arch", "x86-64-v3:2" if _TARGET == "cpu" else _TARGET, "-o"]


def _no_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


_STREAMS = {"closed": None, "full": lambda: os.open("/dev/full", os.O_WRONLY), "a pipe without a reader": _no_reader}


class StreamsTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.make("random", "--size", 4, "--density", 0.5)

    def run_with(self, arguments: list[object], stream: int, how: str, **environment: str) -> subprocess.CompletedProcess:
        """Runs the command with one stream as named; the other of output and error is captured."""

        def before():
            if _STREAMS[how] is None:
                os.close(stream)
            else:
                os.dup2(_STREAMS[how](), stream)

        return subprocess.run(
            [str(pathlib.Path(self.tool).resolve()), *map(str, arguments)], capture_output=True, text=True, cwd=self.folder,
            env={**os.environ, "SPARSEKILN_CACHE_DIR": str(self.cache), **environment}, preexec_fn=before, timeout=120,
        )  # fmt: skip

    def test_messages_that_cannot_be_written_change_nothing_else(self):
        commands = {
            "a warning": ([*_COMPILE, "--json"], 0),
            "progress": ([*_PRECOMPILE, "K.pack"], 0),
            "a failure": (["layout", "show", "none.npy", "--json"], _FAILED),
            "wrong arguments": (["layout", "show", "L.npy", "--frobnicate", "--json"], _NO_SENSE),
        }
        for how in _STREAMS:
            for name, (arguments, status) in commands.items():
                with self.subTest(f"{name}, standard error {how}"):
                    done = self.run_with(arguments, 2, how, SPARSEKILN_CACHE_DIR="/proc/no/such")
                    self.assertEqual(done.returncode, status, done.stdout)
                    if "--json" in arguments:
                        self.assertIs(json.loads(done.stdout)["ok"], status == 0)
            self.assertTrue((self.folder / "K.pack").is_file())
            (self.folder / "K.pack").unlink()

    def test_results_that_cannot_be_written_are_a_failure_that_is_said(self):
        for how in ("closed", "full"):
            for arguments in (["layout", "show", "L.npy"], ["doctor", "--json"], ["--help"], ["layout", "--help"], ["--version"]):
                with self.subTest(f"{arguments}, standard output {how}"):
                    done = self.run_with(arguments, 1, how)
                    self.assertEqual(done.returncode, _FAILED, done.stderr)
                    self.assertRegex(done.stderr, r"\Asparsekiln: cannot write to standard output: [A-Z][\w ]+\n\Z")

    def test_a_reader_that_has_closed_the_pipe_is_no_failure(self):
        for arguments in (["layout", "show", "L.npy"], ["--help"]):
            with self.subTest(arguments):
                done = self.run_with(arguments, 1, "a pipe without a reader")
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_no_file_becomes_a_standard_stream_that_was_closed(self):
        """A file that got the number of standard error would hold the messages."""
        expected = self.answer("compile", "L.npy", "--target", _TARGET, "-o", "expected", SPARSEKILN_CACHE_DIR="/proc/no/such")
        self.run_with([*_COMPILE, "-o", "made"], 2, "closed", SPARSEKILN_CACHE_DIR="/proc/no/such")
        self.assertTrue(expected["warnings"])
        for file in (self.folder / "expected").iterdir():
            if file.suffix != ".json":  # that has times
                self.assertEqual((self.folder / "made" / file.name).read_bytes(), file.read_bytes(), file.name)
        self.run_with([*_COMPILE, "--json"], 2, "closed")
        self.assertEqual(self.answer("cache", "verify")["damaged"], [])

    def test_a_limit_of_file_sizes_ends_no_command(self):
        commands = {
            (*_COMPILE,): (0,),
            (*_COMPILE, "-o", "out"): (_FAILED,),
            (*_PRECOMPILE, "K.pack"): (_FAILED,),
            ("layout", "make", "random", "--size", 64, "--density", 0.5, "-o", "M.npy"): (_FAILED,),
        }
        if _TARGET == "cpu":
            commands["tune", "L.npy", "--target", "cpu", "--budget", "100ms"] = (0, _FAILED)
        for arguments, statuses in commands.items():
            for size in (0, 100, 1000):
                with self.subTest(" ".join(map(str, arguments)), size=size):
                    before = self.files()
                    done = self.run_tool(*arguments, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
                    self.assertIn(done.status, statuses, done.err)
                    if done.status == _FAILED:
                        self.assertIn("File too large", done.err)
                        self.assertEqual(self.files(), before)


if __name__ == "__main__":
    unittest.main()
