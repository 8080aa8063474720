"""Block-sparse convolutions with an edge bias: gradients, and what goes with them, against a dense convolution in float64."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_convolution import (  # noqa: E402
    LAYERS, blocks_of, check_edges, close, dense_weight, images, randomize_edges, refused, run_with_edges,
)  # fmt: skip

from sparsekiln.torch import fuse_conv_bn, fuse_conv_bn_  # noqa: E402
from sparsekiln.torch.convolution import edge_bias  # noqa: E402
from sparsekiln.torch.convolution import products as convolution_products  # noqa: E402

LAYOUT = [[1, 0, 1], [0, 1, 0]]
MAKERS = {
    "same": ((6, 5), lambda **more: LAYERS[2](48, 32, 3, padding=1, layout=LAYOUT, block=16, edge_bias=(6, 5), **more)),
    "stride": ((9,), lambda **more: LAYERS[1](48, 32, 3, stride=2, padding=2, dilation=2, layout=LAYOUT, block=16, edge_bias=9, **more)),
    "valid": ((4, 4, 4), lambda **more: LAYERS[3](24, 16, 2, layout=LAYOUT, block=8, edge_bias=4, **more)),
    "masked": (
        (6, 5),
        lambda **more: LAYERS[2](
            37, 20, 3, padding=1, layout=LAYOUT, block=16, edge_bias=(6, 5), tap_mask=[[1, 1, 1], [1, 1, 0], [0, 0, 0]], **more
        ),
    ),
    "pointwise": ((3, 4), lambda **more: LAYERS[2](48, 32, 1, layout=LAYOUT, block=16, edge_bias=(3, 4), **more)),
}


@pytest.fixture(params=MAKERS)
def made(request):
    """The extents of the input, and a layer whose gains and biases are random."""
    torch.manual_seed(0)
    extents, make = MAKERS[request.param]
    return extents, randomize_edges(make())


@pytest.mark.parametrize("channels_last", [False, True])
def test_y_and_all_gradients_are_those_of_a_dense_convolution(made, channels_last):
    extents, layer = made
    x = images(layer, 3, extents, channels_last)
    check_edges(layer, x)
    y = layer(x)
    with torch.no_grad():
        assert torch.equal(layer(x), y)  # by the kernel itself, without the dispatcher


def test_second_derivatives(made):
    extents, layer = made
    operands = [images(layer, 2, extents).requires_grad_(), layer.weight_values, layer.edge_gain, layer.edge_bias]
    weight = dense_weight(layer).requires_grad_()
    places = edge_bias.situations_of(layer._form, extents, layer._taps).of_position.astype("int64")

    def of_dense(x, values, gain, bias):
        y = layer.dense_function(x, values, None, layer.stride, layer.padding, layer.dilation, layer.groups)
        return y * gain[places].movedim(-1, 0) + bias[places].movedim(-1, 0)

    results = []
    for compute, inputs in ((lambda *_: layer(operands[0]), operands), (of_dense, [operands[0], weight, *operands[2:]])):
        first = list(torch.autograd.grad(compute(*inputs).square().sum(), inputs, create_graph=True))
        first[1] = first[1] if inputs is operands else blocks_of(layer, first[1])
        results.append(torch.autograd.grad(sum(one.square().sum() for one in first), inputs))
    for number, (one, other) in enumerate(zip(*results)):
        close(one, blocks_of(layer, other) if number == 1 else other)


@pytest.mark.parametrize(
    "trained, launches",
    [({"edge_bias"}, []), ({"edge_gain"}, ["forward"]), ({"weight_values", "edge_bias"}, ["grad_weight"]), ({"weight_values"}, ["grad_weight"])],
)
def test_only_the_gradients_that_are_needed_are_computed(trained, launches, monkeypatch):
    layer = randomize_edges(MAKERS["same"][1]())
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name in trained)
    x = images(layer, 2, (6, 5))
    dy = torch.randn_like(layer(x))
    y, found, run = layer(x), [], convolution_products.run
    monkeypatch.setattr(convolution_products, "run", lambda kernel, *others, **named: found.append(kernel.op) or run(kernel, *others, **named))
    y.backward(dy)
    assert found == launches
    wanted = dict(zip(("weight_values", "edge_gain", "edge_bias"), run_with_edges(layer, x, dy)[2:]))
    for name, parameter in layer.named_parameters():
        assert (parameter.grad is not None) == (name in trained)
        if name in trained:
            close(parameter.grad, blocks_of(layer, wanted[name]) if name == "weight_values" else wanted[name])


def test_gains_begin_as_1_and_biases_as_0_instead_of_the_bias():
    layer = MAKERS["same"][1]()
    assert layer.bias is None and layer.edge_gain.shape == layer.edge_bias.shape == (9, 32)
    plain = LAYERS[2](48, 32, 3, padding=1, layout=LAYOUT, block=16, bias=False)
    plain.weight_values.data.copy_(layer.weight_values.data)
    x = images(layer, 2, (6, 5))
    close(layer(x).detach(), plain(x).detach())
    randomize_edges(layer).reset_parameters()
    assert (layer.edge_gain == 1).all() and not layer.edge_bias.any()
    assert repr(layer).endswith("edge_bias=(6, 5))") and "bias=False" not in repr(layer)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precisions_and_autocast_are_computed_in_float32(dtype):
    layer = randomize_edges(MAKERS["same"][1]())
    x = images(layer, 2, (6, 5))
    dy = torch.randn(2, 32, 6, 5)
    wanted = run_with_edges(layer, x, dy)
    with torch.autocast("cpu", dtype):
        y = layer(x)
    y.backward(dy.to(dtype))
    assert y.dtype == dtype and layer.edge_gain.grad.dtype == torch.float32
    close(y.detach(), wanted[0], 2e-2)
    close(layer.edge_gain.grad, wanted[3], 2e-2)
    half = copy.deepcopy(layer).to(dtype)
    close(half(x.to(dtype)).detach(), wanted[0], 2e-2)


def test_an_inf_of_one_situation_stays_out_of_the_gradients_of_others():
    layer = randomize_edges(MAKERS["same"][1]())
    y = layer(images(layer, 1, (6, 5)))
    dy = torch.ones_like(y)
    dy[0, :, 0, 0] = torch.inf
    y.backward(dy)
    assert layer.edge_bias.grad[0].isinf().all() and layer.edge_bias.grad[1:].isfinite().all()
    assert layer.edge_gain.grad[1:].isfinite().all()


def test_it_is_saved_and_loaded_with_the_layer():
    one, other = randomize_edges(MAKERS["same"][1]()), MAKERS["same"][1]()
    assert {"edge_gain", "edge_bias"} <= set(one.state_dict())
    other.load_state_dict(one.state_dict())
    x = images(one, 1, (6, 5))
    assert torch.equal(one(x), other(x))


def test_the_operators_are_what_pytorch_asks_of_operators():
    layer = randomize_edges(MAKERS["stride"][1]())
    x = images(layer, 2, (9,)).movedim(1, -1).contiguous().requires_grad_()
    geometry = layer._form.as_list()
    operators = torch.ops.sparsekiln
    arguments = (
        x, layer.weight_values, layer.edge_gain, layer.edge_bias, layer.crow_indices, layer.col_indices, 32, geometry, "",
    )  # fmt: skip
    torch.library.opcheck(operators.convolution_edge_bias.default, arguments)
    dy = operators.convolution_edge_bias(*arguments).detach()
    for sums in (None, dy):
        torch.library.opcheck(operators.edge_bias_gradients.default, (dy, sums, layer.edge_gain.detach(), [9], geometry, ""))


@pytest.mark.parametrize("channels_last", [False, True])
def test_it_is_compiled_without_a_break_of_the_graph(channels_last):
    layer = randomize_edges(MAKERS["same"][1]())
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = images(layer, 2, (6, 5), channels_last)
    compiled(x).square().sum().backward()
    found = layer.edge_gain.grad.clone()
    layer.zero_grad()
    layer(x).square().sum().backward()
    assert torch.equal(compiled(x), layer(x)) and torch.equal(found, layer.edge_gain.grad)


def test_what_onnx_exporters_are_given_is_of_standard_operators(monkeypatch):
    layer = randomize_edges(MAKERS["same"][1]())
    layer.requires_grad_(False)
    x = images(layer, 1, (6, 5))
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    program = torch.export.export(layer, (x,))
    assert "sparsekiln" not in str(program.graph)
    close(program.module()(x), layer(x))


def test_a_norm_is_folded_into_gains_and_biases():
    layer, norm = randomize_edges(MAKERS["same"][1]()).eval(), torch.nn.BatchNorm2d(32).eval()
    for tensor in (norm.running_mean, norm.weight, norm.bias):
        torch.nn.init.normal_(tensor)
    torch.nn.init.uniform_(norm.running_var, 0.5, 3)
    x = images(layer, 2, (6, 5))
    fused = fuse_conv_bn(layer, norm)
    close(fused(x).detach(), norm(layer(x)).detach())
    assert fused.bias is None and torch.equal(fused.weight_values, layer.weight_values)
    model = torch.nn.Sequential(layer, norm)
    expected = model(x)
    assert fuse_conv_bn_(model) == ["1"]
    close(model(x).detach(), expected.detach())


def test_other_images_and_what_dense_layers_lack_are_refused():
    layer = MAKERS["same"][1]().eval()
    with refused(ValueError, "images of 5x5", "for images of 6x5"):
        layer(images(layer, 1, (5, 5)))
    with refused(ValueError, "edge bias, which dense layers do not have"):
        layer.to_dense()
    with refused(TypeError, "an edge bias in float64"):
        MAKERS["same"][1](dtype=torch.float64)
    with refused(TypeError, "an edge bias in float64"):
        copy.deepcopy(layer).double()(images(layer, 1, (6, 5)).double())
    with refused(ValueError, "edge_bias=0"):
        LAYERS[2](48, 32, 3, layout=LAYOUT, block=16, edge_bias=0)
    with refused(ValueError, "a tap_mask for each block", "a mask for all blocks would work"):
        LAYERS[2](48, 32, 3, layout=LAYOUT, block=16, edge_bias=6, tap_mask=torch.arange(27).reshape(3, 3, 3) % 2)
    operands = (layer.weight_values, layer.edge_gain[:5], layer.edge_bias, layer.crow_indices, layer.col_indices)
    with refused(ValueError, "edge_gain has the shape", "9 edge situations", r"takes \[9, 32\]"):
        torch.ops.sparsekiln.convolution_edge_bias(torch.zeros(1, 6, 5, 48), *operands, 32, layer._form.as_list(), "")
