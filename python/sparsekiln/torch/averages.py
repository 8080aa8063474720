"""Whether a layer may move to another layout while an AveragedModel averages its parameters, element by element."""

import gc
from typing import Any

import torch

import sparsekiln


class Lineage:
    """What a layer and its copies in this process have in common."""

    def __copy__(self) -> "Lineage":
        return self

    def __deepcopy__(self, memo: dict) -> "Lineage":
        return self


def objects_of(kind: type) -> list[Any]:
    """All objects of a class, and of its subclasses, that there are."""
    return [one for one in gc.get_objects() if kind in type(one).__mro__]  # isinstance would ask proxies


def check_averages(layer: Any, layout: "sparsekiln.Layout") -> None:
    """Raises RuntimeError if a copy of the layer in an AveragedModel would average blocks of this layout with others.

    It does not if blocks keep their slots, which they do in a layer with max_blocks from which some are taken away, nor if the copy
    has moved to the same layout before.
    """
    averages = [one for wrapper in objects_of(torch.optim.swa_utils.AveragedModel) for one in wrapper.modules()]
    copies = [one for one in averages if getattr(one, "_lineage", None) is layer._lineage]
    if any(one is layer for one in copies):
        return
    for copy in copies:
        keeps = copy._slots is not None and layer._slots is not None and copy._slots.has_all_of(layer._slots.moved(layout))
        if copy.layout != layout and not keeps:
            raise RuntimeError(
                f"an AveragedModel has a copy of this {type(layer).__name__} with another layout, whose elements would be averaged with "
                "those of other blocks. Blocks can be taken away from a layer with max_blocks=; otherwise move the layer of the "
                "average to the new layout first, or make the AveragedModel afterwards"
            )
