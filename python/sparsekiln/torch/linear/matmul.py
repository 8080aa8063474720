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
from sparsekiln._arguments import shown

from ..dispatch import refuse_forward_mode, refuse_transforms_of_bsr, unobserved
from ..kernels import kernels_of, know
from ..operands import autocast, check_loaded, check_matrix, check_tensor
from .functional import check_bsr, indices_of, keep_out_of_graphs, parse_activation
from .operators import call, grad_input, grad_weight

Tensor = torch.Tensor


def _shown(tensor: object) -> str:
    return f"{tuple(tensor.shape)}, {tensor.layout}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__


def _check_dense(name: str, tensor: Tensor, dimensions: int) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.dim() != dimensions:
        raise TypeError(f"{name} is {_shown(tensor)}; a dense tensor of {dimensions} dimensions is taken here")


def _check_sparse(name: str, tensor: Tensor) -> None:
    if not _is_sparse(tensor) or tensor.dim() != 2:
        raise TypeError(f"{name} is {_shown(tensor)}; a BSR or BSC tensor of two dimensions is taken here (matmul takes batches)")


def _check_inner(a: Tensor, b: Tensor) -> None:
    for name, one in (("a", a), ("b", b)):
        if _is_sparse(one):
            check_loaded(name, one)
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"a is {tuple(a.shape)} and b {tuple(b.shape)}: a has as many columns as b has rows")


def _is_sparse(tensor: object) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout in (torch.sparse_bsr, torch.sparse_bsc)


def _check_derivatives() -> None:
    refuse_forward_mode()
    refuse_transforms_of_bsr()


@keep_out_of_graphs
def dsd(a: Tensor, b: Tensor) -> Tensor:
    """a[m, k] · b[k, n] -> [m, n], where a is block-sparse."""
    _check_sparse("a", a)
    _check_dense("b", b, 2)
    _check_inner(a, b)
    return _multiply("b", b.t(), a, a.layout == torch.sparse_bsr).t()


@keep_out_of_graphs
def dds(a: Tensor, b: Tensor) -> Tensor:
    """a[m, k] · b[k, n] -> [m, n], where b is block-sparse."""
    _check_dense("a", a, 2)
    _check_sparse("b", b)
    _check_inner(a, b)
    return _multiply("a", a, b, b.layout == torch.sparse_bsc)


def _multiply(name: str, x: Tensor, sparse: Tensor, turned: bool) -> Tensor:
    """x · Wᵀ if `turned`, else x · W, where W is `sparse`, or its transpose if that is BSC."""
    _check_derivatives()
    weight = sparse.t() if sparse.layout == torch.sparse_bsc else sparse
    check_bsr(weight)
    entry = indices_of(weight, sparse)
    x, values = autocast(x.device.type, x, weight.values())
    out_features, in_features = weight.shape
    check_matrix(name, x, in_features if turned else out_features, values)
    if turned:
        return call(x, values, None, entry.crow, entry.col, in_features, out_features, "none")
    return grad_input(x, None, values, entry.crow, entry.col, in_features, out_features, "none")


@keep_out_of_graphs
def sdd(a: Tensor, b: Tensor, like: Tensor) -> Tensor:
    """The blocks of a[m, k] · b[k, n] that the block-sparse matrix `like` [m, n] has: a BSR tensor with its indices, or BSC."""
    _check_dense("a", a, 2)
    _check_dense("b", b, 2)
    _check_sparse("like", like)
    _check_inner(a, b)
    _check_derivatives()
    if tuple(like.shape) != (a.shape[0], b.shape[1]):
        raise ValueError(f"the product is {a.shape[0]} × {b.shape[1]}, and `like` {like.shape[0]} × {like.shape[1]}")
    if like.layout == torch.sparse_bsc:
        return sdd(b.t(), a.t(), like.t()).t()
    entry = indices_of(like, like)
    block_out, block_in = like.values().shape[1:]
    a, b = autocast(a.device.type, a, b)
    check_matrix("a", a.t(), a.shape[0], b)
    values, _ = grad_weight(
        b, a.t(), None, entry.crow, entry.col, block_out, block_in, b.shape[1], a.shape[0], "none", False
    )
    return torch.sparse_bsr_tensor(like.crow_indices(), like.col_indices(), values, size=like.shape, check_invariants=False)


# ---- batches ----


def _diagonal(parts: tuple["sparsekiln.Layout", ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """crow and col of the parts along the diagonal."""
    # A cached tensor outlives this call: it must belong to no mode, transform or inference region.
    with torch.inference_mode(False):
        return (_cached_diagonal if unobserved() else _cached_diagonal.__wrapped__)(parts, device)


@functools.lru_cache(maxsize=32)
def _cached_diagonal(parts: tuple["sparsekiln.Layout", ...], device: torch.device) -> tuple[Tensor, Tensor]:
    layout = sparsekiln.Layout.diagonal(parts)
    crow = torch.tensor(layout.crow, dtype=torch.int32, device=device)
    col = torch.tensor(layout.col, dtype=torch.int32, device=device)
    know(crow, col, kernels_of(layout))
    return crow, col


def _side_by_side(x: Tensor) -> Tensor:
    """[batch, n, features] -> [n, batch · features]; a copy, unless the rows of all matrices lie side by side."""
    return x.transpose(0, 1).reshape(x.shape[1], x.shape[0] * x.shape[2])


def _apart(y: Tensor, batch: int) -> Tensor:
    """[n, batch · features] -> [batch, n, features], of the same memory."""
    return y.view(y.shape[0], batch, y.shape[1] // batch).transpose(0, 1)


@keep_out_of_graphs
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a[…, m, k] · b[…, k, n] -> […, m, n], where one of them is block-sparse. Leading dimensions broadcast, as in torch.matmul.

    One launch computes all of it, each sparse matrix with its own blocks. Dense operands are copied, unless the rows of all
    matrices lie side by side, as those of the heads of attention in [n, heads, features]. The index tensors of a batch of
    sparse matrices are read at each call, which waits for a GPU: batched_linear takes layouts, and does not.
    """
    if not _is_sparse(a) and not _is_sparse(b) or _is_sparse(a) and _is_sparse(b):
        raise TypeError(f"a is {_shown(a)}, and b {_shown(b)}; one is a dense tensor, and the other BSR or BSC")
    if _is_sparse(a):
        if b.dim() < 2:
            raise ValueError(f"b is {tuple(b.shape)}; matrices have two dimensions or more")
        return matmul(b.transpose(-2, -1), a.transpose(-2, -1)).transpose(-2, -1)
    if not isinstance(a, torch.Tensor) or a.layout != torch.strided:
        raise TypeError(f"a is {_shown(a)}; a dense tensor is multiplied with a BSR or BSC tensor")
    if a.dim() < 2:
        raise ValueError(f"a is {tuple(a.shape)}; matrices have two dimensions or more")
    _check_inner(a, b)
    _check_derivatives()
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    weight = b.transpose(-2, -1) if b.layout == torch.sparse_bsc else b
    if 0 in batch or 0 in b.shape[-2:]:
        x, values = autocast(a.device.type, a, weight.values())
        check_matrix("a", x.flatten(0, -2), x.shape[-1], values)
        return x.new_zeros((*batch, x.shape[-2], b.shape[-1])) + 0 * (x.sum() + values.sum())
    if b.dim() == 2:
        y = dds(a.reshape(-1, a.shape[-1]), b)
        return y.reshape(*batch, a.shape[-2], b.shape[-1])
    which = torch.arange(weight.shape[:-2].numel(), device="cpu").reshape(weight.shape[:-2]).expand(batch).flatten()
    crow, col, values = _side_by_side_weights(weight, which)
    x, values = autocast(a.device.type, a, values)
    x = _side_by_side(x.expand(*batch, *a.shape[-2:]).reshape(which.numel(), *a.shape[-2:]))
    rows, columns = which.numel() * weight.shape[-2], which.numel() * weight.shape[-1]
    check_matrix("a", x, x.shape[1], values)
    if weight is not b:
        y = call(x, values, None, crow, col, columns, rows, "none")
    else:
        y = grad_input(x, None, values, crow, col, columns, rows, "none")
    return _apart(y, which.numel()).reshape(*batch, a.shape[-2], b.shape[-1])


def _side_by_side_weights(weight: Tensor, which: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The matrices of these numbers along the diagonal: crow, col and values."""
    values = weight.values()
    block_out, block_in = values.shape[-2:]
    rows, columns = weight.shape[-2] // block_out, weight.shape[-1] // block_in
    crow = weight.crow_indices().detach().to("cpu", torch.int32).reshape(-1, rows + 1).numpy()
    col = weight.col_indices().detach().to("cpu", torch.int32).reshape(len(crow), -1).numpy()
    layouts = [sparsekiln.Layout.from_csr(rows, columns, *one) for one in zip(crow, col)]
    diagonal_crow, diagonal_col = _diagonal(tuple(layouts[i] for i in which.tolist()), values.device)
    values = values.reshape(len(crow), values.shape[-3], block_out, block_in)
    if which.numel() != len(crow):
        values = values[which.to(values.device)]
    return diagonal_crow, diagonal_col, values.reshape(-1, block_out, block_in)


@keep_out_of_graphs
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
    if isinstance(layout, sparsekiln.Layout):
        layout = [layout] * batch
    if isinstance(layout, str) or not isinstance(layout, Sequence) or not all(isinstance(one, sparsekiln.Layout) for one in layout):
        raise TypeError(f"layout is {shown(layout)}; a sparsekiln.Layout, or a list of {batch}, would work")
    parts = tuple(layout)
    if batch == 0:
        raise ValueError("x has no matrices; a batch has at least one")
    if len(parts) != batch or len({part.shape for part in parts}) > 1:
        raise ValueError(f"x has {batch} matrices; there is one layout, or {batch} of as many rows and columns of blocks")
    check_tensor(weight_values, "weight_values")
    if weight_values.dim() < 3:
        raise ValueError(f"weight_values is {tuple(weight_values.shape)}; [batch, blocks, block_out, block_in] would work")
    block_out, block_in = weight_values.shape[-2:]
    blocks = sum(part.blocks for part in parts)
    if weight_values.numel() != blocks * block_out * block_in:
        raise ValueError(f"weight_values is {tuple(weight_values.shape)}; the layouts have {blocks} blocks together")
    out_features, in_features = parts[0].rows * block_out, parts[0].cols * block_in
    if x.shape[2] != in_features:
        raise ValueError(f"x is {tuple(x.shape)}; {parts[0].cols} columns of blocks of {block_out}x{block_in} take {in_features} features")
    x, values = autocast(x.device.type, x, weight_values.reshape(blocks, block_out, block_in))
    rows = _side_by_side(x)
    check_matrix("x", rows, batch * in_features, values)
    crow, col = _diagonal(parts, values.device)
    y = call(rows, values, None, crow, col, batch * in_features, batch * out_features, parse_activation(activation))
    return _apart(y, batch)
