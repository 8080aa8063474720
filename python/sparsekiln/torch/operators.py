"""The custom operators torch.ops.sparsekiln.*: what a linear layer computes, on 2-D activations.

    linear                     y[n, out] = act(x[n, in] · Wᵀ + bias)
    linear_with_preactivation  as above, and z, what act was applied to
    linear_grad_input          dx[n, in] = (dy · act'(z)) · W
    linear_grad_weight         dW[blocks, block_out, block_in] = (dy · act'(z))ᵀ · x, and the gradient of the bias

W is given as in a BSR tensor of PyTorch: `values` [blocks, block_out, block_in] with `crow` and `col`. The index tensors
select the kernels; they are read when they first occur, and are then recognised. `values` and `col` may be longer than the
layout has blocks, by crow[-1]: what comes after them has no effect, and a gradient of zeros. `overlap` says whether a launch may
begin early, where nothing is recorded: see launch_overlap.py.

All results are differentiable, and their gradients are differentiable once more.
"""

from typing import Optional

import torch
from torch.autograd import forward_ad

from . import products, transforms
from .custom_operator import custom_operator
from .launch_overlap import Asked, asked_of
from .products import FROM_RESULT

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


@custom_operator("sparsekiln::linear", products.check_linear, _y)
def linear(
    x: Tensor, values: Tensor, bias: Optional[Tensor], crow: Tensor, col: Tensor, in_features: int,
    out_features: int, activation: str, overlap: Optional[bool] = False,
) -> Tensor:  # fmt: skip
    return products.linear(x, values, bias, crow, col, in_features, out_features, activation, overlap)


@custom_operator("sparsekiln::linear_with_preactivation", products.check_linear, _y_and_z)
def linear_with_preactivation(
    x: Tensor, values: Tensor, bias: Optional[Tensor], crow: Tensor, col: Tensor, in_features: int,
    out_features: int, activation: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return products.linear_with_preactivation(x, values, bias, crow, col, in_features, out_features, activation)


@custom_operator("sparsekiln::linear_grad_input", products.check_grad_input, _dx)
def linear_grad_input(
    dy: Tensor, z: Optional[Tensor], values: Tensor, crow: Tensor, col: Tensor, in_features: int,
    out_features: int, activation: str, overlap: Optional[bool] = False,
) -> Tensor:  # fmt: skip
    return products.grad_input(dy, z, values, crow, col, in_features, out_features, activation, overlap)


@custom_operator("sparsekiln::linear_grad_weight", products.check_grad_weight, _dw_and_dbias)
def linear_grad_weight(
    x: Tensor, dy: Tensor, z: Optional[Tensor], crow: Tensor, col: Tensor, block_out: int, block_in: int,
    in_features: int, out_features: int, activation: str, bias: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return products.grad_weight(
        x, dy, z, crow, col, block_out, block_in, in_features, out_features, activation, bias
    )  # fmt: skip


def _derived(activation: str, dy: Tensor, z: Tensor) -> Tensor:
    """dy · act'(z), differentiable; for activations in FROM_RESULT z may be y."""
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        at = z if z.requires_grad else z.detach().requires_grad_()
        return torch.autograd.grad(products.ACTIVATIONS[activation](at), at, dy, create_graph=differentiable)[0]


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
        z = _ops.linear(x, values, bias, crow, col, *ctx.arguments, "none")
    if dy is None:
        dy, z, activation = dz, None, "none"
    elif activation != "none" and (twice or dz is not None or not (needs[0] or needs[1])):
        dy = _derived(activation, dy, z)
        dy = dy if dz is None else dy + dz
        z, activation = None, "none"
    elif dz is not None:
        dy = dy + dz
    grad_input, grad_weight = _gradient_operators(dy)
    dx = dw = dbias = None
    if needs[0]:
        dx = grad_input(dy, z, values, crow, col, *ctx.arguments, activation)
    if needs[1]:
        block_out, block_in = values.shape[1:]
        dw, dbias = grad_weight(x, dy, z, crow, col, block_out, block_in, *ctx.arguments, activation, needs[2])
    elif needs[2]:
        dbias = (dy if z is None else _derived(activation, dy, z)).sum(0)
    return dx, dw, dbias if needs[2] else None, *ctx.others


linear.register_autograd(_backward, setup_context=lambda ctx, inputs, output: _save(ctx, inputs, output, None))
linear_with_preactivation.register_autograd(_backward, setup_context=lambda ctx, inputs, output: _save(ctx, inputs, *output))


def _refuse_activation(activation: str) -> None:
    if activation != "none":
        raise RuntimeError(
            "the gradient operators of sparsekiln are differentiable without an activation alone; call backward with "
            "create_graph=True, which takes them apart"
        )


def _save_grad_input(ctx, inputs, output) -> None:
    dy, _, values, crow, col, in_features, out_features, activation, _ = inputs
    ctx.arguments = in_features, out_features
    ctx.activation = activation
    ctx.save_for_backward(dy, values, crow, col)


def _backward_of_grad_input(ctx, ddx) -> tuple:
    _refuse_activation(ctx.activation)
    dy, values, crow, col = ctx.saved_tensors
    features = ctx.arguments
    ddy = dvalues = None
    if ctx.needs_input_grad[0]:
        ddy = _ops.linear(ddx, values, None, crow, col, *features, "none")
    if ctx.needs_input_grad[2]:
        dvalues, _ = _ops.linear_grad_weight(
            ddx, dy, None, crow, col, values.shape[1], values.shape[2], *features, "none", False
        )
    return ddy, None, dvalues, *(None,) * 6


def _save_grad_weight(ctx, inputs, output) -> None:
    x, dy, _, crow, col, _, _, in_features, out_features, activation, bias = inputs
    ctx.arguments = in_features, out_features
    ctx.activation, ctx.bias = activation, bias
    ctx.save_for_backward(x, dy, crow, col)


def _backward_of_grad_weight(ctx, ddw, ddbias) -> tuple:
    _refuse_activation(ctx.activation)
    x, dy, crow, col = ctx.saved_tensors
    dx = ddy = None
    if ctx.needs_input_grad[0]:
        dx = _ops.linear_grad_input(dy, None, ddw, crow, col, *ctx.arguments, "none")
    if ctx.needs_input_grad[1]:
        ddy = _ops.linear(x, ddw, ddbias if ctx.bias else None, crow, col, *ctx.arguments, "none")
    return dx, ddy, *(None,) * 9


linear_grad_input.register_autograd(_backward_of_grad_input, setup_context=_save_grad_input)
linear_grad_weight.register_autograd(_backward_of_grad_weight, setup_context=_save_grad_weight)


for _operator, _rows in ((linear, (0,)), (linear_with_preactivation, (0,)), (linear_grad_input, (0, 1))):
    _operator.register_vmap(transforms.rows_together(_operator, _rows))
linear_grad_weight.register_vmap(transforms.each(linear_grad_weight))


# ---- without the dispatcher ----


class _Direct(torch.autograd.Function):
    """The operators linear and linear_with_preactivation in one, without the dispatcher's Python, which takes longer than
    the kernel of a small layer."""

    @staticmethod
    def forward(ctx, *arguments):
        if arguments[-1] in FROM_RESULT:
            y, z = products.linear(*arguments), None
        else:
            y, z = products.linear_with_preactivation(*arguments)
        _save(ctx, arguments, y, z)
        return y

    backward = staticmethod(_backward)


def _gradient_operators(dy: Tensor) -> tuple:
    if not torch.is_grad_enabled() and unobserved(dy) and not _is_batched(dy):  # by is_grads_batched=True
        return products.grad_input, products.grad_weight
    return _ops.linear_grad_input, _ops.linear_grad_weight


_PLAIN = (Tensor, torch.nn.Parameter)
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
_is_batched = getattr(getattr(torch._C, "_functorch", None), "is_legacy_batchedtensor", lambda tensor: False)
_transforms = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)
_tracing = getattr(torch._C, "_get_tracing_state", None)


def unobserved(*tensors: Tensor) -> bool:
    """Whether only autograd would observe an operator that is called now on these: no tracing, mode or subclass."""
    if torch.compiler.is_compiling() or None in (_dispatch_modes, _transforms, _tracing):
        return False
    if _dispatch_modes() or _transforms() is not None or _tracing() is not None:
        return False
    for tensor in tensors:  # a loop, for all() takes longer, which the layers of small batches notice
        if type(tensor) not in _PLAIN or tensor.is_meta:
            return False
    return True


def refuse_forward_mode() -> None:
    if forward_ad._current_level >= 0 or (_transforms is not None and _jvp_is_open()):
        raise NotImplementedError(
            "block-sparse layers have no forward-mode derivatives (torch.autograd.forward_ad, torch.func.jvp, jacfwd); "
            "backward() and torch.autograd.grad would work, or a dense layer of the same weight: layer.to_dense()"
        )


def refuse_transforms_of_bsr() -> None:
    """Derivatives of torch.func ask a BSR tensor for strides, which it does not have."""
    if _derivative_is_open():
        raise NotImplementedError(
            "torch.func has no derivatives of products with BSR tensors; BlockSparseLinear and batched_linear have them, and so "
            "has torch.autograd.grad"
        )


def refuse_derivatives(layers: str, dense: bool = True) -> None:
    """torch.func takes no custom operators apart: see transforms.py. `dense`: the layers have to_dense."""
    if _derivative_is_open():
        instead = ", or a dense layer of the same weight: layer.to_dense()" if dense else ""
        raise NotImplementedError(
            f"torch.func has no derivatives of block-sparse {layers}; backward() and torch.autograd.grad would work{instead}"
        )


def _derivative_is_open() -> bool:
    interpreter = _transforms() if _transforms is not None else None
    return interpreter is not None and any(kind in str(interpreter.key()) for kind in ("Grad", "Jvp"))


def _jvp_is_open() -> bool:
    interpreter = _transforms()
    return interpreter is not None and "Jvp" in str(interpreter.key())


def call(*arguments, overlap: Asked = False) -> Tensor:
    """y of the operator linear, with its arguments and its gradients, by the fastest way that is possible. `overlap` is for calls that
    autograd does not record."""
    x, values, bias, *_, activation = arguments
    if not torch.compiler.is_compiling():
        refuse_forward_mode()
        if _transforms is not None and _transforms() is not None:
            return transforms.linear(*arguments)
    needs_gradient = torch.is_grad_enabled() and (
        x.requires_grad or values.requires_grad or (bias is not None and bias.requires_grad)
    )
    if unobserved(x, values):
        return _Direct.apply(*arguments) if needs_gradient else products.linear(*arguments, overlap)
    if needs_gradient:
        return _ops.linear(*arguments) if activation in FROM_RESULT else _ops.linear_with_preactivation(*arguments)[0]
    return _ops.linear(*arguments, asked_of(overlap, values, bias))


def call_transposed(x, values, crow, col, out_features, in_features, overlap: Asked = False) -> Tensor:
    """x[n, in] · W of W[in, out], with gradients: what the operator linear_grad_input computes, whose in_features are `out`."""
    features = out_features, in_features
    if not torch.compiler.is_compiling():
        refuse_forward_mode()
        if _transforms is not None and _transforms() is not None:
            return transforms.linear_grad_input(x, values, crow, col, *features)
    arguments = x, None, values, crow, col, *features, "none"
    if torch.is_grad_enabled() and (x.requires_grad or values.requires_grad):
        return _ops.linear_grad_input(*arguments)
    if unobserved(x, values):
        return products.grad_input(*arguments, overlap)
    return _ops.linear_grad_input(*arguments, asked_of(overlap, values))
