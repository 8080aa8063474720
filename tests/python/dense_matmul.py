"""What BlocksparseMatMul stands for, in dense float64."""

import numpy as np


def dense(bsmm, w) -> np.ndarray:
    """W[C, K]."""
    full = np.zeros((bsmm.CB, bsmm.bsize, bsmm.KB, bsmm.bsize))
    for i, block in enumerate(np.asarray(w, np.float64)):
        c, k = bsmm.block_coord(i)
        full[c, :, k, :] = block
    return full.reshape(bsmm.C, bsmm.K)


def blocks_of(bsmm, full: np.ndarray) -> np.ndarray:
    """The present blocks of W[C, K], in the order of w."""
    tiles = full.reshape(bsmm.CB, bsmm.bsize, bsmm.KB, bsmm.bsize)
    return np.stack([tiles[c, :, k, :] for c, k in map(bsmm.block_coord, range(bsmm.blocks))])


def assert_near(got, wanted, tolerance: float = 1e-5) -> None:
    """Element by element, as a part of what it should be and of what its like are: sums may cancel."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape
    like = np.sqrt(np.mean(wanted**2)) if wanted.size else 0.0
    assert (np.abs(got - wanted) <= tolerance * (np.abs(wanted) + like)).all()
