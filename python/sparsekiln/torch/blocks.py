"""Blocks of a dense matrix: which of them have the largest norm, and conversions from and to dense."""

import numpy as np
import torch

import sparsekiln

from .kernels import BLOCK_SIDES
from .operands import blocks_for

Tensor = torch.Tensor


def parse_block(block: int | tuple[int, int]) -> tuple[int, int]:
    """(block_out, block_in); ValueError for sides without kernels."""
    sides = tuple(block) if isinstance(block, (tuple, list)) else (block, block)
    if len(sides) != 2 or any(side not in BLOCK_SIDES for side in sides):
        raise ValueError(f"there are no kernels for blocks of {block}; a block is (out, in), or one number, of {BLOCK_SIDES}")
    return sides


def grid(features: tuple[int, int], block: tuple[int, int]) -> tuple[int, int]:
    """Block rows and columns of a matrix [out, in]."""
    return blocks_for(features[0], block[0]), blocks_for(features[1], block[1])


def in_blocks(weight: Tensor, block: tuple[int, int]) -> Tensor:
    """weight[out, in] -> [rows, cols, block_out, block_in]; zeros beyond the last feature."""
    rows, cols = grid(tuple(weight.shape), block)
    padding = (0, cols * block[1] - weight.shape[1], 0, rows * block[0] - weight.shape[0])
    if any(padding):
        weight = torch.nn.functional.pad(weight, padding)
    return weight.reshape(rows, block[0], cols, block[1]).transpose(1, 2)


def strongest(weight: Tensor, density: float, block: tuple[int, int]) -> "sparsekiln.Layout":
    """The layout of the blocks of largest Frobenius norm: density × all of them, rounded, and at least one."""
    if not 0 < density <= 1:
        raise ValueError(f"a density of {density}; it is a fraction of the blocks, above 0 and up to 1")
    norms = in_blocks(weight.detach(), block).float().square().sum((2, 3)).cpu()
    wanted = max(1, round(density * norms.numel()))
    chosen = torch.argsort(norms.flatten(), descending=True, stable=True)[:wanted]
    mask = torch.zeros(norms.numel(), dtype=torch.bool)
    mask[chosen] = True
    return sparsekiln.Layout(mask.reshape(norms.shape).numpy())


def row_of(layout: "sparsekiln.Layout") -> np.ndarray:
    """The block row of each present block, in order."""
    return np.repeat(np.arange(layout.rows), np.diff(layout.crow))


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
    origin = origin.to(values.device)
    result = values.new_zeros((origin.numel() if room is None else room, *values.shape[1:]))
    kept = (origin >= 0).nonzero().flatten()
    result[kept] = values[origin[kept]]
    return result
