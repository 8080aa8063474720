"""Inputs as the steps of a SmallWorldLSTM take them: normalised projections on every so many units, a number on the others.

They are made of a window of rows at a time, which a cache still has when a step reads them; on tensors without a gradient.
"""

from typing import NamedTuple

import torch

Tensor = torch.Tensor


class Statistics(NamedTuple):
    mean: Tensor
    deviation: Tensor  #: its inverse


class Normalisation(NamedTuple):
    """Layer normalisation of products of the input, [rows, projected], in the type of sums; and where the results go: to every
    units / projected-th unit."""

    elsewhere: float  #: on the units between
    gain: Tensor  #: [projected], in the type of sums, and so is the bias
    bias: Tensor

    def forward(self, products: Tensor, y: Tensor, epsilon: float) -> Statistics:
        """Writes to y, [rows, units], what is normalised, and the number between."""
        taken = products.to(self.gain.dtype)
        normalised, *statistics = torch.native_layer_norm(taken, taken.shape[1:], self.gain, self.bias, epsilon)
        of_units = y.unflatten(-1, (products.shape[1], -1))
        if of_units.shape[-1] == 2 and y.dtype == normalised.dtype:  # both in one pass over memory
            other = normalised.new_full((), self.elsewhere).expand_as(normalised)
            torch.complex(normalised, other, out=torch.view_as_complex(of_units))
        else:
            of_units[..., 0] = normalised
            of_units[..., 1:] = self.elsewhere
        return Statistics(*statistics)

    def backward(
        self, dy: Tensor, products: Tensor, statistics: Statistics, dproducts: Tensor, dgain: Tensor, dbias: Tensor
    ) -> None:  # fmt: skip
        """Writes dproducts, and adds to dgain and dbias, from the gradient of what `forward` wrote."""
        taken = products.to(self.gain.dtype)
        of_normalised = dy.unflatten(-1, (products.shape[1], -1))[..., 0].to(taken.dtype).contiguous()
        of_products, of_gain, of_bias = torch.ops.aten.native_layer_norm_backward(
            of_normalised, taken, taken.shape[1:], *statistics, self.gain, self.bias, [True] * 3
        )  # fmt: skip
        dproducts.copy_(of_products)
        dgain += of_gain
        dbias += of_bias
