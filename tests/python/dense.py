"""Dense float64 references of what kernels compute."""

import numpy as np

import sparsekiln as sk

UNIT_ROUNDOFF = {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11, "f64": 2.0**-53}


def dense_weight(layout: sk.Layout, values: np.ndarray) -> np.ndarray:
    """float64[out, in] of values[blocks, block_out, block_in]."""
    _, block_out, block_in = values.shape
    weight = np.zeros((layout.rows, block_out, layout.cols, block_in))
    rows = np.repeat(np.arange(layout.rows), np.diff(layout.crow))
    weight[rows, :, layout.col, :] = values.astype(np.float64)
    return weight.reshape(layout.rows * block_out, layout.cols * block_in)


def blocks_of(layout: sk.Layout, weight: np.ndarray, block: tuple[int, int]) -> np.ndarray:
    """The present blocks of a dense [out, in]."""
    block_out, block_in = block
    tiles = weight.reshape(layout.rows, block_out, layout.cols, block_in)
    rows = np.repeat(np.arange(layout.rows), np.diff(layout.crow))
    return tiles[rows, :, layout.col, :]


def assert_close(got: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, dtype: str = "f32") -> None:
    """|error| <= c * u * magnitude + u_out * |expected|, element by element; magnitude is |x| |W|^T.

    u is that of the type in which sums are formed, float32 or of float64 operands float64, u_out the result's.
    """
    error = np.abs(got.astype(np.float64) - expected)
    bound = 32 * UNIT_ROUNDOFF["f64" if dtype == "f64" else "f32"] * magnitude + 1.01 * UNIT_ROUNDOFF[dtype] * np.abs(expected) + 1e-30
    assert (error <= bound).all(), f"off by up to {(error / bound).max():.3g} times the bound"
