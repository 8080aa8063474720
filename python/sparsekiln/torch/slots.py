"""Where the blocks of a layer that changes its layout are in its `weight_values`."""

import numpy as np

import sparsekiln

from .blocks import row_of

Numbers = np.ndarray  #: int64


class Slots:
    """The slot of each block in `weight_values` that have room for more blocks than a layout has. Not changed once it is made.

    While blocks are taken away, or come back, each keeps its slot: so a layer, its average and its copies, which began alike, have
    it in the same one. Where there is a new block, all are put in order.

    owners   [room]: the block that a slot has, or had last: its number in the grid, row by row; −1 where there was none
    numbers  [blocks of the layout]: the slot of each
    """

    def __init__(self, layout: "sparsekiln.Layout", owners: Numbers):
        """ValueError if a block has no slot, or several."""
        self.owners = owners
        self.numbers = _find(owners, _blocks(layout))

    @staticmethod
    def in_order(layout: "sparsekiln.Layout", room: int) -> "Slots":
        """The first slots."""
        return Slots(layout, np.concatenate([_blocks(layout), np.full(room - layout.blocks, -1)]))

    @property
    def are_in_order(self) -> bool:
        return np.array_equal(self.numbers, np.arange(self.numbers.size))

    def moved(self, layout: "sparsekiln.Layout") -> "Slots":
        """The slots of another layout."""
        known = bool(np.isin(_blocks(layout), self.owners).all())
        return Slots(layout, self.owners) if known else Slots.in_order(layout, self.owners.size)

    def has_all_of(self, other: "Slots") -> bool:
        """Whether each block of the other layout is in this one, too, and in the same slot."""
        return bool(np.isin(other.numbers, self.numbers).all() and np.array_equal(other.owners[other.numbers], self.owners[other.numbers]))

    def origin(self, before: "Slots") -> Numbers:
        """[room]: the slot in which each slot's block was before; −1 where there is none, or a new one."""
        blocks, were = self.owners[self.numbers], before.owners[before.numbers]  # both ascend
        places = np.searchsorted(were, blocks)
        there = places < were.size
        there[there] = were[places[there]] == blocks[there]
        origin = np.full(self.owners.size, -1)
        origin[self.numbers[there]] = before.numbers[places[there]]
        return origin


def _blocks(layout: "sparsekiln.Layout") -> Numbers:
    """The numbers of the present blocks in the grid, ascending."""
    return row_of(layout) * layout.cols + np.asarray(layout.col, dtype=np.int64)


def _find(owners: Numbers, blocks: Numbers) -> Numbers:
    order = np.argsort(owners, kind="stable")
    ranked = owners[order]
    places = np.searchsorted(ranked, blocks)
    if np.any(places >= ranked.size) or not np.array_equal(ranked[places], blocks):
        raise ValueError("a block of the layout has no slot")
    if np.any((ranked[1:] == ranked[:-1]) & (ranked[1:] >= 0)):
        raise ValueError("a block has several slots")
    return order[places]
