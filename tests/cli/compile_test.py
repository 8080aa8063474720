"""`sparsekiln compile`: where a Binary comes from, what -o writes, and that it is the same every time."""

import json
import pathlib
import unittest

from command import CommandTest, compilable_targets


class StoreTest(CommandTest):
    def test_a_second_process_finds_in_the_store_what_the_first_compiled(self):
        self.make("random", "--size", 6, "--density", 0.4)
        for target in compilable_targets():
            with self.subTest(target):
                request = ["compile", "L.npy", "--batch", 16, "--target", target]
                first, second = self.answer(*request), self.answer(*request)
                self.assertEqual((first["from"], second["from"]), ("compiled", "store"))
                volatile = {"from", "compile_ms"}
                self.assertEqual(*({k: v for k, v in a.items() if k not in volatile} for a in (first, second)))

    def test_what_decides_the_numbers_or_the_code_changes_the_key_and_the_file_name_does_not(self):
        self.make("random", "--size", 6, "--density", 0.4, "--seed", 1)
        self.make("random", "--size", 6, "--density", 0.4, "--seed", 1, file="same.mtx")
        self.make("random", "--size", 6, "--density", 0.4, "--seed", 2, file="other.npy")
        target = compilable_targets()[0]
        key = lambda file, *options, on=target: self.answer("compile", file, "--target", on, *options)["key"]
        base = key("L.npy")
        self.assertEqual(key("same.mtx"), base)
        others = [key("other.npy"), key("L.npy", "--block", 16), key("L.npy", "--batch", 2)]
        others += [key("L.npy", "--batch", "up-to:1"), key("L.npy", on=f"{target}:3")]
        self.assertEqual(len({base, *others}), 1 + len(others))

    def test_all_layouts_share_one_attached_compile(self):
        self.make("random", "--size", 6, "--density", 0.4, "--seed", 1)
        self.make("random", "--rows", 3, "--cols", 9, "--density", 0.7, "--seed", 2, file="other.npy")
        for target in compilable_targets():
            with self.subTest(target):
                request = ["--batch", 16, "--target", target, "--attached"]
                first, second = (self.answer("compile", file, *request) for file in ("L.npy", "other.npy"))
                self.assertEqual((first["from"], second["from"], second["key"]), ("compiled", "store", first["key"]))
                self.assertEqual(second["out_features"], 96)
                self.assertIs(second["attached"], True)
                self.succeed("compile", "L.npy", *request, "-o", f"stages-{target}")
                source = "kernel.cu" if target.startswith("sm_") else "kernel.ll"
                self.assertIn("attached", (self.folder / f"stages-{target}" / source).read_text())

    def test_a_damaged_entry_is_compiled_anew_and_set_aside(self):
        self.make("random", "--size", 4, "--density", 0.5)
        request = ["compile", "L.npy", "--target", compilable_targets()[0]]
        self.answer(*request)
        (entry,) = [path for path in self.cache.rglob("*") if path.is_file() and path.stat().st_size > 1000]
        damaged = bytearray(entry.read_bytes())
        damaged[len(damaged) // 2] ^= 0x10
        entry.write_bytes(damaged)
        self.assertEqual(self.answer(*request)["from"], "compiled")
        self.assertEqual(self.answer(*request)["from"], "store")

    def test_processes_that_know_nothing_of_each_other_write_the_same_bytes(self):
        self.make("watts-strogatz", "--size", 24, "--density", 0.3, "--rewire", 0.2)
        for target in compilable_targets():
            with self.subTest(target):
                entries = []
                for number in range(4):
                    store = self.cache.parent / f"store-{number}"
                    request = ["compile", "L.npy", "--batch", 48, "--target", target, "--cache-dir", store]
                    answer = self.answer(*request, SPARSEKILN_MEMO="")  # each compiles: tests/nvrtc_memo
                    self.assertEqual(answer["from"], "compiled")
                    files = sorted(store.rglob("*.entry"), key=lambda path: path.stat().st_mtime_ns)
                    entries.append(files[-1].read_bytes())
                self.assertEqual(len(set(entries)), 1)

    def test_cache_dir_stands_above_the_environment(self):
        self.make("random", "--size", 4, "--density", 0.5)
        elsewhere = self.cache.parent / "elsewhere"
        self.answer("compile", "L.npy", "--target", compilable_targets()[0], "--cache-dir", elsewhere)
        self.assertTrue(any(path.is_file() for path in elsewhere.rglob("*")))
        self.assertFalse(self.cache.exists())


class StagesTest(CommandTest):
    def test_every_stage_is_written_and_says_the_same(self):
        self.make("random", "--rows", 6, "--cols", 9, "--density", 0.4)
        wanted = {"cpu": {"kernel.ll", "kernel.o"}, "sm_90": {"kernel.cu", "kernel.ptx", "kernel.cubin"}}
        for target in compilable_targets():
            with self.subTest(target):
                answer = self.answer("compile", "L.npy", "--target", target, "-o", f"deep/{target}")
                folder = self.folder / "deep" / target
                names = {path.name for path in folder.iterdir()}
                self.assertEqual(names, wanted[target] | {"schedule.json", "resources.json", "compile.log"})
                self.assertEqual({pathlib.Path(file).name for file in answer["files"]}, names)
                code = (folder / ("kernel.o" if target == "cpu" else "kernel.cubin")).read_bytes()
                self.assertEqual((code[:4], len(code)), (b"\x7fELF", answer["code_bytes"]))
                self.assertEqual(json.loads((folder / "resources.json").read_text()), answer["resources"])

    @unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
    def test_large_tables_are_files_beside_the_code(self):
        self.make("random", "--size", 96, "--density", 0.5)
        made = self.answer("compile", "L.npy", "--target", "sm_90", "-o", "out")
        self.assertGreater(made["data"]["steps_0"], 96 * 96 // 2 * 7)
        for name, size in made["data"].items():
            self.assertEqual((self.folder / "out" / f"kernel.{name}.bin").stat().st_size, size)
        self.assertNotIn("steps_0[] = {", (self.folder / "out" / "kernel.cu").read_text())
        self.assertLess(made["code_bytes"], made["data"]["steps_0"] + 2 * made["ptx_bytes"])
        again = self.answer("compile", "L.npy", "--target", "sm_90")
        self.assertEqual((again["from"], again["data"]), ("store", made["data"]))
        text = self.run_tool("compile", "L.npy", "--target", "sm_90").out
        self.assertIn(f"{sum(made['data'].values())} bytes of tables beside the code", text)
        inspected = self.answer("cache", "inspect", made["key"], "--extract", "inspected")
        for name in made["data"]:
            extracted = self.folder / "inspected" / f"{made['key']}.{name}.bin"
            self.assertEqual(extracted.read_bytes(), (self.folder / "out" / f"kernel.{name}.bin").read_bytes())
        self.assertEqual(inspected["binaries"][0]["data"], made["data"])

    @unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
    def test_launches_overlap_where_that_is_asked_for_and_the_target_can(self):
        self.make("random", "--rows", 6, "--cols", 9, "--density", 0.4)
        waits = {("sm_90",): False, ("sm_90", "--overlap-launches"): True, ("sm_80", "--overlap-launches"): False}
        for target, expected in waits.items():
            with self.subTest(target):
                self.succeed("compile", "L.npy", "--target", *target, "-o", "-".join(target))
                text = (self.folder / "-".join(target) / "kernel.ptx").read_text()
                self.assertIs("griddepcontrol.wait;" in text, expected)

    def test_the_schedule_holds_every_present_block_once(self):
        rows = ["0110", "0000", "1111", "1000"]
        self.write("L.txt", "\n".join(rows) + "\n")
        self.answer("compile", "L.txt", "--target", f"{compilable_targets()[0]}:3", "-o", "out")
        (schedule,) = json.loads((self.folder / "out" / "schedule.json").read_text())["ranges"]
        seen = [
            (item["rows"][tile], column)
            for worker in schedule["by_worker"]
            for item in worker["items"]
            for column, tile in item["steps"]
        ]
        present = [(r, c) for r, line in enumerate(rows) for c, cell in enumerate(line) if cell == "1"]
        self.assertEqual(sorted(seen), present)
        self.assertEqual(schedule["steps"], len(present))

    def test_the_stages_from_the_store_are_those_of_the_first_compile(self):
        self.make("random", "--size", 6, "--density", 0.4)
        target = compilable_targets()[-1]
        for folder in ("first", "second"):
            self.answer("compile", "L.npy", "--target", target, "-o", folder)
        for path in (self.folder / "first").iterdir():
            self.assertEqual(path.read_bytes(), (self.folder / "second" / path.name).read_bytes(), path.name)

    def test_other_files_of_the_folder_stay_and_nothing_else_appears(self):
        self.make("random", "--size", 4, "--density", 0.5)
        (self.folder / "out").mkdir()
        self.write("out/notes", "mine")
        self.write("out/compile.log", "old")
        answer = self.answer("compile", "L.npy", "--target", compilable_targets()[0], "-o", "out")
        self.assertEqual(self.files(), {"L.npy", "out", "out/notes", *answer["files"]})
        self.assertEqual((self.folder / "out/notes").read_text(), "mine")
        self.assertNotEqual((self.folder / "out/compile.log").read_text(), "old")


if __name__ == "__main__":
    unittest.main()
