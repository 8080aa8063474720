"""BlockSparseConv1d, 2d and 3d against the dense convolutions of PyTorch."""

import copy
import io
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_convolution import (  # noqa: E402
    LAYERS, check, close, dense_weight, images, pairwise, poison_beyond, refused,
)  # fmt: skip

import sparsekiln  # noqa: E402
from sparsekiln.torch import (  # noqa: E402
    BlockSparseConv1d, BlockSparseConv2d, BlockSparseConv3d, fuse_conv_bn, kernels,
)  # fmt: skip
from sparsekiln.torch.convolution import products as convolution_products  # noqa: E402

CASES = pairwise(
    {
        "dimensions": (1, 2, 3), "kernel": (1, 2, 3, 4, 5), "stride": (1, 2, 3), "dilation": (1, 2),
        "padding": (0, 1, 2, "same"), "block": (8, 16, 32), "dtype": ("float32", "bfloat16"), "channels_last": (False, True),
        "bias": (True, False), "groups": (1, 2),
    },
    lambda case: (case["padding"] != "same" or case["stride"] == 1) and (case["dimensions"] < 3 or case["kernel"] < 5),
)  # fmt: skip


def make_layer(dimensions=2, kernel=3, in_blocks=3, out_blocks=2, block=16, seed=0, density=0.5, **options):
    torch.manual_seed(seed)
    return LAYERS[dimensions](in_blocks * block, out_blocks * block, kernel, density=density, block=block, **options)


# ---- values and gradients ----


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_values_and_gradients(case):
    layer = make_layer(
        case["dimensions"], case["kernel"], 4, 2, case["block"], stride=case["stride"], dilation=case["dilation"],
        padding=case["padding"], bias=case["bias"], groups=case["groups"], dtype=getattr(torch, case["dtype"]),
    )  # fmt: skip
    reach = case["dilation"] * (case["kernel"] - 1)
    extents = tuple(reach + more for more in (6, 4, 3))[: case["dimensions"]]
    check(layer, images(layer, 3, extents, case["channels_last"]))


@pytest.mark.parametrize(
    "options, extents",
    [
        ({"kernel": (3, 1), "padding": (1, 0), "stride": (2, 1)}, (7, 9)),
        ({"kernel": (1, 4), "padding": "same", "dilation": (1, 2)}, (5, 8)),
        ({"kernel": (2, 3), "padding": (3, 0), "dilation": (2, 1)}, (4, 6)),
        ({"kernel": 3, "padding": "valid"}, (3, 3)),
        ({"kernel": 1, "stride": 2}, (5, 6)),
        ({"kernel": 1, "padding": 1}, (3, 3)),
    ],
)
def test_geometries_that_differ_between_the_dimensions(options, extents):
    layer = make_layer(**options)
    check(layer, images(layer, 2, extents))


def test_blocks_that_are_not_square():
    torch.manual_seed(0)
    layer = BlockSparseConv2d(64, 48, 3, padding=1, layout=[[1, 0], [0, 1], [1, 1]], block=(16, 32))
    check(layer, images(layer, 2, (6, 5)))


def test_images_of_three_channels_and_classes_of_ten_of_a_dense_layer():
    torch.manual_seed(0)
    for dense in (torch.nn.Conv2d(3, 64, 7, 2, 3), torch.nn.Conv2d(64, 10, 1), torch.nn.Conv1d(20, 37, 3)):
        layer = {1: BlockSparseConv1d, 2: BlockSparseConv2d}[len(dense.kernel_size)].from_conv(dense, 1, 16)
        assert torch.equal(layer.dense_weight(), dense.weight) and torch.equal(layer.to_dense().weight, dense.weight)
        assert not torch.isnan(layer.weight_values).any()
        x = images(layer, 2, (12, 11)[: layer.dimensions])
        close(layer(x), dense(x))
        poison_beyond(layer)
        check(layer, x)
        assert torch.equal(layer.to_dense().weight, dense.weight)


def test_one_layer_takes_images_of_several_sizes_and_numbers():
    layer = make_layer(padding=1)
    for n, extents in ((1, (5, 6)), (4, (5, 6)), (9, (5, 6)), (2, (8, 3))):
        check(layer, images(layer, n, extents))


@pytest.mark.parametrize("options", [{"stride": 2, "padding": 1}, {"padding": "same", "dilation": 2}, {"kernel": 1}])
def test_one_kernel_serves_all_sizes_up_to_the_largest(options, monkeypatch):
    layer = make_layer(**options, max_input=(13, 11))
    compiled = []
    compile_kernel = kernels.compile_kernel
    monkeypatch.setattr(kernels, "compile_kernel", lambda *args: compiled.append(args[1]) or compile_kernel(*args))
    for extents in ((13, 11), (5, 11), (7, 5), (6, 6)):
        check(layer, images(layer, 2, extents))
    if "kernel" not in options:  # that of one tap is a linear layer
        assert sorted(use.operation for use in compiled) == ["forward", "grad_input", "grad_weight"]
    with refused(ValueError, "images of 14x11; max_input of this layer is 13x11"):
        layer(images(layer, 1, (14, 11)))
    assert "max_input=(13, 11)" in repr(layer)
    layer.max_input = None
    check(layer, images(layer, 1, (20, 20)))
    layer.max_input = 21
    assert layer.max_input == (21, 21)


def test_a_largest_input_must_have_an_output_and_goes_without_an_edge_bias():
    for options, words in (
        ({"max_input": 2}, "an input of 2x2"),
        ({"max_input": 8, "edge_bias": 8}, "max_input and an edge bias"),
        ({"max_input": (1, 2, 3)}, "max_input"),
    ):
        with refused(ValueError, words):
            make_layer(**options)


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_that_are_not_aligned_have_any_size_up_to_the_largest(channels_last):
    layer = make_layer(padding=1, max_input=(9, 8))
    for extents in ((9, 8), (5, 6), (1, 3)):
        shape = (2, *extents, 48) if channels_last else (2, 48, *extents)
        x = torch.randn(2 * 48 * extents[0] * extents[1] + 1)[1:].view(shape)
        assert x.data_ptr() % 16 == 4
        check(layer, x.movedim(-1, 1) if channels_last else x)


def copied(layer):
    return copy.deepcopy(layer)


def pickled(layer):
    return pickle.loads(pickle.dumps(layer))


def folded(layer):
    return fuse_conv_bn(layer.eval(), torch.nn.BatchNorm2d(layer.out_channels).eval())


@pytest.mark.parametrize("made", [copied, pickled, folded])
def test_the_largest_input_stays_with_what_is_made_of_a_layer(made):
    other = made(make_layer(seed=7, in_blocks=5, padding=1, max_input=(9, 8)))  # of a layout that no other test has
    assert other.max_input == (9, 8)
    for extents in ((9, 8), (5, 6)):
        check(other, images(other, 2, extents))
    (text,) = {kernel.computation["convolution"] for kernel in other._kernels.kernels()}
    assert "input=up-to:9x8" in text


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_of_the_weight_is_summed_over_launches_of_some_images(dtype, monkeypatch):
    layer = make_layer(padding=1, dtype=dtype)
    sizes, run = [], convolution_products.run
    monkeypatch.setattr(convolution_products, "MOST_WORKSPACE", 3 * 4 * (7 * 8 * 48 + 5 * 6 * 32))
    monkeypatch.setattr(convolution_products, "run", lambda kernel, n, *others, **named: sizes.append(n) or run(kernel, n, *others, **named))
    check(layer, images(layer, 5, (5, 6)))
    assert sizes == [5, 5, 2, 2, 1]


def test_a_layout_keeps_the_kernels_of_the_last_sizes(monkeypatch):
    monkeypatch.setattr(kernels, "MOST_CONVOLUTIONS", 4)
    layer = BlockSparseConv1d(16, 16, 3, layout=[[1]], block=16)
    made = []
    for length in (*range(5, 12), 5):
        with torch.no_grad():  # kernels of gradients would begin to be compiled
            layer(images(layer, 1, (length,)))
        made.append(len(layer._kernels.kernels()))
    assert made == [1, 2, 3, 4, 4, 4, 4, 4]
    last = [kernel.computation["convolution"].split("input=")[1] for kernel in layer._kernels.kernels()]
    assert last == ["9", "10", "11", "5"]


def test_a_kernel_of_one_tap_takes_images_that_were_not_seen_before():
    layer = make_layer(kernel=1)
    for extents in ((4, 4), (5, 3)):
        check(layer, images(layer, 2, extents))


# ---- memory formats and shapes ----


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("kernel", [1, 3])
def test_the_memory_format_is_that_of_the_input(dimensions, kernel):
    layer = make_layer(dimensions, kernel)
    last = {2: torch.channels_last, 3: torch.channels_last_3d}[dimensions]
    x = images(layer, 2, (5, 6, 4)[:dimensions])
    contiguous, channels_last = layer(x), layer(x.to(memory_format=last))
    assert contiguous.is_contiguous() and not channels_last.is_contiguous()
    assert channels_last.is_contiguous(memory_format=last)
    assert torch.equal(contiguous, channels_last)


@pytest.mark.parametrize("form, order", [("contiguous", "feature-major"), ("channels_last", "batch-major")])
def test_kernels_read_images_of_both_formats_in_place(form, order):
    layer = make_layer(stride=2, seed=len(form))
    x = images(layer, 2, (5, 6), form == "channels_last")
    y = layer(x.requires_grad_())
    (y * y).sum().backward()
    assert {kernel.computation["order"] for kernel in layer._kernels.kernels()} == {order}
    assert len(layer._kernels.kernels()) == 3


def test_images_that_kernels_do_not_read_channels_first_are_converted():
    for layer in (make_layer(edge_bias=(5, 6), bias=False, seed=71), make_layer(dtype=torch.float64, seed=72)):
        y = layer(images(layer, 2, (5, 6)))
        assert y.is_contiguous()
        assert {kernel.computation["order"] for kernel in layer._kernels.kernels()} == {"batch-major"}


def test_slices_of_images():
    layer = make_layer()
    x = images(layer, 4, (8, 9), channels_last=True)
    check(layer, x[::2, :, 1:7, ::2])
    wide = torch.randn(2, 96, 6, 6)
    check(layer, wide[:, 16:64])
    check(layer, wide.to(memory_format=torch.channels_last)[:, 17:65])


def test_a_model_that_is_made_channels_last_keeps_its_blocks():
    layer = make_layer().to(memory_format=torch.channels_last)
    assert layer.weight_values.is_contiguous()
    check(layer, images(layer, 2, (5, 6), channels_last=True))


# ---- from and to dense ----


def test_a_layout_chooses_the_blocks_of_a_dense_layer():
    dense = torch.nn.Conv2d(32, 32, 3, bias=False).eval().requires_grad_(False)
    layer = BlockSparseConv2d.from_conv(dense, layout=[[0, 1], [1, 0]], block=16)
    assert layer.bias is None and not layer.training and not layer.weight_values.requires_grad
    mask = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).repeat_interleave(16, 0).repeat_interleave(16, 1)
    assert torch.equal(layer.to_dense().weight, dense.weight * mask[:, :, None, None])
    assert torch.equal(layer.dense_weight(), dense_weight(layer))


def test_a_layout_keeps_its_blocks_within_groups():
    layer = BlockSparseConv2d(64, 64, 3, groups=2, layout=np.ones((4, 4), int), block=16)
    assert np.array_equal(layer.layout.mask(), np.kron(np.eye(2, dtype=bool), np.ones((2, 2), bool)))


def test_a_density_draws_as_many_blocks_for_each_row():
    torch.manual_seed(0)
    one, other = (BlockSparseConv2d(256, 256, 3, density=0.25, block=16).layout for _ in range(2))
    assert one.density == 0.25 and one != other
    assert set(np.diff(one.crow)) == {4}
    torch.manual_seed(0)
    assert BlockSparseConv2d(256, 256, 3, density=0.25, block=16).layout == one


def test_weights_start_uniform_within_the_fan_in_of_their_row():
    torch.manual_seed(0)
    layer = BlockSparseConv2d(64, 32, 3, layout=[[1, 1], [0, 0]], block=(16, 32))
    assert 0.95 / 24 < layer.weight_values.abs().max() <= 1 / 24
    assert layer.bias[:16].abs().max() <= 1 / 24 and not layer.bias[16:].any()


def test_sizes_are_whole_numbers_of_any_type():
    layer = make_layer(kernel=np.int64(3), stride=[np.int32(2), 1], padding=torch.tensor(1))
    assert (layer.kernel_size, layer.stride, layer.padding) == ((3, 3), (2, 1), (1, 1))
    check(layer, images(layer, 2, (5, 6)))


def test_it_says_what_it_is():
    layer = BlockSparseConv2d(64, 32, 3, padding=1, layout=[[1, 0]], bias=False)
    assert repr(layer) == (
        "BlockSparseConv2d(64, 32, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), block=32, blocks=1, density=0.5, bias=False)"
    )


# ---- copies and saved state ----


def same_layer(one, other):
    x = images(one, 2, (5, 6))
    assert one.layout == other.layout and torch.equal(one(x), other(x))


@pytest.mark.parametrize("density", [0.5, 0.9])
@pytest.mark.parametrize("assign", [False, True])
def test_a_state_brings_its_layout_along(density, assign):
    layer, other, file = make_layer(), make_layer(seed=1, density=density), io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    state = torch.load(file)
    assert set(state) == {"weight_values", "bias", "crow_indices", "col_indices"}
    other(images(other, 1, (5, 5))).sum().backward()
    other.load_state_dict(state, assign=assign)
    same_layer(layer, other)
    other.zero_grad()
    check(other, images(other, 2, (5, 5)))


def test_a_state_of_other_groups_is_refused():
    layer = make_layer(in_blocks=2, out_blocks=2, groups=2, density=1)
    with refused(RuntimeError, "different groups"):
        layer.load_state_dict(make_layer(in_blocks=2, out_blocks=2, density=1).state_dict())


@pytest.mark.parametrize("names", [("crow_indices",), ("weight_values",), ("crow_indices", "col_indices")])
def test_a_state_without_some_of_its_three_tensors_is_refused(names):
    layer, state = make_layer(), make_layer(seed=1).state_dict()
    for name in names:
        del state[name]
    with refused(RuntimeError, "alone; the three go together"):
        layer.load_state_dict(state, strict=False)
    check(layer, images(layer, 2, (5, 5)))


def test_a_state_without_the_layer_leaves_it_alone():
    layer = make_layer()
    model = torch.nn.ModuleDict({"layer": layer})
    before = layer.weight_values.detach().clone()
    assert len(model.load_state_dict({}, strict=False).missing_keys) == 4
    assert torch.equal(layer.weight_values, before)


def test_a_state_of_another_kernel_is_refused_before_anything_has_changed():
    layer = make_layer()
    before, layout = layer.weight_values.detach().clone(), layer.layout
    with refused(RuntimeError, "shape \\(5, 25, 16, 16\\)", "16x16 with 9 taps"):
        layer.load_state_dict(make_layer(kernel=5, seed=1, density=0.9).state_dict())
    assert layer.layout == layout and torch.equal(layer.weight_values, before)


def test_a_parametrized_layer_keeps_its_layout():
    layer, other = make_layer(), make_layer(density=0.9)
    for one in (layer, other):
        torch.nn.utils.parametrizations.weight_norm(one, "weight_values")
    state = copy.deepcopy(layer.state_dict())
    layer.load_state_dict(state)
    with refused(RuntimeError, "weight_values", "parametrization"):
        layer.load_state_dict(other.state_dict())


@pytest.mark.parametrize("kernel", [1, 3])
def test_index_tensors_of_another_layout_are_refused(kernel):
    layer = BlockSparseConv2d(32, 32, kernel, layout=[[1, 0], [0, 1]], block=16)
    x = images(layer, 1, (5, 5))
    layer(x)
    layer.col_indices.copy_(torch.tensor([1, 0]))
    with refused(ValueError, "changed outside of it; use BlockSparseConv2d.relayout"):
        layer(x)
    layer.reset_parameters()
    check(layer, x)


def test_a_layer_on_the_meta_device_is_filled_later():
    layer = make_layer(device="meta").to_empty(device="cpu")
    layer.reset_parameters()
    check(layer, images(layer, 2, (5, 5)))


# ---- other layouts ----


def test_more_blocks_than_there_is_room_for_are_refused():
    layer = BlockSparseConv2d(32, 32, 3, layout=[[1, 0], [1, 1]], block=16, max_blocks=3)
    with refused(ValueError, "4 blocks", "max_blocks=3"):
        layer.relayout([[1, 1], [1, 1]])
    assert "max_blocks=3" in repr(layer)


def test_a_relayout_stays_within_groups():
    layer = BlockSparseConv2d(32, 32, 3, groups=2, layout=[[1, 0], [0, 1]], block=16)
    layer.relayout([[1, 1], [0, 0]])
    assert layer.layout == sparsekiln.Layout([[1, 0], [0, 0]])


def test_tools_of_the_weight_are_told_where_it_is():
    layer = make_layer()
    assert torch.equal(layer.weight, layer.dense_weight())
    with refused(TypeError, "'weight' of a BlockSparseConv2d", "weight_values"):
        torch.nn.utils.parametrizations.weight_norm(layer, "weight")


# ---- what PyTorch does with layers ----


def test_a_graph_of_any_sizes_has_one_kernel_of_each_operation_with_a_largest_input():
    torch._dynamo.reset()
    layer, graphs = make_layer(padding=1, max_input=(9, 8), seed=17), []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    for extents in ((9, 8), (5, 6), (4, 7)):
        x, y = (images(layer, 2, extents).requires_grad_() for _ in range(2))
        found, wanted = compiled(x), layer(y)
        found.square().sum().backward()
        wanted.square().sum().backward()
        assert torch.equal(found, wanted) and torch.equal(x.grad, y.grad)
    assert len(graphs) == 1 and len(layer._kernels.kernels()) == 3


@pytest.mark.parametrize("kernel", [1, 3])
def test_layers_of_different_numbers_of_blocks_share_a_compiled_graph(kernel, no_layer_seen):
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    for seed, density in enumerate((0.2, 0.4, 0.4, 0.6, 0.8)):
        layer = make_layer(kernel=kernel, in_blocks=5, seed=seed, density=density)
        x = images(layer, 2, (5, 6))
        y = layer(x)
        layer.compile(fullgraph=True, backend=backend)
        assert torch.equal(layer(x), y)
    assert len(graphs) == 2  # one for the number of blocks of the first, and one for all


def test_what_onnx_exporters_are_given_is_of_standard_operators(monkeypatch):
    layer = make_layer(padding="same", kernel=2)
    x = images(layer, 2, (5, 6))
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    program = torch.export.export(layer, (x,))
    assert "sparsekiln" not in str(program.graph)
    close(program.module()(x), layer(x))


def test_the_core_takes_convolutions():
    kernel = sparsekiln.compile([[1, 0], [1, 1]], 8, 2, convolution="kernel=3 input=5", target="cpu")
    assert kernel.computation["convolution"] == "kernel=3 input=5"
    x, w = np.random.randn(2, 5, 16).astype(np.float32), np.random.randn(3, 3, 8, 8).astype(np.float32)
    y = kernel(x, w)
    windows = np.stack([x[:, tap : tap + 3] for tap in range(3)])  # [tap, n, position, channel]
    first = np.einsum("tnpc,tkc->npk", windows[..., :8], w[0])
    second = np.einsum("tnpc,tkc->npk", windows[..., :8], w[1]) + np.einsum("tnpc,tkc->npk", windows[..., 8:], w[2])
    np.testing.assert_allclose(y, np.concatenate([first, second], -1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(kernel(x.reshape(10, 16), w), y.reshape(6, 16))
    np.testing.assert_array_equal(kernel(x, w.reshape(9, 8, 8)), y)


def test_the_core_makes_gradients_of_convolutions():
    options = {"batch": 2, "convolution": "kernel=3x2 stride=2 input=7x4", "target": "cpu"}
    dy = np.ones((2, 3, 2, 8), np.float32)
    assert sparsekiln.compile([[1]], 8, op="grad_input", **options)(dy, np.ones((1, 6, 8, 8), np.float32)).shape == (2, 7, 4, 8)
    assert sparsekiln.compile([[1]], 8, op="grad_weight", **options)(np.ones((2, 7, 4, 8), np.float32), dy).shape == (1, 6, 8, 8)
    with refused(ValueError, "dy: 11 rows", "images of 6 positions"):
        sparsekiln.compile([[1]], 8, op="grad_input", **options)(dy.reshape(12, 8)[:11], np.ones((1, 6, 8, 8), np.float32))


# ---- refusals ----


@pytest.mark.parametrize(
    "options, words",
    [
        ({"in_channels": 0}, ("32 output and 0 input channels", "multiples")),
        ({"in_channels": 40, "groups": 2}, ("2 groups has 20 input channels", "fewer groups")),
        ({"groups": 3}, ("32 output and 48 input channels in 3 groups", "multiples")),
        ({"in_channels": 32, "groups": 32}, ("32 groups", "1 output channels", "smaller blocks")),
        ({"kernel_size": 0}, ("kernel_size=0", "1 or more")),
        ({"kernel_size": (3, 3, 3)}, ("kernel_size=\\(3, 3, 3\\)", "a tuple of 2")),
        ({"stride": -1}, ("stride=-1", "1 or more")),
        ({"padding": -1}, ("padding=-1", "0 or more")),
        ({"padding": "full"}, ("'full'", "'same' and 'valid'")),
        ({"padding": "same", "stride": 2}, ("'same'", "stride of 2x2")),
        ({"padding_mode": "reflect"}, ("'reflect'", "'zeros'", "pad")),
        ({"layout": [[1]]}, ("1 × 1", "48 input", "2 × 3")),
        ({"density": 0}, ("density of 0", "above 0")),
        ({"block": 24}, ("blocks of 24",)),
    ],
)
def test_layers_that_cannot_be(options, words):
    with refused(ValueError, *words):
        BlockSparseConv2d(**({"in_channels": 48, "out_channels": 32, "kernel_size": 3, "block": 16} | options))


def test_an_input_that_is_smaller_than_the_kernel():
    with refused(ValueError, "an input of 2x9", "kernel of 3x3"):
        make_layer()(torch.zeros(1, 48, 2, 9))
