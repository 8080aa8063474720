"""The main loop of a disassembled kernel, found in its control flow."""

import dataclasses
import functools
import re
from collections.abc import Sequence

from disassembly import KINDS, PRODUCTS, Instruction

_PRODUCT = re.compile(r"[HQI]GMMA")  # of wgmma: types of 16 and 32 bits, floats and integers of 8 bits
_FEEDS = re.compile(r"LDGSTS|UBLKCP|UTMALDG")  # asynchronous copies to shared memory


@dataclasses.dataclass(frozen=True)
class Part:
    """Instructions of a kernel that are counted."""

    instructions: tuple[Instruction, ...]
    whole: bool = False  # all of a kernel that multiplies outside of loops

    def counts(self) -> dict[str, int]:
        found = dict.fromkeys(KINDS, 0)
        for instruction in self.instructions:
            found[instruction.kind] += 1
        return found

    @property
    def products(self) -> int:
        """Tensor-core instructions; where there are none, those of CUDA cores."""
        counts = self.counts()
        return next((counts[kind] for kind in PRODUCTS if counts[kind]), 0)

    def bursts(self) -> list["Burst"]:
        """The products of wgmma that follow each fence (WARPGROUP.ARRIVE)."""
        found: list[Burst] = []
        waiting: list[Instruction] | None = None
        for one in self.instructions:
            if one.opcode == "WARPGROUP.ARRIVE":
                waiting = None
            elif not _PRODUCT.fullmatch(one.base):
                if waiting is not None:
                    waiting.append(one)
            elif waiting is None:
                waiting = []
                found.append(Burst(1, ()))
            else:
                found[-1] = Burst(found[-1].products + 1, (*found[-1].between, *waiting))
                waiting = []
        return found


@dataclasses.dataclass(frozen=True)
class Burst:
    """Products of wgmma that are queued together, and the other instructions between the first and the last of them."""

    products: int
    between: tuple[Instruction, ...]


class Flow:
    """Basic blocks, their dominators, and loops (a branch to a block that dominates the branch's own)."""

    def __init__(self, instructions: Sequence[Instruction]):
        targets = {one.target for one in instructions if one.target is not None}
        self.blocks: list[list[Instruction]] = []
        for i, one in enumerate(instructions):
            before = instructions[i - 1] if i else None
            if before is None or one.address in targets or before.target is not None or not before.may_fall_through:
                self.blocks.append([])
            self.blocks[-1].append(one)
        place = {block[0].address: number for number, block in enumerate(self.blocks)}
        self.following: list[list[int]] = []
        for number, block in enumerate(self.blocks):
            ways = [place[block[-1].target]] if block[-1].target in place else []
            if block[-1].may_fall_through and number + 1 < len(self.blocks):
                ways.append(number + 1)
            self.following.append(ways)
        self._dominators = self._find_dominators()

    def _find_dominators(self) -> list[set[int] | None]:
        """Those blocks that every way to a block passes; None where none leads there. By iteration to a fixed point."""
        preceding: list[list[int]] = [[] for _ in self.blocks]
        for number, ways in enumerate(self.following):
            for way in ways:
                preceding[way].append(number)
        found: list[set[int] | None] = [None] * len(self.blocks)
        found[0] = {0}
        changed = True
        while changed:
            changed = False
            for number in range(1, len(self.blocks)):
                known = [found[one] for one in preceding[number] if found[one] is not None]
                if known and (now := set.intersection(*known) | {number}) != found[number]:
                    found[number], changed = now, True
        return found

    def _dominates(self, one: int, other: int) -> bool:
        return self._dominators[other] is not None and one in self._dominators[other]

    def loops(self) -> dict[int, set[int]]:
        """By the first block of each: the blocks of the loop."""
        preceding: list[list[int]] = [[] for _ in self.blocks]
        for number, ways in enumerate(self.following):
            for way in ways:
                preceding[way].append(number)
        found: dict[int, set[int]] = {}
        for number, ways in enumerate(self.following):
            for head in ways:
                if not self._dominates(head, number):
                    continue
                inside, open_blocks = found.setdefault(head, {head}), [number]
                while open_blocks:
                    block = open_blocks.pop()
                    if block not in inside:
                        inside.add(block)
                        open_blocks += preceding[block]
        return found

    def products(self, blocks: set[int]) -> int:
        return Part(tuple(one for number in sorted(blocks) for one in self.blocks[number])).products

    def iteration(self, head: int, inside: set[int]) -> Part:
        """What one iteration executes that multiplies and copies as much as any does, and else as little as possible: without
        what branches skip in most iterations, such as storing a result. Loops inside are gone through once."""

        @functools.cache
        def best(number: int) -> tuple[int, tuple[int, ...]] | None:
            """The value of the way from the block to the head, and its blocks; None if there is no way."""
            ways = []
            for way in self.following[number]:
                if way == head:
                    ways.append((0, ()))
                elif way in inside and not self._dominates(way, number) and (rest := best(way)):
                    ways.append(rest)
            if not ways:
                return None
            value, path = max(ways, key=lambda way: way[0])
            block = self.blocks[number]
            own = sum(10**6 * (one.kind in PRODUCTS) + 10**3 * bool(_FEEDS.match(one.opcode)) - 1 for one in block)
            return value + own, (number, *path)

        _, path = best(head)
        return Part(tuple(one for number in path for one in self.blocks[number]))


def main_loop(instructions: Sequence[Instruction]) -> Part:
    """An iteration of the innermost loop with the most products. Where no loop multiplies: the whole kernel."""
    flow = Flow(instructions)
    multiplying = {head: inside for head, inside in flow.loops().items() if flow.products(inside)}
    innermost = [
        head for head, inside in multiplying.items() if not any(other < inside for other in multiplying.values())
    ]  # fmt: skip
    if not innermost:
        return Part(tuple(instructions), whole=True)
    return max((flow.iteration(head, multiplying[head]) for head in innermost), key=lambda part: part.products)
