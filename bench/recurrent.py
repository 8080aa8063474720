"""BlockSparseLSTM against nn.LSTM, and against PyTorch's operators around a block-sparse product: python3 bench/recurrent.py [--write docs/performance.md] [--short]

4096 units with a small-world layout, 5 % dense in blocks of 32, 64 input features, batch 128, 8 steps, float32, on this
machine's cpu: inference, and a step of training (forward and all gradients). The contestants are BlockSparseLSTM; separate
operators, which are BlockSparseLinear for h, and PyTorch's for the gates; nn.LSTM of the same width; and nn.LSTM with as many
parameters. All take turns in every round; times are medians over the rounds, and ratios medians of the rounds' ratios.
"""

import statistics

import publish
import torch
import torch_contest
from torch_contest import contest, processor

import sparsekiln
from sparsekiln.torch import BlockSparseLinear, BlockSparseLSTM

_UNITS, _BLOCK, _DENSITY, _INPUTS, _BATCH, _STEPS = 4096, 32, 0.05, 64, 128, 8
_OURS, _APART, _WIDE, _EQUAL = "BlockSparseLSTM", "separate operators", "nn.LSTM, as wide", "nn.LSTM, as many parameters"


class SeparateOperators(torch.nn.Module):
    """The same layer of what there is without it: one product for the four gates of a step, and PyTorch's operators."""

    def __init__(self, ours: BlockSparseLSTM):
        super().__init__()
        gates = ours.gates[0]
        recurrent = gates.recurrent
        self.input = torch.nn.Linear(ours.input_size, 4 * ours.hidden_size)
        self.recurrent = BlockSparseLinear(ours.hidden_size, 4 * ours.hidden_size, recurrent.layout, recurrent.block, bias=False)
        self.input.load_state_dict(gates.input.state_dict())
        self.recurrent.load_state_dict(recurrent.state_dict())
        self.units = ours.hidden_size

    def forward(self, x):
        projection = self.input(x)
        h = c = x.new_zeros((x.shape[1], self.units))
        steps = []
        for z in projection:
            i, f, g, o = (z + self.recurrent(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            steps.append(h)
        return torch.stack(steps), (h, c)


def parameters(layer: torch.nn.Module) -> int:
    return sum(one.numel() for one in layer.parameters())


def with_as_many(count: int, inputs: int) -> torch.nn.LSTM:
    """The dense layer whose number of parameters is nearest: 4 · units · (units + inputs + 2)."""
    units = round((((inputs + 2) ** 2 + count) ** 0.5 - (inputs + 2)) / 2)
    return torch.nn.LSTM(inputs, units)


def training(layer: torch.nn.Module, x: torch.Tensor) -> None:
    for parameter in layer.parameters():
        parameter.grad = None
    layer(x)[0].sum().backward()


def check(ours: BlockSparseLSTM, layers: dict[str, torch.nn.Module], x: torch.Tensor) -> None:
    """Those of the same weights compute the same."""
    found = {}
    for name in (_OURS, _APART, _WIDE):
        training(layers[name], x)
        found[name] = layers[name](x)[0].detach()
    torch.testing.assert_close(found[_OURS], found[_WIDE], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found[_APART], found[_WIDE], rtol=1e-3, atol=1e-4)
    recurrent = ours.gates[0].recurrent
    dense = recurrent.blocks_of(layers[_WIDE].weight_hh_l0.grad)
    torch.testing.assert_close(recurrent.weight_values.grad, dense, rtol=1e-2, atol=1e-2)


def rows(title: str, layers: dict[str, torch.nn.Module], times: dict[str, list[float]]) -> list[str]:
    def cells(name: str, all_of_it: list[float]) -> list[str]:
        ratio = statistics.median(a / b for a, b in zip(all_of_it, times[_OURS]))
        return [name, f"{parameters(layers[name]) / 1e6:.2f}", f"{statistics.median(all_of_it):.1f}", f"{ratio:.2f}"]

    columns = [title, "parameters, millions", "median, ms", f"over {_OURS}"]
    return [*publish.table(columns, (cells(*one) for one in times.items())), ""]


def main() -> None:
    options = torch_contest.options(__doc__, __file__, rounds=5)
    units, batch, steps = (256, 8, 2) if options.short else (_UNITS, _BATCH, _STEPS)
    side = units // _BLOCK
    layout = sparsekiln.patterns.watts_strogatz(side, side, max(_DENSITY, 1 / side), 0.5, seed=1)
    ours = BlockSparseLSTM(_INPUTS, units, layout=layout, block=_BLOCK)
    layers = {
        _OURS: ours, _APART: SeparateOperators(ours), _WIDE: ours.to_dense(), _EQUAL: with_as_many(parameters(ours), _INPUTS),
    }  # fmt: skip
    x = torch.randn(steps, batch, _INPUTS)
    check(ours, layers, x)
    with torch.no_grad():
        inferred = contest({name: (lambda layer=layer: layer(x)) for name, layer in layers.items()}, options.rounds)
    trained = contest({name: (lambda layer=layer: training(layer, x)) for name, layer in layers.items()}, options.rounds)
    text = [
        f"{processor()}, {options.threads} threads, PyTorch {torch.__version__}: {units} units, {100 * layout.density:.3g} % dense in blocks "
        f"of {_BLOCK}, {_INPUTS} input features, batch {batch}, {steps} steps, float32, {options.rounds} rounds in which all take turns.", "",
        *rows("inference", layers, inferred), *rows("forward and all gradients", layers, trained),
    ]  # fmt: skip
    result = "\n".join(text).rstrip()
    print(result)
    if options.write:
        publish.write(options.write, result, __file__)


if __name__ == "__main__":
    main()
