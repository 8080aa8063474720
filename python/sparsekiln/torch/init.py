"""Initialisers for block-sparse layers: those of torch.nn.init, with the fans of what is present.

torch.nn.init takes `weight_values` [blocks, block_out, block_in] for a convolution, whose fan-in it computes from the number
of blocks. Here each block starts with the fan-in of its block row (the input features that its outputs have) and the fan-out
of its block column (the outputs that its input features have). All write to the layer and return it; the bias stays.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

import sparsekiln

from .blocks import row_of

if TYPE_CHECKING:
    from .layers import BlockSparseLinear

Tensor = torch.Tensor


def fan_in(layer: "BlockSparseLinear") -> Tensor:
    """float32 [block rows]: input features of the present blocks of each block row."""
    width = _sizes(layer.layout.cols, layer.block[1], layer.in_features)
    return torch.zeros(layer.layout.rows, dtype=torch.float32, device="cpu").index_add_(0, _rows(layer.layout), width[_cols(layer.layout)])


def fan_out(layer: "BlockSparseLinear") -> Tensor:
    """float32 [block columns]: output features of the present blocks of each block column."""
    height = _sizes(layer.layout.rows, layer.block[0], layer.out_features)
    return torch.zeros(layer.layout.cols, dtype=torch.float32, device="cpu").index_add_(0, _cols(layer.layout), height[_rows(layer.layout)])


def kaiming_uniform_(
    layer: "BlockSparseLinear", a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: torch.Generator | None = None,
) -> "BlockSparseLinear":  # fmt: skip
    """Like torch.nn.init.kaiming_uniform_ (He et al. 2015): a standard deviation of gain / √fan."""
    return _uniform(layer, _kaiming(layer, a, mode, nonlinearity), generator)


def kaiming_normal_(
    layer: "BlockSparseLinear", a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: torch.Generator | None = None,
) -> "BlockSparseLinear":  # fmt: skip
    """Like torch.nn.init.kaiming_normal_."""
    return _normal(layer, _kaiming(layer, a, mode, nonlinearity), generator)


def xavier_uniform_(layer: "BlockSparseLinear", gain: float = 1, generator: torch.Generator | None = None) -> "BlockSparseLinear":
    """Like torch.nn.init.xavier_uniform_ (Glorot, Bengio 2010): a standard deviation of gain · √(2 / (fan_in + fan_out))."""
    return _uniform(layer, _xavier(layer, gain), generator)


def xavier_normal_(layer: "BlockSparseLinear", gain: float = 1, generator: torch.Generator | None = None) -> "BlockSparseLinear":
    """Like torch.nn.init.xavier_normal_."""
    return _normal(layer, _xavier(layer, gain), generator)


def _sizes(blocks: int, side: int, features: int) -> Tensor:
    """[blocks]: the features in each block row or column; the last one may be partial."""
    sizes = torch.full((blocks,), float(side), dtype=torch.float32, device="cpu")
    sizes[-1] -= blocks * side - features
    return sizes


def _rows(layout: "sparsekiln.Layout") -> Tensor:
    return torch.from_numpy(row_of(layout))


def _cols(layout: "sparsekiln.Layout") -> Tensor:
    return torch.from_numpy(np.array(layout.col, dtype=np.int64))


def _fans(layer: "BlockSparseLinear") -> tuple[Tensor, Tensor]:
    """Fan-in and fan-out of each present block."""
    return fan_in(layer)[_rows(layer.layout)], fan_out(layer)[_cols(layer.layout)]


def _kaiming(layer: "BlockSparseLinear", a: float, mode: str, nonlinearity: str) -> Tensor:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"there is no mode {mode!r}; there are 'fan_in' and 'fan_out'")
    fan = _fans(layer)[mode == "fan_out"]
    return torch.nn.init.calculate_gain(nonlinearity, a) * fan.rsqrt()


def _xavier(layer: "BlockSparseLinear", gain: float) -> Tensor:
    ins, outs = _fans(layer)
    return gain * (2 / (ins + outs)).sqrt()


@torch.no_grad()
def _uniform(layer: "BlockSparseLinear", deviation: Tensor, generator: torch.Generator | None) -> "BlockSparseLinear":
    return _scale(layer, lambda values: values.uniform_(-1, 1, generator=generator), deviation * math.sqrt(3))


@torch.no_grad()
def _normal(layer: "BlockSparseLinear", deviation: Tensor, generator: torch.Generator | None) -> "BlockSparseLinear":
    return _scale(layer, lambda values: values.normal_(generator=generator), deviation)


@torch.no_grad()
def _scale(layer: "BlockSparseLinear", draw: Callable[[Tensor], Tensor], factor: Tensor) -> "BlockSparseLinear":
    """Draws the values, multiplies each block by its factor, and clears what has no effect."""
    values, blocks = layer.weight_values, layer.layout.blocks
    draw(values[:blocks]).mul_(factor.to(values)[:, None, None])
    values[blocks:] = 0
    clear_beyond(layer)
    return layer


@torch.no_grad()
def reset(layer: "BlockSparseLinear") -> None:
    """Like nn.Linear: values and bias uniform in ±1/√fan_in, and zeros in a block row without blocks."""
    fan = fan_in(layer)
    bound = torch.where(fan > 0, fan.clamp(min=1).rsqrt(), 0.0)
    _scale(layer, lambda values: values.uniform_(-1, 1), bound[_rows(layer.layout)])
    if layer.bias is not None:
        of_feature = bound.repeat_interleave(layer.block[0])[: layer.out_features]
        layer.bias.uniform_(-1, 1).mul_(of_feature.to(layer.bias))


def clear_beyond(layer: "BlockSparseLinear") -> None:
    """Sets the values beyond the last features to zero."""
    layout, (block_out, block_in), values = layer.layout, layer.block, layer.weight_values
    beyond_out, beyond_in = layout.rows * block_out - layer.out_features, layout.cols * block_in - layer.in_features
    if beyond_out:
        values[int(layout.crow[-2]) : layout.blocks, block_out - beyond_out :, :] = 0
    if beyond_in:
        last = torch.from_numpy(layout.col == layout.cols - 1).to(values.device)
        values[: layout.blocks, :, block_in - beyond_in :] *= ~last[:, None, None]
