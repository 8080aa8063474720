"""Weight normalisation of block-sparse layers: one norm for each output feature, over all of its present blocks and taps."""

from typing import TypeVar

import torch
from torch.nn.utils import parametrize

import sparsekiln

from .block_sparse_layer import BlockSparseLayer
from .blocks import along_outputs, row_of
from .init import clear_uncounted

Tensor = torch.Tensor
_Layer = TypeVar("_Layer", bound=BlockSparseLayer)


def normalize_filters(
    values: Tensor, layout: "sparsekiln.Layout", gain: Tensor | None = None, eps: float = 1e-12, outputs: int = 0
) -> Tensor:
    """gain · v / √max(‖v‖₂², eps) for each output feature, whose norm is over all of its present blocks, taps and input
    features. Differentiable in values and gain.

    values   [blocks, block_out, block_in] or [blocks, taps, block_out, block_in], as the weight_values of a layer; blocks
             after those of the layout become zeros
    gain     [output features, of whole blocks]; None for 1
    eps      0: a feature whose weights are all zero keeps them, and its gradients are zero
    outputs  1 if the columns of the layout are the output features, as those of a transposed convolution are

    The result has the shape and type of values; it is computed in float32, of float64 in float64.
    """
    if outputs not in (0, 1):
        raise ValueError(f"outputs={outputs!r}; 0 for rows of the layout, or 1 for its columns")
    if values.dim() not in (3, 4) or values.shape[0] < layout.blocks:
        raise ValueError(
            f"values have the shape {tuple(values.shape)}; [blocks, block_out, block_in], or with taps after the blocks, of "
            f"{layout.blocks} blocks or more, would work"
        )
    features = layout.shape[outputs] * values.shape[values.dim() - 2 + outputs]
    if gain is not None and tuple(gain.shape) != (features,):
        raise ValueError(f"gain has the shape {tuple(gain.shape)}; [{features}], one for each output feature, would work")
    if eps < 0:
        raise ValueError(f"eps is {eps}; 0 or more would work")
    places = torch.tensor(layout.col).long() if outputs else torch.from_numpy(row_of(layout))
    return normalized(values, places.to(values.device), features, outputs, gain, eps)


def normalized(values: Tensor, places: Tensor, features: int, outputs: int, gain: Tensor | None, eps: float) -> Tensor:
    """normalize_filters, where `places` is the number of the block of output features of each block."""
    squares = squares_of(values, places, features, outputs)
    if eps > 0:
        scale = squares.clamp(min=eps).rsqrt()
    else:
        scale = torch.where(squares > 0, torch.where(squares > 0, squares, 1).rsqrt(), 0)
    if gain is not None:
        scale = gain * scale
    return (values * along_outputs(scale, places, outputs, values)).to(values.dtype)


def squares_of(values: Tensor, places: Tensor, features: int, outputs: int) -> Tensor:
    """[features]: the sums of squares of each output feature, in float32 at least."""
    used = values[: places.shape[0]].to(torch.promote_types(values.dtype, torch.float32))
    side = values.dim() - 2 + outputs
    of_blocks = used.square().sum([dim for dim in range(1, values.dim()) if dim != side])
    zeros = of_blocks.new_zeros((features // values.shape[side], values.shape[side]))
    return zeros.index_add(0, places, of_blocks).flatten()


class WeightNorm(torch.nn.Module):
    """weight_values = gain · v / ‖v‖₂ for each output feature, of the layout that the layer has: see weight_norm."""

    def __init__(self, layer: BlockSparseLayer) -> None:
        super().__init__()
        self.outputs = layer.OUTPUTS
        self.features = layer.layout.shape[layer.OUTPUTS] * layer.block[layer.OUTPUTS]
        self.places = layer.output_blocks("cpu")  # no buffer, of which others might make averages

    def _places_on(self, device: torch.device) -> Tensor:
        if self.places.device != device and device.type != "meta":
            self.places = self.places.to(device)
        return self.places.to(device)

    def forward(self, gain: Tensor, v: Tensor) -> Tensor:
        return normalized(v, self._places_on(v.device), self.features, self.outputs, gain, 0)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        places = self._places_on(weight.device)
        return squares_of(weight, places, self.features, self.outputs).sqrt().to(weight.dtype), weight


def weight_norm(layer: _Layer) -> _Layer:
    """Parametrizes a block-sparse layer by the direction and the norm of the weights of each output feature, as
    torch.nn.utils.parametrizations.weight_norm does a dense one (Salimans, Kingma 2016): weight = gain · v / ‖v‖₂.

    The norm is over all present blocks and taps of the output feature. The parameters are
    `parametrizations.weight_values.original0`, the gains [outputs in whole blocks], and `.original1`, shaped like the weight;
    a feature whose weights are all zero keeps them. Returns the layer, whose weight stays what it was; its layout is fixed
    until torch.nn.utils.parametrize.remove_parametrizations(layer, "weight_values").
    """
    if not isinstance(layer, BlockSparseLayer):
        raise TypeError(
            f"a {type(layer).__name__}; block-sparse layers are taken here, and torch.nn.utils.parametrizations.weight_norm takes "
            "dense ones"
        )
    layer.put_in_order()
    clear_uncounted(layer)
    parametrize.register_parametrization(layer, "weight_values", WeightNorm(layer))
    return layer
