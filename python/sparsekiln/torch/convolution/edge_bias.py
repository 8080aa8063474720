"""The edge bias of a convolution: y = sum · gain[s] + bias[s], with s the edge situation of the output position.

    convolution_edge_bias  y[n, …, out] of x[n, …, in], by one kernel
    edge_bias_gradients    dy · gain[s], which is the gradient of the sum, and the gradients of gain and bias

Gain and bias are [situations, out] in any type but float64, and are taken in float32: see sparsekiln.edge_situations. The
gradients of convolution_edge_bias are those of the operator convolution, by dy · gain[s]. The gradient of the gain needs the
sums, which the kernel does not store: the backward pass computes them again, and only where the gain has a gradient. All results are
differentiable, and their gradients are differentiable once more.
"""

import functools
import inspect
from collections.abc import Sequence
from typing import List, NamedTuple, Optional  # noqa: UP035, the schema of an operator is made of them

import numpy as np
import torch

import sparsekiln

from .. import kernels, trilinear
from ..custom_operator import Derivative, custom_operator
from ..launch_overlap import Asked
from ..operands import check_operand
from . import products
from .geometry import Geometry, by
from .operators import blocks_of, is_direct, products_of, unless_recorded

Tensor = torch.Tensor


@functools.lru_cache(maxsize=64)
def situations_of(form: Geometry, input: tuple[int, ...], taps: str) -> "sparsekiln.EdgeSituations":
    """The edge situations of images of these extents."""
    return sparsekiln.edge_situations(form.text(input, taps))


class Places(NamedTuple):
    """Where the positions of an image are, on one device. Tensors of int64."""

    situation: Tensor  #: [positions]
    order: Tensor  #: [positions], by their situations
    counts: Tensor  #: [situations]: how many positions each has

    def gather(self, edges: Tensor) -> Tensor:
        """float32 [positions, out] of [situations, out]."""
        return edges.to(torch.float32)[self.situation]

    def sum(self, numbers: Tensor) -> Tensor:
        """float32 [situations, out] of [positions, out]: the sums, in one order, and each without the numbers of the others."""
        return torch.segment_reduce(numbers.float()[self.order], "sum", lengths=self.counts, axis=0, unsafe=True)


@functools.lru_cache(maxsize=64)
def _places(form: Geometry, input: tuple[int, ...], taps: str, device: torch.device) -> Places:
    situation = situations_of(form, input, taps).of_position.reshape(-1).astype(np.int64)
    arrays = situation, np.argsort(situation, kind="stable"), np.bincount(situation)
    with torch.inference_mode(False):
        return Places(*(torch.from_numpy(one).to(device) for one in arrays))


def check_type(dtype: torch.dtype) -> None:
    if dtype == torch.float64:
        raise TypeError("an edge bias in float64; float32, float16 and bfloat16 have one")


def check_edges(gain: Tensor, bias: Tensor, out_channels: int, form: Geometry, input: Sequence[int], taps: str, like: Tensor) -> None:
    known = all(isinstance(size, int) for size in input)  # symbolic sizes have no number of situations
    count = situations_of(form, tuple(input), taps).count if known else gain.shape[0]
    for name, tensor in (("edge_gain", gain), ("edge_bias", bias)):
        if tuple(tensor.shape) != (count, out_channels):
            raise ValueError(
                f"{name} has the shape {tuple(tensor.shape)}; images of {by(input)} have {count} edge situations, and this "
                f"convolution takes [{count}, {out_channels}]"
            )
        check_type(tensor.dtype)
        check_operand(name, tensor, tensor.shape, tensor.dtype, like)


def check_convolution(x, values, gain, bias, crow, col, out_channels, geometry, taps, overlap=False) -> None:
    form = products.check_convolution(x, values, None, crow, col, out_channels, geometry, taps)
    check_type(x.dtype)
    check_edges(gain, bias, out_channels, form, x.shape[1:-1], taps, values)


def convolve(
    x: Tensor, values: Tensor, gain: Tensor, bias: Tensor, crow: Tensor, col: Tensor, out_channels: int, geometry: List[int],
    taps: str, overlap: Optional[bool] = False,
) -> Tensor:  # fmt: skip
    check_convolution(x, values, gain, bias, crow, col, out_channels, geometry, taps)
    edges = {"edge_gain": gain, "edge_bias": bias}
    return products.convolve(x, values, None, crow, col, out_channels, geometry, taps, overlap, edges)


def _y(x, values, gain, bias, crow, col, out_channels, geometry, taps, overlap=False) -> Tensor:
    return x.new_empty((x.shape[0], *Geometry.from_list(geometry).output(x.shape[1:-1]), out_channels))


def _check_gradients(dy, sums, gain, input, geometry, taps) -> None:
    form = Geometry.from_list(geometry)
    output = (dy.shape[0], *form.output(input), dy.shape[-1])
    check_operand("the gradient of the output", dy, output, dy.dtype, dy)
    check_operand("the sums", sums, output, dy.dtype, dy)
    check_edges(gain, gain, dy.shape[-1], form, input, taps, dy)


def _gradients_of(dy, sums, gain, input, geometry, taps) -> tuple[Tensor, Tensor, Tensor]:
    of_gain = gain.new_empty(0 if sums is None else gain.shape)
    return torch.empty_like(dy, memory_format=torch.contiguous_format), of_gain, gain.new_empty(gain.shape)


def _save(ctx, inputs, output) -> None:
    x, values, gain, _, crow, col, *_ = inputs
    ctx.products = products_of(dict(zip(_NAMES, inputs)))._replace(crow=None, col=None)
    ctx.save_for_backward(x if any(ctx.needs_input_grad[1:3]) else None, values, gain, crow, col)
    if kernels.made.kernel is not None:
        kernels.begin_gradients(crow, col, values, "none", *ctx.needs_input_grad[:2], False)


def _backward(ctx, dy) -> tuple:
    x, values, gain, crow, col = ctx.saved_tensors
    made, needs = ctx.products._replace(crow=crow, col=col), dict(zip(_NAMES, ctx.needs_input_grad))
    sums = made.y(x, values) if needs["gain"] else None
    scaled, dgain, dbias = edge_bias_gradients(dy, sums, gain, made.input, made.geometry, made.taps)
    wanted = {role for role, name in (("x", "x"), ("w", "values")) if needs[name]}
    found = trilinear.gradients(made, {"x": x, "w": values, "dy": scaled}, wanted)
    return found.get("x"), found.get("w"), dgain if needs["gain"] else None, dbias if needs["bias"] else None, *(None,) * 6


def _save_gradients(ctx, inputs, output) -> None:
    dy, sums, gain, *ctx.where = inputs
    ctx.save_for_backward(dy, sums, gain)


def _backward_of_gradients(ctx, ddx, ddgain, ddbias) -> tuple:
    """What edge_bias_gradients computes are dy · gain[s], and the sums over situations of dy · sums and of dy."""
    dy, sums, gain = ctx.saved_tensors
    input, geometry, taps = ctx.where
    places = _places(Geometry.from_list(geometry), tuple(input), taps, dy.device)
    dy, ddx, *sums = (one.flatten(1, -2).float() for one in (dy, ddx, sums) if one is not None)
    by_dy = ddx * places.gather(gain) + places.gather(ddbias)
    by_sums = None
    if sums:
        by_dy = by_dy + sums[0] * places.gather(ddgain)
        by_sums = (dy * places.gather(ddgain)).to(ctx.saved_tensors[1].dtype).reshape(ctx.saved_tensors[1].shape)
    by_gain = places.sum((ddx * dy).sum(0)).to(gain.dtype)
    return by_dy.to(ctx.saved_tensors[0].dtype).reshape(ctx.saved_tensors[0].shape), by_sums, by_gain, None, None, None


_NAMES = tuple(inspect.signature(convolve).parameters)
convolution_edge_bias = trilinear.operator(
    "convolution_edge_bias", convolve, check_convolution, _y, {"x": "x", "w": "values"}, products_of, blocks_of,
    Derivative(_save, _backward),
)  # fmt: skip


@custom_operator(
    "sparsekiln::edge_bias_gradients", _check_gradients, _gradients_of, derivative=Derivative(_save_gradients, _backward_of_gradients)
)
def edge_bias_gradients(
    dy: Tensor, sums: Optional[Tensor], gain: Tensor, input: List[int], geometry: List[int], taps: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The second result is empty without sums. The same on every run."""
    _check_gradients(dy, sums, gain, input, geometry, taps)
    places = _places(Geometry.from_list(geometry), tuple(input), taps, dy.device)
    positions = dy.flatten(1, -2).float()
    scaled = (positions * places.gather(gain)).to(dy.dtype)
    dgain = gain.new_empty(0)
    if sums is not None:
        dgain = places.sum((positions * sums.flatten(1, -2)).sum(0)).to(gain.dtype)
    return scaled.reshape(dy.shape).contiguous(), dgain, places.sum(positions.sum(0)).to(gain.dtype)


def call(x, values, gain, bias, *others, overlap: Asked = False) -> Tensor:
    """y of the operator convolution_edge_bias, with its arguments and its gradients. `overlap` is for calls that autograd does not
    record."""
    operands = x, values, gain, bias
    operator = convolve if is_direct(*operands) else convolution_edge_bias
    return operator(*operands, *others, *unless_recorded(overlap, *operands))
