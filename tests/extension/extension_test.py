"""What it takes to add a family of kernels, an element type, an operand and so on: the patches beside this file.

Each touches few files that are not templates, tests or documents. With SPARSEKILN_TEST_FULL=1 all are applied to a copy of
the tree, which is built, and what they add is used: by the command, the store, packs, the tuner, the report, C and Python.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

_HERE = pathlib.Path(__file__).resolve().parent
_ROOT = _HERE.parent.parent
sys.path.insert(0, str(_ROOT / "tests/cli"))
from command import CommandTest  # noqa: E402

# How many files that are there each may touch, and which row of ARCHITECTURE.md's table names them.
_PATCHES = {
    _HERE / "toy_family.patch": (2, "a family of CUDA kernels"),
    _HERE / "toy_element_type.patch": (4, "an element type"),
    _HERE / "toy_operand.patch": (5, "an operand of an epilogue, by features or as the result is"),
    _HERE / "toy_epilogue.patch": (3, "a part of an epilogue without operands"),
    _HERE / "toy_backend.patch": (3, "a backend, a kind of target"),
}
_NOT_COUNTED = ("templates/", "tests/", "docs/")
_FULL = os.environ.get("SPARSEKILN_TEST_FULL") == "1"
# What the copy takes over from the build under test, besides what makes it quick to build.
_TAKEN_OVER = {"cpu", "chart_js", "python_program"}
_QUICK = ["-Dbuildtype=release", "-Doptimization=1", "-Dtests=false", "-Dbench=disabled"]
_PYTHON = os.environ.get("SPARSEKILN_PYTHON", "")


class PatchTest(unittest.TestCase):
    def test_all_patches_apply_to_the_tree(self):
        done = subprocess.run(["git", "apply", "--check", *_PATCHES], cwd=_ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{done.stderr}\nARCHITECTURE.md says how to write a patch again")

    def test_each_touches_few_files_beside_new_ones_templates_tests_and_documents(self):
        rows = dict(re.findall(r"^\| ([^|]+) \| (.+) \|$", (_ROOT / "ARCHITECTURE.md").read_text(), re.M))
        for patch, (most, row) in _PATCHES.items():
            with self.subTest(patch.name):
                files = set(re.findall(r"^--- a/(\S+)", patch.read_text(), re.M))
                counted = {file for file in files if not file.startswith(_NOT_COUNTED)}
                self.assertLessEqual(len(counted), most, counted)
                self.assertGreater(len(counted), 0)
                self.assertLessEqual(counted, set(re.findall(r"`([^`]+)`", rows[row])))


def _run(*command: object, **options) -> None:
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\nended with {done.returncode} and said:\n{done.stdout[-8000:]}")


def _copy_tree(to: pathlib.Path) -> None:
    """The files that git knows or does not ignore, and a link to .venv."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=_ROOT, stdout=subprocess.PIPE, check=True
    ).stdout.decode()
    for file in filter(None, listed.split("\0")):
        if (_ROOT / file).is_file():
            (to / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(_ROOT / file, to / file)
    if (_ROOT / ".venv").exists() and not (to / ".venv").exists():
        (to / ".venv").symlink_to((_ROOT / ".venv").resolve())


def _is_used(target: dict) -> bool:
    """The command, the emulator and the Python extension."""
    made = target["type"], target["name"].partition(".")[0]
    return made in {("executable", "sparsekiln"), ("shared library", "sparsekiln_emulator"), ("shared module", "_core")}


def _build_copy(tree: pathlib.Path) -> None:
    _copy_tree(tree)
    _run("git", "apply", *_PATCHES, cwd=tree, env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)})
    build = tree / "build"
    under_test = pathlib.Path(os.environ["SPARSEKILN_BUILD"], "meson-info/intro-buildoptions.json")
    options = [f"-D{one['name']}={one['value']}" for one in json.loads(under_test.read_text()) if one["name"] in _TAKEN_OVER]
    _run("meson", "setup", build, *_QUICK, *options, cwd=tree)
    targets = json.loads((build / "meson-info/intro-targets.json").read_text())
    _run("ninja", "-C", build, *(pathlib.Path(one["filename"][0]).relative_to(build) for one in targets if _is_used(one)))


@unittest.skipUnless(_FULL, "builds a copy of the tree: SPARSEKILN_TEST_FULL=1 asks for that")
class ExtendedTest(CommandTest):
    """Uses the copy, which is built once for all tests."""

    build: pathlib.Path | None = None

    @classmethod
    def setUpClass(cls):
        if ExtendedTest.build is None:
            copy = tempfile.TemporaryDirectory(prefix="sparsekiln-extension-")
            unittest.addModuleCleanup(copy.cleanup)
            _build_copy(pathlib.Path(copy.name))
            ExtendedTest.build = pathlib.Path(copy.name, "build")
            ExtendedTest.tool = str(ExtendedTest.build / "tools/sparsekiln")

    def setUp(self):
        super().setUp()
        self.make("random", "--rows", 4, "--cols", 5, "--density", 0.5, "--seed", 1)

    def compile_twice(self, *arguments: object) -> dict:
        """Compiled at first, and then found in the store."""
        made, found = (self.answer("compile", "L.npy", *arguments) for _ in range(2))
        self.assertEqual((made["from"], found["from"], made["key"]), ("compiled", "store", found["key"]))
        return made

    def serve_from_pack(self, arch: str, *arguments: object) -> dict:
        """The answer of a `compile` that finds the kernel in a pack, with an empty store."""
        self.assertEqual(self.answer("precompile", "L.npy", *arguments, "--arch", arch, "-o", "toy.pack")["compiled"], 1)
        served = self.answer("compile", "L.npy", *arguments, "--target", arch, "--pack", "toy.pack", "--require", "prebuilt",
                             SPARSEKILN_CACHE_DIR=str(self.cache.parent / "empty"))  # fmt: skip
        self.assertEqual(served["from"], "pack")
        return served

    def run_python(self, program: str) -> None:
        """Runs a program that imports the copy's package; it fails by an exception."""
        if not _PYTHON:
            self.skipTest("there is no Python package")
        environment = {**os.environ, "PYTHONPATH": str(self.build / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        environment["SPARSEKILN_CACHE_DIR"] = str(self.cache)
        _run(_PYTHON, "-c", textwrap.dedent(program), cwd=self.folder, env=environment)


class FamilyTest(ExtendedTest):
    CONFIG = "toy tile_n=8 tile_out=1 warps=4"
    REQUEST = ("--block", 16, "--batch", 9)

    def test_compile_makes_a_kernel_of_the_family_and_finds_it_in_the_store(self):
        made = self.compile_twice(*self.REQUEST, "--config", self.CONFIG, "--target", "sm_80")
        self.assertTrue(made["config"].startswith("9: toy "), made["config"])

    def test_it_has_numbers_of_its_own(self):
        plain = self.compile_twice(*self.REQUEST, "--config", f"{self.CONFIG} plain_copies=1 ctas=2", "--target", "sm_80")
        self.assertIn(" plain_copies=1 ctas=2 ", plain["config"])
        self.assertNotEqual(plain["key"], self.answer("compile", "L.npy", *self.REQUEST, "--config", self.CONFIG, "--target", "sm_80")["key"])
        self.assert_refused(2, ["compile", "L.npy", "--config", "simt plain_copies=1", "--target", "sm_80"], ["no field 'plain_copies'"])

    def test_it_has_a_default_config(self):
        made = self.answer("compile", "L.npy", "--block", 8, "--batch", 8, "--target", "sm_80")
        self.assertTrue(made["config"].startswith("8: toy "), made["config"])

    def test_its_results_are_right_on_an_emulated_device(self):
        for options in ([], ["--op", "grad_input"], ["--epilogue", "bias+gelu+residual"], ["--block-scales"],
                        ["--activation-order", "feature-major"], ["--in-features", 77, "--out-features", 61]):  # fmt: skip
            with self.subTest(options):
                run = self.answer("run", "L.npy", *self.REQUEST, "--config", self.CONFIG, *options,
                                  "--target", "emulated:sm_80", "--check")  # fmt: skip
                self.assertEqual((run["exact"]["ok"], run["random"]["ok"]), (True, True), run)
                self.assertIn("toy ", run["config"])

    def test_what_it_does_not_compute_is_refused_in_its_words(self):
        request = ["compile", "L.npy", *self.REQUEST, "--config", self.CONFIG, "--target", "sm_80"]
        self.assert_refused(2, [*request, "--dtype", "bf16"], ["variant toy computes f32 to f32"])

    def test_a_pack_serves_it(self):
        served = self.serve_from_pack("sm_80", *self.REQUEST, "--config", self.CONFIG)
        self.assertIn("toy ", served["config"])

    def test_the_tuner_has_its_configs_checks_them_and_the_report_shows_one(self):
        request = ["tune", "L.npy", "--block", 8, "--batch", 8, "--target", "emulated:sm_80"]
        (space,) = self.answer(*request, "--space")["problems"]
        for number in ("", " plain_copies=1 ", " ctas=2 "):
            self.assertTrue(any(config.startswith("toy ") and number in config for config in space["configs"]), number)
        (tuned,) = self.answer(*request, "--budget", "10s")["problems"]
        self.assertGreater(tuned["candidates"]["tried"], 0)  # the default is the first
        self.assertEqual(tuned["candidates"]["failed"], 0)
        (reported,) = self.answer("report")["problems"]
        self.assertTrue(reported["default"]["config"].startswith("toy "), reported)
        self.assertGreater(reported["default"]["median_us"], 0)

    def test_python_calls_it_on_an_emulated_device(self):
        self.run_python(
            f"""
            import ctypes
            import numpy as np
            import sparsekiln as sk

            class DeviceArray:
                "An array in memory of a device, which DLPack passes on."

                def __init__(self, device, values):
                    self.device, self.host, self.address = device, values, ctypes.c_uint64()
                    assert driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(values.nbytes)) == 0
                    assert driver.cuMemcpyHtoD_v2(self.address, *self.memory()) == 0

                def memory(self):
                    return ctypes.c_void_p(self.host.ctypes.data), ctypes.c_size_t(self.host.nbytes)

                def read(self):
                    data, size = self.memory()
                    assert driver.cuMemcpyDtoH_v2(data, self.address, size) == 0
                    return self.host

                def __dlpack_device__(self):
                    return 2, self.device  # kDLCUDA

                def __dlpack__(self, **options):
                    "NumPy's, of which three members at the beginning of DLTensor are replaced: data and device."
                    capsule = self.host.__dlpack__()
                    read = ctypes.pythonapi.PyCapsule_GetPointer
                    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
                    tensor = read(capsule, b"dltensor")
                    ctypes.c_uint64.from_address(tensor).value = self.address.value
                    (2 * ctypes.c_int32).from_address(tensor + 8)[:] = self.__dlpack_device__()
                    return capsule

            layout = sk.patterns.random(4, 5, 0.5, seed=1)
            kernel = sk.compile(layout, 16, 9, target="emulated:sm_80", config="{self.CONFIG}")
            assert "toy " in kernel.config, kernel.config
            draw = np.random.default_rng(1).standard_normal
            x, w = draw((9, 80)).astype("f4"), draw((layout.blocks, 16, 16)).astype("f4")
            driver = ctypes.CDLL("{self.build}/emulator/driver/libsparsekiln_emulator.so")
            context = ctypes.c_void_p()
            assert driver.cuInit(0) == 0
            count, major = ctypes.c_int(), ctypes.c_int()
            assert driver.cuDeviceGetCount(ctypes.byref(count)) == 0
            for device in range(count.value):  # the first of compute capability 8 is the sm_80
                assert driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device) == 0
                if major.value == 8:
                    break
            assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
            assert driver.cuCtxSetCurrent(context) == 0
            operands = [DeviceArray(device, values) for values in (x, w, np.full((9, 64), np.nan, "f4"))]
            kernel(operands[0], operands[1], y=operands[2], stream=0)
            assert driver.cuCtxSynchronize() == 0
            dense = np.zeros((4, 5, 16, 16), "f4")
            dense[np.asarray(layout.mask(), bool)] = w
            expected = x @ dense.transpose(0, 2, 1, 3).reshape(64, 80).T
            np.testing.assert_allclose(operands[2].read(), expected, rtol=1e-4, atol=1e-4)
            """
        )


class ElementTypeTest(ExtendedTest):
    REQUEST = ("--block", 16, "--batch", 9, "--dtype", "e5m2fnuz")

    def test_compile_makes_a_kernel_of_the_type_and_finds_it_in_the_store(self):
        made = self.compile_twice(*self.REQUEST, "--target", "cpu")
        self.assertEqual((made["dtype"], made["out_dtype"]), ("e5m2fnuz", "e5m2fnuz"))

    def test_its_results_are_right_on_the_cpu(self):
        for options in ([], ["--out-dtype", "f32"], ["--op", "grad_input", "--derivative", "gelu"], ["--op", "grad_weight"],
                        ["--epilogue", "bias+gelu+residual"], ["--block-scales"], ["--activation-order", "feature-major"],
                        ["--in-features", 77, "--out-features", 61], ["--attached"]):  # fmt: skip
            with self.subTest(options):
                run = self.answer("run", "L.npy", *self.REQUEST, *options, "--target", "cpu", "--check")
                self.assertEqual((run["exact"]["ok"], run["random"]["ok"]), (True, True), run)

    def test_cuda_targets_refuse_it_in_a_sentence(self):
        request = ["compile", "L.npy", *self.REQUEST, "--target", "sm_80"]
        self.assert_refused(2, request, ["e5m2fnuz on sm_80: float8_e5m2fnuz runs only on the cpu target"])

    def test_an_unknown_type_is_refused_with_a_list_that_has_it(self):
        self.assert_refused(2, ["compile", "L.npy", "--dtype", "e9m9", "--target", "cpu"], ["f64", "e5m2fnuz"])

    def test_a_pack_serves_it(self):
        self.assertEqual(self.serve_from_pack("x86-64-v3:2", *self.REQUEST)["dtype"], "e5m2fnuz")

    def test_the_tuner_measures_it_and_the_report_shows_what_it_found(self):
        (tuned,) = self.answer("tune", "L.npy", *self.REQUEST, "--target", "cpu", "--budget", "1s")["problems"]
        self.assertEqual((tuned["problem"]["dtype"], tuned["best"]["measured"]), ("e5m2fnuz", True))
        self.assertEqual(tuned["candidates"]["failed"], 0)
        (reported,) = self.answer("report", "--dtype", "e5m2fnuz")["problems"]
        self.assertEqual(reported["best"], tuned["best"])
        self.assertIn("e5m2fnuz", self.succeed("report", "--help").out)

    def test_python_computes_with_it(self):
        self.run_python(
            """
            import numpy as np
            import sparsekiln as sk

            try:
                import ml_dtypes
            except ModuleNotFoundError:
                raise SystemExit  # NumPy has no such arrays
            layout = sk.patterns.random(4, 5, 0.5, seed=1)
            draw = np.random.default_rng(1).standard_normal
            x, w = (draw(shape).astype(ml_dtypes.float8_e5m2fnuz) for shape in ((9, 80), (layout.blocks, 16, 16)))
            dense = np.zeros((4, 5, 16, 16), "f4")
            dense[np.asarray(layout.mask(), bool)] = w
            expected = x.astype("f4") @ dense.transpose(0, 2, 1, 3).reshape(64, 80).T
            y = sk.compile(layout, 16, 9, "e5m2fnuz", target="cpu")(x, w)
            assert y.dtype == ml_dtypes.float8_e5m2fnuz, y.dtype
            np.testing.assert_allclose(y.astype("f4"), expected, rtol=2.0**-2, atol=1e-3)
            wide = sk.compile(layout, 16, 9, ml_dtypes.float8_e5m2fnuz, out_dtype="f32", target="cpu")(x, w)
            np.testing.assert_allclose(wide, expected, rtol=1e-5, atol=1e-5)
            """
        )

    def test_pytorch_computes_with_it(self):
        self.run_python(
            """
            try:
                import torch
            except ModuleNotFoundError:
                raise SystemExit
            import sparsekiln as sk

            layout = sk.patterns.random(4, 5, 0.5, seed=1)
            x, w = (torch.randn(shape).to(torch.float8_e5m2fnuz) for shape in ((9, 80), (layout.blocks, 16, 16)))
            kernel = sk.compile(layout, 16, 9, torch.float8_e5m2fnuz, target="cpu", out_dtype="f32")
            y = kernel(x, w)
            as_float32 = sk.compile(layout, 16, 9, "f32", target="cpu")(x.float(), w.float())
            torch.testing.assert_close(y, as_float32)
            """
        )


class EpilogueTest(ExtendedTest):
    """An activation's square, as a part of an epilogue without operands."""

    REQUEST = ("--block", 16, "--batch", 9, "--epilogue", "squared+relu")

    def test_compile_makes_a_kernel_with_it_and_finds_it_in_the_store(self):
        self.compile_twice(*self.REQUEST, "--target", "cpu")

    def test_its_results_are_right_on_the_cpu_and_on_emulated_devices(self):
        for target, *options in (("cpu",), ("cpu", "--dtype", "f64"), ("emulated:sm_80", "--dtype", "bf16"), ("emulated:sm_80",)):
            for epilogue in ("squared", "bias+squared+relu", "scale+bias+squared+silu+glu+residual"):
                with self.subTest(target=target, options=options, epilogue=epilogue):
                    run = self.answer("run", "L.npy", *self.REQUEST[:4], "--epilogue", epilogue, *options, "--target", target, "--check")
                    self.assertEqual(run["random"]["ok"], True, run)

    def test_a_pack_serves_it_and_the_tuner_measures_it(self):
        self.serve_from_pack("x86-64-v3:2", *self.REQUEST)
        (tuned,) = self.answer("tune", "L.npy", *self.REQUEST, "--target", "cpu", "--budget", "1s")["problems"]
        self.assertEqual(tuned["candidates"]["failed"], 0)
        (reported,) = self.answer("report")["problems"]
        self.assertEqual(reported["problem"]["epilogue"], "squared+relu")

    def test_python_computes_with_it(self):
        self.run_python(
            """
            import numpy as np
            import sparsekiln as sk

            layout = sk.patterns.random(4, 5, 0.5, seed=1)
            draw = np.random.default_rng(1).standard_normal
            x, w = (draw(shape).astype("f4") for shape in ((9, 80), (layout.blocks, 16, 16)))
            dense = np.zeros((4, 5, 16, 16), "f4")
            dense[np.asarray(layout.mask(), bool)] = w
            expected = np.maximum(x @ dense.transpose(0, 2, 1, 3).reshape(64, 80).T, 0) ** 2
            y = sk.compile(layout, 16, 9, epilogue="relu+squared", target="cpu")(x, w)
            np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
            """
        )


class OperandTest(ExtendedTest):
    """A second bias, which is added after the activation."""

    REQUEST = ("--block", 16, "--batch", 9, "--epilogue", "bias+relu+shift")

    def test_compile_makes_a_kernel_with_it_and_finds_it_in_the_store(self):
        self.compile_twice(*self.REQUEST, "--target", "cpu")

    def test_its_results_are_right_on_the_cpu_and_on_emulated_devices(self):
        for target, *options in (
            ("cpu",), ("cpu", "--dtype", "f64"), ("cpu", "--dtype", "i8", "--out-dtype", "f32"), ("cpu", "--activation-order", "feature-major"),
            ("cpu", "--in-features", 77, "--out-features", 61), ("cpu", "--attached"), ("emulated:sm_80", "--dtype", "bf16"),
            ("emulated:sm_80",), ("emulated:sm_80", "--dtype", "f16", "--out-features", 61),
        ):  # fmt: skip
            for epilogue in ("shift", "bias+relu+shift", "scale+bias+silu+glu+shift+residual"):
                with self.subTest(target=target, options=options, epilogue=epilogue):
                    run = self.answer("run", "L.npy", *self.REQUEST[:4], "--epilogue", epilogue, *options, "--target", target, "--check")
                    self.assertEqual((run["exact"]["ok"], run["random"]["ok"]), (True, True), run)

    def test_a_gradient_refuses_it(self):
        request = ["compile", "L.npy", *self.REQUEST, "--op", "grad_input", "--target", "cpu"]
        self.assert_refused(2, request, ["a gradient's is scale or none"])

    def test_a_pack_serves_it(self):
        self.serve_from_pack("x86-64-v3:2", *self.REQUEST)

    def test_the_tuner_measures_it_and_the_report_shows_what_it_found(self):
        (tuned,) = self.answer("tune", "L.npy", *self.REQUEST, "--target", "cpu", "--budget", "1s")["problems"]
        self.assertEqual(tuned["candidates"]["failed"], 0)
        (reported,) = self.answer("report")["problems"]
        self.assertEqual(reported["problem"]["epilogue"], "bias+relu+shift")

    def test_python_and_with_it_the_c_interface_take_it_by_its_name(self):
        self.run_python(
            """
            import numpy as np
            import sparsekiln as sk

            layout = sk.patterns.random(4, 5, 0.5, seed=1)
            kernel = sk.compile(layout, 16, 9, epilogue="relu+shift", target="cpu")
            draw = np.random.default_rng(1).standard_normal
            x, w, shift = (draw(shape).astype("f4") for shape in ((9, 80), (layout.blocks, 16, 16), 64))
            dense = np.zeros((4, 5, 16, 16), "f4")
            dense[np.asarray(layout.mask(), bool)] = w
            expected = np.maximum(x @ dense.transpose(0, 2, 1, 3).reshape(64, 80).T, 0) + shift
            np.testing.assert_allclose(kernel(x, w, shift=shift), expected, rtol=1e-5, atol=1e-5)
            for wrong, message in (({}, "shift: it was not given"), ({"shift": shift[1:]}, "dense .64.")):
                try:
                    kernel(x, w, **wrong)
                except sk.InvalidArgument as error:
                    assert __import__("re").search(message, str(error)), error
                else:
                    raise AssertionError(wrong)
            """
        )


class BackendTest(ExtendedTest):
    """Plain loops on the host, as a kind of target of its own."""

    REQUEST = ("--block", 16, "--batch", 9, "--target", "reference")

    def test_compile_makes_a_kernel_for_it_and_finds_it_in_the_store(self):
        made = self.compile_twice(*self.REQUEST)
        self.assertEqual((made["target"], made["compiler"]), ("reference:1", "loops 1"))
        self.assertIn(made["key"], [file["key"] for file in self.answer("cache", "list")["files"]])

    def test_its_results_are_right(self):
        for options in ([], ["--op", "grad_input"], ["--op", "grad_weight"], ["--in-features", 77, "--out-features", 61]):
            with self.subTest(options):
                run = self.answer("run", "L.npy", *self.REQUEST, *options, "--check")
                self.assertEqual((run["exact"]["ok"], run["random"]["ok"]), (True, True), run)

    def test_what_it_does_not_compute_is_refused_in_its_words(self):
        for option in (["--dtype", "f16"], ["--epilogue", "bias"], ["--block-scales"]):
            self.assert_refused(2, ["compile", "L.npy", *self.REQUEST, *option], ["the reference target computes"])
        self.assert_refused(2, ["compile", "L.npy", *self.REQUEST, "--attached"], ["baked kernels only"])
        self.assert_refused(2, ["compile", "L.npy", "--target", "referenc"], ["generic, reference"])
        self.assert_refused(2, ["compile", "L.npy", "--target", "reference:0"], ["the number of workers"])

    def test_its_stages_have_its_suffixes(self):
        self.answer("compile", "L.npy", *self.REQUEST, "-o", "stages")
        files = {file.name for file in (self.folder / "stages").iterdir()}
        self.assertLessEqual({"kernel.txt", "kernel.loops"}, files)
        self.assertNotIn("kernel.ptx", files)

    def test_a_pack_serves_it(self):
        self.serve_from_pack("reference", *self.REQUEST[:4])

    def test_the_tuner_measures_it_and_the_report_shows_what_it_found(self):
        (tuned,) = self.answer("tune", "L.npy", *self.REQUEST, "--budget", "1s")["problems"]
        self.assertEqual((tuned["best"]["measured"], tuned["candidates"]["failed"]), (True, 0))
        (reported,) = self.answer("report")["problems"]
        self.assertEqual(reported["best"], tuned["best"])

    def test_python_and_with_it_the_c_interface_compute_by_it(self):
        self.run_python(
            """
            import numpy as np
            import sparsekiln as sk

            layout = sk.patterns.random(4, 5, 0.5, seed=1)
            draw = np.random.default_rng(1).standard_normal
            x, dy, w = (draw(shape).astype("f4") for shape in ((9, 80), (9, 64), (layout.blocks, 16, 16)))
            dense = np.zeros((4, 5, 16, 16), "f4")
            dense[np.asarray(layout.mask(), bool)] = w
            dense = dense.transpose(0, 2, 1, 3).reshape(64, 80)
            kernels = {op: sk.compile(layout, 16, 9, op=op, target="reference") for op in ("forward", "grad_input", "grad_weight")}
            np.testing.assert_allclose(kernels["forward"](x, w), x @ dense.T, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(kernels["grad_input"](dy, w), dy @ dense, rtol=1e-4, atol=1e-4)
            expected = (dy.T @ x).reshape(4, 16, 5, 16).transpose(0, 2, 1, 3)[np.asarray(layout.mask(), bool)]
            np.testing.assert_allclose(kernels["grad_weight"](x, dy), expected, rtol=1e-4, atol=1e-4)
            """
        )


if __name__ == "__main__":
    unittest.main()
