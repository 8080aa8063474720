"""`sparsekiln precompile` and `pack`: kernels made ahead of time, and programs that run on nothing else."""

import hashlib
import json
import os
import signal
import subprocess
import unittest

from command import CommandTest, compilable_targets

_NO_NVRTC = {"SPARSEKILN_NVRTC": "/nonexistent"}
_CUDA = "sm_90" in compilable_targets()
_ARCHS = "sm_80,sm_90,sm_100" if _CUDA else "x86-64-v3:1,x86-64-v3:2,x86-64:1"
_ARCH = _ARCHS.split(",")[0]


class PrecompileTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.make("random", "--size", 4, "--density", 0.5, "--seed", 1)

    def sha256(self, file: str) -> str:
        return hashlib.sha256((self.folder / file).read_bytes()).hexdigest()

    def precompile(self, *arguments: object, output: str = "kernels.pack", **environment) -> dict:
        return self.answer("precompile", *arguments, "-o", output, **environment)

    def jobs_file(self, jobs: dict | str, name: str = "jobs.json") -> str:
        return self.write(name, jobs if isinstance(jobs, str) else json.dumps(jobs, indent=1))


class PackTest(PrecompileTest):
    @unittest.skipUnless("cpu" in compilable_targets(), "convolutions are compiled for cpus")
    def test_a_jobs_file_has_transposed_convolutions_and_files_of_taps_beside_it(self):
        (self.folder / "deep").mkdir()
        self.make("random", "--size", 2, "--density", 1, file="deep/M.npy")
        self.write("deep/taps.txt", "101")
        job = {"layouts": ["M.npy"], "transposed": True, "taps": "taps.txt", "blocks": [16], "batches": [2],
               "operations": ["forward", "grad_weight"], "conv": "kernel=3 stride=2 output-padding=1 input=5"}  # fmt: skip
        made = self.precompile(self.jobs_file({"archs": ["x86-64-v3:1"], "jobs": [job]}, "deep/jobs.json"))
        self.assertEqual((made["kernels"], made["failed"]), (2, []))
        request = ["compile", "deep/M.npy", "--block", 16, "--batch", 2, "--target", "x86-64-v3:1", "--pack", "kernels.pack"]
        text = "kernel=3 stride=2 transposed output-padding=1 input=5 taps=101"
        served = self.answer(*request, "--conv", text, SPARSEKILN_CACHE_DIR=str(self.cache.parent / "empty"))
        self.assertEqual((served["from"], served["convolution"], served["blocks"]), ("pack", text, 8))

    def test_a_jobs_file_gives_one_pack_of_the_same_bytes_every_time_and_it_serves_without_a_compiler(self):
        (self.folder / "deep").mkdir()
        self.make("random", "--size", 5, "--density", 0.4, "--seed", 2, file="deep/M.npy")
        jobs = self.jobs_file(
            {
                "archs": _ARCHS.split(","),
                "jobs": [
                    {"layouts": ["L.npy", "deep/M.npy"], "operations": ["forward", "grad_input"],
                     "blocks": ["16"], "batches": [8], "dtypes": ["f32"]},
                    {"layouts": ["L.npy"], "blocks": [16], "batches": [8]},
                ],
            }
        )  # fmt: skip
        first = self.precompile(jobs, "--jobs", 1, output="a.pack")
        self.assertEqual((first["kernels"], first["compiled"], first["failed"]), (12, 12, []))
        other = str(self.cache.parent / "another-cache")
        second = self.precompile(jobs, "--jobs", 3, "--cache-dir", other, output="b.pack", SPARSEKILN_MEMO="")  # compiles
        self.assertEqual(second["compiled"], 12)
        self.assertEqual(self.sha256("a.pack"), self.sha256("b.pack"))
        hidden = {**_NO_NVRTC, "SPARSEKILN_CACHE_DIR": str(self.cache.parent / "empty")}
        for arch in _ARCHS.split(","):
            for file in ("L.npy", "deep/M.npy"):
                for operation in ("forward", "grad_input"):
                    request = ["compile", file, "--block", 16, "--batch", 8, "--op", operation, "--target", arch]
                    served = self.answer(*request, "--pack", "a.pack", "--require", "prebuilt", **hidden)
                    self.assertEqual(served["from"], "pack")
        by_environment = self.answer(*request, **hidden, SPARSEKILN_PACKS=f":{self.folder}/b.pack")
        self.assertEqual((by_environment["from"], "warnings" in by_environment), ("pack", False))
        self.assertEqual(list((self.cache.parent).glob("empty/*/*.entry")), [], "nothing was compiled")

    def test_a_second_run_finds_what_the_first_made_and_writes_the_same_pack(self):
        request = ["L.npy", "--block", 16, "--batch", 8, "--arch", _ARCHS]
        self.assertEqual(self.precompile(*request, output="a.pack")["compiled"], 3)
        again = self.precompile(*request, output="b.pack")
        self.assertEqual((again["compiled"], again["found"]), (0, 3))
        self.assertEqual(self.sha256("a.pack"), self.sha256("b.pack"))

    def test_an_architecture_is_added_to_what_the_store_has_seen(self):
        for operation in ("forward", "grad_weight"):
            self.answer("compile", "L.npy", "--block", 16, "--batch", 8, "--op", operation, "--target", _ARCH)
        seen = self.precompile("--from-store")
        self.assertEqual((seen["kernels"], seen["found"]), (2, 2))
        (self.folder / "L.npy").rename(self.folder / "elsewhere.npy")
        other = _ARCHS.split(",")[1]
        self.assertEqual(self.precompile("--from-store", "--arch", other)["compiled"], 2)
        served = self.answer("compile", "elsewhere.npy", "--block", 16, "--batch", 8, "--op", "grad_weight",
                             "--target", other, "--pack", "kernels.pack", **_NO_NVRTC)  # fmt: skip
        self.assertEqual(served["from"], "pack")

    def test_the_folder_of_another_store_is_a_pack(self):
        request = ["compile", "L.npy", "--target", _ARCH]
        self.answer(*request)
        served = self.answer(*request, "--pack", self.cache, "--cache-dir", self.cache.parent / "mine")
        self.assertEqual(served["from"], "pack")

    def test_a_pack_with_attached_kernels_serves_every_layout(self):
        if not _CUDA:
            self.skipTest("no NVRTC")
        self.precompile("L.npy", "--block", 16, "--batch", 8, "--attached", "--arch", "sm_90")
        self.make("random", "--rows", 7, "--cols", 3, "--density", 0.6, file="other.npy")
        served = self.answer("compile", "other.npy", "--block", 16, "--batch", 8, "--attached", "--target", "sm_90",
                             "--require", "prebuilt", "--pack", "kernels.pack", **_NO_NVRTC)  # fmt: skip
        self.assertEqual((served["from"], served["out_features"]), ("pack", 7 * 16))

    def test_a_run_on_the_emulator_needs_nothing_but_the_pack(self):
        if not _CUDA:
            self.skipTest("no NVRTC")
        self.precompile("L.npy", "--block", 16, "--batch", 8, "--arch", "sm_80")
        run = self.answer("run", "L.npy", "--block", 16, "--batch", 8, "--target", "emulated:sm_80", "--check",
                          "--pack", "kernels.pack", "--require", "prebuilt", **_NO_NVRTC)  # fmt: skip
        self.assertEqual((run["from"], run["checked"]), ("pack", True))


class PrebuiltTest(PrecompileTest):
    def test_what_is_missing_is_named_with_the_command_that_makes_it(self):
        self.precompile("L.npy", "--block", 16, "--batch", 8, "--arch", _ARCH)
        request = ["compile", "L.npy", "--block", 16, "--batch", 9, "--epilogue", "bias+gelu", "--target", _ARCH]
        request += ["--pack", "kernels.pack", "--require", "prebuilt"]
        refused = self.run_tool(*request, "--json", **_NO_NVRTC)
        message = refused.json["error"]["message"]
        self.assertEqual((refused.status, refused.json["error"]["kind"]), (1, "cache"))
        for part in ("kernels.pack", "batch=9", "epilogue=bias+gelu", "the nearest entry"):
            self.assertIn(part, message)
        command = message.split("`")[1].split()
        self.assertEqual(command[:3], ["sparsekiln", "precompile", "L.npy"])
        self.succeed(*command[1:])
        self.assertEqual(self.answer(*request, **_NO_NVRTC)["from"], "pack")

    def test_without_any_pack_nothing_is_prebuilt_whatever_the_store_has(self):
        request = ["compile", "L.npy", "--target", _ARCH]
        self.answer(*request)
        self.assert_refused(1, [*request, "--require", "prebuilt"], ["no packs are given", "sparsekiln precompile L.npy"])

    def test_the_config_is_chosen_among_those_that_the_pack_holds(self):
        config = "simt tile_n=32 tile_out=2" if _CUDA else "vector tile_n=16 tile_out=2 warps=1"
        self.precompile("L.npy", "--block", 16, "--batch", 8, "--arch", _ARCH, "--config", config)
        request = ["compile", "L.npy", "--block", 16, "--batch", 8, "--target", _ARCH, "--pack", "kernels.pack"]
        held = self.answer(*request, "--require", "prebuilt", **_NO_NVRTC)
        self.assertIn(config.split()[1], held["config"])
        self.assertEqual(self.answer(*request)["from"], "compiled", "else the config is the default plan's")

    def test_tiered_and_prebuilt_are_refused_together(self):
        self.assert_refused(2, ["compile", "L.npy", "--target", _ARCH, "--tiered", "--require", "prebuilt"], ["tiered"])
        self.assert_refused(2, ["compile", "L.npy", "--target", _ARCH, "--require", "all"], ["prebuilt"])


class BadPackTest(PrecompileTest):
    def setUp(self):
        super().setUp()
        self.request = ["compile", "L.npy", "--block", 16, "--batch", 8, "--target", _ARCH]
        self.precompile("L.npy", "--block", 16, "--batch", 8, "--arch", _ARCH)
        self.whole = (self.folder / "kernels.pack").read_bytes()

    def bad_packs(self) -> dict[str, tuple[bytes, str]]:
        flipped = bytearray(self.whole)
        flipped[len(flipped) // 2] ^= 1
        index = bytearray(self.whole)
        index[45] ^= 1
        newer = bytearray(self.whole)
        newer[8] = 9
        return {
            "flipped": (bytes(flipped), "damaged (checksum)"),
            "index": (bytes(index), "the checksum of its index"),
            "cut": (self.whole[:-100], "cut off"),
            "short": (self.whole[:20], "cut off"),
            "foreign": (b"no pack at all", "not a pack"),
            "newer": (bytes(newer), "version 9"),
        }

    def test_a_bad_pack_that_was_asked_for_is_an_error_that_names_it(self):
        for name, (content, wrong) in self.bad_packs().items():
            with self.subTest(name):
                self.write("bad.pack", content)
                self.assert_refused(1, [*self.request, "--pack", "bad.pack"], ["bad.pack", wrong])
                self.assert_refused(1, [*self.request, "--require", "prebuilt"], ["bad.pack", wrong],
                                    SPARSEKILN_PACKS="bad.pack")  # fmt: skip
                self.assert_refused(1, ["pack", "merge", "kernels.pack", "bad.pack", "-o", "c.pack"], ["bad.pack", wrong])
                verified = self.run_tool("pack", "verify", "kernels.pack", "bad.pack", "--json")
                self.assertEqual(verified.status, 1)
                self.assertIn(wrong, verified.json["packs"][1]["bad"][0])
                self.assertEqual(verified.json["packs"][0]["bad"], [])
        self.assert_refused(1, [*self.request, "--pack", "missing.pack"], ["missing.pack", "No such file"])

    def test_payloads_that_were_exchanged_are_noticed_though_every_checksum_holds(self):
        self.make("random", "--size", 4, "--density", 0.5, "--seed", 2, file="M.npy")
        self.precompile("L.npy", "M.npy", "--block", 16, "--batch", 8, "--arch", _ARCH)
        plant = os.path.abspath(os.environ.get("SPARSEKILN_PLANT", "build/tests/cli/plant"))
        exchange = [plant, "exchange", "kernels.pack", "bad.pack"]
        keys = subprocess.run(exchange, check=True, capture_output=True, cwd=self.folder).stdout.decode().split()
        self.assertEqual(len(keys), 2)
        verified = self.run_tool("pack", "verify", "kernels.pack", "bad.pack", "--json")
        self.assertEqual(verified.status, 1)
        self.assertEqual(verified.json["packs"][0]["bad"], [])
        for bad, key, other in zip(verified.json["packs"][1]["bad"], keys, reversed(keys), strict=True):
            self.assertIn(f"bad.pack': entry {key}", bad)
            self.assertIn(f"made for the entry {other}", bad)
        self.assert_refused(1, ["pack", "merge", "bad.pack", "-o", "c.pack"], ["bad.pack", keys[0]])
        empty = {"SPARSEKILN_CACHE_DIR": str(self.cache.parent / "empty")}
        self.assertEqual(self.answer(*self.request, "--pack", "kernels.pack", **empty)["from"], "pack")
        self.assertEqual(self.answer(*self.request, "--pack", "bad.pack", **empty)["from"], "compiled")
        prebuilt = [*self.request, "--pack", "bad.pack", "--require", "prebuilt"]
        self.assert_refused(1, prebuilt, ["not the kernel that it says it is"])

    def test_a_bad_pack_that_the_environment_names_is_passed_over_with_a_warning(self):
        for name, (content, wrong) in self.bad_packs().items():
            with self.subTest(name):
                self.write("bad.pack", content)
                result = self.succeed(*self.request, "--json", SPARSEKILN_PACKS="missing.pack:bad.pack")
                (warning,) = result.json["warnings"]
                for part in ("SPARSEKILN_PACKS", "missing.pack", "bad.pack", wrong):
                    self.assertIn(part, warning)
                self.assertIn(warning, result.err)
        good = self.succeed(*self.request, "--json", SPARSEKILN_PACKS="missing.pack:kernels.pack")
        self.assertEqual((good.json["from"], len(good.json["warnings"])), ("pack", 1))

    def test_a_config_that_does_not_fit_is_counted_as_failed_and_nothing_else(self):
        config = "vector tile_n=999" if _ARCH.startswith("x86") else "mma tile_n=999"
        result = self.run_tool("precompile", "L.npy", "--arch", _ARCH, "--config", config, "-o", "bad.pack")
        self.assertEqual(result.status, 1)
        self.assertIn("1/1 kernels, 0 compiled, 0 found, 1 FAILED", result.err)
        self.assertFalse((self.folder / "bad.pack").exists())

    def test_a_folder_in_place_of_a_pack_is_read_as_far_as_it_can_be_trusted(self):
        shared = self.cache.parent / "shared"
        made = self.answer(*self.request, "--cache-dir", shared)
        own = ["--cache-dir", self.cache.parent / "own"]
        request = [*self.request, *own, "--pack", shared]
        self.assertEqual(self.answer(*request)["from"], "pack")
        shard = shared / made["key"][:2]
        shard.chmod(0o777)
        self.assert_refused(1, request, [str(shard), "anyone may write to it"])
        shard.chmod(0o700)
        entry = shard / (made["key"] + ".entry")
        entry.write_bytes(entry.read_bytes()[:-1])  # torn: its owner will mend it
        self.assertEqual(self.answer(*request)["from"], "compiled")

    def test_nothing_is_written_over_but_a_pack(self):
        layout = (self.folder / "L.npy").read_bytes()
        request = ["precompile", "L.npy", "--arch", _ARCH]
        self.assert_refused(1, [*request, "-o", "L.npy"], ["L.npy", "is not a pack"])
        self.assert_refused(1, [*request, "-o", "no/such/folder.pack"], ["no/such/folder.pack"])
        self.assert_refused(1, [*request, "-o", "."], ["not a regular file"])
        self.assertEqual((self.folder / "L.npy").read_bytes(), layout)

    def test_a_run_that_is_killed_leaves_the_old_pack_and_goes_on_where_it_was(self):
        jobs = self.jobs_file({"archs": [_ARCH], "jobs": [{"layouts": ["L.npy"], "batches": list(range(1, 41))}]})
        command = [os.path.abspath(os.environ["SPARSEKILN_TOOL"]), "precompile", jobs, "-o", "kernels.pack"]
        running = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env={**os.environ, "SPARSEKILN_CACHE_DIR": str(self.cache)})  # fmt: skip
        before = len(list(self.cache.glob("*/*.entry")))
        while len(list(self.cache.glob("*/*.entry"))) < before + 3:
            self.assertIsNone(running.poll())
        running.send_signal(signal.SIGKILL)
        running.wait()
        self.assertEqual((self.folder / "kernels.pack").read_bytes(), self.whole)
        done = self.precompile(jobs)
        self.assertEqual(done["compiled"] + done["found"], 40)
        self.assertGreaterEqual(done["found"], 2)


class BadJobsTest(PrecompileTest):
    def refuse(self, text: str, *needles: str):
        self.write("kernels.pack", "")
        self.jobs_file(text)
        self.assert_refused(2, ["precompile", "jobs.json", "-o", "kernels.pack"], list(needles))
        self.assertEqual((self.folder / "kernels.pack").read_bytes(), b"")

    def test_every_mistake_is_named_with_file_and_line(self):
        job = '"layouts": ["L.npy"], "archs": ["sm_80"]'
        cases = [
            ('{\n"jobs": [\n{"layouts": ["L.npy"]\n,,}]}', "jobs.json:4: ", "not JSON"),
            ('{"jobs": [{' + job, "jobs.json:1: ", "ends too early"),
            ("", "jobs.json:1: ", "ends too early"),
            ("[]", "jobs.json:1: ", "an object with 'jobs'"),
            ('{"archs": ["sm_80"]}', "jobs.json:1: ", "no 'jobs'"),
            ('{\n"jobs": []}', "jobs.json:2: ", "one object or more"),
            ('{"jobs": [\n1]}', "jobs.json:2: ", "an object, not a number"),
            ('{"jobs": [{' + job + '}],\n"job": 1}', "jobs.json:2: ", "no key 'job'"),
            ('{"jobs": [{' + job + ',\n"batch": 8}]}', "jobs.json:2: ", "no key 'batch'", "batches"),
            ('{"jobs": [{' + job + ',\n"batches": 8}]}', "jobs.json:2: ", "'batches' is a number", "a list"),
            ('{"jobs": [{' + job + ',\n"batches": []}]}', "jobs.json:2: ", "an empty list"),
            ('{"jobs": [{' + job + ',\n"batches": [8,\n\ntrue]}]}', "jobs.json:4: ", "true or false"),
            ('{"jobs": [{' + job + ',\n"batches": ["many"]}]}', "jobs.json:2: ", "many"),
            ('{"jobs": [{' + job + ',\n"dtypes": ["f16",\n"f12"]}]}', "jobs.json:3: ", "f12"),
            ('{"jobs": [{' + job + ',\n"gate": "yes"}]}', "jobs.json:2: ", "'gate' is a text", "true or false"),
            ('{"jobs": [{' + job + ',\n"block_scales": 1}]}', "jobs.json:2: ", "'block_scales' is a number", "true or false"),
            ('{"jobs": [{' + job + ', "gate": true,\n"block_scales": true}]}', "jobs.json:2: ", "'block_scales' is given twice"),
            ('{"jobs": [{' + job + ',\n"transposed": true}]}', "jobs.json:1: ", "transposed without conv"),
            ('{"jobs": [{' + job + ',\n"taps": "none.txt"}]}', "jobs.json:2: ", "taps without conv"),
            ('{"jobs": [{"conv": "kernel=3 input=9", ' + job + ',\n"taps": "none.txt"}]}', "jobs.json:2: ", "none.txt", "No such file"),
            ('{"jobs": [{' + job + ',\n"alignment": 1.5}]}', "jobs.json:2: ", "1.5 is not a whole number"),
            ('{"jobs": [\n\n{' + job + ', "alignment": 3}]}', "jobs.json:3: ", "aligned to 3 bytes"),
            ('{"jobs": [{"archs": ["sm_80"], "layouts":\n["L.npy",\n"N.npy"]}]}', "jobs.json:3: ", "N.npy", "No such file"),
            ('{"jobs": [{"layouts": ["L.npy"],\n"archs": ["sm_12"]}]}', "jobs.json:2: ", "sm_12"),
            ('{"jobs": [{"layouts": ["L.npy"]}]}', "jobs.json:1: ", "--arch"),
            ('{"jobs": [{"archs": ["sm_80"]}]}', "jobs.json:1: ", "'layouts'"),
            ('{"jobs": [{' + job + ',\n"layouts": ["L.npy"]}]}', "jobs.json:2: ", "there twice", "line 1"),
            ('{"jobs": [{' + job + ',\n"A": 1,\n"B": 2,\n"C": {"A": 1},\n"B": 3}]}', "jobs.json:5: ", "'B' is there twice, first in line 3"),
            ('{"jobs": ' + "[" * 1000, "jobs.json:1: ", "in each other"),
        ]
        for text, *needles in cases:
            with self.subTest(text):
                self.refuse(text, *needles)

    def test_a_request_that_makes_no_sense_is_refused_before_anything_is_compiled(self):
        output = ["-o", "kernels.pack"]
        self.assert_refused(2, ["precompile", *output], ["--from-store"])
        self.assert_refused(2, ["precompile", "--from-store", *output], ["has seen no kernel"])
        self.assert_refused(2, ["precompile", "L.npy", *output], ["--arch"])
        self.assert_refused(2, ["precompile", "L.npy", "--arch", "sm_80,sm_12", *output], ["sm_12"])
        self.assert_refused(2, ["precompile", "L.npy", "--arch", "sm_80", "--jobs", "-1", *output], ["--jobs"])
        self.assert_refused(1, ["precompile", "N.npy", "--arch", "sm_80", *output], ["N.npy"])
        self.assertFalse(self.cache.exists())

    def test_all_failures_are_reported_and_the_pack_is_written_only_when_told_to(self):
        if "cpu" not in compilable_targets():
            self.skipTest("no LLVM")
        request = ["precompile", "L.npy", "--arch", "sm_80,x86-64-v3:2,sm_90", "-o", "kernels.pack"]
        failed = self.run_tool(*request, "--json", **_NO_NVRTC)
        self.assertEqual((failed.status, failed.json["pack"], len(failed.json["failed"])), (1, None, 2))
        self.assertIn("/nonexistent", failed.json["failed"][0]["message"])
        self.assertFalse((self.folder / "kernels.pack").exists())
        kept = self.run_tool(*request, "--keep-going", "--json", **_NO_NVRTC)
        self.assertEqual((kept.status, kept.json["kernels"], len(kept.json["failed"])), (1, 1, 2))
        listed = self.answer("pack", "list", "kernels.pack")["entries"]
        self.assertEqual([entry["identity"]["target"] for entry in listed], ["x86-64-v3:2"])


class PackVerbTest(PrecompileTest):
    def test_merging_gives_the_pack_of_all_jobs(self):
        request = ["L.npy", "--block", 16, "--batch", 8, "--arch"]
        one, two, *_ = _ARCHS.split(",")
        self.precompile(*request, one, output="a.pack")
        self.precompile(*request, f"{one},{two}", output="both.pack")
        self.precompile(*request, two, output="b.pack")
        merged = self.answer("pack", "merge", "a.pack", "b.pack", "both.pack", "-o", "c.pack")
        self.assertEqual(merged["kernels"], 2)
        self.assertEqual(self.sha256("c.pack"), self.sha256("both.pack"))
        self.assertEqual(self.answer("pack", "verify", "c.pack")["packs"][0]["entries"], 2)

    def test_extracting_writes_what_compile_writes(self):
        self.precompile("L.npy", "--arch", _ARCH)
        self.answer("compile", "L.npy", "--target", _ARCH, "-o", "stages")
        (entry,) = self.answer("pack", "list", "kernels.pack")["entries"]
        self.answer("pack", "extract", "kernels.pack", entry["key"][:8], "-o", "out")
        self.answer("pack", "extract", "kernels.pack", "--all", "-o", "all")
        for ending in ("cubin", "ptx") if _CUDA else ("o",):
            written = (self.folder / "out" / f"{entry['key']}.{ending}").read_bytes()
            self.assertEqual(written, (self.folder / "stages" / f"kernel.{ending}").read_bytes())
            self.assertEqual(written, (self.folder / "all" / f"{entry['key']}.{ending}").read_bytes())
        identity = (self.folder / "out" / f"{entry['key']}.identity").read_text()
        self.assertIn("operation=forward\n", identity)
        self.assert_refused(2, ["pack", "extract", "kernels.pack", "xyz", "-o", "no"], ["xyz", "pack list"])
        self.assert_refused(2, ["pack", "extract", "kernels.pack", "-o", "no"], ["--all"])

    def test_a_list_is_a_table_for_people(self):
        self.precompile("L.npy", "--arch", _ARCHS)
        text = self.succeed("pack", "list", "kernels.pack").out
        self.assertEqual(len(text.splitlines()), 5)
        for arch in _ARCHS.split(","):
            self.assertIn(arch, text)


if __name__ == "__main__":
    unittest.main()
