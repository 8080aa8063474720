"""`sparsekiln layout make`, `layout show` and `layout mix`."""

import pathlib
import re
import struct
import unittest
import zlib

from command import CommandTest

# A command line for every pattern, the size it must have, and its blocks where they can be counted by hand.
_PATTERNS = [
    (["random", "--rows", 12, "--cols", 20, "--density", 0.25, "--seed", 7], (12, 20), 60),
    (["balanced-random", "--rows", 12, "--cols", 20, "--density", 0.25, "--seed", 7], (12, 20), 60),
    (["block-diagonal", "--rows", 12, "--cols", 8, "--groups", 4], (12, 8), 24),
    (["banded", "--size", 6, "--half-width", 1], (6, 6), 16),
    (["watts-strogatz", "--rows", 16, "--cols", 16, "--density", 0.25, "--rewire", 0.2, "--seed", 3], (16, 16), 64),
    (["watts-strogatz", "--size", 16, "--density", 0.0625, "--rewire", 1, "--diagonal"], (16, 16), 16),
    (["balanced-watts-strogatz", "--size", 16, "--density", 0.25, "--rewire", 0.2, "--seed", 3, "--diagonal"], (16, 16), 64),
    (["barabasi-albert", "--size", 16, "--edges", 2, "--seed", 3], (16, 16), 16 + 56),
    (["barabasi-albert", "--size", 16, "--edges", 2, "--no-diagonal"], (16, 16), 56),
    (["barabasi-albert", "--size", 16, "--edges", 2, "--extra-edges", 4], (16, 16), 16 + 56 + 8),
    (["butterfly", "--size", 16], (16, 16), 16 * 5),
    (["causal", "--size", 5], (5, 5), 15),
    (["strided", "--rows", 9, "--cols", 9, "--stride", 3], (9, 9), None),
    (["longformer", "--size", 9, "--window", 1, "--global", 1], (9, 9), None),
    (["bigbird", "--size", 12, "--window", 1, "--global", 1, "--random", 2, "--seed", 5], (12, 12), None),
]
_HEADWORDS = ["random", "block-diagonal", "banded", "watts-strogatz", "barabasi-albert", "balanced-random", "butterfly"]
_HEADWORDS += ["causal", "strided", "longformer", "bigbird", "balanced-watts-strogatz"]


class MakeTest(CommandTest):
    def test_every_pattern_can_be_made_and_read_back(self):
        self.assertEqual({arguments[0] for arguments, _, _ in _PATTERNS}, set(_HEADWORDS))
        for arguments, (rows, cols), blocks in _PATTERNS:
            with self.subTest(" ".join(map(str, arguments))):
                made = self.answer("layout", "make", *arguments, "-o", "L.npy")
                self.assertEqual((made["rows"], made["cols"]), (rows, cols))
                if blocks is not None:
                    self.assertEqual(made["blocks"], blocks)
                shown = self.answer("layout", "show", "L.npy")
                for key in ("rows", "cols", "blocks", "density", "digest", "longest_row", "empty_rows"):
                    self.assertEqual(shown[key], made[key])

    def test_every_file_format_holds_the_same_layout(self):
        arguments = ["random", "--rows", 7, "--cols", 11, "--density", 0.3, "--seed", 1]
        digests = set()
        for file in ("L.npy", "L.mtx", "L.smtx", "L.txt"):
            self.make(*arguments, file=file)
            digests.add(self.answer("layout", "show", file)["digest"])
        self.assertEqual(len(digests), 1)

    def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(self):
        for seed, file in ((1, "a.npy"), (1, "b.npy"), (2, "c.npy")):
            self.make("random", "--size", 16, "--density", 0.5, "--seed", seed, file=file)
        a, b, c = ((self.folder / file).read_bytes() for file in ("a.npy", "b.npy", "c.npy"))
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)

    def test_a_layout_with_no_blocks_is_legal(self):
        self.make("random", "--rows", 4, "--cols", 4, "--density", 0)
        self.assertEqual(self.answer("layout", "show", "L.npy")["blocks"], 0)
        self.succeed("layout", "show", "L.npy", "--png", "L.png")


    def test_a_balanced_small_world_has_equally_many_blocks_in_all_columns(self):
        arguments = ["--size", 64, "--density", 0.125, "--rewire", 0.3, "--seed", 1]
        self.assertEqual(self.answer("layout", "make", "balanced-watts-strogatz", *arguments, "-o", "B.npy")["longest_col"], 8)
        self.assertGreater(self.answer("layout", "make", "watts-strogatz", *arguments, "-o", "W.npy")["longest_col"], 8)

    def test_the_diagonal_of_a_balanced_random_layout_is_there_if_asked_for(self):
        self.make("balanced-random", "--size", 6, "--density", 0.1667, "--diagonal", "--seed", 4, file="L.txt")
        lines = (self.folder / "L.txt").read_text().split("\n")
        self.assertEqual([line.replace(" ", "")[row] for row, line in enumerate(lines[:6])], ["1"] * 6)


class MixTest(CommandTest):
    def test_the_document_shows_what_its_commands_print(self):
        text = (pathlib.Path(__file__).parents[2] / "docs" / "layouts.md").read_text()
        (make,) = re.findall(r"sparsekiln (layout make .*)", text)
        (mix,) = re.findall(r"sparsekiln (layout mix L0.*)", text)
        (shown,) = re.findall(r"((?:^    (?:output|every|LAYERS|\d).*\n)+)", text, re.M)
        for seed in range(5):
            self.assertEqual(self.run_tool(*make.replace("$i", str(seed)).split()).status, 0)
        printed = self.run_tool(*mix.split()).out
        self.assertEqual([line.strip() for line in printed.splitlines()], [line.strip() for line in shown.splitlines()])

    def test_layers_are_applied_in_the_order_of_their_files(self):
        self.write("gathers.txt", "11\n00\n")
        self.write("spreads.txt", "10\n10\n")
        answer = self.answer("layout", "mix", "gathers.txt", "spreads.txt")
        self.assertEqual(answer["input_blocks"], 2)
        self.assertEqual([layer["file"] for layer in answer["layers"]], ["gathers.txt", "spreads.txt"])
        self.assertEqual([layer["share"] for layer in answer["layers"]], [0.5, 1])
        self.assertEqual(answer["complete_after"], 2)
        answer = self.answer("layout", "mix", "spreads.txt", "gathers.txt")
        self.assertEqual([layer["share"] for layer in answer["layers"]], [0.5, 0.25])
        self.assertIsNone(answer["complete_after"])

    def test_a_line_of_units_that_pass_on_to_the_next_has_figures_that_can_be_counted(self):
        self.write("L.txt", "1000\n1100\n0110\n0011\n")
        answer = self.answer("layout", "mix", "L.txt", "--steps", 3)
        fields = ("minimum", "median", "mean", "maximum", "share", "output_blocks")
        figures = [tuple(layer[field] for field in fields) for layer in answer["layers"]]
        expected = [(1, 2, 1.75, 2, 7 / 16, 4), (1, 2.5, 2.25, 3, 9 / 16, 4), (1, 2.5, 2.5, 4, 10 / 16, 4)]
        self.assertEqual(figures, expected)
        text = self.succeed("layout", "mix", "L.txt", "--steps", 3).out
        self.assertRegex(text, r"\n2 +1 +2\.5 +2\.25 +3 +4 +56\.250 +L\.txt\n")
        self.assertIn("not everything is reached after 3 layers\n", text)

    def test_layers_may_differ_in_size(self):
        self.make("random", "--rows", 3, "--cols", 5, "--density", 1, file="a.npy")
        self.make("random", "--rows", 7, "--cols", 3, "--density", 1, file="b.npy")
        answer = self.answer("layout", "mix", "a.npy", "b.npy")
        self.assertEqual([layer["output_blocks"] for layer in answer["layers"]], [3, 7])
        self.assertEqual([layer["maximum"] for layer in answer["layers"]], [3, 7])
        text = self.succeed("layout", "mix", "a.npy", "b.npy").out
        self.assertIn("every output block is reached from every input block after 1 layer\n", text)

    def test_repeated_steps_are_the_same_as_the_file_named_again(self):
        self.make("watts-strogatz", "--size", 40, "--density", 0.1, "--rewire", 0.3)
        self.assertEqual(
            self.answer("layout", "mix", "L.npy", "--steps", 3), self.answer("layout", "mix", "L.npy", "L.npy", "L.npy")
        )

    def test_almost_all_pairs_are_not_shown_as_all(self):
        self.make("random", "--size", 1000, "--density", 0.999999, "--seed", 1)
        (layer,) = self.answer("layout", "mix", "L.npy")["layers"]
        self.assertLess(layer["share"], 1)
        text = self.succeed("layout", "mix", "L.npy").out
        self.assertIn(" 99.999 ", text)
        self.assertIn("not everything is reached after 1 layer\n", text)


class ShowTest(CommandTest):
    def test_it_prints_figures_and_a_drawing(self):
        self.make("block-diagonal", "--size", 8, "--groups", 2)
        text = self.succeed("layout", "show", "L.npy").out
        self.assertIn("8 × 8 blocks, 32 present (50 %)", text)
        self.assertGreater(len(text.splitlines()), 6, "no drawing")

    def test_the_picture_is_a_png_with_dark_present_blocks(self):
        self.make("block-diagonal", "--size", 2, "--groups", 2)
        self.answer("layout", "show", "L.npy", "--png", "L.png")
        width, height, rows = decode_grey_png((self.folder / "L.png").read_bytes())
        self.assertEqual(width, height)
        corner = width // 4
        self.assertLess(rows[corner][corner], 64)
        self.assertGreater(rows[corner][width - corner], 192)
        self.assertLess(rows[height - corner][width - corner], 64)

    def test_a_lone_block_of_a_huge_grid_can_be_seen_in_the_picture(self):
        self.write("L.mtx", "%%MatrixMarket matrix coordinate pattern general\n100000 100000 1\n50000 50000\n")
        self.succeed("layout", "show", "L.mtx", "--png", "L.png")
        width, height, rows = decode_grey_png((self.folder / "L.png").read_bytes())
        self.assertLessEqual(max(width, height), 2048)
        self.assertLess(min(min(row) for row in rows), 224)


def decode_grey_png(data: bytes) -> tuple[int, int, list[list[int]]]:
    """Width, height and rows of an 8-bit greyscale PNG (PNG specification, 2nd edition, §9: filters)."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        assert zlib.crc32(kind + body) == struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert (depth, colour) == (8, 0)
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    raw = zlib.decompress(packed)
    rows, above = [], [0] * width
    for y in range(height):
        line = raw[y * (width + 1) : (y + 1) * (width + 1)]
        row: list[int] = []
        for x, value in enumerate(line[1:]):
            left, up, corner = (row[x - 1] if x else 0), above[x], (above[x - 1] if x else 0)
            nearest = min((left, up, corner), key=lambda c: abs(left + up - corner - c))
            row.append((value + (0, left, up, (left + up) // 2, nearest)[line[0]]) % 256)
        rows.append(row)
        above = row
    return width, height, rows


if __name__ == "__main__":
    unittest.main()
