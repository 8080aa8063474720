"""Linear layers under torch.func: autograd functions that every transform can take apart.

torch.func takes an autograd function with a `setup_context` and a `vmap` of its own; custom operators have neither. So a
layer under a transform is made of three such functions, each the derivative of another, and of PyTorch's activations.
"""

import torch

from ..transforms import each, rows_together
from .products import ACTIVATIONS

Tensor = torch.Tensor
_ops = torch.ops.sparsekiln


class _Linear(torch.autograd.Function):
    """x · Wᵀ + bias"""

    @staticmethod
    def forward(x, values, bias, crow, col, *features):
        return _ops.linear(x, values, bias, crow, col, *features, "none")

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, values, bias, crow, col, *ctx.features = inputs
        ctx.save_for_backward(x, values, crow, col)

    @staticmethod
    def backward(ctx, dy):
        x, values, crow, col = ctx.saved_tensors
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = _GradInput.apply(dy, values, crow, col, *ctx.features)
        if ctx.needs_input_grad[1]:
            dw = _GradWeight.apply(x, dy, crow, col, *values.shape[1:], *ctx.features)
        return dx, dw, dy.sum(0) if ctx.needs_input_grad[2] else None, None, None, None, None


class _GradInput(torch.autograd.Function):
    """dy · W"""

    @staticmethod
    def forward(dy, values, crow, col, *features):
        return _ops.linear_grad_input(dy, None, values, crow, col, *features, "none")

    @staticmethod
    def setup_context(ctx, inputs, output):
        dy, values, crow, col, *ctx.features = inputs
        ctx.save_for_backward(dy, values, crow, col)

    @staticmethod
    def backward(ctx, ddx):
        dy, values, crow, col = ctx.saved_tensors
        ddy = dw = None
        if ctx.needs_input_grad[0]:
            ddy = _Linear.apply(ddx, values, None, crow, col, *ctx.features)
        if ctx.needs_input_grad[1]:
            dw = _GradWeight.apply(ddx, dy, crow, col, *values.shape[1:], *ctx.features)
        return ddy, dw, None, None, None, None


class _GradWeight(torch.autograd.Function):
    """dyᵀ · x at the blocks of the layout"""

    @staticmethod
    def forward(x, dy, crow, col, block_out, block_in, *features):
        return _ops.linear_grad_weight(x, dy, None, crow, col, block_out, block_in, *features, "none", False)[0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dy, crow, col, _, _, *ctx.features = inputs
        ctx.save_for_backward(x, dy, crow, col)

    @staticmethod
    def backward(ctx, ddw):
        x, dy, crow, col = ctx.saved_tensors
        dx = ddy = None
        if ctx.needs_input_grad[0]:
            dx = _GradInput.apply(dy, ddw, crow, col, *ctx.features)
        if ctx.needs_input_grad[1]:
            ddy = _Linear.apply(x, ddw, None, crow, col, *ctx.features)
        return dx, ddy, *(None,) * 6


_Linear.vmap = staticmethod(rows_together(_Linear.apply, rows=(0,)))
_GradInput.vmap = staticmethod(rows_together(_GradInput.apply, rows=(0,)))
_GradWeight.vmap = staticmethod(each(_GradWeight.apply))


def linear(x, values, bias, crow, col, in_features, out_features, activation) -> Tensor:
    """The operator linear, under the transforms of torch.func."""
    z = _Linear.apply(x, values, bias, crow, col, in_features, out_features)
    return z if activation == "none" else ACTIVATIONS[activation](z)


def linear_grad_input(dy, values, crow, col, in_features, out_features) -> Tensor:
    """The operator linear_grad_input without an activation, under the transforms of torch.func."""
    return _GradInput.apply(dy, values, crow, col, in_features, out_features)
