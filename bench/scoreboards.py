"""How many bytes a warp loads at a time in a loop, from its order and from the scoreboards that instructions of sm_70 and later name.

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
    """Bytes of a lane. Where those of the next step are loaded before the products of this one, `ahead` is not 0; where
    it is not 0 and `at_products` is, the products wait for them nevertheless, since their loads have raised the same scoreboard."""

    most: int  # that loads bring which are issued and not waited for
    at_products: int  # the same when a product is issued, the fewest
    ahead: int  # that are being loaded when a product is issued, and that nothing has read yet, the fewest


def loaded_bytes(one: Instruction) -> int:
    """What an instruction loads from global memory for a lane; 0: nothing."""
    if one.base != "LDG":
        return 0
    words = one.opcode.split(".")
    return 16 if "128" in words else 8 if "64" in words else 4


def _result(one: Instruction) -> int:
    """The first of the registers that a load writes."""
    return int(_REGISTER.match(one.operands)[1])


def _read(one: Instruction) -> list[int]:
    """The first register of each operand but the result."""
    return [int(number) for number in _REGISTER.findall(one.operands.partition(",")[2])]


def _loads_ahead(loop: Sequence[Instruction]) -> int:
    unread: dict[int, int] = {}  # bytes, by the first register
    found = []
    for turn in range(_ROUNDS):
        for one in loop:
            read = _read(one)
            unread = {first: size for first, size in unread.items() if not any(first <= number < first + size // 4 for number in read)}
            if size := loaded_bytes(one):
                unread[_result(one)] = size
            if turn == _ROUNDS - 1 and one.kind in PRODUCTS:
                found.append(sum(unread.values()))
    return min(found, default=0)


def loads_in_flight(loop: Sequence[Instruction]) -> Flight:
    """What a loop has in its steady state. Its instructions must have encodings."""
    pending: list[list[int]] = [[] for _ in range(_NONE)]  # by scoreboard: what each instruction that raised it loads
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
                pending[raised].append(loaded_bytes(one))
            if turn == _ROUNDS - 1:
                under_way = sum(map(sum, pending))
                most = max(most, under_way)
                if one.kind in PRODUCTS:
                    at_products.append(under_way)
    return Flight(most, min(at_products, default=0), _loads_ahead(loop))
