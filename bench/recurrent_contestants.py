"""What bench/recurrent.py compares recurrent layers with: the same networks of PyTorch's operators around block-sparse products,
dense networks of as many parameters, and products alone."""

import torch

from sparsekiln.torch import BlockSparseLinear, BlockSparseLSTM, SmallWorldLSTM
from sparsekiln.torch.launches import run
from sparsekiln.torch.memory import large_empty
from sparsekiln.torch.recurrent import normalised_products, small_world_steps
from sparsekiln.torch.recurrent.lstm_steps import GATES
from sparsekiln.torch.recurrent.normalised_products import Norm

_EPSILON = 1e-6


class SeparateLSTM(torch.nn.Module):
    """What a BlockSparseLSTM is without kernels of its own: one product for the four gates of a step, and PyTorch's operators."""

    def __init__(self, ours: BlockSparseLSTM):
        super().__init__()
        gates = ours.gates[0]
        recurrent = gates.recurrent
        self.input = torch.nn.Linear(ours.input_size, GATES * ours.hidden_size)
        self.recurrent = BlockSparseLinear(ours.hidden_size, GATES * ours.hidden_size, recurrent.layout, recurrent.block, bias=False)
        self.input.load_state_dict(gates.input.state_dict())
        self.recurrent.load_state_dict(recurrent.state_dict())
        self.units = ours.hidden_size

    def forward(self, x):
        projection = self.input(x)
        h = c = x.new_zeros((x.shape[1], self.units))
        steps = []
        for z in projection:
            i, f, g, o = (z + self.recurrent(h)).chunk(GATES, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            steps.append(h)
        return torch.stack(steps), (h, c)


class SeparateSmallWorld(torch.nn.Module):
    """What a SmallWorldLSTM is without kernels of its own: a product for each internal step and for all gates, and PyTorch's operators.
    Has the parameters of `ours` itself."""

    def __init__(self, ours: SmallWorldLSTM):
        super().__init__()
        self.ours = ours

    def forward(self, x):
        ours = self.ours
        m = self._on_units(ours.multiply_norm(ours.multiply(x)), 1)
        a = self._on_units(ours.add_norm(ours.add(x)), 0)
        units = ours.hidden_size
        h = c = x.new_zeros((x.shape[1], units))
        steps = []
        for of_m, of_a in zip(m, a):
            for number, (layer, norm) in enumerate(zip(ours.internal, ours.internal_norms)):
                h = norm(layer(h))
                if number == 0:
                    h = h * of_m
                else:
                    h = torch.relu(h + of_a if number == 1 else h)
            z = ours.gates(h).unflatten(-1, (GATES, units))
            z = torch.nn.functional.layer_norm(z, (units,), None, None, _EPSILON) * ours.gate_gains + ours.gate_biases
            i, f, u, o = z.unbind(-2)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
            h = torch.sigmoid(o) * torch.tanh(c)
            steps.append(h)
        return torch.stack(steps), (h, c)

    def _on_units(self, projected, elsewhere: float):
        """[steps, n, units]: what is projected, on every projection_stride-th unit."""
        others = projected.new_full((*projected.shape, self.ours.projection_stride - 1), elsewhere)
        return torch.cat([projected.unsqueeze(-1), others], -1).flatten(-2)


class SmallWorldKernels:
    """The launches of a SmallWorldLSTM for some steps, forward and backward, in memory that is there: with normalisation, or the
    products alone."""

    def __init__(self, ours: SmallWorldLSTM, steps: int, n: int):
        layers = [*ours.internal, ours.gates]
        units = ours.hidden_size
        gains = torch.stack([norm.weight.detach() for norm in ours.internal_norms])
        self.network = small_world_steps.Network(
            [layer.weight_values.detach() for layer in layers], [layer.crow_indices for layer in layers],
            [layer.col_indices for layer in layers], gains, torch.zeros_like(gains), ours.gate_gains.detach().flatten(),
            ours.gate_biases.detach().flatten(), False,
        )  # fmt: skip
        self.steps, self.n = steps, n
        x = torch.randn(n, units)
        shapes = small_world_steps.shapes_of_kept(x, x, len(ours.internal), 1, n, units)
        self.kept = small_world_steps.Kept(*(large_empty(*one) for one in shapes))
        self.h, self.c, self.m, self.a, self.dh, self.dc, self.dm, self.da = (torch.randn(n, units) for _ in range(8))
        self.dz, self.dz_of_gates = torch.randn(len(ours.internal), n, units), torch.randn(n, GATES * units)
        parts = normalised_products.parts(n, x.device)
        self.dnorm, self.dnorm_of_gates = torch.zeros(len(ours.internal), parts, 2 * units), torch.zeros(parts, 2 * GATES * units)
        self.window = min(steps, -(-small_world_steps.ROWS // n))
        rows = self.window * n
        self.x_rows, self.dz_rows, self.dz_of_gates_rows = (torch.randn(rows, k * units) for k in (1, 1, GATES))
        self.normalised()

    def normalised(self) -> None:
        """All steps forward, and all backward."""
        network, kept = self.network, self.kept
        of_gates = Norm(network.of_cell, network.gains[-1], network.biases[-1], kept.gate_sums[0], kept.gate_statistics[0])
        norms = [
            Norm(
                small_world_steps.epilogue_of(number), network.gains[number], network.biases[number], kept.sums[number, 0],
                kept.statistics[number, 0], self.m if number == 0 else None, self.a if number == 1 else None,
            )
            for number in range(network.gates)
        ]  # fmt: skip
        for _ in range(self.steps):
            x = self.h
            for number, norm in enumerate(norms):
                normalised_products.forward(network.weights[number], x, kept.y[number, 0], norm, _EPSILON)
                x = kept.y[number, 0]
            normalised_products.forward(network.weights[-1], x, self.dh, of_gates, _EPSILON, c_before=self.c, c=kept.c[0])
        for _ in range(self.steps):
            normalised_products.backward(
                network.weights[0], self.dz[0], self.dz_of_gates, of_gates, self.dnorm_of_gates, residual=self.dh,
                c_before=self.c, c=kept.c[0], dc=self.dc, dc_before=self.dc,
            )  # fmt: skip
            after = self.dz_of_gates
            for number in reversed(range(network.gates)):
                other = {0: {"dmultiplier": self.dm}, 1: {"daddend": self.da}}.get(number, {})
                normalised_products.backward(
                    network.weights[number + 1], after, self.dz[number], norms[number], self.dnorm[number], **other
                )  # fmt: skip
                after = self.dz[number]
        self._gradients_of_weights()

    def alone(self) -> None:
        """The products of all steps forward, and all backward."""
        network, kept = self.network, self.kept
        for _ in range(self.steps):
            for number in range(network.gates):
                self._product("forward", number, self.h, kept.y[number, 0])
            self._product("forward", network.gates, self.h, kept.gate_sums[0])
        for _ in range(self.steps):
            self._product("grad_input", 0, self.dz[0], self.dh)
            for number in reversed(range(network.gates)):
                of_gates = number + 1 == network.gates
                self._product("grad_input", number + 1, self.dz_of_gates if of_gates else self.dz[number + 1], self.dz[number])
        self._gradients_of_weights()

    def _product(self, operation: str, number: int, x: torch.Tensor, y: torch.Tensor) -> None:
        weight = self.network.weights[number]
        run(weight.kernel(operation, "none", self.n), self.n, x, weight.values, y)

    def _gradients_of_weights(self) -> None:
        network = self.network
        for begin in range(0, self.steps, self.window):
            rows = self.n * min(self.window, self.steps - begin)
            for number, weight in enumerate(network.weights):
                dz = self.dz_of_gates_rows if number == network.gates else self.dz_rows
                run(weight.kernel("grad_weight", "scale", rows), rows, self.x_rows[:rows], dz[:rows], torch.empty_like(weight.values))


def parameters(layer: torch.nn.Module) -> int:
    return sum(one.numel() for one in layer.parameters())


def dense_of_as_many(count: int, inputs: int) -> torch.nn.LSTM:
    """The dense layer whose number of parameters is nearest: 4 · units · (units + inputs + 2)."""
    units = round((((inputs + 2) ** 2 + count) ** 0.5 - (inputs + 2)) / 2)
    return torch.nn.LSTM(inputs, units)
