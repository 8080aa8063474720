"""Products with layer normalisation, forward and backward, by their kernels: what steps of networks are made of.

A layer here is y = act(LN(x · Wᵀ) · multiplier + addend), or the cell of an LSTM whose gates are normalised: see Epilogue in
problem.h. The gradient goes from that of one layer's sums, dy, to that of the layer's whose y was its x, in one launch.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch

import sparsekiln

from ..kernels import LayoutKernels, Use, find, kernels_without_blocks
from ..launches import run, used
from ..operands import blocks_for, dense

Tensor = torch.Tensor


@dataclass(frozen=True)
class Blocks:
    """A weight: the kernels of its layout, and its blocks."""

    kernels: LayoutKernels
    values: Tensor
    sides: tuple[int, int] | None = None  #: features of inputs and of outputs, where last blocks are partial
    found: dict[tuple[str, str, int], "sparsekiln.Kernel"] = field(default_factory=dict)  #: what `kernel` gave before

    @property
    def features(self) -> tuple[int, int]:
        """The features of inputs and of outputs."""
        if self.sides is not None:
            return self.sides
        layout = self.kernels.layout
        return layout.cols * self.values.shape[2], layout.rows * self.values.shape[1]

    def kernel(self, operation: str, epilogue: str, n: int) -> "sparsekiln.Kernel":
        asked = operation, epilogue, n
        if asked not in self.found:
            block, values = tuple(self.values.shape[1:]), self.values
            use = Use(operation, block, *self.features, values.dtype, values.device, epilogue=epilogue)
            self.found[asked] = self.kernels.kernel(use, n)
        return self.found[asked]


def blocks_of(crow: Tensor, col: Tensor, values: Tensor, in_features: int, sides: tuple[int, int] | None = None) -> Blocks:
    weight = find(crow, col, blocks_for(in_features, values.shape[2]))
    return Blocks(weight.kernels, dense(used(values, weight)), sides)


def no_blocks(features: int, like: Tensor) -> Blocks:
    """A weight without blocks, whose gradient by the input is that of nothing but the residual."""
    kernels = kernels_without_blocks(blocks_for(features, like.shape[2]))
    return Blocks(kernels, like.new_empty((0, *like.shape[1:])), (features, like.shape[1]))


class Norm(NamedTuple):
    """The normalisation after a product: its numbers, and the matrices that there are of one step."""

    epilogue: str  #: "layer_norm+…"
    gain: Tensor
    bias: Tensor
    sums: Tensor
    statistics: Tensor
    multiplier: Tensor | None = None
    addend: Tensor | None = None

    def operands(self) -> dict[str, Tensor]:
        there = {name: getattr(self, name) for name in ("gain", "bias", "sums", "statistics", "multiplier", "addend")}
        return {name: one for name, one in there.items() if one is not None}


def parts(n: int, device: torch.device) -> int:
    """Into how many the gradients of gains and biases are summed, which as many cores compute: on the cpu so few that they stay in
    a cache."""
    return max(1, min(n, 128 if device.type == "cuda" else 16))


def forward(weight: Blocks, x: Tensor, y: Tensor, norm: Norm, epsilon: float, **cell: Tensor) -> None:
    kernel = weight.kernel("forward", norm.epilogue, x.shape[0])
    run(kernel, x.shape[0], x, weight.values, y, epsilon=epsilon, **norm.operands(), **cell)


def backward(
    weight: Blocks, dy: Tensor, dx: Tensor, norm: Norm, dnorm: Tensor, residual: Tensor | None = None, **others: Tensor
) -> None:  # fmt: skip
    """`others`: c_before, c, dc and dc_before of a cell; dmultiplier and daddend."""
    if residual is not None:
        others["residual"] = residual
    epilogue = norm.epilogue if residual is None else f"{norm.epilogue}+residual"
    kernel = weight.kernel("grad_input", epilogue, dy.shape[0])
    run(kernel, dy.shape[0], dy, weight.values, dx, dnorm=dnorm, **norm.operands(), **others)


def backward_of_last(like: Tensor, dy: Tensor, dx: Tensor, norm: Norm, dnorm: Tensor, **others: Tensor) -> None:
    """The same where no product follows: dy is the gradient of y."""
    nothing = no_blocks(dy.shape[1], like)
    backward(nothing, dy.new_empty((dy.shape[0], like.shape[1])), dx, norm, dnorm, residual=dy, **others)
