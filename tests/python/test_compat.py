"""The interface of 2017, on NumPy and PyTorch arrays, against dense float64."""

import copy
import pickle

import numpy as np
import pytest

from dense_matmul import assert_near, blocks_of, dense

import sparsekiln
from sparsekiln.compat import BlocksparseMatMul

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the 2017 interface is tested with it")

GRID = np.array([[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1]])  # [input blocks, output blocks]
ORDERS = ("morton", "columns", "rows")


def interleaved(c, k):
    """The number on the Morton curve, from the binary digits: k's in front of c's."""
    return int("".join(a + b for a, b in zip(f"{k:016b}", f"{c:016b}")), 2)


def weight(bsmm, seed=0, dtype=np.float32):
    return (np.random.default_rng(seed).standard_normal(bsmm.w_shape) / 8).astype(dtype)


def product(bsmm, x, w):
    x = np.asarray(x, np.float64)
    return x @ dense(bsmm, w) if bsmm.axis else dense(bsmm, w).T @ x


def test_blocks_are_numbered_along_the_morton_curve():
    grid = np.random.default_rng(1).random((11, 19)) < 0.4
    bsmm = BlocksparseMatMul(grid)
    coordinates = [bsmm.block_coord(i) for i in range(bsmm.blocks)]
    assert sorted(coordinates) == [tuple(at) for at in np.argwhere(grid).tolist()]
    assert coordinates == sorted(coordinates, key=lambda at: interleaved(*at))
    full = BlocksparseMatMul(np.ones((4, 4)))
    assert [full.block_coord(i) for i in range(6)] == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0)]


def test_other_orders_are_by_columns_and_by_rows():
    by_columns = BlocksparseMatMul(GRID, block_order="columns")
    assert [by_columns.block_coord(i) for i in range(3)] == [(0, 0), (2, 0), (1, 1)]
    by_rows = BlocksparseMatMul(GRID, block_order="rows")
    assert [by_rows.block_coord(i) for i in range(3)] == [(0, 0), (0, 2), (0, 3)]


def test_shapes_are_those_of_the_original():
    bsmm = BlocksparseMatMul(GRID, block_size=16, feature_axis=0, name="ffn")
    assert bsmm.w_shape == (7, 16, 16)
    assert (bsmm.C, bsmm.K, bsmm.CB, bsmm.KB, bsmm.blocks, bsmm.name) == (48, 64, 3, 4, 7, "ffn")
    assert (bsmm.i_shape(5), bsmm.o_shape(5)) == ((48, 5), (64, 5))
    first = BlocksparseMatMul(GRID, block_size=16)
    assert (first.i_shape(5), first.o_shape(5)) == ((5, 48), (5, 64))
    assert first.sparsity == 7 / 12 and first.flops == 7 * 16 * 16 * 2


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("block", [8, 32])
@pytest.mark.parametrize("order", ORDERS)
def test_the_product_and_its_gradients_are_those_of_a_dense_matrix(axis, block, order):
    bsmm = BlocksparseMatMul(GRID, block_size=block, feature_axis=axis, block_order=order)
    random = np.random.default_rng(2)
    w = weight(bsmm)
    x = random.standard_normal(bsmm.i_shape(6)).astype(np.float32)
    dy = random.standard_normal(bsmm.o_shape(6)).astype(np.float32)
    y = bsmm(x, w)
    assert y.dtype == np.float32
    assert_near(y, product(bsmm, x, w))
    full, x64, dy64 = dense(bsmm, w), x.astype(np.float64), dy.astype(np.float64)
    assert_near(bsmm.grad_input(dy, w), dy64 @ full.T if axis else full @ dy64)
    assert_near(bsmm.grad_weight(x, dy), blocks_of(bsmm, x64.T @ dy64 if axis else x64 @ dy64.T))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precisions_are_multiplied(dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes", reason="ml_dtypes, NumPy's bfloat16, is not installed").bfloat16
    bsmm = BlocksparseMatMul(GRID)
    w = weight(bsmm, dtype=dtype)
    x = np.random.default_rng(3).standard_normal(bsmm.i_shape(9)).astype(dtype)
    y = bsmm(x, w)
    assert y.dtype == np.dtype(dtype)
    assert_near(y, product(bsmm, x, w), 1e-2)


def test_batches_may_have_more_dimensions_be_strided_or_empty():
    bsmm = BlocksparseMatMul(GRID)
    w = weight(bsmm)
    x = np.random.default_rng(4).standard_normal((2, 3, bsmm.C)).astype(np.float32)
    assert_near(bsmm(x, w), product(bsmm, x, w))
    wide = np.random.default_rng(5).standard_normal((4, 2 * bsmm.C + 1)).astype(np.float32)
    assert_near(bsmm(wide[:, 1 : bsmm.C + 1], w), product(bsmm, wide[:, 1 : bsmm.C + 1], w))
    shifted = np.zeros(2 * bsmm.C + 1, np.float32)[1:].reshape(2, bsmm.C)
    shifted += 1
    assert_near(bsmm(shifted, w), product(bsmm, shifted, w))
    assert bsmm(x[:, :0], w).shape == (2, 0, bsmm.K)
    trailing = BlocksparseMatMul(GRID, feature_axis=0)
    x = np.random.default_rng(6).standard_normal((bsmm.C, 2, 3)).astype(np.float32)
    assert_near(trailing(x, w).reshape(bsmm.K, 6), product(trailing, x.reshape(bsmm.C, 6), w))


def test_layouts_may_have_empty_rows_and_columns_or_no_block():
    hollow = BlocksparseMatMul(np.array([[0, 0, 0], [0, 1, 0]]))
    w = weight(hollow)
    x = np.random.default_rng(7).standard_normal((3, hollow.C)).astype(np.float32)
    assert_near(hollow(x, w), product(hollow, x, w))
    assert_near(hollow.grad_input(hollow(x, w), w), product(hollow, x, w) @ dense(hollow, w).T)
    empty = BlocksparseMatMul(np.zeros((2, 3), int))
    assert empty.w_shape == (0, 32, 32)
    assert not empty(x, weight(empty)).any()


def test_identity_init_repeats_what_comes_in():
    square = BlocksparseMatMul(np.eye(4, dtype=int))
    x = np.random.default_rng(8).standard_normal((5, square.C)).astype(np.float32)
    np.testing.assert_array_equal(square(x, square.identity_init()(square.w_shape)), x)
    np.testing.assert_array_equal(square(x, square.identity_init(gpu=True)(square.w_shape)), x)
    wide = BlocksparseMatMul(np.ones((2, 4), int))
    w = wide.identity_init(scale=0.5)(wide.w_shape, dtype=np.float32)
    x = x[:, : wide.C]
    np.testing.assert_array_equal(wide(x, w), np.concatenate([x, x], axis=1) / 2)


def test_ortho_init_gives_orthonormal_columns_that_the_seed_decides():
    sparse = BlocksparseMatMul(GRID)
    np.random.seed(9)
    w = sparse.ortho_init()(sparse.w_shape)
    assert w.dtype == np.float32
    for k in range(sparse.KB):
        if not GRID[:, k].any():
            continue
        columns = dense(sparse, w)[:, k * 32 : (k + 1) * 32]
        np.testing.assert_allclose(columns.T @ columns, np.eye(32), atol=1e-5)
    np.random.seed(9)
    np.testing.assert_array_equal(sparse.ortho_init()(sparse.w_shape), w)
    full = BlocksparseMatMul(np.ones((3, 2)))
    columns = dense(full, full.ortho_init()(full.w_shape))
    np.testing.assert_allclose(columns.T @ columns, np.eye(full.K), atol=1e-5)


def test_initialisers_take_the_types_of_frameworks():
    bsmm = BlocksparseMatMul(GRID)
    assert bsmm.ortho_init()(bsmm.w_shape, torch.bfloat16).dtype == torch.bfloat16
    assert bsmm.identity_init()(bsmm.w_shape, "float16").dtype == np.float16
    with pytest.raises(ValueError, match="a weight of this layout is"):
        bsmm.identity_init()((1, 32, 32))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("order", ORDERS)
def test_torch_differentiates_as_a_dense_matrix(axis, order):
    bsmm = BlocksparseMatMul(GRID, block_size=16, feature_axis=axis, block_order=order)
    generator = torch.Generator().manual_seed(10)
    x = torch.randn(bsmm.i_shape(7), generator=generator, requires_grad=True)
    w = torch.from_numpy(weight(bsmm)).requires_grad_()
    y = bsmm(x, w)
    dy = torch.randn(y.shape, generator=generator)
    y.backward(dy)
    full = torch.from_numpy(dense(bsmm, w.detach())).requires_grad_()
    x64 = x.detach().double().requires_grad_()
    y64 = x64 @ full if axis else full.T @ x64
    y64.backward(dy.double())
    assert_near(y.detach(), y64.detach())
    assert_near(x.grad, x64.grad)
    assert_near(w.grad, blocks_of(bsmm, full.grad.numpy()))


def test_torch_computes_the_gradients_that_are_asked_for():
    bsmm = BlocksparseMatMul(GRID)
    w = torch.from_numpy(weight(bsmm))
    x = torch.randn(3, bsmm.C)
    assert not bsmm(x, w).requires_grad
    for leaf, other in ((x, w), (w, x)):
        x.grad = w.grad = None
        leaf.requires_grad_()
        bsmm(x, w).square().sum().backward()
        assert leaf.grad is not None and other.grad is None
        leaf.requires_grad_(False)


def test_torch_compile_breaks_its_graph_there_and_goes_on():
    bsmm = BlocksparseMatMul(GRID)
    w = torch.from_numpy(weight(bsmm))
    x = torch.randn(3, bsmm.C)
    compiled = torch.compile(lambda x: bsmm(x * 2, w) + 1, backend="eager")
    assert_near(compiled(x), product(bsmm, 2 * x.numpy(), w) + 1)


def test_to_linear_gives_the_weight_of_the_rest_of_sparsekiln():
    bsmm = BlocksparseMatMul(GRID)
    w = weight(bsmm)
    layout, values = bsmm.to_linear(w)
    x = np.random.default_rng(11).standard_normal((4, bsmm.C)).astype(np.float32)
    assert_near(sparsekiln.compile(layout, block=32, batch=4, target="cpu")(x, values), product(bsmm, x, w))
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.from_numpy(w))
    np.testing.assert_array_equal(bsmm.to_linear(parameter)[1], values)


def test_arrays_in_the_other_byte_order_give_the_same():
    bsmm = BlocksparseMatMul(GRID, block_size=16)
    w, x = weight(bsmm), np.random.default_rng(3).standard_normal((4, bsmm.C)).astype(np.float32)
    y = bsmm(x.astype(">f4"), w.astype(">f4"))
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, bsmm(x, w))


def test_a_sparse_array_of_scipy_is_a_layout():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    np.testing.assert_array_equal(BlocksparseMatMul(scipy_sparse.coo_array(GRID), 16).layout, BlocksparseMatMul(GRID, 16).layout)


def test_copies_and_pickles_compute_the_same():
    bsmm = BlocksparseMatMul(GRID, 16, 0, "ffn", block_order="columns")
    w, x = weight(bsmm), np.ones(bsmm.i_shape(2), np.float32)
    for other in (copy.deepcopy(bsmm), pickle.loads(pickle.dumps(bsmm))):
        assert (other.name, other.axis, other.bsize) == ("ffn", 0, 16)
        np.testing.assert_array_equal(other(x, w), bsmm(x, w))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layout": np.ones(3)}, r"it is \[input blocks, output blocks\]"),
        ({"layout": GRID, "block_size": 24}, "none of 8, 16, 32, 64, 128"),
        ({"layout": GRID, "feature_axis": 2}, "feature_axis 2 is neither"),
        ({"layout": GRID, "block_order": "hilbert"}, "none of 'morton', 'columns', 'rows'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        BlocksparseMatMul(**arguments)


@pytest.mark.parametrize("array", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_operands_that_do_not_fit_are_refused(array):
    bsmm = BlocksparseMatMul(GRID)
    x, w = np.ones((2, bsmm.C), np.float32), weight(bsmm)
    with pytest.raises(ValueError, match=r"x is \[96, 2\]; with feature_axis=1 it must be \[N, 96\]"):
        bsmm(array(x.T.copy()), array(w))
    with pytest.raises(ValueError, match=r"w is \[6, 32, 32\]; this layout takes \[7, 32, 32\]"):
        bsmm(array(x), array(w[:6]))
    with pytest.raises(TypeError, match="x is int64"):
        bsmm(array(x.astype(np.int64)), array(w))
    with pytest.raises(TypeError, match="x is float16 and w is float32"):
        bsmm(array(x.astype(np.float16)), array(w))
    with pytest.raises(ValueError, match="dw_dtype is float16"):
        bsmm(array(x), array(w), dw_dtype=np.float16)
