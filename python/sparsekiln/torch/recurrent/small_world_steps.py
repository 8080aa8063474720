"""Sequences of steps of a SmallWorldLSTM, by kernels: on tensors with memory, without a gradient.

Matrices of all steps are [steps, n, features]. Functions here are the
bodies of the operators in small_world_operators.py.
"""

import itertools
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch

from ..launches import Launch, Rows, Steps, kept_steps, run, run_steps
from ..memory import large_empty
from ..operands import check_count, check_epsilon, check_operand, check_weight, readable
from . import normalised_products as products
from .lstm_steps import GATES, state_type
from .normalised_products import Blocks, blocks_of
from .projections import Normalisation, Statistics

Tensor = torch.Tensor

#: Rows, of one or more steps, that inputs are normalised for and that the gradient of a weight is summed over at a time in float32: a
#: product is not faster with more, and what it reads is still in a cache. In types of 16 bits, to which a gradient is rounded, they
#: are those of all steps.
ROWS = 512


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

    def tensors(self) -> dict[tuple[str, int], Tensor]:
        """What every launch reads, by the number of its weight."""
        of_each = {"w": [one.values for one in self.weights], "gain": self.gains, "bias": self.biases}
        return {(name, number): one for name, several in of_each.items() for number, one in enumerate(several)}

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


def window_of(x: Tensor) -> int:
    """How many steps are taken at a time."""
    steps, n, _ = x.shape
    return max(1, steps if x.element_size() == 2 else min(steps, -(-ROWS // max(n, 1))))


class Inputs(NamedTuple):
    """What m and a are made of: each a normalised projection of the input onto every hidden / projected-th unit."""

    products_m: Tensor  #: [steps, n, projected], of the input and a weight, as products_a
    products_a: Tensor
    numbers: list[Tensor]  #: gain and bias of m, and of a: [projected] each, in the type of sums

    @property
    def products(self) -> tuple[Tensor, Tensor]:
        return self.products_m, self.products_a


class Window:
    """m and a of the steps that are taken at a time, in the memory of those before."""

    def __init__(self, inputs: Inputs, hidden: int, epsilon: float):
        like = inputs.products_m
        self.steps, self.n, _ = like.shape
        self.size, self.epsilon = window_of(like), epsilon
        self.products = [one.flatten(0, 1) for one in inputs.products]
        self.norms = Normalisation(1, *inputs.numbers[:2]), Normalisation(0, *inputs.numbers[2:])
        self.m, self.a = large_empty(like, (2, self.size, self.n, hidden))
        self.statistics: list[Statistics] = []

    def rows(self, first: int) -> slice:
        """The rows, among those of all steps, that are in the window whose first step it is."""
        return slice(first * self.n, min(first + self.size, self.steps) * self.n)

    def enter(self, first: int) -> None:
        """Makes m and a of a window."""
        rows = self.rows(first)
        self.statistics = [
            norm.forward(products[rows], y.flatten(0, 1)[: rows.stop - rows.start], self.epsilon)
            for norm, products, y in zip(self.norms, self.products, (self.m, self.a))
        ]

    def leave(self, first: int, gradients: Sequence[Tensor], dproducts: Sequence[Tensor], dnumbers: Sequence[Tensor]) -> None:
        """From the gradients of m and a of a window, which was entered last: writes those of its products, and adds to those of gains and
        biases."""
        rows = self.rows(first)
        for number, (norm, dy) in enumerate(zip(self.norms, gradients)):
            norm.backward(
                dy.flatten(0, 1)[: rows.stop - rows.start], self.products[number][rows], self.statistics[number],
                dproducts[number].flatten(0, 1)[rows], *dnumbers[2 * number : 2 * number + 2],
            )  # fmt: skip


def check(
    products_m, products_a, numbers, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, epsilon, keep
) -> None:  # fmt: skip
    """ValueError or TypeError that says what is wrong with the operands."""
    if gains.dim() != 2:
        raise ValueError(f"gains have the shape {tuple(gains.shape)}; it is [internal steps, hidden]")
    internal, hidden = gains.shape
    if len(values) != internal + 1 or internal < 2:
        raise ValueError(f"{len(values)} weights and {internal} gains; there is one for each of 2 or more internal steps, and gates")
    check_epsilon(epsilon)
    check_count("crows", crows, len(values))
    check_count("cols", cols, len(values))
    for number, one in enumerate(values):
        check_weight(one, crows[number], cols[number], hidden, hidden * (GATES if number == internal else 1))
    like, weight = products_m, values[0]
    if like.dim() != 3 or not like.shape[2] or hidden % like.shape[2]:
        raise ValueError(f"products for m have the shape {tuple(like.shape)}; it is [steps, n, a divisor of {hidden}]")
    if len(numbers) != 4:
        raise ValueError(f"{len(numbers)} gains and biases of inputs; there are 4, a gain and a bias of m, and of a")
    steps, n, _ = like.shape
    dtype, state = weight.dtype, state_type(weight.dtype)
    for name, one, shape, kind in (
        *((f"weight {number}", one, one.shape, dtype) for number, one in enumerate(values)),
        ("products for m", products_m, like.shape, dtype), ("products for a", products_a, like.shape, dtype),
        ("gains", gains, gains.shape, dtype), ("biases", biases, gains.shape, dtype),
        ("the gain of gates", gate_gain, (GATES * hidden,), dtype), ("the bias of gates", gate_bias, (GATES * hidden,), dtype),
        ("h0", h0, (n, hidden), dtype), ("c0", c0, (n, hidden), state), ("the mask", mask, (steps, n, hidden), dtype),
        *((f"{what} of {of}", one, like.shape[2:], state)
          for (of, what), one in zip(itertools.product("ma", ("the gain", "the bias")), numbers)),
    ):  # fmt: skip
        check_operand(name, one, shape, kind, weight)


def check_backward(
    dh, dc_n, products_m, products_a, numbers, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, h, kept,
    epsilon, needs_h0, needs_values,
) -> None:  # fmt: skip
    """ValueError or TypeError that says what is wrong with the operands of the backward pass."""
    check(products_m, products_a, numbers, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, epsilon, True)
    check_count("kept", kept, len(Kept._fields))
    check_count("needs_values", needs_values, len(values))
    steps, n, _ = products_m.shape
    of_all, weight = (steps, n, gains.shape[1]), values[0]
    check_operand("h", h, of_all, weight.dtype, weight)
    check_operand("the gradient of h", dh, of_all, weight.dtype, weight)
    check_operand("that of the last c", dc_n, c0.shape, c0.dtype, weight)
    for name, one, (like, shape) in zip(Kept._fields, kept, shapes_of_kept(products_m, c0, gains.shape[0], steps, n, gains.shape[1])):
        check_operand(name, one, shape, like.dtype, weight)


def shapes_of_kept(like: Tensor, state: Tensor, internal: int, steps: int, n: int, hidden: int) -> list[tuple[Tensor, tuple[int, ...]]]:
    """A tensor that each of Kept is like in type, and its shape."""
    return [
        (like, (internal, steps, n, hidden)), (like, (internal, steps, n, hidden)), (state, (internal, steps, n, 2)),
        (like, (steps, n, GATES * hidden)), (state, (steps, n, 2 * GATES)), (state, (steps, n, hidden)),
    ]  # fmt: skip


def _rows_of(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Those that there are as matrices [rows, features], whose rows are those of all their other dimensions."""
    return {name: one.flatten(0, -2) for name, one in tensors.items() if one is not None}


@kept_steps
def _forward_steps(begin: int, end: int, total: int, n: int, internal: int, keep: bool, masked: bool) -> Steps:
    """The launches of steps of one window, of `total` steps."""
    launches: list[Launch] = []

    def add(number: int, **operands: Rows) -> None:
        x, y = operands.pop("x"), operands.pop("y")
        of_all = {"gain": Rows(("gain", number)), "bias": Rows(("bias", number))}
        launches.append(Launch(number, n, {"x": x, "w": Rows(("w", number)), "y": y, **of_all, **operands}))

    for step in range(begin, end):
        place, of_window = step if keep else 0, (step - begin) * n
        x = Rows("h", (step - 1) * n, n) if step else Rows("h0")
        for number in range(internal):
            at = (number * (total if keep else 1) + place) * n
            inputs = {0: {"multiplier": Rows("m", of_window, n)}, 1: {"addend": Rows("a", of_window, n)}}.get(number, {})
            y = Rows("y", at, n)
            add(number, x=x, y=y, sums=Rows("sums", at, n), statistics=Rows("statistics", at, n), **inputs)
            x = y
        before = Rows("c0") if step == 0 else Rows("c", (step - 1 if keep else 0) * n, n)
        multiplier = {"multiplier": Rows("mask", step * n, n)} if masked else {}
        add(
            internal, x=x, y=Rows("h", step * n, n), sums=Rows("gate_sums", place * n, n),
            statistics=Rows("gate_statistics", place * n, n), c_before=before, c=Rows("c", place * n, n), **multiplier,
        )  # fmt: skip
    return Steps(launches, ("h", "y", "sums", "statistics", "gate_sums", "gate_statistics", "c"))


@kept_steps
def _backward_steps(begin: int, end: int, total: int, size: int, n: int, internal: int, divided: int, masked: bool) -> Steps:
    """The launches of the backward pass of steps of one window, of `total` steps and `size` in a window."""
    launches: list[Launch] = []

    def add(kernel: Hashable, number: int, **operands: Rows) -> None:
        dy, w, dx = (operands.pop(name) for name in ("dy", "w", "dx"))
        of_all = {"gain": Rows(("gain", number)), "bias": Rows(("bias", number))}
        launches.append(Launch(kernel, n, {"dy": dy, "w": w, "dx": dx, **of_all, **operands}))

    for step in reversed(range(begin, end)):
        place = step - begin
        of_window, at_step = place * n, step * n
        if step == total - 1:
            kernel, dy, w = "last", Rows("nothing"), Rows("no w")
        else:  # dz of the step after, which may be the first one of the window after this
            kernel, dy, w = "gates", Rows("dz", (place + 1) % size * n, n), Rows(("w", 0))
        multiplier = {"multiplier": Rows("mask", at_step, n)} if masked else {}
        add(
            kernel, internal, dy=dy, w=w, dx=Rows("dz_of_gates", of_window, n), residual=Rows("dh", of_window, n),
            sums=Rows("gate_sums", at_step, n), statistics=Rows("gate_statistics", at_step, n),
            c_before=Rows("c", (step - 1) * n, n) if step else Rows("c0"), c=Rows("c", at_step, n), dc=Rows("dc"), dc_before=Rows("dc"),
            dnorm=Rows("dnorm of gates"), **multiplier,
        )  # fmt: skip
        dy = Rows("dz_of_gates", of_window, n)
        for number in reversed(range(internal)):
            others = {
                0: {"multiplier": Rows("m", of_window, n), "dmultiplier": Rows("dm", of_window, n)},
                1: {"addend": Rows("a", of_window, n), "daddend": Rows("da", of_window, n)},
            }.get(number, {})  # fmt: skip
            at, dx = (number * total + step) * n, Rows("dz", (number * size + place) * n, n)
            add(
                number, number, dy=dy, w=Rows(("w", number + 1)), dx=dx, sums=Rows("sums", at, n), statistics=Rows("statistics", at, n),
                dnorm=Rows("dnorm", number * divided, divided), **others,
            )  # fmt: skip
            dy = dx
    return Steps(launches, ("dz", "dz_of_gates", "dm", "da", "dc", "dnorm", "dnorm of gates"))


def forward(
    inputs: Inputs, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, epsilon, keep
) -> tuple[Tensor, ...]:  # fmt: skip
    """h of all steps, the last c, and Kept, empty if not `keep`."""
    check(*inputs, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, epsilon, keep)
    like, hidden = inputs.products_m, gains.shape[1]
    steps, n, _ = like.shape
    network = Network(values, crows, cols, gains, biases, gate_gain, gate_bias, mask is not None)
    window = Window(inputs, hidden, epsilon)
    kept = Kept(*(large_empty(*one) for one in shapes_of_kept(like, c0, network.gates, steps if keep else 1, n, hidden)))
    h_of_all = large_empty(like, (steps, n, hidden))
    kernels = {
        number: weight.kernel("forward", epilogue_of(number) if number < network.gates else network.of_cell, n)
        for number, weight in enumerate(network.weights)
    }
    tensors = network.tensors() | _rows_of(
        h=h_of_all, h0=readable(h0, 16), c0=readable(c0, 16), mask=None if mask is None else mask.contiguous(), m=window.m, a=window.a,
        **kept._asdict(),
    )  # fmt: skip
    for begin in range(0, steps, window.size):
        window.enter(begin)
        end = min(begin + window.size, steps)
        run_steps(_forward_steps(begin, end, steps, n, network.gates, keep, mask is not None), kernels, tensors, epsilon)
    c = kept.c[steps - 1 if keep else 0] if steps else c0
    c_n = c.clone(memory_format=torch.contiguous_format)
    return h_of_all, c_n, *(kept if keep else (one.new_empty(0) for one in kept))


class Gradients(NamedTuple):
    products_m: Tensor
    products_a: Tensor
    numbers: list[Tensor]
    h0: Tensor
    c0: Tensor
    values: list[Tensor]
    gains: Tensor
    biases: Tensor
    gate_gain: Tensor
    gate_bias: Tensor


def backward(
    dh, dc_n, inputs: Inputs, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, h, kept: Kept, epsilon, needs_h0,
    needs_values,
) -> Gradients:  # fmt: skip
    """The gradients of h0 and of weights that are not needed are empty."""
    check_backward(
        dh, dc_n, *inputs, h0, c0, values, crows, cols, gains, biases, gate_gain, gate_bias, mask, h, kept, epsilon, needs_h0,
        needs_values,
    )  # fmt: skip
    like, hidden = inputs.products_m, gains.shape[1]
    steps, n, _ = like.shape
    network = Network(values, crows, cols, gains, biases, gate_gain, gate_bias, mask is not None)
    internal = network.gates
    h0, c0 = readable(h0, 16), readable(c0, 16)
    mask = None if mask is None else mask.contiguous()
    window = Window(inputs, hidden, epsilon)
    dz = large_empty(like, (internal, window.size, n, hidden))
    dz_of_gates = large_empty(like, (window.size, n, GATES * hidden))
    dm, da = large_empty(like, (2, window.size, n, hidden))
    dproducts = [large_empty(one, one.shape) for one in inputs.products]
    dnumbers = [torch.zeros_like(one, memory_format=torch.contiguous_format) for one in inputs.numbers]
    dc = torch.zeros_like(c0) if dc_n is None else dc_n.clone(memory_format=torch.contiguous_format)
    divided = products.parts(n, like.device)
    dnorm = dc.new_zeros((internal, divided, 2 * hidden))
    dnorm_of_gates = dc.new_zeros((divided, 2 * GATES * hidden))
    dvalues = [one.new_zeros(one.shape if needed else 0) for one, needed in zip(values, needs_values)]
    nothing = products.no_blocks(hidden, values[0])  # the last step's gates are read by no product
    kernels = {
        "last": nothing.kernel("grad_input", f"{network.of_cell}+residual", n),
        "gates": network.weights[0].kernel("grad_input", f"{network.of_cell}+residual", n),
        **{number: network.weights[number + 1].kernel("grad_input", epilogue_of(number), n) for number in range(internal)},
    }
    tensors = network.tensors() | _rows_of(
        c0=c0, mask=mask, m=window.m, a=window.a, dz=dz, dz_of_gates=dz_of_gates, dm=dm, da=da, dnorm=dnorm, **kept._asdict()
    )  # fmt: skip
    tensors |= {"no w": nothing.values, "nothing": dh.new_empty((n, values[0].shape[1])), "dc": dc, "dnorm of gates": dnorm_of_gates}
    for begin in reversed(range(0, steps, window.size)):
        window.enter(begin)
        end = min(begin + window.size, steps)
        tensors["dh"] = readable(dh[begin:end].flatten(0, 1), 16)
        launches = _backward_steps(begin, end, steps, window.size, n, internal, divided, mask is not None)
        run_steps(launches, kernels, tensors)
        network.add_gradients(dvalues, needs_values, h, h0, kept.y, dz, dz_of_gates, slice(begin, end))
        window.leave(begin, (dm, da), dproducts, dnumbers)
    dh0 = h0.new_zeros(h0.shape if needs_h0 else 0)
    if steps and needs_h0:
        first = network.weights[0]
        run(first.kernel("grad_input", "none", n), n, dz[0, 0], first.values, dh0)
    dnorm, dnorm_of_gates = dnorm.sum(1), dnorm_of_gates.sum(0)
    return Gradients(
        *dproducts, dnumbers, dh0, dc, dvalues, *(one.to(gains.dtype, copy=True) for one in dnorm.split(hidden, 1)),
        *(one.to(gains.dtype, copy=True) for one in dnorm_of_gates.split(GATES * hidden)),
    )  # fmt: skip
