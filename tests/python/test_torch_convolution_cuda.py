"""Convolutions of PyTorch's tensors by kernels for CUDA: on the emulator, and on a GPU where there is one."""

import types

import numpy as np
import pytest
from dense_blocksparse_conv import OVERLAPPING, Case
from dense_matmul import assert_near

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_convolution import (  # noqa: E402
    LAYERS, TRANSPOSED, blocks_of, check, check_edges, check_no_images, close, dense_weight, images, poison_beyond, randomize_edges, run_dense,
)  # fmt: skip
from emulated_device import FAR, EmulatedDevice, emulate_convolutions, needs_emulator, needs_gpu  # noqa: E402

import sparsekiln  # noqa: E402
import sparsekiln.compat.conv  # noqa: E402
from sparsekiln.torch import kernels, kinds  # noqa: E402
from sparsekiln.torch.convolution import products as convolution_products  # noqa: E402
from sparsekiln.torch.convolution.geometry import parse_geometry  # noqa: E402
from sparsekiln.torch.kernels import Use  # noqa: E402


@pytest.fixture
def device(monkeypatch):
    return emulate_convolutions(monkeypatch)


def make(kind, dimensions=2, kernel=3, in_blocks=3, out_blocks=2, block=16, **options):
    torch.manual_seed(0)
    return kind[dimensions](in_blocks * block, out_blocks * block, kernel, **({"density": 0.5, "block": block} | options))


@needs_emulator
@pytest.mark.parametrize(
    "kind, dimensions, extents, options",
    [
        (LAYERS, 1, (13,), {"kernel": 4, "stride": 2, "padding": 1, "dtype": torch.bfloat16}),
        (LAYERS, 2, (6, 5), {"padding": 1, "dtype": torch.float16}),
        (LAYERS, 2, (9, 7), {"stride": 2, "dilation": 2, "padding": 2, "block": 32, "dtype": torch.bfloat16}),
        (LAYERS, 2, (6, 5), {"kernel": (2, 3), "padding": "same", "block": 8, "bias": False}),
        (LAYERS, 3, (4, 3, 5), {"padding": 1, "groups": 2, "in_blocks": 4}),
        (TRANSPOSED, 2, (4, 5), {"stride": 2, "padding": 1, "output_padding": 1, "dtype": torch.float16}),
        (LAYERS, 2, (6, 5), {"padding": 1, "tap_mask": [[1, 1, 1], [1, 0, 0], [0, 0, 0]], "dtype": torch.float16}),
        (TRANSPOSED, 2, (4, 5), {"layout": [[1, 0], [0, 1], [1, 0]], "tap_mask": np.arange(27).reshape(3, 3, 3) % 4 > 0}),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_values_and_gradients(device, kind, dimensions, extents, options, channels_last):
    layer = make(kind, dimensions, **options)
    check(layer, images(layer, 3, extents, channels_last))
    assert sorted(device.launches) == ["forward", "grad_input" if kind is LAYERS else "forward", "grad_weight"]


@needs_emulator
@pytest.mark.parametrize(
    "layer, extents, options",
    [
        (LAYERS[2], (9, 8), {"in_channels": 3, "out_channels": 37, "kernel_size": 5, "stride": 2, "padding": 2, "dtype": torch.float16}),
        (LAYERS[2], (6, 5), {"in_channels": 37, "out_channels": 10, "kernel_size": 3}),
        (LAYERS[1], (11,), {"in_channels": 20, "out_channels": 33, "kernel_size": 3, "padding": 1, "dtype": torch.bfloat16}),
        (TRANSPOSED[2], (4, 5), {"in_channels": 20, "out_channels": 3, "kernel_size": 4, "stride": 2, "padding": 1, "dtype": torch.float16}),
    ],
)
def test_channels_that_fill_no_whole_blocks(device, layer, extents, options):
    torch.manual_seed(0)
    of_dx = "forward" if layer in TRANSPOSED.values() else "grad_input"  # of a transposed one it is a convolution
    layer = layer(**options, density=0.7, block=16)
    poison_beyond(layer)
    check(layer, images(layer, 3, extents, True))
    assert sorted(device.launches) == ["forward", of_dx, "grad_weight"]


@needs_emulator
@pytest.mark.parametrize("options", [{"padding": 1}, {"padding": 1, "stride": 2, "tap_mask": [[1, 1, 1], [1, 1, 0], [0, 0, 0]]}])
def test_edge_biases(device, options):
    layer = randomize_edges(make(LAYERS, edge_bias=(6, 5), **options))
    check_edges(layer, images(layer, 3, (6, 5)))
    assert sorted(device.launches) == ["forward", "forward", "grad_input", "grad_weight"]  # sums are computed again


@needs_emulator
def test_one_kernel_of_each_operation_serves_all_batches(device):
    layer = make(LAYERS, padding=1, layout=[[1, 1, 1], [0, 0, 1]])  # no other test's, whose kernels it would share
    for n in (1, 5, 16):
        check(layer, images(layer, n, (4, 5)))
    assert len(layer._kernels.kernels()) == 3
    assert {kernel.target.split(":")[0] for kernel in layer._kernels.kernels()} == {"sm_80"}


@needs_emulator
@pytest.mark.parametrize(
    "dimensions, most, sizes, options",
    [
        (1, (17,), ((17,), (4,)), {"kernel": 4, "stride": 2, "padding": 1, "dtype": torch.bfloat16}),
        (2, (9, 8), ((9, 8), (5, 6), (3, 3)), {"padding": 1, "dtype": torch.float16}),
        (2, (9, 8), ((9, 8), (5, 6)), {"kernel": 1, "stride": 2}),
        (3, (4, 5, 6), ((4, 5, 6), (3, 3, 3)), {"padding": 1, "dtype": torch.float16}),
    ],
)
def test_one_kernel_serves_all_sizes_up_to_the_largest(device, dimensions, most, sizes, options):
    layer = make(LAYERS, dimensions, max_input=most, layout=[[1, 0, 1], [0, 1, 1]], **options)
    for extents in sizes:
        for channels_last in (False, True):
            check(layer, images(layer, 3, extents, channels_last))
    assert sorted(kernel.op for kernel in layer._kernels.kernels()) == ["forward", "grad_input", "grad_weight"]


@needs_emulator
def test_no_images(device):
    check_no_images(make(LAYERS, padding=1), (5, 6))


@needs_emulator
def test_images_that_are_not_aligned_are_copied(device):
    layer = make(LAYERS, padding=1, dtype=torch.float16)
    room = torch.randn(2 * 5 * 6 * 48 + 1).half()
    check(layer, room[1:].view(2, 5, 6, 48).movedim(-1, 1))


@needs_emulator
def test_the_gradient_of_the_weight_is_one_launch_however_many_images(device, monkeypatch):
    monkeypatch.setattr(convolution_products, "MOST_WORKSPACE", 1)
    layer = make(LAYERS, padding=1)
    check(layer, images(layer, 7, (5, 6)))
    assert device.launches.count("grad_weight") == 1


@needs_emulator
def test_slices_of_the_batch_meet_in_a_workspace_of_the_size_that_the_kernel_says(device):
    layer = make(LAYERS, padding=1, in_blocks=1, out_blocks=1)
    check(layer, images(layer, 16, (16, 16)))
    (kernel,) = [one for one in layer._kernels.kernels() if one.op == "grad_weight"]
    assert kernel.workspace_bytes(1) == kernel.workspace_bytes(16) > kernel.workspace_counter_bytes() > 0


@needs_emulator
def test_a_kernel_that_is_too_large_for_cuda_is_refused_by_one_sentence():
    def compiled(size):
        text = parse_geometry(1, size, 1, 0, 1).text((70,))
        return sparsekiln.compile([[1]], 32, 4, convolution=text, target="emulated:sm_80")

    assert compiled(62).op == "forward"
    with pytest.raises(sparsekiln.InvalidArgument, match="width 63, added up 65: .* 64 together"):
        compiled(63)


class OnCuda:
    """A stand-in for a layer on a GPU."""

    def __init__(self, layer):
        vars(self).update({name: getattr(layer, name) for name in ("stride", "padding", "dilation", "padding_mode", "groups")})
        self.in_channels, self.out_channels, self.kernel_size = layer.in_channels, layer.out_channels, layer.kernel_size
        self.weight = types.SimpleNamespace(dtype=layer.weight.dtype, is_cuda=True, device=FAR)


@pytest.mark.parametrize("kernel, says", [(3, ""), ((31, 32), ""), ((32, 32), "has a kernel of 32x32, which is too large for CUDA devices")])
def test_what_sparsify_says_of_convolutions_on_cuda_devices(monkeypatch, kernel, says):
    monkeypatch.setitem(kinds._KINDS, OnCuda, LAYERS[2])
    assert kinds.reason_that_it_does_not_fit(OnCuda(torch.nn.Conv2d(64, 64, kernel)), (32, 32)) == says


@pytest.mark.parametrize("device, bounds", [("cpu", [1, 8, 64]), ("cuda", [1 << 20] * 3)])
def test_the_gradient_of_the_weight_has_a_kernel_for_each_power_of_two_on_the_cpu_alone(device, bounds):
    use = Use("grad_weight", (16, 16), 32, 32, torch.float32, torch.device(device), convolution="kernel=3 input=9", positions=9)
    assert [use.bound(n) for n in (1, 5, 64)] == bounds


# ---- the interface of 2017 ----

LISTS = [([4, 0, 2], [5, 1]), ([2, 4, 0], [0, 2, 3, 4]), ([1, 3], [1, 5]), ([1, 3], [4, 3, 2, 0])]
PUBLISHED = {
    "overlapping": Case(OVERLAPPING, (1, 3, 3), (1, 5, 6), (1, 5, 6), (0, 1, 1)),
    "lists of any channels": Case(LISTS, (1, 1, 3), (1, 1, 9), (1, 1, 9), (0, 0, 1)),
    "deconvolution": Case(OVERLAPPING, (1, 1, 3), (1, 1, 9), (1, 1, 9), (0, 0, 1), MPQ=(1, 1, 9), deconv=True),
}


def of_2017(case):
    module = sparsekiln.compat.conv
    return (module.BlocksparseDeconv if case.deconv else module.BlocksparseConv)(**case.arguments)


def differentiated(case, n, device="cpu"):
    """What one gives for some images, and what is wanted: y, dx and the gradient of the filters."""
    conv, filters = of_2017(case), case.filters()
    x, dy = case.images(n)
    F, images = (torch.from_numpy(one).to(device).requires_grad_() for one in (conv.collapse_filter(filters), x))
    y = conv(F, images)
    y.backward(torch.from_numpy(dy).to(device))
    return [one.detach().cpu() for one in (y, images.grad, F.grad)], case.results(filters, x, dy)


@needs_emulator
@pytest.mark.parametrize("name", PUBLISHED)
def test_convolutions_of_2017_are_launched_on_the_device_of_their_arrays(monkeypatch, name):
    emulated, n = EmulatedDevice("sm_80"), 5
    module = sparsekiln.compat.conv
    made = module.BlocksparseConv._kernel

    def launched(*asked):
        kernel = made(*asked)
        return lambda *operands: emulated.run(kernel, n, *operands)

    monkeypatch.setattr(module, "target_of", lambda array: emulated.target)
    monkeypatch.setattr(module, "_MOST", 8)
    monkeypatch.setattr(module, "_MOST_WORKSPACE", 1)  # of the cpu alone
    monkeypatch.setattr(module.BlocksparseConv, "_kernel", launched)
    for got, wanted in zip(*differentiated(PUBLISHED[name], n)):
        assert_near(got, wanted, 2e-5)
    assert sorted(emulated.launches) == ["forward", "grad_input", "grad_weight"]


# ---- on a GPU ----


@needs_gpu
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_gpu_gives_convolutions_of_2017(name):
    for got, wanted in zip(*differentiated(PUBLISHED[name], 5, "cuda")):
        assert_near(got, wanted, 2e-5)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [LAYERS, TRANSPOSED])
@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": 2, "padding": 1}, {"dilation": 2, "kernel": 4}])
def test_a_gpu_gives_what_the_dense_convolution_does(dtype, kind, options):
    layer = make(kind, dtype=dtype, block=32, **options)
    weight, bias = dense_weight(layer), layer.bias.detach().clone()
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    layer.cuda()
    for n in (1, 6, 40):
        x = images(layer, n, (14, 13))
        given = x.cuda().to(memory_format=torch.channels_last).requires_grad_()
        layer.zero_grad()
        y = layer(given)
        y.backward(torch.ones_like(y))
        wanted = run_dense(layer, x, weight, bias, torch.ones(y.shape))
        found = y.detach(), given.grad, layer.weight_values.grad, layer.bias.grad
        for number, (there, here) in enumerate(zip(found, wanted)):
            close(there.cpu(), blocks_of(layer, here) if number == 2 else here, tolerance)


@needs_gpu
def test_a_step_of_training_is_captured_in_a_cuda_graph():
    layer = make(LAYERS, padding=1, block=32)
    x = images(layer, 4, (14, 14)).cuda()
    layer.cuda()

    def step():
        layer.zero_grad(set_to_none=False)
        layer(x).square().sum().backward()
        return layer.weight_values.grad

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        wanted = step().clone()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    for _ in range(2):
        found.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        close(found.cpu(), wanted.cpu())
