"""Parts of a layer that are on meta, where they have no values: no result is made of them, and tools that offload layers work."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import numpy as np  # noqa: E402

from operator_calls import LAYERS, output, recorded_calls  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import (  # noqa: E402
    BlockSparseConv2d, BlockSparseLinear, BlockSparseLSTM, SmallWorldLSTM, linear, lstm_cell, matmul, normalised_linear, normalised_lstm_cell,
    sparsify_,
)  # fmt: skip

_LAYOUT = sparsekiln.patterns.random(5, 5, 0.5, 1)
_TAPS = torch.rand(_LAYOUT.blocks, 3, 3, generator=torch.Generator().manual_seed(1)) < 0.7
EACH = pytest.mark.parametrize("kind", list(LAYERS))


def refused():
    return pytest.raises((ValueError, TypeError, RuntimeError), match="meta")


# ---- no result of what has no values ----


def _tensors(layer):
    names = [name for name, _ in (*layer.named_parameters(), *layer.named_buffers())]
    return [name for name in names if not name.endswith("index_canary")]  # which nothing computes with


@EACH
@pytest.mark.parametrize("grad", [True, False])
def test_a_layer_of_which_a_tensor_is_on_meta_gives_no_result(kind, grad):
    make, shape = LAYERS[kind]
    for name in _tensors(make()):
        layer = make()
        owner, _, leaf = name.rpartition(".")
        module = layer.get_submodule(owner)
        held = module._parameters if leaf in module._parameters else module._buffers
        on_meta = held[leaf].detach().to("meta")
        held[leaf] = torch.nn.Parameter(on_meta) if held is module._parameters else on_meta
        with torch.set_grad_enabled(grad):
            try:
                y = output(layer, torch.randn(shape))
            except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
                assert "meta" in str(error), (name, error)
            else:  # masks and slots say what else the layer knows: they are read nowhere
                assert leaf in ("tap_mask", "block_tap_mask", "slot_blocks"), (name, y)


@pytest.mark.parametrize("kind", ["lstm", "cell", "small world"])
@pytest.mark.parametrize("which", [0, 1])
def test_states_on_meta_give_no_result(kind, which):
    make, shape = LAYERS[kind]
    layer, n = make(), 3
    sizes = {"lstm": (4, n, 64), "cell": (n, 64), "small world": (1, n, 64)}[kind]
    state = [torch.zeros(sizes), torch.zeros(sizes)]
    output(layer, torch.randn(shape), tuple(state))
    state[which] = state[which].to("meta")
    with refused():
        output(layer, torch.randn(shape), tuple(state))


@pytest.mark.parametrize("which", range(4))
def test_operands_of_functions_on_meta_give_no_result(which):
    weight = torch.randn(256, 64).to_sparse_bsr((16, 16))
    operands = [torch.randn(3, 256), torch.randn(3, 64), torch.randn(3, 64)]
    lstm_cell(*operands, weight)
    if which < 3:
        operands[which] = operands[which].to("meta")
        with refused():
            lstm_cell(*operands, weight)
    x, c, gain, bias = torch.randn(3, 64), torch.zeros(3, 64), torch.ones(256), torch.zeros(256)
    given = [x, c, gain, bias]
    normalised_lstm_cell(x, c, weight, gain, bias)
    given[which] = given[which].to("meta")
    with refused():
        normalised_lstm_cell(given[0], given[1], weight, *given[2:])
    given = [x, torch.ones(256), torch.zeros(256), torch.ones(3, 256)]
    normalised_linear(x, weight, given[1], given[2], multiplier=given[3])
    given[which] = given[which].to("meta")
    with refused():
        normalised_linear(given[0], weight, given[1], given[2], multiplier=given[3])


def _of_both_gradients(calls):
    """The arguments of _linear_gradients, which computes what two operators do."""
    dy, z, values, crow, col, *features, activation = calls["sparsekiln::linear_grad_input"][1][:8]
    x = dy.new_zeros((dy.shape[0], features[0]))
    return dy, z, x, values, crow, col, *features, activation, True


def test_no_operator_gives_memory_that_nothing_has_written():
    calls = recorded_calls()
    defined = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("sparsekiln::")}
    asked = {name for name in defined if name.endswith("_by_python")}  # by operators in C++, for the rest of a call of theirs
    for name in sorted(defined - asked - set(calls)):  # these operators in C++, and that which autograd sees: of the same arguments
        same, both = name.replace("::_", "::").removesuffix("_recorded"), name == "sparsekiln::_linear_gradients"
        arguments = _of_both_gradients(calls) if both else calls[same][1]
        calls[name] = getattr(torch.ops.sparsekiln, name.removeprefix("sparsekiln::")).default, arguments
    assert set(calls) == defined - asked and len(calls) >= 14
    for function, arguments in calls.values():
        for place, argument in enumerate(arguments):
            several = isinstance(argument, (list, tuple)) and any(isinstance(one, torch.Tensor) for one in argument)
            for number in range(len(argument) if several else 1):
                if several:
                    changed = [one.to("meta") if at == number else one for at, one in enumerate(argument)]
                elif isinstance(argument, torch.Tensor):
                    changed = argument.to("meta")
                else:
                    continue
                with refused():
                    function(*arguments[:place], changed, *arguments[place + 1 :])


def test_all_operands_on_meta_give_a_result_there():
    for function, arguments in recorded_calls().values():
        on_meta = torch.utils._pytree.tree_map(lambda one: one.to("meta") if isinstance(one, torch.Tensor) else one, arguments)
        real, results = function(*arguments), function(*on_meta)
        flat = torch.utils._pytree.tree_leaves
        for mine, other in zip(flat(results), flat(real), strict=True):
            assert mine.is_meta and mine.shape == other.shape and mine.dtype == other.dtype


@pytest.mark.parametrize("kind, name, what", [
    ("lstm", "gates.2.input", "weight"), ("lstm", "gates.2.input", "bias"), ("small world", "multiply", "weight"),
    ("small world", "add", "weight"),
])  # fmt: skip
@pytest.mark.parametrize("hook", ["before", "replaced"])
def test_a_dense_layer_within_one_is_checked_after_hooks_ran(kind, name, what, hook):
    make, shape = LAYERS[kind]
    layer = make()
    dense, x = layer.get_submodule(name), torch.randn(shape)
    values, expected = getattr(dense, what), output(layer, x)
    setattr(dense, what, torch.nn.Parameter(values.detach().to("meta")))
    if hook == "before":
        dense.register_forward_pre_hook(lambda *_: None)
    else:  # as accelerate does it
        plain = dense.forward
        dense.forward = lambda *arguments: plain(*arguments)
    with refused():
        output(layer, x)
    dense.register_forward_pre_hook(lambda *_: setattr(dense, what, values))
    torch.testing.assert_close(output(layer, x), expected)


@pytest.mark.parametrize("call", [
    lambda x, weight: linear(x, weight), lambda x, weight: matmul(x, weight), lambda x, weight: matmul(weight, x),
    lambda x, weight: matmul(x, weight.t()), lambda x, weight: normalised_linear(x, weight),
    lambda x, weight: BlockSparseLinear.from_bsr(weight),
])  # fmt: skip
def test_block_sparse_tensors_on_meta_are_refused_by_a_sentence(call):
    weight = torch.randn(64, 64).to_sparse_bsr((16, 16))
    call(torch.randn(64, 64), weight)
    with pytest.raises(ValueError, match="on meta, where it has no (blocks|values)"):
        call(torch.randn(64, 64), weight.to("meta"))


def test_an_input_on_meta_is_to_be_loaded():
    layer = BlockSparseLinear(80, 80, _LAYOUT, 16)
    for one, x in ((layer, torch.zeros(1, 80, device="meta")), (copy.deepcopy(layer).to("meta"), torch.zeros(1, 80))):
        with pytest.raises(ValueError, match="must be loaded"):
            one(x)


@pytest.mark.parametrize("make", [
    lambda: BlockSparseLinear.from_linear(torch.nn.Linear(80, 80, device="meta"), 0.5, 16),
    lambda: BlockSparseConv2d.from_conv(torch.nn.Conv2d(80, 80, 3, device="meta"), 0.5, 16),
    lambda: BlockSparseLSTM.from_lstm(torch.nn.LSTM(64, 64, device="meta"), 0.5, 16),
])  # fmt: skip
def test_no_blocks_are_chosen_by_values_that_are_not_there(make):
    with pytest.raises(ValueError, match="on meta.*a layout would work"):
        make()


# ---- offloading ----


@EACH
@pytest.mark.parametrize("how", ["cpu", "cpu, with buffers", "disk"])
def test_an_offloaded_layer_computes_what_it_did(kind, how, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    make, shape = LAYERS[kind]
    model, x = torch.nn.Sequential(make()), torch.randn(shape)
    with torch.no_grad():
        expected = output(model, x)
        if how == "disk":
            accelerate.disk_offload(model, tmp_path, execution_device=torch.device("cpu"))
        else:
            accelerate.cpu_offload(model, torch.device("cpu"), offload_buffers=how != "cpu")
        assert any(parameter.is_meta for parameter in model.parameters())
        for _ in range(2):
            assert torch.equal(output(model, x), expected)


@EACH
def test_a_checkpoint_is_loaded_into_a_model_that_was_made_empty(kind, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    make, shape = LAYERS[kind]
    source, x = torch.nn.Sequential(make()), torch.randn(shape)
    torch.save(source.state_dict(), tmp_path / "state.pt")
    for include_buffers in (False, True):
        with accelerate.init_empty_weights(include_buffers=include_buffers):
            model = torch.nn.Sequential(make())
        accelerate.load_checkpoint_and_dispatch(model, str(tmp_path / "state.pt"), device_map={"": "cpu"})
        assert torch.equal(output(model, x), output(source, x))


# ---- made on meta ----


@EACH
@pytest.mark.parametrize("on_meta", [True, False])
def test_memory_that_was_given_to_a_layer_has_its_layout(kind, on_meta):
    """As where weights are initialised by code that knows parameters alone."""
    make, shape = LAYERS[kind]
    if on_meta:
        with torch.device("meta"):
            layer = make()
    else:
        layer = make()
    used = [torch.full((size,), 7, dtype=torch.int32) for size in range(1, 40)]  # memory that is given next
    del used
    layer.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.05)
    x, other = torch.randn(shape), make()
    other.load_state_dict(copy.deepcopy(layer.state_dict()))
    assert torch.equal(output(layer, x), output(other, x))
    assert all(not tensor.is_meta for tensor in (*layer.parameters(), *layer.buffers()))


@EACH
def test_a_state_is_assigned_to_a_layer_on_meta(kind):
    make, shape = LAYERS[kind]
    source, x = make(), torch.randn(shape)
    with torch.device("meta"):
        layer = make()
    layer.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(output(layer, x), output(source, x))
    layer.to(torch.float32).cpu()
    assert torch.equal(output(layer, x), output(source, x))


def test_a_layer_that_went_to_meta_comes_back_with_its_layout():
    layer = BlockSparseLinear(80, 80, _LAYOUT, 16)
    state, x = copy.deepcopy(layer.state_dict()), torch.randn(2, 80)
    expected = layer(x)
    layer.to("meta").to_empty(device="cpu")
    parameters = {name: state[name] for name in ("weight_values", "bias")}
    with torch.no_grad():
        for name, value in parameters.items():
            getattr(layer, name).copy_(value)
    assert torch.equal(layer(x), expected)


@pytest.mark.parametrize("make, shape", [
    (lambda: BlockSparseLinear(80, 80, _LAYOUT, 16, max_blocks=20), (3, 80)),
    (lambda: BlockSparseConv2d(80, 80, 3, layout=_LAYOUT, block=16, max_blocks=20), (2, 80, 5, 5)),
    (lambda: BlockSparseConv2d(80, 80, 3, layout=_LAYOUT, block=16, max_blocks=20, tap_mask=_TAPS), (2, 80, 5, 5)),
])  # fmt: skip
def test_slots_of_blocks_between_others_are_kept_on_meta(make, shape):
    mask = _LAYOUT.mask()
    mask[tuple(np.argwhere(mask)[0])] = False
    fewer = sparsekiln.Layout(mask)
    source, layer, x = make(), make().to("meta"), torch.randn(shape)
    for one in (source, layer):
        one.relayout(fewer)
    assert not source._slots.are_in_order  # it is as this test is about
    for name, value in source.named_parameters():
        setattr(layer, name, torch.nn.Parameter(value.detach().clone()))
    for name, value in source.named_buffers():
        setattr(layer, name, value.clone())
    assert torch.equal(layer(x), source(x)) and torch.equal(layer.weight.to_dense(), source.weight.to_dense())


def test_a_state_on_meta_is_refused_by_a_sentence():
    layer = BlockSparseConv2d(80, 80, 3, layout=_LAYOUT, block=16, tap_mask=_TAPS)
    with pytest.raises(RuntimeError, match="on meta, where it has no values"):
        layer.load_state_dict({name: value.to("meta") for name, value in layer.state_dict().items()})


@EACH
def test_layers_of_a_device_are_made_there_within_a_context_of_meta(kind):
    make, shape = LAYERS[kind]
    x, dense = torch.randn(shape), torch.nn.Linear(80, 80)
    convolution = torch.nn.Conv2d(80, 80, 3)
    layer = BlockSparseLinear(80, 80, _LAYOUT, 16)
    whole = make()
    before = layer.to_dense()
    with torch.device("meta"):
        BlockSparseLinear(80, 80, _LAYOUT, 16, device="cpu")(torch.zeros(1, 80, device="cpu"))
        BlockSparseConv2d(80, 80, 3, density=0.5, block=16, device="cpu", tap_mask=np.eye(3))(torch.zeros(1, 80, 5, 5, device="cpu"))
        sparse = BlockSparseLinear.from_linear(dense, 0.5, 16)
        BlockSparseConv2d.from_conv(convolution, 0.5, 16)
        model = torch.nn.Sequential(torch.nn.Linear(80, 80, device="cpu"), torch.nn.Conv2d(80, 80, 3, device="cpu"))
        sparsify_(model, 0.5, block=16)
        layer.relayout(sparsekiln.patterns.random(5, 5, 0.5, 2))
        copied = copy.deepcopy(whole)
        copied.load_state_dict(whole.state_dict())
        assert torch.equal(layer.blocks_of(before).cpu(), layer.blocks_of(before))
        SmallWorldLSTM(32, 64, block=16, density=0.5, device="cpu")
        several = torch.stack([before, before]).detach().to_sparse_bsr((16, 16))
        matmul(torch.zeros(2, 3, 80, device="cpu"), several)
    assert not any(one.is_meta for one in (*sparse.parameters(), *sparse.buffers(), *model.parameters(), *model.buffers()))
    assert torch.equal(output(copied, x), output(whole, x)) and torch.isfinite(sparse(torch.ones(1, 80))).all()
