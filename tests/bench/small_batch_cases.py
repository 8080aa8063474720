"""Tests of the scripts that say what default kernels for small batches consist of: a part of bench_test.py."""

import os
import pathlib
import subprocess
import sys
import unittest

import disassembly
import toolkit
from command import compilable_targets
from documented import documented
from prototype_kernel import SOURCE

_BENCH = pathlib.Path(disassembly.__file__).parent
_BUILD = pathlib.Path(os.environ.get("SPARSEKILN_BUILD", _BENCH.parent / "build"))

needs_nvrtc = unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")


class SmallBatchCases:
    @needs_nvrtc
    def test_prototype(self):
        if toolkit.find("nvcc", None) is None or disassembly.find_nvdisasm(None) is None:
            self.skipTest("nvcc or nvdisasm is missing: no CUDA toolkit, or no triton")
        file = self.folder / "prototype.cu"
        file.write_text(SOURCE)
        (shown,) = documented("prototype.py")

        def write(copy):
            arguments = self.placed(shown, {"build": _BUILD, "FILE.cu": file, "docs/gpu.md": copy})
            command = [sys.executable, _BENCH / "prototype.py", *arguments, "--short"]
            done = subprocess.run(list(map(str, command)), cwd=self.folder, capture_output=True, text=True, timeout=300)
            if "of release" in done.stderr:
                self.skipTest(done.stderr.strip())
            self.assertEqual(done.returncode, 0, done.stderr)

        ours, theirs, ratios = self.tables_in("docs/gpu.md", write)
        for row in (ours, theirs):
            for figure in ("instructions", "registers", "warps of a multiprocessor", "emulated instructions", "emulated sectors"):
                self.assert_positive(float(row[figure]), figure)
            self.assertEqual((row["products"], row["barriers"], row["spilled bytes"]), ("16.0", "0", "0"))
        # A step is a block: 4 loads of each operand, and the column of x. All follow the products of the step before.
        self.assertEqual(theirs["loads"], "9.0")
        # Releases of ptxas differ in whether the column is there before the operands are loaded.
        self.assertIn(theirs["bytes in flight of a lane"], ("128", "132"))
        self.assertEqual((theirs["issued ahead"], theirs["in flight at products"]), ("0", "0"))
        for figure in ("instructions", "emulated instructions"):
            self.assertAlmostEqual(float(ratios[figure]), float(ours[figure]) / float(theirs[figure]), delta=0.01)
        file.write_text(SOURCE.replace("i += C::kWarps)", "i += C::kWarps + 1)"))
        self.assertIn("wrong sums", self.call([sys.executable, _BENCH / "prototype.py", _BUILD, file, "--short"], status=1).stderr)

    @needs_nvrtc
    def test_small_batches(self):
        self.program("predictions")
        (row,) = self.written("small_batches.py")
        self.assertRegex(row["before"], r"^(stream|mma|simt|wgmma) tile_n=")
        self.assertRegex(row["default"], r"^direct tile_n=")
        for before, now in (("instructions a block", "instructions"), ("sectors a block", "sectors")):
            self.assert_positive(float(row[before]), before)
            self.assertAlmostEqual(float(row[f"ratio of {now}"]), float(row[now]) / float(row[before]), delta=0.01)
