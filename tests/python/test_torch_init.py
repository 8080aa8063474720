"""Initialisers: standard deviations against theory, for each block row and column."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import sparsekiln as sk  # noqa: E402
from sparsekiln.torch import BlockSparseConv1d, BlockSparseConv2d, BlockSparseConvTranspose2d, BlockSparseLinear, init  # noqa: E402

# 3, 1 and 0 blocks of 64 outputs in a row; the last input block has 40 features of 64.
_MASK = np.array([[1, 1, 1], [0, 0, 1], [0, 0, 0]])
_FAN_IN = [168, 40, 0]
_FAN_OUT = [64, 64, 128]


@pytest.fixture(params=[None, 9], ids=["exact", "with room"])
def layer(request):
    torch.manual_seed(0)
    return BlockSparseLinear(168, 192, _MASK, 64, max_blocks=request.param)


def blocks_of(layer):
    """(block row, block column, its elements), of each present block."""
    dense = layer.to_dense().detach()
    for row, col in zip(*np.nonzero(_MASK)):
        yield row, col, dense[64 * row : 64 * row + 64, 64 * col : 64 * col + 64]


def check(layer, deviation, uniform):
    for row, col, block in blocks_of(layer):
        expected = deviation(_FAN_IN[row], _FAN_OUT[col])
        assert block.std().item() == pytest.approx(expected, rel=0.06)
        assert abs(block.mean().item()) < 0.1 * expected
        largest = block.abs().max().item() / expected
        assert 1.6 < largest <= math.sqrt(3) * 1.0001 if uniform else largest > 2.5
    assert not layer.weight_values.detach()[layer.layout.blocks :].any()
    beyond = layer.weight_values.detach()[[2, 3], :, 40:]
    assert not beyond.any()


def test_fans_are_of_present_features(layer):
    assert init.fan_in(layer).tolist() == _FAN_IN and init.fan_out(layer).tolist() == _FAN_OUT


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("options, gain", [({}, math.sqrt(2)), ({"nonlinearity": "linear"}, 1), ({"a": math.sqrt(5)}, math.sqrt(1 / 3))])
def test_kaiming(layer, uniform, options, gain):
    initialise = init.kaiming_uniform_ if uniform else init.kaiming_normal_
    assert initialise(layer, **options) is layer
    check(layer, lambda ins, outs: gain / math.sqrt(ins), uniform)
    initialise(layer, mode="fan_out", **options)
    check(layer, lambda ins, outs: gain / math.sqrt(outs), uniform)


@pytest.mark.parametrize("uniform", [True, False])
def test_xavier(layer, uniform):
    initialise = init.xavier_uniform_ if uniform else init.xavier_normal_
    assert initialise(layer, gain=0.5) is layer
    check(layer, lambda ins, outs: 0.5 * math.sqrt(2 / (ins + outs)), uniform)


def test_a_full_layer_starts_like_a_dense_one():
    dense = torch.nn.Linear(256, 256)
    layer = BlockSparseLinear(256, 256, np.ones((8, 8), int), 32)
    for name in ("kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_"):
        getattr(torch.nn.init, name)(dense.weight)
        getattr(init, name)(layer)
        assert layer.to_dense().std().item() == pytest.approx(dense.weight.std().item(), rel=0.02)


def test_the_usual_start_is_uniform_in_the_inverse_root_of_the_fan_in(layer):
    init.xavier_normal_(layer)
    layer.reset_parameters()
    check(layer, lambda ins, outs: 1 / math.sqrt(3 * ins), uniform=True)
    assert 0.9 / math.sqrt(40) < layer.bias[64:128].abs().max() <= 1 / math.sqrt(40)
    assert not layer.bias[128:].any()


def test_a_generator_repeats_the_values(layer):
    first = init.kaiming_normal_(layer, generator=torch.Generator().manual_seed(3)).weight_values.clone()
    second = init.kaiming_normal_(layer, generator=torch.Generator().manual_seed(3)).weight_values
    assert torch.equal(first, second)


def test_an_unknown_mode_is_refused(layer):
    with pytest.raises(ValueError, match="no mode 'fan_average'.*fan_in"):
        init.kaiming_uniform_(layer, mode="fan_average")


def test_fans_are_exact_whatever_the_default_type_and_device_are():
    layer = BlockSparseLinear(16384, 8, sk.patterns.random(1, 2048, 1.0), block=8)
    try:
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("meta"):
            fan_in, fan_out = init.fan_in(layer), init.fan_out(layer)
    finally:
        torch.set_default_dtype(torch.float32)
    assert fan_in.tolist() == [16384] and fan_out.tolist() == [8] * 2048


# ---- convolutions: the same, times the taps ----

# Rows of 2, 1 and 0 blocks of 64 x 32, with 6 taps.
_CONVOLUTION = np.array([[1, 1], [0, 1], [0, 0]])


@pytest.fixture(params=[(BlockSparseConv2d, 64, 192), (BlockSparseConvTranspose2d, 192, 64)], ids=["conv", "transposed"])
def convolution(request):
    torch.manual_seed(0)
    kind, ins, outs = request.param
    return kind(ins, outs, (2, 3), layout=_CONVOLUTION, block=(64, 32), max_blocks=4)


def test_fans_of_a_convolution_count_its_taps(convolution):
    assert init.fan_in(convolution).tolist() == [6 * 64, 6 * 32, 0] and init.fan_out(convolution).tolist() == [6 * 64, 6 * 128]


@pytest.mark.parametrize("name", ["kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_"])
def test_blocks_of_a_convolution_have_the_deviation_of_their_fans(convolution, name):
    assert getattr(init, name)(convolution) is convolution
    for values, ins, outs in zip(convolution.weight_values.detach(), (64, 64, 32), (64, 128, 128)):
        expected = math.sqrt(2 / (6 * ins)) if "kaiming" in name else math.sqrt(2 / (6 * (ins + outs)))
        assert values.std().item() == pytest.approx(expected, rel=0.03)
    assert not convolution.weight_values.detach()[3:].any()


def test_the_usual_start_of_a_convolution(convolution):
    init.xavier_normal_(convolution)
    convolution.reset_parameters()
    first, second = 1 / math.sqrt(6 * 64), 1 / math.sqrt(6 * 32)
    for values, bound in zip(convolution.weight_values.detach(), (first, first, second)):
        assert 0.99 * bound < values.abs().max() <= bound
    bias = convolution.bias.detach().abs()
    if isinstance(convolution, BlockSparseConv2d):
        assert 0.8 * first < bias[:64].max() <= first < bias[64:128].max() <= second and not bias[128:].any()
    else:  # columns: of blocks of the first row, and of both rows
        assert 0.8 * first < bias[:32].max() <= first and 0.8 * first < bias[32:].max() <= 1 / math.sqrt(6 * 48)


@pytest.mark.parametrize("sparse, dense", [(BlockSparseConv1d, torch.nn.Conv1d), (BlockSparseConvTranspose2d, torch.nn.ConvTranspose2d)])
def test_a_convolution_of_all_blocks_starts_like_a_dense_one(sparse, dense):
    layer, other = sparse(128, 256, 3, density=1, block=32), dense(128, 256, 3)
    assert layer.dense_weight().abs().max().item() == pytest.approx(other.weight.abs().max().item(), rel=0.01)
    assert layer.bias.abs().max().item() == pytest.approx(other.bias.abs().max().item(), rel=0.1)
    for name in ("kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_"):
        getattr(torch.nn.init, name)(other.weight)
        getattr(init, name)(layer)
        assert layer.dense_weight().std().item() == pytest.approx(other.weight.std().item(), rel=0.02)
