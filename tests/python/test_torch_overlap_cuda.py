"""Launches of layers that begin early, by kernels for CUDA: on the emulator, and on a GPU where there is one, from sm_90 on."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from emulated_device import emulate_convolutions, emulate_linear, emulate_lstm_steps, needs_emulator, needs_gpu  # noqa: E402

import sparsekiln as sk  # noqa: E402
from sparsekiln.torch import (  # noqa: E402
    BlockSparseConv2d, BlockSparseConvTranspose2d, BlockSparseLinear, BlockSparseLSTM, kernels, launch_overlap, overlapping_launches,
)  # fmt: skip
from sparsekiln.torch.launch_overlap import Place  # noqa: E402

_overlaps = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
needs_overlap = pytest.mark.skipif(not _overlaps, reason="no GPU of sm_90 or later")
_LAYOUT = sk.patterns.random(4, 4, 0.6, seed=51)
_OF_EDGES = {"padding": 1, "edge_bias": 5}
LAYERS = {
    "linear": (emulate_linear, lambda **options: BlockSparseLinear(64, 64, _LAYOUT, 16, activation="gelu", **options), (5, 64)),
    "convolution": (
        emulate_convolutions, lambda **options: BlockSparseConv2d(64, 64, 3, layout=_LAYOUT, block=16, **options), (2, 64, 5, 5)
    ),
    "edge bias": (
        emulate_convolutions, lambda **options: BlockSparseConv2d(64, 64, 3, layout=_LAYOUT, block=16, **_OF_EDGES, **options), (2, 64, 5, 5)
    ),
    "transposed": (
        emulate_convolutions, lambda **options: BlockSparseConvTranspose2d(64, 64, 3, layout=_LAYOUT, block=16, **options), (2, 64, 5, 5)
    ),
    "lstm": (emulate_lstm_steps, lambda **options: BlockSparseLSTM(32, 64, layout=_LAYOUT, block=16, **options), (3, 5, 32)),
}  # fmt: skip


def call(layer, x):
    with torch.no_grad():
        y = layer(x)
    return y[0] if isinstance(y, tuple) else y


@needs_emulator
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_kernels_that_begin_early_give_the_bits_of_the_others(monkeypatch, name, dtype):
    emulate, make, shape = LAYERS[name]
    device = emulate(monkeypatch, "sm_90")
    monkeypatch.setattr(launch_overlap, "place_of", lambda device: Place(0, False))
    torch.manual_seed(0)
    layer, x = make(dtype=dtype), torch.randn(shape, dtype=dtype)
    later = ["yes"] * (2 if name == "lstm" else 0)  # steps after the first one
    wanted = call(layer, x)
    assert device.overlaps == ["no", *later]
    layer.overlap = True
    for first in ("no", "yes"):
        if name == "edge bias" and dtype != torch.float32:  # which a call casts
            first = "no"
        device.overlaps.clear()
        assert torch.equal(call(layer, x), wanted)
        assert device.overlaps == [first, *later]


# ---- on a GPU, where kernels that begin early may have another config than the others ----


def chain(**options) -> torch.nn.Sequential:
    """Layers whose launches follow one another."""
    torch.manual_seed(0)
    layout = sk.patterns.random(32, 32, 0.1, seed=52)
    return torch.nn.Sequential(*(BlockSparseLinear(1024, 1024, layout, 32, device="cuda", **options) for _ in range(6)))


def batch() -> torch.Tensor:
    return torch.randn(16, 1024, device="cuda")


def assert_near(found, wanted):
    assert float((found - wanted).norm()) <= 1e-4 * float(wanted.norm())


def kinds(model) -> set[str]:
    """Whether launches may begin early, by all kernels that were compiled for a chain."""
    return {kernel.computation["overlap_launches"] for kernel in kernels.kernels_of(model[0].layout).kernels()}


@torch.no_grad()
def write(models, step: int) -> None:
    """Weights with which the results have nothing to do with those of the step before."""
    for layers in zip(*models):
        torch.manual_seed(step)
        values, bias = torch.randn_like(layers[0].weight_values), torch.randn_like(layers[0].bias)
        for layer in layers:
            layer.weight_values.copy_(values)
            layer.bias.copy_(bias)


@needs_gpu
@pytest.mark.parametrize("name", LAYERS)
def test_a_gpu_computes_the_same(name):
    _, make, shape = LAYERS[name]
    torch.manual_seed(0)
    layer, x = make(device="cuda"), torch.randn(shape, device="cuda")
    wanted = call(layer, x)
    with overlapping_launches():
        for _ in range(20):
            assert_near(call(layer, x), wanted)


@needs_overlap
def test_layers_on_a_gpu_have_both_kernels():
    model = chain(overlap=True)
    call(model, batch())
    assert kinds(model) == {"yes", "no"}


@needs_gpu
def test_what_was_written_just_before_is_read():
    model, other, x = chain(overlap=True), chain(), batch()
    for step in range(50):
        write((other, model), step)
        found = [call(model, x) for _ in range(2)]
        for one in found:
            assert_near(one, call(other, x))


@needs_gpu
def test_a_graph_keeps_the_overlap_and_reads_what_was_written_between_replays():
    model, other, x = chain(overlap=True), chain(), batch()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call(model, x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = call(model, x)
    for step in range(10):
        write((other, model), step)
        y.fill_(torch.nan)
        graph.replay()
        assert_near(y, call(other, x))


@needs_gpu
def test_training_by_a_fused_optimizer_and_autocast_go_on_as_without():
    model, other, x = chain(overlap=True), chain(), batch()
    optimizers = [torch.optim.AdamW(one.parameters(), lr=0.01, fused=True) for one in (model, other)]
    for _ in range(5):
        for one, optimizer in zip((model, other), optimizers):
            optimizer.zero_grad()
            one(x).square().mean().backward()
            optimizer.step()
        other.load_state_dict(model.state_dict())
        for _ in range(2):
            assert_near(call(model, x), call(other, x))
        with torch.autocast("cuda", torch.bfloat16):
            found, wanted = call(model, x).float(), call(other, x).float()
        assert float((found - wanted).norm()) <= 0.05 * float(wanted.norm())
