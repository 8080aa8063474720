"""relayout in training: block counts that change, room for them, optimizers, several processes."""

import copy
import io
import sys
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import torch.nn.utils.prune  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import BlockSparseLinear  # noqa: E402

_ROWS, _COLS = 6, 5


def layout(density, seed=0):
    return sparsekiln.patterns.random(_ROWS, _COLS, density, seed=seed)


def make(density=0.4, seed=0, **options):
    torch.manual_seed(seed)
    return BlockSparseLinear(16 * _COLS, 16 * _ROWS, layout(density, seed), 16, **options)


def step(layer, optimizer, seed=0):
    """One step of an ordinary loop; its loss lives on in the caller."""
    x = torch.randn(7, layer.in_features, generator=torch.Generator().manual_seed(seed))
    loss = layer(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def check_forward(layer):
    x = torch.randn(3, layer.in_features)
    expected = torch.nn.functional.linear(x, layer.to_dense(), layer.bias)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)


# ---- the ordinary loop ----


@pytest.mark.parametrize("max_blocks", [None, _ROWS * _COLS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_loop_in_which_the_last_loss_is_alive(dtype, max_blocks):
    layer = make(dtype=dtype, max_blocks=max_blocks).double() if dtype is torch.float64 else make(max_blocks=max_blocks)
    parameter, optimizer = layer.weight_values, torch.optim.AdamW(layer.parameters(), 0.01)
    counts = []
    for number in range(5):
        x = torch.randn(7, layer.in_features, dtype=dtype)
        loss = layer(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        layer.relayout(layout(0.2 + 0.15 * number, number), optimizer)
        counts.append(layer.layout.blocks)
        assert layer.weight_values is parameter
        assert parameter.shape[0] == (max_blocks or counts[-1])
    assert len(set(counts)) == 5
    expected = torch.nn.functional.linear(x, layer.to_dense(), layer.bias)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("max_blocks", [None, _ROWS * _COLS])
def test_the_loop_computes_what_a_masked_dense_layer_does(max_blocks):
    layer = make(max_blocks=max_blocks)
    dense = torch.nn.Linear(layer.in_features, layer.out_features)
    with torch.no_grad():
        dense.weight.copy_(layer.to_dense())
        dense.bias.copy_(layer.bias)
    ours, theirs = (torch.optim.Adam(one.parameters(), 0.01) for one in (layer, dense))
    for number in range(4):
        mask = torch.from_numpy(layer.layout.mask()).repeat_interleave(16, 0).repeat_interleave(16, 1)
        loss = step(layer, ours, number)
        x = torch.randn(7, layer.in_features, generator=torch.Generator().manual_seed(number))
        other = dense(x).square().mean()
        theirs.zero_grad()
        other.backward()
        dense.weight.grad *= mask
        theirs.step()
        torch.testing.assert_close(loss, other, rtol=1e-4, atol=1e-6)
        layer.relayout(layout(0.3 + 0.1 * number, number), ours)
        kept = torch.from_numpy(layer.layout.mask()).repeat_interleave(16, 0).repeat_interleave(16, 1)
        with torch.no_grad():
            for tensor in (dense.weight, theirs.state[dense.weight]["exp_avg"], theirs.state[dense.weight]["exp_avg_sq"]):
                tensor *= mask & kept
    torch.testing.assert_close(layer.to_dense(), dense.weight, rtol=1e-3, atol=1e-5)


def test_a_state_of_another_layout_is_loaded_while_the_last_loss_is_alive():
    layer = make()
    optimizer = torch.optim.AdamW(layer.parameters(), 0.01)
    loss = step(layer, optimizer)
    other = make(0.8, 3)
    layer.load_state_dict(other.state_dict())
    optimizer = torch.optim.AdamW(layer.parameters(), 0.01)
    after = step(layer, optimizer)
    assert torch.equal(after, step(other, torch.optim.AdamW(other.parameters(), 0.01))) and loss is not after


@pytest.mark.parametrize("max_blocks", [None, _ROWS * _COLS])
def test_a_backward_pass_of_the_old_layout_is_refused(max_blocks):
    layer = make(max_blocks=max_blocks)
    loss = layer(torch.randn(3, layer.in_features)).sum()
    layer.relayout(layout(0.8, 3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_hooks_that_wait_for_the_accumulated_gradient_stay():
    layer, called = make(), []
    layer.weight_values.register_post_accumulate_grad_hook(lambda parameter: called.append(parameter.grad.shape[0]))
    optimizer = torch.optim.SGD(layer.parameters(), 0.01)
    loss = step(layer, optimizer)
    layer.relayout(layout(0.8, 3), optimizer)
    step(layer, optimizer)
    assert called == [layout(0.4).blocks, layout(0.8, 3).blocks] and loss is not None


def test_hooks_of_the_gradient_accumulator_are_not_lost_silently():
    layer = make()
    accumulator = torch.autograd.graph.get_gradient_edge(layer.weight_values).node
    accumulator.register_hook(lambda *_: None)
    before = copy.deepcopy(layer.state_dict())
    with pytest.raises(RuntimeError, match="hooks of its gradient accumulator.*max_blocks="):
        layer.relayout(layout(0.8, 3))
    assert all(torch.equal(before[name], tensor) for name, tensor in layer.state_dict().items())


@pytest.mark.parametrize("device, dropped", [("cuda", 1), ("cpu", 0)])
def test_cuda_graphs_that_torch_compile_recorded_are_dropped(device, dropped, monkeypatch):
    """What PyTorch is asked for; no GPU takes part."""
    from sparsekiln.torch import graphs

    asked = []
    trees = types.SimpleNamespace(reset_cudagraph_trees=lambda: asked.append(1))
    monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", trees)
    graphs.forget_recorded_graphs(torch.device(device))
    assert len(asked) == dropped
    monkeypatch.delitem(sys.modules, "torch._inductor.cudagraph_trees")
    graphs.forget_recorded_graphs(torch.device(device))
    assert len(asked) == dropped


# ---- room ----


def test_room_for_blocks_has_no_effect_and_gradients_of_zeros():
    plain, roomy = make(), make(max_blocks=20)
    used = plain.layout.blocks
    with torch.no_grad():
        roomy.weight_values.fill_(float("nan"))[:used] = plain.weight_values
        roomy.bias.copy_(plain.bias)
    x, dy = torch.randn(4, plain.in_features), torch.randn(4, plain.out_features)
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    for layer, leaf in zip((plain, roomy), leaves):
        layer(leaf).backward(dy)
    assert torch.equal(plain(x), roomy(x)) and torch.equal(leaves[0].grad, leaves[1].grad)
    assert torch.equal(roomy.weight_values.grad[:used], plain.weight_values.grad)
    assert roomy.weight_values.grad.shape[0] == 20 and not roomy.weight_values.grad[used:].any()
    assert torch.equal(plain.to_dense(), roomy.to_dense())
    assert torch.equal(plain.weight.to_dense(), roomy.weight.to_dense())
    assert "max_blocks=20" in repr(roomy)


def test_with_room_no_address_changes():
    layer = make(max_blocks=30)
    optimizer = torch.optim.Adam(layer.parameters(), 0.01)
    step(layer, optimizer)

    def addresses():
        state = optimizer.state[layer.weight_values]
        tensors = [*layer.parameters(), *layer.buffers(), layer.weight_values.grad, state["exp_avg"], state["exp_avg_sq"]]
        return [tensor.data_ptr() for tensor in tensors]

    before = addresses()
    layer.relayout(layout(0.9, 2), optimizer)
    assert addresses() == before
    check_forward(layer)


def test_more_blocks_than_there_is_room_for_are_refused():
    with pytest.raises(ValueError, match="12 blocks.*max_blocks=11"):
        make(max_blocks=11)
    layer = make(max_blocks=12)
    with pytest.raises(ValueError, match="24 blocks.*max_blocks=12"):
        layer.relayout(layout(0.8, 3))
    with pytest.raises(RuntimeError, match="24 blocks.*max_blocks=12"):
        layer.load_state_dict(make(0.8, 3).state_dict())
    check_forward(layer)


@pytest.mark.parametrize("rooms", [(None, 20), (20, None), (20, 30), (30, 25)])
def test_states_move_between_layers_with_and_without_room(rooms):
    saved, loaded = make(0.4, 1, max_blocks=rooms[0]), make(0.6, 2, max_blocks=rooms[1])
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file))
    assert loaded.layout == saved.layout and torch.equal(loaded.to_dense(), saved.to_dense())
    assert loaded.weight_values.shape[0] == (rooms[1] or saved.layout.blocks)
    check_forward(loaded)


def test_room_in_the_other_ways_to_make_a_layer():
    dense = torch.nn.Linear(64, 96)
    layer = BlockSparseLinear.from_linear(dense, 0.5, 16, max_blocks=20)
    assert layer.weight_values.shape[0] == 20 and layer.layout.blocks == 12
    other = BlockSparseLinear.from_bsr(layer.weight.detach(), layer.bias, max_blocks=24)
    assert other.weight_values.shape[0] == 24 and torch.equal(other.to_dense(), layer.to_dense())
    same = copy.deepcopy(layer)
    same.relayout(np.arange(24).reshape(6, 4) % 2)
    assert layer.layout != same.layout
    check_forward(layer)
    check_forward(same)


# ---- optimizers ----


def test_factored_state_of_each_block_moves_with_it():
    layer = make()
    optimizer = torch.optim.Adafactor(layer.parameters(), 0.01)
    loss = step(layer, optimizer)
    rows = optimizer.state[layer.weight_values]["row_var"].clone()
    origin = layer.relayout(layout(0.7, 5), optimizer)
    moved = optimizer.state[layer.weight_values]["row_var"]
    assert torch.equal(moved[origin >= 0], rows[origin[origin >= 0]]) and not moved[origin < 0].any()
    assert 0 < (origin >= 0).sum() < origin.numel()
    assert torch.isfinite(step(layer, optimizer)) and loss is not None


class Preconditioned(torch.optim.SGD):
    """Keeps a matrix over the blocks, as SOAP and Shampoo do."""

    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["preconditioner"] = torch.eye(parameter.shape[0])
        return super().step(closure)


@pytest.mark.parametrize(
    "optimizer, named",
    [
        (lambda parameters: Preconditioned(parameters, 0.1), "Preconditioned keeps 'preconditioner' for weight_values, of shape"),
        (lambda parameters: torch.optim.LBFGS(parameters, 0.1), "LBFGS keeps its state of weight_values together"),
    ],
)
def test_an_optimizer_whose_state_cannot_move_is_named_before_anything_changes(optimizer, named):
    layer = make()
    optimizer = optimizer(list(layer.parameters()))
    x = torch.randn(3, layer.in_features)

    def closure():
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    before = copy.deepcopy(layer.state_dict())
    with pytest.raises(ValueError, match=named):
        layer.relayout(layout(0.8, 3), optimizer)
    assert all(torch.equal(before[name], tensor) for name, tensor in layer.state_dict().items())


def test_an_optimizer_of_other_parameters_is_refused():
    with pytest.raises(ValueError, match="SGD does not hold weight_values"):
        make().relayout(layout(0.8, 3), torch.optim.SGD(make().parameters(), 0.1))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "ASGD", "Rprop"])
def test_optimizers_of_pytorch_continue(name):
    layer = make()
    optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.01)
    loss = step(layer, optimizer)
    layer.relayout(layout(0.8, 3), optimizer)
    for _ in range(2):
        loss = step(layer, optimizer)
    assert torch.isfinite(loss)
    check_forward(layer)


# ---- parameters that are not the layer's own ----


def test_a_pruned_or_parametrized_weight_is_refused():
    pruned, parametrized = make(), make()
    torch.nn.utils.prune.random_unstructured(pruned, "weight_values", 0.5)
    torch.nn.utils.parametrizations.orthogonal(parametrized, "weight_values")
    for layer, remedy in ((pruned, "prune.remove"), (parametrized, "remove_parametrizations")):
        with pytest.raises(RuntimeError, match=remedy):
            layer.relayout(layout(0.8, 3))
        check_forward(layer)
        layer.load_state_dict(layer.state_dict())
        state = dict(layer.state_dict(), **{name: make(0.4, 5).state_dict()[name] for name in ("crow_indices", "col_indices")})
        with pytest.raises(RuntimeError, match=remedy):
            layer.load_state_dict(state)
    torch.nn.utils.prune.remove(pruned, "weight_values")
    pruned.relayout(layout(0.8, 3))
    check_forward(pruned)


# ---- several processes ----


def _start(rank, world, file):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)


def _refused_in_ddp(layer, before_first_pass):
    parallel = torch.nn.parallel.DistributedDataParallel(layer)
    if not before_first_pass:
        loss = parallel(torch.randn(2, layer.in_features)).sum()
        loss.backward()
    before = copy.deepcopy(layer.state_dict())
    with pytest.raises(RuntimeError, match="DistributedDataParallel averages its gradient.*max_blocks=.*wrap it again"):
        layer.relayout(layout(0.8, 3))
    with pytest.raises(RuntimeError, match="DistributedDataParallel averages its gradient"):
        layer.load_state_dict(make(0.8, 3).state_dict())
    assert all(torch.equal(before[name], tensor) for name, tensor in layer.state_dict().items())
    return parallel


@pytest.fixture
def _one_process(tmp_path):
    _start(0, 1, tmp_path / "rendezvous")
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("before_first_pass", [True, False])
def test_ddp_refuses_another_number_of_blocks(_one_process, before_first_pass):
    _refused_in_ddp(make(), before_first_pass)


def test_a_ddp_that_was_dropped_but_not_collected_refuses_nothing(_one_process):
    layer = make()
    parallel = torch.nn.parallel.DistributedDataParallel(layer)
    parallel.cycle = [parallel]
    loss = parallel(torch.randn(2, layer.in_features)).sum()
    loss.backward()
    del parallel
    layer.relayout(layout(0.8, 3))
    check_forward(layer)


def test_a_layer_beside_ddp_and_one_that_was_unwrapped_move(_one_process):
    layer, beside = make(), make()
    parallel = _refused_in_ddp(layer, False)
    optimizer = torch.optim.SGD(beside.parameters(), 0.1)
    loss = step(beside, optimizer)
    beside.relayout(layout(0.8, 3), optimizer)
    assert torch.isfinite(step(beside, optimizer)) and loss is not None
    del parallel
    layer.relayout(layout(0.8, 3))
    torch.nn.parallel.DistributedDataParallel(layer)
    check_forward(layer)


def test_fsdp_refuses_another_layout(_one_process):
    from torch.distributed.fsdp import fully_shard

    layer = make()
    dense, bias = layer.to_dense().detach(), layer.bias.detach().clone()
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    fully_shard(layer, mesh=mesh)
    x = torch.randn(3, layer.in_features)
    y = layer(x)
    torch.testing.assert_close(y, torch.nn.functional.linear(x, dense, bias), rtol=1e-4, atol=1e-5)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="DTensor.*before the model is sharded"):
        layer.relayout(layout(0.4, 5))


def _train(rank, world, file, folder):
    _start(rank, world, file)
    layer = make(max_blocks=30)
    parallel = torch.nn.parallel.DistributedDataParallel(layer)
    optimizer = torch.optim.Adam(parallel.parameters(), 0.01)
    for number, (x, target) in enumerate(_batches()):
        loss = torch.nn.functional.mse_loss(parallel(x[rank::world]), target[rank::world])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        layer.relayout(layout(0.3 + 0.2 * number, number), optimizer)
    torch.save(layer.state_dict(), f"{folder}/{rank}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _batches():
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn(8, 80, generator=generator), torch.randn(8, 96, generator=generator)) for _ in range(3)]


def test_two_processes_with_room_train_and_move_as_one(tmp_path):
    torch.multiprocessing.spawn(_train, (2, tmp_path / "rendezvous", tmp_path), nprocs=2)
    layer = make()
    optimizer = torch.optim.Adam(layer.parameters(), 0.01)
    for number, (x, target) in enumerate(_batches()):
        loss = torch.nn.functional.mse_loss(layer(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        layer.relayout(layout(0.3 + 0.2 * number, number), optimizer)
    states = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    layer_of_them = make(max_blocks=30)
    layer_of_them.load_state_dict(states[0])
    assert layer_of_them.layout == layer.layout
    torch.testing.assert_close(layer_of_them.to_dense(), layer.to_dense(), rtol=1e-3, atol=1e-4)
