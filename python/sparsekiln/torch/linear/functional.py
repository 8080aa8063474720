"""linear() on BSR tensors, and what it shares with the layer: leading dimensions, autocast, the choice of operator."""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch

import sparsekiln
from sparsekiln._arguments import shown

from ..dispatch import refuse_transforms_of_bsr
from ..kernels import kernels_of, know
from ..launch_overlap import Asked
from ..operands import autocast, casts, check_input, check_loaded, check_optional_tensors
from .operators import call
from .products import ACTIVATIONS

Tensor = torch.Tensor


def apply(
    x: Tensor, values: Tensor, bias: Tensor | None, crow: Tensor, col: Tensor, in_features: int,
    out_features: int, activation: str, overlap: Asked = False,
) -> Tensor:  # fmt: skip
    """act(x[..., in] · Wᵀ + bias) -> [..., out], with W in the form that the operators take. Follows torch.autocast."""
    check_input(x, in_features)
    if casts():
        x, values, bias = autocast(x.device.type, x, values, bias)
    rows = x if x.dim() == 2 else x.reshape(_rows_of(x), in_features)
    y = call(rows, values, bias, crow, col, in_features, out_features, activation, overlap=overlap)
    return y if x.dim() == 2 else y.reshape(*x.shape[:-1], out_features)


def _rows_of(x: Tensor) -> int:
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    return rows


def parse_activation(activation: str | None) -> str:
    """"none" for None; ValueError for an unknown name."""
    name = "none" if activation is None else activation
    if not isinstance(name, str) or name != "none" and name not in ACTIVATIONS:
        raise ValueError(f"there is no activation {shown(activation)}; there are None, {', '.join(map(repr, ACTIVATIONS))}")
    return name


class _Indices(NamedTuple):
    tensor: weakref.ref
    versions: tuple[int, int]
    crow: Tensor
    col: Tensor
    kernels: object  # keeps them for as long as the tensor lives


# The uses of BSR tensors, by their id(): each access to a BSR tensor returns new index tensors, all of one version.
_indices: dict[int, _Indices] = {}


def indices_of(weight: Tensor, holder: Tensor) -> _Indices:
    """The index tensors of a BSR tensor, and its kernels, kept for as long as `holder` lives: the tensor itself, or the BSC
    tensor that it is the transpose of."""
    crow, col = weight.crow_indices(), weight.col_indices()
    versions = (-1, -1) if crow.is_inference() else (crow._version, col._version)
    key = id(holder)
    entry = _indices.get(key)
    if entry is not None and entry.tensor() is holder and entry.versions == versions and versions[0] >= 0:
        return entry
    kernels = kernels_of(sparsekiln.Layout(weight.detach()))
    know(crow, col, kernels)

    def forget(dead: weakref.ref) -> None:
        if key in _indices and _indices[key].tensor is dead:
            del _indices[key]

    entry = _indices[key] = _Indices(weakref.ref(holder, forget), versions, crow, col, kernels)
    return entry


def check_bsr(weight: Tensor) -> None:
    """Raises TypeError if the weight is not a 2-D BSR tensor, ValueError if it is on meta."""
    if not isinstance(weight, torch.Tensor) or weight.layout != torch.sparse_bsr:
        kind = weight.layout if isinstance(weight, torch.Tensor) else type(weight).__name__
        raise TypeError(f"the weight is {kind}; this takes a BSR tensor, such as weight.to_sparse_bsr((32, 32))")
    check_loaded("the weight", weight)
    if weight.dim() != 2:
        raise TypeError(f"the weight has {weight.dim()} dimensions; a layer has one matrix, [out, in]")


_Function = TypeVar("_Function", bound=Callable[..., Any])


def keep_out_of_graphs(function: _Function) -> _Function:
    """Like torch.compiler.disable, which would load all of torch._dynamo: a second, where nothing may ever be compiled."""
    try:
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
    except ImportError:
        return torch.compiler.disable(function)
    set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
    function._torchdynamo_disable = True  # type: ignore[attr-defined]  # a caller that is compiled does not look into it
    return function


@keep_out_of_graphs
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None) -> Tensor:
    """act(x · Wᵀ + bias), where W is a BSR tensor [out, in] of PyTorch, which is not copied.

    x[..., in] -> [..., out]; blocks have sides of 8, 16, 32, 64 or 128; float32, bfloat16 or float16, accumulated in float32, or on the cpu float64.
    `activation` is None or one of sparsekiln.activations.

    Gradients flow to x, to bias, and through the weight to the values that it was made from. A BSR tensor that is a
    leaf itself gets its gradient from torch.autograd.grad; PyTorch cannot set its .grad. torch.compile breaks the graph
    here: in compiled code, use BlockSparseLinear.from_bsr.
    """
    check_bsr(weight)
    check_optional_tensors(bias=bias)
    refuse_transforms_of_bsr()
    name = parse_activation(activation)
    out_features, in_features = weight.shape
    entry = indices_of(weight, weight)
    return apply(x, weight.values(), bias, entry.crow, entry.col, in_features, out_features, name)
