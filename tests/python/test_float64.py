"""float64, which the cpu target alone computes with: for users of SciPy, and for torch.autograd.gradcheck."""

import numpy as np
import pytest
from dense import assert_close, dense_weight

import sparsekiln as sk

try:
    import torch
except ModuleNotFoundError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")


def operands(layout, block, n, seed=0):
    random = np.random.default_rng(seed)
    draw = random.standard_normal
    return draw((n, layout.cols * block[1])), draw((layout.blocks, *block)), draw((n, layout.rows * block[0]))


@pytest.mark.parametrize("dtype", ["f64", "float64", np.float64])
def test_products_and_gradients_have_the_precision_of_float64(dtype):
    block, layout = (16, 8), sk.patterns.random(5, 7, 0.4, seed=1)
    x, w, dy = operands(layout, block, 9)
    dense = dense_weight(layout, w)
    of = lambda op: sk.compile(layout, block, 9, dtype, op, target="cpu")
    y = of("forward")(x, w)
    assert y.dtype == np.float64
    assert_close(y, x @ dense.T, np.abs(x) @ np.abs(dense).T, "f64")
    assert_close(of("grad_input")(dy, w), dy @ dense, np.abs(dy) @ np.abs(dense), "f64")
    dw = dense_weight(layout, of("grad_weight")(x, dy))
    present = dense_weight(layout, np.ones_like(w))
    assert_close(dw, present * (dy.T @ x), np.abs(dy).T @ np.abs(x), "f64")


def test_block_scales_and_what_is_summed_beside_the_gradient_are_float64():
    block, layout = (8, 8), sk.patterns.random(3, 4, 0.5, seed=2)
    x, w, dy = operands(layout, block, 5)
    block_scales = np.random.default_rng(1).standard_normal(layout.blocks)
    kernel = sk.compile(
        layout, block, 5, "f64", "grad_weight", target="cpu", block_scales=True, bias_gradient=True, block_scale_gradient=True
    )
    dw, dbias, dblock_scales = kernel(x, dy, w=w, block_scales=block_scales)
    assert dbias.dtype == dblock_scales.dtype == np.float64
    np.testing.assert_allclose(dbias, dy.sum(0), rtol=1e-13, atol=1e-13)
    unscaled = sk.compile(layout, block, 5, "f64", "grad_weight", target="cpu")(x, dy)
    np.testing.assert_allclose(dw, unscaled * block_scales[:, None, None], rtol=1e-14)
    np.testing.assert_allclose(dblock_scales, (unscaled * w).sum((1, 2)), rtol=1e-12, atol=1e-12)


def test_alpha_and_beta_have_all_their_digits():
    block, layout = (8, 8), sk.patterns.random(3, 4, 0.5, seed=2)
    x, w, dy = operands(layout, block, 5)
    random = np.random.default_rng(3)
    alpha, beta = 0.1, 0.3
    for op, given in (("forward", (x, w)), ("grad_input", (dy, w)), ("grad_weight", (x, dy))):
        plain = sk.compile(layout, block, 5, "f64", op, target="cpu")(*given)
        before = random.standard_normal(plain.shape)
        scale = sk.compile(layout, block, 5, "f64", op, target="cpu", epilogue="scale")
        got = scale(*given, before.copy(), alpha=alpha, beta=beta)
        error = np.abs(got - (alpha * plain + beta * before))
        assert (error <= 1e-15 * (np.abs(alpha * plain) + np.abs(beta * before))).all()


def test_float32_block_scales_are_refused():
    layout = sk.patterns.random(3, 4, 0.5, seed=2)
    x, w, _ = operands(layout, (8, 8), 5)
    kernel = sk.compile(layout, 8, 5, "f64", target="cpu", block_scales=True)
    with pytest.raises(sk.InvalidArgument, match="block_scales.*f32.*f64"):
        kernel(x, w, block_scales=np.ones(layout.blocks, np.float32))


def test_block_sparse_matmul_takes_it():
    from sparsekiln.compat import BlocksparseMatMul

    bsmm = BlocksparseMatMul(np.eye(3, dtype=np.int32), block_size=8, feature_axis=1)
    random = np.random.default_rng(0)
    x, w = random.standard_normal((5, 24)), random.standard_normal(bsmm.w_shape)
    y = bsmm(x, w)
    assert y.dtype == np.float64
    for i in range(3):
        np.testing.assert_allclose(y[:, 8 * i : 8 * i + 8], x[:, 8 * i : 8 * i + 8] @ w[i], rtol=1e-12, atol=1e-14)


@needs_torch
@pytest.mark.parametrize("activation", [None, *sk.activations])
@pytest.mark.parametrize("features", [(24, 16), (21, 13)])
def test_gradcheck_of_a_layer_in_float64(activation, features):
    from sparsekiln.torch import BlockSparseLinear

    torch.manual_seed(3)
    layout = sk.Layout([[1, 0, 1], [1, 1, 0]])
    layer = BlockSparseLinear(*features, layout, 8, True, activation, dtype=torch.float64)
    x = torch.randn(4, features[0], dtype=torch.float64, requires_grad=True)
    assert layer(x).dtype == torch.float64

    def of(x, values, bias):
        return torch.func.functional_call(layer, {"weight_values": values, "bias": bias}, (x,))

    values = layer.weight_values.detach().clone().requires_grad_()
    bias = torch.randn(features[1], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(of, (x, values, bias), eps=1e-6, atol=1e-8)


@needs_torch
def test_gradgradcheck_of_a_layer_in_float64():
    from sparsekiln.torch import BlockSparseLinear

    torch.manual_seed(4)
    layer = BlockSparseLinear(16, 16, sk.Layout([[1, 0], [1, 1]]), 8, False, "gelu", dtype=torch.float64)
    x = torch.randn(2, 16, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(layer, (x,), eps=1e-6, atol=1e-7)


def test_jax_computes_in_float64_where_it_is_enabled():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    import sparsekiln.jax as layers

    layout = sk.patterns.random(3, 2, 0.7, seed=3)
    with jax.enable_x64(True):
        x, w, _ = (jax.numpy.asarray(array) for array in operands(layout, (8, 8), 5))
        assert x.dtype == np.float64
        bias = jax.numpy.linspace(-1, 1, 24)
        dense = dense_weight(layout, np.asarray(w))

        def loss(x, w, bias):
            return (layers.linear(x, w, layout, bias=bias, activation="gelu", block=8) ** 2).sum()

        def dense_loss(x, bias):
            return (jax.nn.gelu(x @ dense.T + bias, approximate=False) ** 2).sum()

        got = jax.grad(loss, (0, 2))(x, w, bias)
        want = jax.grad(dense_loss, (0, 1))(x, bias)
        for one, other in zip(got, want):
            assert one.dtype == np.float64
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
