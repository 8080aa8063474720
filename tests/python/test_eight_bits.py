"""Operands of 8 bits: int8 of NumPy, and 8-bit floats of ml_dtypes and PyTorch."""

import numpy as np
import pytest
from dense import dense_weight

import sparsekiln as sk

BLOCK, BATCH = (16, 32), 9


def layout():
    return sk.patterns.random(4, 5, 0.6, seed=1)


def integers(shape, seed):
    return np.random.default_rng(seed).integers(-128, 128, shape, np.int8)


def int8_operands():
    grid = layout()
    x, w = integers((BATCH, grid.cols * BLOCK[1]), 1), integers((grid.blocks, *BLOCK), 2)
    return grid, x, w, x.astype("i8") @ dense_weight(grid, w.astype("i8")).T


@pytest.mark.parametrize("dtype", ["i8", "int8", np.int8])
def test_int8_is_summed_in_int32(dtype):
    grid, x, w, expected = int8_operands()
    kernel = sk.compile(grid, BLOCK, BATCH, dtype, target="cpu")
    assert (kernel.dtype, kernel.out_dtype) == ("i8", "i32")
    y = kernel(x, w)
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y, expected)


def test_sums_are_scaled_by_rows_of_blocks_and_by_alpha():
    grid, x, w, expected = int8_operands()
    kernel = sk.compile(grid, BLOCK, BATCH, "i8", out_dtype="f32", epilogue="scale+row_scale+bias", target="cpu")
    scales = np.array([0.5, 2, -1, 0.25], "f4")
    bias = np.arange(grid.rows * BLOCK[0], dtype="f4")
    y = kernel(x, w, row_scale=scales, bias=bias, alpha=0.125)
    np.testing.assert_allclose(y, 0.125 * np.repeat(scales, BLOCK[0]) * expected + bias, rtol=1e-6)
    with pytest.raises(sk.InvalidArgument, match="row_scale.*one for each block row"):
        kernel(x, w, row_scale=scales[:3], bias=bias)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_8_bit_floats_of_ml_dtypes_give_bfloat16_or_what_is_asked_for(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    grid, dtype = layout(), getattr(ml_dtypes, name)
    draw = np.random.default_rng(3).standard_normal
    x, w = draw((BATCH, grid.cols * BLOCK[1])).astype(dtype), draw((grid.blocks, *BLOCK)).astype(dtype)
    expected = x.astype("f8") @ dense_weight(grid, w.astype("f8")).T
    y = sk.compile(grid, BLOCK, BATCH, dtype, out_dtype="f32", target="cpu")(x, w)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)
    y = sk.compile(grid, BLOCK, BATCH, name, target="cpu")(x, w)
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(y.astype("f8"), expected, rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int8"])
def test_tensors_of_pytorch_are_taken_as_they_are(name):
    torch = pytest.importorskip("torch")
    grid, dtype = layout(), getattr(torch, name)
    x = torch.from_numpy(integers((BATCH, grid.cols * BLOCK[1]), 1)).clamp(-8, 8).to(dtype)
    w = torch.from_numpy(integers((grid.blocks, *BLOCK), 2)).clamp(-8, 8).to(dtype)
    expected = x.double().numpy() @ dense_weight(grid, w.double().numpy()).T
    y = sk.compile(grid, BLOCK, BATCH, dtype, out_dtype="f32", target="cpu")(x, w)
    np.testing.assert_array_equal(y.numpy(), expected)


def test_gradients_are_refused_with_what_would_work():
    with pytest.raises(sk.InvalidArgument, match="grad_input of i8: forward, or f16 or bf16, would work"):
        sk.compile(layout(), BLOCK, BATCH, "i8", "grad_input", target="cpu")
