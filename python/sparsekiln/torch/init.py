"""Initialisers for block-sparse layers: those of torch.nn.init, with the fans of what is present.

torch.nn.init takes `weight_values` [blocks, block_out, block_in] for a convolution, whose fan-in it computes from the number
of blocks. Here each block starts with the fan-in of its block row (the input features that its outputs have) and the fan-out
of its block column (the outputs that its input features have), each times the taps of a convolution's kernel. All write to the
layer and return it; the bias stays.

torch.nn.init calls the rows of every weight outputs, and those of a transposed convolution are inputs: what it calls fan-in
there is the outputs that an input has. That is kept, so that a layer of all blocks starts as the dense one does.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

import sparsekiln

from .blocks import row_of
from .resizing import write_

if TYPE_CHECKING:
    from .block_sparse_layer import BlockSparseLayer

Tensor = torch.Tensor
_Layer = TypeVar("_Layer", bound="BlockSparseLayer")


def fan_in(layer: "BlockSparseLayer") -> Tensor:
    """float32 [block rows]: columns of the present blocks of each block row, times the taps."""
    _check(layer)
    layout, width = layer.layout, _sizes(layer.layout.cols, layer.block[1], layer.weight_shape[1])
    fans = torch.zeros(layout.rows, dtype=torch.float32, device="cpu")
    return fans.index_add_(0, _rows(layout), _taps(layer) * width[_cols(layout)])


def fan_out(layer: "BlockSparseLayer") -> Tensor:
    """float32 [block columns]: rows of the present blocks of each block column, times the taps."""
    _check(layer)
    layout, height = layer.layout, _sizes(layer.layout.rows, layer.block[0], layer.weight_shape[0])
    fans = torch.zeros(layout.cols, dtype=torch.float32, device="cpu")
    return fans.index_add_(0, _cols(layout), _taps(layer) * height[_rows(layout)])


def kaiming_uniform_(
    layer: _Layer, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: torch.Generator | None = None,
) -> _Layer:  # fmt: skip
    """Like torch.nn.init.kaiming_uniform_ (He et al. 2015): a standard deviation of gain / √fan."""
    return _uniform(layer, _kaiming(layer, a, mode, nonlinearity), generator)


def kaiming_normal_(
    layer: _Layer, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: torch.Generator | None = None,
) -> _Layer:  # fmt: skip
    """Like torch.nn.init.kaiming_normal_."""
    return _normal(layer, _kaiming(layer, a, mode, nonlinearity), generator)


def xavier_uniform_(layer: _Layer, gain: float = 1, generator: torch.Generator | None = None) -> _Layer:
    """Like torch.nn.init.xavier_uniform_ (Glorot, Bengio 2010): a standard deviation of gain · √(2 / (fan_in + fan_out))."""
    return _uniform(layer, _xavier(layer, gain), generator)


def xavier_normal_(layer: _Layer, gain: float = 1, generator: torch.Generator | None = None) -> _Layer:
    """Like torch.nn.init.xavier_normal_."""
    return _normal(layer, _xavier(layer, gain), generator)


def _taps(layer: "BlockSparseLayer") -> Tensor | int:
    """How many taps each present block has: one number for all, or [blocks]."""
    present = layer.present_taps()
    return layer.taps if present is None else present.sum(1)


def _sizes(blocks: int, side: int, features: int) -> Tensor:
    """[blocks]: the features in each block row or column; the last one may be partial."""
    sizes = torch.full((blocks,), float(side), dtype=torch.float32, device="cpu")
    sizes[-1] -= blocks * side - features
    return sizes


def _rows(layout: "sparsekiln.Layout") -> Tensor:
    return torch.from_numpy(row_of(layout))


def _cols(layout: "sparsekiln.Layout") -> Tensor:
    return torch.from_numpy(np.array(layout.col, dtype=np.int64))


def _check(layer: object) -> None:
    if not (isinstance(layer, torch.nn.Module) and hasattr(layer, "weight_values")):
        raise TypeError(f"a {type(layer).__name__}; block-sparse layers are taken here, and torch.nn.init would work for dense ones")


def _fans(layer: "BlockSparseLayer") -> tuple[Tensor, Tensor]:
    """Fan-in and fan-out of each present block."""
    _check(layer)
    return fan_in(layer)[_rows(layer.layout)], fan_out(layer)[_cols(layer.layout)]


def _kaiming(layer: "BlockSparseLayer", a: float, mode: str, nonlinearity: str) -> Tensor:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"there is no mode {mode!r}; there are 'fan_in' and 'fan_out'")
    fan = _fans(layer)[mode == "fan_out"]
    return torch.nn.init.calculate_gain(nonlinearity, a) * fan.rsqrt()


def _xavier(layer: "BlockSparseLayer", gain: float) -> Tensor:
    ins, outs = _fans(layer)
    return gain * (2 / (ins + outs)).sqrt()


@torch.no_grad()
def _uniform(layer: _Layer, deviation: Tensor, generator: torch.Generator | None) -> _Layer:
    return _scale(layer, lambda values: values.uniform_(-1, 1, generator=generator), deviation * math.sqrt(3))


@torch.no_grad()
def _normal(layer: _Layer, deviation: Tensor, generator: torch.Generator | None) -> _Layer:
    return _scale(layer, lambda values: values.normal_(generator=generator), deviation)


@torch.no_grad()
def _scale(layer: _Layer, draw: Callable[[Tensor], Tensor], factor: Tensor) -> _Layer:
    """Draws the values, multiplies each block by its factor, and clears what has no effect."""
    values = layer.weight_values
    drawn = draw(torch.empty((layer.layout.blocks, *layer.block_shape), device=values.device, dtype=values.dtype))
    layer._write_values(_counted(layer, drawn.mul_(_of_block(factor, drawn))))
    return layer


def _of_block(numbers: Tensor, values: Tensor) -> Tensor:
    """[blocks] in the shape in which they multiply values [blocks, …]."""
    return numbers.to(values).reshape(-1, *(1 for _ in values.shape[1:]))


@torch.no_grad()
def reset(layer: "BlockSparseLayer") -> None:
    """Like nn.Linear and nn.ConvNd: values and bias uniform in ±1/√fan_in, and zeros where an output has no blocks."""
    fan, layout = fan_in(layer), layer.layout
    bound = _inverse_root(fan)
    _scale(layer, lambda values: values.uniform_(-1, 1), bound[_rows(layout)])
    if layer.bias is None:
        return
    if layer.OUTPUTS == 1:  # of a block column the mean of the rows that it has
        zeros, columns = torch.zeros(layout.cols, dtype=torch.float32, device="cpu"), _cols(layout)
        number = zeros.index_add(0, columns, torch.ones(layout.blocks, dtype=torch.float32, device="cpu"))
        bound = _inverse_root(zeros.index_add(0, columns, fan[_rows(layout)]) / number.clamp(min=1))
    of_feature = bound.repeat_interleave(layer.block[layer.OUTPUTS])[: layer.bias.shape[0]]
    drawn = torch.empty(layer.bias.shape, device=layer.bias.device, dtype=layer.bias.dtype).uniform_(-1, 1)
    write_(layer.bias, drawn.mul_(of_feature.to(drawn)))


def _inverse_root(fan: Tensor) -> Tensor:
    return torch.where(fan > 0, fan.clamp(min=1).rsqrt(), 0.0)


def _counted(layer: "BlockSparseLayer", blocks: Tensor) -> Tensor:
    """Blocks of the layout, with zeros where values have no effect."""
    counted = layer.counted()
    return blocks if counted is None else torch.where(counted.to(blocks.device), blocks, 0)


@torch.no_grad()
def clear_uncounted(layer: "BlockSparseLayer") -> None:
    """Sets the values that have no effect to zero."""
    layer._write_values(_counted(layer, layer._used_values()))
