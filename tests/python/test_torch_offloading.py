"""Parts of a layer that are on meta, where they have no values: no result is made of them, and tools that offload layers work."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import numpy as np  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import (  # noqa: E402
    BlockSparseConv1d, BlockSparseConv2d, BlockSparseConvTranspose2d, BlockSparseLinear, BlockSparseLSTM, BlockSparseLSTMCell,
    SmallWorldLSTM, lstm_cell, normalised_linear, normalised_lstm_cell, sparsify_, weight_norm,
)  # fmt: skip

_LAYOUT = sparsekiln.patterns.random(5, 5, 0.5, 1)
_TAPS = torch.rand(_LAYOUT.blocks, 3, 3, generator=torch.Generator().manual_seed(1)) < 0.7
_ALL = np.ones((4, 4), bool)
# A layer, and its input.
LAYERS = {
    "linear": (lambda: BlockSparseLinear(80, 72, _LAYOUT, 16, activation="relu"), (3, 80)),
    "room": (lambda: BlockSparseLinear(80, 80, _LAYOUT, 16, max_blocks=20), (3, 80)),
    "weight_norm": (lambda: weight_norm(BlockSparseLinear(80, 80, _LAYOUT, 16)), (3, 80)),
    "convolution": (lambda: BlockSparseConv2d(80, 80, 3, layout=_LAYOUT, block=16), (2, 80, 5, 5)),
    "pointwise": (lambda: BlockSparseConv1d(80, 80, 1, layout=_LAYOUT, block=16), (2, 80, 5)),
    "taps of each block": (lambda: BlockSparseConv2d(80, 80, 3, layout=_LAYOUT, block=16, tap_mask=_TAPS), (2, 80, 5, 5)),
    "edge bias": (lambda: BlockSparseConv2d(80, 80, 3, padding=1, layout=_LAYOUT, block=16, edge_bias=5), (2, 80, 5, 5)),
    "transposed": (lambda: BlockSparseConvTranspose2d(80, 80, 3, layout=_LAYOUT, block=16), (2, 80, 5, 5)),
    "lstm": (lambda: BlockSparseLSTM(32, 64, 2, bidirectional=True, layout=_ALL, input_layout=None, block=16), (5, 3, 32)),
    "lstm of blocks": (lambda: BlockSparseLSTM(64, 64, layout=_ALL, input_layout=_ALL, block=16), (5, 3, 64)),
    "cell": (lambda: BlockSparseLSTMCell(32, 64, layout=_ALL, block=16), (3, 32)),
    "small world": (lambda: SmallWorldLSTM(32, 64, block=16, density=0.5), (5, 3, 32)),
}  # fmt: skip
EACH = pytest.mark.parametrize("kind", list(LAYERS))


def output(layer, x, *state):
    y = layer(x, *state)
    return y[0] if isinstance(y, tuple) else y


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


def _calls():
    """Every operator of the package, as layers and their backward passes call it: its name and its arguments."""
    calls = {}

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function.namespace == "sparsekiln":
                calls.setdefault(function._schema.name, (function, args))
            return function(*args, **(kwargs or {}))

    x, dense = torch.randn(3, 64, requires_grad=True), torch.randn(256, 64).to_sparse_bsr((16, 16))
    with Recorder():
        for make, shape in LAYERS.values():
            output(make(), torch.randn(shape, requires_grad=True)).square().sum().backward()
        output(BlockSparseLinear(80, 72, _LAYOUT, 16, activation="gelu"), torch.randn(3, 80, requires_grad=True)).sum().backward()
        normalised_linear(x, dense, multiplier=torch.ones(3, 256), addend=torch.ones(3, 256)).sum().backward()
    return calls


def test_no_operator_gives_memory_that_nothing_has_written():
    calls = _calls()
    defined = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("sparsekiln::")}
    assert set(calls) == defined and len(defined) >= 14
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
    for function, arguments in _calls().values():
        on_meta = torch.utils._pytree.tree_map(lambda one: one.to("meta") if isinstance(one, torch.Tensor) else one, arguments)
        real, results = function(*arguments), function(*on_meta)
        flat = torch.utils._pytree.tree_leaves
        for mine, other in zip(flat(results), flat(real), strict=True):
            assert mine.is_meta and mine.shape == other.shape and mine.dtype == other.dtype


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
    assert not any(one.is_meta for one in (*sparse.parameters(), *sparse.buffers(), *model.parameters(), *model.buffers()))
    assert torch.equal(output(copied, x), output(whole, x)) and torch.isfinite(sparse(torch.ones(1, 80))).all()
