"""How the operators torch.ops.sparsekiln.* are defined: by what they compute, what they refuse, and what their results are like."""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from .operands import check_one_device


def custom_operator(name: str, check: Callable[..., Any], results: Callable[..., Any]) -> Callable[[Callable], Any]:
    """Makes a custom operator of the function that computes it.

    check    raises what the function raises for operands that it does not take; called with all arguments
    results  empty tensors of the shapes, types and devices of what the function gives; called with all arguments

    PyTorch calls these two instead of the function while it traces, and where one of the tensors is on meta. Then the operator
    would give memory that nothing has written: tensors on several devices are refused.
    """

    def define(function: Callable) -> Any:
        operator = torch.library.custom_op(name, mutates_args=())(function)
        names = tuple(inspect.signature(function).parameters)

        def fake(*arguments: Any) -> Any:
            check(*arguments)
            check_one_device(**dict(zip(names, arguments)))
            return results(*arguments)

        operator.register_fake(fake)
        return operator

    return define
