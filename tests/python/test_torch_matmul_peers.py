"""The cases of two other packages' tests of block-sparse products, on the cpu, against torch's dense products in float64.

PyTorch 2, test/test_sparse_csr.py, test_triton_bsr_dense_bmm: BSR · dense in batches that broadcast, sizes of zero among
them. 486 combinations, three sizes of blocks and two types of indices are 2,916 cases for each of three element types.
Left out are the two arguments of Triton's kernel that matmul does not have, `max_grid` and `out`. Where no size of the
matrix is zero, `linear` (the matrix is one) and `batched_linear` (both have the same batch) compute the product as well.

stk 0.7.1, stk/ops/linear_ops_test.py: dsd, dds and sdd with their gradients. 14 sizes, four transpositions and two element
types are 112 cases for each, 336 together. The gradient of the result is random here, and there it is all ones.
"""

import itertools
import math

import pytest

torch = pytest.importorskip("torch")

import sparsekiln as sk  # noqa: E402
from sparsekiln.torch import batched_linear, dds, dsd, linear, matmul, sdd  # noqa: E402


class Product:
    """a · b in float64, where `mask` is 1, and how far from it a result of this type may be.

    A sum of products in float32 rounds in proportion to the sum of their magnitudes, which is at most the product of the
    norms of the row and the column; then the result is rounded.
    """

    def __init__(self, a, b, dtype, mask=1):
        self.dtype, self.exact = dtype, (a @ b) * mask
        norms = torch.linalg.vector_norm(a, dim=-1, keepdim=True) * torch.linalg.vector_norm(b, dim=-2, keepdim=True)
        self.bound = 32 * 2.0**-24 * norms + 1.01 * torch.finfo(dtype).eps / 2 * self.exact.abs()

    def check(self, result, what):
        assert result.dtype == self.dtype and result.shape == self.exact.shape, what
        excess = (result.detach().double() - self.exact).abs() - self.bound
        worst = excess.max().item() if excess.numel() else 0
        assert worst <= 0, f"{what}: {worst:.3g} above the bound"


# ---- PyTorch ----

BATCHES = ((), (2,), (2, 2))
SIZES = (128, 256, 0)
COMBINATIONS = tuple(itertools.product(SIZES, SIZES, SIZES, (True, False)))
BLOCKS = (16, 32, 64)
INDEX_DTYPES = (torch.int32, torch.int64)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def with_values(bsr, values, index_dtype=torch.int64):
    """A BSR tensor of the same blocks, with indices of this type."""
    crow, col = bsr.crow_indices().to(index_dtype), bsr.col_indices().to(index_dtype)
    return torch.sparse_bsr_tensor(crow, col, values, size=bsr.shape, check_invariants=True)


def bsr_of(matrix, block, index_dtype=torch.int64):
    bsr = matrix.to_sparse_bsr(block)
    return with_values(bsr, bsr.values(), index_dtype)


def as_layer(x, bsr):
    """x · bsrᵀ as linear or batched_linear computes it, or None where neither takes it."""
    if 0 in bsr.shape:
        return None
    if bsr.dim() == 2:
        return linear(x, bsr)
    if x.shape[:-2] != bsr.shape[:-2]:
        return None
    rows, columns = (size // side for size, side in zip(bsr.shape[-2:], bsr.values().shape[-2:]))
    indices = zip(bsr.crow_indices().int().flatten(0, -2).numpy(), bsr.col_indices().int().flatten(0, -2).numpy())
    layouts = [sk.Layout.from_csr(rows, columns, crow, col) for crow, col in indices]
    y = batched_linear(x.flatten(0, -3), bsr.values().flatten(0, -4), layouts)
    return y.unflatten(0, x.shape[:-2])


@pytest.mark.parametrize("of_dense", BATCHES, ids=str)
@pytest.mark.parametrize("of_sparse", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batches_of_bsr_tensors_as_pytorch_multiplies_them(dtype, of_sparse, of_dense):
    torch.manual_seed(0)
    for m, n, k, orthogonal in COMBINATIONS:
        a = torch.empty(*of_sparse, m, k).uniform_(0.5, 1.5).to(dtype)
        x = torch.empty(*of_dense, n, k).uniform_(0.5, 1.5).to(dtype)
        if orthogonal:
            a, x = torch.cat((a, torch.zeros_like(a)), -1), torch.cat((torch.zeros_like(x), x), -1)
        expected = Product(a.double(), x.double().transpose(-2, -1), dtype)
        for block, index_dtype in itertools.product(BLOCKS, INDEX_DTYPES):
            what = f"{tuple(a.shape)} · {tuple(x.transpose(-2, -1).shape)}, blocks of {block}, {index_dtype}"
            bsr = bsr_of(a, block, index_dtype)
            y = matmul(bsr, x.transpose(-2, -1))
            expected.check(y, what)
            assert not orthogonal or not y.any(), f"{what}, of orthogonal rows and columns"
            layer = as_layer(x, bsr)
            if layer is not None:
                expected.check(layer.transpose(-2, -1), f"{what}, as a layer")


# ---- stk ----

#: m, k, n, and the part of the blocks that is zero.
PROBLEMS = (
    (128, 128, 128, 0), (256, 256, 256, 0.5), (2048, 1024, 512, 0.8), (512, 128, 128, 0), (128, 128, 512, 0),
    *((1024, 512, 512, sparsity) for sparsity in (0, 0.5, 0.75)),
    *((512, 512, 1024, sparsity) for sparsity in (0, 0.5, 0.75)),
    *((1024, 1024, 1024, sparsity) for sparsity in (0, 0.5, 0.75)),
)  # fmt: skip
BLOCK = 128
TRANSPOSITIONS = tuple(itertools.product((False, True), repeat=2))
SHORT_DTYPES = (torch.float16, torch.bfloat16)
PRODUCTS = ("dsd", "dds", "sdd")


def matrix_and_mask(rows, columns, sparsity, dtype):
    """A matrix of elements of this type, in float64, in which this part of the blocks is zero, and ones where the others are."""
    grid = rows // BLOCK, columns // BLOCK
    present = torch.zeros(math.prod(grid), dtype=torch.float64)
    present[torch.randperm(len(present))[: round(len(present) * (1 - sparsity))]] = 1
    mask = present.reshape(grid).repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return (0.1 * torch.randn(rows, columns)).to(dtype).double() * mask, mask


class Operand:
    """A matrix as an operand: `given`, which is made from `leaf`. If it is transposed, its transpose is what memory holds."""

    def __init__(self, matrix, dtype, sparse, transposed):
        held = (matrix.t() if transposed else matrix).to(dtype)
        self.bsr, self.transposed = bsr_of(held, BLOCK) if sparse else None, transposed
        self.leaf = (self.bsr.values() if sparse else held.contiguous()).detach().requires_grad_()
        self.given = self._transposed_back(self._held(self.leaf))

    def _held(self, leaf):
        return leaf if self.bsr is None else with_values(self.bsr, leaf)

    def _transposed_back(self, held):
        return held.t() if self.transposed else held

    def dense_gradient(self):
        held = self._held(self.leaf.grad)
        return self._transposed_back(held if self.bsr is None else held.to_dense())


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("product", PRODUCTS)
def test_products_and_gradients_as_stk_has_them(product, problem):
    m, k, n, sparsity = problem
    torch.manual_seed(0)
    for dtype in SHORT_DTYPES:
        (a, mask_a), (b, mask_b), (dy, mask_y) = (
            matrix_and_mask(*shape, sparsity if is_sparse else 0, dtype)
            for shape, is_sparse in (((m, k), product == "dsd"), ((k, n), product == "dds"), ((m, n), product == "sdd"))
        )
        y, da, db = Product(a, b, dtype, mask_y), Product(dy, b.t(), dtype, mask_a), Product(a.t(), dy, dtype, mask_b)
        for transposed in TRANSPOSITIONS:
            what = f"{product}, {dtype}, {m}x{k}x{n}, {sparsity} of blocks zero, transposed {transposed}"
            left, right = Operand(a, dtype, product == "dsd", transposed[0]), Operand(b, dtype, product == "dds", transposed[1])
            if product == "sdd":
                like = bsr_of(dy.to(dtype), BLOCK)
                result = sdd(left.given, right.given, like)
                result.values().backward(like.values())
                result = result.detach().to_dense()
            else:
                result = (dsd if product == "dsd" else dds)(left.given, right.given)
                result.backward(dy.to(dtype))
            y.check(result, what)
            da.check(left.dense_gradient(), f"{what}, gradient of the left operand")
            db.check(right.dense_gradient(), f"{what}, gradient of the right operand")


def test_all_cases_are_in_the_lists():
    assert len(BATCHES) ** 2 * len(COMBINATIONS) == 486
    assert len(BATCHES) ** 2 * len(COMBINATIONS) * len(BLOCKS) * len(INDEX_DTYPES) == 2916
    assert len(PRODUCTS) * len(PROBLEMS) * len(TRANSPOSITIONS) * len(SHORT_DTYPES) == 336
