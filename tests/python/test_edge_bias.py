"""The edge bias of convolutions by `compile`, with NumPy's arrays: against sums of a kernel without it."""

import itertools

import numpy as np
import pytest

import sparsekiln as sk

BLOCK = (16, 8)
GEOMETRIES = {
    "same": "kernel=3x3 padding=1 input=6x5",
    "stride": "kernel=3x2 stride=2 padding=1:0x0:1 input=7x6",
    "transposed": "kernel=3 stride=2 padding=1 transposed input=4x4",
    "mask": "kernel=3x3 padding=1 input=4x4 taps=111110000",
    "three dimensions": "kernel=3x1x2 padding=1x0x1 input=4x2x3",
}


def draw(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_situations_are_the_sets_of_taps_outside_of_the_input():
    found = sk.edge_situations("kernel=3x3 padding=1 input=4x5")
    assert found.count == 9 and found.of_position.shape == (4, 5) and found.of_position.dtype == np.int32
    outside = {}
    for p, q in itertools.product(range(4), range(5)):
        key = tuple((r, s) for r, s in itertools.product(range(3), range(3)) if not (0 <= p + r - 1 < 4 and 0 <= q + s - 1 < 5))
        assert found.of_position[p, q] == outside.setdefault(key, len(outside))
    assert sk.edge_situations("kernel=3x3 padding=1 input=4x5 taps=000010000").count == 1


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_an_edge_bias_is_a_gain_and_a_bias_of_each_situation_and_output(name, dtype):
    layout, text, n = sk.patterns.random(3, 4, 0.6, seed=1), GEOMETRIES[name], 3
    options = {"block": BLOCK, "batch": sk.up_to(4), "dtype": dtype, "out_dtype": "f32", "target": "cpu", "convolution": text}
    plain, fused = sk.compile(layout, **options), sk.compile(layout, epilogue="edge_bias", **options)
    relu = sk.compile(layout, epilogue="scale+edge_bias+relu+residual", **options)
    situations = sk.edge_situations(text)
    number = np.float16 if dtype == "f16" else np.float32
    extents = [int(one) for one in text.split("input=")[1].split()[0].split("x")]
    x = draw(n, *extents, plain.in_features).astype(number)
    taps = np.prod([int(one) for one in text.split("kernel=")[1].split()[0].split("x")]) ** (2 if name == "transposed" else 1)
    taps = text.split("taps=")[1].count("1") if name == "mask" else taps
    w = draw(layout.blocks, taps, *BLOCK).astype(number)
    gain, bias = draw(situations.count, plain.out_features), draw(situations.count, plain.out_features)
    sums = plain(x, w)
    assert sums.shape[1:-1] == situations.of_position.shape
    wanted = sums * gain[situations.of_position] + bias[situations.of_position]
    np.testing.assert_allclose(fused(x, w, edge_gain=gain, edge_bias=bias), wanted, rtol=1e-5, atol=1e-5)
    residual = draw(*sums.shape)
    wanted = np.maximum(0.5 * sums * gain[situations.of_position] + bias[situations.of_position], 0) + residual
    got = relu(x, w, edge_gain=gain, edge_bias=bias, residual=residual, alpha=0.5)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_operands_of_another_number_of_situations_are_refused():
    layout = sk.patterns.random(1, 1, 1, seed=1)
    kernel = sk.compile(layout, block=8, batch=1, target="cpu", convolution="kernel=3 padding=1 input=5", epilogue="edge_bias")
    x, w, right = draw(1, 5, 8), draw(1, 3, 8, 8), draw(3, 8)
    with pytest.raises(sk.InvalidArgument, match=r"edge_gain: rank 2, shape \[2, 8\].*dense \[3, 8\]: a row for each edge situation"):
        kernel(x, w, edge_gain=draw(2, 8), edge_bias=right)
    with pytest.raises(sk.InvalidArgument, match="edge_bias: it was not given"):
        kernel(x, w, edge_gain=right)
    with pytest.raises(sk.InvalidArgument, match="its type is f16"):
        kernel(x, w, edge_gain=right, edge_bias=right.astype(np.float16))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epilogue": "edge_bias"}, "this is a linear layer; bias would work"),
        ({"epilogue": "bias+edge_bias", "convolution": "kernel=3 input=5"}, "takes the place of the bias"),
        ({"epilogue": "edge_bias+silu+glu", "convolution": "kernel=3 input=5"}, "a glu pair has no edge bias"),
        ({"epilogue": "edge_bias", "op": "grad_input", "convolution": "kernel=3 input=5"}, "a gradient's is scale or none"),
    ],
)
def test_what_has_no_edge_bias_is_refused(options, words):
    with pytest.raises(sk.InvalidArgument, match=words):
        sk.compile(sk.patterns.random(1, 1, 1, seed=1), block=8, batch=1, target="cpu", **options)


def test_text_that_is_no_convolution_has_no_situations():
    with pytest.raises(sk.InvalidArgument, match="the kernel is 0"):
        sk.edge_situations("kernel=0 input=4")
    with pytest.raises(sk.InvalidArgument, match="edge situations are a convolution's"):
        sk.edge_situations("none")
