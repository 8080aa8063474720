"""A layer of each kind, and the calls of operators that they make."""

import numpy as np
import torch

import sparsekiln
from sparsekiln.torch import (
    BlockSparseConv1d, BlockSparseConv2d, BlockSparseConvTranspose2d, BlockSparseLinear, BlockSparseLSTM, BlockSparseLSTMCell,
    SmallWorldLSTM, normalised_linear, weight_norm,
)  # fmt: skip

_LAYOUT = sparsekiln.patterns.random(5, 5, 0.5, 1)
_TAPS = torch.rand(_LAYOUT.blocks, 3, 3, generator=torch.Generator().manual_seed(1)) < 0.7
_ALL = np.ones((4, 4), bool)
# A layer, and its input.
LAYERS = {
    "linear": (lambda: BlockSparseLinear(80, 72, _LAYOUT, 16, activation="relu"), (3, 80)),
    "room": (lambda: BlockSparseLinear(80, 80, _LAYOUT, 16, max_blocks=20), (3, 80)),
    "weight_norm": (lambda: weight_norm(BlockSparseLinear(80, 80, _LAYOUT, 16)), (3, 80)),
    "convolution": (lambda: BlockSparseConv2d(80, 80, 3, layout=_LAYOUT, block=16), (2, 80, 5, 5)),
    "pointwise": (lambda: BlockSparseConv1d(80, 80, 1, layout=_LAYOUT, block=16), (2, 80, 5)),
    "taps of each block": (lambda: BlockSparseConv2d(80, 80, 3, layout=_LAYOUT, block=16, tap_mask=_TAPS), (2, 80, 5, 5)),
    "edge bias": (lambda: BlockSparseConv2d(80, 80, 3, padding=1, layout=_LAYOUT, block=16, edge_bias=5), (2, 80, 5, 5)),
    "transposed": (lambda: BlockSparseConvTranspose2d(80, 80, 3, layout=_LAYOUT, block=16), (2, 80, 5, 5)),
    "lstm": (lambda: BlockSparseLSTM(32, 64, 2, bidirectional=True, layout=_ALL, input_layout=None, block=16), (5, 3, 32)),
    "lstm of blocks": (lambda: BlockSparseLSTM(64, 64, layout=_ALL, input_layout=_ALL, block=16), (5, 3, 64)),
    "cell": (lambda: BlockSparseLSTMCell(32, 64, layout=_ALL, block=16), (3, 32)),
    "small world": (lambda: SmallWorldLSTM(32, 64, block=16, density=0.5), (5, 3, 32)),
}  # fmt: skip


def output(layer, x, *state):
    y = layer(x, *state)
    return y[0] if isinstance(y, tuple) else y


def recorded_calls():
    """Every operator of the package, as layers and their backward passes call it: its name and its arguments, by the name of the operator."""
    calls = {}

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function.namespace == "sparsekiln":
                calls.setdefault(function._schema.name, (function, args))
            return function(*args, **(kwargs or {}))

    x, dense = torch.randn(3, 64, requires_grad=True), torch.randn(256, 64).to_sparse_bsr((16, 16))
    with Recorder():
        for make, shape in LAYERS.values():
            output(make(), torch.randn(shape, requires_grad=True)).square().sum().backward()
        output(BlockSparseLinear(80, 72, _LAYOUT, 16, activation="gelu"), torch.randn(3, 80, requires_grad=True)).sum().backward()
        torch.ops.sparsekiln.settled(*BlockSparseLinear(80, 80, _LAYOUT, 16)._operands()[1:], 5)
        normalised_linear(x, dense, multiplier=torch.ones(3, 256), addend=torch.ones(3, 256)).sum().backward()
    return calls
