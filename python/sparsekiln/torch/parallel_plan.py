"""What a plan of parallelize says about which layers, and which of them share a partition."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.distributed.tensor.parallel import ParallelStyle

from .layers import BlockSparseLinear
from .parallel_styles import ColwiseSparseParallel, SparseParallelStyle
from .partition import Partition, Side, common_partition

Plan = ParallelStyle | dict[str, ParallelStyle]


@dataclass
class PlannedLayer:
    """A layer, its style, and what * stood for in the pattern that its name fits."""

    name: str
    layer: BlockSparseLinear
    style: SparseParallelStyle
    matched: tuple[str, ...] = ()

    @property
    def parent(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def side(self) -> Side:
        try:
            return self.style.side(self.layer)
        except ValueError as error:
            raise ValueError(f"{self.name or 'the module'}: {error}") from error


def layers_of_plan(model: torch.nn.Module, plan: Plan) -> tuple[list[PlannedLayer], list[tuple[Any, ParallelStyle]]]:
    """The layers for styles of block-sparse layers, in the order of the model, and the modules for other styles."""
    styles = plan if isinstance(plan, dict) else {"": plan}
    chosen: dict[int, tuple[str, Any, ParallelStyle, tuple[str, ...]]] = {}
    unused = set(styles)
    for name, module in model.named_modules(remove_duplicate=False):
        for pattern, style in styles.items():
            matched = _match(name, pattern)
            if matched is None:
                continue
            unused.discard(pattern)
            before = chosen.setdefault(id(module), (name, module, style, matched))
            if before[2] is not style:
                raise ValueError(f"{name or 'the module'} has two styles in the plan; one would work")
    if unused:
        some = ", ".join(name for name, one in model.named_modules() if isinstance(one, BlockSparseLinear))
        raise ValueError(
            f"No module's name fits {', '.join(map(repr, sorted(unused)))}; block-sparse layers are {some or 'missing'}."
        )
    layers, others = [], []
    for name, module, style, matched in chosen.values():
        if isinstance(style, SparseParallelStyle):
            layers.append(PlannedLayer(name, module, style, matched))
        else:
            others.append((module, style))
    return layers, others


def _match(name: str, pattern: str) -> tuple[str, ...] | None:
    """The parts of the name where the pattern leaves a choice; None if it does not fit."""
    parts, wanted = name.split("."), pattern.split(".")
    if len(parts) != len(wanted) or not all(fnmatchcase(part, one) for part, one in zip(parts, wanted)):
        return None
    return tuple(part for part, one in zip(parts, wanted) if part != one)


def partitions_of_plan(layers: list[PlannedLayer], ranks: int) -> list[Partition]:
    """The partition of each layer."""
    sharing = _groups(layers)
    partitions: dict[int, Partition] = {}
    for group in sharing:
        given = {one.style.partition for one in group if isinstance(one.style.partition, Partition)}
        try:
            partition = given.pop() if given else common_partition([one.side for one in group], ranks)
        except ValueError as error:
            raise ValueError(f"{', '.join(one.name or 'the module' for one in group)}: {error}") from error
        partitions.update((id(one), partition) for one in group)
    return [partitions[id(one)] for one in layers]


def _groups(layers: list[PlannedLayer]) -> list[list[PlannedLayer]]:
    """Layers that share a partition. It is never wrong to share one that need not be shared."""
    groups: list[list[PlannedLayer]] = []
    named: dict[tuple[str, tuple[str, ...]], list[PlannedLayer]] = {}
    of_outputs: list[list[PlannedLayer]] = []  # those that begin with a column-wise layer
    waiting: list[PlannedLayer] = []

    def start(one: PlannedLayer) -> list[PlannedLayer]:
        groups.append([one])
        return groups[-1]

    for one in layers:
        named_or_given = one.style.partition
        if isinstance(named_or_given, str):
            key = named_or_given, one.matched
            if key in named:
                named[key].append(one)
            else:
                named[key] = start(one)
        elif isinstance(named_or_given, Partition) or not one.style.shares_features:
            start(one)
        elif isinstance(one.style, ColwiseSparseParallel):
            group = next((group for group in of_outputs if group[0].parent == one.parent and _fits(one, group)), None)
            if group is None:
                of_outputs.append(start(one))
            else:
                group.append(one)
        else:
            waiting.append(one)
    order = {id(one): number for number, one in enumerate(layers)}
    for one in waiting:
        beside = [group for group in of_outputs if group[0].parent == one.parent and _fits(one, group)]
        before = [group for group in of_outputs if order[id(group[0])] < order[id(one)]]
        if not beside and not before:
            raise ValueError(
                f"{one.name or 'the module'} takes sharded features, and the plan has no column-wise layer before it that leaves them "
                "sharded; input_layouts=Replicate(), or partition= of the layer that they come from, would work"
            )
        (beside[0] if beside else before[-1]).append(one)
    return groups


def _fits(one: PlannedLayer, group: list[PlannedLayer]) -> bool:
    """Whether the features are the same, or groups of features are given and they are as many."""
    side = one.side
    for other in (member.side for member in group):
        if side.of_part == other.of_part:
            return True
        if side.group and other.group and side.of_part // side.group == other.of_part // other.group:
            return True
    return False
