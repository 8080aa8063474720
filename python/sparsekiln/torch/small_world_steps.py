"""Sequences of steps of a SmallWorldLSTM, by kernels: on tensors with memory, without a gradient.

Matrices of all steps are [steps, n, features], and those of an internal step one of a list of them. Functions here are the
bodies of the operators in small_world_operators.py.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from . import normalised_products as products
from .lstm_steps import GATES
from .normalised_products import Blocks, Norm, blocks_of
from .operands import check_matrix, check_weight, readable
from .products import run, with_room

Tensor = torch.Tensor


class Kept(NamedTuple):
    """What the backward pass reads of all steps, or, where there is none, the memory of one step."""

    y: Tensor  #: [internal steps, steps, n, hidden], what each internal step computes
    sums: Tensor  #: like y, before normalisation
    statistics: Tensor  #: [internal steps, steps, n, 2]
    gate_sums: Tensor  #: [steps, n, 4 · hidden]
    gate_statistics: Tensor  #: [steps, n, 8]
    c: Tensor  #: [steps, n, hidden]


def epilogue_of(internal_step: int) -> str:
    return {0: "layer_norm+multiply", 1: "layer_norm+add+relu"}.get(internal_step, "layer_norm+relu")


class Network:
    """The weights of all internal steps and, last, of the gates, and how each is normalised."""

    def __init__(self, values, crows, cols, gains, biases, gate_gain, gate_bias, multiplies: bool):
        self.hidden = gains.shape[1]
        self.weights: list[Blocks] = [blocks_of(crow, col, one, self.hidden) for one, crow, col in zip(values, crows, cols)]
        self.gains, self.biases = [*gains, gate_gain], [*biases, gate_bias]
        self.gates = len(self.weights) - 1  # the number of theirs, and how many internal steps there are
        self.of_cell = "layer_norm+multiply+lstm" if multiplies else "layer_norm+lstm"

    def norm(self, number: int, step: int, kept: Kept, m: Tensor, a: Tensor) -> Norm:
        """Of an internal step."""
        return Norm(
            epilogue_of(number), self.gains[number], self.biases[number], kept.sums[number, step], kept.statistics[number, step],
            m if number == 0 else None, a if number == 1 else None,
        )  # fmt: skip

    def norm_of_gates(self, step: int, kept: Kept, dropped: Tensor | None) -> Norm:
        return Norm(
            self.of_cell, self.gains[-1], self.biases[-1], kept.gate_sums[step], kept.gate_statistics[step], dropped
        )  # fmt: skip


def check(m, a, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, dropped) -> None:
    """ValueError or TypeError that says what is wrong with the operands."""
    internal, hidden = gains.shape
    if len(values) != internal + 1 or internal < 2:
        raise ValueError(f"{len(values)} weights and {internal} gains; there is one for each of 2 or more internal steps, and gates")
    for number, one in enumerate(values):
        check_weight(one, crows[number], cols[number], hidden, hidden * (GATES if number == internal else 1))
    for name, one in (("m", m), ("a", a), *([] if dropped is None else [("the dropped units", dropped)])):
        if one.dim() != 3 or one.shape != m.shape:
            raise ValueError(f"{name} has the shape {tuple(one.shape)}; it is [steps, n, {hidden}], as m")
        check_matrix(name, one.flatten(0, 1), hidden, values[0])
    check_matrix("h0", h0, hidden, values[0])
    for name, one, shape in (("biases", biases, gains.shape), ("the gain of gates", gate_gain, (GATES * hidden,)),
                             ("the bias of gates", gate_bias, (GATES * hidden,)), ("c0", c0, h0.shape),
                             ("h0", h0, (m.shape[1], hidden))):  # fmt: skip
        if tuple(one.shape) != tuple(shape):
            raise ValueError(f"{name} has the shape {tuple(one.shape)}; this network takes {list(shape)}")


def _memory(like: Tensor, state: Tensor, internal: int, steps: int, n: int, hidden: int) -> Kept:
    return Kept(
        like.new_empty((internal, steps, n, hidden)), like.new_empty((internal, steps, n, hidden)),
        state.new_empty((internal, steps, n, 2)), like.new_empty((steps, n, GATES * hidden)),
        state.new_empty((steps, n, 2 * GATES)), state.new_empty((steps, n, hidden)),
    )  # fmt: skip


def forward(
    m, a, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, dropped, epsilon, keep
) -> tuple[Tensor, ...]:  # fmt: skip
    """h of all steps, the last c, and Kept, empty if not `keep`."""
    check(m, a, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, dropped)
    steps, n, hidden = m.shape
    network = Network(values, crows, cols, gains, biases, gate_gain, gate_bias, dropped is not None)
    kept = _memory(m, c0, network.gates, steps if keep else 1, n, hidden)
    h_of_all = m.new_empty((steps, n, hidden))
    m, a, h, c = m.contiguous(), a.contiguous(), readable(h0, 16), readable(c0, 16)
    for step in range(steps):
        place = step if keep else 0
        x = h
        for number in range(network.gates):
            y = kept.y[number, place]
            products.forward(network.weights[number], x, y, network.norm(number, place, kept, m[step], a[step]), epsilon)
            x = y
        h = h_of_all[step]
        norm = network.norm_of_gates(place, kept, None if dropped is None else dropped[step])
        products.forward(network.weights[-1], x, h, norm, epsilon, c_before=c, c=kept.c[place])
        c = kept.c[place]
    c_n = c.clone(memory_format=torch.contiguous_format)
    return h_of_all, c_n, *(kept if keep else (one.new_empty(0) for one in kept))


class Gradients(NamedTuple):
    m: Tensor
    a: Tensor
    h0: Tensor
    c0: Tensor
    values: list[Tensor]
    gains: Tensor
    biases: Tensor
    gate_gain: Tensor
    gate_bias: Tensor


def backward(
    dh, dc_n, m, a, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, dropped, h, kept: Kept
) -> Gradients:
    steps, n, hidden = m.shape
    network = Network(values, crows, cols, gains, biases, gate_gain, gate_bias, dropped is not None)
    internal = network.gates
    m, a, h0, c0 = m.contiguous(), a.contiguous(), readable(h0, 16), readable(c0, 16)
    dz = m.new_empty((internal, steps, n, hidden))
    dz_of_gates = m.new_empty((steps, n, GATES * hidden))
    dm, da = torch.empty_like(m), torch.empty_like(a)
    dc = torch.zeros_like(c0) if dc_n is None else dc_n.clone(memory_format=torch.contiguous_format)
    divided = products.parts(n, m.device)
    dnorm = dc.new_zeros((internal, divided, 2 * hidden))
    dnorm_of_gates = dc.new_zeros((divided, 2 * GATES * hidden))
    after = None
    for step in reversed(range(steps)):
        of_cell = {"c_before": kept.c[step - 1] if step else c0, "c": kept.c[step], "dc": dc, "dc_before": dc}
        norm = network.norm_of_gates(step, kept, None if dropped is None else dropped[step])
        if after is None:
            products.backward_of_last(values[0], dh[step], dz_of_gates[step], norm, dnorm_of_gates, **of_cell)
        else:
            products.backward(
                network.weights[0], after, dz_of_gates[step], norm, dnorm_of_gates, residual=dh[step], **of_cell
            )  # fmt: skip
        after = dz_of_gates[step]
        for number in reversed(range(internal)):
            other = {0: {"dmultiplier": dm[step]}, 1: {"daddend": da[step]}}.get(number, {})
            norm = network.norm(number, step, kept, m[step], a[step])
            products.backward(network.weights[number + 1], after, dz[number, step], norm, dnorm[number], **other)
            after = dz[number, step]
    dh0 = torch.zeros_like(h0)
    if after is not None:
        first = network.weights[0]
        run(first.kernel("grad_input", "none", n), n, after, first.values, dh0)
    dnorm, dnorm_of_gates = dnorm.sum(1), dnorm_of_gates.sum(0)
    dvalues = [_grad_weight(network.weights[0], values[0], dz[0], h, h0)]
    for number in range(1, internal + 1):
        of_sums = dz[number] if number < internal else dz_of_gates
        dvalues.append(_grad_weight(network.weights[number], values[number], of_sums, kept.y[number - 1]))
    return Gradients(
        dm, da, dh0, dc, dvalues, *(one.to(gains.dtype, copy=True) for one in dnorm.split(hidden, 1)),
        *(one.to(gains.dtype, copy=True) for one in dnorm_of_gates.split(GATES * hidden)),
    )  # fmt: skip


def _grad_weight(weight: Blocks, values: Tensor, dz: Tensor, x: Tensor, before: Tensor | None = None) -> Tensor:
    """The sum over all steps of dzᵀ · x, in one launch; with `before`, x of the first step, x is that of the step after."""
    pairs = [(x.flatten(0, 1), dz.flatten(0, 1))]
    if before is not None:
        pairs = [(x[:-1].flatten(0, 1), dz[1:].flatten(0, 1)), (before, dz[0])] if len(dz) else []
    dw = weight.values.new_zeros(weight.values.shape)
    for number, (inputs, gradients) in enumerate(pair for pair in pairs if pair[0].shape[0]):
        kernel = weight.kernel("grad_weight", "scale", inputs.shape[0])
        run(kernel, inputs.shape[0], inputs, gradients, dw, beta=float(number > 0))
    return with_room(dw, values.shape[0])
