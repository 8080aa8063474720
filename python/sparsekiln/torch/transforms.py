"""The operators under torch.func: their rules for vmap."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

Tensor = torch.Tensor


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
