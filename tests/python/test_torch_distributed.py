"""Block-sparse layers that are sharded over several processes compute what one process computes."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("PyTorch has no gloo", allow_module_level=True)

from process_group import four, two  # noqa: E402, F401 - fixtures
from sharded_models import (  # noqa: E402
    HEAD, MLP_PLAN, TRANSFORMER_PLAN, Mlp, check_gradients, layer, tokens, transformer, twins,
)  # fmt: skip
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import BlockSparseLinear, init, launch_overlap, sparsify_  # noqa: E402
from sparsekiln.torch.linear import products  # noqa: E402
from sparsekiln.torch.parallel import (  # noqa: E402
    ColwiseSparseParallel, Partition, RowwiseSparseParallel, ShardedBlockSparseLinear, parallelize,
)  # fmt: skip

F = torch.nn.functional


@pytest.fixture(params=[2, 4])
def ranks(request, two, four):
    return two if request.param == 2 else four


def mesh():
    return init_device_mesh("cpu", (torch.distributed.get_world_size(),))


def inputs(*shape, seed=7):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def both(sharded, whole, x, place=lambda x: x, unplace=lambda y: y):
    """Runs both, forward and backward, and compares outputs and gradients."""
    mine, other = x.clone(), x.clone()
    if x.is_floating_point():
        mine.requires_grad_()
        other.requires_grad_()
    y, expected = unplace(sharded(place(mine))), whole(other)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    dy = inputs(*expected.shape, seed=8)
    y.backward(dy)
    expected.backward(dy)
    if x.is_floating_point():
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)
    check_gradients(sharded, whole)


def placed(x, there, dim):
    """x, which all ranks have, as a DTensor that is sharded along a dimension."""
    return DTensor.from_local(x, there, [Replicate()]).redistribute(there, [Shard(dim)])


# ---- whole models ----


def _mlp():
    sharded, whole = twins(Mlp())
    parallelize(sharded, mesh(), MLP_PLAN)
    assert all(type(one) is ShardedBlockSparseLinear for one in sharded.children())
    assert sharded.up.out_features < 256 and sharded.down.in_features == sharded.up.out_features
    both(sharded, whole, inputs(5, 3, 96))
    weight = sharded.up.weight  # as models ask the weights of their layers; its elements are on several ranks
    assert (weight.dtype, weight.device.type, weight.shape, weight.requires_grad) == (torch.float32, "cpu", whole.up.weight.shape, True)
    with pytest.raises(RuntimeError, match="needs all blocks of the layer"):
        weight + 1


def test_an_mlp_of_four_layers(ranks):
    ranks.run(_mlp)


def _transformer():
    sharded, whole = twins(transformer())
    parallelize(sharded, mesh(), TRANSFORMER_PLAN)
    assert sharded.blocks[0].qkv.out_features < 192
    both(sharded, whole, tokens())


def test_a_transformer(ranks):
    ranks.run(_transformer)


def _training():
    sharded, whole = twins(transformer())
    parallelize(sharded, mesh(), TRANSFORMER_PLAN)
    losses = []
    for model in (sharded, whole):
        optimizer = torch.optim.AdamW(model.parameters(), 0.01, foreach=False)
        losses.append([])
        for seed in range(4):
            optimizer.zero_grad()
            batch = tokens(seed=seed)
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert losses[0][-1] != pytest.approx(losses[0][0], rel=1e-2)


def test_it_trains_as_one_process_does(ranks):
    ranks.run(_training)


# ---- one layer ----


def _column_wise_bits():
    sharded, whole = twins(layer(96, 204, 8, activation="gelu"))
    parallelize(sharded, mesh(), ColwiseSparseParallel(output_layouts=Replicate()))
    x = inputs(9, 96)
    assert torch.equal(sharded(x), whole(x))
    sharded, whole = twins(layer(96, 204, 8, activation="gelu"))
    parallelize(sharded, mesh(), ColwiseSparseParallel())
    assert torch.equal(sharded(x), whole(x)[:, sharded.features])
    whole(x).square().sum().backward()
    sharded(x).square().sum().backward()
    check_gradients(sharded, whole, rtol=0, atol=0)
    return sharded.features.tolist()


def test_a_column_wise_layer_has_the_bits_of_one_process(ranks):
    features = ranks.run(_column_wise_bits)
    assert sorted(sum(features, [])) == list(range(204))
    assert any(of_rank != list(range(of_rank[0], of_rank[-1] + 1)) for of_rank in features)


def _gathered(activation, bias):
    sharded, whole = twins(layer(100, 204, 8, activation=activation, bias=bias))
    parallelize(sharded, mesh(), ColwiseSparseParallel(output_layouts=Replicate()))
    both(sharded, whole, inputs(3, 5, 100))


@pytest.mark.parametrize("activation, bias", [(None, True), ("silu", False)])
def test_outputs_that_are_gathered_have_their_order(ranks, activation, bias):
    ranks.run(_gathered, activation, bias)


def _row_wise_of_whole_inputs(activation, bias):
    sharded, whole = twins(layer(204, 100, 8, activation=activation, bias=bias))
    parallelize(sharded, mesh(), RowwiseSparseParallel(input_layouts=Replicate()))
    both(sharded, whole, inputs(3, 5, 204))


@pytest.mark.parametrize("activation, bias", [("gelu", True), (None, False)])
def test_a_row_wise_layer_takes_whole_inputs(ranks, activation, bias):
    ranks.run(_row_wise_of_whole_inputs, activation, bias)


def _few_blocks():
    there, empty = mesh(), sparsekiln.Layout([[0] * 8] * 8)
    one_block = sparsekiln.Layout([[0] * 8] * 5 + [[0, 1, 0, 0, 0, 0, 0, 0]] + [[0] * 8] * 2)
    for layout in (empty, one_block):
        sharded, whole = twins(torch.nn.Sequential(*(BlockSparseLinear(64, 64, layout, 8) for _ in range(2))))
        parallelize(sharded, there, {"0": ColwiseSparseParallel(), "1": RowwiseSparseParallel()})
        both(sharded, whole, inputs(3, 64))
        for shape in ((64,), (0, 64), (2, 0, 64)):
            torch.testing.assert_close(sharded(inputs(*shape)), whole(inputs(*shape)))
        state = sharded.state_dict()
        assert state["0.weight_values"].shape == whole[0].weight_values.shape
        sharded.load_state_dict(state)


def test_ranks_without_blocks_and_batches_without_rows(ranks):
    ranks.run(_few_blocks)


def _work():
    one = layer(2048, 2048, 8, density=0.05)
    parallelize(one, mesh(), ColwiseSparseParallel())
    other = layer(2048, 2048, 8, density=0.05)
    parallelize(other, mesh(), RowwiseSparseParallel(input_layouts=Replicate()))
    return one.layout.blocks, other.layout.blocks


def test_ranks_have_equal_work(ranks):
    for blocks in zip(*ranks.run(_work)):
        assert max(blocks) <= 1.05 * sum(blocks) / len(blocks)


def _autocast():
    sharded, whole = twins(Mlp())
    parallelize(sharded, mesh(), MLP_PLAN)
    x = inputs(5, 96)
    with torch.autocast("cpu", torch.bfloat16):
        y, expected = sharded(x), whole(x)
    assert y.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=0.05, atol=0.05)


def test_autocast(two):
    two.run(_autocast)


def _compiled():
    torch.compiler.reset()
    sharded, whole = twins(Mlp())
    parallelize(sharded, mesh(), MLP_PLAN)
    x = inputs(5, 96)
    y = torch.compile(sharded, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(y, whole(x), rtol=1e-4, atol=1e-5)
    y.square().sum().backward()
    whole(x).square().sum().backward()
    check_gradients(sharded, whole)


def test_torch_compile_takes_it_as_one_graph(two):
    two.run(_compiled)


def _copies():
    sharded, whole = twins(Mlp())
    parallelize(sharded, mesh(), MLP_PLAN)
    x = inputs(5, 96)
    with torch.inference_mode():
        assert torch.equal(copy.deepcopy(sharded)(x), sharded(x))
        torch.testing.assert_close(sharded(x), whole(x), rtol=1e-4, atol=1e-5)


def test_copies_and_inference_mode(two):
    two.run(_copies)


def _overlapping(make):
    """Whether launches of the layers of a model may begin early, call by call."""
    model, x, early, start = make(), inputs(5, 96), [], products.start

    def told(asked, given, launched):
        begin = start(asked, given, launched)
        early.append(begin.early)
        return begin

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(launch_overlap, "place_of", lambda device: launch_overlap.Place(0, False))
        patch.setattr(products, "start", told)
        with launch_overlap.overlapping_launches():
            y, found = model(x), []
            model(x)
            for _ in range(2):
                model(x)
                early.clear()
                assert torch.equal(model(x), y)
                found.append(list(early))
                early.clear()
                for parameter in model.parameters():
                    parameter.mul_(1)
                model(x)
                found.append(early[:1])
    return found


def _sharded_mlp():
    return parallelize(Mlp(), mesh(), MLP_PLAN)


def test_launches_of_sharded_layers_overlap(two):
    assert two.run(_overlapping, _sharded_mlp) == [[[True] * 4, [False]] * 2] * 2
    # The two calls after a write are ordinary: that which notices it, and that which reads what was written.


def _sharded_by_fsdp():
    model = Mlp()
    for part in (*model.children(), model):
        fully_shard(part, mesh=mesh())
    return model


def test_launches_of_layers_whose_weights_fsdp_gathers_do_not(two):
    for found in two.run(_overlapping, _sharded_by_fsdp):
        assert not any(map(any, found))


def _second_derivatives(plan):
    sharded, whole = twins(Mlp())
    parallelize(sharded, mesh(), plan)
    found = []
    for model in (sharded, whole):
        x = inputs(4, 96).requires_grad_()
        (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        found += [first.detach(), second]
    torch.testing.assert_close(found[0], found[2], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[1], found[3], rtol=1e-3, atol=1e-3)


TWICE = torch.__version__ >= "2.12"  # redistributions of PyTorch can be differentiated twice
GATHERED_PLAN = {
    "up": ColwiseSparseParallel(output_layouts=Replicate()), "down": RowwiseSparseParallel(input_layouts=Replicate()),
}  # fmt: skip


@pytest.mark.parametrize("plan", [MLP_PLAN, GATHERED_PLAN], ids=["sharded", "gathered"])
def test_second_derivatives(two, plan):
    if plan is GATHERED_PLAN and not TWICE:
        two.run(_second_derivatives_are_refused, plan)
    else:
        two.run(_second_derivatives, plan)


def _second_derivatives_are_refused(plan):
    sharded = parallelize(Mlp(), mesh(), plan)
    x = inputs(4, 96).requires_grad_()
    (first,) = torch.autograd.grad(sharded(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.square().sum().backward()


@pytest.mark.skipif(not TWICE, reason="PyTorch before 2.12 may refuse a first derivative there that is to be differentiated")
@pytest.mark.parametrize(
    "plan",
    [
        {"down": RowwiseSparseParallel(input_layouts=Replicate(), output_layouts=Shard(0)), "wide": ColwiseSparseParallel(input_layouts=Shard(0), output_layouts=Replicate())},
        {"up": ColwiseSparseParallel(output_layouts=Shard(0)), "down": RowwiseSparseParallel(input_layouts=Shard(0))},
    ],
    ids=["row-wise", "column-wise"],
)  # fmt: skip
def test_second_derivatives_where_rows_are_sharded_are_refused(two, plan):
    two.run(_second_derivatives_are_refused, plan)


# ---- DTensors, sequences ----


def _dtensors():
    there = mesh()
    sharded, whole = twins(Mlp())
    plan = {
        "up": ColwiseSparseParallel(), "down": RowwiseSparseParallel(use_local_output=False),
        "wide": ColwiseSparseParallel(), "narrow": RowwiseSparseParallel(output_layouts=Shard(0), use_local_output=False),
    }  # fmt: skip
    parallelize(sharded, there, plan)
    seen = []
    sharded.down.register_forward_hook(lambda _, x, y: seen.append(y))

    def unplace(y):
        assert isinstance(y, DTensor) and y.placements == (Shard(0),) and y.shape == (7, 3, 60)
        assert seen[0].placements == (Replicate(),) and seen[0].shape == (7, 3, 100)
        return y.full_tensor()

    both(sharded, whole, inputs(7, 3, 96), lambda x: placed(x, there, 1), unplace)


def test_dtensors_go_in_and_come_out(ranks):
    ranks.run(_dtensors)


def _column_dtensors():
    there = mesh()
    sharded, whole = twins(layer(96, 204, 8))
    parallelize(sharded, there, ColwiseSparseParallel(output_layouts=Shard(0), use_local_output=False))
    both(sharded, whole, inputs(6, 96), lambda x: placed(x, there, 0), lambda y: y.full_tensor())


def test_a_column_wise_layer_gives_a_dtensor_of_rows(ranks):
    ranks.run(_column_dtensors)


def _sequence():
    there = mesh()
    sharded, whole = twins(transformer())
    along = Shard(1)
    plan = {
        "blocks.*.before_*": SequenceParallel(),
        "blocks.*.qkv": ColwiseSparseParallel(input_layouts=along, group=HEAD, parts=3),
        "blocks.*.out": RowwiseSparseParallel(output_layouts=along, use_local_output=False),
        "blocks.*.gate": ColwiseSparseParallel(input_layouts=along), "blocks.*.up": ColwiseSparseParallel(input_layouts=along),
        "blocks.*.down": RowwiseSparseParallel(output_layouts=along, use_local_output=False),
    }  # fmt: skip
    parallelize(sharded, there, plan)
    shapes = []
    sharded.blocks[0].out.register_forward_hook(lambda _, x, y: shapes.append(y.to_local().shape[1]))

    def forward(numbers):
        x = placed(sharded.embed(numbers), there, 1)
        for block in sharded.blocks:
            x = block(x)
        return sharded.head(x.redistribute(there, [Replicate()]).to_local())

    forward.named_modules = sharded.named_modules
    both(forward, whole, tokens(2, 10))
    assert shapes[0] < 10


def test_sequences_are_sharded_between_the_layers(ranks):
    ranks.run(_sequence)


def _sequence_of_tensors():
    there = mesh()
    rank, world = there.get_local_rank(), there.size()
    sharded, whole = twins(Mlp())
    plan = dict(MLP_PLAN, up=ColwiseSparseParallel(input_layouts=Shard(0)), narrow=RowwiseSparseParallel(output_layouts=Shard(0)))
    parallelize(sharded, there, plan)
    x = inputs(2 * world, 96)
    mine = x[2 * rank : 2 * rank + 2].clone().requires_grad_()
    other = x.clone().requires_grad_()
    y, expected = sharded(mine), whole(other)
    torch.testing.assert_close(y, expected[2 * rank : 2 * rank + 2], rtol=1e-4, atol=1e-5)
    y.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(mine.grad, other.grad[2 * rank : 2 * rank + 2], rtol=1e-4, atol=1e-5)
    check_gradients(sharded, whole)


def test_tensors_of_each_ranks_rows(ranks):
    ranks.run(_sequence_of_tensors)


# ---- with PyTorch's own ----


def _parallelize_module():
    there = mesh()
    sharded, whole = twins(Mlp())
    parallelize_module(sharded, there, {"up": ColwiseSparseParallel(), "wide": ColwiseSparseParallel()})
    parallelize_module(
        sharded, there,
        {"down": RowwiseSparseParallel(partition=sharded.up.partition), "narrow": RowwiseSparseParallel(partition=sharded.wide.partition)},
    )  # fmt: skip
    both(sharded, whole, inputs(4, 96))
    with pytest.raises(ValueError, match="must have the partition of the layer before"):
        parallelize_module(Mlp(), there, {"down": RowwiseSparseParallel()})


def test_parallelize_module_of_pytorch_takes_the_styles(ranks):
    ranks.run(_parallelize_module)


def _beside_dense_layers():
    there = mesh()
    torch.manual_seed(0)
    sharded, whole = twins(
        torch.nn.Sequential(torch.nn.Linear(32, 128), layer(128, 64, 8), layer(64, 128, 8, 1), torch.nn.Linear(128, 32))
    )
    first, second = (Partition.in_order(128, there.size(), 8) for _ in range(2))
    plan = {
        "0": ColwiseParallel(), "1": RowwiseSparseParallel(partition=first), "2": ColwiseSparseParallel(partition=second, use_local_output=False),
        "3": RowwiseParallel(),
    }  # fmt: skip
    parallelize(sharded, there, plan)
    both(sharded, whole, inputs(4, 32))


def test_a_partition_in_order_fits_dense_layers_of_pytorch(ranks):
    ranks.run(_beside_dense_layers)


def _weights_of_rank_0():
    rank = torch.distributed.get_rank()
    one = layer(64, 64, 8)
    with torch.no_grad():
        one.weight_values.add_(rank)
        one.bias.add_(rank)
    parallelize(one, mesh(), ColwiseSparseParallel(output_layouts=Replicate()))
    x = inputs(3, 64)
    torch.testing.assert_close(one(x), layer(64, 64, 8)(x))
    other = layer(64, 64, 8)
    with torch.no_grad():
        other.bias.add_(rank)
    parallelize(other, mesh(), ColwiseSparseParallel(), src_data_rank=None)
    assert torch.equal(other.bias.to_local()[: other.out_features], layer(64, 64, 8).bias[other.features] + rank)


def test_all_ranks_have_the_weights_of_rank_0_or_their_own(two):
    two.run(_weights_of_rank_0)


# ---- refusals ----


def _refusals():
    there, column, row = mesh(), ColwiseSparseParallel(), RowwiseSparseParallel(input_layouts=Replicate())

    def refused(kind, says, module, style, *at):
        before = {name: (one, type(one)) for name, one in module.named_modules()}
        with pytest.raises(kind, match=says):
            parallelize(module, *(at or (there,)), style)
        assert {name: (one, type(one)) for name, one in module.named_modules()} == before
        assert not any(isinstance(one, DTensor) for one in module.parameters())

    world = there.size()
    two_dims = init_device_mesh("cpu", (1, world), mesh_dim_names=("dp", "tp"))
    refused(ValueError, r"a mesh of 2 dimensions, \('dp', 'tp'\)", layer(64, 64), column, two_dims)
    roomy = BlockSparseLinear(64, 64, sparsekiln.Layout([[1, 1], [1, 0]]), max_blocks=4)
    refused(TypeError, "has max_blocks to move to other layouts", roomy, column)
    refused(
        TypeError,
        "cannot be applied to the module, which is a Linear, and no BlockSparseLinear; it takes torch's ColwiseParallel",
        torch.nn.Linear(8, 8),
        column,
    )
    convolution = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3))
    sparsify_(convolution, 0.5)
    refused(TypeError, "cannot be applied to 0, which is a BlockSparseConv2d", convolution, {"0": column})
    tied = torch.nn.Sequential(layer(64, 64), layer(64, 64))
    tied[1].weight_values = tied[0].weight_values
    refused(TypeError, "cannot be applied to 0, which shares a parameter with 1", tied, {"0": row})
    hooked = layer(64, 64)
    hooked.register_forward_hook(lambda *_: None)
    refused(TypeError, "has hooks", hooked, column)
    refused(ValueError, "16 features are 2 units of 8", layer(64, 16), column) if world > 2 else None
    refused(
        ValueError,
        "use_local_output=False with features that are sharded by work",
        layer(64, 64),
        ColwiseSparseParallel(use_local_output=False),
    )
    refused(
        ValueError,
        r"Partition\(64 .* over 1 ranks\), and the mesh has",
        layer(64, 64),
        ColwiseSparseParallel(partition=Partition.in_order(64, 1, 8)),
    )
    refused(ValueError, "the ranks have different layouts", layer(64, 64, seed=torch.distributed.get_rank()), column)
    with pytest.raises(ValueError, match=r"input_layouts=Partial\(sum\); Replicate\(\) or Shard"):
        ColwiseSparseParallel(input_layouts=torch.distributed.tensor.Partial())
    with pytest.raises(ValueError, match=r"input_layouts=Shard\(-1\) of a ColwiseSparseParallel"):
        ColwiseSparseParallel(input_layouts=Shard(-1))
    with pytest.raises(ValueError, match=r"output_layouts=Shard\(-1\) of a RowwiseSparseParallel"):
        RowwiseSparseParallel(output_layouts=Shard(-1))
    rows = parallelize(layer(64, 64), there, ColwiseSparseParallel(output_layouts=Shard(1)))
    assert rows(inputs(1, world, 64)).shape == (1, 1, 64)
    with pytest.raises(ValueError, match=r"of 2 dimensions, the last of which are features; Shard\(-1\), or another"):
        rows(inputs(3, 64))
    sharded = parallelize(layer(64, 64), there, column)
    with pytest.raises(TypeError, match="is sharded already"):
        parallelize(sharded, there, row)
    for use in (
        lambda: sharded.relayout(sharded.layout),
        sharded.to_dense,
        sharded.to_bsr,
        lambda: sharded.weight + 0,
        sharded.reset_parameters,
        lambda: init.kaiming_uniform_(sharded),
    ):
        with pytest.raises(RuntimeError, match="needs all blocks of the layer, which are sharded over"):
            use()
    in_order = distribute_tensor(inputs(3, 64), there, [Shard(1)])
    follower = layer(64, 64)
    pair = torch.nn.Sequential(layer(64, 64), follower)
    parallelize(pair, there, {"0": column, "1": RowwiseSparseParallel()})
    with pytest.raises(ValueError, match="sharded in order along its features"):
        follower(in_order)


def test_what_cannot_be_sharded_is_refused_with_the_reason_and_stays_as_it_is(ranks):
    ranks.run(_refusals)
