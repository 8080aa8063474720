"""The operators of linear layers that are in C++ (python/torch_operators/linear.cpp), without derivatives: torch.ops.sparsekiln._linear,
_linear_grad_input and _linear_grad_weight compute what the operators of the same names do, also of activations [..., features], and
_linear_gradients both gradients. They are what graphs of torch.compile call.

Where there is no such library, this module has the functions of products.py instead.
"""

from collections.abc import Callable
from typing import Any

import torch

from .. import operator_library
from ..kernels import share_kernels
from ..operands import check_input
from ..transforms import each, rows_together
from . import products

Tensor = torch.Tensor
_ops = torch.ops.sparsekiln
_library = torch.library.Library("sparsekiln", "FRAGMENT")
_TAGS = (torch.Tag.pt2_compliant_tag,)


def _of_rows(function: Callable, matrices: tuple[int, ...], in_features: int | None, features: int | None) -> Callable:
    """A function of matrices, its arguments at the places `matrices`, as one of activations [..., features]. `features`: the place of
    the number of those of its first result, if that has such rows, too."""

    def call(*arguments: Any) -> Any:
        first, given = arguments[0], list(arguments)
        if in_features is not None:
            check_input(first, arguments[in_features])
        if first.dim() == 2:
            return function(*arguments)
        for place in matrices:
            if (one := given[place]) is not None:
                given[place] = one.reshape(-1, one.shape[-1])
        result = function(*given)
        if features is None:
            return result
        first_result, *rest = result if isinstance(result, tuple) else (result,)
        first_result = first_result.reshape(*first.shape[:-1], arguments[features])
        return (first_result, *rest) if rest else first_result

    return call


def _by_python(body: Callable, results: int) -> Callable:
    """What the operator in C++ asks where it knows no kernel."""

    def answer(*arguments: Any) -> Any:
        try:
            with share_kernels():
                return body(*arguments)
        except BaseException as error:
            operator_library.refuse(error)
            nothing = tuple(arguments[0].new_empty(0) for _ in range(results))
            return nothing[0] if results == 1 else nothing

    return answer


def _define(name: str, product: Callable, fake: Callable, vmap: Callable, of_rows: Callable, results: int = 1, asks: bool = True) -> Callable:
    """Defines the operator in C++ and, if it asks, the one with which it asks Python. Returns what calls it, and raises what Python
    refuses."""
    schema, body = torch.library.infer_schema(product, mutates_args=()), of_rows(product)
    implementations = {f"_{name}": body}
    if asks:
        implementations[f"_{name}_by_python"] = _by_python(body, results)
    for operator, implementation in implementations.items():
        _library.define(operator + schema, tags=_TAGS)
        _library.impl(operator, implementation, "CompositeExplicitAutograd")
        _library.impl(operator, torch.library.fallthrough_kernel, "Autograd")
    operator = getattr(_ops, f"_{name}").default
    torch.library.register_fake(operator, of_rows(fake), lib=_library)
    torch.library.register_vmap(operator, vmap(operator), lib=_library)
    invoke = operator._op  # what a call of the operator calls

    def call(*arguments: Any) -> Any:
        try:
            return invoke(*arguments)
        except RuntimeError as error:
            raise operator_library.refusal(error) from None

    return call


def define_recorded(differentiable: Callable) -> None:
    """Defines _linear_recorded, in which autograd sees `differentiable`, and a trace of that what it is made of."""

    def of_autograd(*arguments: Any) -> Tensor:
        recorded = torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in arguments)
        return differentiable(*arguments) if recorded else _ops._linear(*arguments)

    _library.define("_linear_recorded" + torch.library.infer_schema(products.linear, mutates_args=()), tags=_TAGS)
    _library.impl("_linear_recorded", of_autograd, "Autograd")
    _library.impl("_linear_recorded", _ops._linear, "CompositeExplicitAutograd")
    torch.library.register_fake("sparsekiln::_linear_recorded", lambda *arguments: _ops._linear(*arguments), lib=_library)


#: Whether these are more than the functions of products.py.
IN_CPP = operator_library.functions is not None
if IN_CPP:
    # The operators of operators.py, whose fakes these are, are defined after this.
    _input, _weight = (lambda *given: _ops.linear_grad_input(*given)), (lambda *given: _ops.linear_grad_weight(*given))
    linear = _define(
        "linear", products.linear, lambda *given: _ops.linear(*given), lambda one: rows_together(one, rows=(0,)),
        lambda one: _of_rows(one, (0,), in_features=5, features=6),
    )  # fmt: skip
    grad_input = _define(
        "linear_grad_input", products.grad_input, _input, lambda one: rows_together(one, rows=(0, 1)),
        lambda one: _of_rows(one, (0, 1), None, 5),
    )  # fmt: skip
    grad_weight = _define("linear_grad_weight", products.grad_weight, _weight, each, lambda one: _of_rows(one, (0, 1, 2), None, None), 2)
    gradients = _define(
        "linear_gradients", products.gradients, products.gradients_by(_input, _weight), each,
        lambda one: _of_rows(one, (0, 1, 2), None, 6), 3, asks=False,
    )  # fmt: skip
else:
    linear, grad_input, grad_weight, gradients = products.linear, products.grad_input, products.grad_weight, products.gradients
