"""SmallWorldLSTM by kernels for CUDA, on the emulator and on a GPU where there is one, against dense layers in float64."""

import copy
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_small_world import assert_close_to_dense, of_layer  # noqa: E402
from emulated_device import FAR, EmulatedDevice, needs_emulator, needs_gpu, one_by_one  # noqa: E402

from sparsekiln.torch import SmallWorldLSTM, kernels  # noqa: E402
from sparsekiln.torch.kernels import Use  # noqa: E402
from sparsekiln.torch.recurrent import normalised_products, small_world_steps  # noqa: E402

STEPS, N, INPUTS, UNITS = 3, 4, 12, 64


@pytest.fixture(params=["sm_80", "sm_90"])
def device(request, monkeypatch):
    """Steps of cpu tensors are computed as those of CUDA tensors are, except that a kernel is launched on copies."""
    emulated = EmulatedDevice(request.param)
    monkeypatch.setattr(normalised_products, "Use", lambda *given, **more: Use(*given, **more)._replace(device=FAR))
    for module in (normalised_products, small_world_steps):
        monkeypatch.setattr(module, "run", emulated.run)
    monkeypatch.setattr(small_world_steps, "run_steps", one_by_one(emulated.run))
    monkeypatch.setattr(kernels, "_target", lambda device: emulated.target if device == FAR else "cpu")
    monkeypatch.setattr(kernels, "_BOUNDS", (16, 1 << 30))  # fewer ranges compile faster
    monkeypatch.setattr(kernels, "_by_digest", weakref.WeakValueDictionary())  # the kernels of another device
    kernels.kernels_without_blocks.cache_clear()
    yield emulated
    kernels.kernels_without_blocks.cache_clear()


def make(dtype=torch.float32):
    torch.manual_seed(0)
    layer = SmallWorldLSTM(INPUTS, UNITS, density=0.5, block=16, internal_steps=3, dtype=dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return layer


def operands(dtype=torch.float32):
    return torch.randn(STEPS, N, INPUTS, dtype=dtype), [torch.full((1, N, UNITS), 0.25, dtype=dtype) for _ in range(2)]


@needs_emulator
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_cuda_kernels_compute_what_dense_layers_do(device, dtype):
    layer, (x, state) = make(dtype), operands(dtype)
    assert_close_to_dense(of_layer(layer, x, state), layer, x, state)
    assert device.launches.count("forward") == STEPS * (3 + 1)  # internal steps, and all gates
    assert device.launches.count("grad_input") == STEPS * (3 + 1) + 1  # the same, and one that ends at h0
    assert device.launches.count("grad_weight") == 3 + 1 + 1  # of all steps; that of W₀ takes h0 by itself


@needs_gpu
def test_a_gpu_computes_what_dense_layers_do():
    layer, (x, state) = make(), operands()
    found = of_layer(copy.deepcopy(layer).cuda(), x.cuda(), [one.cuda() for one in state])
    assert_close_to_dense(found, layer, x, state)


@needs_gpu
def test_a_segment_of_steps_is_one_graph_forward_and_one_backward():
    layer, x = make().cuda(), torch.randn(STEPS, N, INPUTS).cuda()
    wanted = layer(x)[0]
    wanted.square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad(set_to_none=True)
    graphed = torch.cuda.make_graphed_callables(layer, (x,))
    for _ in range(2):
        layer.zero_grad(set_to_none=True)
        y, _ = graphed(x)
        y.square().sum().backward()
        torch.testing.assert_close(y, wanted)
        for parameter, gradient in zip(layer.parameters(), gradients):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5)
