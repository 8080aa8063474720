"""How many loads a warp has under way in a loop, from its order and from the scoreboards that instructions of sm_70 and later name.

A load raises one of six scoreboards until its result is there, and an instruction names those that must be down before it is
issued. NVIDIA does not document where: an encoding of 128 bits has, in bits 110 to 112, the scoreboard that the result raises (7: none),
and in bits 116 to 121 those that the instruction waits for (Jia, Maggioni, Staiger and Scarpazza, "Dissecting the NVIDIA Volta GPU
Architecture via Microbenchmarking", 2018, section 2.1).
"""

import dataclasses
import re
from collections.abc import Sequence

from disassembly import PRODUCTS, Instruction

_NONE = 7
_REGISTER = re.compile(r"\bR(\d+)")
_DEPBAR = re.compile(r"SB(\d), (0x[0-9a-f]+)")
_ROUNDS = 3  # the last of which finds what the one before it has left under way


@dataclasses.dataclass(frozen=True)
class Flight:
    """Loads of 16 bytes of a warp. Where those of the next step are issued before the products of this one, `ahead` is not 0; where
    it is not 0 and `at_products` is, the products wait for them nevertheless, since they have raised the same scoreboard."""

    most: int  # issued and not waited for
    at_products: int  # the same when a product is issued, the fewest
    ahead: int  # issued when a product is, and nothing has read them yet, the fewest


def is_wide_load(one: Instruction) -> bool:
    """From global memory, 16 bytes a lane."""
    return one.base == "LDG" and "128" in one.opcode.split(".")


def _result(one: Instruction) -> int:
    """The first of the four registers of a wide load."""
    return int(_REGISTER.match(one.operands)[1])


def _read(one: Instruction) -> list[int]:
    """The first register of each operand but the result."""
    return [int(number) for number in _REGISTER.findall(one.operands.partition(",")[2])]


def _loads_ahead(loop: Sequence[Instruction]) -> int:
    unread: list[int] = []
    found = []
    for turn in range(_ROUNDS):
        for one in loop:
            unread = [first for first in unread if not any(first <= number < first + 4 for number in _read(one))]
            if is_wide_load(one):
                unread = [*(first for first in unread if first != _result(one)), _result(one)]
            if turn == _ROUNDS - 1 and one.kind in PRODUCTS:
                found.append(len(unread))
    return min(found, default=0)


def loads_in_flight(loop: Sequence[Instruction]) -> Flight:
    """What a loop has in its steady state. Its instructions must have encodings."""
    pending: list[list[bool]] = [[] for _ in range(_NONE)]  # by scoreboard: what raised it, and whether as a wide load
    most, at_products = 0, []
    for turn in range(_ROUNDS):
        for one in loop:
            for number in range(_NONE - 1):
                if one.encoding >> 116 + number & 1:
                    pending[number] = []
            if one.base == "DEPBAR" and (match := _DEPBAR.search(one.operands)):
                left, number = int(match[2], 16), int(match[1])
                pending[number] = pending[number][len(pending[number]) - min(left, len(pending[number])) :]
            if (raised := one.encoding >> 110 & 7) != _NONE:
                pending[raised].append(is_wide_load(one))
            if turn == _ROUNDS - 1:
                under_way = sum(map(sum, pending))
                most = max(most, under_way)
                if one.kind in PRODUCTS:
                    at_products.append(under_way)
    return Flight(most, min(at_products, default=0), _loads_ahead(loop))
