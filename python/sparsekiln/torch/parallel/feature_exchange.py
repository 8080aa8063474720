"""How features move between the ranks of a mesh, with their gradients: by functional collectives where all ranks have all rows, and
by redistribution of DTensors, which costs more time on the host, where they do not."""

from typing import Any

import torch
import torch.distributed._functional_collectives as collectives
from torch.autograd.function import once_differentiable
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

Tensor = torch.Tensor

# From 2.12 on, PyTorch differentiates the redistribution of a DTensor twice; before, its second derivative is wrong.
_REDISTRIBUTES_TWICE = torch.__version__ >= "2.12"


def is_shard_of_features(placement: Placement) -> bool:
    """Whether a style says by this that a rank has its features alone."""
    return isinstance(placement, Shard) and placement.dim == -1


def normalised(placement: Placement, dims: int) -> Placement:
    """With a dimension counted from the first one. ValueError if it is that of features, and the style did not say so."""
    if not isinstance(placement, Shard):
        return placement
    if placement.dim == dims - 1 or not -dims <= placement.dim < dims:
        raise ValueError(
            f"{placement} of {dims} dimensions, the last of which are features; Shard(-1), or another dimension, would work"
        )
    return Shard(placement.dim % dims)


class _Sum(torch.autograd.Function):
    """The sum over the ranks, each of which computes the same with it: its gradient is that of each term."""

    @staticmethod
    def forward(ctx: Any, term: Tensor, mesh: DeviceMesh) -> Tensor:
        ctx.mesh = mesh
        return collectives.wait_tensor(collectives.all_reduce(term.contiguous(), "sum", mesh))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _SumOfGradients.apply(gradients[0], ctx.mesh), None


class _SumOfGradients(torch.autograd.Function):
    """The tensor itself, of which each rank computes something else: its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mesh: DeviceMesh) -> Tensor:
        ctx.mesh = mesh
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _Sum.apply(gradients[0], ctx.mesh), None


class _OfFirstOrder(torch.autograd.Function):
    """The tensor itself. A second derivative is refused: that of a DTensor that was made of a part of a sum would be wrong."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = gradients[0]
        if not _REDISTRIBUTES_TWICE and torch.is_grad_enabled() and not gradient.requires_grad:
            gradient = gradient.detach().requires_grad_()  # which a redistribution has left out
        return _first_gradient(ctx, gradient)


@once_differentiable
def _first_gradient(ctx: Any, gradient: Any) -> Any:
    return gradient


def whole_input(x: Tensor, mesh: DeviceMesh, placement: Placement) -> Tensor:
    """x with all of its rows and features, on every rank. Each rank computes a part of its gradient: backward adds them."""
    if isinstance(x, DTensor) and x.placements[0].is_replicate():
        x, placement = x.to_local(), Replicate()
    if not isinstance(x, DTensor):
        if isinstance(placement, Replicate):
            return _SumOfGradients.apply(x, mesh)
        x = DTensor.from_local(x, mesh, [normalised(placement, x.dim())], run_check=False)
    return _OfFirstOrder.apply(x.redistribute(mesh, [Replicate()]).to_local(grad_placements=[Partial()]))


def gather_features(y: Tensor, mesh: DeviceMesh, width: int, order: Tensor, placement: Placement, as_local: bool) -> Tensor:
    """All features in their order, of y [..., features of this rank]; each rank has all rows, or those that `placement` says.

    width  the most features of a rank
    order  [features]: where each is if ranks follow one another, with `width` features each
    """
    last = y.dim() - 1
    if not _REDISTRIBUTES_TWICE:
        y = _OfFirstOrder.apply(y)
    y = torch.nn.functional.pad(y, (0, width - y.shape[-1]))
    shards = DTensor.from_local(y, mesh, [Shard(last)], run_check=False)
    placement = normalised(placement, y.dim())
    gathered = shards.redistribute(mesh, [placement])
    return _result(gathered.to_local().index_select(last, order), gathered, placement, as_local)


def sum_over_ranks(y: Tensor, mesh: DeviceMesh, placement: Placement) -> Tensor:
    """The sum of y over the ranks: whole on each, as a tensor, or a DTensor that is sharded as `placement` says."""
    if isinstance(placement, Replicate):
        return _Sum.apply(y, mesh)
    y = _OfFirstOrder.apply(y)
    return DTensor.from_local(y, mesh, [Partial()], run_check=False).redistribute(mesh, [normalised(placement, y.dim())])


def result_of(y: Tensor, summed: Tensor, mesh: DeviceMesh, as_local: bool) -> Tensor:
    """y, which was computed row by row from what this rank has of the sum, with its placement."""
    if as_local:
        return y
    if not isinstance(summed, DTensor):
        return DTensor.from_local(y, mesh, [Replicate()], run_check=False)
    return _result(y, summed, summed.placements[0], False)


def _result(y: Tensor, like: DTensor, placement: Placement, as_local: bool) -> Tensor:
    if as_local:
        return y
    shape = torch.Size((*like.shape[:-1], y.shape[-1]))
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(y, like.device_mesh, [placement], run_check=False, shape=shape, stride=stride)
