"""The operators under torch.func: their rules for vmap, and autograd functions that every transform can take apart.

torch.func takes an autograd function with a `setup_context` and a `vmap` of its own; custom operators have neither. So a
layer under a transform is made of three such functions, each the derivative of another, and of PyTorch's activations.
"""

from collections.abc import Callable
from typing import Any

import torch

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
        results = []
        for number in range(info.batch_size):
            chosen = (one.select(dim, number) if isinstance(dim, int) else one for one, dim in zip(arguments, dims))
            results.append(operator(*chosen))
        if isinstance(results[0], tuple):
            return tuple(torch.stack(one) for one in zip(*results)), (0,) * len(results[0])
        return torch.stack(results), 0

    return rule


def _of_no_entries(operator: Callable, dims: tuple, arguments: tuple) -> tuple:
    """Results of no entries, of the shapes that operators of meta tensors tell."""
    device = next(one.device for one in arguments if isinstance(one, Tensor))

    def like_an_entry(one: Any, dim: int | None) -> Any:
        if not isinstance(one, Tensor):
            return one
        return one.new_empty([size for axis, size in enumerate(one.shape) if axis != dim], device="meta")

    results = operator(*map(like_an_entry, arguments, dims))
    # They depend on what they are made of, as those of PyTorch's layers do: its gradients are zeros.
    made_of = [one.sum() * 0 for one in arguments if isinstance(one, Tensor) and one.requires_grad]
    of_none = tuple(
        sum((one.to(result.dtype) for one in made_of), torch.empty((0, *result.shape), dtype=result.dtype, device=device))
        for result in (results if isinstance(results, tuple) else (results,))
    )
    return (of_none, (0,) * len(of_none)) if isinstance(results, tuple) else (of_none[0], 0)


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
