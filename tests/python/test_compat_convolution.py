"""Convolutions of the interface of 2017, on NumPy and PyTorch arrays, against dense float64."""

import copy
import pathlib
import pickle
import textwrap

import numpy as np
import pytest

from dense_blocksparse_conv import DIAGONAL, OVERLAPPING, PUBLISHED, Case, biased, biased_gradients
from dense_matmul import assert_near

import sparsekiln.compat.conv
from sparsekiln.compat import BlocksparseConv, BlocksparseDeconv
from sparsekiln.compat.conv import ConvEdgeBias, conv_edge_bias_init, cwise_linear, deconv_edge_bias_init

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the 2017 interface is tested with it")


def shuffled(seed, sizes, channels):
    """Blocks of channels in any order, which overlap, and between them have all."""
    random = np.random.default_rng(seed)
    blocks = [tuple(random.permutation(count)[:size] for count, size in zip(channels, pair)) for pair in sizes]
    rest = [np.setdiff1d(np.arange(count), np.concatenate([block[side] for block in blocks])) for side, count in enumerate(channels)]
    return [*blocks, tuple(one if len(one) else [0] for one in rest)]


RAGGED = shuffled(3, [(5, 40), (16, 3), (1, 9), (30, 30)], (37, 51))
MORE = {
    "ragged": Case(RAGGED, (1, 3, 2), (1, 5, 6), (1, 5, 7), (0, 1, 1)),
    "ragged deconvolution": Case(RAGGED, (1, 3, 2), (1, 3, 4), (1, 5, 8), (0, 1, 1), strides=(1, 2, 2), MPQ=(1, 5, 8), deconv=True),
    "ragged outputs": Case([(range(8), [3, 0]), (range(8, 24), [1, 2, 3])], (1, 1, 3), (1, 1, 9), (1, 1, 9), (0, 0, 1)),
    "ragged inputs": Case([([3, 0], range(8)), ([1, 2, 3], range(8, 24))], (1, 1, 3), (1, 1, 9), (1, 1, 9), (0, 0, 1)),
    "any order": Case([(range(8), [3, 0]), (range(8, 24), [1, 2])], (1, 1, 3), (1, 1, 9), (1, 1, 9), (0, 0, 1)),
    "the same lists again": Case(
        [([4, 0, 2], [5, 1]), ([2, 4, 0], [0, 2, 3, 4]), ([1, 3], [1, 5]), ([0, 2, 4], [1, 5]), ([1, 3], [4, 3, 2, 0])],
        (1, 1, 3), (1, 1, 9), (1, 1, 9), (0, 0, 1),
    ),
    "larger output": Case(DIAGONAL, (1, 1, 3), (1, 1, 8), (1, 1, 11), (0, 0, 1), MPQ=(1, 1, 11)),
    "input left over": Case(DIAGONAL, (1, 1, 3), (1, 1, 8), (1, 1, 3), (0, 0, 0), strides=(1, 1, 2), padding="VALID"),
    "paddings": Case(OVERLAPPING, (1, 3, 1), (1, 4, 5), (1, 6, 9), (0, 2, 2), padding=(0, 2, 2)),
    "dilated deconvolution": Case(
        OVERLAPPING, (1, 1, 3), (1, 1, 9), (1, 1, 9), (0, 0, 2), dilates=(1, 1, 2), MPQ=(1, 1, 9), deconv=True
    ),
}  # fmt: skip
EVERY = PUBLISHED | MORE
cases = pytest.mark.parametrize("name", EVERY)


def built(case, **more):
    return (BlocksparseDeconv if case.deconv else BlocksparseConv)(**case.arguments, **more)


@pytest.fixture(scope="module")
def convolutions():
    """One of each case, with its kernels."""
    return {name: built(case, edge_bias=True) for name, case in EVERY.items()}


@pytest.mark.parametrize("n", [1, 2, 28])
@cases
def test_the_three_operations_are_those_of_a_dense_convolution(convolutions, name, n):
    case, conv = EVERY[name], convolutions[name]
    filters = case.filters()
    F = conv.collapse_filter(filters)
    x, dy = case.images(n)
    assert (conv.i_shape(n), conv.o_shape(n)) == (list(x.shape), list(dy.shape))
    y, dx, dF = case.results(filters, x, dy)
    for got, wanted in ((conv(F, x), y), (conv.fprop(F, x), y), (conv.bprop(F, dy), dx), (conv.update(dy, x), dF)):
        assert got.dtype == np.float32
        assert_near(got, wanted, 2e-5)


@cases
def test_torch_differentiates_as_a_dense_convolution(convolutions, name):
    case, conv = EVERY[name], convolutions[name]
    filters = case.filters()
    x, dy = case.images(3)
    F = torch.from_numpy(conv.collapse_filter(filters).reshape(conv.f_shape())).requires_grad_()
    images = torch.from_numpy(x).requires_grad_()
    y = conv(F, images)
    y.backward(torch.from_numpy(dy))
    for got, wanted in zip((y.detach(), images.grad, F.grad.reshape(-1)), case.results(filters, x, dy)):
        assert got.is_contiguous()
        assert_near(got, wanted, 2e-5)


@cases
@pytest.mark.parametrize("with_gain", [False, True], ids=["without gain", "with gain"])
def test_filters_are_normalised_for_each_output(convolutions, name, with_gain):
    case, conv = EVERY[name], convolutions[name]
    filters = case.filters()
    F = conv.collapse_filter(filters)
    random = np.random.default_rng(4)
    U = random.uniform(-1, 1, F.size).astype(np.float32)
    gain = random.uniform(-1, 1, conv.normSize).astype(np.float32) if with_gain else None
    if with_gain and len({k for _, K in case.BCK for k in K}) < sum(len(K) for _, K in case.BCK):
        with pytest.raises(ValueError, match="a gain for blocks that overlap in output channels"):
            conv.l2_normalize(F, gain)
        return
    wanted, (dF, dgain) = case.normalised(filters, gain), case.normalised_gradients(filters, U, gain)
    assert_near(conv.l2_normalize(F, gain), wanted)
    got = conv.l2_normalize_grad(F, U, gain)
    assert_near(got[0], dF)
    leaves = [torch.from_numpy(one).requires_grad_() for one in (F, gain) if one is not None]
    normalised = conv.l2_normalize(*leaves)
    normalised.backward(torch.from_numpy(U))
    assert_near(normalised.detach(), wanted)
    assert_near(leaves[0].grad, dF)
    if with_gain:
        assert_near(got[1], dgain)
        assert_near(leaves[1].grad, dgain)
    else:
        assert got[1] is None


@cases
def test_an_edge_bias_is_of_the_outputs_that_meet_padding(convolutions, name):
    case, conv = EVERY[name], convolutions[name]
    edges = case.edges()
    assert conv.edgeBiasMap == edges
    assert conv.edge_bias_shape() == (case.K, len(edges))
    filters = case.filters()
    F = conv.collapse_filter(filters)
    x, dy = case.images(2)
    random = np.random.default_rng(5)
    g, b = (random.uniform(-1, 1, conv.edge_bias_shape()).astype(np.float32) for _ in range(2))
    y = case.results(filters, x, dy)[0]
    assert_near(conv(F, x, edge_bias=(g, b)), biased(y, edges, g, b), 2e-5)
    assert_near(conv(F, x, edge_bias=b), biased(y, edges, np.ones_like(g), b), 2e-5)
    y = y.astype(np.float32)
    wanted = biased_gradients(dy, y, edges, g)
    leaves = [torch.from_numpy(one).requires_grad_() for one in (y, g, b)]
    conv.edge_bias(leaves[0], leaves[2], leaves[1]).backward(torch.from_numpy(dy))
    for leaf, got, want in zip(leaves, conv.edge_bias_grad(dy, y, g), wanted):
        if edges or leaf is leaves[0]:
            assert_near(leaf.grad, want)
        assert_near(got, want)


@cases
@pytest.mark.parametrize("with_gain", [False, True], ids=["without gain", "with gain"])
def test_torch_differentiates_a_convolution_with_its_edge_bias(convolutions, name, with_gain):
    case, conv = EVERY[name], convolutions[name]
    edges, filters = case.edges(), case.filters()
    x, dy = case.images(2)
    random = np.random.default_rng(9)
    g, b = (random.uniform(-1, 1, conv.edge_bias_shape()).astype(np.float32) for _ in range(2))
    y = case.results(filters, x, dy)[0]
    dsums, dg, db = biased_gradients(dy, y, edges, g if with_gain else np.ones_like(g))
    dsums = dsums.astype(np.float32)
    arrays = (x, conv.collapse_filter(filters), b, *([g] if with_gain else []))
    leaves = [torch.from_numpy(one).requires_grad_() for one in arrays]
    got = conv(leaves[1], leaves[0], edge_bias=(leaves[3], leaves[2]) if with_gain else leaves[2])
    got.backward(torch.from_numpy(dy))
    assert_near(got.detach(), biased(y, edges, g if with_gain else np.ones_like(g), b), 2e-5)
    _, dx, dF = case.results(filters, x, dsums)
    for leaf, wanted in zip(leaves, (dx, dF, db, dg)):
        if edges or leaf is leaves[0] or leaf is leaves[1]:
            assert_near(leaf.grad, wanted, 2e-5)


@pytest.mark.parametrize(("name", "expected"), [("3x3", True), ("any order", True), ("ragged", False), ("1 tap", False)])
def test_an_edge_bias_is_an_epilogue_where_outputs_have_one_feature_each(name, expected):
    case = EVERY[name]
    conv = built(case, edge_bias=True)
    b = np.ones(conv.edge_bias_shape(), np.float32)
    conv(conv.collapse_filter(case.filters()), case.images(1)[0], edge_bias=b)
    (kernel,) = conv._kernels.values()
    assert (kernel.computation["epilogue"] == "edge_bias") == expected


def test_normalised_filters_of_zeros_are_zeros_with_finite_gradients():
    case = PUBLISHED["1 tap"]
    conv = built(case)
    F = np.zeros(conv.sizeF, np.float32)
    assert not conv.l2_normalize(F).any()
    leaf = torch.zeros(conv.sizeF, requires_grad=True)
    conv.l2_normalize(leaf, epsilon=0.25).backward(torch.ones(conv.sizeF))
    np.testing.assert_allclose(leaf.grad, 2)  # 1 / √epsilon
    small = np.full_like(F, 1e-3)  # whose squares are below epsilon, so that the length is a constant
    np.testing.assert_allclose(conv.l2_normalize_grad(small, np.ones_like(F), epsilon=0.25)[0], 2)


def test_normalised_filters_have_the_type_that_is_asked_for():
    case = PUBLISHED["1 tap"]
    conv = built(case)
    filters = case.filters()
    F = conv.collapse_filter(filters)
    halves = conv.l2_normalize(F.astype(np.float16), dtype=np.float16)
    assert halves.dtype == np.float16
    assert_near(halves, case.normalised(filters), 2e-3)
    assert conv.l2_normalize(torch.from_numpy(F), dtype=torch.bfloat16).dtype == torch.bfloat16
    assert conv.l2_normalize(torch.from_numpy(F).half()).dtype == torch.float32
    assert_near(conv.l2_normalize(F.astype(np.float64), dtype=np.float64), case.normalised(filters), 1e-12)


def test_shapes_are_those_of_the_original():
    conv = BlocksparseConv(DIAGONAL, (3, 5), (8, 10), strides=(2,))
    assert conv.f_shape() == [4, 48, 32, 3, 5] and conv.f_shape(1) == [48, 32, 3, 5]
    assert (conv.i_shape(7), conv.o_shape(7)) == ([7, 128, 1, 8, 10], [7, 192, 1, 8, 5])
    assert (conv.C, conv.K, conv.blocks, conv.trs, conv.sizeF, conv.normSize) == (128, 192, 4, 15, 4 * 48 * 32 * 15, 192)
    assert (conv.TRS, conv.DHW, conv.MPQ, conv.strides) == ([1, 3, 5], [1, 8, 10], [1, 8, 5], [1, 1, 2])
    assert conv.flops == 2 * conv.sizeF * 40 and not conv.overlapC and conv.edgeBiasDim == 0
    assert BlocksparseConv(OVERLAPPING, (3,), (9,)).overlapK
    ragged = built(MORE["ragged"])
    assert ragged.f_shape() == [ragged.sizeF] and ragged.f_shape(1) == [3, 16, 1, 3, 2] and not ragged.fixed_block_size
    deconv = BlocksparseDeconv(DIAGONAL, (3, 5), (8, 10), strides=(1, 2))
    assert deconv.f_shape() == [4, 32, 48, 3, 5]
    assert (deconv.i_shape(7), deconv.o_shape(7)) == ([7, 128, 1, 8, 10], [7, 192, 1, 8, 20])
    assert BlocksparseDeconv(DIAGONAL, (3,), (9,), dilates=(2,)).o_shape(1) == [1, 192, 1, 1, 7]  # the original's choice


def test_filters_are_collapsed_in_the_order_of_the_blocks():
    case = MORE["ragged"]
    conv, filters = built(case), case.filters()
    flat = conv.collapse_filter(filters, np.float16)
    assert flat.dtype == np.float16
    np.testing.assert_array_equal(flat, np.concatenate([one.reshape(-1) for one in filters]).astype(np.float16))
    with pytest.raises(ValueError, match=r"f_shape\(block\) says what each is"):
        conv.collapse_filter(filters[1:])


@pytest.mark.parametrize(
    ("BCK", "blocks", "layout_blocks"),
    [
        (DIAGONAL, (16, 32), 12),
        (OVERLAPPING, (16, 8), 8 * 4 - 7),
        ([(range(64), range(64, 128)), (range(64, 128), range(64))], (64, 64), 2),
        ([([*range(8, 16), *range(8)], range(40))], (8, 8), 10),
    ],
)
def test_aligned_runs_are_blocks_of_the_kernels(BCK, blocks, layout_blocks):
    """The activations are not copied into other channels, and pairs that two blocks have are computed once."""
    plan = BlocksparseConv(BCK, (3,), (9,))._plan
    assert (plan.output.block, plan.input.block) == blocks
    assert (plan.input.features, plan.output.features) == tuple(len(set().union(*lists)) for lists in zip(*BCK))
    assert plan.layout.blocks == layout_blocks


def test_lists_of_the_same_channels_share_their_copies():
    plan = built(MORE["the same lists again"])._plan
    assert (plan.input.features, plan.output.features, plan.layout.blocks) == (16, 16, 4)


@pytest.mark.parametrize("name", ["3x3", "ragged", "ragged deconvolution"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precisions_are_convolved(name, dtype):
    case = EVERY[name]
    conv = built(case)
    filters = [torch.from_numpy(one).to(dtype) for one in case.filters()]
    x, dy = (torch.from_numpy(one).to(dtype) for one in case.images(2))
    F = torch.cat([one.reshape(-1) for one in filters]).requires_grad_()
    leaf = x.clone().requires_grad_()
    y = conv(F, leaf)
    y.backward(dy)
    wanted = case.results([one.float().numpy() for one in filters], x.float().numpy(), dy.float().numpy())
    for got, want in zip((y.detach(), leaf.grad, F.grad), wanted):
        assert got.dtype == dtype
        assert_near(got.float(), want, 2e-2)
    if dtype == torch.float16:
        got = conv.fprop(F.detach().numpy(), x.numpy())
        assert got.dtype == np.float16
        assert_near(got, wanted[0], 1e-2)


def test_channels_last_tensors_stay_channels_last():
    case = PUBLISHED["3x3"]
    conv, filters = built(case), case.filters()
    x, dy = case.images(2)
    images = torch.from_numpy(x).to(memory_format=torch.channels_last_3d)
    y = conv(torch.from_numpy(conv.collapse_filter(filters)), images)
    assert y.is_contiguous(memory_format=torch.channels_last_3d)
    assert_near(y, case.results(filters, x, dy)[0], 2e-5)


def test_images_may_lack_dimensions_of_one_position():
    case = PUBLISHED["3x3"]
    conv, filters = built(case), case.filters()
    F = conv.collapse_filter(filters)
    x, dy = case.images(2)
    y, dx, dF = case.results(filters, x, dy)
    assert_near(conv(F, x[:, :, 0]), y[:, :, 0], 2e-5)
    assert_near(conv.bprop(F, dy[:, :, 0]), dx[:, :, 0], 2e-5)
    assert_near(conv.update(dy[:, :, 0], x[:, :, 0]), dF, 2e-5)
    with pytest.raises(ValueError, match=r"I is \[2, 128, 8\]; this convolution takes \[N, 128, 1, 8, 8\]"):
        conv(F, x[:, :, 0, 0])


def test_a_batch_may_be_empty():
    case = MORE["ragged"]
    conv = built(case)
    F = torch.from_numpy(conv.collapse_filter(case.filters())).requires_grad_()
    x = torch.zeros(conv.i_shape(0), requires_grad=True)
    y = conv(F, x)
    assert list(y.shape) == conv.o_shape(0)
    y.sum().backward()
    assert x.grad.shape == x.shape and not F.grad.any()


def test_many_images_take_several_launches(monkeypatch):
    case = MORE["ragged"]
    conv, filters = built(case), case.filters()
    monkeypatch.setattr(sparsekiln.compat.conv, "_MOST", 4)
    monkeypatch.setattr(sparsekiln.compat.conv, "_MOST_WORKSPACE", 1 << 16)
    F = conv.collapse_filter(filters)
    x, dy = case.images(11)
    assert conv._most_images("grad_weight", x) < conv._most_images("forward", x) == 4
    for got, wanted in zip((conv(F, x), conv.bprop(F, dy), conv.update(dy, x)), case.results(filters, x, dy)):
        assert got.dtype == np.float32
        assert_near(got, wanted, 2e-5)


def test_what_is_not_finite_reaches_only_the_channels_that_it_is_connected_with():
    case = MORE["ragged"]
    conv, filters = built(case), case.filters()
    F = conv.collapse_filter(filters)
    x, dy = case.images(1)
    for channel in (0, 20):
        reached = sorted({k for C, K in case.BCK if channel in C for k in K})
        spoilt = x.copy()
        spoilt[:, channel] = np.inf
        finite = np.isfinite(conv(F, spoilt)).all((0, 2, 3, 4))
        assert finite[[k for k in range(case.K) if k not in reached]].all() and not finite[reached].any()
    for channel in (0, 20):
        reached = sorted({c for C, K in case.BCK if channel in K for c in C})
        spoilt = dy.copy()
        spoilt[:, channel] = np.nan
        finite = np.isfinite(conv.bprop(F, spoilt)).all((0, 2, 3, 4))
        assert finite[[c for c in range(case.C) if c not in reached]].all() and not finite[reached].any()


@pytest.mark.parametrize("name", ["3x3", "ragged deconvolution"])
def test_copies_and_pickles_compute_the_same(name):
    case = EVERY[name]
    conv = built(case, edge_bias=True)
    F, (x, _) = conv.collapse_filter(case.filters()), case.images(1)
    for other in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert type(other) is type(conv) and other.edgeBiasDim == conv.edgeBiasDim > 0
        np.testing.assert_array_equal(other(F, x), conv(F, x))


def test_torch_compile_breaks_its_graph_there_and_goes_on():
    case = PUBLISHED["1 tap"]
    conv, filters = built(case), case.filters()
    F = torch.from_numpy(conv.collapse_filter(filters))
    x, dy = case.images(1)
    compiled = torch.compile(lambda x: conv(F, x * 2) + 1, backend="eager")
    assert_near(compiled(torch.from_numpy(x)), 2 * case.results(filters, x, dy)[0] + 1)


def test_the_example_of_the_document_runs():
    page = (pathlib.Path(__file__).resolve().parent.parent.parent / "docs/migration.md").read_text()
    _, _, after = page.partition("`cwise_linear`:\n\n")
    code = textwrap.dedent(after.partition("\n\n- ")[0])
    left = {}
    exec(compile(code, "docs/migration.md", "exec"), left)
    assert list(left["y"].shape) == [8, 128, 1, 14, 14] and left["x"].shape[1] == 80


# ---- edge bias of dense convolutions, and channel-wise linear ----

EDGE_CASES = {
    "same": Case([([0], [0, 1])], (1, 3, 3), (1, 5, 6), (1, 5, 6), (0, 1, 1)),
    "stride 2": Case([([0], [0, 1])], (1, 3, 3), (1, 6, 7), (1, 3, 4), (0, 0, 1), strides=(1, 2, 2)),
    "dilation 2": Case([([0], [0, 1])], (1, 3, 3), (1, 8, 8), (1, 8, 8), (0, 2, 2), dilates=(1, 2, 2)),
    "valid": Case([([0], [0, 1])], (1, 3, 3), (1, 5, 6), (1, 3, 4), (0, 0, 0), padding="VALID"),
    "transposed": Case([([0], [0, 1])], (1, 3, 3), (1, 3, 4), (1, 6, 7), (0, 0, 1), strides=(1, 2, 2), deconv=True),
}


@pytest.mark.parametrize("name", EDGE_CASES)
@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
def test_the_edge_bias_of_a_dense_convolution_is_of_the_taps_in_padding(name, data_format):
    case = EDGE_CASES[name]
    edges = case.edges()

    def placed(image):
        return np.moveaxis(image, 1, -1) if data_format == "NHWC" else image

    def two(numbers):
        return (1, *numbers[1:], 1) if data_format == "NHWC" else (1, 1, *numbers[1:])

    random = np.random.default_rng(6)
    x, y, dy = (random.uniform(-1, 1, (2, c, *extents[1:])).astype(np.float32)
                for c, extents in ((1, case.input), (2, case.output), (2, case.output)))  # fmt: skip
    init = deconv_edge_bias_init if case.deconv else conv_edge_bias_init
    w = np.empty((3, 3, 2, 1) if case.deconv else (3, 3, 1, 2))
    bias = init(placed(y), placed(x), w, two(case.strides), case.arguments["padding"], data_format, two(case.dilates))
    assert bias.edgeBiasMap == edges and bias.edgeBiasDim == len(edges)
    assert bias.shape == ((len(edges), 2) if data_format == "NHWC" else (2, len(edges)))
    g, b = (random.uniform(-1, 1, (2, len(edges))).astype(np.float32) for _ in range(2))
    wanted = placed(biased(y, edges, g, b))
    dwanted = biased_gradients(dy, y, edges, g)
    g_, b_ = (g.T, b.T) if data_format == "NHWC" else (g, b)
    assert_near(bias(placed(y), g_, b_), wanted)
    leaves = [torch.from_numpy(np.ascontiguousarray(one)).requires_grad_() for one in (placed(y), g_, b_)]
    got = bias(*leaves)
    got.backward(torch.from_numpy(np.ascontiguousarray(placed(dy))))
    assert_near(got.detach(), wanted)
    wanted = [placed(dwanted[0]), *(one.T if data_format == "NHWC" else one for one in dwanted[1:])]
    for leaf, of_numpy, want in zip(leaves, bias.grad(placed(dy), placed(y), g_), wanted):
        if edges or leaf is leaves[0]:
            assert_near(leaf.grad, want)
        assert_near(of_numpy, want)


def test_an_edge_bias_keeps_the_type_of_its_input():
    bias = ConvEdgeBias((2, 2, 5, 6), (2, 1, 5, 6), (3, 3, 1, 2), data_format="NCHW")
    y = torch.randn(2, 2, 5, 6, generator=torch.Generator().manual_seed(7)).bfloat16()
    g, b = torch.full(bias.shape, 0.5), torch.zeros(bias.shape)
    got = bias(y, g, b, inference=True, name="edges")
    assert got.dtype == torch.bfloat16
    inside = got[:, :, 1:-1, 1:-1]
    assert torch.equal(inside, y[:, :, 1:-1, 1:-1]) and torch.equal(got[:, :, 0], y[:, :, 0] / 2)


@pytest.mark.parametrize("first", [False, True])
def test_cwise_linear_has_a_number_for_each_channel(first):
    random = np.random.default_rng(8)
    x, a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 4, 5), 3, 3))
    a_, b_ = a.reshape(1, 3, 1, 1).astype(np.float64), b.reshape(1, 3, 1, 1).astype(np.float64)
    wanted = (x + b_) * a_ if first else x * a_ + b_
    assert_near(cwise_linear(x, a, b, bias_first=first), wanted)
    assert_near(cwise_linear(torch.from_numpy(x), torch.from_numpy(a), torch.from_numpy(b), relu=True, bias_first=first), wanted.clip(0))
    assert_near(cwise_linear(x, a), x * a_)
    assert_near(cwise_linear(x, bias=b), x + b_)


# ---- refusals ----


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"BCK": []}, "a pair of lists"),
        ({"BCK": [([0], [0], [0])]}, "a pair of lists"),
        ({"BCK": [([], [0])]}, "block 0 of BCK has .* as its input channels"),
        ({"BCK": [([0], [0.5])]}, "block 0 of BCK has .* as its output channels"),
        ({"BCK": [([0], [-1])]}, "channel numbers from 0 on"),
        ({"BCK": [([0, 1, 0], [0])]}, "block 0 of BCK has a number twice among its input channels"),
        ({"BCK": [([0], [0]), ([2], [1])]}, "no block of BCK has 1 among its input channels, and one has 2"),
        ({"TRS": (3, 3, 3, 3)}, "TRS is .*; it is one, two or three whole numbers of 1 or more"),
        ({"TRS": 3}, "TRS is 3"),
        ({"TRS": (3,)}, "TRS has 1 dimensions and DHW 2"),
        ({"strides": (0, 1)}, "strides is"),
        ({"dilates": (1.5, 1)}, "dilates is"),
        ({"padding": (-1, 0)}, "padding is .* of 0 or more"),
        ({"padding": "FULL"}, "'SAME' and 'VALID'"),
        ({"padding": "VALID", "DHW": (2, 9)}, "has no output on 1x2x9; a larger input or padding would work"),
        ({"MPQ": (8, 6)}, "the latter has fewer windows than fit"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(change, message):
    arguments = {"BCK": DIAGONAL, "TRS": (3, 3), "DHW": (8, 8)} | change
    with pytest.raises(ValueError, match=message):
        BlocksparseConv(**arguments)


def test_a_deconvolution_to_nothing_is_refused():
    with pytest.raises(ValueError, match="to nothing; MPQ says to what"):
        BlocksparseDeconv(DIAGONAL, (1,), (1,), padding=(1,))


@pytest.mark.parametrize("array", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_operands_that_do_not_fit_are_refused(array):
    case = PUBLISHED["1 tap"]
    conv = built(case)
    F, (x, dy) = conv.collapse_filter(case.filters()), case.images(2)
    with pytest.raises(ValueError, match=r"I is \[2, 127, 1, 1, 32\]; this convolution takes \[N, 128, 1, 1, 32\]"):
        conv(array(F), array(x[:, 1:].copy()))
    with pytest.raises(ValueError, match=r"F is \[3, 48, 32, 1, 1, 1\]; this convolution takes \[4, 48, 32, 1, 1, 1\], or \[6144\]"):
        conv(array(F.reshape(4, 48, 32, 1, 1, 1)[:3]), array(x))
    with pytest.raises(TypeError, match="I is float64; float32, .* are convolved"):
        conv(array(F.astype(np.float64)), array(x.astype(np.float64)))
    with pytest.raises(TypeError, match="I is float16, and what it is convolved with float32"):
        conv(array(F), array(x.astype(np.float16)))
    with pytest.raises(ValueError, match=r"gain is \[5\]; this convolution takes \[192\]"):
        conv.l2_normalize(array(F), array(np.ones(5, np.float32)))
    with pytest.raises(ValueError, match="edge_bias=True, when it is built, would work"):
        conv(array(F), array(x), edge_bias=array(np.ones((192, 1), np.float32)))
    with pytest.raises(ValueError, match="they are of one batch"):
        conv.update(dy, x[:1])


def test_edge_biases_that_do_not_fit_are_refused():
    conv = built(PUBLISHED["3x3"], edge_bias=True)
    y = np.ones(conv.o_shape(1), np.float32)
    with pytest.raises(ValueError, match=r"b is \[192, 3\]; an edge bias of this convolution is \[192, 8\]"):
        conv.edge_bias(y, np.ones((192, 3), np.float32))
    with pytest.raises(ValueError, match=r"y is \[1, 192, 1, 8, 7\]; it has 192 and 64 channels and positions in this order"):
        conv.edge_bias(y[..., 1:], np.ones((192, 8), np.float32))
    with pytest.raises(ValueError, match="data_format is 'HWCN'"):
        ConvEdgeBias((1, 2, 3, 4), (1, 2, 3, 4), (3, 3, 4, 4), data_format="HWCN")
    with pytest.raises(ValueError, match="each has 4 dimensions"):
        ConvEdgeBias((1, 2, 3, 4), (1, 2, 3), (3, 3, 4, 4))
    with pytest.raises(ValueError, match="cwise_linear without gain and bias"):
        cwise_linear(y)
    with pytest.raises(ValueError, match=r"gain is \[3\] and x \[1, 192, 1, 8, 8\]"):
        cwise_linear(y, np.ones(3, np.float32))
