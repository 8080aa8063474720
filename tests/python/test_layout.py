import copy
import pickle

import numpy as np
import pytest

import sparsekiln as sk


def test_mask_and_index_arrays_make_equal_layouts():
    mask = np.array([[1, 0, 1], [0, 0, 0]])
    layout = sk.Layout(mask)
    assert (layout.rows, layout.cols, layout.blocks) == (2, 3, 2)
    assert layout == sk.Layout.from_csr(2, 3, [0, 2, 2], [0, 2])
    assert hash(layout) == hash(sk.Layout(mask.tolist()))
    assert layout != sk.Layout(1 - mask)
    np.testing.assert_array_equal(layout.mask(), mask != 0)
    np.testing.assert_array_equal(layout.crow, [0, 2, 2])
    np.testing.assert_array_equal(layout.col, [0, 2])


def test_index_arrays_are_read_only_and_outlive_their_layout():
    crow = sk.Layout(np.eye(3)== 1).crow
    np.testing.assert_array_equal(crow, [0, 1, 2, 3])
    with pytest.raises(ValueError):
        crow[0] = 7


def test_copies_and_pickles_are_equal():
    layout = sk.patterns.random(7, 5, 0.4, seed=3)
    for other in (copy.copy(layout), copy.deepcopy(layout), pickle.loads(pickle.dumps(layout))):
        assert other == layout and other.digest == layout.digest


def test_a_saved_layout_is_loaded(tmp_path):
    layout = sk.patterns.random(6, 9, 0.3, seed=1)
    for name in ("l.npy", "l.mtx", "l.smtx", "l.txt"):
        layout.save(tmp_path / name)
        assert sk.Layout.load(tmp_path / name) == layout


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric", "hermitian"])
@pytest.mark.parametrize("form", ["coordinate", "array"])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint32, np.int64, np.uint64, np.float32, np.float64, np.complex64])
def test_matrix_market_files_that_scipy_writes_are_read(tmp_path, dtype, form, symmetry):
    scipy_io = pytest.importorskip("scipy.io")
    scipy_sparse = pytest.importorskip("scipy.sparse")
    mask = sk.patterns.random(5, 5, 0.4, seed=3).mask()
    values = mask.astype(dtype)
    if symmetry == "skew-symmetric":
        if np.dtype(dtype).kind in "bu":
            pytest.skip("has values of both signs")
        values = np.tril(values, -1) - np.tril(values, -1).T
    elif symmetry != "general":
        values = np.tril(values) + np.tril(values, -1).T
    if symmetry == "hermitian" and np.dtype(dtype).kind == "c":
        values = np.tril(values) + 1j * np.tril(values, -1)
        values = values + np.tril(values, -1).conj().T
    file = str(tmp_path / "l.mtx")
    scipy_io.mmwrite(file, scipy_sparse.coo_array(values) if form == "coordinate" else values, symmetry=symmetry)
    with open(file) as text:
        assert {form, symmetry} <= set(text.readline().split())
    np.testing.assert_array_equal(sk.Layout.load(file).mask(), values != 0)


def test_scipy_matrices_give_their_blocks():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    mask = sk.patterns.random(4, 6, 0.5, seed=2).mask()
    matrix = scipy_sparse.bsr_array(np.kron(mask, np.ones((8, 16))), blocksize=(8, 16))
    assert sk.Layout(matrix) == sk.Layout(mask)
    with pytest.raises(ValueError, match="tobsr"):
        sk.Layout(matrix.tocsr())


@pytest.mark.parametrize("crow, col, says", [
    ([0, 2], [1, 0], "sort the columns"),
    ([0, 2], [1, 1], "1"),
    ([0, 1], [5], "5"),
    ([0, 1, 1], [0], "crow has 3 entries"),
    ([0, 2], [0], "col has 1 entries"),
    ([0.0, 1.0], [0], "integers"),
])  # fmt: skip
def test_index_arrays_that_make_no_sense_are_refused(crow, col, says):
    with pytest.raises(ValueError, match=says):
        sk.Layout.from_csr(1, 2, crow, col)


def test_sparse_tensors_of_other_layouts_are_refused():
    torch = pytest.importorskip("torch")
    for tensor in (torch.eye(16).to_sparse_bsc((8, 8)), torch.eye(16).to_sparse(), torch.eye(16).to_sparse_csr(),
                   torch.eye(16).expand(2, 16, 16).to_sparse_bsr((8, 8))):  # fmt: skip
        with pytest.raises(ValueError, match="a BSR tensor of two"):
            sk.Layout(tensor)


def test_masks_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="two"):
        sk.Layout(np.ones(3, bool))
    with pytest.raises(ValueError, match="float64"):
        sk.Layout(np.ones((2, 2)))


def test_every_pattern_is_made_and_is_the_same_again():
    makers = [
        lambda: sk.patterns.random(8, 9, 0.25, seed=5), lambda: sk.patterns.balanced_random(8, 9, 0.25, seed=5),
        lambda: sk.patterns.block_diagonal(8, 9, 3), lambda: sk.patterns.banded(8, 9, 1),
        lambda: sk.patterns.watts_strogatz(8, 9, 0.3, 0.2, seed=5), lambda: sk.patterns.barabasi_albert(9, 2),
        lambda: sk.patterns.balanced_watts_strogatz(8, 9, 0.3, 0.2, seed=5),
        lambda: sk.patterns.butterfly(8), lambda: sk.patterns.causal(5), lambda: sk.patterns.strided(9, 3),
        lambda: sk.patterns.longformer(9, 1, 1), lambda: sk.patterns.bigbird(9, 1, 1, 1, seed=5),
    ]  # fmt: skip
    for make in makers:
        assert make().blocks > 0 and make() == make()
    assert sk.patterns.random(8, 8, 0.5, seed=1) != sk.patterns.random(8, 8, 0.5, seed=2)
    with pytest.raises(ValueError, match="density"):
        sk.patterns.random(8, 8, 1.5)


@pytest.mark.parametrize("make", [
    lambda **more: sk.patterns.balanced_random(16, 16, 0.2, **more),
    lambda **more: sk.patterns.watts_strogatz(16, 16, 0.2, rewire=1, **more),
    lambda **more: sk.patterns.balanced_watts_strogatz(16, 16, 0.2, rewire=1, **more),
    lambda **more: sk.patterns.barabasi_albert(16, 2, **{"diagonal": False, **more}),
])  # fmt: skip
def test_the_diagonal_is_present_if_asked_for(make):
    assert make(diagonal=True).mask().diagonal().all()
    assert not make().mask().diagonal().all()


def test_a_balanced_small_world_has_equal_rows_and_columns():
    mask = sk.patterns.balanced_watts_strogatz(64, 64, 0.125, rewire=0.3, seed=1, diagonal=True).mask()
    assert set(mask.sum(axis=0)) == set(mask.sum(axis=1)) == {8}


def test_extra_edges_give_every_node_of_a_network_some():
    few, enough = (sk.patterns.barabasi_albert(64, 4, False, 1, extra_edges=extra).mask() for extra in (0, 16))
    assert few.sum(axis=0).min() < 4 <= enough.sum(axis=0).min()
    assert enough.sum() == few.sum() + 2 * 16
    assert (enough == enough.T).all() and (enough | ~few).all()


def test_mixing_is_that_of_boolean_matrix_products():
    layers = [sk.patterns.random(20, 30, 0.05, seed=1), sk.patterns.random(25, 20, 0.1, seed=2)]
    after = sk.patterns.mixing(iter(layers))
    product = np.eye(30, dtype=int)
    for layer, figures in zip(layers, after, strict=True):
        product = layer.mask().astype(int) @ product
        reached = (product > 0).sum(axis=0)
        assert isinstance(figures, sk.patterns.Mixing)
        assert (figures.minimum, figures.median, figures.maximum) == (reached.min(), np.median(reached), reached.max())
        assert figures.mean == pytest.approx(reached.mean())
        assert figures.share == pytest.approx(reached.mean() / layer.rows)
    assert sk.patterns.mixing([]) == []
    with pytest.raises(sk.InvalidArgument, match="layer 2 has 30 block columns"):
        sk.patterns.mixing([layers[0], layers[0]])
