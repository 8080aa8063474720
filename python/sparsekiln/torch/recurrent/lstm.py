"""BlockSparseLSTM and BlockSparseLSTMCell: nn.LSTM and nn.LSTMCell whose recurrent weight has only the blocks of its layout."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

import sparsekiln
from sparsekiln._arguments import flag, integer, real

from ..blocks import parse_block, strongest
from ..dispatch import refuse_forward_mode
from ..kernels import kernels_of
from ..launch_overlap import asked_of
from ..layouts import four_times
from ..linear.layer import BlockSparseLinear
from ..operands import check_tensor
from . import lstm_operators
from .inner_modules import InnerDense, InnerLinear, run_within
from .lstm_steps import GATES, keeps_for_backward, pair, plain_size, state_type

Tensor = torch.Tensor


def _gate_layout(layout: Any) -> "sparsekiln.Layout":
    return layout if isinstance(layout, sparsekiln.Layout) else sparsekiln.Layout(layout)


class _OfGates(InnerLinear):
    """A weight of four gates with the same blocks, whose rows follow one another."""

    parts_alike = GATES

    def _fitting(self, layout: Any) -> "sparsekiln.Layout":
        layout = super()._fitting(layout)
        kernels_of(layout).of_gate()  # ValueError if there are others
        return layout


class _Gates(torch.nn.Module):
    """The weights of one layer in one direction: of its input, with the bias, and of its h."""

    def __init__(
        self, inputs: int, hidden: int, bias: bool, layout: Any, input_layout: Any, block: Any, device: Any, dtype: Any, overlap: bool
    ):  # fmt: skip
        super().__init__()
        options = {"device": device, "dtype": dtype}
        sides = parse_block(block)
        if hidden % sides[0] or hidden % sides[1]:
            raise ValueError(f"{hidden} hidden features are no multiple of blocks of {sides[0]}x{sides[1]}, which they fill")
        self.hidden = hidden
        self.recurrent = _OfGates(
            hidden, GATES * hidden, four_times(_gate_layout(layout)), sides, bias=False, **options
        )  # fmt: skip
        if input_layout is None:
            self.input = InnerDense(inputs, GATES * hidden, bias, **options)
        else:
            self.input = BlockSparseLinear(
                inputs, GATES * hidden, four_times(_gate_layout(input_layout)), sides, bias, **options
            )  # fmt: skip
        self.overlap = overlap
        self.reset_parameters()

    @property
    def overlap(self) -> bool:
        """The setting of each block-sparse layer within it."""
        return self.recurrent.overlap

    @overlap.setter
    def overlap(self, on: bool) -> None:
        self.recurrent.overlap = on
        if isinstance(self.input, BlockSparseLinear):
            self.input.overlap = on

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Uniform: dense weights and the bias in ±1/√hidden like nn.LSTM's, blocks in ±1/√fan_in."""
        bound = 1 / math.sqrt(self.hidden)
        self.recurrent.reset_parameters()
        if isinstance(self.input, BlockSparseLinear):
            self.input.reset_parameters()
        else:
            torch.nn.init.uniform_(self.input.weight, -bound, bound)
        if self.input.bias is not None:
            torch.nn.init.uniform_(self.input.bias, -bound, bound)

    def forward(self, x: Tensor, h: Tensor, c: Tensor, batch_sizes: Sequence[int], reverse: bool) -> tuple[Tensor, Tensor, Tensor]:
        """x [rows, inputs], h and c [n, hidden]; h of all steps, and the last h and c of each sequence."""
        if not torch.compiler.is_compiling():
            refuse_forward_mode()
        projection = self.input(x)
        return run_within([self.recurrent], lambda: self._steps(projection, h, c, batch_sizes, reverse))

    def _steps(
        self, projection: Tensor, h: Tensor, c: Tensor, batch_sizes: Sequence[int], reverse: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        values, crow, col = self.recurrent._operands()
        if not torch.compiler.is_compiling():
            self.recurrent._check_indices(crow, col)
        if values.dtype != projection.dtype:  # under torch.autocast
            values = values.to(projection.dtype)
        keep = keeps_for_backward(projection, h, c, values)
        steps, h_n, c_n, *_ = lstm_operators.lstm(
            projection, h.to(projection.dtype), c.to(state_type(projection.dtype)), values, crow, col, batch_sizes, reverse, keep,
            not keep and asked_of(self.recurrent._ask_to_overlap(), values),
        )  # fmt: skip
        return steps, h_n, c_n.to(projection.dtype)

    @torch.no_grad()
    def copy_dense(self, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor | None) -> None:
        if isinstance(self.input, BlockSparseLinear):
            self.input._write_values(self.input.blocks_of(weight_ih))
        else:
            self.input.weight.copy_(weight_ih)
        self.recurrent._write_values(self.recurrent.blocks_of(weight_hh))
        if bias is not None:
            self.input.bias.copy_(bias)

    def dense(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """weight_ih, weight_hh and the bias, detached."""
        of_input = self.input.to_dense() if isinstance(self.input, BlockSparseLinear) else self.input.weight
        bias = None if self.input.bias is None else self.input.bias.detach()
        return of_input.detach(), self.recurrent.to_dense().detach(), bias


class BlockSparseLSTM(torch.nn.Module):
    """nn.LSTM whose recurrent weight W_hh is block-sparse, and W_ih where there is an `input_layout`.

    Takes and gives what nn.LSTM does: x [steps, n, input_size], or [n, steps, input_size] with batch_first, or one sequence
    without n, or a PackedSequence; and (h0, c0), [layers · directions, n, hidden_size] each. Each step is one launch, in which
    the products of the four gates meet in registers; the backward pass has one launch a step, and few for the gradient of the
    weight, and for that of h0 where it is needed. c is kept in float32 (of float64 layers in float64) from step to step.

    input_size … dtype  as nn.LSTM's; proj_size is not supported
    layout        of the recurrent weight of one gate, the same for all four: blocks of [hidden_size, hidden_size], or a list
                  with one for each layer and direction, in the order of nn.LSTM's weights
    input_layout  of the weight of one gate for the input, or a list likewise; None for dense ones
    block         side of a block: 8, 16, 32, 64 or 128; hidden_size is a multiple of it. On CUDA 16 or more, except in float32
    overlap       as in BlockSparseLinear. All steps but the first of a call may begin early, whatever has been written before

    There is one bias, where nn.LSTM adds two. torch.jit.trace records it for one number of steps and sequences.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None,
        dtype: torch.dtype | None = None, *, layout: Any, input_layout: Any = None, block: int | tuple[int, int] = 32,
        overlap: bool = False,
    ):  # fmt: skip
        super().__init__()
        if integer("proj_size", proj_size):
            raise ValueError(f"proj_size={proj_size}: h has hidden_size features; a BlockSparseLinear after the layer would project it")
        input_size, hidden_size = integer("input_size", input_size, 0), integer("hidden_size", hidden_size, 1)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, integer("num_layers", num_layers)
        if num_layers < 1:
            raise ValueError(f"{num_layers} layers; one or more would work")
        self.dropout = real("dropout", dropout)
        if not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout={dropout}: it is a probability, from 0 to 1")
        self.bias, self.batch_first = flag("bias", bias), flag("batch_first", batch_first)
        self.bidirectional = flag("bidirectional", bidirectional)
        self.proj_size = 0
        self.gates = torch.nn.ModuleList()
        all_of_them = self.num_layers * self.directions
        layouts = _one_for_each(layout, all_of_them, "layout")
        input_layouts = _one_for_each(input_layout, all_of_them, "input_layout")
        for number in range(all_of_them):
            inputs = input_size if number < self.directions else hidden_size * self.directions
            self.gates.append(_Gates(inputs, hidden_size, bias, layouts[number], input_layouts[number], block, device, dtype, overlap))

    @property
    def overlap(self) -> bool:
        """Whether launches of inference may begin early, by each block-sparse layer within it. May be set."""
        return self.gates[0].overlap

    @overlap.setter
    def overlap(self, on: bool) -> None:
        for gates in self.gates:
            gates.overlap = on

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @classmethod
    def from_lstm(
        cls, lstm: torch.nn.LSTM, density: float = 0.1, block: int | tuple[int, int] = 32, layout: Any = None,
        input_layout: Any = None, overlap: bool = False,
    ) -> "BlockSparseLSTM":  # fmt: skip
        """A dense layer's weights: the recurrent blocks whose Frobenius norm over all four gates is largest, `density` × all of them;
        or those of `layout`."""
        if not isinstance(lstm, torch.nn.LSTM):
            raise TypeError(f"from_lstm was given a {type(lstm).__name__}; an nn.LSTM would work")
        if lstm.proj_size:
            raise ValueError(f"an nn.LSTM with proj_size={lstm.proj_size}; one without would work")
        weights = [_dense_weights(lstm, number) for number in range(lstm.num_layers * (2 if lstm.bidirectional else 1))]
        if layout is None:
            layout = [strongest(_norm_of_gates(weight_hh), density, parse_block(block)) for _, weight_hh, _ in weights]
        first = weights[0][0]
        layer = cls(
            lstm.input_size, lstm.hidden_size, lstm.num_layers, lstm.bias, lstm.batch_first, lstm.dropout, lstm.bidirectional, 0,
            first.device, first.dtype, layout=layout, input_layout=input_layout, block=block, overlap=overlap,
        )  # fmt: skip
        for number, (gates, dense) in enumerate(zip(layer.gates, weights)):
            gates.copy_dense(*dense)
            suffix = _suffix(number, layer.directions)
            for name, of_gates in (("ih", gates.input), ("hh", gates.recurrent)):
                for parameter in of_gates.parameters():
                    parameter.requires_grad_(getattr(lstm, f"weight_{name}_{suffix}").requires_grad)
        return layer.train(lstm.training)

    def to_dense(self) -> torch.nn.LSTM:
        """An nn.LSTM with these weights; its bias_hh is 0."""
        weight = self.gates[0].recurrent.weight_values
        bias = self.gates[0].input.bias is not None
        dense = torch.nn.LSTM(
            self.input_size, self.hidden_size, self.num_layers, bias, self.batch_first, self.dropout, self.bidirectional,
            device=weight.device, dtype=weight.dtype,
        )  # fmt: skip
        with torch.no_grad():
            for number, gates in enumerate(self.gates):
                suffix = _suffix(number, self.directions)
                weight_ih, weight_hh, of_input = gates.dense()
                getattr(dense, f"weight_ih_{suffix}").copy_(weight_ih)
                getattr(dense, f"weight_hh_{suffix}").copy_(weight_hh)
                if of_input is not None:
                    getattr(dense, f"bias_ih_{suffix}").copy_(of_input)
                    getattr(dense, f"bias_hh_{suffix}").zero_()
        return dense.train(self.training)

    def reset_parameters(self) -> None:
        for gates in self.gates:
            gates.reset_parameters()

    def flatten_parameters(self) -> None:
        """Does nothing: nn.LSTM has it."""

    # ---- use ----

    def forward(self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:  # noqa: A002
        hx = None if hx is None else pair(hx)
        if isinstance(input, PackedSequence):
            sizes = input.batch_sizes.tolist()
            if hx is not None and input.sorted_indices is not None:
                hx = hx[0].index_select(1, input.sorted_indices), hx[1].index_select(1, input.sorted_indices)
            rows, (h_n, c_n) = self._run(input.data, sizes, hx)
            if input.unsorted_indices is not None:
                h_n, c_n = h_n.index_select(1, input.unsorted_indices), c_n.index_select(1, input.unsorted_indices)
            return PackedSequence(rows, input.batch_sizes, input.sorted_indices, input.unsorted_indices), (h_n, c_n)
        check_tensor(input)
        if input.dim() not in (2, 3) or input.shape[-1] != self.input_size:
            raise ValueError(
                f"the input has the shape {tuple(input.shape)}; this layer takes "
                f"{'[n, steps' if self.batch_first else '[steps, n'}, {self.input_size}], or one sequence without n"
            )
        single = input.dim() == 2
        x = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input
        if single and hx is not None:
            hx = hx[0].unsqueeze(1), hx[1].unsqueeze(1)
        count, n = map(plain_size, x.shape[:2])
        if count == 0:
            raise ValueError("a sequence without steps; one or more would work")
        rows, (h_n, c_n) = self._run(x.reshape(count * n, self.input_size), [n] * count, hx)
        y = rows.reshape(count, n, self.directions * self.hidden_size)
        if single:
            return y.squeeze(1), (h_n.squeeze(1), c_n.squeeze(1))
        return y.transpose(0, 1) if self.batch_first else y, (h_n, c_n)

    def _run(self, x: Tensor, sizes: list[int], hx: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        n = sizes[0] if sizes else 0
        shape = (len(self.gates), n, self.hidden_size)
        if hx is None:
            h0 = c0 = x.new_zeros(shape)
        else:
            h0, c0 = hx
            for name, state in (("h0", h0), ("c0", c0)):
                if tuple(state.shape) != shape:
                    raise ValueError(f"{name} has the shape {tuple(state.shape)}; this layer takes {list(shape)} for this input")
        last = []
        for layer in range(self.num_layers):
            if layer > 0 and self.dropout:
                x = torch.nn.functional.dropout(x, self.dropout, self.training)
            of_layer = []
            for direction in range(self.directions):
                number = layer * self.directions + direction
                y, *state = self.gates[number](x, h0[number], c0[number], sizes, direction == 1)
                of_layer.append(y)
                last.append(state)
            x = of_layer[0] if len(of_layer) == 1 else torch.cat(of_layer, 1)
        return x, (torch.stack([h for h, _ in last]), torch.stack([c for _, c in last]))

    def extra_repr(self) -> str:
        layout = self.gates[0].recurrent.layout
        text = f"{self.input_size}, {self.hidden_size}, density={layout.density:.4g}"
        for name, default in (("num_layers", 1), ("batch_first", False), ("dropout", 0.0), ("bidirectional", False), ("overlap", False)):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text


class BlockSparseLSTMCell(torch.nn.Module):
    """nn.LSTMCell whose recurrent weight is block-sparse: x [n, input_size] and (h, c), [n, hidden_size] each, give the next
    (h, c). Arguments as BlockSparseLSTM's."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: torch.dtype | None = None, *,
        layout: Any, input_layout: Any = None, block: int | tuple[int, int] = 32, overlap: bool = False,
    ):  # fmt: skip
        super().__init__()
        self.input_size, self.hidden_size = integer("input_size", input_size, 0), integer("hidden_size", hidden_size, 1)
        options = input_layout, block, device, dtype, overlap
        self.gates = _Gates(self.input_size, self.hidden_size, flag("bias", bias), layout, *options)

    @property
    def overlap(self) -> bool:
        """As BlockSparseLSTM's."""
        return self.gates.overlap

    @overlap.setter
    def overlap(self, on: bool) -> None:
        self.gates.overlap = on

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:  # noqa: A002
        check_tensor(input)
        if input.dim() not in (1, 2) or input.shape[-1] != self.input_size:
            raise ValueError(f"the input has the shape {tuple(input.shape)}; this cell takes [n, {self.input_size}]")
        x = input.unsqueeze(0) if input.dim() == 1 else input
        if hx is None:
            h = c = x.new_zeros((x.shape[0], self.hidden_size))
        else:
            h, c = (state.unsqueeze(0) if input.dim() == 1 else state for state in pair(hx))
        _, h, c = self.gates(x, h, c, [plain_size(x.shape[0])], False)
        return (h.squeeze(0), c.squeeze(0)) if input.dim() == 1 else (h, c)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}, density={self.gates.recurrent.layout.density:.4g}"
        return f"{text}, overlap=True" if self.overlap else text


def _one_for_each(given: Any, count: int, name: str) -> Sequence[Any]:
    """A list of layouts as it is; one for all repeated. Nested lists of numbers are one layout."""
    is_list = isinstance(given, (list, tuple)) and all(one is None or _is_layout(one) for one in given)
    if not is_list:
        return [given] * count
    if len(given) != count:
        raise ValueError(f"{len(given)} of {name}; there is one for each layer and direction, {count}, or one for all")
    return given


def _is_layout(one: Any) -> bool:
    return isinstance(one, sparsekiln.Layout) or np.ndim(one) == 2


def _suffix(number: int, directions: int) -> str:
    return f"l{number // directions}" + ("_reverse" if number % directions else "")


def _dense_weights(lstm: torch.nn.LSTM, number: int) -> tuple[Tensor, Tensor, Tensor | None]:
    suffix = _suffix(number, 2 if lstm.bidirectional else 1)
    weights = [getattr(lstm, f"weight_{of}_{suffix}").detach() for of in ("ih", "hh")]
    bias = None
    if lstm.bias:
        bias = getattr(lstm, f"bias_ih_{suffix}").detach() + getattr(lstm, f"bias_hh_{suffix}").detach()
    return weights[0], weights[1], bias


def _norm_of_gates(weight_hh: Tensor) -> Tensor:
    """[hidden, hidden]: elements whose squares are the sums of those of all gates."""
    return weight_hh.reshape(GATES, -1, weight_hh.shape[1]).square().sum(0).sqrt()

