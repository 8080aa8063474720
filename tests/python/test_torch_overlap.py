"""Which launches of layers may begin early: on the cpu, where they do not, as if it were a device where they do."""

import contextlib
import copy
import pickle
import threading
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from emulated_device import one_by_one  # noqa: E402

import sparsekiln as sk  # noqa: E402
from sparsekiln.torch import (  # noqa: E402
    BlockSparseConv1d, BlockSparseConv2d, BlockSparseConvTranspose1d, BlockSparseConvTranspose2d, BlockSparseLinear, BlockSparseLSTM,
    BlockSparseLSTMCell, fuse_conv_bn, kernels, launch_overlap, overlapping_launches, weight_norm,
)  # fmt: skip
from sparsekiln.torch import launches  # noqa: E402
from sparsekiln.torch.launch_overlap import Place  # noqa: E402
from sparsekiln.torch.recurrent import lstm_steps  # noqa: E402

_LAYOUT = sk.patterns.random(5, 5, 0.5, seed=41)
_ORDINARY, _EARLY = False, True


class Told:
    """A kernel that tells whether the launch may begin early."""

    def __init__(self, kernel, use, launches):
        self._kernel, self._use, self._launches = kernel, use, launches

    def __getattr__(self, name):
        return getattr(self._kernel, name)

    def __call__(self, *operands, **named):
        result = self._kernel(*operands, **named)
        self._launches.append(self._use.overlap)
        return result


class Device:
    """Where launches go, and what each of them was."""

    def __init__(self):
        self.stream, self.captured = 0, False
        self.launches: list[bool] = []
        self.compiled: list[kernels.Use] = []

    def place_of(self, device):
        return Place(self.stream, self.captured)

    def told(self, call):
        """The launches of a call."""
        self.launches.clear()
        call()
        return list(self.launches)


@pytest.fixture
def device(monkeypatch):
    """The cpu, as if launches overlapped there."""
    there, compile_kernel = Device(), kernels.compile_kernel

    def compiled(layout, use, bound, baked=False):
        there.compiled.append(use)
        return Told(compile_kernel(layout, use, bound, baked), use, there.launches)

    monkeypatch.setattr(launch_overlap, "place_of", there.place_of)
    monkeypatch.setattr(launch_overlap, "_read", {})
    monkeypatch.setattr(kernels, "compile_kernel", compiled)
    monkeypatch.setattr(lstm_steps, "run_steps", one_by_one(launches.run))
    monkeypatch.setattr(kernels, "_by_digest", weakref.WeakValueDictionary())
    monkeypatch.setattr(kernels.LayoutKernels, "share", lambda *given: None)  # launches in C++ tell nothing
    torch.manual_seed(0)
    return there


def linear(**options):
    options = {"overlap": True} | options
    return BlockSparseLinear(80, 80, _LAYOUT, 16, **options)


def inference(layer, *shape):
    """A call without a gradient."""
    x = torch.randn(*(shape or (3, 80)))

    def call():
        with torch.no_grad():
            return layer(x)

    return call


# ---- which kernel ----


def test_the_first_call_is_ordinary_and_others_begin_early_with_the_same_bits(device):
    layer, x = linear(activation="relu"), torch.randn(3, 80)
    with torch.no_grad():
        results = [layer(x) for _ in range(3)]
    assert device.launches == [_ORDINARY, _EARLY, _EARLY]
    assert all(torch.equal(one, results[0]) for one in results)


def test_without_the_option_every_launch_is_ordinary(device):
    call = inference(linear(overlap=False))
    assert device.told(lambda: (call(), call())) == [_ORDINARY, _ORDINARY]
    assert not any(use.overlap for use in device.compiled)


def test_both_kernels_are_compiled_at_the_first_call(device):
    call = inference(linear())
    call()
    assert sorted(use.overlap for use in device.compiled) == [False, True]
    call()
    assert len(device.compiled) == 2


def test_a_batch_without_rows_settles_nothing(device):
    layer = linear()
    inference(layer, 0, 80)()
    assert device.told(inference(layer)) == [_ORDINARY]


def _step(optimizer, **options):
    def step(layer):
        for parameter in layer.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer(layer.parameters(), lr=0.1, **options).step()

    return step


def _new_parameter(layer):
    layer.weight_values = torch.nn.Parameter(layer.weight_values.detach().clone())


def _exchange_data(layer):
    layer.weight_values.data = layer.weight_values.data.clone()


@torch.no_grad()
def _write_bias(layer):
    layer.bias.add_(1)


def _relayout(layer):
    layer.relayout(sk.patterns.random(5, 5, 0.4, seed=42))


def _there_and_back(layer):
    layer.bfloat16().float()


@pytest.mark.parametrize(
    "write",
    [
        _step(torch.optim.SGD), _step(torch.optim.AdamW, foreach=True), _write_bias, _new_parameter, _exchange_data, _relayout, _there_and_back,
        lambda layer: layer.load_state_dict(linear().state_dict()), lambda layer: layer.reset_parameters(),
        lambda layer: layer.load_state_dict(linear().state_dict(), assign=True), lambda layer: layer.half(),
        lambda layer: torch.nn.init.zeros_(layer.bias),
    ],
    ids=[
        "SGD", "AdamW", "a write to the bias", "another parameter", "other data", "relayout", "to another type and back", "load_state_dict",
        "reset_parameters", "load_state_dict, assigning", "to another type", "torch.nn.init",
    ],
)  # fmt: skip
def test_the_first_call_after_a_write_is_ordinary(device, write):
    layer = linear()
    inference(layer)()
    assert device.told(inference(layer)) == [_EARLY]
    write(layer)
    x = torch.randn(3, 80, dtype=layer.weight_values.dtype)
    with torch.no_grad():
        assert device.told(lambda: (layer(x), layer(x))) == [_ORDINARY, _EARLY]


def test_a_call_that_autograd_records_is_ordinary_and_so_is_the_one_after_it(device):
    layer, x = linear(activation="gelu"), torch.randn(3, 80, requires_grad=True)
    call = inference(layer)
    call()
    assert device.told(call) == [_EARLY]
    assert device.told(lambda: layer(x).sum().backward()) == [_ORDINARY] * 3
    _step(torch.optim.AdamW, fused=True)(layer)  # which counts no write
    assert device.told(call) == [_ORDINARY]
    assert device.told(call) == [_EARLY]


def test_a_layer_that_is_not_trained_needs_no_region_without_gradients(device):
    layer, x = linear().requires_grad_(False), torch.randn(3, 80)
    assert device.told(lambda: (layer(x), layer(x))) == [_ORDINARY, _EARLY]


def test_inference_mode_is_a_region_without_gradients(device):
    layer, x = linear(), torch.randn(3, 80)
    with torch.inference_mode():
        assert device.told(lambda: (layer(x), layer(x))) == [_ORDINARY, _EARLY]
        layer.bias.add_(1)
        assert device.told(lambda: (layer(x), layer(x))) == [_ORDINARY, _EARLY]


def test_each_stream_has_a_first_call(device):
    call = inference(linear())
    call()
    device.stream = 7
    assert device.told(call) == [_ORDINARY]
    device.stream = 0
    assert device.told(call) == [_EARLY]


def test_a_graph_that_is_captured_needs_a_call_before(device):
    layer = linear()
    call = inference(layer)
    call()
    device.stream, device.captured = 7, True
    assert device.told(call) == [_EARLY]
    _write_bias(layer)  # the graph writes it at each replay
    assert device.told(lambda: (call(), call())) == [_ORDINARY, _EARLY]
    device.captured = False
    assert device.told(call) == [_ORDINARY]


def test_a_graph_compiles_no_kernel_of_later_calls(device):
    device.captured = True
    inference(linear())()
    assert [use.overlap for use in device.compiled] == [False]


# ---- what a call computes itself is read by ordinary launches ----


def _pruned():
    layer = linear(max_blocks=_LAYOUT.blocks)
    mask = _LAYOUT.mask().copy()
    mask[tuple(zip(*mask.nonzero()))[0]] = False
    layer.relayout(sk.Layout(mask))
    assert layer._gathered is not None
    return layer


@pytest.mark.parametrize(
    "make, context",
    [
        (linear, lambda: torch.autocast("cpu", torch.bfloat16)), (lambda: weight_norm(linear()), contextlib.nullcontext),
        (_pruned, contextlib.nullcontext),
    ],
    ids=["autocast", "a parametrization", "blocks in other slots"],
)
def test_a_weight_that_is_computed_by_the_call_is_read_by_an_ordinary_launch(device, make, context):
    call = inference(make())
    with context():
        assert device.told(lambda: (call(), call(), call())) == [_ORDINARY] * 3


def test_a_parametrization_that_is_computed_once_is_a_weight_like_any(device):
    call = inference(weight_norm(linear()))
    with torch.nn.utils.parametrize.cached():
        assert device.told(lambda: (call(), call(), call())) == [_ORDINARY, _EARLY, _EARLY]


def test_a_bias_that_is_no_aligned_memory_is_copied_and_read_by_an_ordinary_launch(device):
    layer = linear()
    layer.bias = torch.nn.Parameter(torch.randn(81)[1:])
    call = inference(layer)
    assert device.told(lambda: (call(), call())) == [_ORDINARY, _ORDINARY]


def test_an_input_that_is_copied_changes_nothing(device):
    layer, x = linear(), torch.randn(80, 3).t()
    with torch.no_grad():
        assert device.told(lambda: (layer(x), layer(x))) == [_ORDINARY, _EARLY]
        _write_bias(layer)
        assert device.told(lambda: (layer(x), layer(x))) == [_ORDINARY, _EARLY]


def test_tensors_of_inference_mode_count_no_writes_and_are_read_by_ordinary_launches(device):
    with torch.inference_mode():
        layer, x = linear(), torch.randn(3, 80)
        assert device.told(lambda: (layer(x), layer(x))) == [_ORDINARY, _ORDINARY]


def test_fsdp_hides_its_writes_and_its_layers_are_ordinary(device):
    layer = linear()
    layer._is_fsdp_managed_module = True  # as fully_shard and FullyShardedDataParallel do
    call = inference(layer)
    with overlapping_launches():
        assert device.told(lambda: (call(), call())) == [_ORDINARY, _ORDINARY]


def test_what_is_known_of_memory_goes_with_it(device):
    layer = linear()
    inference(layer)()
    assert len(launch_overlap._read) == 2
    del layer
    assert not launch_overlap._read


# ---- layers ----

_ALL = sk.Layout(torch.ones(4, 4, dtype=torch.bool))
LAYERS = {
    "linear": (lambda **options: BlockSparseLinear(80, 80, _LAYOUT, 16, **options), (3, 80)),
    "convolution": (lambda **options: BlockSparseConv2d(80, 80, 3, layout=_LAYOUT, block=16, **options), (2, 80, 5, 5)),
    "pointwise": (lambda **options: BlockSparseConv1d(80, 80, 1, layout=_LAYOUT, block=16, **options), (2, 80, 5)),
    "edge bias": (
        lambda **options: BlockSparseConv2d(80, 80, 3, padding=1, layout=_LAYOUT, block=16, edge_bias=5, **options), (2, 80, 5, 5)
    ),
    "transposed": (lambda **options: BlockSparseConvTranspose2d(80, 80, 3, layout=_LAYOUT, block=16, **options), (2, 80, 5, 5)),
    "pointwise transposed": (lambda **options: BlockSparseConvTranspose1d(80, 80, 1, layout=_LAYOUT, block=16, **options), (2, 80, 5)),
    "cell": (lambda **options: BlockSparseLSTMCell(64, 64, layout=_ALL, input_layout=_ALL, block=16, **options), (3, 64)),
    "lstm": (lambda **options: BlockSparseLSTM(64, 64, 2, layout=_ALL, input_layout=_ALL, block=16, **options), (1, 3, 64)),
}  # fmt: skip


def result(y):
    return y[0] if isinstance(y, tuple) else y


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_each_kind_begin_early_by_the_option_or_within_the_context(device, name):
    make, shape = LAYERS[name]
    call = inference(make(overlap=True), *shape)
    first = device.told(call)
    assert first and not any(first)
    y = result(call())
    assert device.told(call) == [_EARLY] * len(first)

    layer = make()
    call = inference(layer, *shape)
    with overlapping_launches():
        call()
        assert device.told(call) == [_EARLY] * len(first)
        assert not any(device.told(lambda: result(layer(torch.randn(shape))).sum().backward()))
    assert device.told(call) == [_ORDINARY] * len(first)
    assert y.isfinite().all()


def test_steps_of_an_lstm_after_the_first_begin_early_in_every_call(device):
    layer, x = BlockSparseLSTM(64, 64, layout=_ALL, block=16), torch.randn(4, 3, 64)
    with torch.no_grad():
        y = layer(x)[0]
        assert device.told(lambda: layer(x)) == [_ORDINARY, _EARLY, _EARLY, _EARLY]
        layer.overlap = True
        assert device.told(lambda: layer(x)) == [_ORDINARY, _EARLY, _EARLY, _EARLY]
        assert device.told(lambda: layer(x)) == [_EARLY] * 4
        with torch.autocast("cpu", torch.bfloat16):  # which casts the weight in each call
            for _ in range(2):
                assert device.told(lambda: layer(x)) == [_ORDINARY, _EARLY, _EARLY, _EARLY]
        assert torch.equal(layer(x)[0], y)
    y = layer(x)[0]
    assert device.launches[-4:] == [_ORDINARY, _EARLY, _EARLY, _EARLY]
    assert device.told(lambda: y.sum().backward())[:4] == [_ORDINARY, _EARLY, _EARLY, _EARLY]


def test_edge_biases_of_16_bits_are_cast_and_read_by_ordinary_launches(device):
    layer = BlockSparseConv2d(80, 80, 3, padding=1, layout=_LAYOUT, block=16, edge_bias=5, overlap=True, dtype=torch.bfloat16)
    x = torch.randn(2, 80, 5, 5, dtype=torch.bfloat16)
    with torch.no_grad():
        assert device.told(lambda: (layer(x), layer(x))) == [_ORDINARY, _ORDINARY]


# ---- the context ----


def test_contexts_nest_and_end_with_an_error(device):
    call = inference(linear(overlap=False))
    with pytest.raises(ZeroDivisionError), overlapping_launches():
        with overlapping_launches():
            call()
        assert device.told(call) == [_EARLY]
        raise ZeroDivisionError
    assert device.told(call) == [_ORDINARY]


def test_the_context_is_of_its_thread(device):
    call = inference(linear(overlap=False))
    with overlapping_launches():
        call()
        thread = threading.Thread(target=call)
        assert device.told(lambda: (thread.start(), thread.join())) == [_ORDINARY]


def test_the_context_is_a_decorator(device):
    call = overlapping_launches()(inference(linear(overlap=False)))
    assert device.told(lambda: (call(), call())) == [_ORDINARY, _EARLY]


# ---- compiled code ----


@pytest.fixture
def without_earlier_graphs():
    torch.compiler.reset()


@pytest.mark.parametrize("name", LAYERS)
def test_compiled_layers_begin_early(device, without_earlier_graphs, name):
    make, shape = LAYERS[name]
    layer = make(overlap=True)
    call = inference(torch.compile(layer, backend="aot_eager", fullgraph=True), *shape)
    first = device.told(call)
    assert first and not any(first)
    assert device.told(call) == [_EARLY] * len(first)
    for part in layer.modules():
        if hasattr(part, "layout"):
            part.reset_parameters()
    assert device.told(call) == [_ORDINARY] * len(first)
    layer.overlap = False
    assert device.told(lambda: (call(), call())) == [_ORDINARY] * 2 * len(first)


@pytest.mark.parametrize("name", ["linear", "pointwise"])
def test_code_of_inductor_begins_early_where_it_passes_on_the_parameters(device, without_earlier_graphs, name):
    make, shape = LAYERS[name]
    layer = make(overlap=True)
    call = inference(torch.compile(layer, backend="inductor", fullgraph=True), *shape)
    known = name == "linear"  # it flattens the weight of the other to a tensor that is no view
    assert device.told(lambda: (call(), call())) == [_ORDINARY, known]
    _write_bias(layer)
    assert device.told(lambda: (call(), call())) == [_ORDINARY, known]


def test_a_compiled_function_follows_the_context_that_it_is_called_in(device, without_earlier_graphs):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    call = inference(torch.compile(linear(overlap=False), backend=backend, fullgraph=True))
    assert device.told(call) == [_ORDINARY]
    with overlapping_launches():
        assert device.told(lambda: (call(), call())) == [_ORDINARY, _EARLY]
    assert device.told(call) == [_ORDINARY]
    assert len(graphs) == 1


def test_compiled_code_does_not_enter_the_context(without_earlier_graphs):
    layer = linear()

    def call(x):
        with overlapping_launches():
            return layer(x)

    with pytest.raises(Exception, match="overlapping_launches"):
        torch.compile(call, backend="aot_eager", fullgraph=True)(torch.randn(3, 80))


def test_compiled_code_that_casts_the_weight_is_ordinary(device, without_earlier_graphs):
    compiled = torch.compile(linear(), backend="aot_eager", fullgraph=True)

    def cast(x):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            return compiled(x)

    x = torch.randn(3, 80)
    assert device.told(lambda: (cast(x), cast(x), cast(x))) == [_ORDINARY] * 3


def test_compiled_training_is_ordinary(device, without_earlier_graphs):
    compiled = torch.compile(linear(activation="gelu"), backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 80)
    for _ in range(2):
        assert not any(device.told(lambda: compiled(x).sum().backward()))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", ["linear", "pointwise", "transposed"])
def test_the_first_call_after_compiled_training_is_ordinary(device, without_earlier_graphs, backend, name):
    make, shape = LAYERS[name]
    layer = make(overlap=True)
    call = inference(layer, *shape)
    call()
    assert device.told(call) == [_EARLY]
    torch.compile(layer, backend=backend, fullgraph=True)(torch.randn(shape)).sum().backward()
    _step(torch.optim.AdamW, fused=True)(layer)  # which counts no write
    assert device.told(lambda: (call(), call())) == [_ORDINARY, _EARLY]


def test_an_exported_program_begins_early(device):
    layer, x = linear(), torch.randn(3, 80)
    with torch.no_grad():
        program = torch.export.export(layer, (x,)).module()
        assert device.told(lambda: (program(x), program(x))) == [_ORDINARY, _EARLY]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.filterwarnings("ignore")  # of PyTorch, that traces are deprecated
def test_traces_of_torch_jit_are_ordinary(device, name):
    make, shape = LAYERS[name]
    layer, x = make(overlap=True), torch.randn(shape)
    trace = torch.jit.trace(layer, (x,))
    with torch.no_grad():
        launches = device.told(lambda: (trace(x), trace(x)))
    assert launches and not any(launches)


@pytest.mark.parametrize("overlap", [True, False, None])
def test_opcheck(overlap):
    layer, x = linear(), torch.randn(5, 80)
    operands = x, layer.weight_values.detach(), layer.bias.detach(), layer.crow_indices, layer.col_indices, 80, 80, "relu", overlap
    torch.library.opcheck(torch.ops.sparsekiln.linear.default, operands)


# ---- on the cpu ----


@pytest.mark.parametrize("name", LAYERS)
def test_the_cpu_takes_the_option_and_runs_as_without(name):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    layer = make()
    x = torch.randn(shape)
    with torch.no_grad():
        y = result(layer(x))
        layer.overlap = True
        with overlapping_launches():
            assert all(torch.equal(result(layer(x)), y) for _ in range(3))
    for part in layer.modules():
        if hasattr(part, "layout"):
            assert not any(use.overlap for use, _ in kernels.kernels_of(part.layout)._kernels)
    assert not launch_overlap._read


# ---- a setting like others ----


@pytest.mark.parametrize("name", LAYERS)
def test_it_is_a_setting_that_copies_and_pickles_keep(name):
    make, _ = LAYERS[name]
    layer = make()
    assert not layer.overlap and "overlap" not in repr(layer)
    layer.overlap = True
    for one in (layer, make(overlap=True), copy.deepcopy(layer), copy.copy(layer), pickle.loads(pickle.dumps(layer))):
        assert one.overlap is True and "overlap=True" in repr(one)
    layer.overlap = False
    assert layer.overlap is False and "overlap" not in repr(layer)
    assert "overlap" not in " ".join(layer.state_dict())


@pytest.mark.parametrize("name", LAYERS)
def test_other_values_are_refused(name):
    make, _ = LAYERS[name]
    with pytest.raises(TypeError, match="overlap is 'yes'; True or False would work"):
        make(overlap="yes")
    layer = make(overlap=True)
    with pytest.raises(TypeError, match="overlap is None; True or False would work"):
        layer.overlap = None
    assert layer.overlap


def test_layers_that_are_made_of_dense_ones_take_it():
    dense = torch.nn.Linear(64, 64)
    assert BlockSparseLinear.from_linear(dense, 0.5, 16, overlap=True).overlap
    assert BlockSparseLinear.from_bsr(dense.weight.detach().to_sparse_bsr((16, 16)), overlap=True).overlap
    assert BlockSparseConv2d.from_conv(torch.nn.Conv2d(64, 64, 3), 0.5, 16, overlap=True).overlap
    assert BlockSparseLSTM.from_lstm(torch.nn.LSTM(64, 64), 0.5, 16, overlap=True).overlap


def test_a_convolution_with_a_norm_folded_into_it_keeps_it():
    conv = BlockSparseConv2d(80, 80, 3, layout=_LAYOUT, block=16, overlap=True).eval()
    assert fuse_conv_bn(conv, torch.nn.BatchNorm2d(80).eval()).overlap


def test_a_layer_that_was_pickled_before_it_was_there_does_without():
    layer = linear()
    state = copy.deepcopy(layer.__dict__)
    del state["_overlap"]
    loaded = BlockSparseLinear.__new__(BlockSparseLinear)
    loaded.__setstate__(state)
    assert not loaded.overlap and torch.equal(loaded.weight_values, layer.weight_values)
