"""A small PixelCNN++ (Salimans et al. 2017): masked, gated residual convolutions and a discretised mixture of logistics.

Pixels are predicted row by row, each from those before it. In contrast to the paper there is one stack of convolutions with
the masks A and B of van den Oord et al. (2016), at one resolution. It does not see all earlier pixels: those of the rows above
that lie far to the right are missing, which the 7×7 kernel of the first convolution makes few.

Images are uint8 [n, channels, height, width] from 0 to levels − 1. Convolutions are channels-last.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from sparsekiln import Layout, patterns
from sparsekiln.torch import BlockSparseConv2d, init, weight_norm
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize

FIRST_KERNEL, KERNEL = 7, 3
#: Makes a weight-normalised convolution of (inputs, outputs, taps, scale): bool taps [height, width], and the factor by which
#: weights begin smaller than those that keep the variance.
Convolution = Callable[[int, int, np.ndarray, float], nn.Module]


def earlier_taps(kernel: int, centre: bool) -> np.ndarray:
    """bool [kernel, kernel]: those of the rows above and to the left. Mask A, or with the centre mask B."""
    taps = np.zeros((kernel, kernel), bool)
    taps[: kernel // 2] = True
    taps[kernel // 2, : kernel // 2 + centre] = True
    return taps


# ---- convolutions, dense and block-sparse ----


class PresentTaps(nn.Module):
    """A parametrization of a dense weight [out, in, height, width]: the taps that are not there are 0."""

    def __init__(self, taps: np.ndarray):
        super().__init__()
        self.register_buffer("taps", torch.from_numpy(taps).float(), persistent=False)

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.taps

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


def dense_convolution(inputs: int, outputs: int, taps: np.ndarray, scale: float = 1.0) -> nn.Conv2d:
    """An nn.Conv2d of the present taps. Absent ones begin as 0 and have no gradient, so that they do not count in a norm."""
    conv = nn.Conv2d(inputs, outputs, len(taps), padding=len(taps) // 2)
    with torch.no_grad():
        conv.weight.normal_(0, scale / math.sqrt(inputs * taps.sum())).mul_(torch.from_numpy(taps))
        conv.bias.zero_()
    parametrizations.weight_norm(conv)
    parametrize.register_parametrization(conv, "weight", PresentTaps(taps))
    return conv


def connections(features: int, inputs: int, outputs: int, block: int, degree: int, seed: int) -> Layout:
    """Which blocks of inputs and outputs are connected, where both are one or more groups of so many features.

    Between each two groups, every block is connected with the one of the same number and with random others, `degree` in all,
    in rows and in columns.
    """
    side = features // block
    rows, cols = outputs // features, inputs // features
    squares = [
        patterns.balanced_random(side, side, degree / side, seed * rows * cols + number, diagonal=True).mask()
        for number in range(rows * cols)
    ]
    return Layout(np.block([squares[row * cols : (row + 1) * cols] for row in range(rows)]))


class SparseConvolutions:
    """Makes block-sparse convolutions, each with connections of its own that follow from `seed`."""

    def __init__(self, features: int, block: int, degree: int, seed: int):
        self.features, self.block, self.degree, self.seed = features, block, degree, 10_000 * seed

    def __call__(self, inputs: int, outputs: int, taps: np.ndarray, scale: float = 1.0) -> BlockSparseConv2d:
        layout = connections(self.features, inputs, outputs, self.block, self.degree, self.seed)
        self.seed += 1
        conv = BlockSparseConv2d(inputs, outputs, len(taps), padding=len(taps) // 2, layout=layout, block=self.block, tap_mask=taps)
        init.kaiming_normal_(conv, nonlinearity="linear")
        with torch.no_grad():
            conv.weight_values.mul_(scale)
            conv.bias.zero_()
        return weight_norm(conv)


# ---- the network ----


def concat_elu(x: Tensor) -> Tensor:
    """elu(x) and elu(−x), one after the other; in place, so that the derivative comes from the result, without an exponential."""
    return functional.elu(torch.cat((x, -x), 1), inplace=True)


class GatedResidual(nn.Module):
    """x + a · sigmoid(b), where a and b are computed from x by two convolutions of mask B. Dropout takes whole features."""

    def __init__(self, features: int, dropout: float, convolution: Convolution):
        super().__init__()
        taps = earlier_taps(KERNEL, centre=True)
        self.conv1 = convolution(2 * features, features, taps, 1.0)
        self.dropout = nn.Dropout2d(dropout)
        self.conv2 = convolution(2 * features, 2 * features, taps, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(concat_elu(x))
        return x + functional.glu(self.conv2(self.dropout(concat_elu(y))), 1)


class PixelCNN(nn.Module):
    """From images, scaled to −1 … 1, to what a likelihood takes for each pixel: [n, outputs, height, width].

    `convolution` makes those of the residual blocks. The first convolution, of mask A, and the last one, of a single tap, are
    dense. The first has a further input of ones, by which it knows where an image ends.
    """

    def __init__(self, channels: int, outputs: int, features: int, depth: int, dropout: float, convolution: Convolution):
        super().__init__()
        self.first = dense_convolution(channels + 1, features, earlier_taps(FIRST_KERNEL, centre=False))
        self.residuals = nn.Sequential(*(GatedResidual(features, dropout, convolution) for _ in range(depth)))
        self.last = dense_convolution(2 * features, outputs, np.ones((1, 1), bool))
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        ones = torch.ones_like(images[:, :1])
        x = torch.cat((images, ones), 1).contiguous(memory_format=torch.channels_last)
        return self.last(concat_elu(self.residuals(self.first(x))))


def parameters(network: nn.Module) -> int:
    """Numbers that are trained, without absent taps of dense weights."""
    absent = sum(
        conv.in_channels * conv.out_channels * int((conv.parametrizations.weight[-1].taps == 0).sum())
        for conv in network.modules()
        if isinstance(conv, nn.Conv2d)
    )
    return sum(one.numel() for one in network.parameters()) - absent


# ---- the likelihood ----


class LogisticMixture(NamedTuple):
    """Discretised logistics, of which each pixel has several for all its channels (Salimans et al. 2017, §2.1 and §2.2).

    The mean of a channel is linear in the channels of the pixel before it, with coefficients for each logistic.
    """

    mixtures: int
    channels: int
    levels: int

    @property
    def outputs(self) -> int:
        """How many numbers a network gives for each pixel."""
        return self.mixtures * (1 + 2 * self.channels + self.pairs)

    @property
    def pairs(self) -> int:
        return self.channels * (self.channels - 1) // 2

    def scaled(self, images: Tensor) -> Tensor:
        return images.float() * (2 / (self.levels - 1)) - 1

    def bits(self, given: Tensor, images: Tensor) -> Tensor:
        """[n]: bits a dimension of each image, for what a network gives for them, [n, outputs, height, width]."""
        x = self.scaled(images)
        sizes = [self.mixtures * count for count in (1, self.channels, self.channels, self.pairs)]
        weights, means, log_scales, shares = given.split(sizes, 1)
        means = torch.stack(list(self._means(means, shares, x)), 1)
        log_scales = log_scales.unflatten(1, (self.channels, self.mixtures)).clamp(min=-7)
        of_levels = log_probability(x[:, :, None], means, log_scales, self.levels).sum(1)
        of_pixels = torch.logsumexp(weights.log_softmax(1) + of_levels, 1)
        return -of_pixels.sum((1, 2)) / (math.log(2) * images[0].numel())

    def _means(self, means: Tensor, shares: Tensor, x: Tensor) -> Iterator[Tensor]:
        """The means of one channel after the other, each [n, mixtures, height, width]."""
        means = means.unflatten(1, (self.channels, self.mixtures))
        shares = shares.tanh().unflatten(1, (self.pairs, self.mixtures))
        for channel in range(self.channels):
            mean = means[:, channel]
            for earlier in range(channel):
                mean = mean + shares[:, channel * (channel - 1) // 2 + earlier] * x[:, earlier, None]
            yield mean


def log_probability(x: Tensor, mean: Tensor, log_scale: Tensor, levels: int) -> Tensor:
    """The log probability of the level at x, a number from −1 to 1: the logarithm of what a logistic distribution has nearer to it
    than to others.

    σ(upper) − σ(lower) = σ(upper) · σ(−lower) · (1 − e^(lower − upper)) is exact where the difference of nearly equal numbers
    is not. The first level has all that is below, the last one all that is above.
    """
    half, per_scale = 1 / (levels - 1), torch.exp(-log_scale)
    first, last = x < half - 1, x > 1 - half
    below_upper = functional.logsigmoid((x + half - mean) * per_scale).masked_fill(last, 0)
    above_lower = functional.logsigmoid((mean - x + half) * per_scale).masked_fill(first, 0)
    between = torch.log(-torch.expm1(-2 * half * per_scale)).expand_as(mean).masked_fill(first | last, 0)
    return below_upper + above_lower + between
