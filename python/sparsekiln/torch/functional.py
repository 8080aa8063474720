"""linear() on BSR tensors, and what it shares with the layer: leading dimensions, autocast, the choice of operator."""

import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

import sparsekiln

from .kernels import kernels_of
from .operators import call
from .products import ACTIVATIONS

Tensor = torch.Tensor


def apply(
    x: Tensor, values: Tensor, bias: Tensor | None, crow: Tensor, col: Tensor, in_features: int,
    out_features: int, activation: str,
) -> Tensor:  # fmt: skip
    """act(x[..., in] · Wᵀ + bias) -> [..., out], with W in the form that the operators take. Follows torch.autocast."""
    if x.is_nested:
        raise TypeError("the input is a nested tensor; pad it with torch.nested.to_padded_tensor")
    if x.dim() == 0 or x.shape[-1] != in_features:
        raise ValueError(f"the input has the shape {tuple(x.shape)}; this layer takes [..., {in_features}]")
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        x, values, bias = _autocast(x.device.type, x, values, bias)
    rows = x if x.dim() == 2 else x.reshape(_rows_of(x), in_features)
    y = call(rows, values, bias, crow, col, in_features, out_features, activation)
    return y if x.dim() == 2 else y.reshape(*x.shape[:-1], out_features)


def _rows_of(x: Tensor) -> int:
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    return rows


def _autocast(device: str, *tensors: Tensor | None) -> Sequence[Tensor | None]:
    """Like nn.Linear: casts to the type of the autocast region if this device is in one, except for float64."""
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return [one.to(dtype) if one is not None and one.is_floating_point() and one.dtype != torch.float64 else one for one in tensors]


def parse_activation(activation: str | None) -> str:
    """"none" for None; ValueError for an unknown name."""
    name = "none" if activation is None else activation
    if name != "none" and name not in ACTIVATIONS:
        raise ValueError(f"there is no activation {activation!r}; there are None, {', '.join(map(repr, ACTIVATIONS))}")
    return name


class _Indices(NamedTuple):
    tensor: weakref.ref
    versions: tuple[int, int]
    crow: Tensor
    col: Tensor
    kernels: object  # keeps them for as long as the tensor lives


# The uses of BSR tensors, by their id(): each access to a BSR tensor returns new index tensors, all of one version.
_indices: dict[int, _Indices] = {}


def _indices_of(weight: Tensor) -> _Indices:
    crow, col = weight.crow_indices(), weight.col_indices()
    versions = (-1, -1) if crow.is_inference() else (crow._version, col._version)
    entry = _indices.get(id(weight))
    if entry is not None and entry.tensor() is weight and entry.versions == versions and versions[0] >= 0:
        return entry
    key = id(weight)
    kernels = kernels_of(sparsekiln.Layout(weight.detach()))

    def forget(dead: weakref.ref) -> None:
        if key in _indices and _indices[key].tensor is dead:
            del _indices[key]

    entry = _indices[key] = _Indices(weakref.ref(weight, forget), versions, crow, col, kernels)
    return entry


def check_bsr(weight: Tensor) -> None:
    """Raises TypeError if the weight is not a 2-D BSR tensor."""
    if not isinstance(weight, torch.Tensor) or weight.layout != torch.sparse_bsr:
        kind = weight.layout if isinstance(weight, torch.Tensor) else type(weight).__name__
        raise TypeError(f"the weight is {kind}; linear takes a BSR tensor, such as weight.to_sparse_bsr((32, 32))")
    if weight.dim() != 2:
        raise TypeError(f"the weight has {weight.dim()} dimensions; a layer has one matrix, [out, in]")


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None) -> Tensor:
    """act(x · Wᵀ + bias), where W is a BSR tensor [out, in] of PyTorch, which is not copied.

    x[..., in] -> [..., out]; blocks have sides of 8, 16, 32, 64 or 128; float32, bfloat16 or float16, accumulated in float32, or on the cpu float64.
    `activation` is None or one of sparsekiln.activations.

    Gradients flow to x, to bias, and through the weight to the values that it was made from. A BSR tensor that is a
    leaf itself gets its gradient from torch.autograd.grad; PyTorch cannot set its .grad. torch.compile breaks the graph
    here: in compiled code, use BlockSparseLinear.from_bsr.
    """
    check_bsr(weight)
    name = parse_activation(activation)
    out_features, in_features = weight.shape
    entry = _indices_of(weight)
    return apply(x, weight.values(), bias, entry.crow, entry.col, in_features, out_features, name)


def _keep_out_of_graphs(function: Callable) -> Callable:
    """Like torch.compiler.disable, which would load all of torch._dynamo: a second, where nothing may ever be compiled."""
    try:
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
    except ImportError:
        return torch.compiler.disable(function)
    set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
    function._torchdynamo_disable = True  # a caller that is compiled does not look into it
    return function


linear = _keep_out_of_graphs(linear)
