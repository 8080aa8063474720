"""What a plan of parallelize says about which layers, and which of them share a partition."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.distributed.tensor.parallel import ParallelStyle

from ..linear.layer import BlockSparseLinear
from .partition import Partition, Side, common_partition
from .styles import ColwiseSparseParallel, SparseParallelStyle

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
    partitions: dict[int, Partition] = {}
    for group in _groups(layers):
        try:
            partition = _given(group) or common_partition([one.side for one in group], ranks)
        except ValueError as error:
            raise ValueError(f"{', '.join(one.name or 'the module' for one in group)}: {error}") from error
        partitions.update((id(one), partition) for one in group)
    return [partitions[id(one)] for one in layers]


def _given(group: list[PlannedLayer]) -> Partition | None:
    """The partition that a style has, rather than a name."""
    return next((one.style.partition for one in group if isinstance(one.style.partition, Partition)), None)


def _groups(layers: list[PlannedLayer]) -> list[list[PlannedLayer]]:
    """Layers that share a partition. It is never wrong to share one that need not be shared."""
    groups: list[list[PlannedLayer]] = []
    by_key: dict[object, list[PlannedLayer]] = {}
    waiting: list[PlannedLayer] = []  # row-wise layers that take what another one leaves

    for one in layers:
        key: object
        chosen, column_wise = one.style.partition, isinstance(one.style, ColwiseSparseParallel)
        if chosen is not None:
            key = (chosen, one.matched) if isinstance(chosen, str) else chosen
            group = by_key.get(key)
        elif one.style.shares_features and not column_wise:
            waiting.append(one)
            continue
        else:
            key, group = one.name, None
            if one.style.shares_features:
                group = next((beside for beside in groups if _leaves(beside, one.parent) and _fits(one, beside)), None)
        if group is None:
            groups.append([one])
            by_key[key] = groups[-1]
        else:
            group.append(one)
    order = {id(one): number for number, one in enumerate(layers)}
    for one in waiting:
        beside = [group for group in groups if _leaves(group, one.parent) and _fits(one, group)]
        before = [group for group in groups if _leaves(group) and order[id(group[0])] < order[id(one)]]
        if len(beside) > 1:
            names = " and ".join(group[0].name for group in beside)
            raise ValueError(
                f"{one.name} may take the features of {names}, which have other partitions; partition= would say which"
            )
        if beside or before:
            (beside or before)[-1].append(one)
        else:
            raise ValueError(_NO_LAYER_BEFORE.format(one.name or "the module"))
    for group in groups:
        if not _leaves(group) and _given(group) is None and any(one.style.shares_features for one in group):
            raise ValueError(_NO_LAYER_BEFORE.format(group[0].name or "the module"))
    return groups


_NO_LAYER_BEFORE = (
    "{} takes sharded features, and the plan has no column-wise layer for it that leaves them sharded; input_layouts=Replicate(), "
    "or the partition= of the layer that they come from, would work"
)


def _leaves(group: list[PlannedLayer], parent: str | None = None) -> bool:
    """Whether a column-wise layer, of this parent if one is given, leaves features sharded."""
    return any(
        one.style.shares_features and isinstance(one.style, ColwiseSparseParallel) and parent in (None, one.parent)
        for one in group
    )


def _fits(one: PlannedLayer, group: list[PlannedLayer]) -> bool:
    """Whether the features are the same, or groups of features are given and they are as many."""
    side = one.side
    for other in (member.side for member in group):
        if side.of_part == other.of_part:
            return True
        if side.group and other.group and side.of_part // side.group == other.of_part // other.group:
            return True
    return False
