"""The custom operators torch.ops.sparsekiln.convolution*: what a convolution computes, on images [n, …, channels].

    convolution              y[n, …, out] of x[n, …, in], in 1, 2 or 3 dimensions
    convolution_grad_input   dx[n, …, in] of dy[n, …, out]
    convolution_grad_weight  dW[blocks, taps, block_out, block_in], and the gradient of the bias
    convolution_transposed   y[n, *output, out] of x[n, …, in] by W of [in, out]; `geometry` is that of the convolution from y to x

W is given as `values` [blocks, taps, block_out, block_in] with the index tensors `crow` and `col` of a BSR tensor of its
channels, [out, in], and `geometry` as five numbers for each dimension: see Geometry. `taps` is a mask of taps, "" for none:
see TapMask.text. With a mask for all blocks, W has the taps that it names alone; with one for each block, W is [pairs of a
block and a tap that it has, block_out, block_in]. `overlap` is as in ../linear/operators.py. All results are differentiable, and their
gradients are differentiable once more.
"""

import functools
from typing import Any, NamedTuple

import torch

from .. import trilinear
from ..dispatch import refuse_forward_mode, unobserved
from ..kernels import known_blocks
from ..launch_overlap import Asked, asked_of
from . import products
from .geometry import Geometry
from .tap_masks import differs_by_block

Tensor = torch.Tensor


def _y(x, values, bias, crow, col, out_channels, geometry, taps, overlap=False) -> Tensor:
    output = Geometry.from_list(geometry).output(x.shape[1:-1])
    return products.empty_images(x, (x.shape[0], *output, out_channels), products.is_first(x, x.device))


def _dx(dy, values, crow, col, in_channels, input, geometry, taps) -> Tensor:
    return products.empty_images(dy, (dy.shape[0], *input, in_channels), products.is_first(dy, dy.device))


def _dw_and_dbias(x, dy, crow, col, block_out, block_in, geometry, bias, taps) -> tuple[Tensor, Tensor]:
    shape = products.values_shape(col.shape[0], Geometry.from_list(geometry), taps)
    return x.new_empty((*shape, block_out, block_in)), x.new_empty(dy.shape[-1] if bias else 0)


def _y_of_transposed(x, values, bias, crow, col, out_channels, output, geometry, taps, overlap=False) -> Tensor:
    return products.empty_images(x, (x.shape[0], *output, out_channels), products.is_first(x, x.device))


class ConvolutionProducts(NamedTuple):
    """The products of a convolution, as trilinear.Products; of a transposed one, those of the convolution from its result to its input."""

    crow: Tensor
    col: Tensor
    block: tuple[int, int]
    channels: tuple[int, int]
    input: list[int]
    geometry: list[int]
    taps: str

    def y(self, x, w, bias=None):
        return convolution(x, w, bias, self.crow, self.col, self.channels[1], self.geometry, self.taps)

    def dx(self, dy, w):
        return convolution_grad_input(dy, w, self.crow, self.col, self.channels[0], self.input, self.geometry, self.taps)

    def dw(self, x, dy, bias=False):
        return convolution_grad_weight(x, dy, self.crow, self.col, *self.block, self.geometry, bias, self.taps)


def products_of(given: dict[str, Any]) -> ConvolutionProducts:
    """From the arguments of an operator that is not transposed."""
    x, dy = given.get("x"), given.get("dy")
    block = given["values"].shape[-2:] if "values" in given else (given["block_out"], given["block_in"])
    channels = (given["in_channels"] if x is None else x.shape[-1]), (given["out_channels"] if dy is None else dy.shape[-1])
    input = given["input"] if x is None else x.shape[1:-1]
    return ConvolutionProducts(given["crow"], given["col"], tuple(block), channels, list(input), given["geometry"], given["taps"])


def _products_of_transposed(given: dict[str, Any]) -> ConvolutionProducts:
    dy = given["x"]
    return products_of({**given, "x": None, "dy": dy, "in_channels": given["out_channels"], "input": given["output"]})


def blocks_of(given: dict[str, Any], values: Tensor) -> int:
    """How many blocks values have, each tap counted."""
    if differs_by_block(given["taps"]):
        return values.shape[0]
    return known_blocks(given["crow"], given["col"]) * values.shape[1]


_operator = functools.partial(trilinear.operator, blocks=blocks_of)
convolution = _operator("convolution", products.convolution, products.check_convolution, _y, {"x": "x", "w": "values"}, products_of)
convolution_grad_input = _operator(
    "convolution_grad_input", products.grad_input, products.check_grad_input, _dx, {"dy": "dy", "w": "values"}, products_of
)
convolution_grad_weight = _operator(
    "convolution_grad_weight", products.grad_weight, products.check_grad_weight, _dw_and_dbias, {"x": "x", "dy": "dy"}, products_of
)
convolution_transposed = _operator(
    "convolution_transposed", products.transposed, products.check_transposed, _y_of_transposed, {"dy": "x", "w": "values"},
    _products_of_transposed,
)  # fmt: skip


def call(x, values, bias, *others, overlap: Asked = False) -> Tensor:
    """y of the operator convolution, with its arguments and its gradients; without the dispatcher where nothing needs it. `overlap` is
    for calls that autograd does not record."""
    operands = x, values, bias
    return (products.convolution if is_direct(*operands) else convolution)(*operands, *others, *unless_recorded(overlap, *operands))


def call_transposed(x, values, bias, *others, overlap: Asked = False) -> Tensor:
    """y of the operator convolution_transposed, in the same way."""
    operands = x, values, bias
    operator = products.transposed if is_direct(*operands) else convolution_transposed
    return operator(*operands, *others, *unless_recorded(overlap, *operands))


def is_direct(x, values, *others) -> bool:
    """Whether a product of these needs no dispatcher. Refuses the derivatives that there are not."""
    if torch.compiler.is_compiling():
        return False
    refuse_forward_mode()
    return not _is_recorded(x, values, *others) and unobserved(x, values)


def _is_recorded(*operands: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in operands)


def unless_recorded(overlap: Asked, *operands: Tensor | None) -> tuple[Asked, ...]:
    """The last argument of an operator, if it is not left out."""
    return () if _is_recorded(*operands) else (asked_of(overlap, *operands),)
