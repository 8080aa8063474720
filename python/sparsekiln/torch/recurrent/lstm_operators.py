"""The custom operators torch.ops.sparsekiln.lstm and lstm_backward: sequences of an LSTM whose input has been projected.

lstm_steps.py says how sequences are given. The result is differentiable with respect to the projection, h0, c0 and the
weight; its gradients are not differentiable once more. `overlap` is as in ../linear/operators.py, where `keep` is False.
"""

from collections.abc import Sequence
from typing import Optional

import torch

from ..custom_operator import Derivative, custom_operator
from . import lstm_steps
from .lstm_steps import GATES

Tensor = torch.Tensor


def _of_all_steps(projection, h0, c0, values, crow, col, batch_sizes, reverse, keep, overlap=False) -> tuple[Tensor, ...]:
    rows, hidden = projection.shape[0], h0.shape[1]
    return (
        projection.new_empty((rows, hidden)), h0.new_empty(h0.shape), c0.new_empty(c0.shape),
        c0.new_empty((rows if keep else 0, hidden)), projection.new_empty((rows if keep else 0, GATES * hidden)),
    )  # fmt: skip


def _of_backward(
    dh, dh_n, dc_n, h, c, activations, h0, c0, values, crow, col, batch_sizes, reverse, needs_h0, needs_weight
) -> tuple[Tensor, ...]:  # fmt: skip
    dw = values.new_empty(values.shape if needs_weight else 0)
    return activations.new_empty(activations.shape), h0.new_empty(h0.shape if needs_h0 else 0), c0.new_empty(c0.shape), dw


def _save(ctx, inputs, output) -> None:
    _, h0, c0, values, crow, col, ctx.batch_sizes, ctx.reverse, keep, _ = inputs
    h, _, _, c, activations = output
    if not keep:
        raise RuntimeError("torch.ops.sparsekiln.lstm was called with keep=False, and its gradient needs what that leaves out")
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(c, activations)
    ctx.save_for_backward(h, c, activations, h0, c0, values, crow, col)


def _gradients(ctx, dh, dh_n, dc_n, *_) -> tuple:
    h, c, activations, h0, c0, values, crow, col = ctx.saved_tensors
    if dh is None and dh_n is None and dc_n is None:
        return (None,) * 10
    _, needs_h0, _, needs_weight, *_ = ctx.needs_input_grad
    dz, dh0, dc0, dw = lstm_backward(
        dh, dh_n, dc_n, h, c, activations, h0, c0, values, crow, col, ctx.batch_sizes, ctx.reverse, needs_h0, needs_weight
    )  # fmt: skip
    return dz, dh0 if needs_h0 else None, dc0, dw if needs_weight else None, *(None,) * 6


@custom_operator("sparsekiln::lstm", lstm_steps.check, _of_all_steps, derivative=Derivative(_save, _gradients))
def lstm(
    projection: Tensor, h0: Tensor, c0: Tensor, values: Tensor, crow: Tensor, col: Tensor, batch_sizes: Sequence[int],
    reverse: bool, keep: bool, overlap: Optional[bool] = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    return lstm_steps.lstm(projection, h0, c0, values, crow, col, batch_sizes, reverse, keep, overlap)


@custom_operator("sparsekiln::lstm_backward", lstm_steps.check_backward, _of_backward)
def lstm_backward(
    dh: Optional[Tensor], dh_n: Optional[Tensor], dc_n: Optional[Tensor], h: Tensor, c: Tensor, activations: Tensor,
    h0: Tensor, c0: Tensor, values: Tensor, crow: Tensor, col: Tensor, batch_sizes: Sequence[int], reverse: bool,
    needs_h0: bool, needs_weight: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    return lstm_steps.backward(
        dh, dh_n, dc_n, h, c, activations, h0, c0, values, crow, col, batch_sizes, reverse, needs_h0, needs_weight
    )  # fmt: skip
