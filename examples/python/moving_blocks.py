"""Blocks that move during training, on scikit-learn's handwritten digits.

Every few steps each layer drops its weakest blocks, and the network grows as many others, in whichever layer: where the
gradient of the dense weight would be largest (RigL, Evci et al. 2020), or anywhere (SET, Mocanu et al. 2018). Held-out
accuracy is compared with the same network with its first layouts, and with a dense one. `BlockSparseLinear.relayout` moves
the blocks: their number in a layer changes, values and Adam's moments move with them, and nothing is compiled. The settings were found on other seeds than those that are reported.
"""

import math
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import reporting
import sparsekiln
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sparsekiln import Layout, patterns
from sparsekiln.torch import BlockSparseLinear
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

BLOCK, HIDDEN, BATCH, EPOCHS = 8, 512, 64, 60
DENSITIES = (0.01, 0.02, 0.05, 0.1)
SEEDS = range(100, 108)
RATE = 1e-2
DECAY = 0.3  # so that blocks without a gradient become weak, and are dropped
EVERY = 25  # steps from one relayout to the next
MOVED, UNTIL = 0.5, 0.75  # that share of the blocks moves at first, and none after that part of the training

# From a layer's input [batch, in] and the gradient of its output [batch, out]: how much a block promises, [rows, cols].
Promise = Callable[[Tensor, Tensor], Tensor]


def anywhere(x: Tensor, dy: Tensor) -> Tensor:
    """A random number."""
    return torch.rand(dy.shape[1] // BLOCK, x.shape[1] // BLOCK)


def to_the_gradient(x: Tensor, dy: Tensor) -> Tensor:
    """The squared norm of its part of the dense weight's gradient, dyᵀ · x."""
    return (dy.T @ x).unflatten(1, (-1, BLOCK)).unflatten(0, (-1, BLOCK)).square().sum((1, 3))


METHODS: dict[str, Promise | None] = {"fixed": None, "moved anywhere": anywhere, "moved to the gradient": to_the_gradient}


class Network(nn.Module):
    """64 pixels -> two wide layers, `hidden` -> 10 digits."""

    def __init__(self, *hidden: nn.Module):
        super().__init__()
        self.hidden = nn.ModuleList(hidden)
        self.output = nn.Linear(HIDDEN, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """x [batch, 64] -> logits [batch, 10], and of each wide layer its input and its output before the activation."""
        seen = []
        for layer in self.hidden:
            y = layer(x)
            seen.append((x, y))
            x = y.relu()
        return self.output(x), seen


def random_layout(inputs: int, density: float, seed: int) -> Layout:
    """A layout for a layer inputs -> HIDDEN."""
    return patterns.random(HIDDEN // BLOCK, inputs // BLOCK, density, seed)


def make(density: float, seed: int) -> Network:
    """With that share of the blocks, anywhere; a density of 1 is a dense network."""
    torch.manual_seed(seed)
    if density == 1:
        return Network(nn.Linear(64, HIDDEN), nn.Linear(HIDDEN, HIDDEN))
    sizes = ((64, 2 * seed), (HIDDEN, 2 * seed + 1))
    return Network(*(BlockSparseLinear(size, HIDDEN, random_layout(size, density, number), BLOCK) for size, number in sizes))


def moved(network: Network, promises: list[Tensor], share: float) -> list[Layout]:
    """The layers' layouts without that share of their blocks, the weakest, and with as many that the network lacked: those of
    largest `promises`, whichever layer they are in."""
    kept, promised, dropped = [], [], 0
    for layer, promise in zip(network.hidden, promises):
        count = round(share * layer.layout.blocks)
        weakest = layer.weight_values.detach().square().sum((1, 2)).argsort()[:count]
        present = torch.from_numpy(layer.layout.mask()).flatten()
        promised.append(promise.flatten().masked_fill(present, -1))
        present[present.nonzero().flatten()[weakest]] = False
        kept.append(present)
        dropped += count
    masks = torch.cat(kept)
    masks[torch.cat(promised).argsort(descending=True)[:dropped]] = True
    sizes = [promise.numel() for promise in promises]
    return [Layout(mask.view(promise.shape)) for mask, promise in zip(masks.split(sizes), promises)]


def split(seed: int) -> list[Tensor]:
    """Pixels float32 [images, 64] from 0 to 1 and digits int64 [images], of two thirds to train on; those of the rest."""
    pixels, digits = load_digits(return_X_y=True)
    x, held_x, y, held_y = train_test_split(pixels / 16, digits, test_size=1 / 3, stratify=digits, random_state=seed)
    return [torch.tensor(x).float(), torch.tensor(y), torch.tensor(held_x).float(), torch.tensor(held_y)]


def cosine(progress: float) -> float:
    """From 1 to 0 as progress goes from 0 to 1, and 0 from there on."""
    return (1 + math.cos(math.pi * min(1, progress))) / 2


def train(network: Network, promise: Promise | None, epochs: int, seed: int, bar: tqdm) -> list[float]:
    """Held-out accuracy after each epoch, in per cent. Blocks move where a promise is given."""
    x, y, held_x, held_y = split(seed)
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY)
    batches = [chosen for _ in range(epochs) for chosen in torch.randperm(len(x)).split(BATCH)]
    accuracies = []
    for step, chosen in enumerate(batches, start=1):
        progress = step / len(batches)
        optimizer.param_groups[0]["lr"] = RATE * cosine(progress)
        logits, seen = network(x[chosen])
        loss = functional.cross_entropy(logits, y[chosen])
        promises = None
        if promise and step % EVERY == 0 and progress < UNTIL:
            gradients = torch.autograd.grad(loss, [y for _, y in seen], retain_graph=True)
            promises = [promise(x.detach(), dy) for (x, _), dy in zip(seen, gradients)]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if promises is not None:
            for layer, layout in zip(network.hidden, moved(network, promises, MOVED * cosine(progress / UNTIL))):
                layer.relayout(layout, optimizer)
        if step % (len(batches) // epochs) == 0:
            with torch.no_grad():
                accuracies.append(100 * (network(held_x)[0].argmax(1) == held_y).float().mean().item())
            bar.update()
    return accuracies


def on_a_path(network: Network) -> float:
    """Per cent of the blocks on a path from a pixel to a digit: something feeds them, and something reads them."""
    first, second = (layer.layout.mask() for layer in network.hidden)
    return 100 * (first[second.any(0)].sum() + second[:, first.any(1)].sum()) / (first.sum() + second.sum())


@dataclass
class Result:
    """The results of one method at one density."""

    accuracy: np.ndarray  # [seeds, epochs], held out, per cent
    path: float = 100.0  # per cent of the blocks on one at the end, mean of the seeds

    @property
    def end(self) -> np.ndarray:
        """Accuracy after the training [seeds]."""
        return self.accuracy[:, -1]

    def __str__(self) -> str:
        return f"{self.end.mean():.1f} ± {self.end.std(ddof=1):.1f}"


def repeat(density: float, promise: Promise | None, seeds: range, epochs: int, bar: tqdm) -> Result:
    networks = [make(density, seed) for seed in seeds]
    accuracy = np.array([train(network, promise, epochs, seed, bar) for network, seed in zip(networks, seeds)])
    return Result(accuracy) if density == 1 else Result(accuracy, statistics.fmean(map(on_a_path, networks)))


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def relayout_seconds(density: float, times: int) -> float:
    """What a relayout of the second layer adds to a training step, the first use of its kernels included; median."""
    layer = BlockSparseLinear(HIDDEN, HIDDEN, random_layout(HIDDEN, density, 0), BLOCK)
    optimizer = torch.optim.AdamW(layer.parameters())
    x = torch.randn(BATCH, HIDDEN, requires_grad=True)

    def step() -> None:
        layer(x).sum().backward()
        optimizer.step()

    step()
    usual = statistics.median(seconds(step) for _ in range(times))
    others = [random_layout(HIDDEN, density, seed) for seed in range(1, times + 1)]
    return statistics.median(seconds(lambda: (layer.relayout(layout, optimizer), step())) for layout in others) - usual


def compile_seconds(density: float, times: int) -> float:
    """Seconds to compile the three kernels that train such a layer, with its layout baked into them; median."""

    def compile_all(seed: int) -> None:
        with tempfile.TemporaryDirectory() as empty:
            for op in ("forward", "grad_input", "grad_weight"):
                layout, batch = random_layout(HIDDEN, density, seed), sparsekiln.up_to(1 << 20)
                sparsekiln.compile(layout, block=BLOCK, batch=batch, op=op, target="cpu", cache_dir=empty)

    return statistics.median(seconds(lambda: compile_all(seed)) for seed in range(times))


def gains(results: dict[float, dict[str, Result]], method: str) -> str:
    """What moving brings over the layout of the beginning, in words."""
    said, clear = [], []
    for density, by_method in results.items():
        gain = by_method[method].end - by_method["fixed"].end
        error = gain.std(ddof=1) / math.sqrt(len(gain))
        said.append(f"{round(gain.mean(), 1) + 0.0:+.1f} ± {error:.1f} at {100 * density:g} %")
        if gain.mean() > 2 * error:
            clear.append(f"{100 * density:g} %")
    where = ", ".join(clear) or "none of these"
    return f"Blocks {method}: {', '.join(said)}; a gain of more than two standard errors, each for itself, at {where}."


def story(results: dict[float, dict[str, Result]], dense: Result, relayout: float, compiled: float) -> str:
    """What the numbers say, in words; the two durations, in seconds, are those at the highest density."""
    seeds, epochs = dense.accuracy.shape
    moving = "\n".join(f"- {gains(results, method)}" for method, promise in METHODS.items() if promise)
    return (
        f"{HIDDEN} wide, blocks of {BLOCK}, {epochs} epochs; mean and standard deviation of {seeds} seeds, each with its split "
        f"of the digits. The dense network has {dense} % right. Points over the fixed layout, mean and standard error of the "
        "differences:\n\n"
        f"{moving}\n\n"
        f"At {100 * max(results):g} % a relayout of the second layer adds {1000 * relayout:.1f} ms to a step, the tables of its "
        "kernels and the state of the optimizer included. To compile the three kernels with the layout baked in takes "
        f"{1000 * compiled:.0f} ms, {compiled / relayout:.0f} times as long.\n\n"
        "“On a path” are the blocks that something feeds and something reads, from a pixel to a digit, at the end."
    )


def tabulated(results: dict[float, dict[str, Result]]) -> str:
    header = ["blocks", *(f"{method}, % right" for method in METHODS), *(f"on a path, {method}" for method in METHODS)]
    rows = [
        [f"{100 * density:g} %", *map(str, by_method.values()), *(f"{result.path:.0f} %" for result in by_method.values())]
        for density, by_method in results.items()
    ]
    return reporting.table(header, rows)


def plot(results: dict[float, dict[str, Result]], dense: Result):
    """Held-out accuracy over epochs at the lowest density, and at the end over densities; bands and bars are one deviation."""
    figure, (left, right) = reporting.new_figure(ncols=2, figsize=(9, 3.6))
    epochs, percents = range(1, dense.accuracy.shape[1] + 1), [100 * density for density in results]
    for method in METHODS:
        runs = results[min(results)][method].accuracy
        mean, deviation = runs.mean(0), runs.std(0, ddof=1)
        line = left.plot(epochs, mean, label=method)[0]
        left.fill_between(epochs, mean - deviation, mean + deviation, alpha=0.15, color=line.get_color(), linewidth=0)
        ends = np.array([by_method[method].end for by_method in results.values()])
        right.errorbar(percents, ends.mean(1), ends.std(1, ddof=1), marker="o", markersize=3, capsize=2)
    left.plot(epochs, dense.accuracy.mean(0), label="dense", color="gray", linestyle="--")
    right.axhline(dense.end.mean(), color="gray", linestyle="--")
    left.set(xlabel="epochs", ylabel="held-out accuracy, %", title=f"{min(percents):g} % of the blocks")
    right.set(xlabel="blocks, %", xscale="log", title="at the end")
    right.set_xticks(percents, [f"{percent:g}" for percent in percents])
    right.minorticks_off()
    left.legend()
    return figure


def main() -> None:
    options = reporting.parse(__doc__)
    densities, seeds, epochs = (DENSITIES[:2], SEEDS[:2], 4) if options.short else (DENSITIES, SEEDS, EPOCHS)
    results = {density: {} for density in densities}
    with tqdm(total=(len(densities) * len(METHODS) + 1) * len(seeds) * epochs, unit="epoch") as bar:
        for density in densities:
            for method, promise in METHODS.items():
                bar.set_description(f"{100 * density:g} %, {method}")
                results[density][method] = repeat(density, promise, seeds, epochs, bar)
        bar.set_description("dense")
        dense = repeat(1, None, seeds, epochs, bar)
    said = story(results, dense, relayout_seconds(densities[-1], 20), compile_seconds(densities[-1], 1 if options.short else 5))
    text = f"{reporting.machine()}: {said}\n\n{tabulated(results)}"
    described = "held-out accuracy over epochs at the lowest density, and at the end over densities, of fixed and moving blocks"
    reporting.publish(options, "moving_blocks", text, plot(results, dense), described)


if __name__ == "__main__":
    main()
