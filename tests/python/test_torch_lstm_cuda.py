"""BlockSparseLSTM by kernels for CUDA, on the emulator and on a GPU where there is one, against nn.LSTM in float64."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from emulated_device import emulate_lstm_steps, needs_emulator, needs_gpu  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import BlockSparseLSTM  # noqa: E402


@pytest.fixture
def device(monkeypatch):
    return emulate_lstm_steps(monkeypatch)


def results(module, x, packed):
    x = x.clone().requires_grad_()
    taken = torch.nn.utils.rnn.pack_padded_sequence(x, [4, 3, 1]) if packed else x
    state = [torch.full((2, 3, 48), 0.25, dtype=x.dtype, device=x.device, requires_grad=True) for _ in range(2)]
    y, (h, c) = module(taken, state)
    ((y.data if packed else y).sum() + h.square().sum() + c.square().sum()).backward()
    return [y.data if packed else y, h, c, x.grad, *(one.grad for one in state)]


def of_layer(layer, x, packed):
    computed = results(layer, x, packed)
    for gates in layer.gates:
        computed += gates.recurrent.weight_values.grad, gates.input.weight.grad, gates.input.bias.grad
    return computed


def of_dense(layer, x, packed):
    dense = layer.to_dense().double()
    computed = results(dense, x.double(), packed)
    for gates, suffix in zip(layer.gates, ("l0", "l0_reverse")):
        of_hidden, of_inputs, of_bias = (getattr(dense, f"{name}_{suffix}").grad for name in ("weight_hh", "weight_ih", "bias_ih"))
        computed += gates.recurrent.blocks_of(of_hidden), of_inputs, of_bias
    return computed


def assert_alike(found, wanted, tolerance):
    for one, other in zip(found, wanted, strict=True):
        assert (one.detach().cpu().double() - other).abs().max() <= tolerance * other.abs().max()


def make(dtype, bidirectional):
    torch.manual_seed(0)
    layout = sparsekiln.patterns.random(3, 3, 0.6, seed=2)
    return BlockSparseLSTM(12, 48, bidirectional=bidirectional, layout=layout, block=16, dtype=dtype)


@needs_emulator
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 6e-2), (torch.float16, 8e-3)], ids=str)
def test_cuda_kernels_compute_what_the_dense_module_does(device, dtype, tolerance, packed):
    layer, x = make(dtype, bidirectional=True), torch.randn(4, 3, 12, dtype=dtype)
    assert_alike(of_layer(layer, x, packed), of_dense(layer, x, packed), tolerance)
    # One a step, and in the gradient one that ends at h0. Where sequences begin or end between two steps, a step has a launch for
    # those that go on, and one for the others: as they end, 2 of 4 steps, in the gradient, and in reverse in both.
    ragged = 2 if packed else 0
    assert device.launches.count("forward") == 2 * 4 + ragged and device.launches.count("grad_weight") >= 2
    assert device.launches.count("grad_input") == 2 * (4 + 1) + 2 * ragged


@needs_gpu
@pytest.mark.parametrize("packed", [False, True])
def test_a_gpu_computes_what_the_dense_module_does(packed):
    layer, x = make(torch.float32, bidirectional=True), torch.randn(4, 3, 12)
    wanted = of_dense(layer, x, packed)
    assert_alike(of_layer(layer.cuda(), x.cuda(), packed), wanted, 2e-5)
