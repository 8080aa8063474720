"""The custom operators under PyTorch's own checks, torch.compile, torch.export and autocast."""

import contextlib
import copy
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_layer import FUNCTIONS, Dense, make_layer  # noqa: E402

import sparsekiln  # noqa: E402

_ops = torch.ops.sparsekiln
_BACKENDS = ["aot_eager", "inductor"]


@pytest.fixture(autouse=True)
def _without_earlier_graphs():
    torch.compiler.reset()
    torch.manual_seed(0)


def weight_of(layer):
    return layer.crow_indices, layer.col_indices


def test_importing_loads_no_compiler_of_pytorch():
    script = "import sys, sparsekiln.torch; print([name for name in sys.modules if name.startswith(('torch._dynamo', 'torch._inductor'))])"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


# ---- opcheck ----


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("operator", ["linear", "linear_with_preactivation"])
def test_opcheck_of_the_forward_operators(operator, activation, bias):
    layer = make_layer(64, 96, bias=bias, activation=activation)
    x = torch.randn(5, 64, requires_grad=True)
    torch.library.opcheck(
        getattr(_ops, operator).default, (x, layer.weight_values, layer.bias, *weight_of(layer), 64, 96, activation)
    )


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_opcheck_of_the_gradient_of_the_input(activation):
    layer = make_layer(64, 96)
    dy = torch.randn(5, 96, requires_grad=activation == "none")
    z = None if activation == "none" else torch.randn(5, 96)
    values = layer.weight_values if activation == "none" else layer.weight_values.detach()
    torch.library.opcheck(_ops.linear_grad_input.default, (dy, z, values, *weight_of(layer), 64, 96, activation))


@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize("bias", [True, False])
def test_opcheck_of_the_gradient_of_the_weight(activation, bias):
    layer = make_layer(64, 96)
    plain = activation == "none"
    x, dy = torch.randn(5, 64, requires_grad=plain), torch.randn(5, 96, requires_grad=plain)
    z = None if plain else torch.randn(5, 96)
    torch.library.opcheck(
        _ops.linear_grad_weight.default, (x, dy, z, *weight_of(layer), 32, 32, 64, 96, activation, bias)
    )


# ---- the way past the dispatcher, and the one through it ----


class _Seen(torch.utils._python_dispatch.TorchDispatchMode):
    """Names of the operators that were called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names.append(operator.name())
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_a_mode_sees_the_operators_and_results_have_the_same_bits(activation):
    layer = make_layer(activation=activation)
    x, dy = torch.randn(6, 100), torch.randn(6, 120)

    def run():
        leaf = x.clone().requires_grad_()
        layer.zero_grad()
        y = layer(leaf)
        y.backward(dy)
        return y.detach(), leaf.grad, layer.weight_values.grad, layer.bias.grad

    direct = run()
    with _Seen() as seen:
        dispatched = run()
    for one, other in zip(direct, dispatched):
        assert torch.equal(one, other)
    forward = "linear" if activation in ("none", "relu", "leaky_relu") else "linear_with_preactivation"
    assert [name for name in seen.names if "sparsekiln" in name] == [
        f"sparsekiln::{forward}", "sparsekiln::linear_grad_input", "sparsekiln::linear_grad_weight"
    ]  # fmt: skip


def test_the_forward_operator_alone_computes_z_again_for_its_gradient():
    layer = make_layer(activation="gelu")
    x, dy = torch.randn(6, 100, requires_grad=True), torch.randn(6, 120)
    dense = Dense(layer, x, dy)
    _ops.linear(x, layer.weight_values, layer.bias, *weight_of(layer), 100, 120, "gelu").backward(dy)
    dense.check("dx", x.grad)
    dense.check("dvalues", layer.weight_values.grad)


def test_z_of_the_operator_is_differentiable_too():
    layer = make_layer(activation="gelu")
    x, dy, dz = torch.randn(6, 100), torch.randn(6, 120), torch.randn(6, 120)
    y, z = _ops.linear_with_preactivation(x, layer.weight_values, layer.bias, *weight_of(layer), 100, 120, "gelu")
    found = torch.autograd.grad((y * dy + z * dz).sum(), layer.bias)[0]
    z = torch.nn.functional.linear(x, layer.to_dense(), layer.bias)
    expected = torch.autograd.grad((torch.nn.functional.gelu(z) * dy + z * dz).sum(), layer.bias)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


# ---- torch.compile ----


@pytest.mark.parametrize("backend", _BACKENDS)
@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
def test_a_training_step_compiles_as_one_graph(backend, activation):
    layer = make_layer(activation=activation)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    x, dy = torch.randn(4, 3, 100, requires_grad=True), torch.randn(4, 3, 120)
    dense = Dense(layer, x, dy)
    y = compiled(x)
    y.backward(dy)
    dense.check("y", y)
    dense.check("dx", x.grad)
    dense.check("dvalues", layer.weight_values.grad)
    dense.check("dbias", layer.bias.grad)


class _Counting:
    """A backend that counts the graphs it is given."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, module, inputs):
        self.graphs += 1
        return module.forward


def kernels_of(layer):
    """The number of its kernels of the forward pass: others may be compiled meanwhile."""
    return sum(kernel.op == "forward" for kernel in layer._kernels.kernels())


def test_another_batch_recompiles_neither_kernel_nor_graph():
    layer, counting = make_layer(density=0.45, seed=11), _Counting()
    compiled = torch.compile(layer, fullgraph=True, backend=counting)
    for n in (5, 64, 3, 130, 17):
        x = torch.randn(n, 100)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), layer(x), rtol=0, atol=0)
    assert counting.graphs == 1
    assert kernels_of(layer) == 1


def test_without_a_mark_there_is_dynamos_one_step_to_dynamic_shapes():
    layer, counting = make_layer(), _Counting()
    compiled = torch.compile(layer, fullgraph=True, backend=counting)
    for n in (5, 64, 3, 130, 17):
        compiled(torch.randn(n, 100)).sum().backward()
    assert counting.graphs == 2


def test_a_compiled_graph_follows_a_relayout():
    layer = make_layer(64, 64, density=0.5)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(3, 64)
    compiled(x)
    layer.relayout(~layer.layout.mask())
    torch.nn.init.normal_(layer.weight_values)
    torch.testing.assert_close(compiled(x), torch.nn.functional.linear(x, layer.to_dense(), layer.bias), rtol=1e-4, atol=1e-5)


def test_a_layer_amid_others_compiles_as_one_graph():
    model = torch.nn.Sequential(torch.nn.Linear(20, 100), make_layer(activation="relu"), torch.nn.Linear(120, 3))
    compiled = torch.compile(model, fullgraph=True, backend="inductor")
    x = torch.randn(6, 20)
    expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    found = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_refusals_are_sentences_in_compiled_code_too():
    with pytest.raises(Exception, match="(?s)float64.*float32"):
        torch.compile(make_layer(), fullgraph=True, backend="aot_eager")(torch.zeros(2, 100, dtype=torch.float64))


def blocks_of_one_class(densities):
    """Layers 192 -> 192 with a density each, every one with a layout of its own."""
    return [make_layer(192, 192, density, 16, activation="relu", seed=seed) for seed, density in enumerate(densities)]


@pytest.mark.parametrize("densities", [[0.3] * 12, [0.1 + 0.05 * number for number in range(12)]])
def test_layers_that_are_compiled_one_by_one_share_a_graph(densities):
    counting, layers = _Counting(), blocks_of_one_class(densities)
    x = torch.randn(4, 192)
    expected = [layer(x) for layer in layers]
    for layer, y in zip(layers, expected):
        layer.compile(fullgraph=True, backend=counting)
        assert torch.equal(layer(x), y)
    assert len({layer.layout for layer in layers}) == 12
    assert counting.graphs == 1


def test_two_hundred_relayouts_compile_a_graph_for_one_number_of_blocks_and_one_for_all(no_layer_seen):
    layer, counting = make_layer(64, 96, block=8), _Counting()
    compiled = torch.compile(layer, fullgraph=True, backend=counting)
    optimiser = torch.optim.Adam(layer.parameters(), 0.01)
    x = torch.randn(4, 64)
    for step in range(200):
        loss = compiled(x).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        layer.relayout(sparsekiln.patterns.random(12, 8, 0.1 + 0.004 * step, seed=step), optimiser)
        if step % 40 == 0:
            torch.testing.assert_close(compiled(x), torch.nn.functional.linear(x, layer.to_dense(), layer.bias), rtol=1e-4, atol=1e-5)
    assert counting.graphs == 2


def test_a_sparsifier_has_one_graph_from_the_beginning(no_layer_seen):
    model, counting, x = torch.nn.Sequential(torch.nn.Linear(256, 256)), _Counting(), torch.randn(3, 256)
    sparsifier = sparsekiln.torch.Sparsifier(model, 0.2, 16, end_step=4, every=1, leave_small=False)
    compiled = torch.compile(model, fullgraph=True, backend=counting)
    for _ in range(5):
        torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=0)
        sparsifier.step()
    assert counting.graphs == 1 and model[0].layout.density < 0.25


@pytest.mark.parametrize("backend", _BACKENDS)
def test_the_gradients_of_a_compiled_graph_have_as_many_blocks_as_the_layout(backend):
    layers = blocks_of_one_class([0.1, 0.5, 0.3])
    compiled = [torch.compile(layer, fullgraph=True, backend=backend) for layer in layers]
    x, dy = torch.randn(4, 192), torch.randn(4, 192)
    for layer, one in zip(layers, compiled):
        dense = Dense(layer, x, dy)
        one(x).backward(dy)
        dense.check("dvalues", layer.weight_values.grad)


def test_the_index_tensors_of_a_layer_are_not_read(monkeypatch):
    from sparsekiln.torch import kernels

    read = []
    monkeypatch.setattr(kernels, "layout_from_indices", lambda *_: read.append(1))
    layer = make_layer(64, 96)
    for compiled in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager"), copy.deepcopy(layer)):
        compiled(torch.randn(3, 64)).sum().backward()
    layer.relayout(~layer.layout.mask())
    layer(torch.randn(3, 64)).sum().backward()
    assert not read


# ---- torch.export ----


def exported(layer, *, dynamic=True):
    shapes = {"x": {0: torch.export.Dim("n", min=1, max=4096)}} if dynamic else None
    return torch.export.export(layer, (torch.randn(4, 100),), dynamic_shapes=shapes)


@pytest.mark.parametrize("activation", ["none", "gelu"])
def test_an_exported_program_takes_any_batch(activation):
    layer = make_layer(activation=activation)
    program = exported(layer).module()
    for n in (1, 4, 77):
        x = torch.randn(n, 100)
        torch.testing.assert_close(program(x), layer(x), rtol=1e-5, atol=1e-5)


_LOAD = """
import sys, torch, sparsekiln.torch
program = torch.export.load(sys.argv[1])
inputs, expected = torch.load(sys.argv[2])
for x, y in zip(inputs, expected):
    torch.testing.assert_close(program.module()(x), y, rtol=1e-5, atol=1e-5)
print("good")
"""


def test_an_exported_program_runs_in_another_process(tmp_path):
    layer = make_layer(activation="relu").eval()
    torch.export.save(exported(layer), tmp_path / "program.pt2")
    inputs = [torch.randn(n, 100) for n in (4, 9)]
    torch.save((inputs, [layer(x).detach() for x in inputs]), tmp_path / "expected.pt")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, tmp_path / "program.pt2", tmp_path / "expected.pt"],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert done.stdout.strip().endswith("good"), done.stderr


def test_an_exported_program_takes_the_state_of_another_layout_of_as_many_blocks(tmp_path):
    layer, other = make_layer(96, 96, 0.5, seed=1), make_layer(96, 96, 0.5, seed=2)
    torch.export.save(torch.export.export(layer, (torch.randn(4, 96),)), tmp_path / "program.pt2")
    program = torch.export.load(tmp_path / "program.pt2").module()
    assert layer.layout != other.layout and layer.layout.blocks == other.layout.blocks
    x = torch.randn(4, 96)
    torch.testing.assert_close(program(x), layer(x), rtol=0, atol=0)
    program.load_state_dict(other.state_dict(), strict=False)
    torch.testing.assert_close(program(x), other(x), rtol=0, atol=0)


def test_an_exported_program_that_shares_its_tensors_with_the_layer_refuses_that_state():
    layer, other = make_layer(96, 96, 0.5, seed=1), make_layer(96, 96, 0.5, seed=2)
    program = torch.export.export(layer, (torch.randn(4, 96),)).module()
    program.load_state_dict(other.state_dict(), strict=False)
    with pytest.raises(ValueError, match="changed outside of it; use BlockSparseLinear.relayout"):
        program(torch.randn(4, 96))


# ---- autocast ----


@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_the_regions_type_and_leaves_float32_gradients(dtype, activation):
    layer = make_layer(activation=activation)
    x, dy = torch.randn(6, 100, requires_grad=True), torch.randn(6, 120).to(dtype)
    with torch.autocast("cpu", dtype):
        y = layer(x)
    assert y.dtype == dtype
    y.backward(dy)
    assert {x.grad.dtype, layer.weight_values.grad.dtype, layer.bias.grad.dtype} == {torch.float32}
    dense = Dense(copy.deepcopy(layer).to(dtype), x.to(dtype), dy)
    dense.check("y", y)
    dense.check("dx", x.grad)
    dense.check("dvalues", layer.weight_values.grad)
    dense.check("dbias", layer.bias.grad)


def test_autocast_is_no_copy_for_a_layer_of_its_type():
    layer = make_layer(dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(torch.ones(2, 100)), layer(torch.ones(2, 100, dtype=torch.bfloat16)))


def test_autocast_compiles_as_one_graph():
    layer = make_layer()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(6, 100)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compiled(x), layer(x))
    assert compiled(x).dtype == torch.float32


class CudaTensor:
    is_cuda, device = True, "cuda:1"


class Recorder:
    """A stand-in for a kernel that needs 16 bytes of workspace a row, and so many for counters."""

    def __init__(self, counters):
        self.counters = counters

    def workspace_bytes(self, n):
        return 16 * n

    def workspace_counter_bytes(self):
        return self.counters

    def __call__(self, *operands, **named):
        return named


@pytest.mark.parametrize("capturing, counters", [(False, 64), (True, 64), (True, 0)])
def test_cuda_kernels_run_on_their_device_and_bring_workspace_to_graphs(monkeypatch, capturing, counters):
    """What PyTorch is asked for; no GPU takes part."""
    from sparsekiln.torch import launches

    asked = []
    full = torch.full
    monkeypatch.setattr(torch.cuda, "device", lambda device: asked.append(device) or contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    monkeypatch.setattr(torch, "empty", lambda size, dtype, device: asked.append(device) or full((size,), 7, dtype=dtype))
    named = launches.run(Recorder(counters), 5, CudaTensor(), bias=None)
    if not capturing:
        assert named == {"bias": None} and asked == ["cuda:1"]
        return
    workspace = named["workspace"]
    assert asked == ["cuda:1", "cuda:1"] and workspace.numel() == 80 and workspace.dtype is torch.uint8
    assert not workspace[:counters].any() and (workspace[counters:] == 7).all()
