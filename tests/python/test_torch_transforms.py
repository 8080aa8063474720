"""What else PyTorch does with a layer: torch.func, parametrizations, ONNX, meta tensors, FLOP counts."""

import io
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import torch.nn.utils.prune  # noqa: E402
from dense_layer import FUNCTIONS, blocks_of, make_layer  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import (  # noqa: E402
    BlockSparseConv2d, BlockSparseConvTranspose2d, BlockSparseLinear, BlockSparseLSTM, BlockSparseLSTMCell, SmallWorldLSTM, lstm_cell,
    normalised_linear, normalised_lstm_cell,
)  # fmt: skip

prune, parametrizations = torch.nn.utils.prune, torch.nn.utils.parametrizations
_ACTIVATIONS = [None, "relu", "gelu"]
_GRID = sparsekiln.patterns.random(4, 4, 0.5, 1)


def pair(activation):
    """A layer, and the same as a function of a dense weight."""
    layer = make_layer(40, 48, block=8, activation=activation)

    def dense(weight, bias, x):
        return FUNCTIONS[activation or "none"](torch.nn.functional.linear(x, weight, bias))

    def sparse(values, bias, x):
        return torch.func.functional_call(layer, {"weight_values": values, "bias": bias}, (x,))

    parameters = layer.weight_values.detach(), layer.bias.detach()
    return layer, sparse, parameters, dense, (layer.to_dense().detach(), layer.bias.detach())


def same(one, other):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


# ---- torch.func ----


@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_grad(activation):
    layer, sparse, ours, dense, theirs = pair(activation)
    x = torch.randn(5, 40)
    found = torch.func.grad(lambda *p: sparse(*p, x).square().sum(), argnums=(0, 1))(*ours)
    expected = torch.func.grad(lambda *p: dense(*p, x).square().sum(), argnums=(0, 1))(*theirs)
    same(found[0], blocks_of(layer, expected[0]))
    same(found[1], expected[1])


@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_gradients_of_each_sample(activation):
    layer, sparse, ours, dense, theirs = pair(activation)
    x = torch.randn(6, 40)
    found = torch.func.vmap(torch.func.grad(lambda v, x: sparse(v, ours[1], x).square().sum()), (None, 0))(ours[0], x)
    expected = torch.func.vmap(torch.func.grad(lambda w, x: dense(w, theirs[1], x).square().sum()), (None, 0))(theirs[0], x)
    same(found, torch.stack([blocks_of(layer, one) for one in expected]))


@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_vjp_and_jacrev(activation):
    layer, sparse, ours, dense, theirs = pair(activation)
    x, dy = torch.randn(3, 40), torch.randn(3, 48)
    same(torch.func.vjp(layer, x)[1](dy)[0], torch.func.vjp(lambda x: dense(*theirs, x), x)[1](dy)[0])
    same(torch.func.jacrev(layer)(x), torch.func.jacrev(lambda x: dense(*theirs, x))(x))


@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_a_hessian_by_two_reverse_passes(activation):
    _, sparse, ours, dense, theirs = pair(activation)
    x = torch.randn(40)

    def hessian(apply, parameters):
        return torch.func.jacrev(torch.func.jacrev(lambda x: apply(*parameters, x).square().sum()))(x)

    same(hessian(sparse, ours), hessian(dense, theirs))


@pytest.mark.parametrize("dim", [0, 1])
def test_a_batch_of_inputs_is_one_launch(dim, monkeypatch):
    from sparsekiln.torch.linear import products

    layer, _, _, dense, theirs = pair("gelu")
    x, launches, run = torch.randn(4, 3, 40), [], products.run
    monkeypatch.setattr(products, "run", lambda *arguments, **named: launches.append(1) or run(*arguments, **named))
    same(torch.func.vmap(layer, dim)(x), dense(*theirs, x).movedim(dim, 0))
    assert len(launches) == 1


def test_an_ensemble_of_weights():
    layer, sparse, ours, _, _ = pair("gelu")
    values, bias, x = torch.stack([ours[0], 2 * ours[0]]), torch.stack([ours[1], -ours[1]]), torch.randn(3, 40)
    found = torch.func.vmap(sparse, (0, 0, None))(values, bias, x)
    same(found, torch.stack([sparse(values[number], bias[number], x) for number in range(2)]))


@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_gradients_that_are_batched(activation):
    layer, _, _, dense, theirs = pair(activation)
    x, dy = torch.randn(5, 40, requires_grad=True), torch.randn(7, 5, 48)
    found = torch.autograd.grad(layer(x), (x, layer.weight_values, layer.bias), dy, is_grads_batched=True)
    for number in range(7):
        expected = torch.autograd.grad(layer(x), (x, layer.weight_values, layer.bias), dy[number])
        for one, other in zip(found, expected):
            same(one[number], other)


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_gradients_of_each_sample_of_a_batch_that_may_be_empty(activation, n):
    """As differential privacy draws it."""
    layer, sparse, (values, bias), _, _ = pair(activation)

    def loss(values, bias, x):
        return sparse(values, bias, x[None]).square().sum()

    gradients = torch.func.vmap(torch.func.grad(loss, (0, 1)), (None, None, 0))(values, bias, torch.randn(n, 40))
    assert [one.shape for one in gradients] == [(n, *values.shape), (n, *bias.shape)]


@pytest.mark.parametrize("make", [
    lambda: (BlockSparseConv2d(64, 64, 3, layout=_GRID, block=16), (64, 6, 6)),
    lambda: (BlockSparseConv2d(64, 64, 1, layout=_GRID, block=16), (64, 6, 6)),
    lambda: (BlockSparseConv2d(64, 64, 3, padding=1, layout=_GRID, block=16, edge_bias=6), (64, 6, 6)),
    lambda: (BlockSparseConvTranspose2d(64, 64, 3, layout=_GRID, block=16), (64, 6, 6)),
    lambda: (BlockSparseLinear(64, 64, _GRID, 16, activation="gelu"), (64,)),
])  # fmt: skip
def test_a_batch_of_no_batches(make):
    layer, shape = make()
    several = torch.func.vmap(layer)(torch.randn(2, 3, *shape))
    for size, n in ((0, 3), (2, 0), (0, 0)):
        assert torch.func.vmap(layer)(torch.randn(size, n, *shape)).shape == (size, n, *several.shape[2:])
    with torch.no_grad():
        assert torch.func.vmap(layer)(torch.randn(0, 3, *shape)).dtype == torch.float32


@pytest.mark.parametrize("make, shape", [
    (lambda: BlockSparseLSTM(32, 64, 2, layout=_GRID, block=16), (5, 3, 32)),
    (lambda: BlockSparseLSTM(64, 64, bidirectional=True, layout=_GRID, input_layout=_GRID, block=16), (5, 3, 64)),
    (lambda: BlockSparseLSTMCell(32, 64, layout=_GRID, block=16), (3, 32)),
    (lambda: SmallWorldLSTM(32, 64, block=16, density=0.5), (5, 3, 32)),
])  # fmt: skip
@pytest.mark.parametrize("dim", [0, 1])
def test_a_batch_of_sequences(make, shape, dim):
    layer, x = make(), torch.randn(3, *shape)
    expected = [layer(one) for one in x]
    y, state = torch.func.vmap(layer, dim)(x.movedim(0, dim))
    for mine, theirs in zip((y, *(state if isinstance(state, tuple) else (state,))), zip(*(_flat(one) for one in expected))):
        same(mine, torch.stack(theirs))
    ours = torch.autograd.grad(y.square().sum(), list(layer.parameters()))
    theirs = torch.autograd.grad(sum(one[0].square().sum() for one in expected), list(layer.parameters()))
    for mine, other in zip(ours, theirs):
        same(mine, other)
    assert torch.func.vmap(layer)(torch.randn(0, *shape))[0].shape == (0, *y.shape[1:])


def _flat(result):
    y, state = result
    return (y, *(state if isinstance(state, tuple) else (state,)))


def test_a_batch_of_normalised_products():
    weight, x, c = torch.randn(256, 64).to_sparse_bsr((16, 16)), torch.randn(4, 3, 64, requires_grad=True), torch.randn(3, 64)
    for call in (lambda x: normalised_linear(x, weight, activation="relu"), lambda x: normalised_lstm_cell(x, c, weight)[0],
                 lambda x: lstm_cell(torch.ones(3, 256), x, c, weight)[0]):  # fmt: skip
        together, apart = torch.func.vmap(call)(x), torch.stack([call(one) for one in x])
        same(together, apart)
        same(*(torch.autograd.grad(one.square().sum(), x)[0] for one in (together, apart)))


def test_room_for_blocks_under_transforms():
    layer = BlockSparseLinear(16, 16, [[1, 0], [1, 1]], 8, max_blocks=4)
    gradient = torch.func.grad(lambda v: torch.func.functional_call(layer, {"weight_values": v}, (torch.ones(2, 16),)).sum())
    assert torch.equal(gradient(layer.weight_values.detach()), torch.cat([torch.full((3, 8, 8), 2.0), torch.zeros(1, 8, 8)]))


# ---- parametrizations and pruning ----


@pytest.mark.parametrize("tool", [parametrizations.weight_norm, parametrizations.orthogonal, parametrizations.spectral_norm])
def test_parametrized_values_train(tool):
    layer = tool(make_layer(64, 64, block=16), "weight_values")
    x = torch.randn(3, 64)
    layer(x).sum().backward()
    assert any(one.grad is not None and one.grad.any() for one in layer.parametrizations.parameters())
    layer.eval()  # spectral_norm changes at each use in training
    same(layer(x), torch.nn.functional.linear(x, layer.to_dense(), layer.bias))
    torch.nn.utils.parametrize.remove_parametrizations(layer, "weight_values")
    assert isinstance(layer.weight_values, torch.nn.Parameter)


def test_pruned_values_stay_zeros():
    layer = make_layer(64, 64, block=16)
    prune.l1_unstructured(layer, "weight_values", 0.5)
    assert (layer.to_dense() != 0).sum() == layer.weight_values_orig.numel() // 2
    x = torch.randn(3, 64)
    layer(x).sum().backward()
    assert not layer.weight_values_orig.grad[layer.weight_values_mask == 0].any()


@pytest.mark.parametrize("features", [(64, 96), (60, 90)])
@pytest.mark.parametrize(
    "tool",
    [
        parametrizations.weight_norm,
        parametrizations.orthogonal,
        parametrizations.spectral_norm,
        pytest.param(torch.nn.utils.weight_norm, marks=pytest.mark.filterwarnings("ignore::FutureWarning")),
        lambda layer, name: prune.l1_unstructured(layer, name, 0.5),
        lambda layer, name: prune.ln_structured(layer, name, 0.5, 2, 0),
        lambda layer, name: prune.random_unstructured(layer, name, 0.5),
        lambda layer, name: torch.nn.utils.parametrize.register_parametrization(layer, name, torch.nn.Identity()),
    ],
)
def test_tools_on_the_computed_weight_are_refused(tool, features):
    layer = make_layer(*features, block=16)
    before = set(layer.state_dict())
    with pytest.raises(TypeError, match="cannot work on 'weight' of a BlockSparseLinear.*'weight_values'.*relayout"):
        tool(layer, "weight")
    assert set(layer.state_dict()) == before and not hasattr(layer, "parametrizations")
    assert layer.weight.shape == layer.to_dense().shape


# ---- ONNX ----


@pytest.mark.parametrize("activation", _ACTIVATIONS)
@pytest.mark.filterwarnings("ignore")
def test_onnx_by_torchscript(activation, monkeypatch):
    from torch.onnx._internal.torchscript_exporter import onnx_proto_utils

    # What needs the package onnx: functions of onnxscript, of which there are none.
    monkeypatch.setattr(onnx_proto_utils, "_add_onnxscript_fn", lambda model, operators: model)
    file = io.BytesIO()
    torch.onnx.export(make_layer(40, 48, block=8, activation=activation), (torch.randn(3, 40),), file, dynamo=False)
    assert b"sparsekiln" not in file.getvalue() and b"Gemm" in file.getvalue()


@pytest.mark.parametrize("activation", _ACTIVATIONS)
@pytest.mark.filterwarnings("ignore")
def test_onnx_by_torch_export(activation):
    pytest.importorskip("onnxscript")
    layer, x = make_layer(40, 48, block=8, activation=activation), torch.randn(3, 40)
    program = torch.onnx.export(layer, (x,), dynamo=True, verbose=False)
    names = {node.op_type for node in program.model.graph}
    assert {node.domain for node in program.model.graph} == {""} and "Gemm" in names
    assert "sparsekiln" not in str(program.exported_program.graph)


def test_what_onnx_exporters_are_given_is_of_standard_operators(monkeypatch):
    layer, _, _, dense, theirs = pair("gelu")
    x = torch.randn(3, 40)
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    program = torch.export.export(layer, (x,))
    assert "sparsekiln" not in str(program.graph)
    same(program.module()(x), layer(x))


# ---- without memory, and counted ----


@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_meta_tensors(activation):
    layer = BlockSparseLinear(40, 48, [[1, 0], [1, 1]], 32, activation=activation, device="meta")
    x = torch.randn(2, 3, 40, device="meta", requires_grad=True)
    y = layer(x)
    assert y.is_meta and y.shape == (2, 3, 48)
    y.sum().backward()
    assert x.grad.shape == x.shape and layer.weight_values.grad.shape == (3, 32, 32) and layer.bias.grad.shape == (48,)
    with torch.no_grad():
        assert layer(x).shape == (2, 3, 48)


@pytest.mark.parametrize("max_blocks", [None, 20])
@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_the_flop_counter_counts_present_blocks(activation, max_blocks):
    from torch.utils.flop_counter import FlopCounterMode

    layer = BlockSparseLinear(48, 64, [[1, 0, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0]], 16, activation=activation, max_blocks=max_blocks)
    x = torch.randn(7, 48, requires_grad=True)
    once = 2 * 5 * 16 * 16 * 7
    with FlopCounterMode(display=False) as forward:
        y = layer(x)
    with FlopCounterMode(display=False) as both:
        layer(x).sum().backward()
    assert (forward.get_total_flops(), both.get_total_flops()) == (once, 3 * once) and y.shape == (7, 64)


_COUNTS_LATER = """
import sys
import torch
import sparsekiln.torch
assert "torch.utils.flop_counter" not in sys.modules  # which imports Triton, where that is installed
from torch.utils.flop_counter import FlopCounterMode
layer = sparsekiln.torch.BlockSparseLinear(32, 32, [[1, 0], [1, 1]], 16)
with FlopCounterMode(display=False) as counter:
    layer(torch.zeros(5, 32))
assert counter.get_total_flops() == 2 * 3 * 16 * 16 * 5
import torch.utils._pytree, json.tool  # modules are found as before
assert all(type(finder).__name__ != "_Finder" or finder.find_spec("json.decoder", None) is None for finder in sys.meta_path)
"""


def test_the_flop_counter_is_imported_by_those_who_count():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", _COUNTS_LATER], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("make, shape", [
    (lambda: BlockSparseLinear(64, 64, [[1, 0], [1, 1]]), (0, 3, 64)),
    (lambda: BlockSparseConv2d(32, 32, 3, layout=[[1]]), (0, 1, 32, 5, 5)),
])  # fmt: skip
def test_results_of_no_entries_have_gradients_of_zeros(make, shape):
    layer = make()
    torch.func.vmap(layer)(torch.randn(shape)).sum().backward()
    for parameter in layer.parameters():
        assert parameter.grad is not None and not parameter.grad.any()
