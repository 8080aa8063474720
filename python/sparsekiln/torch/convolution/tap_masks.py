"""Masks of taps: which taps of the kernel the blocks of a convolution have, for all blocks or for each."""

from typing import Any

import numpy as np
import torch

from .geometry import Numbers, by


class TapMask:
    """Values of a layer have a place for each tap that any block had when the layer was made. Not changed once it is made.

    kernel     its extents
    present    bool [taps]: those that values have a place for
    of_blocks  bool [blocks, places], which of these each block has; None: all
    numbers    int64 [places]: the tap of each
    pairs      int64: the numbers, in values [blocks · places, …], of what the blocks have, where they differ; else None
    text       as operators take it: a digit for each tap, and where blocks differ, for each block, with a comma after those of a block
    """

    def __init__(self, kernel: Numbers, present: np.ndarray, of_blocks: np.ndarray | None):
        self.kernel, self.present, self.of_blocks = kernel, present, of_blocks
        self.numbers = np.flatnonzero(present)
        self.pairs = None if of_blocks is None else np.flatnonzero(of_blocks)
        self.text = _digits(present) if of_blocks is None else self._text_of_blocks()

    def _text_of_blocks(self) -> str:
        every = np.zeros((self.of_blocks.shape[0], self.present.size), bool)
        every[:, self.numbers] = self.of_blocks
        return "".join(f"{_digits(one)}," for one in every)

    def moved(self, origin: np.ndarray) -> "TapMask":
        """The mask of the blocks of a new layout: each one's number in the old, or -1. ValueError where a block has none."""
        if self.of_blocks is None:
            return self
        if (origin < 0).any():
            raise ValueError(
                f"{int((origin < 0).sum())} blocks of the layout are new, and each block has taps of its own: the mask says nothing of "
                "those; a layout of blocks that are present would work, or a layer with a tap_mask for all blocks"
            )
        return self.with_blocks(self.of_blocks[origin])

    def with_blocks(self, of_blocks: np.ndarray) -> "TapMask":
        if not of_blocks.any():
            raise ValueError("no block of the layout has a tap; a layout with one that has some would work")
        return TapMask(self.kernel, self.present, of_blocks)

    def __str__(self) -> str:
        """5 of 9, or 4 to 5 of 9"""
        least = most = int(self.present.sum())
        if self.of_blocks is not None:
            numbers = self.of_blocks.sum(1)
            least, most = int(numbers.min()), int(numbers.max())
        return f"{least if least == most else f'{least} to {most}'} of {self.present.size}"


def differs_by_block(text: str) -> bool:
    """Whether it is the text of a mask for each block: then values are [pairs of a block and a tap that it has, …]."""
    return "," in text


def _digits(taps: np.ndarray) -> str:
    return "".join("1" if one else "0" for one in taps)


def array_of(given: Any) -> np.ndarray:
    """bool, from what a caller gives. ValueError for other numbers than 0 and 1."""
    if isinstance(given, torch.Tensor) and given.is_meta:
        raise ValueError("tap_mask is on meta, where it has no values; what was offloaded must be loaded before this call")
    array = given.detach().cpu().numpy() if isinstance(given, torch.Tensor) else np.asarray(given)
    if array.dtype != bool and not (np.issubdtype(array.dtype, np.number) and np.isin(array, (0, 1)).all()):
        raise ValueError(f"tap_mask is of {array.dtype}, with other entries than 0 and 1; bool, or 0 and 1, would work")
    return array.astype(bool)


def parse_mask(given: Any, kernel: Numbers, blocks: int | None) -> TapMask | None:
    """From [*kernel], or [blocks, *kernel]; None if that is None, or has all taps.

    blocks  None where it is not said which blocks the layout has: then one for each is refused
    """
    if given is None:
        return None
    mask = array_of(given)
    if mask.shape == kernel:
        return _checked(kernel, mask.reshape(-1), None)
    if mask.ndim == len(kernel) + 1 and mask.shape[1:] == kernel:
        if blocks is None:
            raise ValueError(
                f"a tap_mask of the shape {mask.shape} is one for each block, and without a layout it is not said which they are; "
                f"layout=, or a mask of {by(kernel)} for all blocks, would work"
            )
        if mask.shape[0] == blocks:
            every = mask.reshape(blocks, -1)
            present = every.any(0)
            alike = bool((every == present).all())
            return _checked(kernel, present, None if alike else every[:, present])
    shapes = [list(kernel)] + ([] if blocks is None else [[blocks, *kernel]])
    raise ValueError(
        f"tap_mask has the shape {mask.shape}; {' or '.join(map(str, shapes))}, for all blocks"
        f"{' or for each' if blocks is not None else ''}, would work"
    )


def _checked(kernel: Numbers, present: np.ndarray, of_blocks: np.ndarray | None) -> TapMask | None:
    if not present.any():
        raise ValueError("tap_mask has no tap; one or more would work")
    return None if present.all() and of_blocks is None else TapMask(kernel, present, of_blocks)
