"""The command with the cell of an LSTM as an epilogue: compiled, run, verified, tuned and packed."""

import json
import unittest

from command import CommandTest, compilable_targets

_TARGETS = [target for target, kind in (("cpu", "cpu"), ("emulated:sm_90", "sm_90")) if kind in compilable_targets()]
_KINDS = [
    ("forward", "lstm"),
    ("forward", "lstm+keep"),
    ("grad_input", "lstm"),
    ("grad_input", "lstm+residual"),
    ("grad_weight", "lstm"),
    ("grad_weight", "scale+lstm"),
]


class LstmTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.make("random", "--size", 5, "--density", 0.4, "--seed", 2)

    def check(self, *arguments: object) -> dict:
        answer = self.answer("run", "L.npy", "--block", 16, "--check", *arguments)
        self.assertEqual((answer["exact"]["ok"], answer["random"]["ok"]), (True, True))
        self.assertLessEqual(answer["max_error_ratio"], 1)
        return answer

    def test_every_operation_is_right_on_cpus_and_emulated_devices(self):
        for target in _TARGETS:
            for operation, epilogue in _KINDS:
                with self.subTest(target=target, operation=operation, epilogue=epilogue):
                    request = ("--batch", "up-to:9", "--n", 5, "--op", operation, "--epilogue", epilogue, "--target", target)
                    self.check("--dtype", "f16", *request)
                    self.check("--dtype", "f32", "--activation-order", "feature-major", *request)

    def test_every_type_has_it(self):
        types = [("cpu", ("--dtype", "f64")), ("cpu", ("--dtype", "bf16", "--out-dtype", "f32"))]
        types += [("emulated:sm_90", ("--dtype", "bf16")), ("emulated:sm_90", ("--dtype", "f32", "--math", "tf32"))]
        for target, dtype in types:
            if target not in _TARGETS:
                continue
            for operation, epilogue in (("forward", "lstm+keep"), ("grad_input", "lstm+residual")):
                with self.subTest(target=target, dtype=dtype, operation=operation):
                    self.check("--batch", 5, *dtype, "--op", operation, "--epilogue", epilogue, "--target", target)

    def test_attached_layouts_share_one_compile(self):
        self.make("random", "--size", 7, "--density", 0.5, "--seed", 3, file="other.npy")
        for target in _TARGETS:
            for operation, epilogue in _KINDS:
                with self.subTest(target=target, operation=operation, epilogue=epilogue):
                    request = ("--block", 16, "--batch", 6, "--op", operation, "--epilogue", epilogue, "--target", target)
                    first, second = (self.answer("run", file, *request, "--attached", "--check") for file in ("L.npy", "other.npy"))
                    self.assertEqual((first["from"], second["from"], second["key"]), ("compiled", "store", first["key"]))
                    for answer in (first, second):
                        self.assertEqual((answer["exact"]["ok"], answer["random"]["ok"]), (True, True))

    @unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
    def test_it_is_verified_on_emulated_devices(self):
        for operation, epilogue in (("forward", "lstm+keep"), ("grad_input", "lstm+residual"), ("grad_weight", "scale+lstm")):
            with self.subTest(operation):
                request = ("--block", 16, "--batch", 6, "--dtype", "f16", "--op", operation, "--epilogue", epilogue)
                answer = self.answer("verify", "L.npy", *request, "--target", "emulated:sm_80", "--seeds", 2)
                self.assertEqual((answer["found"], len(answer["seeds"])), (0, 2))

    @unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
    def test_a_compiled_one_has_four_weights_in_its_source(self):
        self.succeed("compile", "L.npy", "--target", "sm_90", "--epilogue", "lstm+keep", "-o", "out")
        source = (self.folder / "out" / "kernel.cu").read_text()
        self.assertIn("weights = 4", source)
        self.assertIn("CellMatrices cell", source)

    def test_it_is_tuned_and_reported(self):
        for target in _TARGETS:
            for operation, epilogue in (("forward", "lstm+keep"), ("grad_input", "lstm+residual")):
                with self.subTest(target=target, operation=operation):
                    request = ("--batch", 4, "--block", 16, "--op", operation, "--epilogue", epilogue, "--target", target)
                    (found,) = self.answer("tune", "L.npy", *request, "--budget", "1s")["problems"]
                    self.assertEqual(found["candidates"]["failed"], 0)
        out = self.succeed("report").out
        for epilogue in ("lstm+keep", "lstm+residual"):
            self.assertEqual(out.count(epilogue), len(_TARGETS))

    @unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
    def test_a_pack_of_a_jobs_file_has_it(self):
        job = {"layouts": ["L.npy"], "blocks": [16], "batches": ["up-to:5"], "dtypes": ["f16"], "epilogues": ["lstm+keep"]}
        self.write("jobs.json", json.dumps({"archs": ["sm_80"], "jobs": [job]}))
        self.assertEqual(self.answer("precompile", "jobs.json", "-o", "K.pack")["failed"], [])
        hidden = {"SPARSEKILN_NVRTC": "/nonexistent", "SPARSEKILN_CACHE_DIR": str(self.cache.parent / "empty")}
        request = ("--block", 16, "--batch", "up-to:5", "--n", 4, "--dtype", "f16", "--epilogue", "lstm+keep")
        packed = ("--pack", "K.pack", "--require", "prebuilt", "--target", "emulated:sm_80", "--check")
        served = self.answer("run", "L.npy", *request, *packed, **hidden)
        self.assertEqual((served["from"], served["random"]["ok"]), ("pack", True))


if __name__ == "__main__":
    unittest.main()
