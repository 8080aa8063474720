"""Recurrent layers against dense ones, and against PyTorch's operators around block-sparse products: python3 bench/recurrent.py [--write docs/performance.md] [--short]

BlockSparseLSTM: 4096 units with a small-world layout, 5 % dense in blocks of 32, 64 input features, batch 128, 8 steps.
SmallWorldLSTM: 4096 units, 3 % dense, five internal steps, 32 steps. float32, on this machine's cpu: inference, and a step of
training (forward and all gradients). The contestants are in recurrent_contestants.py. All take turns in every round; times are
medians over the rounds, and ratios medians of the rounds' ratios. The last table has the launches of a SmallWorldLSTM, in memory that
is there, with normalisation and gates and without.
"""

import statistics

import publish
import torch
import torch_contest
from recurrent_contestants import SeparateLSTM, SeparateSmallWorld, SmallWorldKernels, dense_of_as_many, parameters
from torch_contest import contest, processor

import sparsekiln
from sparsekiln.torch import BlockSparseLSTM, SmallWorldLSTM

_UNITS, _BLOCK, _INPUTS, _BATCH = 4096, 32, 64, 128
_LSTM_DENSITY, _LSTM_STEPS = 0.05, 8
_SMALL_WORLD_DENSITY, _SMALL_WORLD_STEPS = 0.03, 32
_APART, _WIDE, _EQUAL = "separate operators", "nn.LSTM, as wide", "nn.LSTM, as many parameters"
_LSTM, _SMALL_WORLD = "BlockSparseLSTM", "SmallWorldLSTM"


def training(layer: torch.nn.Module, x: torch.Tensor) -> None:
    for parameter in layer.parameters():
        parameter.grad = None
    layer(x)[0].sum().backward()


def check_lstm(ours: BlockSparseLSTM, layers: dict[str, torch.nn.Module], x: torch.Tensor) -> None:
    """Checks that layers of the same weights compute the same."""
    found = {}
    for name in (_LSTM, _APART, _WIDE):
        training(layers[name], x)
        found[name] = layers[name](x)[0].detach()
    torch.testing.assert_close(found[_LSTM], found[_WIDE], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found[_APART], found[_WIDE], rtol=1e-3, atol=1e-4)
    recurrent = ours.gates[0].recurrent
    dense = recurrent.blocks_of(layers[_WIDE].weight_hh_l0.grad)
    torch.testing.assert_close(recurrent.weight_values.grad, dense, rtol=1e-2, atol=1e-2)


def check_small_world(ours: SmallWorldLSTM, apart: torch.nn.Module, x: torch.Tensor) -> None:
    found = []
    for layer in (ours, apart):
        training(layer, x)
        found.append([layer(x)[0].detach(), ours.gates.weight_values.grad.clone(), ours.gate_gains.grad.clone()])
    for one, other in zip(*found):
        error = (one - other).norm() / other.norm()
        assert error < 1e-3, f"SmallWorldLSTM and separate operators differ by {error:.1e}"


def rows(title: str, layers: dict[str, torch.nn.Module], times: dict[str, list[float]]) -> list[str]:
    """The first one is ours."""
    ours = next(iter(layers))

    def cells(name: str, all_of_it: list[float]) -> list[str]:
        ratio = statistics.median(a / b for a, b in zip(all_of_it, times[ours]))
        return [name, f"{parameters(layers[name]) / 1e6:.2f}", f"{statistics.median(all_of_it):.1f}", f"{ratio:.2f}"]

    columns = [title, "parameters, millions", "median, ms", f"over {ours}"]
    return [*publish.table(columns, (cells(*one) for one in times.items())), ""]


def compare(layers: dict[str, torch.nn.Module], x: torch.Tensor, rounds: int) -> list[str]:
    with torch.no_grad():
        inferred = contest({name: (lambda layer=layer: layer(x)) for name, layer in layers.items()}, rounds)
    trained = contest({name: (lambda layer=layer: training(layer, x)) for name, layer in layers.items()}, rounds)
    return [*rows("inference", layers, inferred), *rows("forward and all gradients", layers, trained)]


def compare_lstm(x: torch.Tensor, units: int, rounds: int) -> list[str]:
    side = units // _BLOCK
    layout = sparsekiln.patterns.watts_strogatz(side, side, max(_LSTM_DENSITY, 1 / side), 0.5, seed=1)
    ours = BlockSparseLSTM(_INPUTS, units, layout=layout, block=_BLOCK)
    layers = {
        _LSTM: ours, _APART: SeparateLSTM(ours), _WIDE: ours.to_dense(), _EQUAL: dense_of_as_many(parameters(ours), _INPUTS),
    }  # fmt: skip
    check_lstm(ours, layers, x)
    return [f"{units} units, {100 * layout.density:.3g} % dense, {len(x)} steps.", "", *compare(layers, x, rounds)]


def compare_small_world(x: torch.Tensor, units: int, rounds: int) -> list[str]:
    side = units // _BLOCK
    density = max(_SMALL_WORLD_DENSITY, 2 / side)
    layouts = [sparsekiln.patterns.watts_strogatz(side, side, density, 0.5, seed=seed, diagonal=True) for seed in range(6)]
    ours = SmallWorldLSTM(_INPUTS, units, layouts, block=_BLOCK)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    layers = {_SMALL_WORLD: ours, _APART: SeparateSmallWorld(ours), _EQUAL: dense_of_as_many(parameters(ours), _INPUTS)}
    check_small_world(ours, layers[_APART], x[:4])
    text = [f"{units} units, {100 * layouts[0].density:.3g} % dense, five internal steps, {len(x)} steps.", ""]
    text += compare(layers, x, rounds)
    kernels = SmallWorldKernels(ours, len(x), x.shape[1])
    times = contest({"products alone": kernels.alone, "with normalisation and gates": kernels.normalised}, rounds)
    alone = times["products alone"]
    cells = ([name, f"{statistics.median(one):.1f}", f"{statistics.median(a / b for a, b in zip(one, alone)):.2f}"]
             for name, one in times.items())  # fmt: skip
    return [*text, *publish.table(["launches of SmallWorldLSTM", "median, ms", "over products alone"], cells), ""]


def main() -> None:
    options = torch_contest.options(__doc__, __file__, rounds=5)
    units, batch = (256, 8) if options.short else (_UNITS, _BATCH)
    lstm_steps, small_world_steps = (2, 4) if options.short else (_LSTM_STEPS, _SMALL_WORLD_STEPS)
    x = torch.randn(max(lstm_steps, small_world_steps), batch, _INPUTS)
    text = [
        f"{processor()}, {options.threads} threads, PyTorch {torch.__version__}, blocks of {_BLOCK}, {_INPUTS} input features, batch {batch}, "
        f"float32, {options.rounds} rounds in which all take turns.", "",
        *compare_lstm(x[:lstm_steps], units, options.rounds), *compare_small_world(x[:small_world_steps], units, options.rounds),
    ]  # fmt: skip
    result = "\n".join(text).rstrip()
    print(result)
    if options.write:
        publish.write(options.write, result, __file__)


if __name__ == "__main__":
    main()
