"""Kernels of layouts that stay are compiled with the layout in their code, in the background, on the emulator."""

import threading
import warnings

import pytest
from dense_matmul import assert_near

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from emulated_device import emulate_convolutions, needs_emulator  # noqa: E402

import sparsekiln as sk  # noqa: E402
from sparsekiln.torch import BlockSparseConv2d, BlockSparseLinear, background, baking, kernels, set_baking  # noqa: E402

_CALLS = 4


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Layouts stay after a few calls, and nothing of other tests is said or switched."""
    monkeypatch.setattr(baking, "CALLS", _CALLS)
    monkeypatch.setattr(baking, "SECONDS", 0)
    monkeypatch.setattr(background, "_said", set())
    monkeypatch.setattr(baking, "_on", True)
    yield
    baking.worker.wait()


@pytest.fixture
def device(monkeypatch):
    return emulate_convolutions(monkeypatch)


def convolution(seed: int = 0) -> BlockSparseConv2d:
    torch.manual_seed(seed)
    return BlockSparseConv2d(48, 32, 3, padding=1, block=16, layout=sk.patterns.random(2, 3, 0.5, seed=seed + 100))


def tiers(layer) -> set[str]:
    return {kernel.tier for kernel in kernels.kernels_of(layer.layout).kernels()}


def call(layer, times: int = 1):
    torch.manual_seed(1)
    images = torch.randn(2, 48, 5, 4)
    with torch.no_grad():
        for _ in range(times):
            result = layer(images)
    return result


def check_that_it_is_baked(layer):
    first = call(layer)
    assert tiers(layer) == {"attached"}
    call(layer, _CALLS)
    baking.worker.wait()
    assert tiers(layer) == {"baked"}
    assert_near(call(layer), first)


@needs_emulator
def test_a_layout_that_stays_is_baked_and_the_layer_goes_on_with_that(device):
    layer = convolution()
    check_that_it_is_baked(layer)
    assert kernels.kernels_of(layer.layout)._replaced, "a CUDA graph may have captured the first"


@needs_emulator
def test_after_a_relayout_the_new_layout_is_attached_and_then_baked(device):
    layer = convolution(1)
    call(layer, _CALLS + 1)
    baking.worker.wait()
    layer.relayout(sk.patterns.random(2, 3, 0.5, seed=7))
    check_that_it_is_baked(layer)


@needs_emulator
def test_a_layout_that_nothing_uses_any_more_is_not_compiled(device, monkeypatch):
    made, compile_kernel, go_on = [], kernels.compile_kernel, threading.Event()
    monkeypatch.setattr(kernels, "compile_kernel", lambda *given, **more: made.append(more) or compile_kernel(*given, **more))
    baking.worker.do(go_on.wait)
    layer = convolution(2)
    call(layer, _CALLS + 1)
    attached = len(made)
    assert attached
    kernels._recent.clear()
    del layer
    go_on.set()
    baking.worker.wait()
    assert len(made) == attached


@needs_emulator
def test_a_bake_that_fails_is_said_once_and_leaves_the_kernel(device, monkeypatch):
    compile_kernel = kernels.compile_kernel

    def fails(layout, use, bound, baked=False):
        if baked:
            raise sk.Error("no room")
        return compile_kernel(layout, use, bound)

    monkeypatch.setattr(kernels, "compile_kernel", fails)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for seed in (3, 4):
            layer = convolution(seed)
            call(layer, _CALLS + 1)
            baking.worker.wait()
            assert tiers(layer) == {"attached"}
            call(layer)
    assert [str(one.message) for one in said if issubclass(one.category, RuntimeWarning)] == [
        "a kernel was not compiled with its layout, and goes on without: no room"
    ]


@needs_emulator
def test_it_can_be_switched_off_and_is_off_where_algorithms_are_deterministic(device):
    layer = convolution(5)
    set_baking(False)
    call(layer, 2 * _CALLS)
    baking.worker.wait()
    assert tiers(layer) == {"attached"}
    set_baking(True)
    torch.use_deterministic_algorithms(True)
    try:
        call(layer, 2 * _CALLS)
        baking.worker.wait()
        assert tiers(layer) == {"attached"}
    finally:
        torch.use_deterministic_algorithms(False)


@needs_emulator
def test_what_was_asked_for_while_it_is_off_is_baked_later(device):
    layer, go_on = convolution(6), threading.Event()
    baking.worker.do(go_on.wait)
    call(layer, _CALLS + 1)
    set_baking(False)
    go_on.set()
    baking.worker.wait()
    assert tiers(layer) == {"attached"}
    set_baking(True)
    call(layer, _CALLS)
    baking.worker.wait()
    assert tiers(layer) == {"baked"}


@needs_emulator
def test_a_young_layout_is_not_baked(device, monkeypatch):
    monkeypatch.setattr(baking, "SECONDS", 1000)
    layer = convolution(8)
    call(layer, 2 * _CALLS)
    baking.worker.wait()
    assert tiers(layer) == {"attached"}


def test_a_linear_layer_takes_the_baked_kernel_at_its_next_call(monkeypatch):
    monkeypatch.setattr(kernels, "is_baked_later", lambda use: True)
    layer = BlockSparseLinear(32, 32, sk.patterns.random(2, 2, 0.5, seed=78), 16)
    x = torch.randn(3, 32)
    with torch.no_grad():
        first = layer(x)
        (attached,) = kernels.kernels_of(layer.layout).kernels()
        for _ in range(_CALLS):
            layer(x)
        baking.worker.wait()
        (baked,) = kernels.kernels_of(layer.layout).kernels()
        assert baked is not attached
        weight = kernels.find(layer.crow_indices, layer.col_indices, 2)
        assert not weight._ready, "what was kept is forgotten"
        assert_near(layer(x), first)
        assert [kernel for kernel, _ in weight._ready.values()] == [baked]


def test_a_job_that_fails_does_not_end_the_worker(capsys):
    def fails():
        raise RuntimeWarning("as an error")

    done = []
    baking.worker.do(fails)
    baking.worker.do(lambda: done.append("next"))
    baking.worker.wait()
    assert done == ["next"]
    assert "as an error" in capsys.readouterr().err


def test_the_environment_switches_it(monkeypatch):
    for said, on in (("off", False), ("0", False), ("On", True), ("", True)):
        monkeypatch.setenv("SPARSEKILN_BAKING", said)
        assert baking._stated() is on, said
    monkeypatch.setenv("SPARSEKILN_BAKING", "maybe")
    with pytest.warns(UserWarning, match="on and off would work"):
        assert baking._stated()


def test_on_the_cpu_nothing_is_baked():
    layer = BlockSparseLinear(32, 32, sk.patterns.random(2, 2, 0.5, seed=77), 16)
    for _ in range(2 * _CALLS):
        layer(torch.zeros(2, 32))
    baking.worker.wait()
    entry = kernels.kernels_of(layer.layout)
    assert entry.kernels() and not entry._asked_to_bake


def test_a_worker_that_ends_finishes_its_job_and_drops_the_others():
    worker, done, begun, go_on = background.Worker("test"), [], threading.Event(), threading.Event()

    def first():
        begun.set()
        go_on.wait()
        done.append("first")

    worker.do(first)
    worker.do(lambda: done.append("second"))
    begun.wait()
    threading.Timer(0.05, go_on.set).start()
    worker.end()
    assert done == ["first"]
    worker.do(lambda: done.append("third"))
    assert done == ["first"]
