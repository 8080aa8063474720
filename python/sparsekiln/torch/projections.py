"""Inputs as a SmallWorldLSTM takes them: LN(x · Wᵀ) on every so many units, a number on the others.

A window of rows at a time, which a cache still has when a step reads them; on tensors without a gradient.
"""

from typing import NamedTuple

import torch

Tensor = torch.Tensor


class Projection(NamedTuple):
    """What is made of an input of `features`, on units that are a multiple of `projected`."""

    elsewhere: float  #: on units that no projected feature falls on
    weight: Tensor  #: [projected, features]
    gain: Tensor  #: [projected], and so is the bias
    bias: Tensor

    def forward(self, x: Tensor, products: Tensor, y: Tensor, epsilon: float) -> None:
        """Writes x · Wᵀ, [rows, projected], and, to y, what `place` does. x is [rows, features]."""
        torch.mm(x, self.weight.t(), out=products)
        self.place(products, y, epsilon)

    def place(self, products: Tensor, y: Tensor, epsilon: float) -> None:
        """Writes to y, [rows, units], these products, normalised, and the number between them."""
        normalised = self._normalised(products, epsilon)[0]
        of_units = y.unflatten(-1, (products.shape[1], -1))
        if of_units.shape[-1] == 2 and y.dtype in (torch.float32, torch.float64):  # in one pass over memory, which takes a quarter of the time
            other = normalised.new_tensor(self.elsewhere).expand_as(normalised)
            torch.complex(normalised, other, out=torch.view_as_complex(of_units))
        else:
            of_units[..., 0] = normalised
            of_units[..., 1:] = self.elsewhere

    def backward(
        self, dy: Tensor, x: Tensor, products: Tensor, epsilon: float, dx: Tensor | None, sums: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        """Adds to dx, if it is wanted, and to sums: the gradients of weight, gain and bias."""
        taken = dy.unflatten(-1, (products.shape[1], -1))[..., 0].contiguous()
        _, mean, deviation = self._normalised(products, epsilon)
        dproducts, *of_norm = torch.ops.aten.native_layer_norm_backward(
            taken, products, products.shape[1:], mean, deviation, self.gain, self.bias, [True] * 3
        )  # fmt: skip
        sums[0].addmm_(dproducts.t(), x)
        for total, one in zip(sums[1:], of_norm):
            total += one
        if dx is not None:
            dx.addmm_(dproducts, self.weight)

    def _normalised(self, products: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
        """And the means, and the inverses of the deviations."""
        return torch.native_layer_norm(products, products.shape[1:], self.gain, self.bias, epsilon)
