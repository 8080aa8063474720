"""What a linear layer computes, by the kernels of its layout: on tensors with memory, without a gradient.

Functions here are the bodies of the operators, and their annotations the schemas; see operators.py. A call like an earlier one goes
straight to its kernel, which checks its operands itself. If the kernel refuses them, they are examined here, and are refused
with a readable error or converted to a form that the kernel takes.
"""

import functools
from collections.abc import Callable
from typing import Optional

import torch

import sparsekiln
from sparsekiln import _core

from ..background import say_once
from ..kernels import LayoutKernels, Use, find, unshared
from ..launch_overlap import start
from ..launches import is_captured, run, used, with_room
from ..operands import blocks_for, check_bias, check_indices, check_matrix, check_one_device, check_sides, check_weight, dense, readable

Tensor = torch.Tensor


def _function(activation: str) -> Callable[[Tensor], Tensor]:
    if activation == "gelu_tanh":
        return functools.partial(torch.nn.functional.gelu, approximate="tanh")
    return getattr(torch.nn.functional, activation)


#: act(z) as PyTorch computes it.
ACTIVATIONS = {name: _function(name) for name in sparsekiln.activations}

#: Activations whose derivative may be taken at their result, and none: z is not needed for the backward pass.
FROM_RESULT = {"none", *(name for name, takes_result in _core.activations.items() if takes_result)}


def derived(activation: str, dy: Tensor, z: Tensor) -> Tensor:
    """dy · act'(z), differentiable; for activations in FROM_RESULT z may be y."""
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        at = z if z.requires_grad else z.detach().requires_grad_()
        return torch.autograd.grad(ACTIVATIONS[activation](at), at, dy, create_graph=differentiable)[0]


def _is_computed_apart(kernels: LayoutKernels, use: Use, n: int, operand: Tensor) -> bool:
    """Whether an activation, or its derivative, is left to PyTorch: on a GPU, while the kernel that computes it with the product is being
    compiled, where the one without is in a pack or the cache. Results are then rounded once more. A launch that a CUDA graph captures
    waits for the kernel, since the graph would go on without."""
    plain = use._replace(epilogue="bias" if use.epilogue.startswith("bias") else "none", derivative="none")
    if use.device.type != "cuda" or plain == use or torch.are_deterministic_algorithms_enabled() or kernels.has(use, n):
        return False
    if not kernels.has(plain, n):
        return False
    job = kernels.begin(use, n)
    if is_captured(operand):
        job.finish()
    if job.error is not None:
        say_once("an activation is left to PyTorch, since its kernel was not compiled", job.error)
    return not kernels.has(use, n)


def check_activation(activation: str) -> None:
    """As operators take it."""
    if activation != "none" and activation not in ACTIVATIONS:
        raise ValueError(f"there is no activation '{activation}'; there are none, {', '.join(ACTIVATIONS)}")


# ---- y = act(x · Wᵀ + bias) ----


def check_linear(x, values, bias, crow, col, in_features, out_features, activation, overlap=False) -> None:
    check_activation(activation)
    check_weight(values, crow, col, in_features, out_features)
    check_matrix("the input", x, in_features, values)
    check_bias(bias, out_features, values)


def linear(
    x: Tensor, values: Tensor, bias: Optional[Tensor], crow: Tensor, col: Tensor, in_features: int, out_features: int,
    activation: str, overlap: Optional[bool] = False,
) -> Tensor:  # fmt: skip
    n, shape = x.shape[0], values.shape
    form = (shape, x.dtype, bias is None, activation, in_features, out_features)
    weight = find(crow, col, blocks_for(in_features, shape[-1]))
    constants = values, bias
    begin = start(overlap, constants, constants)
    kernel = weight.ready("forward", n, *form, begin.early)
    if kernel is not None and x.dim() == 2:
        try:
            y = run(kernel, n, x, used(values, weight), bias=bias)
        except sparsekiln.InvalidArgument:
            pass  # examined below
        else:
            if begin.settles:
                begin.launched(weight.kernels, _use_of_linear(x, values, bias, in_features, out_features, activation), n)
            return y
    check_linear(x, values, bias, crow, col, in_features, out_features, activation)
    values, bias = dense(used(values, weight)), None if bias is None else dense(bias)
    use = _use_of_linear(x, values, bias, in_features, out_features, activation)
    if _is_computed_apart(weight.kernels, use, n, x):
        with unshared():
            return ACTIVATIONS[activation](linear(x, *constants, crow, col, in_features, out_features, "none", overlap))
    begin = start(overlap, constants, (values, bias))
    use = use._replace(overlap=begin.early)
    kernel = weight.make(use, n, *form, begin.early)
    y = run(kernel, n, readable(x, use.alignment), values, bias=bias)
    begin.launched(weight.kernels, use, n)
    return y


def _use_of_linear(x, values, bias, in_features, out_features, activation) -> Use:
    block = tuple(values.shape[1:])
    return Use("forward", block, in_features, out_features, x.dtype, x.device, epilogue=_epilogue(bias, activation))


def _epilogue(bias: Tensor | None, activation: str) -> str:
    if bias is None:
        return activation
    return "bias" if activation == "none" else f"bias+{activation}"


def linear_with_preactivation(
    x: Tensor, values: Tensor, bias: Optional[Tensor], crow: Tensor, col: Tensor, in_features: int, out_features: int,
    activation: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y and z, what act was applied to."""
    if activation not in ACTIVATIONS:
        check_linear(x, values, bias, crow, col, in_features, out_features, activation)
    z = linear(x, values, bias, crow, col, in_features, out_features, "none")
    return (z.clone() if activation == "none" else ACTIVATIONS[activation](z)), z


# ---- dx = (dy · act'(z)) · W ----


def check_grad_input(dy, z, values, crow, col, in_features, out_features, activation, overlap=False) -> None:
    check_weight(values, crow, col, in_features, out_features)
    _check_dy(dy, z, out_features, activation, values)


def _check_dy(dy, z, out_features, activation, like) -> None:
    check_activation(activation)
    check_matrix("the gradient of the output", dy, out_features, like)
    if (z is None) != (activation == "none"):
        raise ValueError("an activation's derivative needs z, and z goes with an activation alone")
    if z is not None and (z.shape != dy.shape or z.dtype != dy.dtype or z.device != dy.device):
        raise ValueError(f"z is {tuple(z.shape)} of {z.dtype} on {z.device}; it is like the gradient of the output")


def grad_input(
    dy: Tensor, z: Optional[Tensor], values: Tensor, crow: Tensor, col: Tensor, in_features: int, out_features: int,
    activation: str, overlap: Optional[bool] = False,
) -> Tensor:  # fmt: skip
    n, shape = dy.shape[0], values.shape
    form = (shape, dy.dtype, activation, in_features, out_features)
    weight = find(crow, col, blocks_for(in_features, shape[-1]))
    constants = (values,)
    begin = start(overlap, constants, constants)
    kernel = weight.ready("grad_input", n, *form, begin.early)
    if kernel is not None and dy.dim() == 2 and (z is None or z.dim() == 2):
        try:
            dx = run(kernel, n, dy, used(values, weight), z=z)
        except sparsekiln.InvalidArgument:
            pass  # examined below
        else:
            if begin.settles:
                begin.launched(weight.kernels, _use_of_grad_input(dy, values, in_features, out_features, activation), n)
            return dx
    check_grad_input(dy, z, values, crow, col, in_features, out_features, activation)
    values = dense(used(values, weight))
    use = _use_of_grad_input(dy, values, in_features, out_features, activation)
    if _is_computed_apart(weight.kernels, use, n, dy):
        with unshared():
            return grad_input(derived(activation, dy, z), None, *constants, crow, col, in_features, out_features, "none", overlap)
    begin = start(overlap, constants, (values,))
    use = use._replace(overlap=begin.early)
    kernel = weight.make(use, n, *form, begin.early)
    z = None if z is None else readable(z, use.alignment)
    dx = run(kernel, n, readable(dy, use.alignment), values, z=z)
    begin.launched(weight.kernels, use, n)
    return dx


def _use_of_grad_input(dy, values, in_features, out_features, activation) -> Use:
    return Use("grad_input", tuple(values.shape[1:]), in_features, out_features, dy.dtype, dy.device, derivative=activation)


# ---- dW = (dy · act'(z))ᵀ · x ----


def check_grad_weight(
    x, dy, z, crow, col, block_out, block_in, in_features, out_features, activation, bias
) -> None:  # fmt: skip
    check_sides(block_out, block_in)
    check_indices(crow, col, block_out, out_features, col.shape[0])
    check_one_device(x=x, crow_indices=crow, col_indices=col)
    check_matrix("the input", x, in_features, x)
    _check_dy(dy, z, out_features, activation, x)
    if x.shape[0] != dy.shape[0]:
        raise ValueError(f"the input has {x.shape[0]} rows, and the gradient of the output {dy.shape[0]}; they have as many")


def grad_weight(
    x: Tensor, dy: Tensor, z: Optional[Tensor], crow: Tensor, col: Tensor, block_out: int, block_in: int, in_features: int,
    out_features: int, activation: str, bias: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The second result, the gradient of the bias, is empty if `bias` is false."""
    check_sides(block_out, block_in)
    n = x.shape[0]
    form = (block_out, block_in, x.dtype, activation, in_features, out_features, bias)
    weight = find(crow, col, blocks_for(in_features, block_in))
    kernel = weight.ready("grad_weight", n, *form)
    if kernel is not None and x.dim() == dy.dim() == 2 and (z is None or z.dim() == 2):
        try:
            return _finish(run(kernel, n, x, dy, z=z), col.shape[0], bias, x)
        except sparsekiln.InvalidArgument:
            pass  # examined below
    check_grad_weight(x, dy, z, crow, col, block_out, block_in, in_features, out_features, activation, bias)
    use = Use(
        "grad_weight", (block_out, block_in), in_features, out_features, x.dtype, x.device, derivative=activation,
        bias_gradient=bias,
    )  # fmt: skip
    if _is_computed_apart(weight.kernels, use, n, dy):
        with unshared():
            dy = derived(activation, dy, z)
            return grad_weight(x, dy, None, crow, col, block_out, block_in, in_features, out_features, "none", bias)
    kernel = weight.make(use, n, *form)
    z = None if z is None else readable(z, use.alignment)
    result = run(kernel, n, readable(x, use.alignment), readable(dy, use.alignment), z=z)
    return _finish(result, col.shape[0], bias, x)


def gradients_by(by_input: Callable, by_weight: Callable) -> Callable:
    """What both compute, in one function."""

    def gradients(
        dy: Tensor, z: Optional[Tensor], x: Tensor, values: Tensor, crow: Tensor, col: Tensor, in_features: int, out_features: int,
        activation: str, bias: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        features, block = (in_features, out_features), values.shape[1:]
        dx = by_input(dy, z, values, crow, col, *features, activation)
        return dx, *by_weight(x, dy, z, crow, col, *block, *features, activation, bias)

    return gradients


gradients = gradients_by(grad_input, grad_weight)


def _finish(result: Tensor | tuple[Tensor, Tensor], room: int, bias: bool, like: Tensor) -> tuple[Tensor, Tensor]:
    """The two results of the operator from those of the kernel."""
    dw, dbias = result if bias else (result, like.new_empty(0))
    return with_room(dw, room), dbias if dbias.dtype == like.dtype else dbias.to(like.dtype)
