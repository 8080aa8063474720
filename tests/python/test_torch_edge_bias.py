"""Block-sparse convolutions with an edge bias: gradients, and what goes with them, against a dense convolution in float64."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_convolution import LAYERS, blocks_of, close, dense_weight, images, refused  # noqa: E402

import sparsekiln as sk  # noqa: E402
from sparsekiln.torch import fuse_conv_bn  # noqa: E402

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
    return extents, randomized(make())


def randomized(layer):
    with torch.no_grad():
        layer.edge_gain.normal_()
        layer.edge_bias.normal_()
    return layer


def situations_of(layer, extents):
    return torch.from_numpy(sk.edge_situations(layer._form.text(extents, layer._taps)).of_position).long()


def dense_result(layer, x, dy):
    """y, and gradients of x, W, gain and bias, in float64."""
    operands = [one.detach().double().requires_grad_() for one in (x, dense_weight(layer), layer.edge_gain, layer.edge_bias)]
    sums = layer.dense_function(*operands[:2], None, layer.stride, layer.padding, layer.dilation, layer.groups)
    gain, bias = (one[situations_of(layer, x.shape[2:])].movedim(-1, 0) for one in operands[2:])
    y = sums * gain + bias
    return y.detach(), *torch.autograd.grad(y, operands, dy.double())


def test_y_and_all_gradients_are_those_of_a_dense_convolution(made):
    extents, layer = made
    x = images(layer, 3, extents).requires_grad_()
    y = layer(x)
    dy = torch.randn_like(y)
    y.backward(dy)
    wanted = dense_result(layer, x, dy)
    close(y.detach(), wanted[0])
    close(x.grad, wanted[1])
    close(layer.weight_values.grad, blocks_of(layer, wanted[2]))
    close(layer.edge_gain.grad, wanted[3])
    close(layer.edge_bias.grad, wanted[4])
    with torch.no_grad():
        assert torch.equal(layer(x), y)  # by the kernel itself, without the dispatcher


@pytest.mark.parametrize("trained", [{"edge_bias"}, {"edge_gain"}, {"weight_values", "edge_bias"}])
def test_only_the_gradients_that_are_needed_are_computed(trained):
    layer = randomized(MAKERS["same"][1]())
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name in trained)
    x = images(layer, 2, (6, 5))
    dy = torch.randn_like(layer(x))
    layer(x).backward(dy)
    wanted = dict(zip(("weight_values", "edge_gain", "edge_bias"), dense_result(layer, x, dy)[2:]))
    for name, parameter in layer.named_parameters():
        assert (parameter.grad is not None) == (name in trained)
        if name in trained:
            close(parameter.grad, blocks_of(layer, wanted[name]) if name == "weight_values" else wanted[name])


def test_gains_begin_as_1_and_biases_as_0_in_place_of_the_bias():
    layer = MAKERS["same"][1]()
    assert layer.bias is None and layer.edge_gain.shape == layer.edge_bias.shape == (9, 32)
    plain = LAYERS[2](48, 32, 3, padding=1, layout=LAYOUT, block=16, bias=False)
    plain.weight_values.data.copy_(layer.weight_values.data)
    x = images(layer, 2, (6, 5))
    close(layer(x).detach(), plain(x).detach())
    randomized(layer).reset_parameters()
    assert (layer.edge_gain == 1).all() and not layer.edge_bias.any()
    assert repr(layer).endswith("edge_bias=(6, 5))") and "bias=False" not in repr(layer)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precisions_and_autocast_are_computed_in_float32(dtype):
    layer = randomized(MAKERS["same"][1]())
    x = images(layer, 2, (6, 5))
    dy = torch.randn(2, 32, 6, 5)
    wanted = dense_result(layer, x, dy)
    with torch.autocast("cpu", dtype):
        y = layer(x)
    y.backward(dy.to(dtype))
    assert y.dtype == dtype and layer.edge_gain.grad.dtype == torch.float32
    close(y.detach(), wanted[0], 2e-2)
    close(layer.edge_gain.grad, wanted[3], 2e-2)
    half = copy.deepcopy(layer).to(dtype)
    close(half(x.to(dtype)).detach(), wanted[0], 2e-2)


def test_an_inf_of_one_situation_stays_out_of_the_gradients_of_others():
    layer = randomized(MAKERS["same"][1]())
    y = layer(images(layer, 1, (6, 5)))
    dy = torch.ones_like(y)
    dy[0, :, 0, 0] = torch.inf
    y.backward(dy)
    assert layer.edge_bias.grad[0].isinf().all() and layer.edge_bias.grad[1:].isfinite().all()
    assert layer.edge_gain.grad[1:].isfinite().all()


def test_it_is_saved_and_loaded_with_the_layer():
    one, other = randomized(MAKERS["same"][1]()), MAKERS["same"][1]()
    assert {"edge_gain", "edge_bias"} <= set(one.state_dict())
    other.load_state_dict(one.state_dict())
    x = images(one, 1, (6, 5))
    assert torch.equal(one(x), other(x))


def test_the_operators_are_what_pytorch_asks_of_operators():
    layer = randomized(MAKERS["stride"][1]())
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


def test_it_is_compiled_without_a_break_of_the_graph():
    layer = randomized(MAKERS["same"][1]())
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = images(layer, 2, (6, 5))
    compiled(x).sum().backward()
    found = layer.edge_gain.grad.clone()
    layer.zero_grad()
    layer(x).sum().backward()
    assert torch.equal(compiled(x), layer(x)) and torch.equal(found, layer.edge_gain.grad)


def test_what_onnx_exporters_are_given_is_of_standard_operators(monkeypatch):
    layer = randomized(MAKERS["same"][1]())
    x = images(layer, 1, (6, 5))
    close(layer._of_standard_operators(x).detach(), layer(x).detach())


def test_other_images_and_what_dense_layers_lack_are_refused():
    layer = MAKERS["same"][1]().eval()
    with refused(ValueError, "images of 5x5", "for images of 6x5"):
        layer(images(layer, 1, (5, 5)))
    with refused(ValueError, "edge bias, which dense layers do not have"):
        layer.to_dense()
    with refused(ValueError, "a convolution with an edge bias"):
        fuse_conv_bn(layer, torch.nn.BatchNorm2d(32).eval())
    with refused(ValueError, "edge_bias=0"):
        LAYERS[2](48, 32, 3, layout=LAYOUT, block=16, edge_bias=0)
    with refused(ValueError, "a tap_mask for each block", "a mask for all blocks would work"):
        LAYERS[2](48, 32, 3, layout=LAYOUT, block=16, edge_bias=6, tap_mask=torch.arange(27).reshape(3, 3, 3) % 2)
    operands = (layer.weight_values, layer.edge_gain[:5], layer.edge_bias, layer.crow_indices, layer.col_indices)
    with refused(ValueError, "edge_gain has the shape", "9 edge situations", r"takes \[9, 32\]"):
        torch.ops.sparsekiln.convolution_edge_bias(torch.zeros(1, 6, 5, 48), *operands, 32, layer._form.as_list(), "")
