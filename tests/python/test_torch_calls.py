"""Calls that are launched in C++: what they compute, when Python is asked, and what they leave to it."""

import gc
import os
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import sparsekiln as sk  # noqa: E402
from sparsekiln.torch import (  # noqa: E402
    BlockSparseLinear, baking, kernels, operator_library, overlapping_launches,
)  # fmt: skip
from sparsekiln.torch.linear import library_operators, products  # noqa: E402

pytestmark = pytest.mark.skipif(operator_library.functions is None, reason="the package was built without PyTorch's headers")

_LAYOUT = sk.patterns.random(5, 5, 0.5, seed=61)
_OTHER = sk.patterns.random(5, 5, 0.5, seed=62)
ACTIVATIONS = ("none", "relu", "gelu")
SHAPES = ((3, 80), (80,), (2, 3, 80), (0, 80))


@pytest.fixture
def asked(monkeypatch):
    """The operations that Python has launched."""
    launched, run = [], products.run

    def noted(kernel, *operands, **named):
        launched.append(kernel.op)
        return run(kernel, *operands, **named)

    monkeypatch.setattr(products, "run", noted)
    return launched


def make_layer(layout=_LAYOUT, **options) -> BlockSparseLinear:
    torch.manual_seed(0)
    return BlockSparseLinear(80, 80, layout, 16, **options)


def operands(layer: BlockSparseLinear) -> tuple:
    """What the operators take after the input."""
    return layer.weight_values, layer.bias, layer.crow_indices, layer.col_indices, 80, 80, layer.activation


def dense_of(layer: BlockSparseLinear, x):
    return torch.nn.functional.linear(x, layer.to_dense(), layer.bias)


def train(layer, x, dy):
    """The output, and the gradients of input, weight and bias."""
    x = x.clone().requires_grad_()
    y = layer(x)
    return y.detach(), *torch.autograd.grad(y, (x, layer.weight_values, layer.bias), dy)


# ---- when Python is asked ----


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_only_the_first_call_asks_python(asked, shape):
    layer, x = make_layer(), torch.randn(shape)
    with torch.no_grad():
        layer(x)
        assert asked == ["forward"]
        layer(x)
    assert asked == ["forward"]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_only_the_first_step_of_training_asks_python(asked, activation):
    layer, x = make_layer(activation=activation), torch.randn(3, 80)
    train(layer, x, torch.ones(3, 80))
    assert sorted(asked) == ["forward", "grad_input", "grad_weight"]
    train(layer, x, torch.ones(3, 80))
    train(layer, x, torch.ones(1).expand(3, 80))  # as from a sum
    assert len(asked) == 3


def test_calls_within_overlapping_launches_ask_python(asked):
    layer, x = make_layer(), torch.randn(3, 80)
    with torch.no_grad():
        layer(x)
        with overlapping_launches():
            layer(x)
        assert len(asked) == 2
        layer(x)
    assert len(asked) == 2


def test_a_layer_that_asks_for_overlap_asks_python(asked):
    layer, x = make_layer(overlap=True), torch.randn(3, 80)
    with torch.no_grad():
        layer(x), layer(x)
    assert len(asked) == 2


def test_kernels_of_a_layer_that_is_gone_are_forgotten():
    gc.collect()
    before = operator_library.functions.sparsekiln_torch_known()
    layer = make_layer()
    train(layer, torch.randn(3, 80), torch.ones(3, 80))
    assert operator_library.functions.sparsekiln_torch_known() == before + 3
    del layer
    gc.collect()
    assert operator_library.functions.sparsekiln_torch_known() == before


def test_baked_kernels_take_the_place_of_those_with_tables(asked, monkeypatch):
    monkeypatch.setattr(kernels, "is_baked_later", lambda use: True)
    monkeypatch.setattr(baking, "CALLS", 4)
    monkeypatch.setattr(baking, "SECONDS", 0)
    monkeypatch.setattr(baking, "_on", True)
    layer, x = make_layer(sk.patterns.random(5, 5, 0.5, seed=63)), torch.randn(3, 80)
    with torch.no_grad():
        results = [layer(x) for _ in range(3)]
        assert asked == ["forward"]
        results += [layer(x) for _ in range(2)]
        baking.worker.wait()
        made = kernels.kernels_of(layer.layout)
        assert len(made._replaced) == 1, "four calls were counted"
        asked.clear()
        results += [layer(x) for _ in range(6)]
    assert asked == ["forward"], "one call finds the baked kernel, which the others launch"
    assert all(torch.equal(one, results[0]) for one in results)


# ---- the same bits as by Python ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_results_have_the_bits_that_python_computes(dtype, bias, activation):
    layer = make_layer(activation=activation, bias=bias, dtype=dtype, max_blocks=20)
    x, dy = torch.randn(3, 80, dtype=dtype), torch.randn(3, 80, dtype=dtype)
    z = None if activation == "none" else torch.randn(3, 80, dtype=dtype)
    values, offsets, *rest = operands(layer)
    calls = {
        "linear": (x, values, offsets, *rest, False),
        "grad_input": (dy, z, values, *rest, False),
        "grad_weight": (x, dy, z, *rest[:2], 16, 16, *rest[2:], bias),
    }
    with torch.no_grad():
        for name, arguments in calls.items():
            wanted = getattr(products, name)(*arguments)
            for _ in range(2):
                found = getattr(library_operators, name)(*arguments)
                torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_training_has_the_bits_of_the_operators(activation):
    layer, x, dy = make_layer(activation=activation), torch.randn(3, 80), torch.randn(3, 80)
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    with Mode():
        wanted = train(layer, x, dy)
    for _ in range(2):
        for one, other in zip(train(layer, x, dy), wanted, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_activations_of_any_rank_are_rows(shape):
    layer, x = make_layer(), torch.randn(shape)
    rows = x.reshape(-1, 80)
    wanted = train(layer, rows, torch.ones_like(rows))
    for _ in range(2):
        found = train(layer, x, torch.ones_like(x))
        assert found[0].shape == found[1].shape == x.shape
        for one, other in zip(found, wanted, strict=True):
            assert torch.equal(one.reshape(other.shape), other)


def test_inputs_that_kernels_do_not_read_in_place_are_copied():
    layer = make_layer()
    inputs = {
        "columns": torch.randn(80, 3).T,
        "every other row": torch.randn(6, 80)[::2],
        "part of a row": torch.randn(3, 100)[:, 3:83],
        "one row again": torch.randn(1, 80).expand(3, 80),
        "transposed images": torch.randn(3, 80, 4).transpose(1, 2),
        "negated": torch.randn(3, 80, dtype=torch.complex64).conj().imag,
    }
    for name, x in inputs.items():
        for _ in range(2):
            torch.testing.assert_close(layer(x), layer(x.clone()), rtol=0, atol=0, msg=name)
            layer(x).sum().backward()


def test_second_derivatives_of_activations_of_rank_3():
    layer = make_layer(dtype=torch.float64)
    x = torch.randn(2, 3, 80, dtype=torch.float64, requires_grad=True)

    def output(x, values):
        return torch.func.functional_call(layer, {"weight_values": values}, (x,)) ** 2

    for derivatives in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert derivatives(output, (x, layer.weight_values), fast_mode=True)


# ---- index tensors ----


def test_index_tensors_that_are_written_to_are_read_again(asked):
    layer, other, x = make_layer(), make_layer(_OTHER), torch.randn(3, 80)
    assert layer.layout.blocks == other.layout.blocks
    values, bias, crow, col, *rest = operands(layer)
    crow, col = crow.clone(), col.clone()
    with torch.no_grad():
        for source in (layer, other, layer):
            crow.copy_(source.crow_indices)
            col.copy_(source.col_indices)
            source.weight_values.copy_(values)
            source.bias.copy_(bias)
            for _ in range(2):
                torch.testing.assert_close(library_operators.linear(x, values, bias, crow, col, *rest, False), dense_of(source, x))
    assert len(asked) == 6  # no layer owns these: others may have their memory and counts of their own


def test_what_a_layer_refuses_of_its_index_tensors_it_refuses_after_calls():
    layer, x = make_layer(), torch.randn(3, 80)
    with torch.no_grad():
        layer(x), layer(x)
        layer.crow_indices.copy_(torch.from_numpy(_OTHER.crow.copy()))
        layer.col_indices.copy_(torch.from_numpy(_OTHER.col.copy()))
        with pytest.raises(ValueError, match="hold the layout"):
            layer(x)


def test_index_tensors_of_one_memory_with_counts_of_their_own_are_told_apart():
    import numpy as np

    layers = [make_layer(layout) for layout in (_LAYOUT, _OTHER)]
    x = torch.randn(3, 80)
    crow, col = np.zeros(6, np.int32), np.zeros(25, np.int32)
    kept = []
    with torch.no_grad():
        for layer in layers:
            crow[:], col[: layer.layout.blocks] = layer.layout.crow, layer.layout.col
            indices = torch.from_numpy(crow), torch.from_numpy(col[: layer.layout.blocks])
            kept.append(indices)
            y = library_operators.linear(x, layer.weight_values, layer.bias, *indices, 80, 80, "none", False)
            torch.testing.assert_close(y, dense_of(layer, x))


def test_memory_that_is_moved_is_not_taken_for_another():
    layer, x = make_layer(), torch.randn(3, 80)
    with torch.no_grad():
        layer(x)
        layer.crow_indices.share_memory_()
        layer.col_indices.share_memory_()
        others = [make_layer(_OTHER) for _ in range(8)]  # perhaps where the first one's were
        for one in (layer, *others):
            torch.testing.assert_close(one(x), dense_of(one, x))


@pytest.mark.parametrize("shape", [(3, 80), (2, 3, 80), (80,)], ids=str)
def test_a_backward_pass_within_vmap_takes_activations_of_any_rank(shape):
    layer = make_layer()
    x = torch.randn(shape, requires_grad=True)
    y, directions = layer(x), torch.randn(4, *shape)
    dx = torch.func.vmap(lambda dy: torch.autograd.grad(y, x, dy, retain_graph=True)[0])(directions)
    torch.testing.assert_close(dx, directions @ layer.to_dense().detach())


def test_compiled_graphs_have_second_derivatives():
    layer, x = make_layer(), torch.randn(3, 80, requires_grad=True)
    compiled = torch.compile(layer, backend="eager")
    (dx,) = torch.autograd.grad((compiled(x) ** 2).sum(), x, create_graph=True)
    (given,) = torch.autograd.grad((dx**2).sum(), layer.weight_values)
    weight = layer.to_dense()
    y = torch.nn.functional.linear(x, weight, layer.bias)
    (wanted,) = torch.autograd.grad(((2 * y @ weight) ** 2).sum(), layer.weight_values)
    torch.testing.assert_close(given, wanted, rtol=1e-3, atol=1e-3)


def test_another_layout_at_the_same_address_is_not_taken_for_the_first():
    x, values = torch.randn(3, 80), torch.randn(_LAYOUT.blocks, 16, 16)
    for number in range(40):
        layout = (_LAYOUT, _OTHER)[number % 2]
        crow, col = (torch.from_numpy(one.copy()).clone() for one in (layout.crow, layout.col))
        found = [library_operators.linear(x, values, None, crow, col, 80, 80, "none", False) for _ in range(2)]
        wanted = products.linear(x, values, None, crow, col, 80, 80, "none")
        assert all(torch.equal(one, wanted) for one in found)
        del crow, col


def test_index_tensors_to_which_pytorch_counts_no_writes_ask_python(asked):
    with torch.inference_mode():
        layer, x = make_layer(), torch.randn(3, 80)
        layer(x), layer(x)
        torch.testing.assert_close(layer(x), dense_of(layer, x))
    assert len(asked) == 3


def test_a_layer_with_room_moves_to_another_layout():
    layer, x = make_layer(max_blocks=25), torch.randn(3, 80)
    for layout in (_LAYOUT, _OTHER, sk.patterns.random(5, 5, 0.9, seed=64), _LAYOUT):
        layer.relayout(layout)
        for _ in range(2):
            y, dx, dw, dbias = train(layer, x, torch.ones(3, 80))
            torch.testing.assert_close(y, dense_of(layer, x).detach())
            assert dw.shape[0] == 25 and int(dw.flatten(1).any(1).sum()) == layout.blocks


# ---- refusals ----


@pytest.mark.parametrize("error, x", [(ValueError, torch.randn(3, 79)), (TypeError, torch.randn(3, 80, dtype=torch.float64)),
                                      (TypeError, None), (ValueError, torch.tensor(1.0))])  # fmt: skip
def test_refusals_are_those_of_python(error, x):
    layer = make_layer()
    layer(torch.randn(3, 80))
    for _ in range(2):
        with pytest.raises(error, match="input"):
            layer(x)
    with torch.no_grad(), pytest.raises(error, match="input"):
        layer(x)


# ---- threads and processes ----


def test_threads_launch_at_once():
    layers, x = [make_layer(sk.patterns.random(5, 5, 0.5, seed=70 + seed)) for seed in range(4)], torch.randn(3, 80)
    wanted, wrong = [dense_of(layer, x).detach() for layer in layers], []

    def work():
        for _ in range(50):
            for layer, one in zip(layers, wanted):
                y, *_ = train(layer, x, torch.ones(3, 80))
                if not torch.allclose(y, one, atol=1e-5):
                    wrong.append(layer)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


_FORKS = """
import os, torch
import sparsekiln as sk
from sparsekiln.torch import BlockSparseLinear, operator_library
torch.set_num_threads(1)
layer, x = BlockSparseLinear(80, 80, sk.patterns.random(5, 5, 0.5, seed=61), 16), torch.randn(3, 80)
with torch.no_grad():
    wanted = layer(x)
    child = os.fork()
    same = torch.equal(layer(x), wanted)
    if child == 0:
        os._exit(0 if same else 1)
    assert same and os.waitpid(child, 0)[1] == 0
print(operator_library.functions is not None)
"""

_WITHOUT = """
import torch
def refuse(path):
    raise OSError(path)
torch.ops.load_library = refuse
""" + _FORKS


@pytest.mark.parametrize("program, there", [(_FORKS, "True"), (_WITHOUT, "False")], ids=["forked", "without the library"])
def test_processes(program, there):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, there), done.stderr


_STUB = os.environ.get("SPARSEKILN_STUB_DRIVER", "")
_PRETENDS = """
import sys, torch, pathlib
sys.path.insert(0, sys.argv[1])
import torch_calls
from sparsekiln import Error
from sparsekiln.torch import BlockSparseLinear
from sparsekiln.torch.linear import products
import sparsekiln as sk
torch_calls.pretend_cuda(sys.argv[2])
asked, run = [], products.run
def noted(kernel, *operands, **named):
    asked.append(kernel.target)
    return run(kernel, *operands, **named)
products.run = noted
layer, x = BlockSparseLinear(64, 64, sk.Layout([[True, False], [True, True]]), 32), torch.randn(3, 64, requires_grad=True)
try:
    for _ in range(3):
        layer(x).mean().backward()
except Error as error:
    print("skip", error)
else:
    print(len(asked), *sorted(set(asked)))
"""


@pytest.mark.skipif(not _STUB, reason="SPARSEKILN_STUB_DRIVER names no driver")
def test_calls_on_cuda_tensors_are_launched_in_cpp():
    bench = os.path.join(os.path.dirname(__file__), "..", "..", "bench")
    done = subprocess.run([sys.executable, "-c", _PRETENDS, bench, _STUB], capture_output=True, text=True, timeout=600)
    if done.stdout.startswith("skip"):
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "sm_90:132"]


# ---- torch.compile and torch.export ----


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_compiled_graphs_call_the_operators_in_cpp(activation):
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    called = []

    def compiler(graph, inputs):
        called.extend(node.target for node in graph.graph.nodes if "sparsekiln" in str(node.target))
        return make_boxed_func(graph.forward)

    layer, x = make_layer(activation=activation), torch.randn(3, 80)
    compiled = torch.compile(layer, backend=aot_autograd(fw_compiler=compiler), fullgraph=True)
    wanted = train(layer, x, torch.ones(3, 80))
    for one, other in zip(train(compiled, x, torch.ones(3, 80)), wanted, strict=True):
        assert torch.equal(one, other)
    with torch.no_grad():
        assert torch.equal(compiled(x), layer(x))
    ops = torch.ops.sparsekiln
    assert set(called) == {ops._linear.default, ops._linear_gradients.default}


def test_a_compiled_graph_notices_writes_to_index_tensors():
    layer, x = make_layer(max_blocks=25), torch.randn(3, 80)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for layout in (_LAYOUT, _OTHER, _LAYOUT):
            layer.relayout(layout)
            for _ in range(2):
                torch.testing.assert_close(compiled(x), dense_of(layer, x))


def test_exported_programs_name_the_operator_of_every_package():
    program = torch.export.export(make_layer(), (torch.randn(3, 80),))
    called = {node.target for node in program.graph.nodes if "sparsekiln" in str(node.target)}
    assert called == {torch.ops.sparsekiln.linear.default}
