"""Derivatives of the products of a block-sparse weight.

y = x · Wᵀ, dx = dy · W and dW = dyᵀ · x, of a linear layer or a convolution, are the derivatives of one trilinear form,
Σ dy · (x · Wᵀ), by dy, by x and by W. Each product takes two of these operands. The gradient of its result takes the place of the
third one, and so its derivatives are the other two products.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any, Protocol

import torch

from . import kernels
from .custom_operator import Derivative, Operator, custom_operator
from .transforms import each

Tensor = torch.Tensor


class Products(Protocol):
    """The three products of one weight, differentiable. Its fields `crow` and `col` are the index tensors."""

    def y(self, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor: ...
    def dx(self, dy: Tensor, w: Tensor) -> Tensor: ...
    def dw(self, x: Tensor, dy: Tensor, bias: bool) -> tuple[Tensor, Tensor]:
        """And the gradient of the bias, if `bias`: the sums of rows of dy."""
        ...


_ROLES = ("x", "w", "dy")


def sum_of_rows(dy: Tensor) -> Tensor:
    """The gradient of a bias: the sum over all dimensions but the features."""
    return dy.sum(tuple(range(dy.dim() - 1)))


def gradients(products: Products, roles: dict[str, Tensor], wanted: set[str], bias: Tensor | None = None, bias_gradient: bool = False) -> dict:
    """The derivatives of the trilinear form by the operands that are wanted, of "x", "w" and "dy". `bias` is added to the derivative by dy.
    With `bias_gradient`, the gradient of a bias comes as "bias" with the derivative by "w"."""
    found = {}
    if "x" in wanted:
        found["x"] = products.dx(roles["dy"], roles["w"])
    if "dy" in wanted:
        found["dy"] = products.y(roles["x"], roles["w"], bias)
    if "w" in wanted:
        found["w"], found_bias = products.dw(roles["x"], roles["dy"], bias_gradient)
        if bias_gradient:
            found["bias"] = found_bias
    return found


def derivative(names: tuple[str, ...], operands: dict[str, str], products: Callable[[dict[str, Any]], Any]) -> Derivative:
    """The rules of an operator that computes one of the products.

    names     of the operator's arguments
    operands  which of them are two of the three operands, by these: of "x", "w" and "dy". The gradient of the result is the third
    products  of the arguments by their names, a NamedTuple of Products

    An argument `bias` that is a tensor is added to the result; one that is true says that a second result is the gradient of the bias.
    """
    (third,) = set(_ROLES) - set(operands)

    def save(ctx: Any, inputs: tuple, output: Any) -> None:
        given, needs = dict(zip(names, inputs)), dict(zip(names, ctx.needs_input_grad))
        whole = products(given)
        ctx.products = whole._replace(crow=None, col=None)
        ctx.adds_bias = given.get("bias") is True
        # An operand is needed for the gradient of the other.
        one, other = operands.values()
        kept = (given[name] if needs[beside] else None for name, beside in ((one, other), (other, one)))
        ctx.save_for_backward(*kept, whole.crow, whole.col)
        if kernels.made.kernel is not None and third == "dy":
            of_weight = needs[operands["w"]]
            kernels.begin_gradients(whole.crow, whole.col, given[operands["w"]], "none", needs["x"], of_weight, needs.get("bias", False))

    def backward(ctx: Any, gradient: Tensor, of_bias: Tensor | None = None) -> tuple:
        *kept, crow, col = ctx.saved_tensors
        needs = dict(zip(names, ctx.needs_input_grad))
        wanted = {role for role, name in operands.items() if needs[name]}
        found = gradients(
            ctx.products._replace(crow=crow, col=col), {**dict(zip(operands, kept)), third: gradient}, wanted,
            of_bias if ctx.adds_bias else None, third == "dy" and needs.get("bias", False),
        )  # fmt: skip
        result = {name: found.get(role) for role, name in operands.items()}
        if needs.get("bias", False):
            result["bias"] = found["bias"] if "bias" in found else sum_of_rows(gradient)
        return tuple(result.get(name) for name in names)

    return Derivative(save, backward)


def operator(
    name: str, function: Callable, check: Callable, results: Callable, operands: dict[str, str], products: Callable[[dict[str, Any]], Any],
    blocks: Callable[[dict[str, Any], Tensor], int], rule: Derivative | None = None, vmap: Callable[[Callable], Callable] = each,
) -> Operator:  # fmt: skip
    """The operator sparsekiln::name that computes a product by `function`, as custom_operator makes it. `operands` and `products` as of
    `derivative`, which gives its rules unless `rule` does; `blocks` as of `flops`."""
    rule = derivative(tuple(inspect.signature(function).parameters), operands, products) if rule is None else rule
    count = flops(operands, blocks)
    return custom_operator(f"sparsekiln::{name}", check, results, derivative=rule, vmap=vmap, flops=count)(function)


def flops(operands: dict[str, str], blocks: Callable[[dict[str, Any], Tensor], int]) -> Callable[[dict[str, Any], Any], int]:
    """Counts two operations for each element of a present block and each row of dy. `operands` as of `derivative`; `blocks`: how many
    the weight, the second argument, has, each tap of a convolution counted."""

    def count(given: dict[str, Any], result: Any) -> int:
        result = result[0] if isinstance(result, tuple) else result
        dy, w = (given[operands[role]] if role in operands else result for role in ("dy", "w"))
        return 2 * math.prod(dy.shape[:-1]) * blocks(given, w) * w.shape[-2] * w.shape[-1]

    return count
