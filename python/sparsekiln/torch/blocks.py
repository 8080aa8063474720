"""Blocks of a dense matrix: which of them have the largest norm, and conversions from and to dense."""

from typing import NamedTuple

import numpy as np
import torch

import sparsekiln
from sparsekiln._arguments import integer, real, shown

from .kernels import BLOCK_SIDES
from .operands import blocks_for

Tensor = torch.Tensor


def parse_block(block: int | tuple[int, int]) -> tuple[int, int]:
    """(block_out, block_in); ValueError for sides without kernels."""
    given = block if isinstance(block, (tuple, list)) else (block, block)
    sides = tuple(integer("a side of the block", side) for side in given)
    if len(sides) != 2 or any(side not in BLOCK_SIDES for side in sides):
        raise ValueError(f"there are no kernels for blocks of {block}; a block is (out, in), or one number, of {BLOCK_SIDES}")
    return sides[0], sides[1]


def grid(features: tuple[int, int], block: tuple[int, int]) -> tuple[int, int]:
    """Block rows and columns of a matrix [out, in]."""
    return blocks_for(features[0], block[0]), blocks_for(features[1], block[1])


def in_blocks(weight: Tensor, block: tuple[int, int]) -> Tensor:
    """weight[out, in] -> [rows, cols, block_out, block_in]; zeros beyond the last feature."""
    rows, cols = grid((weight.shape[0], weight.shape[1]), block)
    padding = (0, cols * block[1] - weight.shape[1], 0, rows * block[0] - weight.shape[0])
    if any(padding):
        weight = torch.nn.functional.pad(weight, padding)
    return weight.reshape(rows, block[0], cols, block[1]).transpose(1, 2)


def strongest(weight: Tensor, density: float, block: tuple[int, int], scores: Tensor | None = None) -> "sparsekiln.Layout":
    """The layout of the blocks of largest Frobenius norm, or of largest score: density × all of them, rounded, and at least one.

    scores  [rows, cols], one for each block; or [out, in], see score_of_blocks
    """
    density = real("density", density)
    if not 0 < density <= 1:
        raise ValueError(f"a density of {density}; it is a fraction of the blocks, above 0 and up to 1")
    shape = weight.shape[0], weight.shape[1]
    ranks = score_of_blocks(weight.detach().float().square() if scores is None else scores, shape, block)
    chosen = largest(ranks.flatten(), number_at(density, ranks.numel()))
    return sparsekiln.Layout(chosen.reshape(ranks.shape).numpy())


def number_at(density: float, blocks: int) -> int:
    """How many of `blocks` are kept at a density: the nearest number, and at least one."""
    return max(1, round(density * blocks))


def largest(scores: Tensor, wanted: int) -> Tensor:
    """bool [blocks], on the cpu: the `wanted` largest of scores [blocks]; of equal ones, the first."""
    chosen = torch.zeros(scores.numel(), dtype=torch.bool, device="cpu")
    chosen[torch.argsort(scores.cpu(), descending=True, stable=True)[:wanted]] = True
    return chosen


def score_of_blocks(scores: Tensor, shape: tuple[int, int], block: tuple[int, int]) -> Tensor:
    """[rows, cols], of scores that are that already, or are [out, in]: then a block has the sum of their absolute values.

    ValueError if they are neither, or have a NaN.
    """
    scores = checked_scores(scores)
    if tuple(scores.shape) == grid(shape, block):
        return scores
    if tuple(scores.shape) == shape:
        return in_blocks(scores.abs(), block).sum((2, 3))
    rows, cols = grid(shape, block)
    raise ValueError(
        f"the scores have the shape {tuple(scores.shape)}; [{rows}, {cols}], one for each block, or {list(shape)}, one for each "
        "element of the weight, would work"
    )


def checked_scores(scores: Tensor) -> Tensor:
    """Without gradient, in float32 or float64. ValueError if one is NaN."""
    if not isinstance(scores, Tensor):
        raise TypeError(f"the scores are {shown(scores)}; a tensor would work")
    if scores.is_meta:
        raise ValueError("there are no values on meta to choose blocks by; a layout would work, or a weight that is loaded before")
    scores = scores.detach()
    scores = scores if scores.dtype == torch.float64 else scores.float()
    if scores.isnan().any():
        raise ValueError("a score is NaN; every score must be a number")
    return scores


def row_of(layout: "sparsekiln.Layout") -> np.ndarray:
    """The block row of each present block, in order."""
    return np.repeat(np.arange(layout.rows), np.diff(layout.crow))


def places_of(layout: "sparsekiln.Layout") -> tuple[Tensor, Tensor]:
    """int64 [blocks], on the cpu: the block row and the block column of each present block."""
    return torch.from_numpy(row_of(layout)), torch.from_numpy(np.array(layout.col, dtype=np.int64))


class PresentBlocks(NamedTuple):
    """Blocks and where they are in a grid. Rows that are the grid's rows or more are no part of it."""

    values: Tensor  #: [blocks, …]
    rows: Tensor  #: int64 [blocks]
    columns: Tensor  #: int64 [blocks]
    grid: tuple[int, int]  #: rows that there are room for, and columns


def moved(old: "sparsekiln.Layout", new: "sparsekiln.Layout") -> Tensor:
    """For each block of `new` its number in `old`, -1 where `old` lacks it. int64, on the cpu."""
    before = row_of(old) * old.cols + np.asarray(old.col, dtype=np.int64)
    after = row_of(new) * new.cols + np.asarray(new.col, dtype=np.int64)
    place = np.searchsorted(before, after)
    found = place < before.size
    found[found] = before[place[found]] == after[found]
    return torch.from_numpy(np.where(found, place, -1).astype(np.int64))


def gathered(values: Tensor, origin: Tensor, room: int | None = None) -> Tensor:
    """The blocks of `values` that `origin` (see moved) names; zeros for new ones, and after them up to `room` blocks."""
    result = values.new_zeros((origin.numel() if room is None else room, *values.shape[1:]))
    kept = (origin >= 0).nonzero().flatten()  # where `origin` is: values may be on meta
    result[kept.to(values.device)] = values[origin[kept].to(values.device)]
    return result


def along_outputs(numbers: Tensor, places: Tensor, outputs: int, values: Tensor) -> Tensor:
    """Numbers of output features in the shape in which they multiply values [blocks, …, rows, columns]; zeros for blocks of
    values after those of the layout.

    numbers  [output features], of whole blocks
    places   [blocks of the layout]: the number of the block of output features that each of them has
    outputs  0 if the rows of blocks are output features, 1 if the columns are
    """
    side = values.shape[values.dim() - 2 + outputs]
    of_blocks = numbers.reshape(-1, side)[places]
    of_blocks = torch.nn.functional.pad(of_blocks, (0, 0, 0, values.shape[0] - places.shape[0]))
    return of_blocks.reshape(-1, *(1 for _ in values.shape[1:-2]), *((1, side) if outputs else (side, 1)))
