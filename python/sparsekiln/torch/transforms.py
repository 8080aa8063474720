"""The operators under torch.func: their rules for vmap, and autograd functions that every transform can take apart.

torch.func takes an autograd function with a `setup_context` and a `vmap` of its own; custom operators have neither. So a
layer under a transform is made of three such functions, each the derivative of another, and of PyTorch's activations.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from .products import ACTIVATIONS

Tensor = torch.Tensor
_ops = torch.ops.sparsekiln


def rows_together(operator: Callable, rows: tuple[int, ...]) -> Callable:
    """A rule for vmap: where only the arguments `rows`, matrices [n, …], have a batch, it becomes more rows of one launch."""
    one_by_one = each(operator)

    def rule(info: Any, dims: tuple, *arguments: Any) -> tuple:
        batched = {place for place, dim in enumerate(dims) if dim is not None}
        if not batched <= set(rows):
            return one_by_one(info, dims, *arguments)
        size, folded = info.batch_size, list(arguments)
        for place in rows:
            if arguments[place] is not None:
                whole = _batch_first(arguments[place], dims[place], size)
                n = whole.shape[1]
                folded[place] = whole.reshape(size * n, whole.shape[2])
        result = operator(*folded)
        if isinstance(result, tuple):
            return tuple(one.reshape(size, n, one.shape[1]) for one in result), (0,) * len(result)
        return result.reshape(size, n, result.shape[1]), 0

    return rule


def each(operator: Callable) -> Callable:
    """A rule for vmap: a launch for each entry of the batch."""

    def rule(info: Any, dims: tuple, *arguments: Any) -> tuple:
        if info.batch_size == 0:
            return _of_no_entries(operator, dims, arguments)
        results = [operator(*_entries(lambda one, dim: one.select(dim, number), arguments, dims)) for number in range(info.batch_size)]
        stacked = tree_map(lambda *several: torch.stack(several), *results)
        return stacked, _first_dims(stacked)

    return rule


def _entries(entry: Callable[[Tensor, int], Tensor], arguments: Any, dims: Any) -> Any:
    """What an operator takes, where each tensor with a batch is `entry` of it and of the dimension of the batch."""
    if isinstance(arguments, (tuple, list)):
        of_each = dims if isinstance(dims, (tuple, list)) else [dims] * len(arguments)
        return [_entries(entry, one, dim) for one, dim in zip(arguments, of_each)]
    return entry(arguments, dims) if isinstance(arguments, Tensor) and dims is not None else arguments


def _first_dims(results: Any) -> Any:
    """That the batch of all results is their first dimension."""
    return tree_map(lambda _: 0, results)


def _of_no_entries(operator: Callable, dims: tuple, arguments: tuple) -> tuple:
    """Results of no entries, of the shapes that operators of meta tensors tell."""
    given = [one for one in tree_leaves(arguments) if isinstance(one, Tensor)]
    without = _entries(lambda one, dim: one.new_empty([*one.shape[:dim], *one.shape[dim + 1 :]]), arguments, dims)
    results = operator(*tree_map(lambda one: one.detach().to("meta") if isinstance(one, Tensor) else one, without))
    # They depend on what they are made of, as those of PyTorch's layers do: its gradients are zeros.
    made_of = [one.sum() * 0 for one in given if one.requires_grad]

    def of_none(result: Tensor) -> Tensor:
        empty = torch.empty((0, *result.shape), dtype=result.dtype, device=given[0].device)
        return sum((one.to(result.dtype) for one in made_of), empty)

    nothing = tree_map(of_none, results)
    return nothing, _first_dims(nothing)


def _batch_first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


class _Linear(torch.autograd.Function):
    """x · Wᵀ + bias"""

    @staticmethod
    def forward(x, values, bias, crow, col, *features):
        return _ops.linear(x, values, bias, crow, col, *features, "none")

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, values, bias, crow, col, *ctx.features = inputs
        ctx.save_for_backward(x, values, crow, col)

    @staticmethod
    def backward(ctx, dy):
        x, values, crow, col = ctx.saved_tensors
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = _GradInput.apply(dy, values, crow, col, *ctx.features)
        if ctx.needs_input_grad[1]:
            dw = _GradWeight.apply(x, dy, crow, col, *values.shape[1:], *ctx.features)
        return dx, dw, dy.sum(0) if ctx.needs_input_grad[2] else None, None, None, None, None


class _GradInput(torch.autograd.Function):
    """dy · W"""

    @staticmethod
    def forward(dy, values, crow, col, *features):
        return _ops.linear_grad_input(dy, None, values, crow, col, *features, "none")

    @staticmethod
    def setup_context(ctx, inputs, output):
        dy, values, crow, col, *ctx.features = inputs
        ctx.save_for_backward(dy, values, crow, col)

    @staticmethod
    def backward(ctx, ddx):
        dy, values, crow, col = ctx.saved_tensors
        ddy = dw = None
        if ctx.needs_input_grad[0]:
            ddy = _Linear.apply(ddx, values, None, crow, col, *ctx.features)
        if ctx.needs_input_grad[1]:
            dw = _GradWeight.apply(ddx, dy, crow, col, *values.shape[1:], *ctx.features)
        return ddy, dw, None, None, None, None


class _GradWeight(torch.autograd.Function):
    """dyᵀ · x at the blocks of the layout"""

    @staticmethod
    def forward(x, dy, crow, col, block_out, block_in, *features):
        return _ops.linear_grad_weight(x, dy, None, crow, col, block_out, block_in, *features, "none", False)[0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dy, crow, col, _, _, *ctx.features = inputs
        ctx.save_for_backward(x, dy, crow, col)

    @staticmethod
    def backward(ctx, ddw):
        x, dy, crow, col = ctx.saved_tensors
        dx = ddy = None
        if ctx.needs_input_grad[0]:
            dx = _GradInput.apply(dy, ddw, crow, col, *ctx.features)
        if ctx.needs_input_grad[1]:
            ddy = _Linear.apply(x, ddw, None, crow, col, *ctx.features)
        return dx, ddy, *(None,) * 6


_Linear.vmap = staticmethod(rows_together(_Linear.apply, rows=(0,)))
_GradInput.vmap = staticmethod(rows_together(_GradInput.apply, rows=(0,)))
_GradWeight.vmap = staticmethod(each(_GradWeight.apply))


def linear(x, values, bias, crow, col, in_features, out_features, activation) -> Tensor:
    """The operator linear, under the transforms of torch.func."""
    z = _Linear.apply(x, values, bias, crow, col, in_features, out_features)
    return z if activation == "none" else ACTIVATIONS[activation](z)


def linear_grad_input(dy, values, crow, col, in_features, out_features) -> Tensor:
    """The operator linear_grad_input without an activation, under the transforms of torch.func."""
    return _GradInput.apply(dy, values, crow, col, in_features, out_features)
