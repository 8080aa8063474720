"""BlockSparseConvTranspose1d, 2d and 3d against the dense transposed convolutions of PyTorch."""


import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_convolution import (  # noqa: E402
    LAYERS, TRANSPOSED, check, close, dense_weight, images, pairwise, refused,
)  # fmt: skip

from sparsekiln.torch import BlockSparseConvTranspose1d, BlockSparseConvTranspose2d  # noqa: E402

EXTENTS = (5, 4, 3)


def possible(case):
    reach = case["dilation"] * (case["kernel"] - 1) + 1 + case["output_padding"] - 2 * case["padding"]
    outputs = [(size - 1) * case["stride"] + reach for size in EXTENTS[: case["dimensions"]]]
    return case["output_padding"] < max(case["stride"], case["dilation"]) and min(outputs) > 0 and (case["dimensions"] < 3 or case["kernel"] < 5)


CASES = pairwise(
    {
        "dimensions": (1, 2, 3), "kernel": (1, 2, 3, 4, 5), "stride": (1, 2, 3), "dilation": (1, 2), "padding": (0, 1, 2),
        "output_padding": (0, 1, 2), "block": (8, 16, (16, 8)), "dtype": ("float32", "bfloat16", "float16"),
        "channels_last": (False, True), "bias": (True, False), "groups": (1, 2),
    },
    possible,
)  # fmt: skip


def make_layer(dimensions=2, kernel=3, in_channels=48, out_channels=32, block=16, seed=0, density=0.5, **options):
    torch.manual_seed(seed)
    return TRANSPOSED[dimensions](in_channels, out_channels, kernel, density=density, block=block, **options)


# ---- values and gradients ----


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_values_and_gradients(case):
    layer = make_layer(
        case["dimensions"], case["kernel"], 64, 32, case["block"], stride=case["stride"], dilation=case["dilation"],
        padding=case["padding"], output_padding=case["output_padding"], bias=case["bias"], groups=case["groups"],
        dtype=getattr(torch, case["dtype"]),
    )  # fmt: skip
    check(layer, images(layer, 3, EXTENTS[: case["dimensions"]], case["channels_last"]))


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": (3, 1), "padding": (1, 0), "stride": (2, 1), "output_padding": (1, 0)},
        {"kernel": (1, 4), "dilation": (1, 2), "stride": (3, 2), "output_padding": (2, 1)},
        {"kernel": (2, 3), "padding": (3, 0), "dilation": (2, 1)},
        {"kernel": 2, "dilation": 3, "output_padding": (2, 1)},  # more than the stride: past the last window
        {"kernel": 1, "stride": 2},
        {"kernel": 1, "padding": 1},
    ],
)
def test_geometries_that_differ_between_the_dimensions(options):
    layer = make_layer(**options)
    check(layer, images(layer, 2, (6, 5)))


def test_it_is_the_gradient_of_the_convolution_of_the_same_weight():
    layer = make_layer(stride=2, padding=1, bias=False)
    conv = LAYERS[2](32, 48, 3, 2, 1, layout=layer.layout, bias=False, block=16)
    conv.load_state_dict(layer.state_dict())
    x, dy = images(conv, 2, (7, 9)).requires_grad_(), images(layer, 2, (4, 5))
    conv(x).backward(dy)
    assert torch.equal(layer(dy), x.grad)


@pytest.mark.parametrize("options", [{"kernel": 1, "stride": 3}, {"kernel": 2, "stride": 3, "output_padding": 2}])
def test_outputs_that_no_input_reaches_are_the_bias(options):
    layer = make_layer(**options)
    y = layer(images(layer, 2, (3, 4)))
    for offset in range(options["kernel"], 3):
        for part in (y[:, :, offset::3], y[:, :, :, offset::3]):
            assert part.numel() and torch.equal(part, layer.bias[:, None, None].expand_as(part))


def test_the_blocks_of_a_dense_layer_with_partial_ones():
    torch.manual_seed(0)
    dense = torch.nn.ConvTranspose2d(20, 3, 4, 2, 1)
    layer = BlockSparseConvTranspose2d.from_conv(dense, 1, 16)
    assert torch.equal(layer.dense_weight(), dense.weight) and torch.equal(layer.to_dense().weight, dense.weight)
    x = images(layer, 2, (6, 5))
    close(layer(x), dense(x))


@pytest.mark.parametrize("size", [(9, 11), (10, 12), (9, 12)])
def test_an_output_size_chooses_the_output_padding(size):
    layer = make_layer(stride=2, padding=1, output_padding=1)
    x = images(layer, 2, (5, 6))
    check(layer, x, output_size=size)
    y = layer(x, size)
    assert y.shape[2:] == size
    assert torch.equal(layer(x, y.size()), y) and torch.equal(layer(x[0], y[0].size()), y[0])
    assert torch.equal(layer.to_dense()(x, list(size)).isfinite(), y.isfinite())


def test_gradcheck_in_float64_where_it_is_a_linear_layer():
    layer = make_layer(kernel=1, in_channels=16, out_channels=16, block=8, dtype=torch.float64)
    x = images(layer, 1, (2, 2)).requires_grad_()
    values, bias = (one.detach().clone().requires_grad_() for one in (layer.weight_values, layer.bias))

    def of(x, values, bias):
        return torch.func.functional_call(layer, {"weight_values": values, "bias": bias}, (x,))

    assert torch.autograd.gradcheck(of, (x, values, bias)) and torch.autograd.gradgradcheck(of, (x, values, bias))


def test_a_frozen_weight_keeps_no_input():
    layer = make_layer()
    layer.weight_values.requires_grad_(False)
    x = images(layer, 2, (5, 4)).requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        y = layer(x)
    assert [one.shape for one in saved if one.is_floating_point()] == [layer.weight_values.shape]
    y.sum().backward()
    close(x.grad, torch.autograd.grad(layer.to_dense()(x).sum(), x)[0])


# ---- from and to dense ----


def test_it_says_what_it_is():
    layer = BlockSparseConvTranspose1d(64, 32, 3, 2, output_padding=1, layout=[[1], [0]])
    assert repr(layer) == (
        "BlockSparseConvTranspose1d(64, 32, kernel_size=(3,), stride=(2,), output_padding=(1,), block=32, blocks=1, density=0.5)"
    )


# ---- what PyTorch does with layers ----


def test_compiled_and_exported_code_takes_other_sizes():
    layer, sizes = make_layer(stride=2, padding=1, output_padding=1), torch.export.Dim
    shapes = {"x": {0: sizes("n", max=64), 2: sizes("h", min=2, max=64), 3: sizes("w", min=2, max=64)}}
    program = torch.export.export(layer, (images(layer, 2, (6, 5)),), dynamic_shapes=shapes).module()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for extents in ((5, 6), (3, 9)):
        x = images(layer, 3, extents)
        assert torch.equal(program(x), layer(x)) and torch.equal(compiled(x), layer(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kernel", [1, 3])
def test_traces_of_torch_jit(kernel):
    layer = make_layer(kernel=kernel, stride=kernel)
    trace, x = torch.jit.trace(layer, (images(layer, 2, (6, 5)),)), images(layer, 3, (6, 5))
    assert torch.equal(trace(x), layer(x))


@pytest.mark.parametrize("size", [None, [11, 14]])
def test_what_onnx_exporters_are_given_is_of_standard_operators(monkeypatch, size):
    layer = make_layer(stride=2, dilation=1)
    x = images(layer, 2, (5, 6))
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    program = torch.export.export(layer, (x, size))
    assert "sparsekiln" not in str(program.graph)
    monkeypatch.undo()
    close(program.module()(x, size), layer(x, size))


# ---- refusals ----


@pytest.mark.parametrize(
    "options, words",
    [
        ({"in_channels": 40, "groups": 2}, ("2 groups has 20 input channels", "fewer groups")),
        ({"in_channels": 64, "block": (16, 64), "groups": 2}, ("2 groups has 16 output channels", "smaller blocks")),
        ({"groups": 3}, ("48 input and 32 output channels in 3 groups", "multiples")),
        ({"padding": "same"}, ("padding of 'same'", "numbers")),
        ({"output_padding": 1}, ("output_padding of 1x1", "stride of 1x1 and a dilation of 1x1", "smaller")),
        ({"output_padding": -1}, ("output_padding=-1", "0 or more")),
        ({"padding_mode": "reflect"}, ("'reflect'", "'zeros'")),
        ({"layout": [[1]]}, ("1 × 1", "48 input and 32 output", "3 × 2")),
    ],
)
def test_layers_that_cannot_be(options, words):
    with refused(ValueError, *words):
        BlockSparseConvTranspose2d(**({"in_channels": 48, "out_channels": 32, "kernel_size": 3, "block": 16} | options))


@pytest.mark.parametrize("size", [(10, 13), (12, 15), (13, 14), (11, 12)])
def test_an_output_size_that_no_output_padding_gives(size):
    with refused(ValueError, f"output_size of {size[0]}x{size[1]}", "from 11x13 to 12x14"):
        make_layer(stride=2)(torch.zeros(1, 48, 5, 6), size)


def test_an_output_size_of_other_dimensions():
    with refused(ValueError, "output_size of 3 numbers", "2 of them, or 4"):
        make_layer(stride=2)(torch.zeros(1, 48, 5, 6), (32, 11, 13))


def test_an_output_without_elements():
    with refused(ValueError, "input of 2x5 gives an output of 0x3", "less padding"):
        make_layer(padding=2)(torch.zeros(1, 48, 2, 5))
