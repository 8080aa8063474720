"""Text from packs, stores, jobs files, records, names and arguments reaches a terminal only as printable text."""

import json
import os
import pathlib
import subprocess
import unittest

import tuning_records as made
from command import CommandTest, Result, compilable_targets

_PLANT = os.environ.get("SPARSEKILN_PLANT", "build/tests/cli/plant")
_TARGET = compilable_targets()[0]

# Colours, a title, a cleared screen; C1 as one character; DEL; a text that runs from right to left; a line of its own.
_EVIL = "e\x1b[31m\x1b]0;title\x07\x1b[2J\u009b31m\x7f\u202e\r\nsparsekiln: all is well\x08l"
_SHOWN = "e\\x1b[31m\\x1b]0;title\\x07\\x1b[2J\\xc2\\x9b31m\\x7f\\xe2\\x80\\xae\\x0d\\x0asparsekiln: all is well\\x08l"
_FORGED = "\nsparsekiln: all is well"
_NO_UTF8 = os.fsdecode(b"n\xff\x9b31m")  # as a name of a file or an argument
_NO_UTF8_SHOWN = "n\\xff\\x9b31m"


class ForeignTextTest(CommandTest):
    def plant(self, what: str, *arguments: object) -> str:
        command = [str(pathlib.Path(_PLANT).resolve()), what, *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, cwd=self.folder, timeout=60).stdout.decode()

    def assert_clean(self, result: Result, shown: str | None):
        for stream in (result.out, result.err):
            said = f"{result.command!r} said {stream!r}"
            bad = [letter for letter in stream if ord(letter) < 32 and letter not in "\n\t" or 0x7F <= ord(letter) < 0xA0]
            self.assertEqual(bad, [], said)
            self.assertNotIn("\u202e", stream, said)
            self.assertNotIn(_FORGED, stream, said)
        if shown is not None:
            self.assertIn(shown, result.out + result.err, f"{result.command!r} does not show it")

    def look(self, *arguments: object, shown: str | None = _SHOWN, **environment: str) -> None:
        """Runs a command as it is and with --json: neither prints what a terminal would act on."""
        plain = self.run_tool(*arguments, **environment)
        self.assertIn(plain.status, (0, 1, 2), plain.err)
        self.assert_clean(plain, shown)
        document = self.run_tool(*arguments, "--json", **environment)
        self.assert_clean(document, None)
        self.assertTrue(document.out.isascii())
        self.assertIn("ok", document.json)


class StoredTextTest(ForeignTextTest):
    # `what` of each kind, since each has its own way of being read.
    _KINDS = ("binary", "layout", "record", _EVIL)

    def fields(self, what: str) -> list[str]:
        names = ["operation", "layout", "grid", "block", "batch", "dtype", "target", "plan", "compiler"]
        return [f"what={what}", *[f"{name}={_EVIL}" for name in names], f"{_EVIL}={_EVIL}"]

    def test_of_packs(self):
        for what in self._KINDS:
            with self.subTest(what):
                self.plant("pack", "a.pack", *self.fields(what))
                self.look("pack", "list", "a.pack")
                self.look("pack", "verify", "a.pack", shown=None)
                self.look("pack", "merge", "a.pack", "-o", "b.pack", shown=None)
                self.look("pack", "extract", "a.pack", "--all", "-o", "out", shown=None)

    def test_of_stores(self):
        self.make("random", "--size", 4, "--density", 0.5)
        for what in self._KINDS:
            self.plant("store", self.cache, *self.fields(what))
        self.look("cache", "list")
        self.look("cache", "stats", shown=None)
        self.look("cache", "verify", shown=None)
        for file in self.answer("cache", "list")["files"]:
            shown = None if file["identity"]["what"] == "binary" else _SHOWN
            self.look("cache", "inspect", file["key"], shown=shown)
            self.look("cache", "inspect", file["key"], "--extract", "out", shown=shown)
        self.look("precompile", "--from-store", "-o", "a.pack", shown=None)
        self.look("tune", "--from-store", "--space", shown=None)
        self.look("report", shown=None)

    def test_of_the_entry_that_a_miss_is_compared_with(self):
        self.make("random", "--size", 4, "--density", 0.5)
        request = ["L.npy", "--target", _TARGET]
        wanted = self.answer("cache", "explain-miss", *request)["identity"]
        nearest = wanted | {"layout": _EVIL, "dtype": _EVIL}
        self.plant("store", self.cache, *[f"{name}={value}" for name, value in nearest.items()])
        self.look("cache", "explain-miss", *request)
        self.plant("pack", "a.pack", *[f"{name}={value}" for name, value in nearest.items()])
        self.look("compile", *request, "--pack", "a.pack", "--require", "prebuilt")

    def test_an_identity_of_many_fields_is_shown_in_time(self):
        self.plant("pack", "a.pack", "what=binary", *[f"f{i}=1" for i in range(20000)])
        self.assertEqual(len(self.answer("pack", "list", "a.pack")["entries"][0]["identity"]), 20001)


class FileTextTest(ForeignTextTest):
    def test_of_jobs_files(self):
        self.make("random", "--size", 4, "--density", 0.5)
        job = {"layouts": ["L.npy"], "archs": ["sm_80"]}
        texts = ["layouts", "operations", "blocks", "batches", "dtypes", "archs", "epilogues"]
        single = ["out_dtype", "math", "activation_order", "derivative"]
        for jobs in [
            {_EVIL: 1},
            {"jobs": [job | {_EVIL: 1}]},
            *[{"jobs": [job | {key: [_EVIL]}]} for key in texts],
            *[{"jobs": [job | {key: _EVIL}]} for key in single],
            {"jobs": [job | {"config": f"simt {_EVIL}=1"}]},
            {"jobs": [job | {"config": f"simt tile_n={_EVIL}"}]},
        ]:
            with self.subTest(jobs):
                self.write("jobs.json", json.dumps(jobs))
                self.look("precompile", "jobs.json", "-o", "a.pack")
                self.look("tune", "jobs.json", "--space", "--target", _TARGET, shown=None)
        for text in (f'{{"{_NO_UTF8}": 1}}', '{"a\\u001b": 1, "a\\u001b": 2}', '{"jobs": \x1b}'):
            self.write("jobs.json", os.fsencode(text))
            self.look("precompile", "jobs.json", "-o", "a.pack", shown=None)
        self.look("precompile", "jobs.json", "--arch", _EVIL, "-o", "a.pack")

    def test_of_layouts(self):
        for ending, content in [
            (".npy", b"\x93NUMPX\x1b[2J"),
            (".npy", b"\x93NUMPY\x01\x00\x20\x00{'\x1b[2J': 1, '\x1b[2J': 2}".ljust(42) + b"\n"),
            (".mtx", b"%%MatrixMarket \x1b[2J\n"),
            (".smtx", b"\x1b[2J\n"),
            (".txt", b"0 \x1b[2J\n"),
        ]:
            with self.subTest(content):
                self.write("L" + ending, content)
                self.look("layout", "show", "L" + ending, shown=None)

    def test_of_records(self):
        whole = made.record()
        problem = {name: _EVIL for name in whole["problem"]} | {_EVIL: _EVIL}
        environment = whole["environment"] | {"device": _EVIL, "driver": _EVIL, "policy": _EVIL}
        contests = [made.contest()]
        for candidate in contests[0]["candidates"]:
            candidate["reason"] = _EVIL
        contests[0]["pruned"][0]["reason"] = _EVIL
        evil = made.record(environment=environment, contests=contests) | {"problem": problem, "compiler": _EVIL}
        self.write("R.jsonl", made.lines(evil))
        self.look("report", "R.jsonl")
        self.look("report", "--compare", "R.jsonl", "R.jsonl", shown=None)
        self.look("records", "import", "R.jsonl", shown=None)
        self.look("report")
        self.look("cache", "list", shown=None)
        for file in self.answer("cache", "list")["files"]:
            self.look("cache", "inspect", file["key"])
        table = self.run_tool("report", "R.jsonl", "--csv", "-")
        self.assertIn(_SHOWN, table.out)
        self.assertEqual(table.out.count("\r\n"), table.out.count("\n"))
        self.assert_clean(Result(table.command, 0, table.out.replace("\r\n", "\n"), table.err), _SHOWN)
        for text in (f'{{"{_NO_UTF8}": 1}}', '{"problem": "\x1b"}', json.dumps(evil | {"contests": _EVIL, _EVIL: 1})):
            self.write("bad.jsonl", os.fsencode(text + "\n"))
            self.look("records", "import", "bad.jsonl", shown=None)

    def test_of_the_names_of_files(self):
        self.make("random", "--size", 4, "--density", 0.5)
        whole = (self.folder / "L.npy").read_bytes()
        self.write("R.jsonl", made.lines(made.record()))
        for evil, shown in ((_EVIL, _SHOWN), (_NO_UTF8, _NO_UTF8_SHOWN)):
            layout = self.write(evil + ".npy", whole)
            bad = self.write(evil + ".mtx", b"no banner")
            jobs = self.write(evil + ".json", b'{"jobs": [1]}')
            foreign = self.write(evil + ".pack", b"no pack")
            records = self.write(evil + ".jsonl", b"no record")
            missing = "missing" + evil
            for command in (
                ["layout", "show", layout],
                ["layout", "show", bad],
                ["layout", "show", missing],
                ["layout", "make", "causal", "--size", 4, "-o", "made" + evil],
                ["layout", "make", evil, "--size", 4, "-o", "x"],
                ["compile", bad, "--target", _TARGET],
                ["compile", "L.npy", "--target", _TARGET, "-o", "out" + evil],
                ["compile", "L.npy", "--target", _TARGET, "--pack", foreign],
                ["compile", layout, "--target", _TARGET, "--require", "prebuilt"],
                ["run", bad],
                ["verify", missing],
                ["precompile", jobs, "-o", "a.pack"],
                ["precompile", layout, "-o", "a.pack"],
                ["precompile", layout, "--arch", _TARGET, "-o", "made" + evil],
                ["precompile", "L.npy", "--arch", _TARGET, "-o", layout],
                ["pack", "list", foreign],
                ["pack", "verify", foreign],
                ["pack", "merge", foreign, "-o", "b.pack"],
                ["pack", "extract", missing, "--all", "-o", "out"],
                ["tune", bad, "--target", _TARGET],
                ["records", "import", records],
                ["records", "export", "made" + evil],
                ["report", records],
                ["report", "R.jsonl", "--csv", "table" + evil],
                ["report", "--cache-dir", missing],
                ["report", "--compare", "R.jsonl", records],
                ["cache", "stats", "--cache-dir", missing],
                ["cache", "verify", "--cache-dir", missing],
                ["cache", "clear", "--cache-dir", missing],
                ["cache", "trim", "--cache-dir", missing],
                ["cache", "inspect", "0", "--cache-dir", missing],
                ["cache", "explain-miss", "L.npy", "--target", _TARGET, "--cache-dir", missing],
            ):
                with self.subTest(command):
                    self.look(*command, shown=shown)


class ArgumentTextTest(ForeignTextTest):
    def test_of_arguments(self):
        self.make("random", "--size", 4, "--density", 0.5)
        options = ["block", "batch", "dtype", "out-dtype", "math", "op", "activation-order", "epilogue", "derivative",
                   "config", "target", "require", "in-features", "alignment", "frobnicate"]  # fmt: skip
        for evil, shown in ((_EVIL, _SHOWN), (_NO_UTF8, _NO_UTF8_SHOWN)):
            for option in options:
                with self.subTest(option):
                    seen = {"alignment": None, "config": shown.split(" ")[0]}.get(option, shown)
                    self.look("compile", "L.npy", f"--{option}={evil}", shown=seen)
            for command in (["cache", "trim", "--max-bytes", evil], ["cache", "inspect", evil], [evil],
                            ["tune", "L.npy", "--budget", evil], ["report", "--op", evil],
                            ["layout", "make", "random", "--size", 4, "--seed", evil, "-o", "x"]):  # fmt: skip
                with self.subTest(command):
                    self.look(*command, shown=shown)

    def test_of_the_environment(self):
        self.make("random", "--size", 4, "--density", 0.5)
        for evil, shown in ((_EVIL, _SHOWN), (_NO_UTF8, _NO_UTF8_SHOWN)):
            for variable in ("SPARSEKILN_CUDA_DRIVER", "SPARSEKILN_NVRTC", "SPARSEKILN_EMULATOR", "SPARSEKILN_CACHE_DIR",
                             "SPARSEKILN_CACHE_MAX_BYTES"):  # fmt: skip
                with self.subTest(variable):
                    self.look("doctor", shown=shown, **{variable: evil})
            # A colon parts the names of packs.
            self.look("doctor", shown=shown.split(":")[0], SPARSEKILN_PACKS=evil)
            self.look("compile", "L.npy", "--target", _TARGET, shown=shown.split(":")[0], SPARSEKILN_PACKS=evil)


if __name__ == "__main__":
    unittest.main()
