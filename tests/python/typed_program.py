"""A program of a user, which `mypy --strict` accepts (test_typing.py), and which runs. What it must refuse is marked as ignored:
an ignored error that mypy does not find is an error of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

import sparsekiln as sk
from sparsekiln.compat import BlocksparseMatMul
from sparsekiln.compat.torchao import BlockSparseTensor, BlockSparseWeightConfig
from sparsekiln.compat.torchao import sparsify_ as sparsify_masked_
from sparsekiln.torch import (
    BlockSparseConv2d, BlockSparseConvTranspose2d, BlockSparseLinear, Replaced, Report, Sparsifier, fuse_conv_bn, init, linear,
    sparsify_, weight_norm,
)  # fmt: skip

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def kernels(layout: sk.Layout) -> npt.NDArray[np.float32]:
    kernel = sk.compile(layout, block=(16, 16), batch=sk.up_to(64), dtype=np.float32, target="cpu")
    x = np.ones((4, kernel.in_features), np.float32)
    w = np.ones((layout.blocks, *kernel.block), np.float32)
    y: npt.NDArray[np.float32] = kernel(x, w)
    print(kernel.op, kernel.batch_bound + 1, kernel.compile_ms / 1000, kernel.computation["dtype"].upper(), sk.activations[0])
    if TYPE_CHECKING:
        sk.compile(layout, block="32")  # type: ignore[arg-type]
        kernel.in_feature  # type: ignore[attr-defined]
    return y


def network() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))


def gradient_times_weight(name: str, layer: torch.nn.Linear) -> torch.Tensor:
    assert layer.weight.grad is not None, name
    return layer.weight.grad * layer.weight


def prune(model: torch.nn.Module) -> list[str]:
    model(torch.randn(4, 64)).sum().backward()
    report: Report = sparsify_(model, {"0": 0.5, "*": None}, 16, scores=gradient_times_weight)
    sparsify_(model, lambda name, layer: 0.25 if name else None, (16, 16), where=["2"], leave_small=False)
    first: Replaced = report.layers[0]
    if TYPE_CHECKING:
        sparsify_(model, "dense")  # type: ignore[arg-type]
    return [first.name.upper(), str(first.blocks + first.shape[0])]


def train(model: torch.nn.Module) -> float:
    optimizer = torch.optim.AdamW(model.parameters())
    sparsifier = Sparsifier(model, 0.25, 16, end_step=2, every=1, optimizer=optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        loss: torch.Tensor = model(torch.randn(4, 64)).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch has no types there
        optimizer.step()
        if sparsifier.step():
            print(sparsifier.density, sorted(sparsifier.layers))
    sparsifier.load_state_dict(sparsifier.state_dict())
    if TYPE_CHECKING:
        Sparsifier(model, 0.25)  # type: ignore[call-arg]
    return sparsifier.density


def layers(layout: sk.Layout) -> torch.Tensor:
    layer = BlockSparseLinear(64, 64, layout, block=16, activation="gelu")
    y: torch.Tensor = layer(torch.randn(2, 64))
    again = BlockSparseLinear.from_bsr(layer.to_bsr().detach(), bias=None)
    z: torch.Tensor = linear(y, again.to_bsr())
    layer.relayout(layout.transposed())
    return z + layer.to_dense().sum()


def convolutions() -> torch.Tensor:
    conv = BlockSparseConv2d.from_conv(torch.nn.Conv2d(32, 64, 3, 2), 0.5, 16)
    up = BlockSparseConvTranspose2d(64, 32, 3, stride=2, density=0.5, block=(16, 32), max_blocks=4)
    init.xavier_normal_(up).relayout([[1], [0], [1], [1]])
    folded: BlockSparseConv2d = fuse_conv_bn(conv.eval(), torch.nn.BatchNorm2d(64).eval())
    y: torch.Tensor = weight_norm(up)(folded(torch.randn(1, 32, 6, 6)), output_size=[6, 6])
    dense: torch.nn.Module = folded.to_dense()
    if TYPE_CHECKING:
        up.from_convolution(dense)  # type: ignore[operator]
    return y.sum() + conv.dense_weight().sum()


def sharded(model: torch.nn.Module, mesh: DeviceMesh) -> int:
    from sparsekiln.torch import ColwiseSparseParallel, Partition, RowwiseSparseParallel, parallelize
    from sparsekiln.torch.parallel import ShardedBlockSparseLinear, local_state, whole_state

    shared = Partition.in_order(64, mesh.size(), 16)
    parallelize(model, mesh, {"0": ColwiseSparseParallel(group=16, partition=shared), "2": RowwiseSparseParallel(partition=shared)})
    layer = parallelize(BlockSparseLinear(64, 64, np.eye(2)), mesh, ColwiseSparseParallel(use_local_output=True))
    assert isinstance(layer, ShardedBlockSparseLinear)
    state = local_state(whole_state(model, {"state": {}}))
    if TYPE_CHECKING:
        parallelize(model, mesh, "0")  # type: ignore[arg-type]
        ColwiseSparseParallel(groups=16)  # type: ignore[call-arg]
    return layer.partition.units + layer.whole_layout.blocks + layer.features.shape[0] + len(state)


def masked(model: torch.nn.Module) -> str:
    config = BlockSparseWeightConfig(blocksize=16)
    sparsify_masked_(model, config, filter_fn=lambda module, fqn: isinstance(module, torch.nn.Linear) and fqn != "2")
    weight = model.get_parameter("0.weight")
    assert isinstance(weight, BlockSparseTensor)
    return f"{weight.blocksize + 1} {weight.bsr_values.shape}"


def of_2017() -> npt.NDArray[np.float32]:
    product = BlocksparseMatMul(np.eye(4), block_size=16)
    w = product.ortho_init()(product.w_shape)
    y: npt.NDArray[np.float32] = product(np.ones((2, product.C), np.float32), w)
    return y


def main() -> None:
    layout = sk.patterns.watts_strogatz(4, 4, density=0.5)
    print(kernels(layout).shape, prune(network()), train(network()), layers(layout).shape, convolutions().shape, masked(network()), of_2017().shape)


if __name__ == "__main__":
    main()
