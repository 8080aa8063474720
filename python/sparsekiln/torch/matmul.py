"""Products with a block-sparse matrix on either side, and batches of them.

    dsd             dense = sparse · dense
    dds             dense = dense · sparse
    sdd             sparse = dense · dense, at the blocks of another sparse matrix
    matmul          both of the former, also of batches of matrices, in one launch
    batched_linear  a layer for each of several inputs, in one launch

Sparse matrices are BSR tensors of PyTorch, or BSC: the transpose of a BSR tensor is one. They are not copied. All products
are differentiable: gradients flow to the dense operands and, through the sparse one, to the values that it was made from.
"""

import functools
from collections.abc import Sequence

import torch

import sparsekiln

from .functional import _indices_of, check_bsr, parse_activation
from .kernels import kernels_of, know
from .operators import call

Tensor = torch.Tensor
_ops = torch.ops.sparsekiln


def _check_dense(name: str, tensor: Tensor, dimensions: int) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.dim() != dimensions:
        kind = f"{tuple(tensor.shape)}, {tensor.layout}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise TypeError(f"{name} is {kind}; a dense tensor of {dimensions} dimensions is taken here")


def _check_inner(a: Tensor, b: Tensor) -> None:
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"a is {tuple(a.shape)} and b {tuple(b.shape)}: a has as many columns as b has rows")


def _is_sparse(tensor: object) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout in (torch.sparse_bsr, torch.sparse_bsc)


@torch.compiler.disable
def dsd(a: Tensor, b: Tensor) -> Tensor:
    """a[m, k] · b[k, n] -> [m, n], where a is block-sparse."""
    _check_dense("b", b, 2)
    return dds(b.t(), _transposed(a)).t()


@torch.compiler.disable
def dds(a: Tensor, b: Tensor) -> Tensor:
    """a[m, k] · b[k, n] -> [m, n], where b is block-sparse."""
    _check_dense("a", a, 2)
    if b.layout == torch.sparse_bsc:  # b = Wᵀ: the product of a linear layer
        weight = b.t()
        check_bsr(weight)
        _check_inner(a, b)
        entry = _indices_of(weight)
        return call(a, weight.values(), None, entry.crow, entry.col, weight.shape[1], weight.shape[0], "none")
    check_bsr(b)
    _check_inner(a, b)
    entry = _indices_of(b)
    return _ops.linear_grad_input(a, None, b.values(), entry.crow, entry.col, b.shape[1], b.shape[0], "none")


def _transposed(sparse: Tensor) -> Tensor:
    if not _is_sparse(sparse):
        check_bsr(sparse)
    return sparse.transpose(-2, -1)


@torch.compiler.disable
def sdd(a: Tensor, b: Tensor, like: Tensor) -> Tensor:
    """The blocks of a[m, k] · b[k, n] that the block-sparse matrix `like` [m, n] has: a BSR tensor with its indices, or BSC."""
    _check_dense("a", a, 2)
    _check_dense("b", b, 2)
    _check_inner(a, b)
    if _is_sparse(like) and like.layout == torch.sparse_bsc:
        return sdd(b.t(), a.t(), like.t()).t()
    check_bsr(like)
    if tuple(like.shape) != (a.shape[0], b.shape[1]):
        raise ValueError(f"the product is {a.shape[0]} × {b.shape[1]}, and `like` {like.shape[0]} × {like.shape[1]}")
    entry = _indices_of(like)
    block_out, block_in = like.values().shape[1:]
    values, _ = _ops.linear_grad_weight(
        b, a.t(), None, entry.crow, entry.col, block_out, block_in, b.shape[1], a.shape[0], "none", False
    )
    return torch.sparse_bsr_tensor(like.crow_indices(), like.col_indices(), values, size=like.shape, check_invariants=False)


# ---- batches ----


@functools.lru_cache(maxsize=256)
def _diagonal(parts: tuple["sparsekiln.Layout", ...], device: torch.device) -> tuple[Tensor, Tensor, object]:
    """crow and col of the parts along the diagonal, and the kernels of that layout."""
    layout = sparsekiln.Layout.diagonal(parts)
    crow = torch.tensor(layout.crow, dtype=torch.int32, device=device)
    col = torch.tensor(layout.col, dtype=torch.int32, device=device)
    kernels = kernels_of(layout)
    know(crow, col, kernels, "batch of matrices")
    return crow, col, kernels


def _side_by_side(x: Tensor) -> Tensor:
    """[batch, n, features] -> [n, batch · features]; a copy, unless the rows of all matrices lie side by side."""
    return x.transpose(0, 1).reshape(x.shape[1], -1)


def _apart(y: Tensor, batch: int) -> Tensor:
    """[n, batch · features] -> [batch, n, features], of the same memory."""
    return y.view(y.shape[0], batch, -1).transpose(0, 1)


@torch.compiler.disable
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a[…, m, k] · b[…, k, n] -> […, m, n], where one of them is block-sparse. Leading dimensions broadcast, as in torch.matmul.

    One launch computes all of it, each sparse matrix with its own blocks. Dense operands are copied, unless the rows of all
    matrices lie side by side, as those of the heads of attention in [n, heads, features].
    """
    if _is_sparse(a):
        return matmul(b.transpose(-2, -1), _transposed(a)).transpose(-2, -1)
    if not isinstance(a, torch.Tensor) or a.layout != torch.strided or not _is_sparse(b):
        raise TypeError("matmul takes a dense tensor and a BSR or BSC tensor, in any order")
    if a.dim() < 2:
        raise ValueError(f"the dense tensor is {tuple(a.shape)}; matrices have two dimensions or more")
    _check_inner(a, b)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    weight = b.transpose(-2, -1) if b.layout == torch.sparse_bsc else b
    if 0 in batch or 0 in a.shape[-2:] or 0 in b.shape[-2:]:
        return a.new_zeros((*batch, a.shape[-2], b.shape[-1]))
    if b.dim() == 2:
        y = dds(a.reshape(-1, a.shape[-1]), b)
        return y.reshape(*batch, a.shape[-2], b.shape[-1])
    which = torch.arange(weight.shape[:-2].numel()).reshape(weight.shape[:-2]).expand(batch).flatten()
    crow, col, values = _side_by_side_weights(weight, which)
    x = _side_by_side(a.expand(*batch, *a.shape[-2:]).reshape(-1, *a.shape[-2:]))
    rows, columns = which.numel() * weight.shape[-2], which.numel() * weight.shape[-1]
    if weight is not b:
        y = call(x, values, None, crow, col, columns, rows, "none")
    else:
        y = _ops.linear_grad_input(x, None, values, crow, col, columns, rows, "none")
    return _apart(y, which.numel()).reshape(*batch, a.shape[-2], b.shape[-1])


def _side_by_side_weights(weight: Tensor, which: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The matrices of these numbers along the diagonal: crow, col and values."""
    values = weight.values()
    block_out, block_in = values.shape[-2:]
    rows, columns = weight.shape[-2] // block_out, weight.shape[-1] // block_in
    crow = weight.crow_indices().detach().to("cpu", torch.int32).reshape(-1, rows + 1).numpy()
    col = weight.col_indices().detach().to("cpu", torch.int32).reshape(len(crow), -1).numpy()
    layouts = [sparsekiln.Layout.from_csr(rows, columns, *one) for one in zip(crow, col)]
    diagonal_crow, diagonal_col, _ = _diagonal(tuple(layouts[i] for i in which), values.device)
    values = values.reshape(len(crow), -1, block_out, block_in)
    if which.numel() != len(crow):
        values = values[which.to(values.device)]
    return diagonal_crow, diagonal_col, values.reshape(-1, block_out, block_in)


def batched_linear(
    x: Tensor, weight_values: Tensor, layout: "sparsekiln.Layout | Sequence[sparsekiln.Layout]", activation: str | None = None
) -> Tensor:  # fmt: skip
    """act(x[i] · W[i]ᵀ) for each i: x[batch, n, in] -> [batch, n, out], in one launch.

    layout         of all matrices, or a sequence with one for each, of one grid
    weight_values  [batch, blocks, block_out, block_in]; [blocks of all, block_out, block_in] if their numbers differ

    x and the result are copied or not as in matmul.
    """
    _check_dense("x", x, 3)
    batch = x.shape[0]
    parts = (layout,) * batch if isinstance(layout, sparsekiln.Layout) else tuple(layout)
    if len(parts) != batch or len({part.shape for part in parts}) > 1:
        raise ValueError(f"x has {batch} matrices; there is one layout, or {batch} of as many rows and columns of blocks")
    if batch == 0:
        raise ValueError("x has no matrices; a batch has at least one")
    values = weight_values.reshape(-1, *weight_values.shape[-2:])
    block_out, block_in = values.shape[1:]
    out_features, in_features = parts[0].rows * block_out, parts[0].cols * block_in
    if x.shape[2] != in_features:
        raise ValueError(f"x is {tuple(x.shape)}; {parts[0].cols} columns of blocks of {block_out}x{block_in} take {in_features} features")
    crow, col, _ = _diagonal(parts, values.device)
    y = call(
        _side_by_side(x), values, None, crow, col, batch * in_features, batch * out_features, parse_activation(activation)
    )
    return _apart(y, batch)
