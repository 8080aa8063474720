"""SmallWorldLSTM: the recurrent network of Gray, Radford & Kingma 2017 (GPU Kernels for Block-Sparse Weights, §4)."""

from collections.abc import Sequence
from typing import Any

import torch

import sparsekiln
from sparsekiln._arguments import integer, real, shown

from ..dispatch import refuse_derivatives, refuse_forward_mode
from ..layouts import four_times
from ..operands import autocast, check_tensor
from . import small_world_operators
from .inner_modules import InnerDense, InnerLinear, InnerNorm, run_within
from .lstm_steps import GATES, keeps_for_backward, pair, state_type

Tensor = torch.Tensor

_EPSILON = 1e-6


class SmallWorldLSTM(torch.nn.Module):
    """A multiplicative LSTM (Krause et al. 2016) that mixes h through several block-sparse layers in each step, every one of them
    normalised (Ba, Kiros & Hinton 2016), with layouts that differ from layer to layer. In a step of time

        h ← LN(W₀h) ⊙ m                            internal step 0
        h ← relu(LN(W₁h) + a)                      internal step 1
        h ← relu(LN(Wₛh))                          internal steps 2, 3, …
        i, f, o = sigmoid(LN(W_i h)), sigmoid(LN(W_f h)), sigmoid(LN(W_o h));  u = tanh(LN(W_u h))
        c ← f·c + i·u;  h ← o·tanh(c)

    LN is layer normalisation over all units, with a gain and a bias of each layer. m and a are normalised projections of the
    input onto every `projection_stride`-th unit, which they multiply and are added to; the other units stay. Weights start as the
    identity, gains as 1, biases as 0, and that of f as 1.

    Takes x [steps, n, input_size] and (h, c), [1, n, hidden_size] each, and gives y [steps, n, hidden_size] and the next (h, c),
    as nn.LSTM does. Detach the state to truncate the back-propagation. c is kept in float32 (of float64 layers in float64).

    layouts     sparsekiln.Layout of each internal step and, last, of the gates: internal_steps + 1 of them, with the diagonal;
                None for small worlds of the given density (patterns.watts_strogatz, half of the blocks rewired)
    dropout     of u, in training

    Gates are in nn.LSTM's order: i, f, u, o. Each internal step and all gates together are one launch, which normalises, and so
    is each of them in the backward pass; gradients of weights are launches of many rows, of several steps or of all.
    """

    def __init__(
        self, input_size: int, hidden_size: int, layouts: Sequence[Any] | None = None, *, internal_steps: int = 5,
        density: float = 0.03, block: int = 32, projection_stride: int = 2, dropout: float = 0.0, seed: int = 0,
        device: Any = None, dtype: torch.dtype | None = None,
    ):  # fmt: skip
        super().__init__()
        input_size, hidden_size, block = integer("input_size", input_size, 0), integer("hidden_size", hidden_size), integer("block", block, 1)
        internal_steps = integer("internal_steps", internal_steps)
        projection_stride = integer("projection_stride", projection_stride)
        dropout, density, seed = real("dropout", dropout), real("density", density), integer("seed", seed, 0)
        if internal_steps < 2:
            raise ValueError(f"{internal_steps} internal steps; m and a enter in two of them, so 2 or more would work")
        if hidden_size % block or hidden_size < block:
            raise ValueError(f"{hidden_size} hidden features are no multiple of blocks of {block}, which they fill")
        if projection_stride < 1 or hidden_size % projection_stride:
            raise ValueError(f"a projection stride of {projection_stride}: {hidden_size} hidden features are no multiple of it")
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout={dropout}: it is a probability, from 0 to 1")
        self.input_size, self.hidden_size, self.internal_steps = input_size, hidden_size, internal_steps
        self.projection_stride, self.dropout = projection_stride, dropout
        layouts = _layouts(layouts, internal_steps + 1, hidden_size // block, density, seed)
        options = {"device": device, "dtype": dtype}
        projected = hidden_size // projection_stride
        self.multiply = InnerDense(input_size, projected, bias=False, **options)
        self.add = InnerDense(input_size, projected, bias=False, **options)
        self.internal = torch.nn.ModuleList(
            InnerLinear(hidden_size, hidden_size, one, block, bias=False, **options) for one in layouts[:-1]
        )
        self.gates = InnerLinear(hidden_size, GATES * hidden_size, four_times(layouts[-1]), block, bias=False, **options)
        self.multiply_norm = InnerNorm(projected, _EPSILON, **options)
        self.add_norm = InnerNorm(projected, _EPSILON, **options)
        self.internal_norms = torch.nn.ModuleList(InnerNorm(hidden_size, _EPSILON, **options) for _ in self.internal)
        self.gate_gains = torch.nn.Parameter(torch.empty(GATES, hidden_size, **options))
        self.gate_biases = torch.nn.Parameter(torch.empty(GATES, hidden_size, **options))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for projection in (self.multiply, self.add):
            projection.weight.copy_(_repeated_identity(*projection.weight.shape).to(projection.weight))
        eye = torch.eye(self.hidden_size, device=self.gates.weight_values.device)
        for layer in self.internal:
            layer._write_values(layer.blocks_of(eye))
        self.gates._write_values(self.gates.blocks_of(eye.repeat(GATES, 1)))
        for norm in (self.multiply_norm, self.add_norm, *self.internal_norms):
            norm.reset_parameters()
        self.gate_gains.fill_(1)
        self.gate_biases.zero_()
        self.gate_biases[1] = 1  # of f

    def forward(self, x: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        check_tensor(x)
        if x.dim() != 3 or x.shape[2] != self.input_size:
            raise ValueError(f"the input has the shape {tuple(x.shape)}; this layer takes [steps, n, {self.input_size}]")
        n = x.shape[1]
        if not torch.compiler.is_compiling():
            refuse_forward_mode()
            refuse_derivatives("small-world LSTMs")
        products = autocast(x.device.type, self.multiply(x), self.add(x))
        like = products[0]
        if hx is None:
            h = like.new_zeros((n, self.hidden_size))
            c = like.new_zeros((n, self.hidden_size), dtype=state_type(like.dtype))
        else:
            hx = pair(hx)
            for name, state in (("h", hx[0]), ("c", hx[1])):
                if tuple(state.shape) != (1, n, self.hidden_size):
                    raise ValueError(f"{name} has the shape {tuple(state.shape)}; this layer takes [1, {n}, {self.hidden_size}]")
            h, c = hx[0][0], hx[1][0].to(state_type(like.dtype))
        parts = [*self.internal, self.gates, self.multiply_norm, self.add_norm, *self.internal_norms]
        y, c = run_within(parts, lambda: self._steps(products, h.to(like.dtype), c))
        last = y[-1] if x.shape[0] else h
        return y, (last.unsqueeze(0), c.to(y.dtype).unsqueeze(0))

    def _steps(self, products: Sequence[Tensor], h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """h of all steps, and the last c. `products`: those of the input that m and a are made of."""
        layers = [*self.internal, self.gates]
        weights, crows, cols = zip(*(layer._operands() for layer in layers))
        if not torch.compiler.is_compiling():
            for layer, crow, col in zip(layers, crows, cols):
                layer._check_indices(crow, col)
        like = products[0]
        mask = None
        if self.training and self.dropout:
            mask = torch.nn.functional.dropout(like.new_ones((*like.shape[:2], self.hidden_size)), self.dropout)
        values = autocast(like.device.type, *weights)
        numbers = autocast(
            like.device.type, torch.stack([norm.weight for norm in self.internal_norms]),
            torch.stack([norm.bias for norm in self.internal_norms]), self.gate_gains.flatten(), self.gate_biases.flatten(),
        )  # fmt: skip
        of_inputs = [one.to(c.dtype) for norm in (self.multiply_norm, self.add_norm) for one in (norm.weight, norm.bias)]
        keep = keeps_for_backward(*products, *of_inputs, h, c, *values, *numbers)
        y, c_n, *_ = small_world_operators.small_world_lstm(
            *products, of_inputs, h, c, values, crows, cols, *numbers, mask, _EPSILON, keep
        )  # fmt: skip
        return y, c_n

    def extra_repr(self) -> str:
        density = self.internal[0].layout.density
        return f"{self.input_size}, {self.hidden_size}, internal_steps={self.internal_steps}, density={density:.4g}"


def _layouts(given: Sequence[Any] | None, count: int, side: int, density: float, seed: int) -> list["sparsekiln.Layout"]:
    if given is None:
        return [
            sparsekiln.patterns.watts_strogatz(side, side, max(density, 1 / side), 0.5, seed=seed * count + number, diagonal=True)
            for number in range(count)
        ]
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise TypeError(f"layouts is {shown(given)}; a list of {count} layouts would work")
    if len(given) != count:
        raise ValueError(f"{len(given)} layouts; each internal step and the gates have one, {count} together")
    layouts = [one if isinstance(one, sparsekiln.Layout) else sparsekiln.Layout(one) for one in given]
    for number, layout in enumerate(layouts):
        if not all(layout.mask().diagonal()):
            raise ValueError(f"layout {number} lacks blocks of the diagonal, with which the weights start")
    return layouts


def _repeated_identity(rows: int, columns: int) -> Tensor:
    """1 where the row and the column are alike, modulo the smaller number of them."""
    least = min(rows, columns)
    of_rows, of_columns = (torch.arange(count, device="cpu") % least for count in (rows, columns))
    return (of_rows[:, None] == of_columns).float()
