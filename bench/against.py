"""This library against everything else that computes block-sparse or dense layers on a cpu: python3 bench/against.py [--write docs/performance.md] [--short]

In float32 on this machine: inference and a step of training of the linear layers of workloads.json, cut to sizes that two cores take;
squares of 2048 features at densities from 2 to 100 % in blocks of 8 to 64; layers of more and more features, batch rows and
threads; and convolutions. All contestants compute the same, which is checked, on the same cores, and take turns in every round; times are
medians over the rounds, ratios medians of the rounds' ratios, spreads from p20 to p80. Threads of all wait for the next call in a loop
for some tens of microseconds, as the library's own do, those of PyPI's mkl for a millisecond, and then sleep. SciPy has one
thread, and it and MKL get the activations as columns, uncounted.

PyTorch, SciPy, matplotlib (for the plots) and PyPI's mkl must be in the Python that runs this, and Debian's libxsmm-dev; who is missing is
named. --libxsmm FOLDER takes another build of LIBXSMM.
"""

import atexit
import os
import tempfile

# Before libraries read them: threads of one contestant that spin for long would take the cores of the next one, and those that sleep
# at once would begin late in each call.
os.environ |= {"GOMP_SPINCOUNT": "4000", "KMP_BLOCKTIME": "1", "OPENBLAS_THREAD_TIMEOUT": "18"}
_STORE = tempfile.TemporaryDirectory(prefix="sparsekiln-against-")  # what this machine was tuned for is not what a user has
os.environ["SPARSEKILN_CACHE_DIR"] = _STORE.name
atexit.register(_STORE.cleanup)

import pathlib
import statistics
import warnings

import cpu_convolution_torch
import cpu_scaling
import plots
import publish
import torch
import torch_contest
import xsmm_product
from cpu_contestants import CONTESTANTS, DENSE, KERNEL, OURS, of_libxsmm
from linear_cases import Layer, Times, fastest, layers_of_list, measure, measure_training, title, trained
from torch_contest import processor

_SIDE, _BATCH = 2048, 64
_DENSITIES, _BLOCKS = (0.02, 0.05, 0.1, 0.2, 0.4, 1.0), (8, 16, 32, 64)
_CONVOLUTIONS = [(*layer, block, density) for block in (16, 32) for density in (0.1, 0.25) for layer in ((128, 28), (256, 14), (512, 7))]
_IMAGES = 8
_ASKED = {"PyTorch BSR (MKL)": 4.0, "SciPy BSR": 8.0, "LIBXSMM": 1.2, "LIBXSMM, tuned": 1.2}
_ASKED_OF_DENSE = 7.0  # at 90 % sparse


def squares(side: int) -> list[Layer]:
    return [("square", side // block, side // block, density, block, _BATCH) for block in _BLOCKS for density in _DENSITIES]


def ratios(times: Times, name: str, ours: str = OURS) -> list[float]:
    """How many times as fast as `name` ours is, in each round."""
    return [other / own for other, own in zip(times[name], times[ours])]


def ratio(times: Times, name: str, ours: str = OURS) -> float:
    return statistics.median(ratios(times, name, ours))


def geometric_mean(results: dict[Layer, Times], name: str, ours: str = OURS) -> str:
    of_layers = [ratio(times, name, ours) for times in results.values() if name in times]
    return f"{statistics.geometric_mean(of_layers):.2f}" if of_layers else "not measured"


def spread(values: list[float]) -> tuple[float, float]:
    """p20 and p80."""
    low, *_, high = statistics.quantiles(values, n=5, method="inclusive")
    return low, high


def cell(times: Times, name: str, ours: str = OURS) -> str:
    """A ratio and its spread."""
    if name not in times:
        return "-"
    low, high = spread(ratios(times, name, ours))
    return f"{ratio(times, name, ours):.2f} ({low:.2f} – {high:.2f})"


# ---- tables ----


def table_of_layers(results: dict[Layer, Times]) -> list[str]:
    """A column for each of the others. Where the kernel was called by itself, its time is there, too."""
    names = list(dict.fromkeys(name for times in results.values() for name in times))
    others = [name for name in names if name not in (OURS, KERNEL)]
    alone = [KERNEL] if KERNEL in names else []
    rows = [
        [
            title(layer), f"{statistics.median(times[OURS]):.3f}", *(f"{statistics.median(times[name]):.3f}" for name in alone),
            *(cell(times, name) for name in others),
        ]
        for layer, times in results.items()
    ]  # fmt: skip
    means = ["geometric mean", "", *("" for _ in alone), *(geometric_mean(results, name) for name in others)]
    columns = ["layer", "ms", *(f"{name}, ms" for name in alone), *(f"× {name}" for name in others)]
    return publish.table(columns, [*rows, means])


def table_of_squares(results: dict[Layer, Times]) -> list[str]:
    blocks = sorted({layer[4] for layer in results})
    rows = []
    for density in sorted({layer[3] for layer in results}):
        cells = [f"{ratio(times, fastest(times, DENSE)):.2f}" for layer, times in results.items() if layer[3] == density]
        rows.append([f"{100 * density:g} %", *cells])
    return publish.table(["density", *(f"block {block}" for block in blocks)], rows)


def name_of_convolution(channels: int, side: int, block: int, density: float) -> str:
    return f"{channels} channels, {side}x{side}, {100 * density:g} %, block {block}"


def table_of_convolutions(results: dict[tuple, tuple[Times, Times]]) -> list[str]:
    """Each against the fastest format of PyTorch."""
    rows = []
    for (channels, side, block, density), both in results.items():
        cells = []
        for times in both:
            dense = fastest(times, times.keys() - {"ours"})
            cells += [f"{statistics.median(times['ours']):.3f}", cell(times, dense, "ours")]
        rows.append([name_of_convolution(channels, side, block, density), *cells])
    return publish.table(["convolution", "inference, ms", "× dense", "forward and gradients, ms", "× dense"], rows)


def goals(of_list: dict[Layer, Times], of_squares: dict[Layer, Times]) -> list[str]:
    rows = [[name, f"{asked:g}", geometric_mean(of_list, name), geometric_mean(of_list, name, KERNEL)] for name, asked in _ASKED.items()]
    sparse = [times for layer, times in of_squares.items() if layer[3] == 0.1]
    means = (f"{statistics.geometric_mean([ratio(times, fastest(times, DENSE), ours) for times in sparse]):.2f}" for ours in (OURS, KERNEL))
    rows.append(["the fastest dense product, at 90 % sparse", f"{_ASKED_OF_DENSE:g}", *means])
    return publish.table(["against", "goal", "geometric mean", "of the kernel alone"], rows)


def losses(what: str, times: Times, ours: str = OURS) -> list[str]:
    """Who was faster, beyond the spread: p80 of the rounds is below 1."""
    found = []
    for name in times:
        if name in (ours, KERNEL) or spread(ratios(times, name, ours))[1] >= 1:
            continue
        kernel = f", and {ratio(times, name, KERNEL):.2f} of the kernel's" if KERNEL in times else ""
        found.append(f"- {what}: {name} takes {ratio(times, name, ours):.2f} of our time{kernel}")
    return found


def plot_of_squares(results: dict[Layer, Times], file: pathlib.Path) -> None:
    """Speed over the fastest dense product against density, a line for each block."""
    with plots.figure(file) as (axes,):
        for block in sorted({layer[4] for layer in results}):
            points = [(100 * layer[3], ratio(times, fastest(times, DENSE))) for layer, times in results.items() if layer[4] == block]
            axes.plot(*zip(*points), marker="o", markersize=3, label=f"blocks of {block}")
        axes.axhline(1, color="gray", linestyle="--")
        axes.set(xscale="log", yscale="log", xlabel="blocks, %", ylabel="times the speed of dense")
        axes.legend(frameon=False)


def main() -> None:
    def add_libxsmm(parser):
        parser.add_argument("--libxsmm", type=pathlib.Path, metavar="FOLDER", help="an installation of LIBXSMM other than the system's")

    options = torch_contest.options(__doc__, __file__, rounds=9, add_options=add_libxsmm)
    CONTESTANTS.update(of_libxsmm(options.libxsmm))
    warnings.filterwarnings("ignore", message="Sparse")
    rounds, threads = options.rounds, options.threads
    refused: dict[str, str] = {}
    listed, squared, convolved, images = layers_of_list(), squares(_SIDE), _CONVOLUTIONS, _IMAGES
    if options.short:
        listed, squared, convolved, images = [("short", 4, 8, 0.5, 32, 16)], [("square", 8, 8, 0.1, 32, 16)], [(64, 5, 16, 0.5)], 2
    of_list = {layer: measure(layer, rounds, threads, refused) for layer in listed}
    of_squares = {layer: measure(layer, rounds, threads, refused) for layer in squared}
    grown = [(study, cpu_scaling.run(study, rounds, refused)) for study in cpu_scaling.studies(threads, options.short)]
    torch.set_num_threads(threads)
    of_training = {layer: measure_training(layer, rounds) for layer in trained(listed)}
    of_convolutions = {case: cpu_convolution_torch.measure(*case, images, rounds) for case in convolved}
    all_losses = [
        *(line for layer, times in (of_list | of_squares).items() for line in losses(f"inference, {title(layer)}", times)),
        *(line for study, results in grown for value, times in results.items() for line in losses(f"{study.title}, {study.grows} {value}", times)),
        *(line for layer, times in of_training.items() for line in losses(f"training, {title(layer)}", times)),
        *(
            line
            for case, both in of_convolutions.items()
            for what, times in zip(("inference", "forward and gradients"), both)
            for line in losses(f"{what}, convolution of {name_of_convolution(*case)}", times, "ours")
        ),
    ]
    try:
        xsmm = f", LIBXSMM {xsmm_product.version(options.libxsmm)}"
    except xsmm_product.Missing:
        xsmm = ""
    lines = [
        f"{processor()}, {threads} threads, PyTorch {torch.__version__}{xsmm}, float32, {rounds} rounds. Ratios are the other's time over ours, "
        "with p20 and p80 of the rounds.", "",
        "Inference:", "", *table_of_layers(of_list), "",
        f"Speed over the fastest dense product, {_SIDE} features in and out, n = {_BATCH}:", "",
        "![Speed over the fastest dense product against density, for blocks of 8 to 64](plots/against.png)", "",
        *table_of_squares(of_squares), "",
        *goals(of_list, of_squares), "",
        "![Milliseconds against features at one number of parameters, against the batch, and against threads](plots/against_scaling.png)", "",
        *(line for study, results in grown for line in cpu_scaling.table(study, results)),
        "A step of training, with a bias:", "", *table_of_layers(of_training), "",
        f"Convolutions of 3×3, {images} images, against the fastest of PyTorch's formats:", "", *table_of_convolutions(of_convolutions), "",
        "Where another was faster, beyond the spread:", "", *(all_losses or ["- nowhere"]),
        *(f"\nNot measured: {name}: {why}." for name, why in refused.items()),
    ]  # fmt: skip
    text = "\n".join(lines)
    print(text)
    if options.write:
        folder = options.write.parent / "plots"
        folder.mkdir(exist_ok=True)
        plot_of_squares(of_squares, folder / "against.png")
        cpu_scaling.plot(grown, folder / "against_scaling.png")
        publish.write(options.write, text, __file__)


if __name__ == "__main__":
    main()
