"""Which process has which features of a block-sparse layer: a partition by equal work."""

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import sparsekiln
from sparsekiln._arguments import integer

from ..blocks import row_of

Numbers = npt.NDArray[np.int64]


class Partition:
    """Features in units, each of which one rank has: features [i * unit, (i + 1) * unit) belong to rank `owners[i]`.

    Layers whose sharded features meet have the same partition. The units of a rank need not be neighbours, nor are ranks given as
    many; a rank keeps its features in ascending order. The last unit may be partial.

    owners    the rank of each unit
    unit      features of a unit: a multiple of the sides of blocks, and of what must stay together
    features  features that are sharded: of one part of a layer that has several
    """

    __slots__ = ("features", "owners", "ranks", "unit")

    def __init__(self, owners: Any, ranks: int, unit: int, features: int) -> None:
        self.owners: Numbers = np.array(owners, np.int64)
        self.ranks, self.unit, self.features = integer("ranks", ranks), integer("unit", unit), integer("features", features)
        if self.units != -(-self.features // self.unit):
            raise ValueError(f"{self.units} owners for {features} features in units of {unit}; one for each unit would work")
        missing = sorted(set(range(self.ranks)) - set(self.owners.tolist()))
        if missing or self.owners.max() >= self.ranks or self.owners.min() < 0:
            raise ValueError(f"the owners {self.owners.tolist()} are not all of the ranks 0 to {self.ranks - 1}, and no others")
        self.owners.setflags(write=False)

    @staticmethod
    def by_work(work: Any, ranks: int, unit: int, features: int) -> "Partition":
        """Such that the largest sum of `work` of a rank is small: longest first (Graham 1969), then by exchanges.

        work  [units], or [layers, units] of layers that share the partition: their sum counts, and then each of them
        """
        layers = np.atleast_2d(np.array(work, np.int64))
        work = layers.sum(0)
        if work.size < ranks:
            raise ValueError(
                f"{features} features are {work.size} units of {unit}, which {ranks} ranks cannot share; fewer ranks, smaller "
                "blocks, or smaller groups would work"
            )
        owners = _exchanged(work, _longest_first(work, ranks), ranks)
        return Partition(_evened(layers, owners, ranks) if len(layers) > 1 else owners, ranks, unit, features)

    @staticmethod
    def in_order(features: int, ranks: int, unit: int) -> "Partition":
        """Neighbouring units, as many for each rank: as PyTorch shards a dimension, so that dense layers of its styles fit."""
        if features % (ranks * unit):
            raise ValueError(f"{features} features are no multiple of {ranks} ranks times units of {unit}")
        return Partition(np.repeat(np.arange(ranks), features // (ranks * unit)), ranks, unit, features)

    @property
    def units(self) -> int:
        return int(self.owners.size)

    @property
    def is_in_order(self) -> bool:
        """Whether the ranks have as many features each, one rank after the other, as a DTensor that is sharded."""
        return self.features % (self.ranks * self.unit) == 0 and np.array_equal(
            self.owners, np.repeat(np.arange(self.ranks), self.units // self.ranks)
        )

    def sums(self, work: Any) -> Numbers:
        """The work of each rank."""
        return np.bincount(self.owners, np.asarray(work), self.ranks).astype(np.int64)

    def imbalance(self, work: Any) -> float:
        """The largest work of a rank, over the mean."""
        sums = self.sums(work)
        return float(sums.max() / sums.mean())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partition):
            return NotImplemented
        mine, others = ((one.ranks, one.unit, one.features) for one in (self, other))
        return mine == others and np.array_equal(self.owners, other.owners)

    def __hash__(self) -> int:
        return hash((self.ranks, self.unit, self.features, self.owners.tobytes()))

    def __repr__(self) -> str:
        return f"Partition({self.features} features in {self.units} units of {self.unit}, over {self.ranks} ranks)"


def _longest_first(work: Numbers, ranks: int) -> Numbers:
    owners = np.zeros(work.size, np.int64)
    loads = [(0, 0, rank) for rank in range(ranks)]  # work, units, rank: of equal work, the rank with fewer units
    for unit in np.argsort(-work, kind="stable"):
        load, units, rank = heapq.heappop(loads)
        owners[unit] = rank
        heapq.heappush(loads, (load + int(work[unit]), units + 1, rank))
    return owners


def _exchanged(work: Numbers, owners: Numbers, ranks: int) -> Numbers:
    """Exchanges units of the rank with the most work with those of others, while that makes the largest sum smaller."""
    sums = np.bincount(owners, work, ranks).astype(np.int64)
    for _ in range(8 * ranks):
        most = int(np.argmax(sums))
        mine = np.flatnonzero(owners == most)
        for other in np.argsort(sums, kind="stable"):
            theirs = np.flatnonzero(owners == other)
            gap = int(sums[most] - sums[other])
            if gap <= 1:
                return owners
            less = _best_exchange(work[mine], work[theirs], gap)
            if less is not None:
                one, two = mine[less[0]], theirs[less[1]]
                owners[one], owners[two] = other, most
                moved = int(work[one] - work[two])
                sums[most] -= moved
                sums[other] += moved
                break
        else:
            return owners
    return owners


def _best_exchange(mine: Numbers, theirs: Numbers, gap: int) -> tuple[int, int] | None:
    """The units whose exchange halves the gap best; None if none narrows it."""
    order = np.argsort(theirs, kind="stable")
    sorted_theirs, best, found = theirs[order], gap, None
    for index, work in enumerate(mine):
        near = int(np.searchsorted(sorted_theirs, work - gap / 2))
        for place in (near - 1, near):
            if 0 <= place < order.size:
                left = abs(gap - 2 * int(work - sorted_theirs[place]))
                if left < best:
                    best, found = left, (index, int(order[place]))
    return found


_SUM_COUNTS = 10  # times as much as a single layer, whose imbalance costs memory and no time


def _evened(layers: Numbers, owners: Numbers, ranks: int) -> Numbers:
    """Exchanges units so that each layer, too, has equal work on all ranks, while the sum stays as even as that allows.

    layers  [layers, units]: their work
    """
    means = np.maximum(layers.sum(1, keepdims=True) / ranks, 1)
    excess = np.concatenate([layers / means, _SUM_COUNTS * layers.sum(0, keepdims=True) * ranks / layers.sum()])
    even = np.append(np.ones(len(layers)), _SUM_COUNTS)[:, None]
    loads = np.stack([np.bincount(owners, row, ranks) for row in excess]) - even
    for trial in range(16 * ranks):
        row, most = np.unravel_index(int(np.argmax(loads)), loads.shape)
        mine = _some(np.flatnonzero(owners == most), trial)
        for other in np.argsort(loads[row], kind="stable")[:-1]:
            theirs = _some(np.flatnonzero(owners == other), trial)
            moved = excess[:, mine, None] - excess[:, None, theirs]
            worst = np.maximum(loads[:, most, None, None] - moved, loads[:, other, None, None] + moved).max(0)
            best = int(np.argmin(worst))
            if worst.flat[best] < loads[row, most] - 1e-9:
                one, two = np.unravel_index(best, worst.shape)
                owners[mine[one]], owners[theirs[two]] = other, most
                loads[:, most] -= moved[:, one, two]
                loads[:, other] += moved[:, one, two]
                break
        else:
            return owners
    return owners


def _some(units: Numbers, trial: int, most: int = 256) -> Numbers:
    """At most so many of them, others in another trial."""
    step = -(-units.size // most)
    return units[trial % step :: step]


def work_of_places(layout: "sparsekiln.Layout", side: int) -> Numbers:
    """What each block row (side 0) or block column (side 1) costs, as schedules count it: its blocks, and one if it has none."""
    places = row_of(layout) if side == 0 else np.asarray(layout.col, np.int64)
    return np.maximum(np.bincount(places, minlength=layout.shape[side]), 1).astype(np.int64)


@dataclass(frozen=True)
class Side:
    """The features of one side of a layer that are to be sharded.

    number    0 for outputs, which are the rows of the weight, 1 for inputs
    features  all of them
    block     features of a block
    parts     equal parts, one after the other, that are sharded alike, such as query, key and value of one layer
    group     features that stay on one rank
    """

    layout: "sparsekiln.Layout"
    number: int
    features: int
    block: int
    parts: int = 1
    group: int | None = None

    def __post_init__(self) -> None:
        of_part = self.features // self.parts
        if self.parts < 1 or self.features % self.parts or (self.parts > 1 and of_part % self.block):
            raise ValueError(f"{self.features} features are not {self.parts} equal parts of whole blocks of {self.block}")
        if self.group is not None and (self.group < 1 or of_part % self.group):
            raise ValueError(f"{of_part} features are no multiple of a group of {self.group}")

    @property
    def of_part(self) -> int:
        return self.features // self.parts

    @property
    def smallest_unit(self) -> int:
        return int(np.lcm(self.block, self.group or 1))

    def unit_of(self, partition: Partition) -> int:
        """Features of this side in a unit of the partition. ValueError if the partition does not fit."""
        if self.of_part == partition.features:
            unit = partition.unit
        elif self.of_part % partition.units == 0:
            unit = self.of_part // partition.units
        else:
            raise ValueError(f"{self.of_part} features do not fit {partition}, which has other features")
        if unit % self.smallest_unit or (self.parts > 1 and self.of_part % unit):
            raise ValueError(
                f"units of {unit} features do not fit {self.of_part} features in blocks of {self.block}"
                + ("" if self.group is None else f" and groups of {self.group}")
            )
        return unit

    def work(self, unit: int) -> Numbers:
        """The work of each unit, of all parts together."""
        places = work_of_places(self.layout, self.number)
        blocks_of_unit = unit // self.block
        each = places.reshape(self.parts, -1)
        return np.add.reduceat(each.sum(0), np.arange(0, each.shape[1], blocks_of_unit))

    def owners_of_blocks(self, partition: Partition) -> Numbers:
        """The rank of each block row, or block column."""
        count = self.layout.shape[self.number] // self.parts
        of_part = partition.owners[np.arange(count) // (self.unit_of(partition) // self.block)]
        return np.tile(of_part, self.parts)

    def owners_of_features(self, partition: Partition) -> Numbers:
        return np.repeat(self.owners_of_blocks(partition), self.block)[: self.features]


def common_partition(sides: list[Side], ranks: int) -> Partition:
    """One partition for sides whose features meet, by the sum of their work. ValueError if no units fit all of them."""
    first = sides[0]
    if all(side.of_part == first.of_part for side in sides):
        unit = int(np.lcm.reduce([side.smallest_unit for side in sides]))
        if any(side.parts > 1 for side in sides) and first.of_part % unit:
            raise ValueError(f"parts of {first.of_part} features are no multiple of {unit}, which blocks and groups need")
    else:  # as many groups of each
        counts = {side.of_part // side.smallest_unit if side.of_part % side.smallest_unit == 0 else 0 for side in sides}
        if len(counts) > 1 or 0 in counts:
            features = ", ".join(f"{side.of_part} features in units of {side.smallest_unit}" for side in sides)
            raise ValueError(f"layers that share a partition have {features}; as many groups of each would work (group=)")
        unit = first.smallest_unit
    work = [side.work(unit if side.of_part == first.of_part else side.smallest_unit) for side in sides]
    return Partition.by_work(work, ranks, unit, first.of_part)
