"""Who takes a step of training of a linear layer: BlockSparseLinear, nn.Linear and, by hand, PyTorch's BSR tensors.

A step is forward, the gradients of input, weight and bias, and SGD.
"""

import torch

from sparsekiln.torch import BlockSparseLinear

OURS = "BlockSparseLinear"


class _BsrStep(torch.autograd.Function):
    """The layer on a BSR tensor, trained: y and dx are its BSR products, dx's with a transposed copy that is made in each
    step; dW, which it has no product for, is a batched dense product over the blocks."""

    @staticmethod
    def forward(ctx, x, values, bias, layer):
        ctx.layer = layer
        ctx.save_for_backward(x, values)
        weight = torch.sparse_bsr_tensor(layer.crow, layer.col, values, size=layer.shape)
        return torch.addmm(bias[:, None], weight, x.T).T

    @staticmethod
    def backward(ctx, dy):
        layer = ctx.layer
        x, values = ctx.saved_tensors
        transposed = values[layer.order].transpose(1, 2).contiguous()
        weight = torch.sparse_bsr_tensor(layer.ccol, layer.row_of, transposed, size=layer.shape[::-1])
        dx = (weight @ dy.T).T
        block = layer.block
        tiles = dy.reshape(len(dy), -1, block).permute(1, 2, 0)[layer.rows]
        dw = torch.bmm(tiles, x.reshape(len(x), -1, block).transpose(0, 1)[layer.col.long()])
        return dx, dw, dy.sum(0), None


class BsrLinear(torch.nn.Module):
    def __init__(self, ours: BlockSparseLinear):
        super().__init__()
        bsr = ours.to_bsr().detach()
        self.block = ours.block[0]
        self.shape, self.crow, self.col = bsr.shape, bsr.crow_indices(), bsr.col_indices()
        transposed = bsr.to_dense().T.contiguous().to_sparse_bsr((self.block, self.block))
        self.ccol, self.row_of = transposed.crow_indices(), transposed.col_indices()
        self.rows = torch.repeat_interleave(torch.arange(self.crow.numel() - 1), self.crow.diff())
        self.order = torch.argsort(self.col.long() * (self.crow.numel() - 1) + self.rows)
        self.weight_values = torch.nn.Parameter(bsr.values().clone())
        self.bias = torch.nn.Parameter(ours.bias.detach().clone())

    def forward(self, x):
        return _BsrStep.apply(x, self.weight_values, self.bias, self)


def training(ours: BlockSparseLinear, dense: torch.nn.Linear, x: torch.Tensor, dy: torch.Tensor) -> dict:
    def step(layer):
        optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
        leaf = x.clone().requires_grad_()

        def run():
            optimizer.zero_grad(set_to_none=True)
            leaf.grad = None
            layer(leaf).backward(dy)
            optimizer.step()

        return run

    return {OURS: step(ours), "nn.Linear, dense": step(dense), "BSR, by hand": step(BsrLinear(ours))}


def dense_of(ours: BlockSparseLinear) -> torch.nn.Linear:
    dense = torch.nn.Linear(ours.in_features, ours.out_features)
    with torch.no_grad():
        dense.weight.copy_(ours.to_dense())
        dense.bias.copy_(ours.bias)
    return dense


def check_gradients(ours: BlockSparseLinear, dense: torch.nn.Linear, x: torch.Tensor, dy: torch.Tensor) -> None:
    """All contestants compute the same y, dx, dW and gradient of the bias."""
    results = []
    for layer in (ours, dense, BsrLinear(ours)):
        leaf = x.clone().requires_grad_()
        parameter = layer.weight if layer is dense else layer.weight_values
        y = layer(leaf)
        results.append((y.detach(), *torch.autograd.grad(y, (leaf, parameter, layer.bias), dy)))
    of_dense = results[1]
    kept = BlockSparseLinear.from_linear(dense, layout=ours.layout, block=ours.block)
    kept._copy_dense(of_dense[2], None)
    expected = (of_dense[0], of_dense[1], kept.weight_values.detach(), of_dense[3])
    for others in (results[0], results[2]):
        for one, of_one in zip(others, expected):
            torch.testing.assert_close(one, of_one, rtol=1e-3, atol=1e-3)
