"""A deep block-sparse PixelCNN++ against a shallow dense one of as many parameters, on digits and on patches of photographs.

After "GPU Kernels for Block-Sparse Weights" (Gray, Radford & Kingma 2017), which made a PixelCNN++ sparse and deeper. Both
networks get the learning rate that did best for them in the same short search, then are trained for as many updates on the same
batches, for several seeds. What counts is bits a dimension of images that neither the training nor the search has seen. On the
pictures of --control there is a third network, which is dense, as deep as the sparse one, and narrower: it tells what is due to
depth alone.

Without --write, runs that are missing in the folder of results are done, one after the other; what is interrupted goes on from
a checkpoint. With --write nothing is trained, and the text is that of the results that are there.
"""

import dataclasses
import functools
import math
import os
import pathlib
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before PyTorch is loaded: its threads then leave the cores to the kernels

import numpy as np
import reporting
import torch
import turns
from pixel_cnn_training import (
    BATCHES, DENSE, MIXTURES, NARROW, SPARSE, Results, Shape, Training, Unit, learn, mixture_of, narrow_shape, run, sparse_shape
)  # fmt: skip
from small_pictures import PICTURES
from tqdm import tqdm

MAIN = (DENSE, SPARSE)
NAMES = {DENSE: "the dense network", SPARSE: "the sparse network", NARROW: "the narrow dense network"}
FULL = "dense, by Sparsekiln"  #: the dense network with block-sparse layers of all blocks, which is timed alone
RATES = (8e-3, 16e-3, 32e-3, 64e-3)
STEPS = {"digits": 1000, "patches": 2400}  #: updates in a run
SEARCH_SEED = 100
RESULTS = pathlib.Path(__file__).resolve().parents[2] / "out/examples/pixel_cnn"
CHECKPOINTS = pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "sparsekiln-examples/pixel_cnn"


# ---- what is to be run ----


@dataclass(frozen=True)
class Plan:
    """What the options ask for."""

    dense: Shape
    block: int
    degree: int
    grow: str
    dropout: float
    steps: dict[str, int]  #: updates in a run, by pictures
    seeds: int
    control: tuple[str, ...] = ()  #: pictures that a narrow network is trained on
    rates: tuple[float, ...] = RATES

    def kinds(self, pictures: str) -> tuple[str, ...]:
        return (*MAIN, NARROW) if pictures in self.control and self.grow == "deeper" else MAIN

    def shape(self, pictures: str, kind: str) -> Shape:
        if kind == DENSE:
            return self.dense
        sparse = sparse_shape(self.dense, self.block, self.degree, self.grow, pictures)
        return sparse if kind == SPARSE else narrow_shape(self.dense, sparse.depth, pictures)

    def search_steps(self, pictures: str) -> int:
        """Updates for each rate that is tried."""
        return self.steps[pictures] // 2

    def search(self, pictures: str, kind: str) -> list[Unit]:
        shape, steps = self.shape(pictures, kind), self.search_steps(pictures)
        return [Unit("search", pictures, kind, shape, self.dropout, rate, steps, SEARCH_SEED) for rate in self.rates]

    def comparison(self, pictures: str, kind: str, rate: float) -> list[Unit]:
        shape, steps = self.shape(pictures, kind), self.steps[pictures]
        return [Unit("comparison", pictures, kind, shape, self.dropout, rate, steps, seed) for seed in range(self.seeds)]

    def updates(self, pictures: str) -> int:
        """The updates of all runs."""
        return len(self.kinds(pictures)) * (len(self.rates) * self.search_steps(pictures) + self.seeds * self.steps[pictures])


@dataclass
class Found:
    """The results of one network for one kind of pictures. `rate` is None while the search lacks a run."""

    kind: str
    shape: Shape
    searched: dict[float, float]  #: bits a dimension on the validation for each rate, at its best check
    rate: float | None = None
    runs: dict[int, dict] = field(default_factory=dict)  #: by seed

    def figures(self, of_run) -> list[float]:
        return [of_run(result) for result in self.runs.values()]


def best_check(result: dict) -> dict:
    """That with the fewest bits on the validation."""
    return min(result["checks"], key=lambda check: check["validation"])


def look_up(plan: Plan, results: Results, pictures: str) -> dict[str, Found]:
    """The results that are there, for each kind of network."""
    networks = {}
    for kind in plan.kinds(pictures):
        there = {unit.rate: results.of(unit) for unit in plan.search(pictures, kind)}
        searched = {rate: best_check(result)["validation"] for rate, result in there.items() if result}
        found = networks[kind] = Found(kind, plan.shape(pictures, kind), searched)
        if len(searched) == len(plan.rates):
            found.rate = min(searched, key=searched.get)
            runs = {unit.seed: results.of(unit) for unit in plan.comparison(pictures, kind, found.rate)}
            found.runs = {seed: result for seed, result in runs.items() if result}
    return networks


# ---- training ----


def units(plan: Plan, results: Results, pictures: str, kinds: tuple[str, ...]) -> Iterator[Unit]:
    """The search for these networks, then the comparison seed by seed. Each is asked for when those before it have results."""
    for kind in kinds:
        yield from plan.search(pictures, kind)
    found = look_up(plan, results, pictures)
    for runs in zip(*(plan.comparison(pictures, kind, found[kind].rate) for kind in kinds)):
        yield from runs


def train_missing(plan: Plan, results: Results, all_pictures: list[str], checkpoints: pathlib.Path) -> None:
    """The two networks that are compared first, on all pictures."""
    parts = [(pictures, MAIN) for pictures in all_pictures]
    parts += [(pictures, (NARROW,)) for pictures in plan.control if pictures in all_pictures and plan.kinds(pictures) != MAIN]
    with tqdm(total=sum(map(plan.updates, all_pictures)), unit="update") as bar:
        for pictures, kinds in parts:
            for unit in units(plan, results, pictures, kinds):
                before = bar.n
                bar.set_description(unit.name)
                if not results.of(unit):
                    show = functools.partial(show_progress, bar, before)
                    results.keep(unit.name, run(unit, checkpoints / f"{unit.name}.pt", show))
                bar.update(before + unit.steps - bar.n)


def show_progress(bar: tqdm, before: int, training: Training) -> None:
    bar.update(before + training.done - bar.n)
    if training.checks:
        last = training.checks[-1]
        bar.set_postfix_str(f"bits a dimension: {last['training']:.3f} in training, {last['validation']:.3f} on the validation")


# ---- taking time ----


def take_times(plan: Plan, results: Results, pictures: str, rounds: int) -> None:
    """Keeps milliseconds of a step of training, medians of rounds in which all networks take turns."""
    shapes = timed_shapes(plan, pictures)
    timed = [Unit("time", pictures, kind, shape, plan.dropout, 1e-4, rounds, SEARCH_SEED) for kind, shape in shapes.items()]
    split = timed[0].split()
    whole = [one for one in split.training.split(BATCHES[pictures]) if len(one) == BATCHES[pictures]]
    batches = [whole[number % len(whole)] for number in range(rounds)]
    times = turns.take_turns(f"times, {pictures}", [step_of(unit) for unit in timed], batches)
    results.keep(
        f"{pictures}-times",
        {
            "shapes": [vars(shape) for shape in shapes.values()], "machine": reporting.machine(), "rounds": rounds,
            "ms": dict(zip(shapes, np.median(times, 0).round(2).tolist())),
            "times the dense": dict(zip(shapes, np.median(times / times[:, :1], 0).round(3).tolist())),
        },
    )  # fmt: skip


def timed_shapes(plan: Plan, pictures: str) -> dict[str, Shape]:
    """The shapes of the networks, and that of the dense one with all blocks present."""
    full = Shape(plan.dense.features, plan.dense.depth, plan.block, plan.dense.features // plan.block)
    return {kind: plan.shape(pictures, kind) for kind in plan.kinds(pictures)} | {FULL: full}


def step_of(unit: Unit):
    """What makes a step of training with a batch."""
    split = unit.split()
    network, mixture = unit.network(split).train(), mixture_of(split)
    optimizer = torch.optim.Adam(network.parameters(), unit.rate)
    return lambda images: learn(network, mixture, optimizer, images)


def times_of(plan: Plan, results: Results, pictures: str) -> dict | None:
    """What take_times kept for these shapes."""
    kept = results.read(f"{pictures}-times")
    shapes = [vars(shape) for shape in timed_shapes(plan, pictures).values()]
    return kept if kept and kept["shapes"] == shapes else None


# ---- the result ----


def standard_error(figures: list[float]) -> float:
    return statistics.stdev(figures) / math.sqrt(len(figures)) if len(figures) > 1 else math.nan


def mean_and_error(figures: list[float], digits: int = 3) -> str:
    if len(figures) == 1:
        return f"{figures[0]:.{digits}f}"
    return f"{statistics.fmean(figures):.{digits}f} ± {standard_error(figures):.{digits}f}"


def best_test(result: dict) -> float:
    return result["test"]["best"]


def beyond_training(result: dict) -> float:
    """Bits of the test over those of images of the training, of the best weights."""
    return result["test"]["best"] - best_check(result)["training"]


def tabulated(networks: dict[str, dict[str, Found]], times: dict[str, dict]) -> str:
    header = ["pictures", "network", "features", "residual blocks", "parameters", "learning rate", "test", "test, last weights",
              "training", "ms a step"]  # fmt: skip
    rows = []
    for pictures, found_by_kind in networks.items():
        for kind, found in with_runs(found_by_kind).items():
            bits = [best_test, lambda result: result["test"]["last"], lambda result: best_check(result)["training"]]
            size = next(iter(found.runs.values()))["parameters"]
            step = f"{times[pictures]['ms'][kind]:.0f}" if pictures in times else ""
            shape = [str(found.shape.features), str(found.shape.depth), f"{size:,}", f"{found.rate:g}"]
            rows.append([pictures, kind, *shape, *(mean_and_error(found.figures(one)) for one in bits), step])
    return reporting.table(header, rows)


def with_runs(networks: dict[str, Found]) -> dict[str, Found]:
    return {kind: found for kind, found in networks.items() if found.runs}


def of_what_shape(shape: Shape, other: Shape) -> str:
    """What a network has more of than another, or fewer."""
    said = [
        f"{mine} {what} instead of {its}"
        for what, mine, its in (("residual blocks", shape.depth, other.depth), ("features", shape.features, other.features))
        if mine != its
    ]
    return " and ".join(said)


def fewer_bits(networks: dict[str, Found], other: str) -> list[float]:
    """By how many bits the sparse network is better than another one on the test, for each seed that both were trained with."""
    sparse, reference = networks[SPARSE].runs, networks[other].runs
    return [best_test(reference[seed]) - best_test(sparse[seed]) for seed in sorted(sparse.keys() & reference.keys())]


def is_better(fewer: list[float]) -> bool:
    """By more than two standard errors, of two seeds or more."""
    return len(fewer) > 1 and statistics.fmean(fewer) > 2 * standard_error(fewer)


def compared(pictures: str, networks: dict[str, Found], other: str = DENSE) -> str:
    """How the sparse network differs from another one on the test, with the seeds that both were trained with."""
    fewer = fewer_bits(networks, other)
    if not fewer:
        return f"On {pictures}, {NAMES[SPARSE]} and {NAMES[other]} have no seed in common."
    mean = statistics.fmean(fewer)
    said = (
        f"On {pictures}, {NAMES[SPARSE]}, of {of_what_shape(networks[SPARSE].shape, networks[other].shape)}, has {abs(mean):.3f} "
        f"bits a dimension {'fewer' if mean > 0 else 'more'} than {NAMES[other]}"
    )
    if len(fewer) == 1:
        return f"{said} with the one seed that both were trained with, which tells nothing of others."
    error, better = standard_error(fewer), sum(one > 0 for one in fewer)
    said += f" (standard error of the differences of {len(fewer)} seeds {error:.3f}; fewer with {better} of them)"
    if abs(mean) > 2 * error:
        return f"**{said}: it is {'better' if mean > 0 else 'worse'} by more than two standard errors.**"
    return f"**{said}: no difference of more than two standard errors.**"


def due_to_depth(pictures: str, networks: dict[str, Found]) -> list[str]:
    """What a narrow network tells of a gain over the dense one."""
    if len(fewer_bits(networks, NARROW) if NARROW in networks else []) < 2 or not is_better(fewer_bits(networks, DENSE)):
        return []
    if is_better(fewer_bits(networks, NARROW)):
        return [
            f"On {pictures}, depth alone does not explain the gain over {NAMES[DENSE]}: {NAMES[NARROW]} is as deep and gains less."
        ]
    return [
        f"On {pictures}, the gain over {NAMES[DENSE]} is one that depth alone gives, too: no further gain of sparse features was found."
    ]


def at_the_edge(pictures: str, networks: dict[str, Found]) -> list[str]:
    """Where a better learning rate may lie beyond those that were tried."""
    said = []
    for kind, found in with_runs(networks).items():
        edges = {min(found.searched): "smallest", max(found.searched): "largest"}
        if len(found.searched) > 1 and found.rate in edges:
            said.append(f"For {NAMES[kind]} on {pictures} the {edges[found.rate]} learning rate that was tried did best.")
    return said


def overfitted(pictures: str, networks: dict[str, Found]) -> str:
    """What the test has over images of the training, and whether more updates would help."""
    parts = []
    for kind, found in with_runs(networks).items():
        beyond, every = found.figures(beyond_training), len(found.runs)
        words = "more" if statistics.fmean(beyond) > 0 else "fewer"
        bits = mean_and_error(beyond if words == "more" else [-one for one in beyond])
        at_last = sum(best_check(result)["step"] == result["checks"][-1]["step"] for result in found.runs.values())
        parts.append(f"{bits} bits {words} for {NAMES[kind]}, whose last check was its best in {at_last} of {every} runs")
    said = f"On {pictures}, the test has, in comparison with images of the training, {'; '.join(parts)}."
    if all(best_check(one) == one["checks"][-1] for found in networks.values() for one in found.runs.values()):
        said += " No network had stopped improving, and longer training would probably help all."
    if pictures == "patches":
        said += " The parts are from other columns of the photographs, and not equally hard to predict."
    return said


def timed(pictures: str, times: dict) -> str:
    """How long steps take, in comparison with those of the dense network."""
    ratios = times["times the dense"]
    said = f"On {pictures}, a step takes {ratios[SPARSE]:.2f} times as long with {NAMES[SPARSE]} as with {NAMES[DENSE]}"
    if NARROW in ratios:
        said += f", and {ratios[NARROW]:.2f} times with {NAMES[NARROW]}"
    return (
        f"{said}; with {NAMES[DENSE]} in layers of Sparsekiln, which then have all blocks, it takes {ratios[FULL]:.2f} times as "
        "long as in those of PyTorch."
    )


def missing(plan: Plan, networks: dict[str, dict[str, Found]]) -> list[str]:
    """Which runs there are no results of."""
    said = []
    for pictures, found_by_kind in networks.items():
        for kind, found in found_by_kind.items():
            seeds = [str(seed) for seed in range(plan.seeds) if seed not in found.runs]
            if seeds:
                which = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
                said.append(f"Runs of {NAMES[kind]} on {pictures} are missing: {which}.")
    return said


def setting(plan: Plan, networks: dict[str, dict[str, Found]], times: dict[str, dict]) -> str:
    machines = {one["machine"] for by_kind in networks.values() for found in by_kind.values() for one in found.runs.values()}
    machines |= {one["machine"] for one in times.values()}
    rates = ", ".join(f"{rate:g}" for rate in plan.rates)
    updates = " and ".join(f"{plan.steps[pictures]} updates with {BATCHES[pictures]} {pictures} each" for pictures in networks)
    sparse = next(iter(networks.values()))[SPARSE].shape
    return (
        f"{'; '.join(sorted(machines))}. {updates}, dropout of {plan.dropout:g}, mixtures of {MIXTURES} logistics. "
        f"Learning rates of {rates} were tried for half of the updates on another seed, and each network has the one with the "
        "fewest bits on the validation. The convolutions of the sparse network have "
        f"{100 * sparse.degree * sparse.block / sparse.features:.3g} % of their blocks of {sparse.block} × {sparse.block} "
        "features, as many in each row and column, and the diagonal among them."
    )


def columns(plan: Plan) -> str:
    return (
        f"Figures are bits a dimension, mean and standard error of up to {plan.seeds} seeds. “Test” is of images that are held "
        "out, and “training” of some that are not, both with the average of the weights at the check with the fewest bits on the "
        "validation; “last weights” are those after the last update. Parameters are counted without absent taps, which PyTorch "
        "computes, as zeros of a masked weight, and Sparsekiln does not. The milliseconds of a step are medians of rounds in which "
        "all networks take turns."
    )


def described(plan: Plan, networks: dict[str, dict[str, Found]], times: dict[str, dict]) -> str:
    whole = {pictures: one for pictures, one in networks.items() if all(one[kind].runs for kind in MAIN)}
    if not whole:
        raise SystemExit("there are no results of both networks yet; without --write they are made")
    said = [
        compared(pictures, one, other) for pictures, one in whole.items() for other in with_runs(one) if other != SPARSE
    ]  # fmt: skip
    said += [sentence for pictures, one in whole.items() for sentence in due_to_depth(pictures, one)]
    further = [overfitted(pictures, one) for pictures, one in whole.items()]
    further += [timed(pictures, times[pictures]) for pictures in whole if pictures in times]
    further += [sentence for pictures, one in whole.items() for sentence in at_the_edge(pictures, one)]
    further += missing(plan, networks)
    further.append(
        "For much larger networks, on CIFAR-10, the paper of 2017 reports 2.90 bits a dimension of a sparse, deeper PixelCNN++ in "
        "comparison with 2.92 of the dense one."
    )
    parts = [setting(plan, whole, times), " ".join(said), tabulated(whole, times), columns(plan)]
    return "\n\n".join([*parts, " ".join(further)])


def drawn(networks: dict[str, dict[str, Found]]):
    """Bits over updates, means of the seeds."""
    figure, panels = reporting.new_figure(ncols=len(networks), figsize=(4.5 * len(networks), 3.4), squeeze=False)
    for axes, (pictures, found_by_kind) in zip(panels[0], networks.items()):
        for color, (kind, found) in zip(("C0", "C1", "C2"), found_by_kind.items()):
            if not found.runs:
                continue
            checks = [result["checks"] for result in found.runs.values()]
            steps = [one["step"] for one in checks[0]]
            for part, line in (("validation", "-"), ("training", "--")):
                bits = np.array([[one[part] for one in run_checks] for run_checks in checks]).mean(0)
                axes.plot(steps, bits, line, color=color, linewidth=1, label=f"{kind}, {part}")
        lowest, highest = axes.get_ylim()
        axes.set(title=pictures, xlabel="updates", ylim=(lowest, min(highest, lowest + 3)))
    panels[0, 0].set(ylabel="bits a dimension")
    panels[0, 0].legend()
    return figure


# ---- the run ----


def add_options(parser) -> None:
    parser.add_argument("--pictures", nargs="+", choices=list(PICTURES), default=list(PICTURES))
    parser.add_argument("--features", type=int, default=64, help="of the dense network")
    parser.add_argument("--depth", type=int, default=2, help="residual blocks of the dense network")
    parser.add_argument("--block", type=int, default=8, help="side of the blocks of the sparse network")
    parser.add_argument("--degree", type=int, default=2, help="with how many blocks each is connected, of each group of features")
    parser.add_argument("--grow", choices=["deeper", "wider"], default="deeper", help="what the sparse network is instead")
    parser.add_argument("--control", nargs="*", choices=list(PICTURES), default=list(PICTURES), help="pictures of the narrow network")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--steps", type=int, help=f"updates in a run, for all pictures; otherwise {STEPS}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="a folder; results of other options are replaced")
    parser.add_argument("--checkpoints", type=pathlib.Path, default=CHECKPOINTS, help="a folder of what is not finished")


def publish(options, plan: Plan, rounds: int) -> None:
    """Trains and measures what is missing, unless the document is written, and prints or writes the result."""
    results = Results(options.results)
    if not options.write:
        train_missing(plan, results, options.pictures, options.checkpoints)
        for pictures in options.pictures:
            if not times_of(plan, results, pictures):
                take_times(plan, results, pictures, rounds)
    networks = {pictures: look_up(plan, results, pictures) for pictures in options.pictures}
    times = {pictures: kept for pictures in options.pictures if (kept := times_of(plan, results, pictures))}
    plot = "Bits a dimension over updates, on validation and training images, of the networks"
    reporting.publish(options, "pixel_cnn", described(plan, networks, times), drawn(networks), plot)


def main() -> None:
    options = reporting.parse(__doc__, add_options)
    dense = Shape(options.features, options.depth)
    sparse = {"block": options.block, "degree": options.degree, "grow": options.grow}
    steps = {pictures: options.steps or STEPS[pictures] for pictures in PICTURES}
    plan = Plan(dense, **sparse, dropout=options.dropout, steps=steps, seeds=options.seeds, control=tuple(options.control))
    if not options.short:
        return publish(options, plan, rounds=40)
    small = Shape(options.features // 2, 1)
    plan = dataclasses.replace(plan, dense=small, steps=dict.fromkeys(PICTURES, 2), seeds=2, rates=RATES[:1])
    with tempfile.TemporaryDirectory() as folder:
        options.results = options.checkpoints = pathlib.Path(folder)
        options.pictures = options.pictures[:1]
        publish(options, plan, rounds=2)


if __name__ == "__main__":
    main()
