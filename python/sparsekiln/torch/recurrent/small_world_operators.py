"""The custom operators torch.ops.sparsekiln.small_world_lstm and small_world_lstm_backward: sequences of a SmallWorldLSTM.

small_world_steps.py says what they take. The result is differentiable once with respect to all that is no index.
"""

from collections.abc import Sequence
from typing import Optional

import torch

from ..custom_operator import Derivative, custom_operator
from . import small_world_steps
from .small_world_steps import Inputs, Kept

Tensor = torch.Tensor

_NUMBERS = 4  # the gain and bias of what multiplies, and of what is added


def _of_all_steps(
    products_m, products_a, numbers, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, epsilon, keep
) -> tuple[Tensor, ...]:  # fmt: skip
    (steps, n, _), (internal, hidden) = products_m.shape, gains.shape
    kept = small_world_steps.shapes_of_kept(products_m, c0, internal, steps, n, hidden)
    return (
        products_m.new_empty((steps, n, hidden)), c0.new_empty(c0.shape),
        *(like.new_empty(shape if keep else 0) for like, shape in kept),
    )  # fmt: skip


def _of_backward(
    dh, dc_n, products_m, products_a, numbers, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, h, kept,
    epsilon, needs_h0, needs_values,
) -> tuple:  # fmt: skip
    of_products = [one.new_empty(one.shape) for one in (products_m, products_a)]
    of_numbers = [one.new_empty(one.shape) for one in numbers]
    states = [h0.new_empty(h0.shape if needs_h0 else 0), c0.new_empty(c0.shape)]
    of_gains = [one.new_empty(one.shape) for one in (gains, biases, gate_gain, gate_bias)]
    of_values = [one.new_empty(one.shape if needed else 0) for one, needed in zip(values, needs_values)]
    return *of_products, of_numbers, *states, of_values, *of_gains


def _save(ctx, inputs, output) -> None:
    products_m, products_a, numbers, h0, c0, values, crows, cols, *gains_and_biases, mask, ctx.epsilon, keep = inputs
    h, _, *kept = output
    if not keep:
        raise RuntimeError(
            "torch.ops.sparsekiln.small_world_lstm was called with keep=False, and its gradient needs what that leaves out"
        )
    ctx.mark_non_differentiable(*kept)
    ctx.set_materialize_grads(False)
    ctx.weights, ctx.drops = len(values), mask is not None
    ctx.save_for_backward(
        products_m, products_a, h0, c0, *gains_and_biases, h, *numbers, *kept, *values, *crows, *cols, *([mask] if ctx.drops else [])
    )  # fmt: skip


def _gradients(ctx, dh, dc_n, *_) -> tuple:
    products_m, products_a, h0, c0, gains, biases, gate_gain, gate_bias, h, *others = ctx.saved_tensors
    numbers, others = others[:_NUMBERS], others[_NUMBERS:]
    kept, others = others[: len(Kept._fields)], others[len(Kept._fields) :]
    values, crows, cols = (others[ctx.weights * i : ctx.weights * (i + 1)] for i in range(3))
    mask = others[-1] if ctx.drops else None
    none = [None] * ctx.weights
    if dh is None and dc_n is None:
        return None, None, [None] * _NUMBERS, None, None, none, none, none, *(None,) * 7
    _, _, _, needs_h0, _, needs_values, *_ = ctx.needs_input_grad
    needs_values = list(needs_values)
    *of_products, of_numbers, dh0, dc0, dvalues, dgains, dbiases, dgate_gain, dgate_bias = small_world_lstm_backward(
        h.new_zeros(h.shape) if dh is None else dh, dc_n, products_m, products_a, numbers, h0, c0, values, crows, cols, gains,
        biases, gate_gain, gate_bias, mask, h, kept, ctx.epsilon, needs_h0, needs_values,
    )  # fmt: skip
    dvalues = [one if needed else None for one, needed in zip(dvalues, needs_values)]
    of_state = dh0 if needs_h0 else None, dc0
    return *of_products, of_numbers, *of_state, dvalues, none, none, dgains, dbiases, dgate_gain, dgate_bias, None, None, None


@custom_operator(
    "sparsekiln::small_world_lstm", small_world_steps.check, _of_all_steps, derivative=Derivative(_save, _gradients), transforms=False
)
def small_world_lstm(
    products_m: Tensor, products_a: Tensor, numbers: Sequence[Tensor], h0: Tensor, c0: Tensor, values: Sequence[Tensor],
    crows: Sequence[Tensor], cols: Sequence[Tensor], gains: Tensor, biases: Tensor, gate_gain: Tensor, gate_bias: Tensor,
    mask: Optional[Tensor], epsilon: float, keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    return small_world_steps.forward(
        Inputs(products_m, products_a, list(numbers)), h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask,
        epsilon, keep,
    )  # fmt: skip


@custom_operator("sparsekiln::small_world_lstm_backward", small_world_steps.check_backward, _of_backward, transforms=False)
def small_world_lstm_backward(
    dh: Tensor, dc_n: Optional[Tensor], products_m: Tensor, products_a: Tensor, numbers: Sequence[Tensor], h0: Tensor, c0: Tensor,
    values: Sequence[Tensor], crows: Sequence[Tensor], cols: Sequence[Tensor], gains: Tensor, biases: Tensor, gate_gain: Tensor,
    gate_bias: Tensor, mask: Optional[Tensor], h: Tensor, kept: Sequence[Tensor], epsilon: float, needs_h0: bool,
    needs_values: Sequence[bool],
) -> tuple[Tensor, Tensor, list[Tensor], Tensor, Tensor, list[Tensor], Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    return small_world_steps.backward(
        dh, dc_n, Inputs(products_m, products_a, list(numbers)), h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias,
        mask, h, Kept(*kept), epsilon, needs_h0, needs_values,
    )  # fmt: skip
