"""Small images to learn the distribution of, from scikit-learn: handwritten digits, and patches of its two photographs."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor

PATCH = 16
#: Columns of a photograph, in patches: those on the left are to train on, then validation, then the test, to the right edge.
TRAINING, VALIDATION = 26, 6
TRAINING_PATCHES = 4096


@dataclass
class Split:
    """Images uint8 [n, channels, height, width], of values from 0 to levels − 1."""

    levels: int
    training: Tensor
    validation: Tensor
    test: Tensor


@functools.cache
def digits(seed: int) -> Split:
    """1797 images of 8×8 pixels and 17 levels of gray, in parts that the seed draws: 1200 to train on, 200, and 397."""
    images = torch.from_numpy(load_digits().images.astype(np.uint8))[:, None]
    return Split(17, *images[shuffled(len(images), seed)].split([1200, 200, len(images) - 1400]))


@functools.cache
def patches(seed: int) -> Split:
    """Patches of 16×16 pixels in colour. Those to train on are at places that the seed draws, and overlap; others lie side by side.

    The parts are from separate columns of the photographs, so that none shares a pixel with another.
    """
    left, right = PATCH * TRAINING, PATCH * (TRAINING + VALIDATION)
    photographs = [torch.from_numpy(one.copy()).movedim(2, 0) for one in load_sample_images().images]
    training = drawn([one[:, :, :left] for one in photographs], seed)
    others = [torch.cat([tiled(one[:, :, part]) for one in photographs]) for part in (slice(left, right), slice(right, None))]
    return Split(256, training, others[0][shuffled(len(others[0]), 0)], others[1][shuffled(len(others[1]), 0)])


def shuffled(count: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def drawn(photographs: list[Tensor], seed: int) -> Tensor:
    """TRAINING_PATCHES of them, of each photograph [channels, height, width] as many."""
    generator, found = np.random.default_rng(seed), []
    for number in range(TRAINING_PATCHES):
        photograph = photographs[number % len(photographs)]
        row, col = (generator.integers(extent - PATCH + 1) for extent in photograph.shape[1:])
        found.append(photograph[:, row : row + PATCH, col : col + PATCH])
    return torch.stack(found)


def tiled(photograph: Tensor) -> Tensor:
    """[n, channels, PATCH, PATCH]: those that lie side by side in a photograph [channels, height, width]."""
    whole = photograph.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH)
    return whole.flatten(1, 2).movedim(0, 1)


PICTURES: dict[str, Callable[[int], Split]] = {"digits": digits, "patches": patches}
