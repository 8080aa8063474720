"""Layers within a layer whose product is a part of one operator: how they are called all the same.

Whatever prepares a module for its forward pass, and clears up after it, does so by hooks of the module's call: offloading loads
weights, FSDP gathers them, pruning multiplies by masks, profilers take the time. So an operator that reads the weights of several
modules runs within the calls of all of them.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch

from ..linear.layer import BlockSparseLinear
from ..operands import check_one_device

Tensor = torch.Tensor
_Result = TypeVar("_Result")


def run_within(modules: Iterable[torch.nn.Module], run: Callable[[], _Result]) -> _Result:
    """What `run` returns, called within the forward passes of these modules, each an InnerModule: it must read their tensors then, and
    not before."""
    for module in reversed(list(modules)):
        run = functools.partial(module, run)
    return run()


class InnerModule(torch.nn.Module):
    """Goes first among the bases of a class. Given a function instead of an input, the module calls it: see run_within."""

    def forward(self, input: Any) -> Any:  # noqa: A002, as torch.nn.LayerNorm calls it
        return input() if callable(input) else super().forward(input)


class InnerLinear(InnerModule, BlockSparseLinear):
    """A block-sparse layer within a layer."""


class InnerNorm(InnerModule, torch.nn.LayerNorm):
    """A layer normalisation within a layer."""


class InnerDense(torch.nn.Linear):
    """A dense layer within a layer. PyTorch's gives memory that nothing has written where its weight is on meta and the input is not;
    that is refused when the product is computed, since a hook of the call may load the weight."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002, as torch.nn.Linear calls it
        check_one_device(input=input, weight=self.weight, bias=self.bias)
        return super().forward(input)
