"""bench/scoreboards.py on loops that were made up, bench/occupancy.py on kernels whose occupancy the CUDA runtime has said."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))

import disassembly  # noqa: E402
from occupancy import resident_warps  # noqa: E402
from scoreboards import Flight, loads_in_flight  # noqa: E402

# As `nvdisasm -c -hex` prints them.
_LISTING = """\
.text.one:
        /*0040*/                   LDC R1, c[0x0][0x28] ;                              /* 0x00000a00ff017b82 */
                                                                                       /* 0x000fe20000000800 */
        /*0050*/               @P0 LDG.E.128 R4, desc[UR8][R4.64] ;                    /* 0x0000000804047981 */
                                                                                       /* 0x000ea2000c1e1d00 */
        /*0060*/                   IMAD.WIDE R4, R3, 0x10, R4 ;                        /* 0x0000001003047825 */
                                                                                       /* 0x001fcc00078e0204 */
"""


def instruction(opcode, operands, raises=7, waits=()):
    encoding = raises << 110 | sum(1 << 116 + number for number in waits)
    return disassembly.Instruction(0, opcode, operands, encoding=encoding)


def load(register, raises):
    return instruction("LDG.E.NA.LTC128B.128.CONSTANT", f"R{register}, desc[UR6][R40.64]", raises)


def product(register, waits=()):
    return instruction("HMMA.16816.F32.BF16", f"R20, R{register}, R{register + 4}, R20", waits=waits)


class LoadsInFlight(unittest.TestCase):
    def test_encodings_are_read(self):
        _, wide, waiting = disassembly.functions(_LISTING)["one"]
        self.assertEqual(wide.encoding, 0x000EA2000C1E1D00_0000000804047981)
        self.assertEqual((wide.encoding >> 110 & 7, waiting.encoding >> 116 & 63), (2, 1))

    def test_loads_after_the_products_are_not_ahead(self):
        loop = [product(0, waits=[5]), load(0, 5), load(4, 5)]
        self.assertEqual(loads_in_flight(loop), Flight(32, 0, 0))

    def test_loads_of_the_next_step_are_in_flight_where_they_have_a_scoreboard_of_their_own(self):
        loop = [product(0, [0]), load(0, 0), load(4, 0), product(8, [1]), load(8, 1), load(12, 1)]
        self.assertEqual(loads_in_flight(loop), Flight(64, 32, 32))

    def test_products_wait_for_loads_ahead_that_share_a_scoreboard(self):
        loop = [product(0, [0]), load(0, 0), load(4, 0), product(8, [0]), load(8, 0), load(12, 0)]
        self.assertEqual(loads_in_flight(loop), Flight(32, 0, 32))

    def test_a_barrier_of_dependence_leaves_the_last_loads_in_flight(self):
        waiting = instruction("DEPBAR.LE", "SB0, 0x2")
        loop = [waiting, product(0), load(0, 0), load(4, 0), waiting, product(8), load(8, 0), load(12, 0)]
        self.assertEqual(loads_in_flight(loop), Flight(64, 32, 32))

    def test_narrow_loads_count_as_the_bytes_that_they_bring(self):
        loop = [instruction("LDG.E.64", "R30, desc[UR6][R40.64]", 0), product(0, [0]), load(0, 0), load(4, 0)]
        self.assertEqual(loads_in_flight(loop), Flight(40, 0, 8))


class ResidentWarps(unittest.TestCase):
    def test_what_the_cuda_runtime_says_on_an_h100(self):
        for registers, threads, shared_bytes, ctas in ((80, 256, 34816, 3), (120, 128, 18432, 4), (79, 64, 6144, 12), (56, 128, 4096, 9)):
            with self.subTest(registers=registers, threads=threads):
                self.assertEqual(resident_warps(registers, threads, shared_bytes, 10**6, 132), ctas * threads // 32)

    def test_a_small_grid_and_shared_memory_limit_it(self):
        self.assertEqual(resident_warps(32, 128, 0, 133, 132), 8)
        self.assertEqual(resident_warps(32, 128, 113 * 1024, 10**6, 132), 8)
        self.assertEqual(resident_warps(32, 128, 113 * 1024 + 1, 10**6, 132), 4)
        self.assertEqual(resident_warps(16, 32, 0, 10**6, 132), 32)


if __name__ == "__main__":
    unittest.main()
