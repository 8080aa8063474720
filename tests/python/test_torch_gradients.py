"""Results and gradients of block-sparse layers against dense ones in float64."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_layer import FUNCTIONS, Dense, blocks_of, make_layer  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import BlockSparseLinear  # noqa: E402


def check_layer(layer, shape=(7,), seed=1):
    generator = torch.Generator().manual_seed(seed)
    dtype = layer.weight_values.dtype
    x = torch.randn(*shape, layer.in_features, generator=generator).to(dtype).requires_grad_()
    dy = torch.randn(*shape, layer.out_features, generator=generator).to(dtype)
    dense = Dense(layer, x, dy)
    y = layer(x)
    assert y.shape == (*shape, layer.out_features) and y.dtype == dtype
    y.backward(dy)
    dense.check("y", y)
    dense.check("dx", x.grad)
    dense.check("dvalues", layer.weight_values.grad)
    if layer.bias is not None:
        dense.check("dbias", layer.bias.grad)


@pytest.mark.parametrize("activation", FUNCTIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_every_activation_with_and_without_a_bias(activation, bias):
    check_layer(make_layer(activation=activation, bias=bias))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
def test_16_bit_types(dtype, activation):
    check_layer(make_layer(activation=activation, dtype=dtype))


@pytest.mark.parametrize("block", [8, 16, 32, 64])
def test_blocks(block):
    check_layer(make_layer(3 * block, 2 * block, 0.5, block))


def test_a_block_that_is_not_square():
    layer = BlockSparseLinear(64, 32, sparsekiln.Layout([[1, 0], [1, 1], [0, 1], [1, 1]]), block=(8, 32))
    assert layer.weight_values.shape == (6, 8, 32)
    check_layer(layer)


@pytest.mark.parametrize("features", [(33, 95), (31, 1), (1, 40), (64, 66)])
def test_features_that_are_no_multiple_of_the_block(features):
    check_layer(make_layer(*features, density=0.7))


@pytest.mark.parametrize("shape", [(1,), (64,), (130,), (3, 5), (2, 3, 4), ()])
def test_leading_dimensions(shape):
    check_layer(make_layer(), shape)


def test_rows_and_columns_without_a_block():
    check_layer(BlockSparseLinear(96, 128, [[0, 1, 0], [0, 0, 0], [0, 1, 0], [0, 1, 0]], activation="gelu"))


def test_a_layout_without_any_block_gives_the_bias():
    layer = BlockSparseLinear(64, 32, [[0, 0]], activation="relu")
    torch.nn.init.uniform_(layer.bias, -1, 1)
    check_layer(layer)


def test_an_empty_batch():
    layer = make_layer(activation="gelu")
    x = torch.empty(0, 3, layer.in_features, requires_grad=True)
    y = layer(x)
    assert y.shape == (0, 3, layer.out_features)
    y.sum().backward()
    assert x.grad.shape == x.shape
    assert not layer.weight_values.grad.any() and not layer.bias.grad.any()


@pytest.mark.parametrize("form", ["transposed", "strided rows", "expanded", "unaligned", "every other column"])
def test_inputs_and_gradients_that_do_not_lie_in_order(form):
    layer = make_layer(96, 128, activation="gelu")

    def laid_out(n, features, seed):
        wide = torch.randn(n + 3, 2 * features + 16, generator=torch.Generator().manual_seed(seed))
        return {
            "transposed": wide[:n, :features].T.contiguous().T,
            "strided rows": wide[:n, 8 : 8 + features],
            "expanded": wide[:1, :features].expand(n, features),
            "unaligned": wide[:n, 1 : 1 + features],
            "every other column": wide[:n, : 2 * features : 2],
        }[form]

    x, dy = laid_out(5, 96, 0), laid_out(5, 128, 1)
    dense = Dense(layer, x, dy)
    for _ in range(2):  # the second time the kernels are there
        layer.zero_grad()
        leaf = x.detach().requires_grad_()
        y = layer(leaf)
        y.backward(dy)
        dense.check("y", y)
        dense.check("dx", leaf.grad)
        dense.check("dvalues", layer.weight_values.grad)
        dense.check("dbias", layer.bias.grad)


def test_a_batch_beyond_the_first_kernels_bound():
    layer = make_layer(8, 8, 1, block=8)
    x = torch.randn((1 << 20) + 3, 8, requires_grad=True)
    dy = torch.randn((1 << 20) + 3, 8)
    layer(x[:5]).backward(dy[:5])
    layer.zero_grad()
    y = layer(x)
    (dx,) = torch.autograd.grad(y, x, dy)
    torch.testing.assert_close(y, torch.nn.functional.linear(x, layer.to_dense(), layer.bias), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dx, dy @ layer.to_dense(), rtol=1e-4, atol=1e-5)


def test_a_layer_made_in_inference_mode():
    with torch.inference_mode():
        layer = make_layer(64, 64, 0.5)
        x = torch.randn(3, 64)
        for _ in range(2):
            torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.to_dense(), layer.bias))
        layer.col_indices.copy_(layer.col_indices.flip(0))
        with pytest.raises(ValueError, match="relayout|col"):
            layer(x)


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("wanted", ["x", "values", "bias", "x values", "x bias", "values bias", ""])
def test_gradients_are_computed_for_those_that_want_one(activation, wanted):
    layer = make_layer(activation=activation)
    x = torch.randn(6, layer.in_features, generator=torch.Generator().manual_seed(2))
    dy = torch.randn(6, layer.out_features, generator=torch.Generator().manual_seed(3))
    dense = Dense(layer, x, dy)
    x.requires_grad_("x" in wanted)
    layer.weight_values.requires_grad_("values" in wanted)
    layer.bias.requires_grad_("bias" in wanted)
    y = layer(x)
    dense.check("y", y)
    assert y.requires_grad == bool(wanted)
    if wanted:
        y.backward(dy)
    for name, tensor in (("dx", x), ("dvalues", layer.weight_values), ("dbias", layer.bias)):
        if tensor.requires_grad:
            dense.check(name, tensor.grad)
        else:
            assert tensor.grad is None


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_a_second_backward_pass(activation):
    layer = make_layer(40, 48, activation=activation)
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(3, 40, generator=generator)
    dy, direction = torch.randn(3, 48, generator=generator), torch.randn(3, 40, generator=generator)

    def penalty_gradients(apply, x, *parameters):
        (dx,) = torch.autograd.grad((apply(x) * dy.to(x.dtype)).sum(), x, create_graph=True)
        return torch.autograd.grad((dx * direction.to(x.dtype)).square().sum(), (x, *parameters), allow_unused=True)

    found = penalty_gradients(layer, x.clone().requires_grad_(), layer.weight_values, layer.bias)
    weight = layer.to_dense().detach().double().requires_grad_()
    bias = layer.bias.detach().double().requires_grad_()
    expected = penalty_gradients(
        lambda x: FUNCTIONS[activation](x @ weight.T + bias), x.double().requires_grad_(), weight, bias
    )
    torch.testing.assert_close(found[1].double(), blocks_of(layer, expected[1]), rtol=1e-4, atol=1e-5)
    for one, other in ((found[0], expected[0]), (found[2], expected[2])):
        if other is not None and other.any():
            torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)
        else:
            assert one is None or not one.any()


def test_accumulation_over_two_halves_is_one_pass_over_all():
    layer = make_layer(activation="gelu")
    x, dy = torch.randn(10, 100), torch.randn(10, 120)
    dense = Dense(layer, x, dy)
    layer(x[:4]).backward(dy[:4])
    layer(x[4:]).backward(dy[4:])
    dense.check("dvalues", layer.weight_values.grad)
    dense.check("dbias", layer.bias.grad)


def test_a_layer_used_twice_in_one_graph():
    layer = make_layer(64, 64, activation="relu")
    x = torch.randn(5, 64)
    weight, bias = layer.to_dense().detach().double().requires_grad_(), layer.bias.detach().double()
    layer(layer(x)).sum().backward()
    hidden = torch.relu(x.double() @ weight.T + bias)
    torch.relu(hidden @ weight.T + bias).sum().backward()
    torch.testing.assert_close(layer.weight_values.grad.double(), blocks_of(layer, weight.grad), rtol=1e-5, atol=1e-5)


def test_the_dense_weight_is_differentiable():
    layer = make_layer(40, 48)
    factor = torch.randn(48, 40)
    (layer.to_dense() * factor).sum().backward()
    torch.testing.assert_close(layer.weight_values.grad, blocks_of(layer, factor))
