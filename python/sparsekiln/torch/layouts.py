"""Layouts that tensors and other layouts describe."""

import numpy as np
import torch

import sparsekiln


def four_times(layout: "sparsekiln.Layout") -> "sparsekiln.Layout":
    """The layout of the four gates of an LSTM as one weight: the rows of each after those of the one before."""
    crow, col = np.asarray(layout.crow), np.asarray(layout.col)
    starts = np.concatenate([crow[:1], *(crow[1:] + gate * layout.blocks for gate in range(4))])
    return sparsekiln.Layout.from_csr(4 * layout.rows, layout.cols, starts.astype(np.int32), np.tile(col, 4))


def check_index_tensors(crow: torch.Tensor, col: torch.Tensor) -> None:
    """ValueError for other types or ranks than those of BSR index tensors."""
    for name, tensor in (("crow_indices", crow), ("col_indices", col)):
        if tensor.dtype not in (torch.int32, torch.int64) or tensor.dim() != 1:
            raise ValueError(f"{name} is {tuple(tensor.shape)} of {tensor.dtype}; BSR index tensors are 1-D of int32 or int64")


def layout_from_indices(crow: torch.Tensor, col: torch.Tensor, cols: int) -> "sparsekiln.Layout":
    """The layout that BSR index tensors describe: crow [rows + 1] and col [blocks or more], of `cols` block columns.

    Only the first crow[-1] entries of col belong to it.

    ValueError if they are not integers, or unsorted, duplicate or out of range.
    """
    check_index_tensors(crow, col)
    for name, tensor in (("crow_indices", crow), ("col_indices", col)):
        if tensor.is_meta:
            raise ValueError(f"{name} is on meta, where it has no values; what was offloaded must be loaded before this call")
    if crow.numel() == 0:
        raise ValueError("crow_indices is empty; it has one entry for each row of blocks, and one more")
    starts, columns = _indices(crow), _indices(col)
    if starts[-1] > columns.size:
        raise ValueError(f"crow_indices ends with {starts[-1]}, and col_indices has {columns.size} entries; it has one for each block")
    return sparsekiln.Layout.from_csr(crow.numel() - 1, cols, starts, columns[: starts[-1]])


def _indices(tensor: torch.Tensor) -> np.ndarray:
    array = tensor.detach().cpu().numpy()
    if array.size and (array.max() > np.iinfo(np.int32).max or array.min() < 0):
        raise ValueError("index tensors hold numbers from 0 to 2^31 - 1 alone")
    return np.ascontiguousarray(array, dtype=np.int32)
