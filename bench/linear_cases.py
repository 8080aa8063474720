"""The linear layers of against.py, and the contest over each of them."""

import statistics
from collections.abc import Iterable

import numpy as np
import torch
from cpu_contestants import CONTESTANTS, Case, Refusal
from torch_contest import contest
from training_contestants import check_gradients, dense_of, training
from workloads import workloads

import sparsekiln
from sparsekiln.torch import BlockSparseLinear

_MOST_FEATURES, _MOST_BATCH = 4096, 512
_LEAST_TRAINED = 16  # batch rows

Layer = tuple[str, int, int, float, int, int]  # name, rows and columns of blocks, density, block, batch
Times = dict[str, list[float]]


def layers_of_list() -> list[Layer]:
    """The layers of workloads.json, at sizes that two cores take. Each once: types, and what is cut to the same size, are one layer."""
    found = {}
    for one in workloads():
        if one.operation != "forward":
            continue
        shrink = max(1, -(-max(one.out_features, one.in_features) // _MOST_FEATURES))
        rows, cols = (max(1, side // shrink) for side in one.grid)
        layer = (one.name, rows, cols, one.density, one.block, min(one.batch, _MOST_BATCH))
        found[layer[1:]] = layer
    return list(found.values())


def trained(layers: list[Layer]) -> list[Layer]:
    """Those with a batch that someone trains with."""
    return [layer for layer in layers if layer[-1] >= _LEAST_TRAINED]


def title(layer: Layer) -> str:
    name, rows, cols, density, block, batch = layer
    return f"{name} {rows * block}x{cols * block} {100 * density:.3g} % block {block} n={batch}"


def fastest(times: Times, names: Iterable[str]) -> str:
    """By their medians, of those of `names` that were measured."""
    return min((name for name in names if name in times), key=lambda name: statistics.median(times[name]))


def measure(layer: Layer, rounds: int, threads: int, refused: dict[str, str], names: tuple[str, ...] = ()) -> Times:
    """Inference by all contestants, or by those of `names`. Who does not take part is put down in `refused`, with the reason."""
    _, rows, cols, density, block, batch = layer
    torch.set_num_threads(threads)
    case = Case(sparsekiln.patterns.random(rows, cols, density, seed=1), block, batch, threads)
    calls = {}
    expected = (case.x.double() @ case.dense.double().T).numpy()
    with torch.no_grad():
        for name in names or CONTESTANTS:
            try:
                call = CONTESTANTS[name](case)
                np.testing.assert_allclose(np.asarray(call()), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max(), err_msg=name)
                calls[name] = call
            except Refusal as refusal:
                refused[name] = str(refusal)
        return contest(calls, rounds)


def measure_training(layer: Layer, rounds: int) -> Times:
    _, rows, cols, density, block, batch = layer
    ours = BlockSparseLinear(cols * block, rows * block, sparsekiln.patterns.random(rows, cols, density, seed=1), block)
    dense, x, dy = dense_of(ours), torch.randn(batch, cols * block), torch.randn(batch, rows * block)
    check_gradients(ours, dense, x, dy)
    return contest(training(ours, dense, x, dy), rounds)
