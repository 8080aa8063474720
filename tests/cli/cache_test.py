"""`sparsekiln cache`: what is in a store, whether it is whole, and why a kernel is not there."""

import pathlib
import unittest

from command import CommandTest, compilable_targets

_FAILED, _NO_SENSE = 1, 2
_TARGET = compilable_targets()[-1]  # sm_90 where it can be


class CacheTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.make("random", "--size", 4, "--density", 0.5, "--seed", 1)

    def compile(self, *arguments: object, batch: int = 8) -> dict:
        return self.answer("compile", "L.npy", "--block", 16, "--batch", batch, "--target", _TARGET, *arguments)

    def entries(self) -> list[dict]:
        files = self.answer("cache", "list")["files"]
        return [file for file in files if file["identity"].get("what") == "binary"]

    def test_stats_count_what_was_asked_made_and_found(self):
        empty = self.answer("cache", "stats")
        self.assertEqual((empty["hits"], empty["misses"], empty["files"]), (0, 0, 0))
        self.compile()
        self.compile()
        self.compile("--op", "grad_input")
        stats = self.answer("cache", "stats")
        self.assertEqual((stats["hits"], stats["misses"], stats["quarantined"]), (1, 2, 0))
        self.assertGreaterEqual(stats["stores"], 2)
        self.assertEqual(stats["max_files"], 20000)
        self.assertEqual([row["operation"] for row in stats["kernels"]], ["forward", "grad_input"])
        self.assertEqual([row["files"] for row in stats["kernels"]], [1, 1])
        on_disk = sum(file.stat().st_size for file in self.cache.rglob("*") if file.is_file())
        self.assertEqual(stats["bytes"], on_disk)

    def test_an_entry_is_listed_inspected_and_written_as_files(self):
        made = self.compile("-o", "stages")
        (entry,) = self.entries()
        self.assertEqual(entry["key"], made["key"])
        self.assertEqual(entry["identity"]["operation"], "forward")
        seen = self.answer("cache", "inspect", entry["key"][:12], "--extract", "out")
        self.assertEqual(seen["identity"], entry["identity"])
        files = {pathlib.Path(file).suffix: (self.folder / file).read_bytes() for file in seen["files"]}
        cuda = _TARGET != "cpu"
        self.assertEqual(set(files), {".identity", ".log"} | ({".cubin", ".ptx", ".cu"} if cuda else {".o", ".ll"}))
        for suffix, stage in [(".cu", "kernel.cu"), (".cubin", "kernel.cubin")] if cuda else [(".ll", "kernel.ll")]:
            self.assertEqual(files[suffix], (self.folder / "stages" / stage).read_bytes())

    def test_code_that_serves_every_layout_gives_its_source_as_well(self):
        if _TARGET == "cpu":
            self.skipTest("the cpu target bakes its layouts")
        self.compile("--attached")
        (entry,) = self.entries()
        seen = self.answer("cache", "inspect", entry["key"], "--extract", "out")
        self.assertTrue(any(file.endswith(".cu") for file in seen["files"]), seen)

    def test_damage_is_named_and_left_to_the_next_program_that_wants_the_entry(self):
        self.compile()
        self.assertEqual(self.answer("cache", "verify")["damaged"], [])
        (entry,) = self.entries()
        file = pathlib.Path(entry["file"])
        whole = file.read_bytes()
        for damage in (whole[:-1], whole[: len(whole) // 2] + b"?" + whole[len(whole) // 2 + 1 :], b""):
            file.write_bytes(damage)
            result = self.run_tool("cache", "verify", "--json")
            self.assertEqual(result.status, _FAILED)
            self.assertEqual([one["file"] for one in result.json["damaged"]], [str(file)])
        self.assertEqual(self.compile()["from"], "compiled")
        self.assertEqual(file.read_bytes(), whole)
        self.assertEqual(self.answer("cache", "verify")["set_aside"], 1)
        self.assertEqual(self.answer("cache", "clear", "--bad")["files"], 1)
        self.assertEqual(self.answer("cache", "verify")["set_aside"], 0)

    def test_an_entry_of_another_version_of_the_format_is_whole_and_stays(self):
        self.compile()
        (entry,) = self.entries()
        file = pathlib.Path(entry["file"])
        newer = bytearray(file.read_bytes())
        newer[8] += 1
        file.write_bytes(newer)
        verified = self.answer("cache", "verify")
        self.assertEqual((verified["damaged"], verified["other_version"]), ([], 1))
        inspected = self.run_tool("cache", "inspect", entry["key"])
        self.assertEqual(inspected.status, _FAILED)
        self.assertIn("another version", inspected.err)
        self.assertEqual(file.read_bytes(), newer)

    def test_a_layout_that_is_gone_comes_back_with_the_next_use_of_its_kernel(self):
        self.compile()
        (layout,) = [one for one in self.answer("cache", "list")["files"] if one["identity"]["what"] == "layout"]
        pathlib.Path(layout["file"]).unlink()
        refused = self.run_tool("precompile", "--from-store", "-o", "K.pack")
        self.assertEqual(refused.status, _NO_SENSE)
        self.assertIn(layout["identity"]["layout"], refused.err)
        self.assertEqual(self.compile()["from"], "store")
        self.assertEqual(self.answer("precompile", "--from-store", "-o", "K.pack")["kernels"], 1)

    def test_a_cap_without_sense_is_complained_of(self):
        for arguments in (["cache", "stats"], ["doctor"]):
            result = self.succeed(*arguments, SPARSEKILN_CACHE_MAX_BYTES="foo")
            self.assertIn("'foo'", result.err + result.out)

    def test_trim_keeps_to_the_caps_and_clear_removes_all(self):
        for batch in (8, 9, 10, 11):
            self.compile(batch=batch)
        before = self.answer("cache", "stats")["files"]
        self.assertEqual(self.answer("cache", "trim")["files"], 0)
        self.assertGreater(self.answer("cache", "trim", "--max-files", 2)["files"], 0)
        self.assertLess(self.answer("cache", "stats")["files"], before)
        self.assertLessEqual(len(self.answer("cache", "list")["files"]), 2)
        self.answer("cache", "clear")
        self.assertEqual(self.answer("cache", "list")["files"], [])
        self.assertEqual(self.compile()["from"], "compiled")

    def test_a_miss_is_explained_by_the_fields_that_differ(self):
        request = ["cache", "explain-miss", "L.npy", "--block", 16, "--target", _TARGET]
        nothing = self.answer(*request, "--batch", 8)
        self.assertEqual((nothing["hit"], nothing["nearest"]), (False, None))
        self.compile()
        self.assertIs(self.answer(*request, "--batch", 8)["hit"], True)
        other = self.answer(*request, "--batch", 8, "--epilogue", "relu")
        self.assertIs(other["hit"], False)
        self.assertEqual(
            other["nearest"]["differences"], [{"field": "epilogue", "wanted": "relu", "stored": "none"}]
        )
        batch = self.answer(*request, "--batch", 9)["nearest"]["differences"]
        self.assertLessEqual({"batch"}, {one["field"] for one in batch})
        self.assertLessEqual({one["field"] for one in batch}, {"batch", "plan"})

    def test_a_miss_by_damage_is_explained_and_nothing_is_changed(self):
        self.compile()
        (entry,) = self.entries()
        file = pathlib.Path(entry["file"])
        bytes_of_file = bytearray(file.read_bytes())
        bytes_of_file[-1] ^= 1
        file.write_bytes(bytes_of_file)
        before = self.answer("cache", "stats")
        request = ["cache", "explain-miss", "L.npy", "--block", 16, "--batch", 8, "--target", _TARGET]
        explained = self.answer(*request)
        self.assertIs(explained["hit"], False)
        self.assertIn("damaged (checksum)", explained["state"])
        self.assertEqual(self.answer("cache", "stats"), before)
        self.assertEqual(file.read_bytes(), bytes_of_file)
        self.compile()
        self.assertIs(self.answer(*request)["hit"], True)

    def test_what_makes_no_sense_is_refused(self):
        self.compile()
        for arguments, needle in [
            (["inspect", "zzz"], "cache list"),
            (["inspect", ""], "the beginning of a key would work"),
            (["key", ""], "FILE '' has no name of a file"),
            (["key", "folder/"], "FILE 'folder/' has no name of a file"),
            (["trim", "--max-bytes", "many"], "512M"),
            (["clear", "--failed", "--bad"], "one of them"),
            ([], "cache --help"),
        ]:
            with self.subTest(arguments):
                result = self.run_tool("cache", *arguments)
                self.assertEqual(result.status, _NO_SENSE, result.err)
                self.assertIn(needle, result.err + result.out)
        self.assertEqual(self.files() - {"L.npy"}, set())


if __name__ == "__main__":
    unittest.main()
