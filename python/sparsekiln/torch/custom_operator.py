"""How the operators torch.ops.sparsekiln.* are defined: by what they compute, what they refuse, what their results are like, and
their rules for derivatives, batches and the counting of operations."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .dispatch import open_transform
from .imports import when_imported
from .operands import check_one_device
from .transforms import each


class Derivative(NamedTuple):
    """The rules of one operator."""

    save: Callable[..., None]  #: puts into a context what `backward` needs: (context, inputs, output)
    backward: Callable[..., Any]  #: gradients of the inputs: (context, gradients of the results)


class Operator:
    """A custom operator. Transforms of torch.func, which take no custom operator apart, are given an autograd function of the same
    rules instead."""

    def __init__(self, operator: Callable, function: Callable | None, defaults: tuple) -> None:
        self._operator, self._function = operator, function
        self._defaults = defaults  # of all arguments

    def __call__(self, *arguments: Any) -> Any:
        transformed = self._function is not None and not torch.compiler.is_compiling() and open_transform is not None
        if transformed and open_transform() is not None:
            return self._function(*arguments, *self._defaults[len(arguments) :])
        return self._operator(*arguments)


def _function(operator: Any, derivative: Derivative, vmap: Callable[[Callable], Callable]) -> Callable:
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(*arguments: Any) -> Any:
            return operator(*arguments)

        setup_context = staticmethod(derivative.save)
        backward = staticmethod(derivative.backward)

    Function.vmap = staticmethod(vmap(Function.apply))
    return Function.apply


def _no_derivative(name: str) -> Derivative:
    def refuse(ctx: Any, *gradients: Any) -> None:
        raise NotImplementedError(f"{name} has no derivative")

    return Derivative(lambda ctx, inputs, output: None, refuse)


def custom_operator(
    name: str, check: Callable[..., Any], results: Callable[..., Any], *, derivative: Derivative | None = None,
    vmap: Callable[[Callable], Callable] | None = each, flops: Callable[..., int] | None = None, transforms: bool = True,
) -> Callable[[Callable], Operator]:  # fmt: skip
    """Makes a custom operator of the function that computes it, whose annotations are the operator's schema.

    check       raises what the function raises for operands that it does not take; called with all arguments
    results     empty tensors of the shapes, types and devices of what the function gives; called with all arguments
    derivative  None: it has none
    vmap        makes the operator's rule for torch.func.vmap, see transforms.py; None: it has no rule
    flops       how many operations torch.utils.flop_counter counts; called with the arguments by name and with the result
    transforms  whether torch.func has its derivatives, as of an operator that takes no lists of tensors

    PyTorch calls `check` and `results` instead of the function while it traces, and where one of the tensors is on meta. Then the
    operator would give memory that nothing has written: tensors on several devices are refused.
    """

    def define(body: Callable) -> Operator:
        operator = torch.library.custom_op(name, mutates_args=())(body)
        parameters = inspect.signature(body).parameters
        names = tuple(parameters)

        def fake(*arguments: Any) -> Any:
            check(*arguments)
            check_one_device(**dict(zip(names, arguments)))
            return results(*arguments)

        operator.register_fake(fake)
        if derivative is not None:
            operator.register_autograd(derivative.backward, setup_context=derivative.save)
        if vmap is not None:
            operator.register_vmap(vmap(operator))
        if flops is not None:
            packet = getattr(torch.ops.sparsekiln, name.removeprefix("sparsekiln::"))
            count = lambda *given, out_val=None: flops(dict(zip(names, given)), out_val)  # noqa: E731
            when_imported("torch.utils.flop_counter", lambda counter: counter.register_flop_formula(packet, get_raw=True)(count))
        function = _function(operator, derivative or _no_derivative(name), vmap) if transforms and vmap is not None else None
        return Operator(operator, function, tuple(one.default for one in parameters.values()))

    return define
