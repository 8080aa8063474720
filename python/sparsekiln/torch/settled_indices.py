"""The custom operator torch.ops.sparsekiln.settled: index tensors as a compiled graph reads them, where no layer can be asked."""

import torch

from .custom_operator import custom_operator
from .kernels import find
from .operands import check_indices, check_one_device

Tensor = torch.Tensor


def _check(crow, col, cols) -> None:
    if cols < 0:
        raise ValueError(f"{cols} block columns; 0 or more would work")
    check_indices(crow, col, 1, max(crow.shape[0] - 1, 0), col.shape[0])
    check_one_device(crow_indices=crow, col_indices=col)


def _copies(crow, col, cols) -> tuple[Tensor, Tensor]:
    return torch.empty_like(crow), torch.empty_like(col)


@custom_operator("sparsekiln::settled", _check, _copies, vmap=None)
def settled(crow: Tensor, col: Tensor, cols: int) -> tuple[Tensor, Tensor]:
    """Copies of the index tensors of a layer, which has them hold its layout of so many block columns first: see settle_indices."""
    find(crow, col, cols)
    return crow.clone(), col.clone()
