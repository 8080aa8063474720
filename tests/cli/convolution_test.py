"""Convolutions by every command that takes a layer. CUDA targets need NVRTC and the emulator, and no GPU."""

import csv
import io
import json
import unittest

from command import CommandTest, compilable_targets

_OPERATIONS = ("forward", "grad_input", "grad_weight")
_GEOMETRY = "kernel=3x3 stride=2x2 padding=1x1 input=9x8"
_REQUEST = ("--block", 16, "--conv", _GEOMETRY, "--dtype", "f16")
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}


class ConvolutionTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.make("random", "--rows", 3, "--cols", 4, "--density", 0.5, "--seed", 1)


@unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
class CudaTest(ConvolutionTest):
    def test_every_operation_is_right_on_emulated_devices(self):
        geometries = ("kernel=2 input=4x3x5", "kernel=5 padding=same input=21", _GEOMETRY, "kernel=3x1 dilation=2x1 padding=0:1x2:0 input=6x4")
        for number, geometry in enumerate(geometries):
            for operation in _OPERATIONS:
                for dtype in ("f32", "f16") if number % 2 else ("bf16",):
                    with self.subTest(geometry=geometry, operation=operation, dtype=dtype):
                        request = ("--block", 16, "--batch", 3, "--conv", geometry, "--op", operation, "--dtype", dtype)
                        answer = self.answer("run", "L.npy", *request, "--target", ("emulated", "emulated:sm_80")[number // 2], "--check")
                        self.assertEqual((answer["exact"]["ok"], answer["random"]["ok"]), (True, True))

    def test_features_that_fill_no_whole_blocks_go_with_every_command(self):
        cut = ("--in-features", 50, "--out-features", 33, "--alignment", 2)
        request = ("L.npy", *_REQUEST, "--batch", 3, *cut)
        for operation in _OPERATIONS:
            with self.subTest(operation=operation):
                target = ("--op", operation, "--target", "emulated:sm_80")
                answer = self.answer("run", *request, *target, "--check")
                self.assertEqual((answer["exact"]["ok"], answer["random"]["ok"]), (True, True))
                self.assertEqual(self.answer("verify", *request, *target, "--seeds", 1)["found"], 0)
                said = self.succeed("compile", *request, "--op", operation, "--target", "sm_90", "-o", operation).out
                self.assertIn("33 → 50" if operation == "grad_input" else "50 → 33", said)
        (found,) = self.answer("tune", *request, "--target", "emulated:sm_80", "--budget", "1s")["problems"]
        self.assertEqual((found["candidates"]["tried"] > 0, found["candidates"]["failed"]), (True, 0))
        made = self.answer("precompile", *request, "--arch", "sm_80", "-o", "K.pack")
        self.assertEqual((made["kernels"], made["failed"]), (1, []))
        job = {"layouts": ["L.npy"], "blocks": [16], "batches": [3], "dtypes": ["f16"], "conv": _GEOMETRY, "in_features": 50, "out_features": 33, "alignment": 2}
        self.write("jobs.json", json.dumps({"archs": ["sm_80"], "jobs": [job]}))
        self.assertEqual(self.answer("precompile", "jobs.json", "-o", "J.pack")["found"], 1)

    def test_channels_first_images_go_with_every_command(self):
        request = ("L.npy", *_REQUEST, "--batch", 3, "--activation-order", "feature-major")
        for operation in _OPERATIONS:
            with self.subTest(operation=operation):
                target = ("--op", operation, "--target", "emulated:sm_80")
                answer = self.answer("run", *request, *target, "--check")
                self.assertEqual((answer["exact"]["ok"], answer["random"]["ok"]), (True, True))
                self.assertEqual(self.answer("verify", *request, *target, "--seeds", 2)["found"], 0)
                self.succeed("compile", *request, "--op", operation, "--target", "sm_90", "-o", operation)
                self.assertIn("images_to_rows", (self.folder / operation / "kernel.ptx").read_text())
        (found,) = self.answer("tune", *request, "--target", "emulated:sm_80", "--budget", "1s")["problems"]
        self.assertEqual((found["candidates"]["tried"] > 0, found["candidates"]["failed"]), (True, 0))

    def test_a_batch_of_any_images_is_right_for_every_n_it_takes(self):
        for operation in _OPERATIONS:
            for n in (0, 1, 2, 5, 9):
                with self.subTest(operation=operation, n=n):
                    request = ("--batch", "up-to:9", "--n", n, "--op", operation, "--target", "emulated:sm_80", "--check")
                    self.assertTrue(self.answer("run", "L.npy", *_REQUEST, *request)["random"]["ok"])

    def test_one_kernel_serves_images_of_any_extents_up_to_its_bound(self):
        request = ("L.npy", "--block", 16, "--conv", "kernel=3x3 stride=2 padding=1 input=up-to:9x8", "--batch", 2)
        for operation in _OPERATIONS:
            keys = set()
            for extents in ("9x8", "5x8", "9x2", "1x1"):
                with self.subTest(operation=operation, extents=extents):
                    answer = self.answer("run", *request, "--op", operation, "--input", extents, "--target", "emulated:sm_80", "--check")
                    self.assertEqual((answer["exact"]["ok"], answer["random"]["ok"]), (True, True))
                    keys.add(answer["key"])
            self.assertEqual(len(keys), 1)
            self.assertEqual(self.answer("verify", *request, "--op", operation, "--input", "4x7", "--seeds", 1)["found"], 0)

    def test_every_operation_is_verified(self):
        for operation in _OPERATIONS:
            with self.subTest(operation):
                request = ("--batch", "up-to:4", "--n", 2, "--op", operation, "--target", "emulated:sm_80", "--seeds", 2)
                answer = self.answer("verify", "L.npy", *_REQUEST, *request)
                self.assertEqual((answer["found"], len(answer["seeds"])), (0, 2))

    def test_block_scales_and_their_gradient_are_right_and_verified(self):
        scaled = ("--batch", "up-to:3", "--n", 2, "--target", "emulated:sm_80", "--block-scales")
        masked = ("--block", 16, "--conv", "kernel=3 padding=1 input=9 taps=" + "110100111" * 2, "--dtype", "f32")
        for request in (_REQUEST, masked):
            for operation in _OPERATIONS:
                with self.subTest(request=request, operation=operation):
                    asked = (*request, *scaled, "--op", operation, *(["--block-scale-gradient"] if operation == "grad_weight" else []))
                    answer = self.answer("run", "L.npy", *asked, "--check")
                    self.assertEqual((answer["exact"]["ok"], answer["random"]["ok"]), (True, True))
                    self.assertEqual(self.answer("verify", "L.npy", *asked, "--seeds", 2)["found"], 0)

    def test_what_is_compiled_says_its_geometry(self):
        for operation in _OPERATIONS:
            with self.subTest(operation):
                said = self.succeed("compile", "L.npy", *_REQUEST, "--batch", 3, "--op", operation, "--target", "sm_90", "-o", operation).out
                self.assertIn("6 blocks of 16x16 and 9 taps, batch 3, f16\nconvolution " + _GEOMETRY, said)
                self.assertIn("// Sparsekiln: " + operation + " of a block-sparse convolution", (self.folder / operation / "kernel.cu").read_text())
        table = self.succeed("cache", "list").out
        self.assertEqual(table.count(_GEOMETRY), 3)
        miss = ("--batch", 3, "--op", "grad_weight", "--target", "sm_90", "--conv", _GEOMETRY.replace("9x8", "9x9"), "--block", 16, "--dtype", "f16")
        self.assertIn("input=9x9, stored kernel=3x3", self.succeed("cache", "explain-miss", "L.npy", *miss).out)

    def test_a_pack_of_a_jobs_file_serves_without_a_compiler(self):
        job = {"layouts": ["L.npy"], "operations": _OPERATIONS, "blocks": [16], "batches": ["up-to:5"], "dtypes": ["f16"], "conv": _GEOMETRY}
        self.write("jobs.json", json.dumps({"archs": ["sm_80", "sm_90"], "jobs": [job]}))
        made = self.answer("precompile", "jobs.json", "-o", "K.pack")
        self.assertEqual((made["kernels"], made["compiled"], made["failed"]), (6, 6, []))
        self.assertEqual(self.succeed("pack", "list", "K.pack").out.count(_GEOMETRY), 6)
        hidden = {"SPARSEKILN_NVRTC": "/nonexistent", "SPARSEKILN_CACHE_DIR": str(self.cache.parent / "empty")}
        prebuilt = ("--pack", "K.pack", "--require", "prebuilt", "--target", "emulated:sm_80", "--check")
        for operation in _OPERATIONS:
            served = self.answer("run", "L.npy", *_REQUEST, "--batch", "up-to:5", "--n", 4, "--op", operation, *prebuilt, **hidden)
            self.assertEqual((served["from"], served["random"]["ok"]), ("pack", True))
        other = ("--block", 16, "--conv", "kernel=3 padding=1 input=9x8", "--dtype", "f16", "--batch", "up-to:5")
        self.assert_refused(1, ["run", "L.npy", *other, *prebuilt], ["--conv", "sparsekiln precompile"], **hidden)

    def test_every_operation_is_tuned_and_reported_with_its_geometry(self):
        for operation in _OPERATIONS:
            with self.subTest(operation):
                request = ("--batch", 2, "--op", operation, "--target", "emulated:sm_80", "--budget", "1s")
                (found,) = self.answer("tune", "L.npy", *_REQUEST, *request)["problems"]
                self.assertGreater(found["candidates"]["tried"], 0)
                self.assertEqual(found["candidates"]["failed"], 0)
        self.assertEqual(self.succeed("report").out.count("convolution " + _GEOMETRY), 3)
        rows = list(csv.DictReader(io.StringIO(self.succeed("report", "--csv", "-").out, newline="")))
        self.assertEqual([row["convolution"] for row in rows], [_GEOMETRY] * 3)

    def test_the_model_prices_every_operation_without_a_compile(self):
        for operation in _OPERATIONS:
            with self.subTest(operation):
                request = ("--batch", 8, "--op", operation, "--target", "sm_90", "--model")
                (found,) = self.answer("tune", "L.npy", *_REQUEST, *request, **_NO_GPU)["problems"]
                model = found["model"]
                self.assertLessEqual(found["floor_us"], model["first"]["predicted_us"])
                self.assertLessEqual(model["first"]["predicted_us"], model["default"]["predicted_us"])
        self.assertEqual(list(self.cache.glob("*/*.entry")), [])


_EDGES = ("--epilogue", "scale+edge_bias+relu+residual")


class EdgeBiasTest(ConvolutionTest):
    targets = [target for target, kind in (("cpu", "cpu"), ("emulated:sm_80", "sm_90")) if kind in compilable_targets()]

    def test_it_is_right_on_cpus_and_emulated_devices(self):
        geometries = ("kernel=2 padding=1 input=4x3x5", _GEOMETRY, "kernel=3x2 stride=2 transposed output-padding=1 input=4x3")
        for geometry in geometries:
            for target in self.targets:
                with self.subTest(geometry=geometry, target=target):
                    request = ("--block", 16, "--batch", "up-to:5", "--n", 3, "--conv", geometry, *_EDGES, "--target", target, "--check")
                    answer = self.answer("run", "L.npy", *request)
                    self.assertEqual((answer["exact"]["ok"], answer["random"]["ok"]), (True, True))

    def test_it_is_tuned_and_reported(self):
        for target in self.targets:
            with self.subTest(target):
                request = ("--batch", 2, *_REQUEST, *_EDGES, "--target", target, "--budget", "1s")
                (found,) = self.answer("tune", "L.npy", *request)["problems"]
                self.assertEqual(found["candidates"]["failed"], 0)
        self.assertEqual(self.succeed("report").out.count("scale+edge_bias+relu+residual"), len(self.targets))

    @unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
    def test_it_is_verified_and_compiled_for_cuda_targets(self):
        request = ("--batch", 2, *_REQUEST, *_EDGES)
        answer = self.answer("verify", "L.npy", *request, "--target", "emulated:sm_80", "--seeds", 2)
        self.assertEqual((answer["found"], len(answer["seeds"])), (0, 2))
        self.succeed("compile", "L.npy", *request, "--target", "sm_90", "-o", "out")
        self.assertIn("struct EdgeRuns", (self.folder / "out" / "kernel.cu").read_text())

    @unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
    def test_a_pack_of_a_jobs_file_has_it(self):
        job = {"layouts": ["L.npy"], "blocks": [16], "batches": ["up-to:5"], "dtypes": ["f16"], "epilogues": ["edge_bias"], "conv": _GEOMETRY}
        self.write("jobs.json", json.dumps({"archs": ["sm_80"], "jobs": [job]}))
        self.assertEqual(self.answer("precompile", "jobs.json", "-o", "K.pack")["failed"], [])
        hidden = {"SPARSEKILN_NVRTC": "/nonexistent", "SPARSEKILN_CACHE_DIR": str(self.cache.parent / "empty")}
        request = ("--batch", "up-to:5", "--n", 4, "--epilogue", "edge_bias", "--pack", "K.pack", "--require", "prebuilt")
        served = self.answer("run", "L.npy", *_REQUEST, *request, "--target", "emulated:sm_80", "--check", **hidden)
        self.assertEqual((served["from"], served["random"]["ok"]), ("pack", True))

    def test_what_has_none_is_refused_by_one_sentence(self):
        cases = [
            ((), "edge_bias", ["this is a linear layer", "bias would work"]),
            (("--conv", _GEOMETRY), "bias+edge_bias", ["takes the place of the bias"]),
            (("--conv", _GEOMETRY), "edge_bias+silu+glu", ["a glu pair has no edge bias"]),
            (("--conv", "kernel=70 padding=35 input=90x90"), "edge_bias", ["more than 4096 ways", "would work"]),
        ]
        for geometry, epilogue, needles in cases:
            with self.subTest(epilogue=epilogue, geometry=geometry):
                self.assert_refused(2, ["compile", "L.npy", "--target", "cpu", "--epilogue", epilogue, *geometry], needles)


class AttachedTest(ConvolutionTest):
    def setUp(self):
        super().setUp()
        self.make("random", "--rows", 5, "--cols", 2, "--density", 0.6, "--seed", 2, file="other.npy")

    def check_shared(self, target: str, *request: object) -> None:
        asked = ("--batch", 2, "--block", 16, "--conv", _GEOMETRY, *request, "--attached", "--target", target, "--check")
        first, second = (self.answer("run", file, *asked) for file in ("L.npy", "other.npy"))
        self.assertEqual((first["from"], second["from"], second["key"]), ("compiled", "store", first["key"]))
        for answer in (first, second):
            self.assertEqual((answer["exact"]["ok"], answer["random"]["ok"]), (True, True))
            self.assertEqual((answer["attached"], answer["tier"]), (True, "attached"))
        self.assertNotEqual(first["out_features"], second["out_features"])

    @unittest.skipUnless("cpu" in compilable_targets(), "no cpu target")
    def test_layouts_share_one_compile_on_the_cpu(self):
        for operation in _OPERATIONS:
            for more in ((), ("--block-scales",), ("--activation-order", "feature-major")):
                with self.subTest(operation=operation, more=more):
                    self.check_shared("cpu", "--op", operation, "--dtype", "bf16", *more)
            self.check_shared("cpu", "--op", operation, "--dtype", "f64")
        self.assertEqual(self.answer("run", "L.npy", "--batch", 2, *_REQUEST, "--tiered", "--target", "cpu")["tier"], "baked")

    @unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
    def test_layouts_share_one_compile_on_emulated_devices(self):
        for operation, more in (("forward", ("--epilogue", "scale+edge_bias+relu")), ("grad_input", ("--block-scales",))):
            with self.subTest(operation=operation):
                self.check_shared("emulated:sm_80", "--op", operation, "--dtype", "f16", *more)
                request = ("--batch", 2, *_REQUEST, "--op", operation, "--target", "emulated:sm_80", *more)
                self.assertEqual(self.answer("verify", "L.npy", *request, "--attached", "--seeds", 2)["found"], 0)
                tiered = self.answer("run", "L.npy", *request, "--tiered", "--check")
                self.assertEqual((tiered["tier"], tiered["random"]["ok"]), ("baked", True))

    @unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")
    def test_a_pack_serves_every_layout(self):
        job = {"layouts": ["L.npy"], "blocks": [16], "batches": ["up-to:5"], "dtypes": ["f16"], "operations": ["forward", "grad_input"], "conv": _GEOMETRY}
        self.write("jobs.json", json.dumps({"archs": ["sm_80"], "jobs": [{**job, "attached": True}]}))
        self.assertEqual(self.answer("precompile", "jobs.json", "-o", "K.pack")["failed"], [])
        hidden = {"SPARSEKILN_NVRTC": "/nonexistent", "SPARSEKILN_CACHE_DIR": str(self.cache.parent / "empty")}
        for operation in ("forward", "grad_input"):
            request = ("--batch", "up-to:5", "--n", 4, "--op", operation, "--attached", "--pack", "K.pack", "--require", "prebuilt")
            served = self.answer("run", "other.npy", *_REQUEST, *request, "--target", "emulated:sm_80", "--check", **hidden)
            self.assertEqual((served["from"], served["random"]["ok"]), ("pack", True))


@unittest.skipUnless("cpu" in compilable_targets(), "no cpu target")
class CpuTest(ConvolutionTest):
    def test_what_is_compiled_says_what_a_job_is(self):
        cases = [
            ("kernel=3x3 padding=1 input=56x56", ("f32", 1), r"\d+ jobs an image"),
            ("kernel=3x3 padding=1 input=4x4", ("f32", 64), r"\d+ images a job"),
            ("kernel=3 padding=1 input=8", ("f64", 3), "1 image a job"),
            ("kernel=3x3 padding=1 input=56x56", ("f64", 3), r"\d+ jobs an image"),
        ]
        for number, (geometry, (dtype, batch), job) in enumerate(cases):
            with self.subTest(geometry=geometry, dtype=dtype):
                request = ("--block", 16, "--conv", geometry, "--dtype", dtype, "--batch", batch, "--target", "cpu", "-o", f"out{number}")
                self.assertRegex(self.succeed("compile", "L.npy", *request).out, f"n ≤ {batch}: .* threads, {job}, ")

    def test_only_what_is_packed_is_limited_by_its_size(self):
        far = ("--block", 16, "--conv", "kernel=2 dilation=900000000 input=1000000000", "--batch", 1, "--target", "cpu")
        self.succeed("compile", "L.npy", *far, "--dtype", "f64", "-o", "out")
        self.assert_refused(2, ["compile", "L.npy", *far, "--dtype", "f32"], ["packs more than 2^31 numbers"])


class RefusalTest(ConvolutionTest):
    def test_what_cuda_targets_lack_is_refused_by_one_sentence(self):
        cases = [
            ("kernel=63 input=70", [], ["width 63, added up 65", "64 together"]),
            ("kernel=32x32 padding=16 input=33", [], ["height 32 and width 32, added up 65"]),
            ("kernel=3 input=9", ["--config", "stream tile_n=8"], ["variant stream", "variant simt would work"]),
            ("kernel=3 input=9", ["--batch", 1 << 30], ["positions together"]),
            ("kernel=3 input=9", ["--dtype", "f64"], ["f64", "cpu"]),
            ("kernel=3 input=9", ["--in-features", 96], ["96 input features", "97 to 128"]),
        ]
        for geometry, more, needles in cases:
            for operation in _OPERATIONS[:1] if "--config" in more else _OPERATIONS:
                with self.subTest(geometry=geometry, more=more, operation=operation):
                    request = ["compile", "L.npy", "--target", "sm_90", "--op", operation, "--conv", geometry, *more]
                    self.assert_refused(2, request, needles)

    def test_what_belongs_to_one_layout_is_not_attached(self):
        self.make("random", "--rows", 2, "--cols", 2, "--density", 1, file="four.npy")
        masked = ("--conv", "kernel=3 input=9 taps=111110101111")
        needles = ["a mask of taps for each block", "a mask of 3 taps for all blocks", "would work"]
        for asked in (("--attached",), ("--tiered",), ("--config", "simt tile_n=32 tile_out=4 warps=4 table=attached")):
            with self.subTest(asked=asked):
                self.assert_refused(2, ["compile", "four.npy", "--target", "sm_90", *masked, *asked], needles)

    def test_every_command_refuses_a_geometry_that_is_none(self):
        for command in ("compile", "run", "verify", "tune"):
            with self.subTest(command):
                self.assert_refused(2, [command, "L.npy", "--target", "emulated", "--conv", "kernel=0 input=4"], ["kernel is 0", "1 or more"])


if __name__ == "__main__":
    unittest.main()
