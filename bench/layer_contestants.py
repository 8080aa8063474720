"""The layers of layer_cases.py: ours, and the dense ones that they stand for.

Each is a layer and what it is called with; the dense one has the same weights, zeros where there are no blocks.
"""

import copy
from collections.abc import Callable

import torch
from layer_cases import LayerCase

import sparsekiln
from sparsekiln.torch import BlockSparseConv2d, BlockSparseLinear, BlockSparseLSTM, overlapping_launches

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def ours(case: LayerCase, device: str) -> torch.nn.Module:
    torch.manual_seed(1)
    rows, columns = case.out_features // case.block, case.in_features // case.block
    layout = sparsekiln.patterns.random(rows, rows if case.kind == "lstm" else columns, case.density, seed=7)
    placed = {"device": device, "dtype": _DTYPES[case.dtype]}
    if case.kind == "linear":
        return BlockSparseLinear(case.in_features, case.out_features, layout, case.block, **placed)
    if case.kind == "convolution":
        return BlockSparseConv2d(case.in_features, case.out_features, 3, padding=1, layout=layout, block=case.block, **placed)
    return BlockSparseLSTM(case.in_features, case.out_features, layout=layout, block=case.block, **placed)


def dense_of(layer: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """By name: in each memory format that PyTorch's kernels take."""
    if isinstance(layer, BlockSparseLinear):
        weight = layer.to_dense().detach()
        dense = torch.nn.Linear(layer.in_features, layer.out_features, layer.bias is not None, weight.device, weight.dtype)
        with torch.no_grad():
            dense.weight.copy_(weight)
            if layer.bias is not None:
                dense.bias.copy_(layer.bias)
        return {"nn.Linear": dense}
    dense = layer.to_dense()
    if isinstance(dense, torch.nn.LSTM):
        return {"nn.LSTM": dense}
    last = copy.deepcopy(dense).to(memory_format=torch.channels_last)
    return {"nn.Conv2d, channels-last": last, "nn.Conv2d, contiguous": dense}


def input_of(case: LayerCase, layer: torch.nn.Module, device: str) -> torch.Tensor:
    shape = {
        "linear": (case.batch, case.in_features), "convolution": (case.batch, case.in_features, case.extent, case.extent),
        "lstm": (case.extent, case.batch, case.in_features),
    }[case.kind]  # fmt: skip
    x = torch.randn(shape, device=device).to(_DTYPES[case.dtype])
    first = next(layer.parameters())
    is_contiguous = isinstance(layer, torch.nn.Conv2d) and first.is_contiguous()
    return x if case.kind != "convolution" or is_contiguous else x.to(memory_format=torch.channels_last)


def result_of(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = layer(x)
    return y[0] if isinstance(y, tuple) else y


def inference(layer: torch.nn.Module, x: torch.Tensor) -> Callable[[], None]:
    def call() -> None:
        with torch.no_grad():
            layer(x)

    return call


def overlapped(layer: torch.nn.Module, x: torch.Tensor) -> Callable[[], None]:
    """Inference whose launches may begin before those before them have ended."""

    def call() -> None:
        with overlapping_launches(), torch.no_grad():
            layer(x)

    return call


def training(layer: torch.nn.Module, x: torch.Tensor) -> Callable[[], None]:
    """Forward, and the gradients of the input and of all parameters."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    wanted = [x, *layer.parameters()]
    with torch.no_grad():
        dy = torch.randn_like(result_of(layer, x))

    def step() -> None:
        torch.autograd.grad(result_of(layer, x), wanted, dy)

    return step
