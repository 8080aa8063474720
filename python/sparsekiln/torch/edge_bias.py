"""The edge bias of a convolution: y = sum · gain[s] + bias[s], with s the edge situation of the output position.

    convolution_edge_bias  y[n, …, out] of x[n, …, in], by one kernel
    edge_bias_gradients    dy · gain[s], which is the gradient of the sum, and the gradients of gain and bias

Gain and bias are [situations, out] in any type, and are taken in float32: see sparsekiln.edge_situations. The gradients of
convolution_edge_bias are those of the operator convolution, by dy · gain[s]. That of the gain needs the sums, which the kernel
does not store: the backward pass computes them again, and only where the gain has a gradient.
"""

import functools
from collections.abc import Sequence
from typing import List, Optional  # noqa: UP035, the schema of an operator is made of them

import numpy as np
import torch

import sparsekiln

from . import convolution_products as products
from . import transforms
from .convolution_geometry import Geometry, by
from .convolution_operators import is_direct
from .operands import dense

Tensor = torch.Tensor
_ops = torch.ops.sparsekiln


@functools.lru_cache(maxsize=64)
def situations_of(form: Geometry, input: tuple[int, ...], taps: str) -> "sparsekiln.EdgeSituations":
    """Those of images of these extents."""
    return sparsekiln.edge_situations(form.text(input, taps))


def check_edges(gain: Tensor, bias: Tensor, out_channels: int, form: Geometry, input: Sequence[int], taps: str) -> None:
    count = situations_of(form, tuple(input), taps).count
    for name, tensor in (("edge_gain", gain), ("edge_bias", bias)):
        if tuple(tensor.shape) != (count, out_channels):
            raise ValueError(
                f"{name} has the shape {tuple(tensor.shape)}; images of {by(input)} have {count} edge situations, and this "
                f"convolution takes [{count}, {out_channels}]"
            )


def convolve(x, values, gain, bias, crow, col, out_channels, geometry, taps) -> Tensor:
    check_edges(gain, bias, out_channels, Geometry.from_list(geometry), x.shape[1:-1], taps)
    edges = {name: dense(one.to(torch.float32)) for name, one in (("edge_gain", gain), ("edge_bias", bias))}
    return products.convolution(x, values, None, crow, col, out_channels, geometry, taps, edges)


@torch.library.custom_op("sparsekiln::convolution_edge_bias", mutates_args=())
def convolution_edge_bias(
    x: Tensor, values: Tensor, gain: Tensor, bias: Tensor, crow: Tensor, col: Tensor, out_channels: int, geometry: List[int],
    taps: str,
) -> Tensor:  # fmt: skip
    return convolve(x, values, gain, bias, crow, col, out_channels, geometry, taps)


@convolution_edge_bias.register_fake
def _(x, values, gain, bias, crow, col, out_channels, geometry, taps):
    form = products.check_convolution(x, values, None, crow, col, out_channels, geometry, taps)
    return x.new_empty((x.shape[0], *form.output(x.shape[1:-1]), out_channels))


@torch.library.custom_op("sparsekiln::edge_bias_gradients", mutates_args=())
def edge_bias_gradients(
    dy: Tensor, sums: Optional[Tensor], gain: Tensor, input: List[int], geometry: List[int], taps: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The second result is empty without sums. The same on every run."""
    of_position = situations_of(Geometry.from_list(geometry), tuple(input), taps).of_position.reshape(-1)
    positions = dy.flatten(1, -2)
    scaled = (positions * gain.to(torch.float32)[torch.from_numpy(of_position).to(dy.device)]).to(dy.dtype)
    dbias = _by_situation(positions.sum(0, dtype=torch.float32), of_position, gain)
    dgain = gain.new_empty(0)
    if sums is not None:
        dgain = _by_situation((positions.float() * sums.flatten(1, -2).float()).sum(0), of_position, gain)
    return scaled.reshape(dy.shape), dgain, dbias


@edge_bias_gradients.register_fake
def _(dy, sums, gain, input, geometry, taps):
    return torch.empty_like(dy, memory_format=torch.contiguous_format), gain.new_empty(0 if sums is None else gain.shape), gain.new_empty(gain.shape)


def _by_situation(numbers: Tensor, of_position: np.ndarray, like: Tensor) -> Tensor:
    """Sums of numbers [positions, out], one for each situation: in one order, and without those of the others."""
    order = torch.from_numpy(np.argsort(of_position, kind="stable")).to(numbers.device)
    counts = np.bincount(of_position).tolist()
    return torch.stack([part.sum(0) for part in numbers[order].split(counts)]).to(like.dtype)


def _save(ctx, inputs, output) -> None:
    x, values, gain, _, crow, col, ctx.out_channels, ctx.geometry, ctx.taps = inputs
    ctx.input, ctx.in_channels = list(x.shape[1:-1]), x.shape[-1]
    ctx.save_for_backward(x if any(ctx.needs_input_grad[1:3]) else None, values, gain, crow, col)


def _backward(ctx, dy) -> tuple:
    x, values, gain, crow, col = ctx.saved_tensors
    needs = ctx.needs_input_grad
    sums = dx = dw = None
    if needs[2]:
        sums = _ops.convolution(x, values, None, crow, col, ctx.out_channels, ctx.geometry, ctx.taps)
    scaled, dgain, dbias = _ops.edge_bias_gradients(dy, sums, gain, ctx.input, ctx.geometry, ctx.taps)
    if needs[0]:
        dx = _ops.convolution_grad_input(scaled, values, crow, col, ctx.in_channels, ctx.input, ctx.geometry, ctx.taps)
    if needs[1]:
        dw, _ = _ops.convolution_grad_weight(x, scaled, crow, col, *values.shape[-2:], ctx.geometry, False, ctx.taps)
    return dx, dw, dgain if needs[2] else None, dbias if needs[3] else None, *(None,) * 5


convolution_edge_bias.register_autograd(_backward, setup_context=_save)
for _operator in (convolution_edge_bias, edge_bias_gradients):
    _operator.register_vmap(transforms.each(_operator))


def call(x, values, gain, bias, *others) -> Tensor:
    """y of the operator convolution_edge_bias, with its arguments and its gradients."""
    direct = is_direct(x, values, gain, bias)
    return (convolve if direct else _ops.convolution_edge_bias)(x, values, gain, bias, *others)
