"""Which layers of a model become block-sparse, and how dense each of them stays."""

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from sparsekiln._arguments import real, shown

#: Which layers: a function of name and layer, a pattern of names, or several of them. None: all.
Where = Callable[[str, Any], bool] | str | Iterable[str] | None
#: A density for all layers; by pattern of names, of which the first that fits counts; or a function of name and layer. None
#: leaves a layer alone.
Density = float | Mapping[str, float | None] | Callable[[str, Any], float | None]


class Choice:
    """`where` and `density` as one question for each layer, and what of their patterns was of no use."""

    def __init__(self, where: Where, density: Density) -> None:
        self._where = where
        self._density = density
        self._patterns: tuple[str, ...] | None = None
        if isinstance(where, str):
            self._patterns = (where,)
        elif where is not None and not callable(where):
            self._patterns = tuple(where) if isinstance(where, Iterable) else ()
            if not isinstance(where, Iterable) or not all(isinstance(one, str) for one in self._patterns):
                raise TypeError(f"where is {shown(where)}; a pattern of names, several, or a function of name and layer would work")
        self._unused: dict[str, None] = dict.fromkeys(self._patterns or ())  # in order, as the next
        if isinstance(density, Mapping):
            self._unused.update(dict.fromkeys(density))

    def takes(self, name: str, layer: torch.nn.Module) -> bool:
        """Whether `where` names this layer."""
        if self._patterns is not None:
            fitting = [pattern for pattern in self._patterns if fnmatch.fnmatchcase(name, pattern)]
            for pattern in fitting:
                self._unused.pop(pattern, None)
            return bool(fitting)
        return bool(self._where(name, layer)) if callable(self._where) else True

    def density(self, name: str, layer: torch.nn.Module) -> float | None:
        """Its density; None if it is to be left alone. ValueError, with its name, if that is no density."""
        density = self._density
        if isinstance(density, Mapping):
            found = self._first(density, name)
        else:
            found = density(name, layer) if callable(density) else density
        if found is None:
            return None
        found = real(f"the density of {name or 'the model'}", found)
        if not 0 < found <= 1:
            raise ValueError(f"a density of {found} for {name}; it is a fraction of the blocks, above 0 and up to 1")
        return found

    def _first(self, densities: Mapping[str, float | None], name: str) -> float | None:
        fitting = [pattern for pattern in densities if fnmatch.fnmatchcase(name, pattern)]
        for pattern in fitting:
            self._unused.pop(pattern, None)
        return densities[fitting[0]] if fitting else None

    @property
    def unused(self) -> tuple[str, ...]:
        """The patterns that fit none of the layers that were asked about."""
        return tuple(self._unused)


def reason_that_it_is_small(
    shape: tuple[int, int], block: tuple[int, int], density: float, blocks: int, sides: tuple[str, str] = ("outputs", "inputs")
) -> str:
    """Why a layer of this shape is small: it has fewer than two whole blocks of outputs or inputs, as a classifier of a few
    classes has, or so few blocks that the density is less than one of them. Empty if it is not.

    shape  features of rows and of columns of its weight, or of one of its groups
    sides  what rows and columns are
    """
    for side, features, of_block in zip(sides, shape, block):
        if features < 2 * of_block:
            return f"is small: its {features} {side} are less than two blocks of {of_block} (leave_small=False replaces it)"
    if density * blocks < 1:
        return f"is small: {density:g} of its {blocks} blocks is less than one (leave_small=False replaces it)"
    return ""
