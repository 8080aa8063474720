"""Checks of the operators' operands, with readable errors, and conversion to the form that kernels read."""

import torch

from .kernels import BLOCK_SIDES, DTYPES

Tensor = torch.Tensor


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
    """The same of values of any rank, [..., block_out, block_in], of so many blocks."""
    if values.shape[-2] not in BLOCK_SIDES or values.shape[-1] not in BLOCK_SIDES:
        raise ValueError(f"the weight has the shape {tuple(values.shape)}; its blocks, the last two axes, have sides {BLOCK_SIDES}")
    if values.dtype not in DTYPES:
        raise TypeError(f"the weight is {values.dtype}; there are kernels for {', '.join(map(str, DTYPES))}")
    check_indices(crow, col, values.shape[-2], out_features, blocks)
    if in_features < 1 or out_features < 1:
        raise ValueError(f"a layer of {in_features} input and {out_features} output features; it has one of each at least")
    for name, tensor in (("crow_indices", crow), ("col_indices", col)):
        if tensor.device != values.device:
            raise ValueError(f"{name} is on {tensor.device} and the weight on {values.device}; move one of them with .to()")


def check_indices(crow: Tensor, col: Tensor, block_out: int, out_features: int, blocks: int) -> None:
    """Shapes of BSR index tensors."""
    rows = blocks_for(out_features, block_out)
    if crow.dim() != 1 or crow.shape[0] != rows + 1:
        raise ValueError(
            f"crow_indices has the shape {tuple(crow.shape)}; {out_features} output features in blocks of {block_out} need "
            f"{rows + 1} entries"
        )
    if col.dim() != 1 or col.shape[0] != blocks:
        raise ValueError(f"col_indices has the shape {tuple(col.shape)}, and the weight {blocks} blocks; it has an entry for each")


def check_alike(name: str, tensor: Tensor, like: Tensor) -> None:
    """The type and the device of `like`, which `tensor` is multiplied with."""
    if tensor.dtype != like.dtype:
        raise TypeError(
            f"{name} is {tensor.dtype}, and what it is multiplied with {like.dtype}; convert one of them with .to(), or run "
            "under torch.autocast"
        )
    if tensor.device != like.device:
        raise ValueError(
            f"{name} is on {tensor.device}, and what it is multiplied with on {like.device}; move one of them with .to()"
        )


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
