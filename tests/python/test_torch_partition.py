"""Which rank has which features: partitions by work, and which layers of a plan share one."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.distributed.is_available():
    pytest.skip("PyTorch has no torch.distributed", allow_module_level=True)

from sharded_models import TRANSFORMER_PLAN, Mlp, layer, skewed, transformer  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch.parallel import ColwiseSparseParallel, Partition, RowwiseSparseParallel  # noqa: E402
from sparsekiln.torch.parallel.partition import Side, common_partition, work_of_places  # noqa: E402
from sparsekiln.torch.parallel.plan import layers_of_plan, partitions_of_plan  # noqa: E402


def ones(rows):
    return np.ones((rows, 2), bool)


def side(mask, number=0, block=8, **more):
    layout = sparsekiln.Layout(mask)
    return Side(layout, number, layout.shape[number] * block, block, **more)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_skewed_layouts_are_sharded_by_equal_work(ranks, number, seed):
    one = side(skewed(96, 128, seed, 0.2), number)
    work = one.work(8)
    partition = common_partition([one], ranks)
    assert partition.imbalance(work) <= 1.05
    if work.size % ranks == 0:
        assert Partition.in_order(work.size * 8, ranks, 8).imbalance(work) > 1.15


def test_power_laws_are_sharded_by_equal_work():
    rows = np.arange(1, 385)
    mask = np.arange(384)[None, :] < np.maximum(384 // rows, 1)[:, None]
    for ranks in (2, 4, 5):
        one = side(mask)
        assert common_partition([one], ranks).imbalance(one.work(8)) <= 1.05


def test_exchanges_repair_what_longest_first_leaves():
    work = np.array([3, 3, 2, 2, 2])  # longest first: 3 + 2 + 2 and 3 + 2
    assert sorted(Partition.by_work(work, 2, 8, 40).sums(work).tolist()) == [6, 6]


def test_an_empty_row_counts_one():
    assert work_of_places(sparsekiln.Layout([[1, 1, 0], [0, 0, 0]]), 0).tolist() == [2, 1]
    assert work_of_places(sparsekiln.Layout([[1, 1, 0], [1, 0, 0]]), 1).tolist() == [2, 1, 1]


def test_every_rank_has_a_unit_and_every_unit_one_rank():
    partition = common_partition([side(np.eye(7, dtype=bool))], 7)
    assert sorted(partition.owners.tolist()) == list(range(7))


def test_layers_that_meet_are_sharded_by_the_sum_of_their_work_and_evenly_themselves():
    mask = skewed(32, 128, 51, 0.2)[:, np.random.default_rng(1).permutation(128)]
    first, second = side(skewed(128, 32, 1, 0.2)), side(mask, 1)
    partition = common_partition([first, second], 8)
    assert partition.imbalance(first.work(8) + second.work(8)) <= 1.02
    assert max(partition.imbalance(one.work(8)) for one in (first, second)) <= 1.05  # so that padding is small
    assert common_partition([first], 8).imbalance(second.work(8)) > 1.05


def test_blocks_of_several_sizes_and_groups_share_a_unit():
    first, second = side(skewed(16, 8, 1), block=16), side(skewed(8, 8, 2), 1, block=32)
    assert common_partition([first, second], 2).unit == 32
    assert common_partition([side(skewed(24, 8, 1), group=24)], 2).unit == 24


def test_parts_are_sharded_alike():
    one = side(skewed(24, 8), parts=3, group=16)
    owners = one.owners_of_features(common_partition([one], 2)).reshape(3, 4, 16)
    assert (owners == owners[0]).all() and (owners == owners[..., :1]).all()
    assert set(owners[0, :, 0].tolist()) == {0, 1}


def test_as_many_groups_of_other_sizes_share_a_partition():
    query, key = side(skewed(32, 8), group=64), side(skewed(8, 8), group=16)
    partition = common_partition([query, key], 2)
    assert query.unit_of(partition) == 64 and key.unit_of(partition) == 16
    assert query.owners_of_features(partition)[::64].tolist() == key.owners_of_features(partition)[::16].tolist()


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: common_partition([side(ones(3))], 4), "24 features are 3 units of 8, which 4 ranks cannot share"),
        (lambda: side(ones(3), group=7), "24 features are no multiple of a group of 7"),
        (lambda: side(ones(4), parts=3), "32 features are not 3 equal parts"),
        (lambda: common_partition([side(ones(4)), side(ones(6))], 2), "as many groups of each would work"),
        (lambda: Partition([0, 0], 2, 8, 16), r"not all of the ranks 0 to 1"),
        (lambda: Partition([0, 1], 2, 8, 32), "2 owners for 32 features"),
        (lambda: Partition.in_order(40, 4, 8), "40 features are no multiple of 4 ranks"),
    ],
)
def test_what_cannot_be_sharded_is_refused_with_the_reason(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def partitions(model, plan, ranks=2):
    layers, _ = layers_of_plan(model, plan)
    return {one.name: partition for one, partition in zip(layers, partitions_of_plan(layers, ranks))}


def test_a_plan_gives_layers_whose_features_meet_one_partition():
    found = partitions(transformer(), TRANSFORMER_PLAN)
    assert len(found) == 10
    assert found["blocks.0.qkv"] is found["blocks.0.out"]
    assert found["blocks.1.gate"] is found["blocks.1.up"] is found["blocks.1.down"]
    assert found["blocks.0.qkv"] is not found["blocks.1.qkv"] and found["blocks.0.gate"] is not found["blocks.0.qkv"]


def test_a_row_wise_layer_of_another_parent_takes_the_column_wise_one_before_it():
    inner, outer = torch.nn.Sequential(layer(64, 128)), torch.nn.Sequential(layer(128, 64))
    model = torch.nn.Sequential(inner, torch.nn.ReLU(), outer)
    found = partitions(model, {"0.0": ColwiseSparseParallel(), "2.0": RowwiseSparseParallel()})
    assert found["0.0"] is found["2.0"]


def test_names_of_partitions_decide():
    model = torch.nn.Sequential(layer(64, 64, seed=1), layer(64, 64, seed=2), layer(64, 64, seed=3), layer(64, 64, seed=4))
    column, row = ColwiseSparseParallel, RowwiseSparseParallel
    found = partitions(model, {"0": column(), "1": row(), "2": column(), "3": row()})
    assert len({id(one) for one in found.values()}) == 1
    found = partitions(
        model, {"0": column(partition="a"), "1": row(partition="a"), "2": column(partition="b"), "3": row(partition="b")}
    )
    assert found["0"] is found["1"] and found["2"] is found["3"] and found["0"] is not found["2"]


def test_a_given_partition_stays():
    model, given = Mlp(), Partition.in_order(256, 2, 16)
    found = partitions(model, {"up": ColwiseSparseParallel(partition=given), "down": RowwiseSparseParallel(partition=given)})
    assert found["up"] is given and found["down"] is given


def test_a_row_wise_layer_takes_the_partition_that_the_column_wise_one_was_given():
    model, given = Mlp(), Partition.in_order(256, 2, 16)
    for first in (ColwiseSparseParallel(partition=given), ColwiseSparseParallel(partition="a")):
        found = partitions(model, {"up": first, "down": RowwiseSparseParallel()})
        assert found["up"] is found["down"]
    assert partitions(model, {"up": ColwiseSparseParallel(partition=given), "down": RowwiseSparseParallel()})["down"] is given


def test_a_row_wise_layer_that_could_take_several_is_refused():
    model = torch.nn.Sequential(layer(64, 64, seed=1), layer(64, 64, seed=2), layer(64, 64, seed=3))
    plan = {"0": ColwiseSparseParallel(partition="a"), "1": ColwiseSparseParallel(partition="b"), "2": RowwiseSparseParallel()}
    with pytest.raises(ValueError, match="2 may take the features of 0 and 1, which have other partitions; partition= would say"):
        partitions(model, plan)


@pytest.mark.parametrize(
    "plan, says",
    [
        ({"down": RowwiseSparseParallel()}, "down takes sharded features, and the plan has no column-wise layer for it"),
        (
            {"up": ColwiseSparseParallel(output_layouts=None), "narrow": RowwiseSparseParallel()},
            "up, narrow: .*256 features in units of 8, 204 features in",
        ),
        (
            {"down": RowwiseSparseParallel(partition="a")},
            "down takes sharded features, and the plan has no column-wise layer for it",
        ),
        ({"across": ColwiseSparseParallel()}, "No module's name fits 'across'; block-sparse layers are up, down, wide, narrow"),
        ({"up": ColwiseSparseParallel(), "u*": ColwiseSparseParallel()}, "up has two styles"),
        ({"up": ColwiseSparseParallel(group=24)}, "up: 256 features are no multiple of a group of 24"),
    ],
)
def test_plans_that_cannot_be_are_refused_with_the_reason(plan, says):
    with pytest.raises(ValueError, match=says):
        partitions(Mlp(), plan)
