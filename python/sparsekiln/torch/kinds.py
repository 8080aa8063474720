"""The kinds of dense layers that there are block-sparse layers of, and what changes of a whole model ask about them."""

import math
from typing import Any

import torch

import sparsekiln
from sparsekiln._dtypes import CPU_ONLY

from .block_sparse_layer import BlockSparseLayer
from .blocks import grid, strongest
from .choice import reason_that_it_is_small
from .convolution.blocks import check_channels, strongest_layout
from .convolution.convolutions import BlockSparseConv1d, BlockSparseConv2d, BlockSparseConv3d
from .convolution.geometry import by, parse_geometry
from .convolution.layer import ConvolutionLayer
from .convolution.transposed import BlockSparseConvTranspose1d, BlockSparseConvTranspose2d, BlockSparseConvTranspose3d
from .kernels import DTYPES
from .linear.layer import BlockSparseLinear
from .recurrent.inner_modules import InnerDense

Tensor = torch.Tensor

_CONVOLUTIONS: tuple[type[ConvolutionLayer], ...] = (
    BlockSparseConv1d, BlockSparseConv2d, BlockSparseConv3d,
    BlockSparseConvTranspose1d, BlockSparseConvTranspose2d, BlockSparseConvTranspose3d,
)  # fmt: skip
#: The extents of a kernel on CUDA devices, added up: depth, height and width, 1 where there is no such dimension.
_MOST_EXTENTS = 64
_KINDS: dict[type[torch.nn.Module], type[BlockSparseLayer]] = {torch.nn.Linear: BlockSparseLinear, InnerDense: BlockSparseLinear}
_KINDS.update((kind.dense_class, kind) for kind in _CONVOLUTIONS)


def kind_of(layer: torch.nn.Module) -> type[BlockSparseLayer] | None:
    """The block-sparse class for a dense layer, or for one of a subclass; None for other modules."""
    return next((sparse for dense, sparse in _KINDS.items() if isinstance(layer, dense)), None)


def is_of_a_kind(layer: torch.nn.Module) -> bool:
    """Whether it is dense and there is a block-sparse class for it, or it is block-sparse."""
    return isinstance(layer, BlockSparseLayer) or kind_of(layer) is not None


def outputs_and_inputs(layer: Any) -> tuple[int, int]:
    """Features or channels of a layer, dense or not; 0 inputs if they are not known yet."""
    names = ("out_channels", "in_channels") if hasattr(layer, "out_channels") else ("out_features", "in_features")
    return int(getattr(layer, names[0])), int(getattr(layer, names[1]))


def _weight_shape(layer: Any, kind: type[BlockSparseLayer]) -> tuple[int, int]:
    """Features of the rows and of the columns of the weight, of all groups."""
    outputs, inputs = outputs_and_inputs(layer)
    return (inputs, outputs) if kind.OUTPUTS == 1 else (outputs, inputs)


def every_block(layer: Any, block: tuple[int, int]) -> "sparsekiln.Layout":
    """The layout of all blocks of a dense layer; of several groups the block-sparse layer leaves out what is between them."""
    kind = kind_of(layer)
    assert kind is not None
    return sparsekiln.Layout(torch.ones(grid(_weight_shape(layer, kind), block), dtype=torch.bool, device="cpu"))


def strongest_blocks(layer: Any, density: float, block: tuple[int, int], scores: Tensor | None) -> "sparsekiln.Layout":
    """The blocks of a dense layer of largest norm or score: see strongest and strongest_layout."""
    weight = layer.weight.detach()
    if isinstance(layer, torch.nn.Linear):
        return strongest(weight, density, block, scores)
    return strongest_layout(weight, layer.groups, density, block, scores)


def of_dense(layer: Any, block: tuple[int, int], layout: "sparsekiln.Layout", max_blocks: int | None = None) -> BlockSparseLayer:
    """The block-sparse layer of these blocks of a dense one."""
    kind = kind_of(layer)
    if kind is not None and issubclass(kind, ConvolutionLayer):
        return kind.from_conv(layer, block=block, layout=layout, max_blocks=max_blocks)
    return BlockSparseLinear.from_linear(layer, block=block, layout=layout, max_blocks=max_blocks)


def how_to_make(kind: type[BlockSparseLayer]) -> str:
    return f"{kind.__name__}.{'from_linear' if kind is BlockSparseLinear else 'from_conv'}"


def reason_that_it_does_not_fit(layer: Any, block: tuple[int, int]) -> str:
    """Why there is no block-sparse form of a dense layer with a weight; empty if there is one."""
    kind = _KINDS.get(type(layer))
    if kind is None:
        return f"is a {type(layer).__name__}"
    dtype = layer.weight.dtype
    if dtype not in DTYPES:
        return f"is {dtype}"
    if layer.weight.is_cuda and str(dtype).removeprefix("torch.") in CPU_ONLY:
        return f"is {dtype}, which runs on the cpu target alone"
    return _reason_of_a_convolution(layer, kind, block) if issubclass(kind, ConvolutionLayer) else ""


def _reason_of_a_convolution(layer: Any, kind: type[ConvolutionLayer], block: tuple[int, int]) -> str:
    if layer.padding_mode != "zeros":
        return f"has a padding_mode of {layer.padding_mode!r}"
    form = parse_geometry(kind.dimensions, layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    if not form.is_pointwise or any(getattr(layer, "output_padding", ())):
        if layer.weight.is_cuda and sum(form.kernel) > _MOST_EXTENTS - (3 - kind.dimensions):
            return f"has a kernel of {by(form.kernel)}, which is too large for CUDA devices"
    try:
        check_channels(_weight_shape(layer, kind), layer.groups, block, kind.SIDES)
    except ValueError as error:
        return f"does not fit: {error}"
    return ""


def small(layer: Any, block: tuple[int, int], density: float) -> str:
    """See reason_that_it_is_small; sides are those of one group, and blocks those of all."""
    kind, groups = kind_of(layer), getattr(layer, "groups", 1)
    assert kind is not None
    rows, columns = _weight_shape(layer, kind)
    sides = ("inputs", "outputs") if kind.OUTPUTS == 1 else ("outputs", "inputs")
    blocks = math.prod(grid((rows, columns // groups), block))
    return reason_that_it_is_small((rows // groups, columns // groups), block, density, blocks, sides)
