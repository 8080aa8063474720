"""Checks of the operators' operands, with readable errors, and conversion to the form that kernels read."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import is_autocast_enabled

from sparsekiln._arguments import shown

from .kernels import BLOCK_SIDES, DTYPES
from .layouts import check_index_tensors

Tensor = torch.Tensor


def check_one_device(**arguments: Any) -> None:
    """Raises ValueError if tensors among the arguments, or in sequences among them, are on several devices."""
    first: tuple[str, torch.device] | None = None
    for name, tensor in _tensors(arguments):
        if first is None:
            first = name, tensor.device
        elif tensor.device != first[1]:
            offloaded = name if tensor.is_meta else first[0] if first[1].type == "meta" else ""
            remedy = f"{offloaded}, which has no values there, must be loaded before this call" if offloaded else "move one of them with .to()"
            raise ValueError(f"{name} is on {tensor.device}, and {first[0]} on {first[1]}; {remedy}")


def _tensors(arguments: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for name, argument in arguments.items():
        if isinstance(argument, Tensor):
            yield name, argument
        elif isinstance(argument, Sequence) and not isinstance(argument, str):
            yield from ((f"{name}[{number}]", one) for number, one in enumerate(argument) if isinstance(one, Tensor))


def blocks_for(features: int, side: int) -> int:
    """Blocks of this side that hold so many features; the last one may be partial."""
    return (features + side - 1) // side


def check_weight(values: Tensor, crow: Tensor, col: Tensor, in_features: int, out_features: int) -> None:
    """Shapes and type of a weight in blocks, against its index tensors and the features of its layer."""
    if values.dim() != 3:
        raise ValueError(
            f"the weight has the shape {tuple(values.shape)}; it is [blocks, block_out, block_in], of sides {BLOCK_SIDES}"
        )
    check_blocks(values, crow, col, values.shape[0], in_features, out_features)


def check_blocks(values: Tensor, crow: Tensor, col: Tensor, blocks: int, in_features: int, out_features: int) -> None:
    """Shapes and type of values of any rank, [..., block_out, block_in], of so many blocks, against what check_weight takes."""
    if values.shape[-2] not in BLOCK_SIDES or values.shape[-1] not in BLOCK_SIDES:
        raise ValueError(f"the weight has the shape {tuple(values.shape)}; its blocks, the last two axes, have sides {BLOCK_SIDES}")
    if values.dtype not in DTYPES:
        raise TypeError(f"the weight is {values.dtype}; there are kernels for {', '.join(map(str, DTYPES))}")
    check_indices(crow, col, values.shape[-2], out_features, blocks)
    if in_features < 1 or out_features < 1:
        raise ValueError(f"a layer of {in_features} input and {out_features} output features; it has one of each at least")
    check_one_device(weight=values, crow_indices=crow, col_indices=col)


def check_indices(crow: Tensor, col: Tensor, block_out: int, out_features: int, blocks: int) -> None:
    """Shapes and types of BSR index tensors."""
    check_index_tensors(crow, col)
    rows = blocks_for(out_features, block_out)
    if crow.shape[0] != rows + 1:
        raise ValueError(
            f"crow_indices has the shape {tuple(crow.shape)}; {out_features} output features in blocks of {block_out} need "
            f"{rows + 1} entries"
        )
    if col.shape[0] != blocks:
        raise ValueError(f"col_indices has the shape {tuple(col.shape)}, and the weight {blocks} blocks; it has an entry for each")


def check_sides(block_out: int, block_in: int) -> None:
    """Sides of the blocks of a gradient, which no weight tells."""
    if block_out not in BLOCK_SIDES or block_in not in BLOCK_SIDES:
        raise ValueError(f"blocks of {block_out}x{block_in}; there are kernels for sides of {', '.join(map(str, BLOCK_SIDES))}")


def check_count(name: str, several: Sequence[Any], count: int) -> None:
    """As many as there are of what they belong to."""
    if len(several) != count:
        raise ValueError(f"{len(several)} of {name}; {count} would work with the other operands")


def check_epsilon(epsilon: float) -> None:
    if not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon is {epsilon}; a finite number of 0 or more would work")


def check_alike(name: str, tensor: Tensor, like: Tensor) -> None:
    """The type and the device of `like`, which `tensor` is multiplied with."""
    if tensor.dtype != like.dtype:
        raise TypeError(
            f"{name} is {tensor.dtype}, and what it is multiplied with {like.dtype}; convert one of them with .to(), or run "
            "under torch.autocast"
        )
    check_one_device(**{"what it is multiplied with": like, name: tensor})


def check_operand(name: str, tensor: Tensor | None, shape: Sequence[int], dtype: torch.dtype, like: Tensor) -> None:
    """Exactly this shape and type, on the device of `like`. An optional operand that is not there is None."""
    if tensor is None:
        return
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}; {list(shape)} would work with the other operands")
    if tensor.dtype != dtype or tensor.device != like.device:
        raise TypeError(
            f"{name} is {tensor.dtype} on {tensor.device}; {dtype} on {like.device} would work with the other operands"
        )


def check_tensor(given: object, name: str = "the input") -> None:
    """Raises TypeError for an input of a layer that is no tensor."""
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{name} is {shown(given)}; a tensor would work")


def check_input(x: object, in_features: int) -> None:
    """Raises TypeError for an input of a linear layer that is no strided tensor, ValueError if it is not [..., in_features]."""
    check_tensor(x)
    if x.is_nested:
        raise TypeError("the input is a nested tensor; pad it with torch.nested.to_padded_tensor")
    if x.dim() == 0 or x.shape[-1] != in_features:
        raise ValueError(f"the input has the shape {tuple(x.shape)}; this layer takes [..., {in_features}]")


def check_loaded(name: str, tensor: Tensor) -> None:
    """Raises ValueError for a block-sparse tensor on meta."""
    if tensor.is_meta:
        raise ValueError(f"{name} is on meta, where it has no blocks; one that is loaded would work")


def check_optional_tensors(**given: object) -> None:
    """Raises TypeError for arguments that are neither tensors nor None."""
    for name, one in given.items():
        if one is not None:
            check_tensor(one, name)


def check_matrix(name: str, matrix: Tensor, features: int, like: Tensor) -> None:
    """A matrix [n, features] of the type and device of `like`, the weight or another matrix."""
    check_alike(name, matrix, like)
    if matrix.dim() != 2 or matrix.shape[1] != features:
        raise ValueError(f"{name} has the shape {tuple(matrix.shape)}; this layer takes [n, {features}]")


def check_bias(bias: Tensor | None, out_features: int, like: Tensor) -> None:
    if bias is None:
        return
    if bias.dim() != 1 or bias.shape[0] != out_features:
        raise ValueError(f"bias has the shape {tuple(bias.shape)}; this layer takes [{out_features}]")
    if bias.dtype != like.dtype or bias.device != like.device:
        raise TypeError(
            f"bias is {bias.dtype} on {bias.device}, and the weight {like.dtype} on {like.device}; convert one of them with .to()"
        )


def readable(matrix: Tensor, alignment: int) -> Tensor:
    """The matrix in the form in which kernels read activations: rows contiguous and aligned, none overlapping. Copies if needed."""
    columns = matrix.shape[1]
    if (
        not matrix.is_neg()
        and (matrix.stride(1) == 1 or columns == 1)
        and matrix.stride(0) >= columns
        and matrix.stride(0) * matrix.element_size() % alignment == 0
        and matrix.data_ptr() % alignment == 0
    ):
        return matrix.detach()
    return matrix.detach().resolve_neg().clone(memory_format=torch.contiguous_format)


def dense(tensor: Tensor) -> Tensor:
    """The tensor in the form in which kernels read weights and biases: contiguous and aligned. Copies if needed."""
    if tensor.is_contiguous() and not tensor.is_neg() and tensor.data_ptr() % 16 == 0:
        return tensor.detach()
    return tensor.detach().resolve_neg().clone(memory_format=torch.contiguous_format)


def casts() -> bool:
    """Whether this is in an autocast region of a device with kernels."""
    return is_autocast_enabled("cpu") or is_autocast_enabled("cuda")


def autocast(device: str, *tensors: Any) -> Sequence[Any]:
    """Like nn.Linear: casts to the type of the autocast region if this device is in one, except for float64."""
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return [one.to(dtype) if one is not None and one.is_floating_point() and one.dtype != torch.float64 else one for one in tensors]
