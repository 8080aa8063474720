"""Several NVRTCs and drivers of several ages: which is used, what `doctor` says of it, and packs that serve them all."""

import os
import pathlib
import shutil
import unittest

from command import CommandTest, _doctor, compilable_targets

_REAL = _doctor()["nvrtc"].get("path", "")


@unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
class NvrtcTest(CommandTest):
    """NVRTCs that say that they are of some version, and have the real one do their work."""

    def setUp(self):
        super().setUp()
        self.make("random", "--size", 4, "--density", 0.5, "--seed", 1)

    def fakes(self, *versions: str) -> dict[str, str]:
        """The environment of a machine that has NVRTCs of these versions, each of another major one, and no other."""
        folder = pathlib.Path(self.folder.parent / f"nvrtc-{'-'.join(versions)}")
        folder.mkdir(exist_ok=True)
        for version in versions:
            library = folder / f"libnvrtc.so.{version.split('.')[0]}"
            shutil.copy(os.environ["SPARSEKILN_FAKE_NVRTC"], library)
            (folder / f"{library.name}.version").write_text(f"{version} 80 90 100")
        return {"SPARSEKILN_NVRTC": str(folder), "SPARSEKILN_TEST_NVRTC": _REAL}

    @staticmethod
    def driver(version: int) -> dict[str, str]:
        return {
            "SPARSEKILN_CUDA_DRIVER": os.environ["SPARSEKILN_TEST_DRIVER"],
            "SPARSEKILN_TEST_DRIVER_VERSION": str(version),
        }

    def precompile(self, pack: str, *arguments: object, **environment: str) -> dict:
        request = ["L.npy", "--block", 16, "--batch", 8, "--arch", "sm_90", "-o", pack]
        return self.answer("precompile", *request, *arguments, **environment)

    def test_packs_for_two_drivers_merge_into_one_that_serves_both(self):
        both = self.fakes("12.9", "13.0")
        self.assertEqual(self.precompile("old.pack", "--driver", "12.9", **both)["compilers"], ["NVRTC 12.9"])
        self.assertEqual(self.precompile("new.pack", "--driver", "13.0", **both)["compilers"], ["NVRTC 12.9"],
                         "what the store has for an older driver serves a newer one")  # fmt: skip
        empty = str(self.cache.parent / "empty")
        made = self.precompile("new.pack", "--driver", "13.0", "--cache-dir", empty, **both)
        self.assertEqual(made["compilers"], ["NVRTC 13.0"])
        merged = self.answer("pack", "merge", "old.pack", "new.pack", "-o", "both.pack")
        self.assertEqual(merged["kernels"], 1)
        (entry,) = self.answer("pack", "list", "both.pack")["entries"]
        self.assertEqual(entry["nvrtc"], ["13.0", "12.9"])
        self.assertEqual(self.answer("pack", "verify", "both.pack")["packs"][0]["bad"], [])
        again = self.answer("pack", "merge", "new.pack", "both.pack", "-o", "again.pack")
        self.assertEqual((self.folder / "again.pack").read_bytes(), (self.folder / "both.pack").read_bytes(), again)
        files = self.answer("pack", "extract", "both.pack", "--all", "-o", "out")["files"]
        names = {pathlib.Path(file).name.removeprefix(entry["key"]) for file in files}
        self.assertLessEqual({".identity", ".nvrtc-13.0.cubin", ".nvrtc-12.9.cubin", ".nvrtc-12.9.ptx"}, names)
        request = ["compile", "L.npy", "--block", 16, "--batch", 8, "--target", "sm_90", "--pack", "both.pack"]
        request += ["--require", "prebuilt"]
        for driver, compiler in ((12040, "NVRTC 12.9"), (12090, "NVRTC 12.9"), (13000, "NVRTC 13.0")):
            served = self.answer(*request, **self.fakes("11.8"), **self.driver(driver))
            self.assertEqual((served["from"], served["compiler"]), ("pack", compiler))

    def test_the_store_shows_which_nvrtcs_have_made_an_entry_and_why_one_is_a_miss(self):
        request = ["L.npy", "--block", 16, "--batch", 8, "--target", "sm_90"]
        both = self.fakes("12.9", "13.0")
        self.answer("compile", *request, **both, **self.driver(13000))
        missed = self.answer("cache", "explain-miss", *request, **both, **self.driver(12040))
        self.assertIs(missed["hit"], False)
        self.assertIn("is of NVRTC 13.0, whose code", missed["state"])
        self.answer("compile", *request, **both, **self.driver(12040))
        for driver in (12040, 13000):
            self.assertIs(self.answer("cache", "explain-miss", *request, **self.driver(driver))["hit"], True)
        kernels = [file for file in self.answer("cache", "list")["files"] if file["identity"]["what"] == "binary"]
        self.assertEqual([kernel["nvrtc"] for kernel in kernels], [["13.0", "12.9"]])
        inspected = self.answer("cache", "inspect", kernels[0]["key"])
        self.assertEqual([one["compiler"] for one in inspected["binaries"]], ["NVRTC 13.0", "NVRTC 12.9"])

    def test_precompile_warns_where_the_driver_will_not_load_the_ptx(self):
        self.assertNotIn("warnings", self.precompile("a.pack", "--driver", "12.9", **self.fakes("12.9")))
        warned = self.precompile("a.pack", "--driver", "12.4", **self.fakes("12.9"))
        self.assertIn("NVRTC 12.9 is newer than the driver", " ".join(warned["warnings"]))

    def test_a_driver_that_is_no_version_of_cuda_is_refused(self):
        for text in ("550.54.14", "12", "11.8", "new"):
            request = ["precompile", "L.npy", "--arch", "sm_90", "--driver", text, "-o", "a.pack"]
            self.assert_refused(2, request, [f"--driver '{text}'", "nvidia-smi"])

    def test_doctor_lists_every_nvrtc_with_what_the_driver_loads_of_it(self):
        def libraries(driver):
            answer = self.answer("doctor", **self.fakes("12.9", "13.1"), **self.driver(driver))["nvrtc"]
            return answer, [(one["version"], one["cubins_load"], one["ptx_loads"], one["used"]) for one in answer["libraries"]]

        answer, found = libraries(13010)
        self.assertEqual(found, [("13.1", True, True, True), ("12.9", True, True, False)])
        self.assertEqual(answer["version"], "13.1")
        self.assertEqual(libraries(13000)[1], [("13.1", True, False, False), ("12.9", True, True, True)])
        answer, found = libraries(12040)
        self.assertEqual(found, [("13.1", False, False, False), ("12.9", True, False, True)])
        self.assertIn("none was found whose PTX it loads", answer["why"])

    def test_doctor_says_what_would_work_where_the_driver_is_too_old_for_all(self):
        environment = {**self.fakes("13.0"), **self.driver(12040)}
        answer = self.answer("doctor", **environment)["nvrtc"]
        self.assertIs(answer["found"], False)
        text = self.succeed("doctor", **environment).out
        for part in ("loads neither its cubins nor its PTX", "nvidia-cuda-nvrtc-cu12<12.5", "a driver of release 580 or later"):
            self.assertIn(part, answer["why"])
            self.assertIn(part, text)


if __name__ == "__main__":
    unittest.main()
