"""bench/disassembly.py and bench/main_loop.py on a listing of a kernel that was made up, and when bench/sass.py fails."""

import contextlib
import dataclasses
import io
import pathlib
import stat
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))

import disassembly  # noqa: E402
import sass  # noqa: E402
import wgmma_products  # noqa: E402
from main_loop import Burst, Flow, main_loop  # noqa: E402
from sass_listing import LISTING, WGMMA_LISTING  # noqa: E402


class MainLoop(unittest.TestCase):
    def setUp(self):
        self.functions = disassembly.functions(LISTING)

    def test_functions_are_read_without_what_follows_their_end(self):
        self.assertEqual({name: len(lines) for name, lines in self.functions.items()}, {"looping": 20, "unrolled": 3})
        self.assertEqual(self.functions["looping"][-1].opcode, "EXIT")

    def test_a_branch_is_known_by_the_address_that_it_leads_to(self):
        branches = {one.address: one.target for one in self.functions["looping"] if one.target is not None}
        self.assertEqual(branches, {0x10: 0x40, 0x30: 0x120, 0x70: 0xB0, 0x90: 0x80, 0xC0: 0xE0, 0x110: 0x20, 0x120: 0x40})
        unconditional = [one.address for one in self.functions["looping"] if not one.may_fall_through]
        self.assertEqual(unconditional, [0x10, 0x30, 0x130])

    def test_each_instruction_has_a_kind(self):
        kinds = {one.opcode: one.kind for one in self.functions["looping"]}
        expected = {
            "HMMA.16816.F32": "tensor core", "LDSM.16.M88.4": "shared memory", "LDGSTS.E.BYPASS.128": "copies",
            "STG.E": "copies", "IADD3": "integer, address", "LDC": "constants", "BAR.SYNC.DEFER_BLOCKING": "barriers, waits",
            "BRA": "branches", "EXIT": "branches", "FADD": "other",
        }  # fmt: skip
        self.assertEqual({opcode: kinds[opcode] for opcode in expected}, expected)

    def test_a_constant_that_is_written_by_hfma2_is_no_product(self):
        (one,) = [one for one in self.functions["looping"] if one.opcode == "HFMA2.MMA"]
        self.assertEqual(one.kind, disassembly.OTHER)

    def test_rounding_to_tf32_is_a_conversion(self):
        self.assertEqual(main_loop(self.functions["looping"]).counts()["conversions"], 2)

    def test_loops_are_found_and_a_branch_back_that_is_none_is_not(self):
        flow = Flow(self.functions["looping"])
        heads = sorted(flow.blocks[head][0].address for head in flow.loops())
        self.assertEqual(heads, [0x40, 0x80])  # the way through 0x20 is a part of the first

    def test_an_iteration_multiplies_and_copies_and_leaves_out_what_branches_skip(self):
        part = main_loop(self.functions["looping"])
        self.assertFalse(part.whole)
        self.assertEqual(
            [one.address for one in part.instructions],
            [0x40, 0x50, 0x60, 0x70, 0xB0, 0xC0, 0xD0, 0xE0, 0xF0, 0x100, 0x110, 0x120],
        )
        self.assertEqual((part.products, part.counts()["copies"], sum(part.counts().values())), (2, 1, 12))

    def test_a_kernel_that_multiplies_outside_of_loops_is_counted_whole(self):
        part = main_loop(self.functions["unrolled"])
        self.assertEqual((part.whole, part.products, len(part.instructions)), (True, 2, 3))

    def test_products_of_wgmma_are_together_from_one_fence_to_the_next(self):
        (queueing,) = disassembly.functions(WGMMA_LISTING).values()
        bursts = main_loop(queueing).bursts()
        self.assertEqual([one.products for one in bursts], [2, 3])
        self.assertEqual([[between.opcode for between in one.between] for one in bursts], [[], ["NOP", "UMOV"]])


class FindNvdisasm(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def program(self, *places):
        path = self.folder.joinpath(*places)
        path.parent.mkdir(parents=True)
        path.write_text("")
        path.chmod(stat.S_IRWXU)
        return path

    def test_one_that_is_given_but_not_there_is_not_replaced_by_another(self):
        self.assertIsNone(disassembly.find_nvdisasm(str(self.folder / "nvdisasm")))

    def test_it_is_found_in_the_path_then_in_a_toolkit_then_in_triton(self):
        in_path, in_toolkit = self.program("path", "nvdisasm"), self.program("toolkit", "bin", "nvdisasm")
        in_triton = self.program("triton", "backends", "nvidia", "bin", "nvdisasm")
        triton = mock.Mock(submodule_search_locations=[str(self.folder / "triton")])
        with mock.patch("importlib.util.find_spec", return_value=triton):
            with mock.patch.dict("os.environ", {"PATH": str(in_path.parent), "CUDA_HOME": str(self.folder / "toolkit")}):
                self.assertEqual(disassembly.find_nvdisasm(None), in_path)
                in_path.unlink()
                self.assertEqual(disassembly.find_nvdisasm(None), in_toolkit)
            with mock.patch.dict("os.environ", {"PATH": ""}, clear=True):
                found = disassembly.find_nvdisasm(None)
                self.assertIn(found, (in_triton, pathlib.Path("/usr/local/cuda/bin/nvdisasm")))


class Faults(unittest.TestCase):
    def run_with(self, spilled_bytes=0, kernels=()):
        """Exit status of bench/sass.py with a kernel that spills so much, and these of wgmma; and its messages."""
        resources = {
            "registers": 255, "threads": 128, "shared_bytes": 1024, "dynamic_shared_bytes": 0, "spill_load_bytes": spilled_bytes,
            "spill_store_bytes": 0,
        }  # fmt: skip
        part = main_loop(disassembly.functions(LISTING)["looping"])
        model = {"predicted_us": 2.0, "bound": "memory"}
        row = sass.Row(sass._SHORT[0], "mma", part.counts(), part.products, part.whole, resources, model, 1.0, "NVRTC")
        said, warned = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(sass, "each", side_effect=[[row], list(kernels)]),
            mock.patch.object(disassembly, "find_nvdisasm", return_value=pathlib.Path("nvdisasm")),
            mock.patch.object(sys, "argv", ["sass.py", "build", "--short"]),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(warned),
        ):
            return sass.main(), warned.getvalue()

    def kernel(self, bursts, log=""):
        return wgmma_products.Kernel(sass._SHORT_WGMMA[0], "wgmma", bursts, 0, log)

    def test_a_kernel_that_spills_fails_the_script_by_name(self):
        status, warned = self.run_with(8)
        self.assertEqual((status, warned), (1, f"{sass._SHORT[0].title}: spills registers\n"))

    def test_a_kernel_that_does_not_spill_is_fine(self):
        self.assertEqual(self.run_with(), (0, ""))

    def test_an_instruction_between_products_of_wgmma_fails_the_script_and_a_nop_does_not(self):
        together, apart = main_loop(disassembly.functions(WGMMA_LISTING)["queueing"]).bursts()
        nop = Burst(2, tuple(one for one in apart.between if one.opcode == "NOP"))
        self.assertEqual(self.run_with(kernels=[self.kernel([together, nop])]), (0, ""))
        status, warned = self.run_with(kernels=[self.kernel([together, apart])])
        self.assertEqual((status, warned), (1, f"{sass._SHORT_WGMMA[0].title}, wgmma: between products: 1 UMOV\n"))

    def test_eight_instructions_a_product_are_fine_in_a_gradient_of_the_weight_by_halo_and_more_are_not(self):
        (umov,) = (one for one in main_loop(disassembly.functions(WGMMA_LISTING)["queueing"]).bursts()[1].between if one.base == "UMOV")
        gradient = dataclasses.replace(sass._SHORT_WGMMA[0], operation="grad_weight")
        for between, wanted in ((16, 0), (17, 1)):
            burst = Burst(3, (umov,) * between)
            status, _ = self.run_with(kernels=[wgmma_products.Kernel(gradient, "halo tile_n=64", [burst], 0, "")])
            self.assertEqual(status, wanted)

    def test_a_kernel_that_ptxas_has_wait_for_products_or_that_has_none_fails_the_script(self):
        log = "ptxas info    : (C7508) Potential Performance Loss: wgmma.mma_async instructions are serialized"
        for kernel, wanted in ((self.kernel([Burst(4, ())], log), "ptxas says C7508"), (self.kernel([]), "no products of wgmma")):
            status, warned = self.run_with(kernels=[kernel])
            self.assertEqual(status, 1)
            self.assertIn(wanted, warned)


if __name__ == "__main__":
    unittest.main()
