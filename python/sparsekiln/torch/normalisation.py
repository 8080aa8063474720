"""Weight normalisation of block-sparse layers: one norm for each output feature, over all of its present blocks and taps."""

from typing import TypeVar

import torch
from torch.nn.utils import parametrize

from .block_sparse_layer import BlockSparseLayer
from .blocks import along_outputs
from .init import clear_beyond

Tensor = torch.Tensor
_Layer = TypeVar("_Layer", bound=BlockSparseLayer)


class WeightNorm(torch.nn.Module):
    """weight_values = gain · v / ‖v‖₂ for each output feature, of the layout that the layer has: see weight_norm."""

    def __init__(self, layer: BlockSparseLayer) -> None:
        super().__init__()
        self.outputs = layer.OUTPUTS
        self.features = layer.layout.shape[layer.OUTPUTS] * layer.block[layer.OUTPUTS]
        self.register_buffer("places", layer.output_blocks(), persistent=False)

    def forward(self, gain: Tensor, v: Tensor) -> Tensor:
        squares = self._squares(v)
        scale = torch.where(squares > 0, gain * torch.where(squares > 0, squares, 1).rsqrt(), 0)
        return (v * along_outputs(scale, self.places, self.outputs, v)).to(v.dtype)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return self._squares(weight).sqrt().to(weight.dtype), weight

    def _squares(self, v: Tensor) -> Tensor:
        """[output features, of whole blocks]: the sums of squares, in float32 at least."""
        used = v[: self.places.shape[0]].to(torch.promote_types(v.dtype, torch.float32))
        side = v.dim() - 2 + self.outputs
        of_blocks = used.square().sum([dim for dim in range(1, v.dim()) if dim != side])
        zeros = of_blocks.new_zeros((self.features // v.shape[side], v.shape[side]))
        return zeros.index_add(0, self.places, of_blocks).flatten()


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
    with torch.no_grad():
        clear_beyond(layer)
    parametrize.register_parametrization(layer, "weight_values", WeightNorm(layer))
    return layer
