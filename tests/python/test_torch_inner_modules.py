"""Layers within a recurrent layer are called as modules, so that what works by hooks of their calls works."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import numpy as np  # noqa: E402
from process_group import two  # noqa: E402, F401 - a fixture
from torch.nn.utils import prune  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import BlockSparseLinear, BlockSparseLSTM, BlockSparseLSTMCell, SmallWorldLSTM, weight_norm  # noqa: E402

_ALL = np.ones((4, 4), bool)


def make_lstm():
    return BlockSparseLSTM(32, 64, 2, bidirectional=True, layout=sparsekiln.patterns.random(4, 4, 0.6, 1), input_layout=None, block=16)


def make_cell():
    return BlockSparseLSTMCell(64, 64, layout=_ALL, input_layout=_ALL, block=16)


def make_small_world():
    return SmallWorldLSTM(32, 64, block=16, density=0.5)


LAYERS = {"lstm": (make_lstm, (5, 3, 32)), "cell": (make_cell, (3, 64)), "small world": (make_small_world, (5, 3, 32))}
EACH = pytest.mark.parametrize("kind", list(LAYERS))


def output(layer, x):
    """From a state that is not zero, of which a recurrent weight would make nothing."""
    n, generator, inner = x.shape[-2], torch.Generator().manual_seed(7), getattr(layer, "_orig_mod", layer)
    states = (n, 64) if isinstance(inner, BlockSparseLSTMCell) else (4 if isinstance(inner, BlockSparseLSTM) else 1, n, 64)
    return layer(x, (torch.randn(states, generator=generator), torch.randn(states, generator=generator)))[0]


def parts(layer):
    """The modules that have parameters, by name."""
    return {name: one for name, one in layer.named_modules() if name and next(one.parameters(recurse=False), None) is not None}


@EACH
@pytest.mark.parametrize("grad", [True, False])
def test_hooks_of_each_inner_module_run_once(kind, grad):
    make, shape = LAYERS[kind]
    layer = make()
    before, after = dict.fromkeys(parts(layer), 0), dict.fromkeys(parts(layer), 0)
    expected = output(layer, x := torch.randn(shape))
    for name, part in parts(layer).items():
        part.register_forward_pre_hook(lambda *_, name=name: before.__setitem__(name, before[name] + 1))
        part.register_forward_hook(lambda *_, name=name: after.__setitem__(name, after[name] + 1))
    with torch.set_grad_enabled(grad):
        assert torch.equal(output(layer, x), expected)
    assert set(before.values()) == set(after.values()) == {1}
    assert len(before) == {"lstm": 8, "cell": 2, "small world": 15}[kind]


@EACH
def test_values_that_a_hook_gives_to_an_inner_module_are_used(kind):
    make, shape = LAYERS[kind]
    for name in parts(make()):
        layer, x = make(), torch.randn(shape)
        expected = copy.deepcopy(layer)
        with torch.no_grad():
            for parameter in expected.get_submodule(name).parameters():
                parameter.mul_(0.5)
        assert not torch.equal(output(expected, x), output(layer, x))

        @torch.no_grad()
        def halve(part, _):
            for parameter in part.parameters():
                parameter.mul_(0.5)

        @torch.no_grad()
        def restore(part, *_):
            for parameter in part.parameters():
                parameter.mul_(2)

        part = layer.get_submodule(name)
        part.register_forward_pre_hook(halve)
        part.register_forward_hook(restore)
        with torch.no_grad():
            assert torch.equal(output(layer, x), output(expected, x))


@EACH
def test_an_inner_layer_that_is_pruned_or_parametrized_trains(kind):
    make, shape = LAYERS[kind]
    for name, part in parts(make()).items():
        if not isinstance(part, BlockSparseLinear):
            continue
        for way in ("pruned", "parametrized"):
            layer = make()
            part = layer.get_submodule(name)
            if way == "pruned":
                prune.l1_unstructured(part, "weight_values", 0.5)
                parameter = part.weight_values_orig
            else:
                weight_norm(part)
                parameter = part.parametrizations.weight_values.original1
            before = parameter.detach().clone()
            optimizer = torch.optim.SGD(layer.parameters(), 0.1)
            for _ in range(3):
                optimizer.zero_grad()
                output(layer, torch.randn(shape)).square().sum().backward()
                optimizer.step()
            assert not torch.equal(parameter, before)
            if way == "pruned":
                output(layer, torch.randn(shape))
                assert torch.equal(part.weight_values, part.weight_values_orig * part.weight_values_mask)


def test_an_inner_layer_is_a_layer_as_well():
    layer = make_small_world()
    x = torch.randn(3, 64)
    torch.testing.assert_close(layer.internal[0](x), x @ layer.internal[0].to_dense().T)
    torch.testing.assert_close(layer.internal_norms[0](x), torch.nn.functional.layer_norm(x, (64,), eps=1e-6))


@EACH
def test_a_layer_with_hooks_compiles_as_one_graph(kind):
    make, shape = LAYERS[kind]
    layer, x, seen = make(), torch.randn(shape), []
    next(iter(parts(layer).values())).register_forward_hook(lambda *_: seen.append(1))
    expected = output(layer, x)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager")
    torch.testing.assert_close(output(compiled, x), expected)
    assert len(seen) >= 2


# ---- FSDP ----


def _sharded(kind):
    from torch.distributed.fsdp import fully_shard

    make, shape = LAYERS[kind]
    torch.manual_seed(1)
    layer = make()
    whole = copy.deepcopy(layer)
    for part in parts(layer).values():
        fully_shard(part)
    fully_shard(layer)
    optimizers = [torch.optim.SGD(one.parameters(), 0.1) for one in (layer, whole)]
    for step in range(3):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(step))
        outputs = []
        for one, optimizer in zip((layer, whole), optimizers):
            optimizer.zero_grad()
            y = output(one, x)
            y.square().mean().backward()
            optimizer.step()
            outputs.append(y.detach())
        torch.testing.assert_close(*outputs)
    for (name, mine), other in zip(layer.named_parameters(), whole.parameters()):
        torch.testing.assert_close(mine.full_tensor(), other, msg=lambda text, name=name: f"{name}: {text}")


@EACH
def test_each_inner_layer_is_sharded_by_fsdp(kind, two):
    two.run(_sharded, kind)
