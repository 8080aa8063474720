"""The network of sparsekiln.torch.SmallWorldLSTM with any linear layers, and with parts left out, to see what each is for.

With the same layers, 2 or more internal steps and normalisation it computes what SmallWorldLSTM does, from a state dict with
the same names.
"""

import math
from collections.abc import Callable

import torch
from sparsekiln.torch import BlockSparseLinear
from torch import Tensor, nn
from torch.nn import functional

GATES = 4
EPSILON = 1e-6

Linear = Callable[[int, int, int], nn.Module]
"""(number of the layer, inputs, outputs) -> a layer without a bias, with its first weights. The gates are the last layer."""


class Scale(nn.Module):
    """The rest of nn.LayerNorm without the normalisation: a gain and a bias."""

    def __init__(self, features: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.bias, x, self.weight)


class MultiplicativeLSTM(nn.Module):
    """SmallWorldLSTM's steps, layers that `linear` makes, and two more choices:

    internal_steps  with 1, m and a enter in the same step, h ← LN(W₀h) ⊙ m + a, which is the multiplicative LSTM of Krause et
                    al. 2016, normalised; with more, m enters in step 0 and a in step 1
    normalised      False leaves gains and biases alone in place of each layer normalisation
    """

    def __init__(
        self, inputs: int, hidden: int, linear: Linear, internal_steps: int = 5, normalised: bool = True, projection_stride: int = 2
    ):
        super().__init__()
        self.hidden_size, self.normalised, self.projection_stride = hidden, normalised, projection_stride
        projected = hidden // projection_stride

        def norm(features: int) -> nn.Module:
            return nn.LayerNorm(features, EPSILON) if normalised else Scale(features)

        self.multiply, self.add = (nn.Linear(inputs, projected, bias=False) for _ in range(2))
        self.internal = nn.ModuleList(linear(number, hidden, hidden) for number in range(internal_steps))
        self.gates = linear(internal_steps, hidden, GATES * hidden)
        self.multiply_norm, self.add_norm = norm(projected), norm(projected)
        self.internal_norms = nn.ModuleList(norm(hidden) for _ in range(internal_steps))
        self.gate_gains = nn.Parameter(torch.ones(GATES, hidden))
        self.gate_biases = nn.Parameter(torch.zeros(GATES, hidden))
        with torch.no_grad():
            self.gate_biases[1] = 1  # of f: to remember, at first
            for projection in (self.multiply, self.add):
                projection.weight.copy_(repeated_identity(projected, inputs))

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x [steps, batch, inputs] and (h, c), [1, batch, hidden] each, or zeros -> h of each step, and the state after them."""
        m = self._on_units(self.multiply_norm(self.multiply(x)), 1)
        a = self._on_units(self.add_norm(self.add(x)), 0)
        h, c = (one[0] for one in state) if state else m.new_zeros((2, *m.shape[1:]))
        steps = []
        for of_step in zip(m, a):
            h, c = self._step(h, c, *of_step)
            steps.append(h)
        return torch.stack(steps), (h.unsqueeze(0), c.unsqueeze(0))

    def _on_units(self, projected: Tensor, elsewhere: float) -> Tensor:
        """[steps, batch, hidden]: what is projected, on every projection_stride-th unit."""
        others = projected.new_full((*projected.shape, self.projection_stride - 1), elsewhere)
        return torch.cat([projected.unsqueeze(-1), others], -1).flatten(-2)

    def _step(self, h: Tensor, c: Tensor, m: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        for number, (layer, norm) in enumerate(zip(self.internal, self.internal_norms)):
            h = norm(layer(h))
            if number == 0:
                h = h * m
            else:
                h = torch.relu(h + a if number == 1 else h)
        if len(self.internal) == 1:
            h = h + a
        z = self.gates(h).unflatten(-1, (GATES, self.hidden_size))
        if self.normalised:
            z = functional.layer_norm(z, (self.hidden_size,), None, None, EPSILON)
        i, f, u, o = torch.addcmul(self.gate_biases, z, self.gate_gains).unbind(-2)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c


def repeated_identity(rows: int, columns: int) -> Tensor:
    """1 where the row and the column are alike, modulo the smaller number of them."""
    least = min(rows, columns)
    return (torch.arange(rows)[:, None] % least == torch.arange(columns) % least).float()


@torch.no_grad()
def start(layer: nn.Linear | BlockSparseLinear, as_identity: bool) -> nn.Module:
    """The layer with its first weights: identities one below the other, or normal ones, with rows of length 1 on average."""
    outputs, inputs = layer.out_features, layer.in_features
    if isinstance(layer, BlockSparseLinear):
        present = len(layer.weight_values) * layer.block[0] * layer.block[1] / outputs
    else:
        present = inputs
    first = torch.eye(inputs).repeat(outputs // inputs, 1) if as_identity else torch.randn(outputs, inputs) / math.sqrt(present)
    if isinstance(layer, BlockSparseLinear):
        layer.weight_values.copy_(layer.blocks_of(first))
    else:
        layer.weight.copy_(first)
    return layer
