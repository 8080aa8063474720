"""Sharded layers are saved for any number of processes, and work beside data parallelism."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("PyTorch has no gloo", allow_module_level=True)

import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.distributed.checkpoint.format_utils  # noqa: E402
from process_group import four, two  # noqa: E402, F401 - fixtures
from sharded_models import MLP_PLAN, TRANSFORMER_PLAN, Mlp, check_gradients, layer, tokens, transformer, twins  # noqa: E402
from torch.distributed.checkpoint.state_dict import (  # noqa: E402
    StateDictOptions, get_optimizer_state_dict, set_model_state_dict, set_optimizer_state_dict,
)  # fmt: skip
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import BlockSparseConv1d, BlockSparseConv2d, BlockSparseConvTranspose2d, BlockSparseLinear  # noqa: E402
from sparsekiln.torch.parallel import (  # noqa: E402
    ColwiseSparseParallel, RowwiseSparseParallel, local_state, parallelize, whole_state,
)  # fmt: skip

F = torch.nn.functional


def mesh():
    return init_device_mesh("cpu", (torch.distributed.get_world_size(),))


def loss_of(model, batch):
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def train(model, optimizer, seeds, batch_of=lambda seed: tokens(seed=seed)):
    losses = []
    for seed in seeds:
        optimizer.zero_grad()
        loss = loss_of(model, batch_of(seed))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def adam(model):
    return torch.optim.AdamW(model.parameters(), 0.01, foreach=False)


def zeroed(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


# ---- checkpoints ----


def _without_blocks(folder, shared):
    """A model one of whose layers has no blocks, and one that has some on the first rank alone."""
    first = torch.zeros(4, 4, dtype=torch.bool)
    first[0, 0] = True
    layouts = torch.zeros(4, 4, dtype=torch.bool), first, torch.eye(4, dtype=torch.bool)

    def make():
        return torch.nn.Sequential(*(BlockSparseLinear(64, 64, sparsekiln.Layout(one), block=16) for one in layouts))

    torch.manual_seed(1)
    model = make()
    x = torch.randn(3, 64)
    whole = copy.deepcopy(model)
    style = ColwiseSparseParallel if shared == "outputs" else RowwiseSparseParallel
    plan = {str(number): style() if shared == "outputs" else style(input_layouts=Replicate()) for number in range(3)}
    if shared == "outputs":
        plan = {name: ColwiseSparseParallel(output_layouts=Replicate()) for name in plan}
    parallelize(model, mesh(), plan)
    optimizer = adam(model)
    model(x).square().sum().backward()
    optimizer.step()
    expected = model(x).detach()
    dcp.save(state_of(model, optimizer), checkpoint_id=folder)
    other = parallelize(zeroed(make()), mesh(), plan)
    load(other, adam(other), folder)
    torch.testing.assert_close(other(x), expected)
    state = zeroed(whole).state_dict()  # and in one process
    dcp.load({"model": state}, checkpoint_id=folder)
    whole.load_state_dict(state)
    torch.testing.assert_close(whole(x), expected)


@pytest.mark.parametrize("shared", ["outputs", "inputs"])
def test_a_checkpoint_of_layers_without_blocks_loads(shared, two, tmp_path):
    two.run(_without_blocks, tmp_path, shared)


def state_of(model, optimizer):
    return {"model": model.state_dict(), "optimizer": whole_state(model, get_optimizer_state_dict(model, optimizer))}


def load(model, optimizer, folder):
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=folder)
    model.load_state_dict(state["model"])
    set_optimizer_state_dict(model, optimizer, local_state(state["optimizer"]))


def _train_and_save(folder):
    model = parallelize(transformer(), mesh(), TRANSFORMER_PLAN)
    optimizer = adam(model)
    train(model, optimizer, range(3))
    dcp.save(state_of(model, optimizer), checkpoint_id=folder)
    with torch.no_grad():
        logits = model(tokens(seed=9)).clone()
    return logits, train(model, optimizer, range(3, 6))


def _load_and_continue(folder):
    model = parallelize(zeroed(transformer()), mesh(), TRANSFORMER_PLAN)
    return _continued(model, folder)


def _continued(model, folder):
    optimizer = adam(model)
    load(model, optimizer, folder)
    with torch.no_grad():
        logits = model(tokens(seed=9)).clone()
    return logits, train(model, optimizer, range(3, 6))


def check_continues(found, expected):
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-5)
    assert found[1] == pytest.approx(expected[1], rel=1e-4)


def test_a_checkpoint_of_four_processes_continues_in_two_and_in_one(two, four, tmp_path):
    expected = four.run(_train_and_save, tmp_path)[0]
    for found in two.run(_load_and_continue, tmp_path):
        check_continues(found, expected)
    check_continues(_continued(zeroed(transformer()), tmp_path), expected)


def _train_and_save_alone(folder):
    model = transformer()
    optimizer = adam(model)
    train(model, optimizer, range(3))
    dcp.save(state_of(model, optimizer), checkpoint_id=folder)
    with torch.no_grad():
        logits = model(tokens(seed=9)).clone()
    return logits, train(model, optimizer, range(3, 6))


def test_a_checkpoint_of_one_process_continues_in_four(four, tmp_path):
    expected = _train_and_save_alone(tmp_path)
    for found in four.run(_load_and_continue, tmp_path):
        check_continues(found, expected)


def _states_of_one_process():
    one = Mlp()
    state = copy.deepcopy(one.state_dict())
    sharded = parallelize(zeroed(Mlp()), mesh(), MLP_PLAN)
    sharded.load_state_dict(state)
    x = torch.randn(3, 96)
    torch.testing.assert_close(sharded(x), one(x), rtol=1e-4, atol=1e-5)
    mine = sharded.state_dict()
    assert set(mine) == set(state) and all(mine[name].shape == state[name].shape for name in state)
    again = parallelize(zeroed(Mlp()), mesh(), MLP_PLAN)
    again.load_state_dict(copy.deepcopy(mine))
    assert torch.equal(again(x), sharded(x))


def test_a_state_of_one_process_loads_and_the_own_state_too(two):
    two.run(_states_of_one_process)


def _save(folder):
    sharded = parallelize(Mlp(), mesh(), MLP_PLAN)
    dcp.save(sharded.state_dict(), checkpoint_id=folder)


def test_a_checkpoint_becomes_a_file_of_one_process(two, tmp_path):
    two.run(_save, tmp_path / "parts")
    dcp.format_utils.dcp_to_torch_save(tmp_path / "parts", tmp_path / "whole.pt")
    model = zeroed(Mlp())
    model.load_state_dict(torch.load(tmp_path / "whole.pt"))
    x = torch.randn(3, 96)
    assert torch.equal(model(x), Mlp()(x))


def _own_file(folder):
    sharded = parallelize(Mlp(), mesh(), MLP_PLAN)
    file = f"{folder}/{torch.distributed.get_rank()}.pt"
    torch.save(sharded.state_dict(), file)
    again = parallelize(zeroed(Mlp()), mesh(), MLP_PLAN)
    again.load_state_dict(torch.load(file, weights_only=False))
    x = torch.randn(3, 96)
    assert torch.equal(again(x), sharded(x))


def test_each_rank_saves_a_file_of_its_own(two, tmp_path):
    two.run(_own_file, tmp_path)


def _refused_states():
    sharded = parallelize(layer(64, 64, 8), mesh(), ColwiseSparseParallel())
    other = layer(64, 64, 8, seed=5).state_dict()
    with pytest.raises(RuntimeError, match="the saved state has another layout, and a sharded layer keeps its own"):
        sharded.load_state_dict(other)
    own = sharded.state_dict()
    with pytest.raises(RuntimeError, match='Missing key.*"bias".*|Unexpected key'):
        sharded.load_state_dict({name: own[name] for name in own if name != "bias"})
    with pytest.raises(RuntimeError, match=r"Unexpected key.*more"):
        sharded.load_state_dict(dict(own, more=torch.zeros(1)))
    cut = dict(layer(64, 64, 8).state_dict())
    cut["bias"] = cut["bias"][:5]
    with pytest.raises(RuntimeError, match=r"bias has the shape \(5,\); \(64,\), as in one process, would work"):
        sharded.load_state_dict(cut)
    with pytest.raises(NotImplementedError, match="its entries are on several of them"):
        own["weight_values"] + 1


def test_states_that_do_not_fit_are_refused_with_the_reason(two):
    two.run(_refused_states)


def _meta():
    with torch.device("meta"):
        model = Mlp.__new__(Mlp)
        torch.nn.Module.__init__(model)
    whole = Mlp()
    for name, one in whole.named_children():
        model.add_module(name, copy.deepcopy(one).to("meta"))
    parallelize(model, mesh(), MLP_PLAN)
    assert model.up.weight_values.is_meta
    model.to_empty(device="cpu")
    model.load_state_dict(whole.state_dict())
    x = torch.randn(3, 96)
    torch.testing.assert_close(model(x), whole(x), rtol=1e-4, atol=1e-5)


def test_a_model_on_the_meta_device_is_sharded_and_then_loaded(two):
    two.run(_meta)


def _clipped():
    sharded, whole = twins(Mlp())
    parallelize(sharded, mesh(), MLP_PLAN)
    x = torch.randn(5, 96)
    norms = []
    for model in (sharded, whole):
        model(x).square().sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=False)
        norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
    torch.testing.assert_close(norms[0], norms[1], rtol=1e-4, atol=0)
    assert norms[0] > 1
    check_gradients(sharded, whole)


def test_the_norm_of_gradients_is_that_of_one_process(two):
    two.run(_clipped)


# ---- beside data parallelism: 2 x 2 processes ----


def grid():
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def part(there, seed):
    """The half of a batch that this process computes with."""
    return tokens(n=8, seed=seed).chunk(2)[there["dp"].get_local_rank()]


def trained_alone(seeds):
    model = transformer()
    optimizer = adam(model)
    return train(model, optimizer, seeds, lambda seed: tokens(n=8, seed=seed)), model


def averaged(losses, there):
    """The means over the data-parallel processes."""
    total = torch.tensor(losses)
    torch.distributed.all_reduce(total, group=there["dp"].get_group())
    return (total / there["dp"].size()).tolist()


def _ddp():
    there = grid()
    model = parallelize(transformer(), there["tp"], TRANSFORMER_PLAN)
    ddp = torch.nn.parallel.DistributedDataParallel(model, device_mesh=there["dp"])
    losses = averaged(train(ddp, adam(ddp), range(4), lambda seed: part(there, seed)), there)
    expected, _ = trained_alone(range(4))
    assert losses == pytest.approx(expected, rel=1e-3)
    assert losses[-1] != pytest.approx(losses[0], rel=1e-2)


def test_ddp_over_the_data_dimension(four):
    four.run(_ddp)


def _ddp_of_plain_processes(folder):
    there = grid()
    model = parallelize(transformer(), there["tp"], TRANSFORMER_PLAN)
    ddp = torch.nn.parallel.DistributedDataParallel(model, device_mesh=there["dp"])
    optimizer = adam(ddp)
    train(ddp, optimizer, range(3), lambda seed: part(there, seed))
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder)
    with torch.no_grad():
        return ddp(tokens(seed=9)).clone()


def test_a_model_in_ddp_is_saved_for_one_process(four, tmp_path):
    expected = four.run(_ddp_of_plain_processes, tmp_path)[0]
    model = zeroed(transformer())
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=tmp_path)
    model.load_state_dict(state["model"])
    torch.testing.assert_close(model(tokens(seed=9)), expected, rtol=1e-4, atol=1e-5)


def fully_sharded(there):
    model = parallelize(transformer(), there["tp"], TRANSFORMER_PLAN)
    for block in model.blocks:
        fully_shard(block, mesh=there["dp"])
    return fully_shard(model, mesh=there["dp"])


def _fsdp():
    there = grid()
    model = fully_sharded(there)
    values = model.blocks[0].qkv.weight_values
    assert model.blocks[0].qkv.weight.dtype == values.dtype  # of a part, sharded once more
    assert values.device_mesh.ndim == 2 and values.to_local().shape[0] < values.shape[0] / 2
    losses = averaged(train(model, adam(model), range(4), lambda seed: part(there, seed)), there)
    expected, _ = trained_alone(range(4))
    assert losses == pytest.approx(expected, rel=1e-3)
    assert losses[-1] != pytest.approx(losses[0], rel=1e-2)


def test_fully_shard_of_a_model_with_its_sharded_layers(four):
    four.run(_fsdp)


def _fsdp_save(folder):
    there = grid()
    model = fully_sharded(there)
    optimizer = adam(model)
    train(model, optimizer, range(3))
    dcp.save(state_of(model, optimizer), checkpoint_id=folder)
    with torch.no_grad():
        logits = model(tokens(seed=9)).clone()
    return logits, train(model, optimizer, range(3, 6))


def _fsdp_load(folder):
    return _continued(fully_sharded(grid()), folder)


def test_a_checkpoint_of_fully_sharded_processes_continues_in_one_and_in_two(two, four, tmp_path):
    expected = four.run(_fsdp_save, tmp_path)[0]
    check_continues(_continued(zeroed(transformer()), tmp_path), expected)
    check_continues(two.run(_load_and_continue, tmp_path)[0], expected)


def test_a_checkpoint_of_one_process_continues_in_fully_sharded_ones(four, tmp_path):
    expected = _train_and_save_alone(tmp_path)
    check_continues(four.run(_fsdp_load, tmp_path)[0], expected)


def _hsdp(folder):
    there = init_device_mesh("cpu", (1, 2, 2), mesh_dim_names=("replicas", "shards", "tp"))
    model = parallelize(transformer(), there["tp"], TRANSFORMER_PLAN)
    fully_shard(model, mesh=there["replicas", "shards"])
    assert model.blocks[0].up.weight_values.device_mesh.ndim == 3
    dcp.save(model.state_dict(), checkpoint_id=folder)


def test_a_checkpoint_of_replicas_of_shards_loads_in_one_process(four, tmp_path):
    four.run(_hsdp, tmp_path)
    model, expected = twins(transformer())
    state = zeroed(model).state_dict()
    dcp.load(state, checkpoint_id=tmp_path)
    model.load_state_dict(state)
    assert torch.equal(model(tokens()), expected(tokens()))


def _fsdp_of_the_rest():
    there = grid()
    sharded, whole = twins(transformer())
    parallelize(sharded, there["tp"], TRANSFORMER_PLAN)
    for one in (sharded.embed, sharded.head):
        fully_shard(one, mesh=there["dp"])
    numbers = tokens()
    y, expected = sharded(numbers), whole(numbers)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    y.square().mean().backward()
    expected.square().mean().backward()
    check_gradients(sharded, whole)
    assert sharded.head.weight.placements[0] != Replicate()


def test_fully_shard_of_the_dense_layers_alone(four):
    four.run(_fsdp_of_the_rest)


# ---- fully_shard of layers whose number of blocks the ranks do not divide ----

_UNEVEN = torch.tensor([[1, 0, 1], [0, 1, 1], [0, 0, 1]]).bool()
_ONE = torch.tensor([[1, 0, 0], [0, 0, 0], [0, 0, 0]]).bool()
UNEVEN = {
    "linear": (lambda: BlockSparseLinear(24, 24, _UNEVEN, 8), (3, 24)),
    "one block": (lambda: BlockSparseLinear(24, 24, _ONE, 8), (3, 24)),
    "cut": (lambda: BlockSparseLinear(20, 21, _UNEVEN, 8), (3, 20)),
    "convolution": (lambda: BlockSparseConv2d(24, 24, 3, layout=_UNEVEN, block=8), (2, 24, 6, 6)),
    "convolution of one block": (lambda: BlockSparseConv2d(24, 24, 3, layout=_ONE, block=8), (2, 24, 6, 6)),
    "convolution of one dimension": (lambda: BlockSparseConv1d(24, 24, 3, layout=_UNEVEN, block=8), (2, 24, 6)),
    "transposed": (lambda: BlockSparseConvTranspose2d(24, 24, 3, layout=_UNEVEN, block=8), (2, 24, 6, 6)),
}  # fmt: skip


def _cast(kind):
    make, shape = UNEVEN[kind]
    model, x = torch.nn.Sequential(make()), torch.randn(shape, dtype=torch.float64)
    whole = copy.deepcopy(model).double()
    fully_shard(model)
    model.to(torch.float64)
    for one in (model, whole):
        one(x).square().sum().backward()
    torch.testing.assert_close(model[0].weight_values.grad.full_tensor(), whole[0].weight_values.grad)
    torch.testing.assert_close(model(x), whole(x))


def _from_meta(kind):
    make, shape = UNEVEN[kind]
    with torch.device("meta"):
        model = torch.nn.Sequential(make())
    source, x = torch.nn.Sequential(make()), torch.randn(shape)
    fully_shard(model)
    model.to_empty(device="cpu")
    set_model_state_dict(model, source.state_dict(), options=StateDictOptions(full_state_dict=True))
    torch.testing.assert_close(model(x), source(x))
    model.reshard()
    model[0].reset_parameters()
    values = model[0].weight_values.full_tensor()
    bound = make().weight_values.abs().max() * 1.5
    assert 0 < values.abs().max() <= bound and torch.isfinite(model(x)).all()
    model(x).sum().backward()
    return values.detach()


@pytest.mark.parametrize("kind", list(UNEVEN))
def test_a_fully_sharded_layer_changes_its_type(kind, two):
    two.run(_cast, kind)


@pytest.mark.parametrize("kind", list(UNEVEN))
def test_a_fully_sharded_layer_that_was_made_on_meta_is_loaded_or_initialised(kind, two):
    first, second = two.run(_from_meta, kind)
    assert torch.equal(first, second)
