"""Whether a layer may move to another layout while an AveragedModel averages its parameters, element by element."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import torch

import sparsekiln


class Lineage:
    """What a layer and its copies in this process have in common: they find each other by it."""

    def __init__(self) -> None:
        self.members: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()

    def __reduce__(self) -> tuple:  # in a pickle: that of other copies
        return (Lineage, ())

    def __copy__(self) -> "Lineage":
        return self

    def __deepcopy__(self, memo: dict) -> "Lineage":
        return self


def objects_of(kind: type) -> list[Any]:
    """All objects of a class, and of its subclasses, that there are."""
    frozen = gc.get_freeze_count() > 0
    if frozen:  # which gc does not tell
        gc.unfreeze()
    try:
        return [one for one in gc.get_objects() if kind in type(one).__mro__]  # isinstance would ask proxies
    finally:
        if frozen:
            gc.freeze()


def check_averages(layer: Any, layout: "sparsekiln.Layout") -> None:
    """Raises RuntimeError if a copy of the layer in an AveragedModel would average blocks of this layout with others.

    It does not if blocks keep their slots, which they do in a layer with max_blocks from which some are taken away, nor if the copy
    has moved to the same layout before.
    """

    def mixes(copy: Any) -> bool:
        keeps = copy._slots is not None and layer._slots is not None and copy._slots.has_all_of(layer._slots.moved(layout))
        return copy.layout != layout and not keeps

    if _is_averaged_with(layer, mixes):
        raise RuntimeError(
            f"an AveragedModel has a copy of this {type(layer).__name__} with another layout, whose elements would be averaged with "
            "those of other blocks. Blocks can be taken away from a layer with max_blocks=; otherwise move the layer of the "
            "average to the new layout first, or make the AveragedModel afterwards"
        )


def check_averages_in_order(layer: Any) -> None:
    """Raises RuntimeError if blocks of the layer that move to the first slots would be averaged with those of other slots."""
    if _is_averaged_with(layer, lambda copy: copy._slots is not None and not copy._slots.are_in_order):
        raise RuntimeError(
            f"an AveragedModel has a copy of this {type(layer).__name__} whose blocks are in other slots, so that each would be averaged "
            "with another one. Call put_in_order of the layer of the average first, or make the AveragedModel afterwards"
        )


def _is_averaged_with(layer: Any, mixes: Callable[[Any], bool]) -> bool:
    """Whether the layer is averaged with a copy that mixes. All objects are asked for their class only where there is such a copy."""
    copies = [one for one in layer._lineage.members if one is not layer and mixes(one)]

    def is_averaged() -> bool:
        inside = {id(one) for wrapper in objects_of(torch.optim.swa_utils.AveragedModel) for one in wrapper.modules()}
        return id(layer) not in inside and any(id(one) in inside for one in copies)

    if not copies or not is_averaged():
        return False
    gc.collect()  # it takes much longer than looking, and only an average that nothing uses any more asks for it
    return is_averaged()
