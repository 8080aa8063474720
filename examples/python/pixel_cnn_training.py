"""Trains a PixelCNN, dense or block-sparse, in a run that can be interrupted, whose result is a small file of JSON.

A unit is one run, and says all that its result follows from. While it is trained, a checkpoint holds what it needs to go on.
"""

import copy
import dataclasses
import functools
import itertools
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from pixel_cnn_network import LogisticMixture, PixelCNN, SparseConvolutions, dense_convolution, parameters
from reporting import machine
from small_pictures import PICTURES, Split
from torch import Tensor, nn

DENSE, SPARSE, NARROW = "dense", "sparse", "narrow"  #: kinds of networks; a narrow one is dense, and as deep as the sparse one
MIXTURES = 5
BATCHES = {"digits": 32, "patches": 8}  # images, of as many pixels
WARM_UP, AVERAGE, CLIP = 50, 0.99, 1.0  # steps until the rate is reached; decay of the average of the weights; norm of gradients
CHECKS, CHECKED = 16, 104  # how often in a training, and on how many images to train on


@dataclass(frozen=True)
class Shape:
    """Features, and residual blocks. A sparse network has blocks of features, each connected with `degree` others of a group."""

    features: int
    depth: int
    block: int = 0
    degree: int = 0


@dataclass(frozen=True)
class Unit:
    """A run of training. `purpose` is "search" for a learning rate, or "comparison"."""

    purpose: str
    pictures: str
    kind: str
    shape: Shape
    dropout: float
    rate: float
    steps: int
    seed: int

    @property
    def name(self) -> str:
        which = f"rate-{self.rate:g}" if self.purpose == "search" else f"seed-{self.seed}"
        return f"{self.pictures}-{self.kind}-{which}"

    def split(self) -> Split:
        return PICTURES[self.pictures](self.seed)

    def network(self, split: Split) -> PixelCNN:
        """With weights, and connections, that follow from the seed."""
        torch.manual_seed(self.seed)
        shape = self.shape
        sparse = SparseConvolutions(shape.features, shape.block, shape.degree, self.seed) if shape.block else dense_convolution
        mixture = mixture_of(split)
        return PixelCNN(mixture.channels, mixture.outputs, shape.features, shape.depth, self.dropout, sparse)


def mixture_of(split: Split) -> LogisticMixture:
    return LogisticMixture(MIXTURES, split.training.shape[1], split.levels)


def bits_of(network: nn.Module, mixture: LogisticMixture, images: Tensor) -> Tensor:
    """[n]: bits a dimension of each image."""
    return mixture.bits(network(mixture.scaled(images)), images)


@torch.no_grad()
def mean_bits(network: nn.Module, mixture: LogisticMixture, images: Tensor) -> float:
    network.eval()
    return torch.cat([bits_of(network, mixture, some) for some in images.split(32)]).mean().item()


def learn(network: nn.Module, mixture: LogisticMixture, optimizer: torch.optim.Optimizer, images: Tensor) -> None:
    """A step of training."""
    loss = bits_of(network, mixture, images).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), CLIP)
    optimizer.step()


def rate_at(step: int, steps: int) -> float:
    """Factor of the learning rate of a step, counted from 1: it rises over WARM_UP steps, and falls to 0 as a cosine does."""
    return min(1, step / min(WARM_UP, steps)) * (1 + math.cos(math.pi * step / steps)) / 2


class Training:
    """A run on its way: the network, the average of its weights, and what was found at the checks."""

    def __init__(self, unit: Unit):
        self.unit, self.split = unit, unit.split()
        self.mixture = mixture_of(self.split)
        self.network = unit.network(self.split)
        self.optimizer = torch.optim.Adam(self.network.parameters(), unit.rate)
        self.average = copy.deepcopy(self.network).requires_grad_(False)
        self.best: dict[str, Tensor] = self.average.state_dict()  # of the check with the fewest bits on the validation
        self.done, self.seconds = 0, 0.0
        self.checks: list[dict[str, float]] = []

    @property
    def every(self) -> int:
        """Steps from a check to the next."""
        return max(1, self.unit.steps // CHECKS)

    def batch(self, step: int) -> Tensor:
        """The batch of a step, counted from 0. The images left of an epoch are dropped."""
        size, images = BATCHES[self.unit.pictures], self.split.training
        epoch, number = divmod(step, len(images) // size)
        order = torch.Generator().manual_seed(1000 * self.unit.seed + epoch)
        return images[torch.randperm(len(images), generator=order)[number * size : (number + 1) * size]]

    def advance(self) -> None:
        """To the next check, which it includes."""
        began = time.perf_counter()
        self.network.train()
        for step in range(self.done, min(self.done + self.every, self.unit.steps)):
            for group in self.optimizer.param_groups:
                group["lr"] = self.unit.rate * rate_at(step + 1, self.unit.steps)
            learn(self.network, self.mixture, self.optimizer, self.batch(step))
            with torch.no_grad():
                for mean, one in zip(self.average.parameters(), self.network.parameters()):
                    mean.lerp_(one, 1 - AVERAGE)
        self.done = step + 1
        self.seconds += time.perf_counter() - began
        self._check()

    def _check(self) -> None:
        bits = [mean_bits(self.average, self.mixture, some) for some in (self.split.training[:CHECKED], self.split.validation)]
        self.checks.append({"step": self.done, "training": bits[0], "validation": bits[1]})
        if bits[1] <= min(one["validation"] for one in self.checks):
            self.best = copy.deepcopy(self.average.state_dict())

    def result(self) -> dict:
        """Bits a dimension of the test are of the last weights, and of the best ones of the validation."""
        last = mean_bits(self.average, self.mixture, self.split.test)
        self.average.load_state_dict(self.best)
        return {
            "unit": dataclasses.asdict(self.unit), "parameters": parameters(self.network), "machine": machine(),
            "seconds": round(self.seconds), "checks": self.checks,
            "test": {"last": last, "best": mean_bits(self.average, self.mixture, self.split.test)},
        }  # fmt: skip

    def state(self) -> dict:
        parts = {name: getattr(self, name).state_dict() for name in ("network", "average", "optimizer")}
        numbers = {name: getattr(self, name) for name in ("best", "done", "seconds", "checks")}
        return {"unit": dataclasses.asdict(self.unit), "random": torch.get_rng_state(), **parts, **numbers}

    def load(self, state: dict) -> None:
        for name in ("network", "average", "optimizer"):
            getattr(self, name).load_state_dict(state[name])
        for name in ("best", "done", "seconds", "checks"):
            setattr(self, name, state[name])
        torch.set_rng_state(state["random"])


def run(unit: Unit, checkpoint: pathlib.Path, checked: Callable[[Training], object]) -> dict:
    """The result of a unit, from its checkpoint on if there is one. `checked` is called at the beginning, and after each check."""
    training = Training(unit)
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        if state["unit"] == dataclasses.asdict(unit):
            training.load(state)
    checked(training)
    while training.done < unit.steps:
        training.advance()
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        write(checkpoint, lambda file: torch.save(training.state(), file))
        checked(training)
    result = training.result()
    checkpoint.unlink(missing_ok=True)
    return result


def write(file: pathlib.Path, content: Callable[[pathlib.Path], object]) -> None:
    """Replaces a file by what `content` writes into the path that it is given, at once."""
    partial = file.with_name(f"{file.name}.partial")
    content(partial)
    os.replace(partial, file)


class Results:
    """A folder with the result of each unit: NAME.json."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def of(self, unit: Unit) -> dict | None:
        """None if it is missing, or that of another unit of the same name."""
        result = self.read(unit.name)
        return result if result and result["unit"] == dataclasses.asdict(unit) else None

    def read(self, name: str) -> dict | None:
        file = self.folder / f"{name}.json"
        return json.loads(file.read_text()) if file.exists() else None

    def keep(self, name: str, result: dict) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self.folder / f"{name}.json", lambda file: file.write_text(json.dumps(result, indent=1) + "\n"))


@functools.cache
def sparse_shape(dense: Shape, block: int, degree: int, grow: str, pictures: str) -> Shape:
    """The sparse shape of as many parameters as the dense one: of as many features, "deeper", or as deep and "wider".

    A block of features more or less is some per cent of the parameters of a wider one.
    """
    if grow == "deeper":
        return as_large(dense, (Shape(dense.features, depth, block, degree) for depth in itertools.count(dense.depth)), pictures)
    wider = (Shape(features, dense.depth, block, degree) for features in itertools.count(dense.features, block))
    return as_large(dense, wider, pictures, percent=3)


@functools.cache
def narrow_shape(dense: Shape, depth: int, pictures: str) -> Shape:
    """The shape of a dense network of another depth with about as many parameters: a feature more or less is some per cent of them."""
    return as_large(dense, (Shape(features, depth) for features in itertools.count(1)), pictures, percent=3)


def as_large(dense: Shape, shapes: Iterator[Shape], pictures: str, percent: float = 1) -> Shape:
    """The one of as many parameters as the dense one, from shapes in ascending order of size.

    The nearest that there is. ValueError if it differs by more than so much.
    """
    target, best, size = size_of(dense, pictures), None, math.inf
    for shape in shapes:
        now = size_of(shape, pictures)
        if abs(now - target) >= abs(size - target):
            break
        best, size = shape, now
    if abs(size - target) > target * percent / 100:
        raise ValueError(
            f"the network nearest to the {target} parameters of the dense one has {size}, {best}, not within {percent:g} %; "
            "another depth, number of features or degree would work"
        )
    return best


def size_of(shape: Shape, pictures: str) -> int:
    unit = Unit("size", pictures, "any", shape, dropout=0, rate=0, steps=0, seed=0)
    return parameters(unit.network(unit.split()))
