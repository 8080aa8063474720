"""Products with block-sparse matrices on either side and batches of them, against torch.matmul of dense ones."""

import itertools

import pytest

torch = pytest.importorskip("torch")

import sparsekiln as sk  # noqa: E402
from sparsekiln.torch import batched_linear, dds, dsd, matmul, sdd  # noqa: E402


def sparse(rows: int, columns: int, block: tuple[int, int], dtype=torch.float32, batch=(), density=0.4, grad=False):
    """A BSR tensor whose matrices have different blocks, as many of them, and what it was made from."""
    block_rows, block_columns = rows // block[0], columns // block[1]
    kept = max(1, round(density * block_rows * block_columns))
    mask = torch.zeros(*batch, block_rows * block_columns)
    mask.scatter_(-1, torch.rand(*batch, block_rows * block_columns).argsort(-1)[..., :kept], 1)
    mask = mask.reshape(*batch, block_rows, block_columns).repeat_interleave(block[0], -2).repeat_interleave(block[1], -1)
    matrix = (torch.randn(*batch, rows, columns) * mask).to(dtype).to_sparse_bsr(block)
    values = matrix.values().detach().requires_grad_(grad)
    return torch.sparse_bsr_tensor(matrix.crow_indices(), matrix.col_indices(), values, size=matrix.shape), values


def close(actual, expected, dtype=torch.float32):
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 1e-2}[dtype]
    expected = expected.to(torch.float64)
    assert actual.shape == expected.shape
    size = expected.abs().max().item() if expected.numel() else 1
    torch.testing.assert_close(actual.to(torch.float64), expected, rtol=tolerance, atol=tolerance * max(1, size))


DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
BLOCKS = ((16, 16), (32, 32), (64, 16), (8, 128), (128, 128))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_sparse_matrix_on_either_side(block, dtype):
    m, k, n = 2 * block[0], 3 * block[1], 37
    a, _ = sparse(m, k, block, dtype)
    x = torch.randn(k, n).to(dtype)
    close(dsd(a, x), a.to_dense().double() @ x.double(), dtype)
    close(dds(x.t(), a.t()), x.t().double() @ a.to_dense().double().t(), dtype)
    z = torch.randn(n, m).to(dtype)
    close(dds(z, a), z.double() @ a.to_dense().double(), dtype)
    close(dsd(a.t(), z.t()), a.to_dense().double().t() @ z.t().double(), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("transposed_a, transposed_b", list(itertools.product((False, True), repeat=2)))
def test_a_product_at_the_blocks_of_a_matrix(block, dtype, transposed_a, transposed_b):
    m, k, n = 2 * block[0], 29, 3 * block[1]
    like, _ = sparse(m, n, block, dtype)
    a = torch.randn(k, m).to(dtype).t() if transposed_a else torch.randn(m, k).to(dtype)
    b = torch.randn(n, k).to(dtype).t() if transposed_b else torch.randn(k, n).to(dtype)
    present = like.to_dense().double() != 0
    present = present.reshape(2, block[0], 3, block[1]).any(3, keepdim=True).any(1, keepdim=True).expand(2, block[0], 3, block[1])
    expected = (a.double() @ b.double()) * present.reshape(m, n)
    result = sdd(a, b, like)
    assert result.layout == torch.sparse_bsr
    close(result.to_dense(), expected, dtype)
    turned = sdd(b.t(), a.t(), like.t())
    assert turned.layout == torch.sparse_bsc
    close(turned.to_dense(), expected.t(), dtype)


BATCHES = ((), (2,), (3, 2), (1, 2), (3, 1))


@pytest.mark.parametrize("of_sparse, of_dense", list(itertools.product(BATCHES, repeat=2)))
@pytest.mark.parametrize("side, block", (("left", 16), ("right", 32), ("left, transposed", 64), ("right, transposed", 16)))
def test_batches_broadcast(side, block, of_sparse, of_dense):
    weight, _ = sparse(2 * block, 3 * block, (block, block), batch=of_sparse)
    if "transposed" in side:
        weight = weight.transpose(-2, -1)
    whole = weight.transpose(-2, -1).to_dense().transpose(-2, -1) if weight.layout == torch.sparse_bsc else weight.to_dense()
    if "left" in side:
        x = torch.randn(*of_dense, whole.shape[-1], 9)
        close(matmul(weight, x), whole.double() @ x.double())
    else:
        x = torch.randn(*of_dense, 9, whole.shape[-2])
        close(matmul(x, weight), x.double() @ whole.double())


@pytest.mark.parametrize("n", (0, 1, 5))
def test_batches_of_no_matrices_and_no_rows(n):
    weight, _ = sparse(32, 64, (16, 16), batch=(2,))
    assert torch.equal(matmul(weight, torch.zeros(2, 64, 0)), torch.zeros(2, 32, 0))
    close(matmul(weight, torch.ones(2, 64, n)), weight.to_dense().double() @ torch.ones(2, 64, n).double())
    assert matmul(torch.zeros(0, n, 32), sparse(32, 64, (16, 16))[0]).shape == (0, n, 64)


@pytest.mark.parametrize("rows, columns", ((0, 32), (32, 0), (0, 0)))
def test_matrices_of_size_zero_are_taken_as_others_are(rows, columns):
    x = torch.ones(5, rows)
    empty = torch.zeros(rows, columns).to_sparse_bsr((16, 16))
    with torch.autocast("cpu", torch.bfloat16):
        result = matmul(x, empty)
    assert result.dtype == torch.bfloat16 and torch.equal(result, torch.zeros(5, columns, dtype=torch.bfloat16))
    with pytest.raises(TypeError, match="a is torch.float16"):
        matmul(x.half(), empty)


@pytest.mark.parametrize("one_layout", (True, False))
def test_a_layer_for_each_head(one_layout):
    heads, n, block = 4, 21, (16, 32)
    layouts = [sk.patterns.random(3, 2, 0.7, seed=1 if one_layout else i) for i in range(heads)]
    values = torch.randn(sum(one.blocks for one in layouts), *block, dtype=torch.float64, requires_grad=True)
    x = torch.randn(heads, n, 64, dtype=torch.float64, requires_grad=True)

    def dense_of(all_values):
        first, matrices = 0, []
        for one in layouts:
            rows = torch.repeat_interleave(torch.arange(3), torch.tensor(one.crow).diff())
            grid = torch.zeros(3, 2, *block, dtype=torch.float64).index_put((rows, torch.tensor(one.col).long()), all_values[first:][: one.blocks])
            matrices.append(grid.transpose(1, 2).reshape(48, 64))
            first += one.blocks
        return torch.stack(matrices)

    taken = values.reshape(heads, -1, *block) if one_layout else values
    y = batched_linear(x, taken, layouts[0] if one_layout else layouts, "gelu")
    expected = torch.nn.functional.gelu(x @ dense_of(values).transpose(1, 2))
    close(y, expected, torch.float64)
    dy = torch.randn_like(y)
    for mine, theirs in zip(torch.autograd.grad(y, (x, values), dy), torch.autograd.grad(expected, (x, values), dy)):
        close(mine, theirs, torch.float64)


def test_heads_that_lie_side_by_side_are_not_copied():
    layout = sk.patterns.random(2, 2, 0.8, seed=3)
    x = torch.randn(11, 3, 32).transpose(0, 1)  # [heads, n, features] of memory [n, heads, features]
    y = batched_linear(x, torch.randn(3, layout.blocks, 16, 16), layout)
    assert y.transpose(0, 1).is_contiguous()
    from sparsekiln.torch.linear.matmul import _side_by_side

    assert _side_by_side(x).data_ptr() == x.data_ptr()


@pytest.mark.parametrize("batch", ((), (3,)))
def test_gradients_flow_to_both_operands(batch):
    weight, values = sparse(16, 24, (8, 8), torch.float64, batch, grad=True)
    for transposed in (False, True):
        x = torch.randn(*batch, 3, 24 if transposed else 16, dtype=torch.float64, requires_grad=True)

        def product(x, values):
            matrix = torch.sparse_bsr_tensor(weight.crow_indices(), weight.col_indices(), values, size=weight.shape)
            return matmul(x, matrix.transpose(-2, -1) if transposed else matrix)

        assert torch.autograd.gradcheck(product, (x, values))
    if not batch:
        a, b = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((16, 2), (2, 24)))
        assert torch.autograd.gradcheck(lambda a, b: sdd(a, b, weight.detach()).values(), (a, b))


def test_what_does_not_fit_is_refused():
    weight, _ = sparse(32, 48, (16, 16))
    for product, message in (
        (lambda: dsd(weight, torch.zeros(32, 3)), "as many columns"),
        (lambda: dds(torch.zeros(3, 48), weight), "as many columns"),
        (lambda: sdd(torch.zeros(32, 3), torch.zeros(4, 48), weight), "as many columns"),
        (lambda: sdd(torch.zeros(48, 3), torch.zeros(3, 48), weight), "the product is 48 × 48"),
        (lambda: batched_linear(torch.zeros(2, 3, 16), torch.zeros(2, 1, 16, 16), [sk.Layout([[1]])]), "2 of as many"),
        (lambda: batched_linear(torch.zeros(2, 3, 8), torch.zeros(2, 1, 16, 16), sk.Layout([[1]])), "take 16 features"),
    ):
        with pytest.raises(ValueError, match=message):
            product()
    for product in (lambda: dsd(torch.zeros(3, 3), torch.zeros(3, 3)), lambda: matmul(torch.zeros(3, 3), torch.zeros(3, 3))):
        with pytest.raises(TypeError, match="BSR"):
            product()


def test_inference_and_export_leave_nothing_for_training():
    layout = sk.patterns.random(2, 2, 0.9, seed=11)
    x, values = torch.randn(2, 5, 32), torch.randn(2, layout.blocks, 16, 16)
    with torch.inference_mode():
        batched_linear(x, values, layout)
    x.requires_grad_()
    batched_linear(x, values, layout).sum().backward()
    assert x.grad is not None

    class Heads(torch.nn.Module):
        def forward(self, x):
            return batched_linear(x, values, other)

    other = sk.patterns.random(2, 2, 0.9, seed=12)
    torch.export.export(Heads(), (x.detach(),), strict=False)
    y = batched_linear(x, values, other)
    assert type(y) is torch.Tensor and type(torch.autograd.grad(y.sum(), x, create_graph=True)[0]) is torch.Tensor


def test_no_rows_have_gradients_of_zeros():
    layout = sk.patterns.random(2, 2, 0.9, seed=3)
    x, values = torch.zeros(2, 0, 32, requires_grad=True), torch.randn(2, layout.blocks, 16, 16, requires_grad=True)
    batched_linear(x, values, layout).sum().backward()
    assert x.grad.shape == x.shape and torch.equal(values.grad, torch.zeros_like(values))
    weight, values = sparse(32, 48, (16, 16), batch=(2,), grad=True)
    matmul(torch.zeros(2, 0, 32), weight).sum().backward()
    assert torch.equal(values.grad, torch.zeros_like(values))


def test_autocast_is_followed():
    weight, _ = sparse(32, 48, (16, 16))
    x, layout = torch.randn(3, 32), sk.patterns.random(2, 2, 0.9, seed=3)
    with torch.autocast("cpu", torch.bfloat16):
        results = (
            dds(x, weight), dsd(weight.t(), x.t()), matmul(x, weight), sdd(x.t()[:, :2], x[:2].repeat(1, 2)[:, :48], weight).values(),
            batched_linear(x[None], torch.randn(1, layout.blocks, 16, 16), layout),
        )  # fmt: skip
    assert [one.dtype for one in results] == [torch.bfloat16] * 5
    with pytest.raises(TypeError, match="a is torch.float64"):
        dds(x.double(), weight)


def test_derivatives_that_there_are_not_are_refused():
    weight, _ = sparse(32, 48, (16, 16))
    x = torch.randn(3, 32)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        for product in (lambda: dds(dual, weight), lambda: dsd(weight.t(), dual.t()), lambda: sdd(dual.t(), torch.randn(3, 48), weight)):
            with pytest.raises(NotImplementedError, match="forward-mode"):
                product()
    for product in (lambda x: dds(x, weight).sum(), lambda x: matmul(x, weight).sum()):
        with pytest.raises(NotImplementedError, match="batched_linear"):
            torch.func.grad(product)(x)


def test_what_is_no_pair_of_a_dense_and_a_sparse_matrix_is_refused():
    weight, _ = sparse(32, 48, (16, 16))
    batch, _ = sparse(32, 48, (16, 16), batch=(2,))
    for product in (
        lambda: matmul(weight, weight.t()), lambda: dds(torch.zeros(3, 32), [1]), lambda: dds(torch.zeros(3, 32), torch.zeros(32, 3)),
        lambda: dsd(batch, torch.zeros(48, 3)), lambda: sdd(torch.zeros(32, 3), torch.zeros(3, 48), torch.zeros(32, 48)),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="BSR or BSC"):
            product()
    with pytest.raises(ValueError, match="two dimensions or more"):
        matmul(weight, torch.zeros(48))
