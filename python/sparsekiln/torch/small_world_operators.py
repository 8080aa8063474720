"""The custom operators torch.ops.sparsekiln.small_world_lstm and small_world_lstm_backward: sequences of a SmallWorldLSTM.

small_world_steps.py says what they take. The result is differentiable once with respect to all that is no index.
"""

from collections.abc import Sequence
from typing import Optional

import torch

from . import small_world_steps
from .lstm_steps import GATES
from .small_world_steps import Kept

Tensor = torch.Tensor


@torch.library.custom_op("sparsekiln::small_world_lstm", mutates_args=())
def small_world_lstm(
    m: Tensor, a: Tensor, h0: Tensor, c0: Tensor, values: Sequence[Tensor], crows: Sequence[Tensor], cols: Sequence[Tensor],
    gains: Tensor, biases: Tensor, gate_gain: Tensor, gate_bias: Tensor, mask: Optional[Tensor], epsilon: float, keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    return small_world_steps.forward(
        m, a, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, epsilon, keep
    )  # fmt: skip


@small_world_lstm.register_fake
def _(m, a, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, epsilon, keep):
    steps, n, hidden = m.shape
    internal = gains.shape[0]
    kept = [
        (m, (internal, steps, n, hidden)), (m, (internal, steps, n, hidden)), (c0, (internal, steps, n, 2)),
        (m, (steps, n, GATES * hidden)), (c0, (steps, n, 2 * GATES)), (c0, (steps, n, hidden)),
    ]  # fmt: skip
    return m.new_empty((steps, n, hidden)), c0.new_empty(c0.shape), *(one.new_empty(shape if keep else 0) for one, shape in kept)


@torch.library.custom_op("sparsekiln::small_world_lstm_backward", mutates_args=())
def small_world_lstm_backward(
    dh: Tensor, dc_n: Optional[Tensor], m: Tensor, a: Tensor, h0: Tensor, c0: Tensor, values: Sequence[Tensor],
    crows: Sequence[Tensor], cols: Sequence[Tensor], gains: Tensor, biases: Tensor, gate_gain: Tensor, gate_bias: Tensor,
    mask: Optional[Tensor], h: Tensor, kept: Sequence[Tensor], needs_h0: bool, needs_values: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Tensor], Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    return small_world_steps.backward(
        dh.contiguous(), dc_n, m, a, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, h, Kept(*kept), needs_h0,
        needs_values,
    )  # fmt: skip


@small_world_lstm_backward.register_fake
def _(
    dh, dc_n, m, a, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, h, kept, needs_h0, needs_values
):  # fmt: skip
    like = [m.new_empty(m.shape), a.new_empty(a.shape), h0.new_empty(h0.shape if needs_h0 else 0), c0.new_empty(c0.shape)]
    numbers = [one.new_empty(one.shape) for one in (gains, biases, gate_gain, gate_bias)]
    return *like, [one.new_empty(one.shape if needed else 0) for one, needed in zip(values, needs_values)], *numbers


def _save(ctx, inputs, output) -> None:
    m, a, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, _, keep = inputs
    h, _, *kept = output
    if not keep:
        raise RuntimeError(
            "torch.ops.sparsekiln.small_world_lstm was called with keep=False, and its gradient needs what that leaves out"
        )
    ctx.mark_non_differentiable(*kept)
    ctx.set_materialize_grads(False)
    ctx.weights, ctx.drops = len(values), mask is not None
    ctx.save_for_backward(
        m, a, h0, c0, gains, biases, gate_gain, gate_bias, h, *kept, *values, *crows, *cols, *([mask] if ctx.drops else [])
    )  # fmt: skip


def _gradients(ctx, dh, dc_n, *_) -> tuple:
    m, a, h0, c0, gains, biases, gate_gain, gate_bias, h, *others = ctx.saved_tensors
    kept, others = others[: len(Kept._fields)], others[len(Kept._fields) :]
    values, crows, cols = (others[ctx.weights * i : ctx.weights * (i + 1)] for i in range(3))
    mask = others[-1] if ctx.drops else None
    if dh is None and dc_n is None:
        return None, None, None, None, [None] * ctx.weights, [None] * ctx.weights, [None] * ctx.weights, *(None,) * 7
    _, _, needs_h0, _, needs_values, *_ = ctx.needs_input_grad
    needs_values = list(needs_values)
    dm, da, dh0, dc0, dvalues, dgains, dbiases, dgate_gain, dgate_bias = torch.ops.sparsekiln.small_world_lstm_backward(
        h.new_zeros(h.shape) if dh is None else dh, dc_n, m, a, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias,
        mask, h, kept, needs_h0, needs_values,
    )  # fmt: skip
    none = [None] * ctx.weights
    dvalues = [one if needed else None for one, needed in zip(dvalues, needs_values)]
    return dm, da, dh0 if needs_h0 else None, dc0, dvalues, none, none, dgains, dbiases, dgate_gain, dgate_bias, None, None, None


small_world_lstm.register_autograd(_gradients, setup_context=_save)
