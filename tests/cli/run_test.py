"""`sparsekiln run` on the cpu: right for every pattern, block and awkward batch, and says so."""

import unittest

from command import CommandTest, shaped

# Small grids, none of them of full rows: what is wrong in one row or column shows.
_PATTERNS = [
    ["random", "--rows", 5, "--cols", 7, "--density", 0.3, "--seed", 2],
    ["balanced-random", "--rows", 8, "--cols", 6, "--density", 0.4],
    ["block-diagonal", "--rows", 6, "--cols", 9, "--groups", 3],
    ["banded", "--size", 9, "--half-width", 1],
    ["watts-strogatz", "--size", 8, "--density", 0.25, "--rewire", 0.2, "--seed", 3],
    ["barabasi-albert", "--size", 8, "--edges", 2],
    ["butterfly", "--size", 8],
    ["causal", "--size", 6],
    ["strided", "--size", 9, "--stride", 3],
    ["longformer", "--size", 9, "--window", 1, "--global", 1],
    ["bigbird", "--size", 9, "--window", 1, "--global", 1, "--random", 1],
]
_BLOCKS = ["8", "16", "32", "64", "128", "8x32", "64x16"]


class RunTest(CommandTest):
    def check(self, *arguments: object) -> dict:
        answer = self.answer("run", "L.npy", "--dtype", "f32", "--target", "cpu", "--check", *arguments)
        self.assertLessEqual(answer["rel_error"], 1e-5)
        self.assertLessEqual(answer["max_error_ratio"], 1)
        self.assertEqual((answer["exact"]["wrong"], answer["exact"]["unwritten"]), (0, 0))
        return answer

    def test_every_pattern_is_right_in_every_block(self):
        for pattern in _PATTERNS:
            self.make(*pattern)
            for block in _BLOCKS:
                with self.subTest(pattern=pattern[0], block=block):
                    answer = self.check("--block", block, "--batch", 64)
                    self.assertIs(answer["checked"], True)
                    self.assertGreater(answer["run_ms"], 0)
                    self.assertGreater(answer["gflops"], 0)

    def test_every_block_is_right_for_awkward_batches(self):
        self.make("random", "--rows", 5, "--cols", 7, "--density", 0.3, "--seed", 2)
        for block, batch in (("32", 1), ("8x32", 2), ("64x16", 7), ("128", 9), ("16x128", 13), ("128x8", 33)):
            with self.subTest(block=block, batch=batch):
                self.check("--block", block, "--batch", batch)

    def test_a_dynamic_batch_is_right_for_every_n_it_takes(self):
        self.make("random", "--size", 4, "--density", 0.5)
        for n in (0, 1, 5, 8, 17):
            with self.subTest(n):
                self.assertEqual(self.check("--batch", "up-to:17", "--n", n)["n"], n)

    def test_a_layer_without_blocks_gives_zeros_and_a_batch_of_none_nothing(self):
        self.make("random", "--size", 3, "--density", 0)
        self.check("--batch", 4)
        self.make("random", "--size", 3, "--density", 0.5)
        self.check("--batch", 0)

    def test_convolutions_are_right_in_every_operation(self):
        self.make("random", "--rows", 5, "--cols", 4, "--density", 0.4, "--seed", 2)
        for geometry in ("kernel=3x3 stride=2 dilation=1 padding=1 input=9x8", "kernel=5 padding=same input=21", "kernel=2 input=4x3x5"):
            for operation in ("forward", "grad_input", "grad_weight"):
                with self.subTest(geometry=geometry, operation=operation):
                    self.check("--block", 16, "--batch", 3, "--conv", geometry, "--op", operation)

    def test_transposed_convolutions_are_right_by_the_flag_and_by_the_word(self):
        self.make("random", "--rows", 3, "--cols", 4, "--density", 0.5, "--seed", 2)
        geometry = "kernel=3x2 stride=2 padding=1 output-padding=1x0 input=4x5"
        keys = set()
        for operation in ("forward", "grad_input", "grad_weight"):
            with self.subTest(operation=operation):
                arguments = ("--block", "16x32", "--batch", 2, "--op", operation)
                flag = self.check(*arguments, "--transposed", "--conv", geometry)
                word = self.check(*arguments, "--conv", f"transposed {geometry}")
                self.assertEqual((flag["key"], word["from"]), (word["key"], "store"))
                self.assertEqual((flag["in_features"], flag["out_features"]), (48, 128))
                self.assertIn(" transposed output-padding=1x0 ", flag["convolution"])
                keys.add(flag["key"])
        self.assertEqual(len(keys), 3)

    def test_masks_of_taps_are_right_from_files_of_every_shape(self):
        self.make("random", "--rows", 3, "--cols", 2, "--density", 1)
        geometry = ("--conv", "kernel=2x3 padding=1 input=5x6", "--block", 16, "--batch", 2)
        self.write("flat.npy", shaped("(6,)", bytes([1, 1, 1, 1, 0, 0])))
        self.write("kernel.npy", shaped("(2, 3)", bytes([1, 1, 1, 1, 0, 0])))
        self.write("lines.txt", "111\n100\n")
        self.write("line.txt", "111 100\n")
        keys = {self.check(*geometry, "--taps", file)["key"] for file in ("flat.npy", "kernel.npy", "lines.txt", "line.txt")}
        keys.add(self.check(*geometry[:1], geometry[1] + " taps=111100", *geometry[2:])["key"])
        self.assertEqual(len(keys), 1)
        self.assertEqual(self.check(*geometry, "--taps", "flat.npy")["blocks"], 6 * 4)
        of_blocks = bytes([1, 0, 0, 0, 0, 0] * 5 + [1] * 6)
        self.write("blocks.npy", shaped("(6, 6)", of_blocks))
        self.write("deep.npy", shaped("(6, 2, 3)", of_blocks))
        for operation in ("forward", "grad_input", "grad_weight"):
            for file in ("blocks.npy", "deep.npy"):
                with self.subTest(operation=operation, file=file):
                    answer = self.check(*geometry, "--op", operation, "--taps", file)
                    self.assertEqual(answer["blocks"], 5 + 6)
                    self.assertNotIn(answer["key"], keys)
            both = self.check(*geometry, "--op", operation, "--taps", "blocks.npy", "--transposed")
            self.assertEqual((both["blocks"], both["in_features"]), (11, 48))

    def test_a_config_that_asks_for_a_packed_weight_gets_one(self):
        self.make("random", "--size", 6, "--density", 0.5)
        for dtype, bound in (("f32", 1e-5), ("bf16", 1e-2)):
            with self.subTest(dtype):
                arguments = ("--block", 32, "--batch", 33, "--config", "vector tile_n=32 warps=1 packed=1")
                answer = self.answer(
                    "run", "L.npy", "--dtype", dtype, "--target", "cpu", "--check", *arguments
                )
                self.assertTrue(answer["packed"])
                self.assertLessEqual(answer["rel_error"], bound)
                self.assertTrue(answer["exact"]["ok"] and answer["random"]["ok"])

    def test_it_answers_with_what_compile_says_and_comes_from_the_store_the_second_time(self):
        self.make("random", "--size", 4, "--density", 0.5)
        first, second = self.check("--batch", 8), self.check("--batch", 8)
        self.assertEqual((first["from"], second["from"]), ("compiled", "store"))
        for key in ("compile_ms", "key", "config", "resources", "target", "device"):
            self.assertIn(key, first)
        compiled = self.answer("compile", "L.npy", "--batch", 8, "--target", "cpu")
        self.assertEqual((compiled["key"], compiled["from"]), (first["key"], "store"))

    def test_time_takes_as_many_samples_as_asked(self):
        self.make("random", "--size", 4, "--density", 0.5)
        answer = self.answer("run", "L.npy", "--target", "cpu", "--time", "--repeat", 7)
        self.assertEqual(answer["timing"]["samples"], 7)
        self.assertEqual((answer["timing"]["clock"], answer["timing"]["copies"]), ("steady clock", 1))
        self.assertIs(answer["timing"]["cold"], False)
        self.assertLessEqual(answer["timing"]["p20_ms"], answer["run_ms"])
        self.assertIs(answer["checked"], False)
        self.assertNotIn("rel_error", answer)


if __name__ == "__main__":
    unittest.main()
