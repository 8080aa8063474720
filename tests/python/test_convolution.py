"""Convolutions by `compile`: transposed ones and masks of taps, with NumPy's arrays and against PyTorch's functions."""

import itertools

import numpy as np
import pytest
from dense import assert_close, dense_weight

import sparsekiln as sk

try:
    import torch
except ModuleNotFoundError:
    torch = None

BLOCK = (16, 8)
STRIDE, PADDING, KERNEL, INPUT, OUTPUT = 2, 1, (3, 2), (4, 5), (8, 8)
TRANSPOSED = "kernel=3x2 stride=2 padding=1 transposed output-padding=1x0 input=4x5"


def layout():
    return sk.patterns.random(3, 4, 0.5, seed=1)


def draw(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def by_taps(values):
    """float64[taps, rows of the layout, its columns] of values[blocks, taps, block_out, block_in]."""
    return np.stack([dense_weight(layout(), values[:, tap]) for tap in range(values.shape[1])])


def pairs():
    """Each position of the input, of the output, and the tap that connects them."""
    for tap, r in enumerate(itertools.product(*map(range, KERNEL))):
        for p in itertools.product(*map(range, INPUT)):
            q = tuple(STRIDE * at + by - PADDING for at, by in zip(p, r))
            if all(0 <= at < most for at, most in zip(q, OUTPUT)):
                yield tap, p, q


def scatter(x, w):
    y = np.zeros((len(x), *OUTPUT, w.shape[2]))
    for tap, p, q in pairs():
        y[(slice(None), *q)] += x[(slice(None), *p)] @ w[tap]
    return y


def gather(dy, w):
    dx = np.zeros((len(dy), *INPUT, w.shape[1]))
    for tap, p, q in pairs():
        dx[(slice(None), *p)] += dy[(slice(None), *q)] @ w[tap].T
    return dx


def test_the_three_operations_of_a_transposed_convolution_are_what_their_definition_says():
    n, blocks = 2, layout().blocks
    x, dy, values = draw(n, *INPUT, 48), draw(n, *OUTPUT, 32), draw(blocks, 6, *BLOCK)
    w = by_taps(values)
    of = lambda op, **more: sk.compile(layout(), BLOCK, sk.up_to(n), op=op, target="cpu", convolution=TRANSPOSED, **more)
    forward = of("forward", epilogue="bias+relu")
    assert (forward.in_features, forward.out_features) == (48, 32)
    bias = draw(32)
    y = forward(x, values, bias=bias)
    assert y.shape == (n, *OUTPUT, 32)
    assert_close(y, np.maximum(scatter(x, w) + bias, 0), scatter(np.abs(x), np.abs(w)) + np.abs(bias))
    rows = forward(x.reshape(-1, 48), values.reshape(-1, *BLOCK), bias=bias)
    np.testing.assert_array_equal(rows, y.reshape(-1, 32))
    dx = of("grad_input")(dy, values)
    assert dx.shape == x.shape
    assert_close(dx, gather(dy, w), gather(np.abs(dy), np.abs(w)))
    dw, dbias = of("grad_weight", bias_gradient=True)(x, dy)
    assert dw.shape == values.shape
    np.testing.assert_allclose(dbias, dy.astype(np.float64).sum((0, 1, 2)), rtol=1e-5, atol=1e-4)
    full = np.zeros(w.shape)
    for tap, p, q in pairs():
        full[tap] += x[(slice(None), *p)].T @ dy[(slice(None), *q)]
    present = by_taps(np.ones_like(values))
    np.testing.assert_allclose(by_taps(dw), full * present, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
def test_a_transposed_convolution_is_that_of_pytorch():
    x, values = draw(2, *INPUT, 48), draw(layout().blocks, 6, *BLOCK)
    y = sk.compile(layout(), BLOCK, 2, target="cpu", convolution=TRANSPOSED)(x, values)
    weight = torch.from_numpy(by_taps(values)).movedim(0, -1).unflatten(-1, KERNEL)
    images = torch.from_numpy(x).double().movedim(-1, 1)
    dense = torch.nn.functional.conv_transpose2d(images, weight, stride=STRIDE, padding=PADDING, output_padding=(1, 0))
    np.testing.assert_allclose(y, dense.movedim(1, -1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", ["", " transposed"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_mask_of_taps_is_zeros_of_a_whole_weight_that_are_not_stored(shared, transposed):
    blocks = layout().blocks
    rng = np.random.default_rng(3)
    mask = np.tile([True, True, False, True, False, False], (blocks, 1)) if shared else rng.random((blocks, 6)) < 0.4
    digits = "".join("01"[bit] for bit in (mask[0] if shared else mask.reshape(-1)).astype(int))
    text = f"kernel=3x2 padding=1 input=5x6{transposed}"
    compiled = lambda op, taps: sk.compile(layout(), BLOCK, 2, op=op, target="cpu", convolution=text + taps)
    whole = draw(blocks, 6, *BLOCK) * mask[:, :, None, None]
    values = whole[mask]  # [pairs, block_out, block_in]
    # The extents of y: 5 + 2 - 3 + 1 and 6 + 2 - 2 + 1; transposed 5 - 1 - 2 + 3 and 6 - 1 - 2 + 2.
    shapes = {"x": (2, 5, 6), "y": (2, 5, 7) if not transposed else (2, 5, 5)}
    features = {"x": 32, "y": 48} if not transposed else {"x": 48, "y": 32}
    x, dy = (draw(*shapes[side], features[side]) for side in ("x", "y"))
    for op, operand in (("forward", x), ("grad_input", dy)):
        expected = compiled(op, "")(operand, whole)
        np.testing.assert_allclose(compiled(op, f" taps={digits}")(operand, values), expected, rtol=1e-5, atol=1e-5)
    dw = compiled("grad_weight", f" taps={digits}")(x, dy)
    assert dw.shape == ((blocks, 3, *BLOCK) if shared else (mask.sum(), *BLOCK))
    np.testing.assert_allclose(dw.reshape(-1, *BLOCK), compiled("grad_weight", "")(x, dy)[mask], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("geometry", ["kernel=3x2 stride=2 padding=1 input=7x5", TRANSPOSED, "kernel=3 padding=1 input=9"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_channels_first_images_give_the_same_bits(geometry, dtype):
    last, first = ({"block": BLOCK, "batch": 2, "dtype": dtype, "convolution": geometry, "target": "cpu", "order": order}
                   for order in ("batch-major", "feature-major"))  # fmt: skip
    by_name = {op: (sk.compile(layout(), op=op, **last), sk.compile(layout(), op=op, **first))
               for op in ("forward", "grad_input", "grad_weight")}  # fmt: skip
    transposed = "transposed" in geometry
    extents = tuple(map(int, geometry.split("input=")[1].split("x")))
    values = draw(layout().blocks, 3 if len(extents) == 1 else 6, *BLOCK).astype(dtype)
    x = draw(2, *extents, 48 if transposed else 32).astype(dtype)
    turned = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    y = by_name["forward"][0](x, values)
    found = by_name["forward"][1](turned, values)
    assert found.shape == (2, y.shape[-1], *y.shape[1:-1])
    np.testing.assert_array_equal(found, np.moveaxis(y, -1, 1))
    flat = by_name["forward"][1](turned.reshape(*turned.shape[:2], -1), values)
    np.testing.assert_array_equal(flat, found.reshape(*found.shape[:2], -1))
    dx = by_name["grad_input"][0](y, values)
    np.testing.assert_array_equal(by_name["grad_input"][1](found, values), np.moveaxis(dx, -1, 1))
    np.testing.assert_array_equal(by_name["grad_weight"][1](turned, found), by_name["grad_weight"][0](x, y))


@pytest.mark.parametrize("order", ["batch-major", "feature-major"])
@pytest.mark.parametrize("geometry", ["kernel=3x2 stride=2 padding=1", "kernel=3x2 stride=2x1 padding=1 transposed"])
def test_one_kernel_serves_images_of_any_extents_up_to_its_bound(geometry, order):
    options = {"block": BLOCK, "batch": sk.up_to(3), "target": "cpu", "order": order}
    with pytest.raises(sk.InvalidArgument, match="up to 9 x 8 positions"):  # and makes no y of that size
        large = np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), (2, 90_000, 90_000, 64), (0, 0, 0, 4))
        sk.compile(layout(), convolution=f"{geometry} input=up-to:9x8", **options)(large, np.zeros(1, "f4"))
    any_size = {op: sk.compile(layout(), op=op, convolution=f"{geometry} input=up-to:9x8", **options)
                for op in ("forward", "grad_input", "grad_weight")}  # fmt: skip

    def images(n, features, extents):
        shape = (n, *extents, features) if order == "batch-major" else (n, features, *extents)
        return np.round(2 * draw(*shape))  # whole numbers, whose sums are exact

    values = np.round(2 * draw(layout().blocks, 6, *BLOCK))
    inputs, outputs = (48, 32) if "transposed" in geometry else (32, 48)
    for extents in ((9, 8), (9, 3), (2, 8), (3, 3)):
        of_one = {op: sk.compile(layout(), op=op, convolution=f"{geometry} input={extents[0]}x{extents[1]}", **options)
                  for op in any_size}  # fmt: skip
        x = images(2, inputs, extents)
        y = any_size["forward"](x, values)
        np.testing.assert_array_equal(y, of_one["forward"](x, values))
        dy = images(2, outputs, y.shape[1:3] if order == "batch-major" else y.shape[2:])
        dx = any_size["grad_input"](dy, values, dx=np.empty_like(x))
        np.testing.assert_array_equal(dx, of_one["grad_input"](dy, values))
        np.testing.assert_array_equal(any_size["grad_weight"](x, dy), of_one["grad_weight"](x, dy))
    with pytest.raises(ValueError, match="those of dx do not follow from dy; dx= would work"):
        any_size["grad_input"](dy, values)
    for wrong in ((10, 8), (0, 8)):
        with pytest.raises(ValueError, match="up to 9 x 8 positions"):
            any_size["forward"](images(2, inputs, wrong), values)


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("transposed", ["", " transposed"])
@pytest.mark.parametrize("masked", ["none", "shared", "of each block"])
def test_block_scales_multiply_all_taps_of_a_block_and_have_the_gradients_that_pytorch_finds(masked, transposed):
    blocks, rng = layout().blocks, np.random.default_rng(5)
    mask = np.ones((blocks, 6), bool)
    if masked == "shared":
        mask[:, [0, 4]] = False
    elif masked == "of each block":
        mask = rng.random((blocks, 6)) < 0.4
        mask[1] = False
    digits = "".join("01"[bit] for bit in (mask[0] if masked == "shared" else mask.reshape(-1)).astype(int))
    text = f"kernel=3x2 padding=1 input=5x6{transposed}" + (f" taps={digits}" if masked != "none" else "")
    of = lambda op, **more: sk.compile(layout(), BLOCK, sk.up_to(2), op=op, target="cpu", convolution=text, block_scales=True, **more)
    x = draw(2, 5, 6, 48 if transposed else 32)
    values = draw(blocks, 6, *BLOCK) * mask[:, :, None, None]
    block_scales = np.linspace(-1, 2, blocks, dtype=np.float32)
    block_scales[3] = 0

    # The dense weight is linear in the blocks: PyTorch differentiates its einsum.
    places = np.zeros((blocks, layout().rows, layout().cols))
    places[range(blocks), np.repeat(range(layout().rows), np.diff(layout().crow)), layout().col] = 1
    of_values, of_block_scales = torch.from_numpy(values).double().requires_grad_(), torch.from_numpy(block_scales).double().requires_grad_()
    dense = torch.einsum("brc,b,btoi->rocit", torch.from_numpy(places), of_block_scales, of_values).reshape(48, 32, 3, 2)
    images = torch.from_numpy(x).double().movedim(-1, 1).requires_grad_()
    function = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d
    y = function(images, dense, padding=1)
    dy = draw(*y.movedim(1, -1).shape)
    y.backward(torch.from_numpy(dy).double().movedim(-1, 1))

    close = lambda got, expected: np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-3)
    present = values[mask] if masked == "of each block" else np.ascontiguousarray(values[:, mask[0]])
    close(of("forward")(x, present, block_scales=block_scales), y.detach().movedim(1, -1))
    close(of("grad_input")(dy, present, block_scales=block_scales), images.grad.movedim(1, -1))
    kernel = of("grad_weight", block_scale_gradient=True)
    dw, dblock_scales = kernel(x, dy, w=present, block_scales=block_scales)
    close(dw.reshape(-1, *BLOCK), of_values.grad.numpy()[mask])
    assert dblock_scales.shape == (blocks,)
    close(dblock_scales, of_block_scales.grad)
    for one, again in zip((dw, dblock_scales), kernel(x, dy, w=present, block_scales=block_scales, threads=1)):
        np.testing.assert_array_equal(one, again)
    with pytest.raises(sk.InvalidArgument, match=rf"block_scales.*\[{blocks}\]"):
        kernel(x, dy, w=present, block_scales=np.ones(int(mask.sum()), np.float32))


@pytest.mark.parametrize(
    "geometry", ["kernel=3x2 stride=2 padding=1 input=7x5", TRANSPOSED, "kernel=3 padding=1 input=9 taps=101"]
)
def test_an_attached_kernel_takes_another_layout(geometry):
    first, second = (sk.patterns.random(3, 4, density, seed=4) for density in (0.4, 0.8))
    transposed = "transposed" in geometry
    extents = tuple(map(int, geometry.split("input=")[1].split(" ")[0].split("x")))
    taps = 2 if "taps=" in geometry else 6
    x, values = draw(2, *extents, 48 if transposed else 32), draw(second.blocks, taps, *BLOCK)
    of = lambda layout, **more: sk.compile(layout, BLOCK, sk.up_to(2), target="cpu", convolution=geometry, **more)
    kernel = of(first, attached=True)
    assert of(second, attached=True).key == kernel.key
    kernel.relayout(second)
    assert (kernel.layout, kernel.tier) == (second, "attached")
    y = kernel(x, values)
    np.testing.assert_array_equal(y, of(second)(x, values))
    gradient = of(first, op="grad_weight", attached=True)
    gradient.relayout(second)
    np.testing.assert_array_equal(gradient(x, y), of(second, op="grad_weight")(x, y))
    with pytest.raises(sk.InvalidArgument, match="3 x 4"):
        kernel.relayout(sk.patterns.random(4, 3, 1.0))


def test_a_mask_of_taps_for_each_block_has_no_other_layout():
    square = sk.patterns.random(2, 2, 1.0)
    options = {"block": BLOCK, "batch": 2, "target": "cpu", "convolution": "kernel=3 padding=1 input=8 taps=111110101111"}
    with pytest.raises(sk.InvalidArgument, match="a mask of 3 taps for all blocks"):
        sk.compile(square, attached=True, **options)
    with pytest.raises(sk.InvalidArgument, match="with a mask for all blocks"):
        sk.compile(square, **options).relayout(square)
