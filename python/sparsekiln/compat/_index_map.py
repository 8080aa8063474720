"""Maps of indices along the last axis of NumPy's or PyTorch's arrays: gathered, and added up in the other direction."""

from __future__ import annotations

from typing import Any

import numpy as np


class IndexMap:
    """Source i maps to the target `target_of[i]`, or to none where that is negative.

    gather       [..., targets] -> [..., sources]: each source is a copy of its target, or 0
    scatter_add  [..., sources] -> [..., targets]: each target is the sum of its sources, or 0; in the order of the
                 sources, and in float32 for half precisions
    """

    def __init__(self, target_of: np.ndarray, targets: int):
        target_of = np.asarray(target_of, np.intp).reshape(-1)
        self._identity = bool(np.array_equal(target_of, np.arange(targets)))
        self._target_of = np.maximum(target_of, 0)
        self._without_target = np.flatnonzero(target_of < 0)
        self._on_devices: dict[tuple[int, Any], Any] = {}  # of an index, by its id, and a device of PyTorch

        mapped = np.flatnonzero(target_of >= 0)
        sources = mapped[np.argsort(target_of[mapped], kind="stable")]
        of_sources = target_of[sources]
        # Which of the sources of its target each one is: the first of all targets are added first, then the second.
        is_first = np.diff(of_sources, prepend=-1) != 0
        order = np.arange(len(sources))
        number = order - np.maximum.accumulate(np.where(is_first, order, 0))
        self._first_source = np.full(targets, -1)
        self._first_source[of_sources[is_first]] = sources[is_first]
        self._without_source = np.flatnonzero(self._first_source < 0)
        self._first_source[self._without_source] = 0
        self._more = [
            (of_sources[number == one], sources[number == one]) for one in range(1, int(number.max(initial=0)) + 1)
        ]

    @property
    def is_one_to_one(self) -> bool:
        """Whether no target has several sources."""
        return not self._more

    def gather(self, array: Any) -> Any:
        return array if self._identity else self._taken(array, self._target_of, self._without_target)

    def scatter_add(self, array: Any) -> Any:
        if self._identity:
            return array
        if not self._more:
            return self._taken(array, self._first_source, self._without_source)
        dtype = array.dtype
        if dtype.itemsize < 4:
            array = array.astype(np.float32) if isinstance(array, np.ndarray) else array.float()
        total = self._taken(array, self._first_source, self._without_source)
        for targets, sources in self._more:
            total[..., self._index(array, targets)] += self._taken(array, sources)
        return total.astype(dtype, copy=False) if isinstance(total, np.ndarray) else total.to(dtype)

    def _taken(self, array: Any, index: np.ndarray, zeros: np.ndarray = np.empty(0, np.intp)) -> Any:
        taken = array.take(index, -1) if isinstance(array, np.ndarray) else array.index_select(-1, self._index(array, index))
        if len(zeros):
            taken[..., self._index(array, zeros)] = 0
        return taken

    def _index(self, array: Any, index: np.ndarray) -> Any:
        """An index of this map, as an array of `array`'s framework and device."""
        if isinstance(array, np.ndarray):
            return index
        place = id(index), array.device
        if place not in self._on_devices:
            import torch

            self._on_devices[place] = torch.from_numpy(index).to(array.device)
        return self._on_devices[place]
