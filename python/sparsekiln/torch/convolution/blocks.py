"""Blocks of the weight of a convolution: its layout with groups, and conversions from and to dense, [out, in / groups, …].

The weight of a transposed convolution is [in, out / groups, …]; what is called `out` and `in` here are rows and columns of it."""

import numpy as np
import torch

import sparsekiln
from sparsekiln._arguments import real

from ..blocks import PresentBlocks, grid, number_at, places_of, row_of, strongest

Tensor = torch.Tensor


def check_channels(channels: tuple[int, int], groups: int, block: tuple[int, int], sides: tuple[str, str]) -> None:
    """ValueError unless there are channels of rows and of columns of the weight, and those of each of several groups fill whole
    blocks: a block has channels of one group. The last blocks of a single group may be partial.

    sides  what rows and columns are: "output" and "input"
    """
    if groups < 1 or min(channels) < 1 or any(number % groups for number in channels):
        raise ValueError(
            f"{' and '.join(f'{number} {side}' for number, side in zip(channels, sides))} channels in {groups} groups; numbers of "
            "both that are multiples of the groups would work"
        )
    for name, number, side in zip(sides, channels, block):
        if groups > 1 and number // groups % side:
            raise ValueError(
                f"each of the {groups} groups has {number // groups} {name} channels, which fill no whole blocks of {side}; "
                "fewer groups, or smaller blocks, would work"
            )


def in_groups(layout: "sparsekiln.Layout", groups: int) -> "sparsekiln.Layout":
    """From the columns of each row's own group, [rows, cols / groups], to all: block-diagonal."""
    first = row_of(layout) // (layout.rows // groups) * layout.cols
    return sparsekiln.Layout.from_csr(layout.rows, layout.cols * groups, layout.crow, layout.col + first)


def within_groups(layout: "sparsekiln.Layout", groups: int) -> "sparsekiln.Layout":
    """The blocks of a layout that connect channels of one group."""
    if groups == 1:
        return layout
    return sparsekiln.Layout(layout.mask() & np.kron(np.eye(groups, dtype=bool), np.ones((layout.rows // groups, layout.cols // groups), bool)))


def random_layout(channels: tuple[int, int], groups: int, density: float, block: tuple[int, int]) -> "sparsekiln.Layout":
    """density × the blocks of the groups, as many in each row as in another. PyTorch's generator decides which."""
    density = real("density", density)
    if not 0 < density <= 1:
        raise ValueError(f"a density of {density}; it is a fraction of the blocks, above 0 and up to 1")
    rows, cols = grid((channels[0], channels[1] // groups), block)
    wanted = number_at(density, rows * cols) / (rows * cols)
    seed = int(torch.randint(2**31, (), device="cpu"))
    return in_groups(sparsekiln.patterns.balanced_random(rows, cols, wanted, seed), groups)


def strongest_layout(
    weight: Tensor, groups: int, density: float, block: tuple[int, int], scores: Tensor | None = None
) -> "sparsekiln.Layout":
    """The blocks of largest Frobenius norm over all taps, or of largest score: density × the blocks of the groups.

    scores  [rows, cols / groups], one for each block; or one for each element, shaped like the weight
    """
    if scores is None:
        scores = weight.detach().float().square()
    return in_groups(strongest(weight, density, block, over_taps(scores, weight.shape)), groups)


def over_taps(scores: Tensor, shape: "torch.Size") -> Tensor:
    """[out, in], the sums of absolute values of scores that are of this shape, [out, in, …]; others as they are."""
    return scores.abs().flatten(2).sum(2) if scores.shape == shape else scores


def blocks_of_dense(weight: Tensor, layout: "sparsekiln.Layout", groups: int, block: tuple[int, int]) -> Tensor:
    """weight[out, in / groups, …] -> [blocks, taps, block_out, block_in], of the blocks of the layout; zeros beyond the last
    channel."""
    cols = layout.cols // groups
    whole = torch.nn.functional.pad(
        weight.flatten(2), (0, 0, 0, cols * block[1] - weight.shape[1], 0, layout.rows * block[0] - weight.shape[0])
    )
    every = whole.reshape(layout.rows, block[0], cols, block[1], -1).permute(0, 2, 4, 1, 3)
    rows, columns = (places.to(weight.device) for places in places_of(layout))
    return every[rows, columns % cols].contiguous()


def dense_of_blocks(blocks: PresentBlocks, groups: int, shape: tuple[int, ...]) -> Tensor:
    """The inverse of blocks_of_dense, with zeros where there are no blocks, of the shape [out, in / groups, …]. Differentiable."""
    values, rows, columns, (count, width) = blocks
    _, taps, block_out, block_in = values.shape
    every = values.new_zeros((count, width // groups, taps, block_out, block_in))
    every = every.index_put((rows, columns % (width // groups)), values)
    whole = every.permute(0, 3, 1, 4, 2).reshape(count * block_out, width // groups * block_in, *shape[2:])
    return whole[: shape[0], : shape[1]]
