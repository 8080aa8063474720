"""The custom operators torch.ops.sparsekiln.*: what a linear layer computes, on 2-D activations.

    linear                     y[n, out] = act(x[n, in] · Wᵀ + bias)
    linear_with_preactivation  as above, and z, what act was applied to
    linear_grad_input          dx[n, in] = (dy · act'(z)) · W
    linear_grad_weight         dW[blocks, block_out, block_in] = (dy · act'(z))ᵀ · x, and the gradient of the bias

W is given as in a BSR tensor of PyTorch: `values` [blocks, block_out, block_in] with `crow` and `col`. The index tensors
select the kernels; they are read when they first occur, and are then recognised. `values` and `col` may be longer than the
layout has blocks, by crow[-1]: what comes after them has no effect, and a gradient of zeros. `overlap` says whether a launch may
begin early, where nothing is recorded: see ../launch_overlap.py.

All results are differentiable, and their gradients are differentiable once more.
"""

import functools
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import is_grad_enabled
from torch.nn import Parameter

from .. import trilinear
from ..custom_operator import Derivative
from ..dispatch import has_escaped, modes_are_open, open_transform, refuse_forward_mode, unobserved
from ..kernels import begin_gradients, known_blocks, made
from ..launch_overlap import Asked, asked_of
from ..operands import check_input
from ..transforms import rows_together
from . import library_operators, products
from .products import FROM_RESULT, derived

Tensor = torch.Tensor
_ops = torch.ops.sparsekiln


def _y(x, values, bias, crow, col, in_features, out_features, activation, overlap=False) -> Tensor:
    return x.new_empty((x.shape[0], out_features))


def _y_and_z(*arguments) -> tuple[Tensor, Tensor]:
    return _y(*arguments), _y(*arguments)


def _dx(dy, z, values, crow, col, in_features, out_features, activation, overlap=False) -> Tensor:
    return dy.new_empty((dy.shape[0], in_features))


def _dw_and_dbias(
    x, dy, z, crow, col, block_out, block_in, in_features, out_features, activation, bias
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return x.new_empty((col.shape[0], block_out, block_in)), x.new_empty(out_features if bias else 0)


def _save(ctx, inputs: tuple, y: Tensor, z: Tensor | None) -> None:
    """What backward needs. Without z, it computes z again from the layer's operands."""
    x, values, bias, crow, col, in_features, out_features, activation, *_ = inputs
    ctx.set_materialize_grads(False)
    ctx.arguments = in_features, out_features
    ctx.others = (None,) * (len(inputs) - 3)  # gradients of what has none
    ctx.activation = activation
    if activation in FROM_RESULT:
        z = y
    ctx.save_for_backward(
        x if activation not in FROM_RESULT or ctx.needs_input_grad[1] else None, values,
        None if activation == "none" else bias, crow, col, None if activation == "none" else z,
    )  # fmt: skip


def _backward(ctx, dy: Tensor | None, dz: Tensor | None = None) -> tuple:
    """The backward of the two forward operators; dz is the gradient of z, if z is a result."""
    x, values, bias, crow, col, z = ctx.saved_tensors
    needs, activation = ctx.needs_input_grad, ctx.activation
    twice = torch.is_grad_enabled()
    if dy is None and dz is None:
        return None, None, None, *ctx.others
    if activation not in FROM_RESULT and (z is None or twice):
        z = linear(x, values, bias, crow, col, *ctx.arguments, "none")
    if dy is None:
        dy, z, activation = dz, None, "none"
    elif activation != "none" and (twice or dz is not None or not (needs[0] or needs[1])):
        dy = derived(activation, dy, z)
        dy = dy if dz is None else dy + dz
        z, activation = None, "none"
    elif dz is not None:
        dy = dy + dz
    operators = (None if twice else getattr(ctx, "operators", None)) or _operators_for(dy)
    dx, dw, dbias = _needed(operators, needs, dy, z, x, values, crow, col, ctx.arguments, activation)
    if needs[2] and not needs[1]:
        dbias = (dy if z is None else derived(activation, dy, z)).sum(0)
    return dx, dw, dbias, *ctx.others


def _needed(operators, needs, dy, z, x, values, crow, col, features, activation) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """dx, dW and, with the latter, the gradient of the bias, those that are needed."""
    of_x, of_values, of_bias, *_ = needs
    if of_x and of_values:
        dx, dw, dbias = operators.gradients(dy, z, x, values, crow, col, *features, activation, of_bias)
        return dx, dw, dbias if of_bias else None
    if of_x:
        return operators.grad_input(dy, z, values, crow, col, *features, activation), None, None
    if of_values:
        dw, dbias = operators.grad_weight(x, dy, z, crow, col, *values.shape[1:], *features, activation, of_bias)
        return None, dw, dbias if of_bias else None
    return None, None, None


class LinearProducts(NamedTuple):
    """The products of a linear layer, as trilinear.Products."""

    crow: Tensor
    col: Tensor
    block: tuple[int, int]
    features: tuple[int, int]
    activation: str = "none"

    def _of(self) -> tuple:
        if self.activation != "none":
            raise RuntimeError(
                "the gradient operators of sparsekiln are differentiable without an activation alone; call backward with "
                "create_graph=True, which takes them apart"
            )
        return self.crow, self.col

    def y(self, x, w, bias):
        return linear(x, w, bias, *self._of(), *self.features, "none")

    def dx(self, dy, w):
        return grad_input(dy, None, w, *self._of(), *self.features, "none")

    def dw(self, x, dy, bias):
        return grad_weight(x, dy, None, *self._of(), *self.block, *self.features, "none", bias)


def _products(given: dict[str, Any]) -> LinearProducts:
    block = given["values"].shape[1:] if "values" in given else (given["block_out"], given["block_in"])
    return LinearProducts(given["crow"], given["col"], tuple(block), (given["in_features"], given["out_features"]), given["activation"])


def _blocks(given: dict[str, Any], values: Tensor) -> int:
    return known_blocks(given["crow"], given["col"])


_operator = functools.partial(trilinear.operator, products=_products, blocks=_blocks)
_first_rows, _two_rows = (functools.partial(rows_together, rows=rows) for rows in ((0,), (0, 1)))
_forward = {"x": "x", "w": "values"}
linear = _operator(
    "linear", products.linear, products.check_linear, _y, _forward, vmap=_first_rows,
    rule=Derivative(lambda ctx, inputs, output: _save(ctx, inputs, output, None), _backward),
)  # fmt: skip
linear_with_preactivation = _operator(
    "linear_with_preactivation", products.linear_with_preactivation, products.check_linear, _y_and_z, _forward, vmap=_first_rows,
    rule=Derivative(lambda ctx, inputs, output: _save(ctx, inputs, *output), _backward),
)  # fmt: skip
grad_input = _operator(
    "linear_grad_input", products.grad_input, products.check_grad_input, _dx, {"dy": "dy", "w": "values"}, vmap=_two_rows
)
grad_weight = _operator("linear_grad_weight", products.grad_weight, products.check_grad_weight, _dw_and_dbias, {"x": "x", "dy": "dy"})


# ---- without the dispatcher ----


class _Direct(torch.autograd.Function):
    """The operators linear and linear_with_preactivation in one, without the dispatcher's Python, which takes longer than
    the kernel of a small layer."""

    @staticmethod
    def forward(ctx, *arguments):
        if arguments[-1] in FROM_RESULT:
            y, z = library_operators.linear(*arguments), None
        else:
            z = library_operators.linear(*arguments[:-1], "none")
            y = products.ACTIVATIONS[arguments[-1]](z)
        if made.kernel is not None:
            begin_gradients(*arguments[3:5], arguments[1], arguments[-1], *ctx.needs_input_grad[:3])
        _save(ctx, arguments, y, z)
        return y

    backward = staticmethod(_backward)


_DIFFERENTIABLE = SimpleNamespace(grad_input=grad_input, grad_weight=grad_weight, gradients=products.gradients_by(grad_input, grad_weight))


class _Traced(_Direct):
    """_Direct for a trace of torch.compile, which finds the operators in C++ in it."""

    @staticmethod
    def backward(ctx, dy):
        ctx.operators = _IN_GRAPHS
        return _backward(ctx, dy)


if library_operators.IN_CPP:
    library_operators.define_recorded(_Traced.apply)
    _linear_in_graph, _recorded_in_graph = _ops._linear, _ops._linear_recorded
    _IN_GRAPHS = SimpleNamespace(grad_input=_ops._linear_grad_input, grad_weight=_ops._linear_grad_weight, gradients=_ops._linear_gradients)
_is_batched = getattr(getattr(torch._C, "_functorch", None), "is_legacy_batchedtensor", lambda tensor: False)


def _operators_for(dy: Tensor) -> Any:
    if not torch.is_grad_enabled() and unobserved(dy) and not _is_batched(dy):  # by is_grads_batched=True
        return library_operators
    return _DIFFERENTIABLE


class _Product(torch.autograd.Function):
    """x[..., in] · Wᵀ + bias from C++ alone: what `_Direct` does takes longer than that."""

    @staticmethod
    def forward(ctx, x, values, bias, crow, col, *features):
        ctx.set_materialize_grads(False)
        ctx.features = features
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, values, crow, col)
        y = library_operators.linear(x, values, bias, crow, col, *features, "none")
        if made.kernel is not None:
            begin_gradients(crow, col, values, "none", *ctx.needs_input_grad[:3])
        return y

    @staticmethod
    def backward(ctx, dy):
        if dy is None:
            return (None,) * 7
        x, values, crow, col = ctx.saved_tensors
        operators, shape = library_operators, None
        if torch.is_grad_enabled() or modes_are_open() or open_transform() is not None:  # the operators that are differentiable take matrices
            operators, shape, dy = _DIFFERENTIABLE, dy.shape, dy.reshape(-1, dy.shape[-1])
            x = None if x is None else x.reshape(-1, x.shape[-1])
        dx, dw, dbias = _needed(operators, ctx.needs_input_grad, dy, None, x, values, crow, col, ctx.features, "none")
        if ctx.needs_input_grad[2] and not ctx.needs_input_grad[1]:
            dbias = trilinear.sum_of_rows(dy)
        if shape is not None and dx is not None:
            dx = dx.reshape(*shape[:-1], dx.shape[-1])
        return dx, dw, dbias, None, None, None, None


# Without the Python of torch.autograd.Function, which is for transforms.
_record_product = super(torch.autograd.Function, _Product).apply


def launch(x, values, bias, crow, col, in_features, out_features, activation, overlap: Asked) -> Tensor:
    """act(x[..., in] · Wᵀ + bias), with W in the form that the operators take, where is_ordinary(x)."""
    if not torch.is_grad_enabled() or not (x.requires_grad or values.requires_grad or (bias is not None and bias.requires_grad)):
        return library_operators.linear(x, values, bias, crow, col, in_features, out_features, activation, overlap)
    if activation == "none" and not has_escaped(x):
        return _record_product(x, values, bias, crow, col, in_features, out_features)
    check_input(x, in_features)
    y = _Direct.apply(x.reshape(-1, in_features), values, bias, crow, col, in_features, out_features, activation)
    return y.reshape(*x.shape[:-1], out_features)


def call_in_graph(x, values, bias, crow, col, in_features, out_features, activation, overlap: Asked) -> Tensor:
    """What `launch` does, for torch.compile outside of autocast: in little Python, and that without the name torch, since a graph has
    guards for all of it."""
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    if is_grad_enabled() and (x.requires_grad or values.requires_grad or (bias is not None and bias.requires_grad)):
        y = _recorded_in_graph(rows, values, bias, crow, col, in_features, out_features, activation)
    else:
        overlap = type(values) is Parameter and overlap  # as asked_of says
        y = _linear_in_graph(rows, values, bias, crow, col, in_features, out_features, activation, overlap)
    return y if x.dim() == 2 else y.reshape(*x.shape[:-1], out_features)


def call(*arguments, overlap: Asked = False) -> Tensor:
    """y of the operator linear, with its arguments and its gradients, by the fastest way that is possible. `overlap` is for calls that
    autograd does not record."""
    x, values, bias, *_, activation = arguments
    if not torch.compiler.is_compiling():
        refuse_forward_mode()
        if open_transform is not None and open_transform() is not None:
            z = linear(*arguments[:-1], "none")
            return z if activation == "none" else products.ACTIVATIONS[activation](z)
    needs_gradient = torch.is_grad_enabled() and (
        x.requires_grad or values.requires_grad or (bias is not None and bias.requires_grad)
    )
    if unobserved(x, values):
        return _Direct.apply(*arguments) if needs_gradient else library_operators.linear(*arguments, overlap)
    if needs_gradient:
        return linear(*arguments) if activation in FROM_RESULT else linear_with_preactivation(*arguments)[0]
    return linear(*arguments, asked_of(overlap, values, bias))


def call_transposed(x, values, crow, col, out_features, in_features, overlap: Asked = False) -> Tensor:
    """x[n, in] · W of W[in, out], with gradients: what the operator linear_grad_input computes, whose in_features are `out`."""
    features = out_features, in_features
    if not torch.compiler.is_compiling():
        refuse_forward_mode()
    arguments = x, None, values, crow, col, *features, "none"
    if torch.is_grad_enabled() and (x.requires_grad or values.requires_grad):
        return grad_input(*arguments)
    if unobserved(x, values):
        return library_operators.grad_input(*arguments, overlap)
    return grad_input(*arguments, asked_of(overlap, values))
