"""This library against everything else that multiplies block-sparse or dense on a cpu: python3 bench/against.py [--write docs/performance.md] [--short]

Inference of linear layers in float32 on this machine: those of workloads.json, cut to sizes that two cores take, and squares of
2048 features at densities from 2 to 100 % in blocks of 8 to 64. All contestants compute the same, which is checked, on the same cores,
and take turns in every round; times are medians over the rounds, ratios medians of the rounds' ratios. Threads
of all sleep between their turns. SciPy has one thread, and it and MKL get the activations as columns, uncounted.

PyTorch, SciPy, matplotlib (for the plot) and PyPI's mkl must be in the Python that runs this, and Debian's libxsmm-dev; who is missing is named. --libxsmm FOLDER
takes another build of LIBXSMM.
"""

import os

# Before libraries read them: threads of one contestant that spin while another one's turn has come would take its cores.
os.environ |= {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0", "OPENBLAS_THREAD_TIMEOUT": "4"}

import functools
import pathlib
import statistics
import warnings

import cpu_contestants
import numpy as np
import publish
import torch
import torch_contest
from cpu_contestants import CONTESTANTS, DENSE, OURS, Case, Refusal
from torch_contest import contest, processor
from workloads import workloads

import sparsekiln

_MOST_FEATURES, _MOST_BATCH = 4096, 512
_SIDE, _BATCH = 2048, 64
_DENSITIES, _BLOCKS = (0.02, 0.05, 0.1, 0.2, 0.4, 1.0), (8, 16, 32, 64)
_ASKED = {"PyTorch BSR (MKL)": 4.0, "SciPy BSR": 8.0, "LIBXSMM": 1.2}
_ASKED_OF_DENSE = 7.0  # at 90 % sparse

Layer = tuple[str, int, int, float, int, int]  # name, rows and columns of blocks, density, block, batch
Times = dict[str, list[float]]


def layers_of_list() -> list[Layer]:
    """Each once: types, and what is cut to the same size, are one layer here."""
    found = {}
    for one in workloads():
        if one.operation != "forward":
            continue
        shrink = max(1, -(-max(one.out_features, one.in_features) // _MOST_FEATURES))
        rows, cols = (max(1, side // shrink) for side in one.grid)
        layer = (one.name, rows, cols, one.density, one.block, min(one.batch, _MOST_BATCH))
        found[layer[1:]] = layer
    return list(found.values())


def squares(side: int) -> list[Layer]:
    return [("square", side // block, side // block, density, block, _BATCH) for block in _BLOCKS for density in _DENSITIES]


def measure(layer: Layer, rounds: int, threads: int, refused: dict[str, str]) -> Times:
    _, rows, cols, density, block, batch = layer
    case = Case(sparsekiln.patterns.random(rows, cols, density, seed=1), block, batch, threads)
    calls = {}
    expected = (case.x.double() @ case.dense.double().T).numpy()
    for name, make in CONTESTANTS.items():
        try:
            call = make(case)
            np.testing.assert_allclose(np.asarray(call()), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max(), err_msg=name)
            calls[name] = call
        except Refusal as refusal:
            refused[name] = str(refusal)
    return contest(calls, rounds)


def ratio(times: Times, name: str) -> float:
    """How many times as fast as `name` ours is."""
    return statistics.median(other / own for other, own in zip(times[name], times[OURS]))


def fastest_dense(times: Times) -> str:
    return min((name for name in DENSE if name in times), key=lambda name: statistics.median(times[name]))


def title(layer: Layer) -> str:
    name, rows, cols, density, block, batch = layer
    return f"{name} {rows * block}x{cols * block} {100 * density:.3g} % block {block} n={batch}"


def table_of_list(results: dict[Layer, Times]) -> list[str]:
    others = [name for name in CONTESTANTS if name != OURS and any(name in times for times in results.values())]
    rows = [
        [title(layer), f"{statistics.median(times[OURS]):.3f}", *(f"{ratio(times, name):.2f}" if name in times else "-" for name in others)]
        for layer, times in results.items()
    ]
    means = [
        f"{statistics.geometric_mean([ratio(times, name) for times in results.values() if name in times]):.2f}" for name in others
    ]
    return publish.table(["layer", "ms", *(f"× {name}" for name in others)], [*rows, ["geometric mean", "", *means]])


def table_of_squares(results: dict[Layer, Times]) -> list[str]:
    blocks = sorted({layer[4] for layer in results})
    rows = []
    for density in sorted({layer[3] for layer in results}):
        cells = [f"{ratio(times, fastest_dense(times)):.2f}" for layer, times in results.items() if layer[3] == density]
        rows.append([f"{100 * density:g} %", *cells])
    return publish.table(["density", *(f"block {block}" for block in blocks)], rows)


def losses(results: dict[Layer, Times]) -> list[str]:
    found = [
        f"- {title(layer)}: {name} takes {ratio(times, name):.2f} of our time"
        for layer, times in results.items()
        for name in times
        if name != OURS and ratio(times, name) < 1
    ]
    return found or ["- none"]


def goals(of_list: dict[Layer, Times], of_squares: dict[Layer, Times]) -> list[str]:
    rows = []
    for name, asked in _ASKED.items():
        ratios = [ratio(times, name) for times in of_list.values() if name in times]
        rows.append([name, f"{asked:g}", f"{statistics.geometric_mean(ratios):.2f}" if ratios else "not installed"])
    sparse = [ratio(times, fastest_dense(times)) for layer, times in of_squares.items() if layer[3] == 0.1]
    rows.append(["the fastest dense product, at 90 % sparse", f"{_ASKED_OF_DENSE:g}", f"{statistics.geometric_mean(sparse):.2f}"])
    return publish.table(["against", "goal", "geometric mean"], rows)


def report(of_list: dict[Layer, Times], of_squares: dict[Layer, Times], refused: dict[str, str], rounds: int, threads: int) -> str:
    side = max(layer[1] * layer[4] for layer in of_squares)
    return "\n".join([
        f"{processor()}, {threads} threads, PyTorch {torch.__version__}, float32, {rounds} rounds. Ratios are the other's time over ours.", "",
        *table_of_list(of_list), "",
        f"Speed over the fastest dense product, {side} features in and out, n = {_BATCH}:", "",
        "![Speed over the fastest dense product against density, for blocks of 8 to 64](plots/against.svg)", "",
        *table_of_squares(of_squares), "",
        *goals(of_list, of_squares), "",
        "Where another is faster:", "", *losses(of_list | of_squares),
        *(f"\nNot measured: {name}: {why}." for name, why in refused.items()),
    ])  # fmt: skip


def plot(results: dict[Layer, Times], file: pathlib.Path) -> None:
    """Speed over the fastest dense product against density, a line for each block."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "sparsekiln", "axes.grid": True, "grid.alpha": 0.3, "font.size": 9})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(layout="constrained", figsize=(6, 3.6))
    for block in sorted({layer[4] for layer in results}):
        points = [(100 * layer[3], ratio(times, fastest_dense(times))) for layer, times in results.items() if layer[4] == block]
        axes.plot(*zip(*points), marker="o", markersize=3, label=f"blocks of {block}")
    axes.axhline(1, color="gray", linestyle="--")
    axes.set(xscale="log", yscale="log", xlabel="blocks, %", ylabel="times the speed of dense")
    axes.legend(frameon=False)
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    def add_libxsmm(parser):
        parser.add_argument("--libxsmm", default="", metavar="FOLDER", help="an installation of LIBXSMM other than the system's")

    options = torch_contest.options(__doc__, __file__, rounds=15, add_options=add_libxsmm)
    CONTESTANTS["LIBXSMM"] = functools.partial(cpu_contestants.libxsmm, installation=options.libxsmm)
    warnings.filterwarnings("ignore", message="Sparse")
    refused: dict[str, str] = {}
    listed, squared = layers_of_list(), squares(_SIDE)
    if options.short:
        listed, squared = [("short", 4, 8, 0.5, 32, 16)], [("square", 8, 8, 0.1, 32, 16)]
    with torch.no_grad():
        of_list = {layer: measure(layer, options.rounds, options.threads, refused) for layer in listed}
        of_squares = {layer: measure(layer, options.rounds, options.threads, refused) for layer in squared}
    text = report(of_list, of_squares, refused, options.rounds, options.threads)
    print(text)
    if options.write:
        plots = options.write.parent / "plots"
        plots.mkdir(exist_ok=True)
        plot(of_squares, plots / "against.svg")
        publish.write(options.write, text, __file__)


if __name__ == "__main__":
    main()
