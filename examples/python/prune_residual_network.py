"""Prunes a small residual network for images of clothes to several densities, and reports accuracy against time.

A dense network is trained, the 3×3 convolutions of its residual blocks lose their weakest blocks, all at once by sparsify_, and
it is trained on. It is compared with others that see as many images: the dense one, trained on as well; one that loses its
blocks little by little meanwhile, by Sparsifier; one whose blocks are at random places from the beginning; and a narrower
dense one of as many parameters. All of that is repeated for several seeds, each with its own training images. Accuracy is
that on the test images of Fashion-MNIST. All images are mirrored and transposed at random, to make them harder: as they come,
networks of all these sizes have about as many right. Learning rate and epochs were chosen on another seed than those that
are reported.
"""

import copy
import functools
import math
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before PyTorch is loaded: its threads then leave the cores to the kernels

import numpy as np
import torch
from tqdm import tqdm

import fashion_mnist
import reporting
import residual_network
import turns
from residual_network import BATCH, ResidualNetwork
from sparsekiln.torch import BlockSparseConv2d, Sparsifier, sparsify_

Tensor = torch.Tensor
Images = tuple[Tensor, Tensor]  #: pixels [n, 1, 28, 28] and classes [n]

WIDTH = 64
CONVOLUTIONS = "residuals.*.conv*"  #: names of those that become sparse
RATE, EPOCHS, FURTHER_EPOCHS = 0.1, 3, 5  # the latter after the pruning
DENSE, PRUNED, GRADUAL, RANDOM, NARROW = "dense", "pruned at once", "pruned in steps", "random places", "narrower dense"
SPARSE = (PRUNED, GRADUAL, RANDOM)


@dataclass
class Contestant:
    """A kind of network at one density of the 3×3 convolutions; a narrower one is as large as the pruned one of that density."""

    kind: str
    density: float
    right: list[float] = field(default_factory=list)  #: per cent of the test images, a figure for each seed
    at_once: list[float] = field(default_factory=list)  #: the same of a pruned one before it is trained on
    network: ResidualNetwork | None = None  #: that of the last seed
    inference: float = math.nan  #: milliseconds of a batch; next is how many times as fast that is as the dense network
    inference_ratio: float = 1.0
    step: float = math.nan  #: milliseconds of a step of training, and the same ratio
    step_ratio: float = 1.0

    @property
    def parameters(self) -> int:
        return residual_network.parameters(self.network)


# ---- training ----


def new_contestants(densities: list[float]) -> list[Contestant]:
    """Pruning in steps compiles kernels for the layout of each step, and is done for the lowest density alone."""
    of_kind = {PRUNED: densities, GRADUAL: densities[-1:], RANDOM: densities, NARROW: densities}
    return [Contestant(DENSE, 1.0), *(Contestant(kind, density) for kind in of_kind for density in of_kind[kind])]


def repeat(contestants: list[Contestant], seed: int, images: int, block: int, train: Images, test: Images, done: Callable) -> None:
    """Trains one network of each, on so many images that the seed draws, and appends their results. `done()` after each epoch."""
    torch.manual_seed(seed)
    chosen = torch.randperm(len(train[0]))[:images]
    pixels, classes = train[0][chosen], train[1][chosen]
    learn = lambda network, epochs, gradual=None: residual_network.train(network, pixels, classes, epochs, RATE, done, gradual)
    begun = ResidualNetwork(WIDTH)
    learn(begun, EPOCHS)
    sizes: dict[float, int] = {}
    for one in contestants:
        torch.manual_seed(seed)
        gradual = None
        if one.kind == RANDOM:
            one.network = ResidualNetwork(WIDTH, functools.partial(BlockSparseConv2d, density=one.density, block=block))
            learn(one.network, EPOCHS)
        elif one.kind == NARROW:
            one.network = ResidualNetwork(residual_network.width_for(sizes[one.density]))
            learn(one.network, EPOCHS)
        else:
            one.network = copy.deepcopy(begun)
        if one.kind == PRUNED:
            sparsify_(one.network, one.density, block, where=CONVOLUTIONS)
            one.at_once.append(residual_network.percent_right(one.network, *test))
            sizes[one.density] = one.parameters
        elif one.kind == GRADUAL:
            gradual = functools.partial(in_steps, one.network, one.density, block)
        learn(one.network, FURTHER_EPOCHS, gradual)
        one.right.append(residual_network.percent_right(one.network, *test))


def in_steps(network: ResidualNetwork, density: float, block: int, optimizer: torch.optim.Optimizer, steps: int) -> Sparsifier:
    """Removes blocks three times in the first three fifths of the training."""
    every = steps // 5
    return Sparsifier(network, density, block, end_step=3 * every, every=every, optimizer=optimizer, where=CONVOLUTIONS)


def epochs_of(contestants: list[Contestant]) -> int:
    """The epochs of all networks of one seed, together."""
    from_the_start = [one for one in contestants if one.kind in (RANDOM, NARROW)]
    return EPOCHS * (1 + len(from_the_start)) + FURTHER_EPOCHS * len(contestants)


# ---- taking time ----


def take_times(contestants: list[Contestant], test: Images, rounds: int) -> None:
    """Fills in the times of the networks, first for inference, with norms folded, then for steps of training."""
    batches = [(test[0][first : first + BATCH], test[1][first : first + BATCH]) for first in range(0, rounds * BATCH, BATCH)]
    networks = [residual_network.folded(one.network) for one in contestants]
    with torch.inference_mode():
        inference = turns.take_turns("inference", [lambda batch, one=one: one(batch[0]) for one in networks], batches)
    steps = turns.take_turns("training", [training(one.network) for one in contestants], batches)
    for one, its_inference, its_step in zip(contestants, inference.T, steps.T):
        one.inference, one.inference_ratio = np.median(its_inference), np.median(inference[:, 0] / its_inference)
        one.step, one.step_ratio = np.median(its_step), np.median(steps[:, 0] / its_step)


def training(network: ResidualNetwork) -> Callable[[Images], None]:
    """What makes a step with a batch, on a copy."""
    network = copy.deepcopy(network).train()
    optimizer = residual_network.optimizer_of(network, RATE)
    return lambda batch: residual_network.learn(network, optimizer, *batch)


# ---- the result ----


def mean_and_spread(figures: list[float]) -> str:
    return f"{statistics.fmean(figures):.1f} ± {statistics.stdev(figures):.1f}"


def tabulated(contestants: list[Contestant]) -> str:
    header = ["network", "density", "parameters", "% right", "just pruned", "inference, ms", "× dense", "training step, ms", "× dense"]
    rows = []
    for one in contestants:
        density = "" if one.kind == DENSE else f"as {100 * one.density:g} %" if one.kind == NARROW else f"{100 * one.density:g} %"
        at_once = mean_and_spread(one.at_once) if one.at_once else ""
        times = [f"{one.inference:.1f}", f"{one.inference_ratio:.2f}", f"{one.step:.1f}", f"{one.step_ratio:.2f}"]
        rows.append([one.kind, density, f"{one.parameters:,}", mean_and_spread(one.right), at_once, *times])
    return reporting.table(header, rows)


def differences(contestants: list[Contestant], kind: str, other: str) -> str:
    """How much more networks of a kind have right than those of another of that density, and how fast they are, in words."""
    said = []
    others = {one.density: one for one in contestants if one.kind == other}
    for one in contestants:
        if one.kind == kind:
            reference = others[one.density]
            points = np.subtract(one.right, reference.right)
            error = points.std(ddof=1) / math.sqrt(len(points))
            speed = f"{reference.inference / one.inference:.2f} times as fast"
            said.append(f"{points.mean():+.1f} ± {error:.1f} points at {100 * one.density:g} %, {speed}")
    return "; ".join(said)


def lost(contestants: list[Contestant], one: Contestant) -> float:
    """Percentage points to the dense network, mean of the seeds."""
    return statistics.fmean(contestants[0].right) - statistics.fmean(one.right)


def gained(contestants: list[Contestant]) -> str:
    """What one would take."""
    good = [one for one in contestants if one.kind in SPARSE and lost(contestants, one) <= 1 and one.inference_ratio > 1.05]
    if not good:
        return "**No sparse network here is faster than the dense one and within a point of its accuracy.**"
    best = max(good, key=lambda one: one.inference_ratio)
    return (
        f"**The fastest sparse network within a point of the dense one: {best.kind}, {100 * best.density:g} % of the blocks. It is "
        f"{best.inference_ratio:.2f} times as fast, and has {100 * best.parameters / contestants[0].parameters:.0f} % of the parameters "
        f"and {-lost(contestants, best):+.1f} points.**"
    )


def named(contestants: list[Contestant]) -> str:
    """Such as "pruned at once 50 %, 25 %; random places 10 %"."""
    kinds = dict.fromkeys(one.kind for one in contestants)
    return "; ".join(f"{kind} {', '.join(f'{100 * one.density:g} %' for one in contestants if one.kind == kind)}" for kind in kinds)


def shortfalls(contestants: list[Contestant]) -> list[str]:
    """What a reader should not expect, in sentences."""
    said = []
    sparse = [one for one in contestants if one.kind in SPARSE]
    for what, ratio in (("Inference", "inference_ratio"), ("A step of training", "step_ratio")):
        slow = [one for one in sparse if getattr(one, ratio) < 1.05]
        if slow:
            said.append(f"{what} saves no time with: {named(slow)}.")
    poor = [one for one in sparse if lost(contestants, one) > 1]
    if poor:
        said.append(f"More than a point is lost with: {named(poor)}.")
    narrow = {one.density: one for one in contestants if one.kind == NARROW}
    beaten = [one for one in sparse if narrow[one.density].inference < one.inference
              and lost(contestants, narrow[one.density]) <= lost(contestants, one)]  # fmt: skip
    if beaten:
        said.append(f"The narrower dense network of as many parameters is faster and, in the mean, no less accurate than: {named(beaten)}.")
    return said


def described(contestants: list[Contestant], options, tests: int) -> str:
    dense = contestants[0]
    measured = (
        f"{reporting.machine()}, threads that sleep while they wait (`OMP_WAIT_POLICY={os.environ['OMP_WAIT_POLICY']}`). "
        f"{options.images} training images, {EPOCHS} + {FURTHER_EPOCHS} epochs, {tests} test images, blocks of {options.block}; mean and "
        f"standard deviation of {len(dense.right)} seeds, each with its own training images. Times are of {BATCH} images, medians of "
        "rounds in which all networks take turns; for inference, batch normalisation is folded into the convolutions of all."
    )
    columns = (
        "“Density” is that of the 3×3 convolutions of the residual blocks; “just pruned” is the accuracy before the pruned network is "
        f"trained on, for the last {FURTHER_EPOCHS} epochs. Each narrower network is dense, and has about as many parameters as the "
        "pruned one of that density. “× dense” is how many times as fast. All images are mirrored and transposed at random."
    )
    pairs = ((PRUNED, RANDOM), (PRUNED, NARROW), (RANDOM, NARROW), (GRADUAL, PRUNED), (GRADUAL, NARROW))
    compared = "\n".join(
        ["Differences, mean and standard error of the seeds', and times of inference:\n"]
        + [f"- {kind} against {other}: {differences(contestants, kind, other)}" for kind, other in pairs]
    )
    said = " ".join([gained(contestants), *shortfalls(contestants)])
    return "\n\n".join([measured, tabulated(contestants), columns, compared, said])


def drawn(contestants: list[Contestant]):
    figure, panels = reporting.new_figure(ncols=2, figsize=(9, 3.4), sharey=True)
    for axes, field_name, title in zip(panels, ("inference_ratio", "step_ratio"), ("inference", "a training step")):
        for kind, marker in ((PRUNED, "o"), (GRADUAL, "v"), (RANDOM, "s"), (NARROW, "^"), (DENSE, "D")):
            some = [one for one in contestants if one.kind == kind]
            speeds, means = [getattr(one, field_name) for one in some], [statistics.fmean(one.right) for one in some]
            spreads = [statistics.stdev(one.right) for one in some]
            color = "k" if kind == DENSE else None
            axes.errorbar(speeds, means, spreads, marker=marker, markersize=4, capsize=2, color=color, linewidth=1, label=kind)
            for one, x, y in zip(some, speeds, means) if kind == PRUNED else ():
                axes.annotate(f"{100 * one.density:g} %", (x, y), (4, 4), textcoords="offset points", fontsize=7)
        axes.set(title=title, xlabel="times as fast as dense")
    panels[0].set(ylabel="test images right, %")
    panels[0].legend(loc="lower left")
    return figure


# ---- the run ----


def add_options(parser) -> None:
    parser.add_argument("--densities", type=float, nargs="+", default=[0.5, 0.25, 0.1])
    parser.add_argument("--block", type=int, default=16, help="side of the blocks")
    parser.add_argument("--images", type=int, default=6000, help="to train on, for each seed")
    parser.add_argument("--seeds", type=int, default=3, help="how many, at least 2")


def main() -> None:
    options = reporting.parse(__doc__, add_options)
    options.densities.sort(reverse=True)
    train, (pixels, classes), rounds = fashion_mnist.images("train"), fashion_mnist.images("t10k"), 25
    if options.short:
        options.densities, options.images, options.seeds, rounds = [0.25], BATCH, 2, 2
        pixels, classes = pixels[: rounds * BATCH], classes[: rounds * BATCH]
    test = residual_network.turned(pixels), classes
    contestants = new_contestants(options.densities)
    with tqdm(total=options.seeds * epochs_of(contestants), unit="epoch") as bar:
        for seed in range(options.seeds):
            bar.set_description(f"seed {seed + 1} of {options.seeds}")
            repeat(contestants, seed, options.images, options.block, train, test, bar.update)
    take_times(contestants, test, rounds)
    plot = "Two plots of accuracy against speed, for inference and for a training step, with a curve for each kind of network"
    text = described(contestants, options, len(test[0]))
    reporting.publish(options, "prune_residual_network", text, drawn(contestants), plot)


if __name__ == "__main__":
    main()
