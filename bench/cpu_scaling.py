"""How the time of a linear layer grows with its width at one number of parameters, with the batch and with the threads: the cases of
against.py about that, their tables and their plot.
"""

import dataclasses
import pathlib
import statistics

import plots
import publish
from cpu_contestants import DENSE, OURS
from linear_cases import Layer, Times, fastest, measure

_BLOCK = 32
_OTHERS = ("PyTorch BSR (MKL)", "LIBXSMM, tuned", "PyTorch dense", "oneDNN dense", "oneDNN dense, prepacked")


@dataclasses.dataclass(frozen=True)
class Study:
    """What grows, and for each of its values a layer and the number of threads."""

    title: str
    grows: str
    points: dict[int, tuple[Layer, int]]


def studies(threads: int, short: bool) -> list[Study]:
    sides, blocks, batches = ((4, 8), 16, (1, 32)) if short else ((40, 80, 160, 320), 1600, (1, 4, 16, 64, 256, 1024))
    width = {side * _BLOCK: (("width", side, side, blocks / side**2, _BLOCK, 64), threads) for side in sides}
    square = sides[1] if short else 64
    batch = {n: (("batch", square, square, 0.1, _BLOCK, n), threads) for n in batches}
    several = {count: (("threads", square, square, 0.1, _BLOCK, 64), count) for count in range(1, threads + 1)}
    of_square = f"{square * _BLOCK} features, 10 %"
    return [
        Study(f"{blocks} blocks of {_BLOCK}, n = 64", "features", width),
        Study(f"{of_square}, blocks of {_BLOCK}", "batch", batch),
        Study(f"{of_square}, blocks of {_BLOCK}, n = 64", "threads", several),
    ]


def run(study: Study, rounds: int, refused: dict[str, str]) -> dict[int, Times]:
    """Times by value and contestant; the fastest dense product stands for all."""
    results = {}
    for value, (layer, threads) in study.points.items():
        times = measure(layer, rounds, threads, refused, (OURS, *_OTHERS))
        others = {name: times[name] for name in times if name not in DENSE}
        results[value] = others | {"the fastest dense": times[fastest(times, DENSE)]}
    return results


def table(study: Study, results: dict[int, Times]) -> list[str]:
    names = list(dict.fromkeys(name for times in results.values() for name in times))
    rows = ([value, *(f"{statistics.median(times[name]):.3f}" if name in times else "-" for name in names)] for value, times in results.items())
    return [f"{study.title}, ms:", "", *publish.table([study.grows, *names], rows), ""]


def plot(measured: list[tuple[Study, dict[int, Times]]], file: pathlib.Path) -> None:
    with plots.figure(file, columns=len(measured)) as all_axes:
        for axes, (study, results) in zip(all_axes, measured):
            names = dict.fromkeys(name for times in results.values() for name in times)
            for name in names:
                points = [(value, statistics.median(times[name])) for value, times in results.items() if name in times]
                axes.plot(*zip(*points), marker="o", markersize=3, label=name)
            axes.set(xscale="log", yscale="log", xlabel=study.grows, title=study.title)
            axes.set_xticks(list(results), [str(value) for value in results])
            axes.minorticks_off()
        all_axes[0].set_ylabel("ms")
        all_axes[0].legend(frameon=False)
