"""Kernels that are compiled while the program goes on: those of the backward pass begin at the first forward pass."""

import os
import signal
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import sparsekiln  # noqa: E402
from sparsekiln.torch import BlockSparseConv2d, BlockSparseLinear, background, kernels  # noqa: E402

_seeds = iter(range(10_000, 20_000))


@pytest.fixture
def compiles(monkeypatch):
    """The operations of the kernels that are compiled, and by which thread."""
    background.worker.wait()  # for what other tests have begun
    found, compile_kernel = [], kernels.compile_kernel

    def noted(layout, use, *given, **named):
        found.append((use.operation, threading.current_thread() is threading.main_thread()))
        return compile_kernel(layout, use, *given, **named)

    monkeypatch.setattr(kernels, "compile_kernel", noted)
    yield found
    background.worker.wait()


def layer_of(**more):
    """With a layout that no other test has."""
    return BlockSparseLinear(64, 96, sparsekiln.patterns.random(6, 4, 0.6, seed=next(_seeds)), 16, **more)


def test_kernels_of_the_backward_pass_begin_at_the_first_forward_pass(compiles):
    layer, x = layer_of(activation="relu"), torch.randn(3, 64, requires_grad=True)
    y = layer(x)
    background.worker.wait()
    assert compiles[0] == ("forward", True) and sorted(compiles[1:]) == [("grad_input", False), ("grad_weight", False)]
    y.sum().backward()
    layer(x).sum().backward()
    assert len(compiles) == 3


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_only_kernels_that_are_needed_begin(compiles, activation):
    layer = layer_of(activation=activation)
    with torch.no_grad():
        layer(torch.randn(3, 64))
    background.worker.wait()
    assert {operation for operation, _ in compiles} == {"forward"}
    layer = layer_of(activation=activation)
    layer(torch.randn(3, 64)).sum().backward()
    background.worker.wait()
    assert {operation for operation, _ in compiles} == {"forward", "grad_weight"}


def test_a_convolution_begins_them_too(compiles):
    layer = BlockSparseConv2d(32, 32, 3, layout=sparsekiln.patterns.random(2, 2, 0.75, seed=next(_seeds)), block=16)
    y = layer(torch.randn(2, 32, 5, 5, requires_grad=True))
    background.worker.wait()
    assert sorted(operation for operation, _ in compiles) == ["forward", "grad_input"]  # that of the weight may take fewer images
    y.square().sum().backward()
    assert [operation for operation, _ in compiles[2:]] == ["grad_weight"]


def test_kernels_of_another_call_begin_none(compiles):
    layout = sparsekiln.patterns.random(6, 4, 0.6, seed=next(_seeds))
    trained = BlockSparseLinear(32, 48, layout, 8, dtype=torch.float64)
    trained(torch.randn(3, 32, dtype=torch.float64)).sum().backward()
    other = BlockSparseLinear(64, 96, layout, 16)
    with torch.no_grad():
        other(torch.randn(3, 64))
    compiles.clear()
    trained(torch.randn(3, 32, dtype=torch.float64)).sum().backward()
    background.worker.wait()
    assert compiles == []


def held(monkeypatch):
    """Compiles of gradients by other threads wait until the event is set."""
    background.worker.wait()
    begun, go_on, compile_kernel = threading.Event(), threading.Event(), kernels.compile_kernel

    def waiting(layout, use, *given, **named):
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            go_on.wait(30)
        return compile_kernel(layout, use, *given, **named)

    monkeypatch.setattr(kernels, "compile_kernel", waiting)
    return begun, go_on


def test_a_backward_pass_waits_for_a_kernel_that_is_being_compiled(compiles, monkeypatch):
    begun, go_on = held(monkeypatch)
    layer = layer_of()
    y = layer(torch.randn(3, 64))
    assert begun.wait(30)
    threading.Timer(0.1, go_on.set).start()
    y.sum().backward()
    assert [operation for operation, _ in compiles] == ["forward", "grad_weight"]


def test_a_process_that_was_forked_meanwhile_compiles_its_own(monkeypatch):
    begun, go_on = held(monkeypatch)
    layer = layer_of()
    y = layer(torch.randn(3, 64))
    assert begun.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        torch.set_num_threads(1)  # OpenMP has no threads in a process that was forked
        y.sum().backward()
        os._exit(0 if layer.weight_values.grad is not None and layer.weight_values.grad.any() else 1)
    assert os.waitpid(child, 0)[1] == 0
    go_on.set()
    y.sum().backward()


def test_a_layer_goes_on_where_no_thread_can_start(compiles, monkeypatch):
    monkeypatch.setattr(background, "worker", background.Worker("test"))
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (_ for _ in ()).throw(RuntimeError("can't start new thread")))
    layer_of()(torch.randn(3, 64)).sum().backward()
    assert compiles == [("forward", True), ("grad_weight", True)]


def test_a_compile_that_fails_fails_where_it_is_needed(monkeypatch):
    compile_kernel = kernels.compile_kernel

    def failing(layout, use, *given, **named):
        if use.operation == "grad_weight":
            raise sparsekiln.Error("no compiler for gradients")
        return compile_kernel(layout, use, *given, **named)

    monkeypatch.setattr(kernels, "compile_kernel", failing)
    y = layer_of()(torch.randn(3, 64))
    background.worker.wait()
    with pytest.raises(sparsekiln.Error, match="no compiler for gradients"):
        y.sum().backward()


def test_a_job_is_done_by_the_first_thread_that_comes():
    done = []
    job = background.Job(lambda: done.append(threading.current_thread().name))
    assert not job.has_ended()  # now it is this thread's
    job.run()
    assert done == []
    job = background.Job(lambda: done.append("run"))
    job.run()
    job.run()
    assert done == ["run"] and job.has_ended()
