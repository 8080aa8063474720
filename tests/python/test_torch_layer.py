"""BlockSparseLinear as a module: its state, copies, optimisers, other layouts, several processes."""

import copy
import io
import math
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_layer import blocks_of, make_layer  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import BlockSparseLinear  # noqa: E402
from torch.nn.utils import parametrize, prune  # noqa: E402


def same_layer(one, other):
    x = torch.randn(3, one.in_features, generator=torch.Generator().manual_seed(0)).to(one.weight_values.dtype)
    assert one.layout == other.layout
    assert torch.equal(one(x), other(x))


def of_layout(mask, seed=0, **options):
    torch.manual_seed(seed)
    mask = np.asarray(mask)
    return BlockSparseLinear(16 * mask.shape[1], 16 * mask.shape[0], mask, block=16, **options)


# ---- making one ----


def test_weights_start_uniform_within_the_fan_in_of_their_row():
    torch.manual_seed(0)
    layer = BlockSparseLinear(256, 96, [[1] * 8, [1] + [0] * 7, [0] * 8])
    dense = layer.to_dense()
    for rows, fan_in in ((slice(0, 32), 256), (slice(32, 64), 32)):
        bound = 1 / math.sqrt(fan_in)
        assert 0.95 * bound < dense[rows].abs().max() <= bound
        assert abs(dense[rows][dense[rows] != 0].mean()) < 0.1 * bound
        assert 0.8 * bound < layer.bias[rows].abs().max() <= bound
    assert not dense[64:].any() and not layer.bias[64:].any()


def test_fan_in_counts_the_features_of_a_cut_block():
    torch.manual_seed(0)
    layer = BlockSparseLinear(36, 32, [[0, 1]])
    assert 0.3 < layer.to_dense().abs().max() <= 0.5


def test_what_lies_beyond_the_features_starts_as_zeros():
    layer = make_layer(40, 50, density=1)
    assert torch.equal(layer.weight_values, blocks_of(layer, layer.to_dense()))


def test_it_says_what_it_is():
    layer = BlockSparseLinear(64, 96, [[1, 0], [0, 1], [0, 0]], activation="gelu")
    assert repr(layer) == (
        "BlockSparseLinear(in_features=64, out_features=96, block=32, blocks=2, density=0.3333, bias=True, activation=gelu)"
    )


@pytest.mark.parametrize("form", ["list", "numpy", "tensor", "layout"])
def test_layouts_in_every_form(form):
    mask = [[1, 0], [0, 1], [1, 1]]
    given = {"list": mask, "numpy": np.array(mask), "tensor": torch.tensor(mask), "layout": sparsekiln.Layout(mask)}[form]
    assert BlockSparseLinear(64, 96, given).layout == sparsekiln.Layout(mask)


def test_the_bsr_form_shares_the_values():
    layer = make_layer(64, 96)
    bsr = layer.to_bsr()
    assert bsr.values().data_ptr() == layer.weight_values.data_ptr()
    assert torch.equal(bsr.detach().to_dense(), layer.to_dense())


def test_weight_is_what_code_for_dense_layers_looks_at():
    assert make_layer(64, 96).weight.layout == torch.sparse_bsr
    assert make_layer(100, 120).weight.shape == (120, 100)


# ---- copies and saved state ----


def test_a_deep_copy_is_independent():
    layer = make_layer(activation="gelu")
    other = copy.deepcopy(layer)
    same_layer(layer, other)
    with torch.no_grad():
        other.weight_values.zero_()
    assert layer.weight_values.any()


def test_pickle():
    layer = make_layer(activation="relu", dtype=torch.bfloat16)
    same_layer(layer, pickle.loads(pickle.dumps(layer)))


def test_torch_save_of_the_whole_layer():
    layer, file = make_layer(), io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    same_layer(layer, torch.load(file, weights_only=False))


def saved(layer):
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    return torch.load(file)


def test_the_state_holds_the_layout():
    layer = of_layout([[1, 0], [1, 1]])
    assert set(layer.state_dict()) == {"weight_values", "bias", "crow_indices", "col_indices"}
    other = of_layout([[1, 0], [1, 1]], seed=1)
    other.load_state_dict(saved(layer))
    same_layer(layer, other)


@pytest.mark.parametrize("mask", [[[0, 1], [1, 1]], [[1, 1], [1, 1]], [[0, 0], [0, 1]]])
@pytest.mark.parametrize("assign", [False, True])
def test_a_state_of_another_layout_brings_it_along(mask, assign):
    layer, other = of_layout(mask), of_layout([[1, 0], [1, 1]], seed=1)
    parameter = other.weight_values
    other(torch.randn(2, 32)).sum().backward()
    other.load_state_dict(saved(layer), assign=assign)
    same_layer(layer, other)
    assert assign or other.weight_values is parameter
    other.zero_grad()
    other(torch.randn(2, 32)).sum().backward()
    assert other.weight_values.grad.shape == other.weight_values.shape


def test_a_state_of_before_the_parameter_was_called_weight_values_loads():
    layer, other = of_layout([[1, 0], [1, 1]]), of_layout([[1, 1], [1, 0]], seed=1)
    state = layer.state_dict()
    state["values"] = state.pop("weight_values")
    assert not other.load_state_dict(state).unexpected_keys
    same_layer(layer, other)
    model = torch.nn.Sequential(of_layout([[1, 1], [1, 1]]))
    model.load_state_dict({f"0.{name}": tensor for name, tensor in state.items()})
    same_layer(layer, model[0])


def test_a_layer_may_be_in_a_module_dictionary_by_any_name_of_its_parameters():
    layers = torch.nn.ModuleDict({"first": of_layout([[1]])})
    assert not set(dict(layers["first"].named_parameters())) & set(dir(layers))


def test_a_state_of_another_grid_is_refused_and_changes_nothing():
    layer = of_layout([[1, 0], [1, 1]])
    before = copy.deepcopy(layer)
    with pytest.raises(RuntimeError, match="3 × 2 blocks.*2 × 2"):
        layer.load_state_dict(of_layout([[1, 0], [1, 1], [0, 1]]).state_dict())
    same_layer(layer, before)


def test_a_state_whose_tensors_do_not_go_together_is_refused():
    layer = of_layout([[1, 0], [1, 1]])
    state = layer.state_dict()
    with pytest.raises(RuntimeError, match="weight_values has the shape.*3 blocks of 16x16"):
        layer.load_state_dict(dict(state, weight_values=torch.zeros(2, 16, 16)))
    with pytest.raises(RuntimeError, match="alone; the three go together"):
        layer.load_state_dict({"weight_values": state["weight_values"], "bias": state["bias"]})
    with pytest.raises(RuntimeError, match="float32"):
        layer.load_state_dict(dict(state, col_indices=torch.zeros(3)))
    unsorted = dict(state, col_indices=torch.tensor([0, 1, 0], dtype=torch.int32))
    with pytest.raises(RuntimeError, match="BlockSparseLinear|layer"):
        layer.load_state_dict(unsorted)


def test_a_state_without_the_layer_is_missing_its_keys():
    with pytest.raises(RuntimeError, match="Missing key.*weight_values"):
        of_layout([[1]]).load_state_dict({})


def test_a_layer_in_a_model_loads_by_its_prefix():
    model = torch.nn.Sequential(torch.nn.ReLU(), of_layout([[1, 0], [0, 1]]))
    other = torch.nn.Sequential(torch.nn.ReLU(), of_layout([[1, 1], [0, 1]], seed=1))
    other.load_state_dict(saved(model))
    same_layer(model[1], other[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_conversion_leaves_the_indices_alone(dtype):
    layer = make_layer().to(dtype)
    assert layer.weight_values.dtype == dtype and layer.crow_indices.dtype == torch.int32
    assert layer(torch.ones(2, 100, dtype=dtype)).dtype == dtype


def test_a_layer_begun_on_the_meta_device():
    layer = BlockSparseLinear(64, 64, [[1, 0], [1, 1]], device="meta").to_empty(device="cpu")
    layer.reset_parameters()
    other = copy.deepcopy(layer)
    same_layer(layer, other)
    assert layer.weight_values.any()


# ---- training ----

_OPTIMISERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "AdamW foreach": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True),
}


@pytest.mark.parametrize("name", _OPTIMISERS)
def test_steps_are_those_of_a_masked_dense_layer(name):
    layer = make_layer(64, 96, activation="relu")
    dense = torch.nn.Linear(64, 96)
    with torch.no_grad():
        dense.weight.copy_(layer.to_dense())
        dense.bias.copy_(layer.bias)
    mask = torch.tensor(layer.layout.mask()).repeat_interleave(32, 0).repeat_interleave(32, 1)
    optimisers = [_OPTIMISERS[name](one.parameters()) for one in (layer, dense)]
    for step in range(10):
        x, target = torch.randn(16, 64), torch.randn(16, 96)
        for optimiser in optimisers:
            optimiser.zero_grad()
        torch.nn.functional.mse_loss(layer(x), target).backward()
        torch.nn.functional.mse_loss(torch.relu(dense(x)), target).backward()
        dense.weight.grad *= mask
        for optimiser in optimisers:
            optimiser.step()
    torch.testing.assert_close(layer.to_dense(), dense.weight * mask, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(layer.bias, dense.bias, rtol=1e-3, atol=1e-5)


def test_checkpointed_activations_give_the_same_gradients():
    from torch.utils.checkpoint import checkpoint

    layer = make_layer(activation="gelu")
    x = torch.randn(4, 100, requires_grad=True)
    expected = torch.autograd.grad(layer(x).sum(), (x, layer.weight_values))
    found = torch.autograd.grad(checkpoint(layer, x, use_reentrant=False).sum(), (x, layer.weight_values))
    for one, other in zip(found, expected):
        assert torch.equal(one, other)


# ---- other layouts ----


def test_relayout_keeps_the_blocks_that_stay():
    layer = of_layout([[1, 0, 1], [0, 1, 1]])
    parameter, before = layer.weight_values, layer.to_dense().detach()
    origin = layer.relayout([[0, 1, 1], [1, 0, 1]])
    assert origin.tolist() == [-1, 1, -1, 3]
    kept = torch.tensor([[0, 0, 1], [0, 0, 1]]).repeat_interleave(16, 0).repeat_interleave(16, 1)
    assert torch.equal(layer.to_dense(), before * kept)
    assert layer.weight_values is parameter
    x = torch.randn(3, 48)
    torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, before * kept, layer.bias))


def test_the_way_there_and_back_keeps_what_was_never_dropped():
    layer = of_layout([[1, 0], [0, 1]])
    before = layer.to_dense().detach()
    layer.relayout([[1, 1], [1, 1]])
    layer.relayout([[1, 0], [0, 1]])
    assert torch.equal(layer.to_dense(), before)


def test_relayout_to_none_and_from_none():
    layer = of_layout([[1, 0], [0, 1]])
    assert layer.relayout([[0, 0], [0, 0]]).tolist() == []
    assert layer.relayout([[1, 0], [0, 0]]).tolist() == [-1]
    assert not layer.weight_values.any()


def test_relayout_takes_the_gradient_and_the_optimisers_state_along():
    layer = of_layout([[1, 0, 1], [0, 1, 1]])
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.01)
    layer(torch.randn(5, 48)).square().sum().backward()
    optimiser.step()
    before = {name: kept.clone() for name, kept in optimiser.state[layer.weight_values].items()}
    gradient = layer.weight_values.grad.clone()
    layer.relayout([[0, 1, 1], [1, 0, 1]], optimiser)
    for name in ("exp_avg", "exp_avg_sq"):
        moved = optimiser.state[layer.weight_values][name]
        assert torch.equal(moved[[1, 3]], before[name][[1, 3]]) and not moved[[0, 2]].any()
    assert optimiser.state[layer.weight_values]["step"] == before["step"]
    assert torch.equal(layer.weight_values.grad[[1, 3]], gradient[[1, 3]]) and not layer.weight_values.grad[[0, 2]].any()
    layer.zero_grad()
    layer(torch.randn(5, 48)).square().sum().backward()
    optimiser.step()
    assert layer.weight_values[[0, 2]].any()


def test_layers_of_a_layout_share_its_kernels():
    layers = [of_layout([[1, 0], [1, 1]], seed) for seed in range(3)]
    for layer in layers:
        layer(torch.ones(1, 32))
    assert len({id(layer._kernels) for layer in layers}) == 1


def test_a_hundred_layers_share_compiles(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEKILN_CACHE_DIR", str(tmp_path))
    generator = np.random.default_rng(0)
    sources = []
    for seed in range(100):
        rows, cols = generator.integers(1, 7, 2)
        layer = of_layout(generator.random((rows, cols)) < 0.5, seed, dtype=torch.float16)
        layer(torch.ones(2, 16 * cols, dtype=torch.float16, requires_grad=True)).sum().backward()
        sources += [kernel.source for kernel in layer._kernels.kernels()]
    assert len(sources) > 200
    assert sources.count("compiled") == 3


# ---- several processes ----


def _train(rank, world, file, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(make_layer(64, 96, activation="relu"), make_layer(96, 32, seed=1))
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimiser = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for x, target in _batches():
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(parallel(x[rank::world]), target[rank::world]).backward()
        optimiser.step()
    torch.save(model.state_dict(), f"{folder}/{rank}.pt")
    torch.distributed.barrier()  # neither ends while the other still answers it
    torch.distributed.destroy_process_group()


def _batches():
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn(8, 64, generator=generator), torch.randn(8, 32, generator=generator)) for _ in range(3)]


def test_two_processes_train_as_one(tmp_path):
    torch.multiprocessing.spawn(_train, (2, tmp_path / "rendezvous", tmp_path), nprocs=2)
    model = torch.nn.Sequential(make_layer(64, 96, activation="relu"), make_layer(96, 32, seed=1))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, target in _batches():
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(model(x), target).backward()
        optimiser.step()
    states = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for name, expected in model.state_dict().items():
        assert torch.equal(states[0][name], states[1][name])
        torch.testing.assert_close(states[0][name], expected, rtol=1e-4, atol=1e-6)


# ---- tensors that are not where nn.Module keeps parameters ----


class _Doubled(torch.nn.Module):
    def forward(self, tensor):
        return 2 * tensor


class _DoubledByProperty(BlockSparseLinear):
    @property
    def weight_values(self):
        return 2 * self._parameters["weight_values"]


def _parametrized(layer, x):
    parametrize.register_parametrization(layer, "weight_values", _Doubled())
    return layer(x)


def _pruned(layer, x):
    prune.custom_from_mask(layer, "weight_values", 2 * torch.ones_like(layer.weight_values))
    return layer(x)


def _swapped(layer, x):
    return torch.func.functional_call(layer, {"weight_values": 2 * layer.weight_values}, (x,))


def _of_subclass(layer, x):
    layer.__class__ = _DoubledByProperty
    return layer(x)


def _hidden(layer, x):
    layer.__dict__["weight_values"] = 2 * layer._parameters["weight_values"]
    return layer(x)


@pytest.mark.parametrize("doubled", [_parametrized, _pruned, _swapped, _of_subclass, _hidden])
def test_a_layer_takes_the_weight_that_its_name_stands_for(doubled):
    layer = of_layout([[1, 0], [1, 1]], bias=False)
    x = torch.randn(3, 32)
    expected = 2 * layer(x)
    torch.testing.assert_close(doubled(layer, x), expected)
