"""Sequences of steps of a SmallWorldLSTM, by kernels: on tensors with memory, without a gradient.

Matrices of all steps are [steps, n, features]. Functions here are the
bodies of the operators in small_world_operators.py.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from . import normalised_products as products
from .lstm_steps import GATES, state_type
from .memory import large_empty
from .normalised_products import Blocks, Norm, blocks_of
from .operands import check_matrix, check_weight, readable
from .products import run
from .projections import Projection

Tensor = torch.Tensor

#: Rows, of one or more steps, that inputs are projected for and that the gradient of a weight is summed over at a time in float32: a
#: product is not faster with more, and what it reads is still in a cache. In types of 16 bits, to which a sum is rounded, they are
#: those of all steps.
ROWS = 512


class Kept(NamedTuple):
    """What the backward pass reads of all steps, or, where there is none, the memory of one step."""

    y: Tensor  #: [internal steps, steps, n, hidden], what each internal step computes
    sums: Tensor  #: like y, before normalisation
    statistics: Tensor  #: [internal steps, steps, n, 2]
    gate_sums: Tensor  #: [steps, n, 4 · hidden]
    gate_statistics: Tensor  #: [steps, n, 8]
    c: Tensor  #: [steps, n, hidden]
    products: Tensor  #: [2, steps · n, projected], of the inputs that multiply and that are added, before normalisation


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
        """The normalisation of an internal step."""
        return Norm(
            epilogue_of(number), self.gains[number], self.biases[number], kept.sums[number, step], kept.statistics[number, step],
            m if number == 0 else None, a if number == 1 else None,
        )  # fmt: skip

    def add_gradients(
        self, dvalues: list[Tensor], needed: Sequence[bool], h: Tensor, h0: Tensor, y: Tensor, dz: Tensor, dz_of_gates: Tensor,
        steps: slice,
    ) -> None:  # fmt: skip
        """Adds to the gradients of weights the sums over some steps, those that dz are of: dzᵀ · x, one launch each."""
        count = steps.stop - steps.start
        for number, weight in enumerate(self.weights):
            if not needed[number]:
                continue
            of_sums = (dz_of_gates if number == self.gates else dz[number])[:count]
            if number > 0:
                pairs = [(y[number - 1, steps], of_sums)]
            elif steps.start > 0:
                pairs = [(h[steps.start - 1 : steps.stop - 1], of_sums)]
            else:
                pairs = [(h0.unsqueeze(0), of_sums[:1]), (h[: count - 1], of_sums[1:])]
            for x, dy in pairs:
                rows = x.shape[0] * x.shape[1]
                if rows:
                    kernel = weight.kernel("grad_weight", "scale", rows)
                    run(kernel, rows, x.flatten(0, 1), dy.flatten(0, 1), dvalues[number][: len(weight.values)], beta=1.0)

    def norm_of_gates(self, step: int, kept: Kept, mask: Tensor | None) -> Norm:
        return Norm(
            self.of_cell, self.gains[-1], self.biases[-1], kept.gate_sums[step], kept.gate_statistics[step], mask
        )  # fmt: skip


def window_of(x: Tensor) -> int:
    """How many steps are taken at a time."""
    steps, n, _ = x.shape
    return steps if x.element_size() == 2 else min(steps, max(1, -(-ROWS // max(n, 1))))


def projections_of(tensors: Sequence[Tensor]) -> tuple[Projection, Projection]:
    """That of m, which multiplies, and that of a, which is added, from the weight, gain and bias of each."""
    return Projection(1, *tensors[:3]), Projection(0, *tensors[3:])


class Window:
    """m and a of the steps that are taken at a time, in the memory of the ones before."""

    def __init__(self, x: Tensor, projections: Sequence[Tensor], hidden: int, epsilon: float):
        self.steps, self.n, features = x.shape
        self.size, self.epsilon = window_of(x), epsilon
        self.projections, self.x = projections_of(projections), x.flatten(0, 1)
        self.m, self.a = large_empty(x, (2, self.size, self.n, hidden))

    def at(self, step: int) -> int:
        """The place of a step in its window."""
        return step % self.size

    def rows(self, step: int) -> slice:
        """Those of the window that a step is in."""
        first = step - self.at(step)
        return slice(first * self.n, min(first + self.size, self.steps) * self.n)

    def enter(self, step: int, products: Tensor, there: bool) -> None:
        """Makes m and a of the window of a step. Products of the inputs are [2, rows of all steps or of a window, projected],
        and are `there` or are written."""
        rows = self.rows(step)
        of_window = rows if products.shape[1] == len(self.x) else slice(0, rows.stop - rows.start)
        for projection, one, y in zip(self.projections, products, (self.m, self.a)):
            y = y.flatten(0, 1)[: rows.stop - rows.start]
            if there:
                projection.place(one[of_window], y, self.epsilon)
            else:
                projection.forward(self.x[rows], one[of_window], y, self.epsilon)

    def leave(self, step: int, gradients: Sequence[Tensor], products: Tensor, dx: Tensor, sums: Sequence[Tensor]) -> None:
        """From the gradients of m and a of the window of a step: adds to those of x, unless that is empty, and of projections."""
        rows = self.rows(step)
        of_x = dx.flatten(0, 1)[rows] if dx.numel() else None
        for projection, dy, one, of_one in zip(self.projections, gradients, products, (sums[:3], sums[3:])):
            dy = dy.flatten(0, 1)[: rows.stop - rows.start]
            projection.backward(dy, self.x[rows], one[rows], self.epsilon, of_x, of_one)


def check(x, projections, stride, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask) -> None:
    """ValueError or TypeError that says what is wrong with the operands."""
    internal, hidden = gains.shape
    if len(values) != internal + 1 or internal < 2:
        raise ValueError(f"{len(values)} weights and {internal} gains; there is one for each of 2 or more internal steps, and gates")
    for number, one in enumerate(values):
        check_weight(one, crows[number], cols[number], hidden, hidden * (GATES if number == internal else 1))
    if x.dim() != 3:
        raise ValueError(f"x has the shape {tuple(x.shape)}; it is [steps, n, features]")
    if len(projections) != 6 or stride < 1 or hidden % stride:
        raise ValueError(f"{len(projections)} tensors of projections onto every {stride}-th of {hidden} units; there are 6, of m and of a")
    check_matrix("x", x.flatten(0, 1), x.shape[2], values[0])
    check_matrix("h0", h0, hidden, values[0])
    projected = hidden // stride
    shapes = [("biases", biases, gains.shape), ("the gain of gates", gate_gain, (GATES * hidden,)),
              ("the bias of gates", gate_bias, (GATES * hidden,)), ("c0", c0, h0.shape), ("h0", h0, (x.shape[1], hidden))]  # fmt: skip
    for name, (weight, gain, bias) in (("m", projections[:3]), ("a", projections[3:])):
        shapes += [(f"the weight of {name}", weight, (projected, x.shape[2])), (f"the gain of {name}", gain, (projected,)),
                   (f"the bias of {name}", bias, (projected,))]  # fmt: skip
    if mask is not None:
        shapes.append(("the mask", mask, (*x.shape[:2], hidden)))
    for name, one, shape in shapes:
        if tuple(one.shape) != tuple(shape):
            raise ValueError(f"{name} has the shape {tuple(one.shape)}; this network takes {list(shape)}")
        wanted = state_type(x.dtype) if name == "c0" else x.dtype
        if one.dtype != wanted or one.device != x.device:
            raise TypeError(f"{name} is {one.dtype} on {one.device}; this network takes {wanted} on {x.device}")


def memory(like: Tensor, state: Tensor, internal: int, steps: int, n: int, hidden: int, products: tuple[int, int]) -> Kept:
    """Products: rows and features of the inputs'."""
    return Kept(
        large_empty(like, (internal, steps, n, hidden)), large_empty(like, (internal, steps, n, hidden)),
        large_empty(state, (internal, steps, n, 2)), large_empty(like, (steps, n, GATES * hidden)),
        large_empty(state, (steps, n, 2 * GATES)), large_empty(state, (steps, n, hidden)), large_empty(like, (2, *products)),
    )  # fmt: skip


def forward(
    x, projections, stride, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, epsilon, keep
) -> tuple[Tensor, ...]:  # fmt: skip
    """h of all steps, the last c, and Kept, empty if not `keep`."""
    check(x, projections, stride, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask)
    (steps, n, _), hidden = x.shape, gains.shape[1]
    network = Network(values, crows, cols, gains, biases, gate_gain, gate_bias, mask is not None)
    window = Window(x, projections, hidden, epsilon)
    products_of = (steps if keep else window.size) * n, hidden // stride
    kept = memory(x, c0, network.gates, steps if keep else 1, n, hidden, products_of)
    h_of_all = large_empty(x, (steps, n, hidden))
    h, c = readable(h0, 16), readable(c0, 16)
    mask = None if mask is None else mask.contiguous()
    for step in range(steps):
        place, at = step if keep else 0, window.at(step)
        if at == 0:
            window.enter(step, kept.products, there=False)
        taken = h
        for number in range(network.gates):
            y = kept.y[number, place]
            norm = network.norm(number, place, kept, window.m[at], window.a[at])
            products.forward(network.weights[number], taken, y, norm, epsilon)
            taken = y
        h = h_of_all[step]
        norm = network.norm_of_gates(place, kept, None if mask is None else mask[step])
        products.forward(network.weights[-1], taken, h, norm, epsilon, c_before=c, c=kept.c[place])
        c = kept.c[place]
    c_n = c.clone(memory_format=torch.contiguous_format)
    return h_of_all, c_n, *(kept if keep else (one.new_empty(0) for one in kept))


class Gradients(NamedTuple):
    x: Tensor
    projections: list[Tensor]
    h0: Tensor
    c0: Tensor
    values: list[Tensor]
    gains: Tensor
    biases: Tensor
    gate_gain: Tensor
    gate_bias: Tensor


def backward(
    dh, dc_n, x, projections, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, h, kept: Kept, epsilon, needs_x,
    needs_h0, needs_values,
) -> Gradients:  # fmt: skip
    """Those of x, h0 and of weights that are not needed are empty."""
    (steps, n, _), hidden = x.shape, gains.shape[1]
    network = Network(values, crows, cols, gains, biases, gate_gain, gate_bias, mask is not None)
    internal = network.gates
    h0, c0 = readable(h0, 16), readable(c0, 16)
    mask = None if mask is None else mask.contiguous()
    window = Window(x, projections, hidden, epsilon)
    dz = large_empty(x, (internal, window.size, n, hidden))
    dz_of_gates = large_empty(x, (window.size, n, GATES * hidden))
    dm, da = large_empty(x, (2, window.size, n, hidden))
    dx = x.new_zeros(x.shape if needs_x else 0)
    dprojections = [torch.zeros_like(one, memory_format=torch.contiguous_format) for one in projections]
    dc = torch.zeros_like(c0) if dc_n is None else dc_n.clone(memory_format=torch.contiguous_format)
    divided = products.parts(n, x.device)
    dnorm = dc.new_zeros((internal, divided, 2 * hidden))
    dnorm_of_gates = dc.new_zeros((divided, 2 * GATES * hidden))
    dvalues = [one.new_zeros(one.shape if needed else 0) for one, needed in zip(values, needs_values)]
    after = None
    for step in reversed(range(steps)):
        place = window.at(step)
        if place == window.size - 1 or step == steps - 1:
            window.enter(step, kept.products, there=True)
            dh_of_window = dh[step - place : step + 1].contiguous()
        of_cell = {"c_before": kept.c[step - 1] if step else c0, "c": kept.c[step], "dc": dc, "dc_before": dc}
        norm = network.norm_of_gates(step, kept, None if mask is None else mask[step])
        of_h = dh_of_window[place]
        if after is None:
            products.backward_of_last(values[0], of_h, dz_of_gates[place], norm, dnorm_of_gates, **of_cell)
        else:
            products.backward(
                network.weights[0], after, dz_of_gates[place], norm, dnorm_of_gates, residual=of_h, **of_cell
            )  # fmt: skip
        after = dz_of_gates[place]
        for number in reversed(range(internal)):
            other = {0: {"dmultiplier": dm[place]}, 1: {"daddend": da[place]}}.get(number, {})
            norm = network.norm(number, step, kept, window.m[place], window.a[place])
            products.backward(network.weights[number + 1], after, dz[number, place], norm, dnorm[number], **other)
            after = dz[number, place]
        if place == 0:
            of_window = slice(step, min(step + window.size, steps))
            network.add_gradients(dvalues, needs_values, h, h0, kept.y, dz, dz_of_gates, of_window)
            window.leave(step, (dm, da), kept.products, dx, dprojections)
    dh0 = h0.new_zeros(h0.shape if needs_h0 else 0)
    if after is not None and needs_h0:
        first = network.weights[0]
        run(first.kernel("grad_input", "none", n), n, after, first.values, dh0)
    dnorm, dnorm_of_gates = dnorm.sum(1), dnorm_of_gates.sum(0)
    return Gradients(
        dx, dprojections, dh0, dc, dvalues, *(one.to(gains.dtype, copy=True) for one in dnorm.split(hidden, 1)),
        *(one.to(gains.dtype, copy=True) for one in dnorm_of_gates.split(GATES * hidden)),
    )  # fmt: skip
