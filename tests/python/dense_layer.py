"""A dense layer in float64, to hold a block-sparse one against, and how far apart the two may be."""

import torch

import sparsekiln
from sparsekiln.torch import BlockSparseLinear

FUNCTIONS = {"none": lambda z: z, **{name: getattr(torch.nn.functional, name, None) for name in sparsekiln.activations}}
FUNCTIONS["gelu_tanh"] = lambda z: torch.nn.functional.gelu(z, approximate="tanh")
_ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def make_layer(
    in_features=100, out_features=120, density=0.4, block=32, bias=True, activation=None, dtype=torch.float32, seed=0
) -> BlockSparseLinear:
    torch.manual_seed(seed)
    rows, cols = -(-out_features // block), -(-in_features // block)
    layout = sparsekiln.patterns.random(rows, cols, density, seed=seed)
    return BlockSparseLinear(in_features, out_features, layout, block, bias, activation, dtype=dtype)


def blocks_of(layer: BlockSparseLinear, matrix: torch.Tensor) -> torch.Tensor:
    """matrix[out, in] at the blocks of the layer: [blocks, block_out, block_in], zeros beyond the last feature."""
    layout, (block_out, block_in) = layer.layout, layer.block
    whole = matrix.new_zeros(layout.rows * block_out, layout.cols * block_in)
    whole[: matrix.shape[0], : matrix.shape[1]] = matrix
    blocks = []
    for row in range(layout.rows):
        for col in layout.col[layout.crow[row] : layout.crow[row + 1]]:
            blocks.append(whole[row * block_out : (row + 1) * block_out, col * block_in : (col + 1) * block_in])
    return torch.stack(blocks) if blocks else matrix.new_zeros(0, block_out, block_in)


class Dense:
    """The result and the gradients of `layer` for x and dy, in float64, each with the bound of its error.

    A sum of products is off by c · u · the sum of their magnitudes, u the rounding of the type; an activation and its
    derivative pass on what their argument was off by, and add a rounding of their own.
    """

    def __init__(self, layer: BlockSparseLinear, x: torch.Tensor, dy: torch.Tensor):
        self.layer = layer
        rounding = _ROUNDING[layer.weight_values.dtype]
        self.u = (16 if layer.weight_values.dtype == torch.float32 else 2) * rounding
        weight = layer.to_dense().detach().double().requires_grad_()
        bias = torch.zeros(layer.out_features) if layer.bias is None else layer.bias.detach()
        bias = bias.double().requires_grad_()
        x = x.detach().double().reshape(-1, layer.in_features).requires_grad_()
        dy = dy.detach().double().reshape(-1, layer.out_features)
        z = x @ weight.T + bias
        self.z = z.detach()
        y = FUNCTIONS[layer.activation](z)
        dx, dweight, dbias = torch.autograd.grad(y, (x, weight, bias), dy)
        with torch.no_grad():
            sums = x.abs() @ weight.abs().T + bias.abs()
            slopes = dy.abs() * (1 if layer.activation in ("none", "relu") else 1 + sums)
            self.y = y.detach(), self.u * (sums + y.abs())
            self.dx = dx, self.u * (slopes @ weight.abs())
            self.dvalues = blocks_of(layer, dweight), self.u * blocks_of(layer, slopes.T @ x.abs())
            self.dbias = dbias, self.u * slopes.sum(0)

    def check(self, name: str, result: torch.Tensor) -> None:
        expected, bound = getattr(self, name)
        error = (result.detach().double().reshape(expected.shape) - expected).abs()
        assert torch.isfinite(result).all(), name
        worst = (error - bound).max().item() if error.numel() else 0
        assert (error <= bound + 1e-300).all(), f"{name} is off by {error.max().item():.3g}, {worst:.3g} above the bound"
