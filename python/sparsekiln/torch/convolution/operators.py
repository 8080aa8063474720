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

from typing import List, Optional  # noqa: UP035, the schema of an operator is made of them

import torch

from ..custom_operator import custom_operator
from ..dispatch import refuse_derivatives, refuse_forward_mode, unobserved
from ..launch_overlap import Asked, asked_of
from . import products
from .geometry import Geometry

Tensor = torch.Tensor
_ops = torch.ops.sparsekiln


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


def _save(ctx, inputs, output) -> None:
    x, values, _, crow, col, _, ctx.geometry, ctx.taps, _ = inputs
    ctx.input, ctx.in_channels = list(x.shape[1:-1]), x.shape[-1]
    ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, values, crow, col)


def _sum_of_rows(dy: Tensor) -> Tensor:
    return dy.sum(tuple(range(dy.dim() - 1)))


def _backward(ctx, dy) -> tuple:
    x, values, crow, col = ctx.saved_tensors
    needs = ctx.needs_input_grad
    dx = dw = dbias = None
    if needs[0]:
        dx = _ops.convolution_grad_input(dy, values, crow, col, ctx.in_channels, ctx.input, ctx.geometry, ctx.taps)
    if needs[1]:
        dw, dbias = _ops.convolution_grad_weight(x, dy, crow, col, *values.shape[-2:], ctx.geometry, needs[2], ctx.taps)
    elif needs[2]:
        dbias = _sum_of_rows(dy)
    return dx, dw, dbias if needs[2] else None, *(None,) * 6


def _save_grad_input(ctx, inputs, output) -> None:
    dy, values, crow, col, *_, ctx.geometry, ctx.taps = inputs
    ctx.out_channels = dy.shape[-1]
    ctx.save_for_backward(dy if ctx.needs_input_grad[1] else None, values, crow, col)


def _backward_of_grad_input(ctx, ddx) -> tuple:
    dy, values, crow, col = ctx.saved_tensors
    ddy = dvalues = None
    if ctx.needs_input_grad[0]:
        ddy = _ops.convolution(ddx, values, None, crow, col, ctx.out_channels, ctx.geometry, ctx.taps)
    if ctx.needs_input_grad[1]:
        dvalues, _ = _ops.convolution_grad_weight(ddx, dy, crow, col, *values.shape[-2:], ctx.geometry, False, ctx.taps)
    return ddy, dvalues, *(None,) * 6


def _save_grad_weight(ctx, inputs, output) -> None:
    x, dy, crow, col, *_, ctx.geometry, ctx.bias, ctx.taps = inputs
    ctx.save_for_backward(x, dy, crow, col)


def _backward_of_grad_weight(ctx, ddw, ddbias) -> tuple:
    x, dy, crow, col = ctx.saved_tensors
    dx = ddy = None
    if ctx.needs_input_grad[0]:
        dx = _ops.convolution_grad_input(dy, ddw, crow, col, x.shape[-1], list(x.shape[1:-1]), ctx.geometry, ctx.taps)
    if ctx.needs_input_grad[1]:
        ddy = _ops.convolution(x, ddw, ddbias if ctx.bias else None, crow, col, dy.shape[-1], ctx.geometry, ctx.taps)
    return dx, ddy, *(None,) * 7


def _save_transposed(ctx, inputs, output) -> None:
    x, values, _, crow, col, *_, ctx.geometry, ctx.taps, _ = inputs
    ctx.in_channels = x.shape[-1]
    ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, values, crow, col)


def _backward_of_transposed(ctx, dy) -> tuple:
    x, values, crow, col = ctx.saved_tensors
    dx = dw = dbias = None
    if ctx.needs_input_grad[0]:
        dx = _ops.convolution(dy, values, None, crow, col, ctx.in_channels, ctx.geometry, ctx.taps)
    if ctx.needs_input_grad[1]:
        dw, _ = _ops.convolution_grad_weight(dy, x, crow, col, *values.shape[-2:], ctx.geometry, False, ctx.taps)
    if ctx.needs_input_grad[2]:
        dbias = _sum_of_rows(dy)
    return dx, dw, dbias, *(None,) * 7


@custom_operator("sparsekiln::convolution", products.check_convolution, _y, save=_save, backward=_backward)
def convolution(
    x: Tensor, values: Tensor, bias: Optional[Tensor], crow: Tensor, col: Tensor, out_channels: int, geometry: List[int],
    taps: str, overlap: Optional[bool] = False,
) -> Tensor:  # fmt: skip
    return products.convolution(x, values, bias, crow, col, out_channels, geometry, taps, overlap)


@custom_operator(
    "sparsekiln::convolution_grad_input", products.check_grad_input, _dx,
    save=_save_grad_input, backward=_backward_of_grad_input,
)  # fmt: skip
def convolution_grad_input(
    dy: Tensor, values: Tensor, crow: Tensor, col: Tensor, in_channels: int, input: List[int], geometry: List[int],
    taps: str,
) -> Tensor:
    return products.grad_input(dy, values, crow, col, in_channels, input, geometry, taps)


@custom_operator(
    "sparsekiln::convolution_grad_weight", products.check_grad_weight, _dw_and_dbias,
    save=_save_grad_weight, backward=_backward_of_grad_weight,
)  # fmt: skip
def convolution_grad_weight(
    x: Tensor, dy: Tensor, crow: Tensor, col: Tensor, block_out: int, block_in: int, geometry: List[int], bias: bool,
    taps: str,
) -> tuple[Tensor, Tensor]:
    return products.grad_weight(x, dy, crow, col, block_out, block_in, geometry, bias, taps)


@custom_operator(
    "sparsekiln::convolution_transposed", products.check_transposed, _y_of_transposed,
    save=_save_transposed, backward=_backward_of_transposed,
)  # fmt: skip
def convolution_transposed(
    x: Tensor, values: Tensor, bias: Optional[Tensor], crow: Tensor, col: Tensor, out_channels: int, output: List[int],
    geometry: List[int], taps: str, overlap: Optional[bool] = False,
) -> Tensor:  # fmt: skip
    return products.transposed(x, values, bias, crow, col, out_channels, output, geometry, taps, overlap)


def call(x, values, bias, *others, overlap: Asked = False) -> Tensor:
    """y of the operator convolution, with its arguments and its gradients; without the dispatcher where nothing needs it. `overlap` is
    for calls that autograd does not record."""
    operands = x, values, bias
    return (products.convolution if is_direct(*operands) else _ops.convolution)(*operands, *others, *unless_recorded(overlap, *operands))


def call_transposed(x, values, bias, *others, overlap: Asked = False) -> Tensor:
    """y of the operator convolution_transposed, in the same way."""
    operands = x, values, bias
    operator = products.transposed if is_direct(*operands) else _ops.convolution_transposed
    return operator(*operands, *others, *unless_recorded(overlap, *operands))


def is_direct(x, values, *others) -> bool:
    """Whether a product of these needs no dispatcher. Refuses the derivatives that there are not."""
    if torch.compiler.is_compiling():
        return False
    refuse_forward_mode()
    refuse_derivatives("convolutions")
    return not _is_recorded(x, values, *others) and unobserved(x, values)


def _is_recorded(*operands: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in operands)


def unless_recorded(overlap: Asked, *operands: Tensor | None) -> tuple[Asked, ...]:
    """The last argument of an operator, if it is not left out."""
    return () if _is_recorded(*operands) else (asked_of(overlap, *operands),)
