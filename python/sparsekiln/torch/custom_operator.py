"""How the operators torch.ops.sparsekiln.* are defined: by what they compute, what they refuse, what their results are like, and
their rules for derivatives and batches."""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from .operands import check_one_device
from .transforms import each


def custom_operator(
    name: str, check: Callable[..., Any], results: Callable[..., Any], *, save: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None, vmap: Callable[[Callable], Callable] | None = each,
) -> Callable[[Callable], Any]:  # fmt: skip
    """Makes a custom operator of the function that computes it, whose annotations are the operator's schema.

    check     raises what the function raises for operands that it does not take; called with all arguments
    results   empty tensors of the shapes, types and devices of what the function gives; called with all arguments
    save      puts into a context what `backward` needs, of the inputs and the output
    backward  gradients of the inputs, of the context and the gradients of the results; None: it has no derivative
    vmap      makes the operator's rule for torch.func.vmap, see transforms.py; None: it has no rule

    PyTorch calls the first two instead of the function while it traces, and where one of the tensors is on meta. Then the
    operator would give memory that nothing has written: tensors on several devices are refused.
    """

    def define(function: Callable) -> Any:
        operator = torch.library.custom_op(name, mutates_args=())(function)
        names = tuple(inspect.signature(function).parameters)

        def fake(*arguments: Any) -> Any:
            check(*arguments)
            check_one_device(**dict(zip(names, arguments)))
            return results(*arguments)

        operator.register_fake(fake)
        if backward is not None:
            operator.register_autograd(backward, setup_context=save)
        if vmap is not None:
            operator.register_vmap(vmap(operator))
        return operator

    return define
