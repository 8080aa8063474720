"""A small residual network (He et al. 2015) for images of one channel, and its training; dense, or with sparse convolutions.

Images are [n, 1, height, width]. Convolutions are channels-last, in which PyTorch's dense ones and the block-sparse ones are
fastest.
"""

import copy
import math
from collections.abc import Callable

import torch
from sparsekiln.torch import Sparsifier, fuse_conv_bn_
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

BATCH = 64
#: Makes a layer of (in_channels, out_channels, kernel_size, stride, padding=, bias=), such as nn.Conv2d.
Convolution = Callable[..., nn.Module]


class Residual(nn.Module):
    """Two 3×3 convolutions, added to their input. With a stride, or other channels, a dense 1×1 convolution adapts the input."""

    def __init__(self, inputs: int, outputs: int, stride: int, convolution: Convolution):
        super().__init__()
        self.conv1 = convolution(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = convolution(outputs, outputs, 3, 1, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.adapt = normalised(nn.Conv2d(inputs, outputs, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(self.conv1(x)).relu()
        return (self.norm2(self.conv2(y)) + self.adapt(x)).relu()


class ResidualNetwork(nn.Module):
    """A 3×3 convolution, two residual blocks, each of which halves the image, and the mean over the positions: logits [n, 10].

    `width` is the channels of the first convolution; each residual block has twice as many as what is before it. `convolution`
    makes the 3×3 convolutions of the residual blocks. The first one and the 1×1 ones are always dense.
    """

    def __init__(self, width: int, convolution: Convolution = nn.Conv2d):
        super().__init__()
        self.first = normalised(nn.Conv2d(1, width, 3, 2, padding=1, bias=False))
        self.residuals = nn.Sequential(
            Residual(width, 2 * width, 2, convolution), Residual(2 * width, 4 * width, 2, convolution)
        )  # fmt: skip
        self.output = nn.Linear(4 * width, 10)
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        return self.output(self.residuals(self.first(images).relu()).mean((2, 3)))


def normalised(conv: nn.Conv2d) -> nn.Sequential:
    return nn.Sequential(conv, nn.BatchNorm2d(conv.out_channels))


def parameters(network: nn.Module) -> int:
    return sum(one.numel() for one in network.parameters())


def width_for(number: int) -> int:
    """The width of the dense network whose number of parameters is nearest."""
    return min(range(1, 65), key=lambda width: abs(parameters(ResidualNetwork(width)) - number))


def optimizer_of(network: nn.Module, rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(network.parameters(), rate, momentum=0.9, nesterov=True, weight_decay=5e-4)


def learn(network: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, classes: Tensor) -> None:
    """A step of training."""
    optimizer.zero_grad()
    functional.cross_entropy(network(images), classes).backward()
    optimizer.step()


def turned(images: Tensor) -> Tensor:
    """Each image in one of the eight positions of a square, which PyTorch's generator draws: mirrored either way, transposed."""
    for change in (lambda x: x.flip(3), lambda x: x.flip(2), lambda x: x.transpose(2, 3)):
        images = torch.where((torch.rand(len(images)) < 0.5)[:, None, None, None], change(images), images)
    return images.contiguous()


def train(
    network: nn.Module, images: Tensor, classes: Tensor, epochs: int, rate: float, done: Callable[[], object],
    gradual: Callable[[torch.optim.Optimizer, int], Sparsifier] | None = None,
) -> None:  # fmt: skip
    """In batches of BATCH images, turned; what is left of an epoch is dropped. Calls `done()` after each epoch.

    The learning rate rises to `rate` in the first tenth of the steps, and falls to 0 as a cosine does. `gradual` makes what
    prunes the network meanwhile, of the optimizer and the number of steps.
    """
    network.train()
    optimizer = optimizer_of(network, rate)
    steps = epochs * (len(images) // BATCH)
    sparsifier = gradual(optimizer, steps) if gradual else None
    warm = max(1, steps // 10)
    scale = lambda step: min((step + 1) / warm, (1 + math.cos(math.pi * step / steps)) / 2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, scale)
    for _ in range(epochs):
        for chosen in torch.randperm(len(images))[: steps // epochs * BATCH].split(BATCH):
            learn(network, optimizer, turned(images[chosen]), classes[chosen])
            schedule.step()
            if sparsifier:
                sparsifier.step()
        done()


@torch.inference_mode()
def percent_right(network: nn.Module, images: Tensor, classes: Tensor) -> float:
    network.eval()
    right = sum((network(x).argmax(1) == y).sum().item() for x, y in zip(images.split(256), classes.split(256)))
    return 100 * right / len(images)


def folded(network: ResidualNetwork) -> ResidualNetwork:
    """A copy for inference, whose batch normalisations are part of the convolutions, sparse and dense."""
    copied = copy.deepcopy(network).eval()
    fuse_conv_bn_(copied)
    for residual in copied.residuals:
        for conv, norm in (("conv1", "norm1"), ("conv2", "norm2")):
            if isinstance(getattr(residual, conv), nn.Conv2d):
                fold(residual, conv, norm)
        fold(residual.adapt, "0", "1")
    fold(copied.first, "0", "1")
    return copied.to(memory_format=torch.channels_last)


def fold(parent: nn.Module, conv: str, norm: str) -> None:
    """For dense convolutions, what fuse_conv_bn_ does for sparse ones."""
    setattr(parent, conv, fuse_conv_bn_eval(getattr(parent, conv), getattr(parent, norm)))
    setattr(parent, norm, nn.Identity())
