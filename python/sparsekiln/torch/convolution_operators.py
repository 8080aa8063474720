"""The custom operators torch.ops.sparsekiln.convolution*: what a convolution computes, on channels-last images.

    convolution              y[n, …, out] of x[n, …, in], in 1, 2 or 3 dimensions
    convolution_grad_input   dx[n, …, in] of dy[n, …, out]
    convolution_grad_weight  dW[blocks, taps, block_out, block_in], and the gradient of the bias

W is given as `values` [blocks, taps, block_out, block_in] with the index tensors `crow` and `col` of a BSR tensor of its
channels, [out, in], and `geometry` as five numbers for each dimension: see Geometry. All results are differentiable, and
their gradients are differentiable once more.
"""

from typing import List, Optional  # noqa: UP035, the schema of an operator is made of them

import torch

from . import convolution_products as products
from . import transforms
from .operators import refuse_derivatives_of_convolutions, refuse_forward_mode, unobserved

Tensor = torch.Tensor
_ops = torch.ops.sparsekiln


@torch.library.custom_op("sparsekiln::convolution", mutates_args=())
def convolution(
    x: Tensor, values: Tensor, bias: Optional[Tensor], crow: Tensor, col: Tensor, out_channels: int, geometry: List[int]
) -> Tensor:
    return products.convolution(x, values, bias, crow, col, out_channels, geometry)


@convolution.register_fake
def _(x, values, bias, crow, col, out_channels, geometry):
    form = products.check_convolution(x, values, bias, crow, col, out_channels, geometry)
    return x.new_empty((x.shape[0], *form.output(x.shape[1:-1]), out_channels))


@torch.library.custom_op("sparsekiln::convolution_grad_input", mutates_args=())
def convolution_grad_input(
    dy: Tensor, values: Tensor, crow: Tensor, col: Tensor, in_channels: int, input: List[int], geometry: List[int]
) -> Tensor:
    return products.grad_input(dy, values, crow, col, in_channels, input, geometry)


@convolution_grad_input.register_fake
def _(dy, values, crow, col, in_channels, input, geometry):
    products.check_grad_input(dy, values, crow, col, in_channels, input, geometry)
    return dy.new_empty((dy.shape[0], *input, in_channels))


@torch.library.custom_op("sparsekiln::convolution_grad_weight", mutates_args=())
def convolution_grad_weight(
    x: Tensor, dy: Tensor, crow: Tensor, col: Tensor, block_out: int, block_in: int, geometry: List[int], bias: bool
) -> tuple[Tensor, Tensor]:
    return products.grad_weight(x, dy, crow, col, block_out, block_in, geometry, bias)


@convolution_grad_weight.register_fake
def _(x, dy, crow, col, block_out, block_in, geometry, bias):
    form = products.check_grad_weight(x, dy, crow, col, block_out, block_in, geometry, bias)
    return x.new_empty((col.shape[0], form.taps, block_out, block_in)), x.new_empty(dy.shape[-1] if bias else 0)


def _save(ctx, inputs, output) -> None:
    x, values, _, crow, col, _, ctx.geometry = inputs
    ctx.input, ctx.in_channels = list(x.shape[1:-1]), x.shape[-1]
    ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, values, crow, col)


def _backward(ctx, dy) -> tuple:
    x, values, crow, col = ctx.saved_tensors
    needs = ctx.needs_input_grad
    dx = dw = dbias = None
    if needs[0]:
        dx = _ops.convolution_grad_input(dy, values, crow, col, ctx.in_channels, ctx.input, ctx.geometry)
    if needs[1]:
        dw, dbias = _ops.convolution_grad_weight(x, dy, crow, col, *values.shape[2:], ctx.geometry, needs[2])
    elif needs[2]:
        dbias = dy.flatten(0, -2).sum(0)
    return dx, dw, dbias if needs[2] else None, *(None,) * 4


def _save_grad_input(ctx, inputs, output) -> None:
    dy, values, crow, col, *_, ctx.geometry = inputs
    ctx.out_channels = dy.shape[-1]
    ctx.save_for_backward(dy if ctx.needs_input_grad[1] else None, values, crow, col)


def _backward_of_grad_input(ctx, ddx) -> tuple:
    dy, values, crow, col = ctx.saved_tensors
    ddy = dvalues = None
    if ctx.needs_input_grad[0]:
        ddy = _ops.convolution(ddx, values, None, crow, col, ctx.out_channels, ctx.geometry)
    if ctx.needs_input_grad[1]:
        dvalues, _ = _ops.convolution_grad_weight(ddx, dy, crow, col, *values.shape[2:], ctx.geometry, False)
    return ddy, dvalues, *(None,) * 5


def _save_grad_weight(ctx, inputs, output) -> None:
    x, dy, crow, col, *_, ctx.geometry, ctx.bias = inputs
    ctx.save_for_backward(x, dy, crow, col)


def _backward_of_grad_weight(ctx, ddw, ddbias) -> tuple:
    x, dy, crow, col = ctx.saved_tensors
    dx = ddy = None
    if ctx.needs_input_grad[0]:
        dx = _ops.convolution_grad_input(dy, ddw, crow, col, x.shape[-1], list(x.shape[1:-1]), ctx.geometry)
    if ctx.needs_input_grad[1]:
        ddy = _ops.convolution(x, ddw, ddbias if ctx.bias else None, crow, col, dy.shape[-1], ctx.geometry)
    return dx, ddy, *(None,) * 6


convolution.register_autograd(_backward, setup_context=_save)
convolution_grad_input.register_autograd(_backward_of_grad_input, setup_context=_save_grad_input)
convolution_grad_weight.register_autograd(_backward_of_grad_weight, setup_context=_save_grad_weight)
for _operator in (convolution, convolution_grad_input, convolution_grad_weight):
    _operator.register_vmap(transforms.each(_operator))


def call(x, values, bias, crow, col, out_channels, geometry) -> Tensor:
    """y of the operator convolution, with its arguments and its gradients; without the dispatcher where nothing needs it."""
    direct = is_direct(x, values, bias)
    return (products.convolution if direct else _ops.convolution)(x, values, bias, crow, col, out_channels, geometry)


def call_transposed(x, values, crow, col, out_channels, output, geometry) -> Tensor:
    """y[n, *output, out_channels] of the transposed convolution of x: the operator convolution_grad_input of the convolution that
    has y's channels and extents as its input, and the same weight. `geometry` is that convolution's."""
    direct = is_direct(x, values)
    return (products.grad_input if direct else _ops.convolution_grad_input)(x, values, crow, col, out_channels, output, geometry)


def is_direct(x, values, *others) -> bool:
    """Whether a product of these needs no dispatcher. Refuses the derivatives that there are not."""
    if torch.compiler.is_compiling():
        return False
    refuse_forward_mode()
    refuse_derivatives_of_convolutions()
    needs_gradient = torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, values, *others))
    return not needs_gradient and unobserved(x, values)
