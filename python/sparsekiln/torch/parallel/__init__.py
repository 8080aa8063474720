"""Block-sparse layers over the processes of a mesh: styles for parallelize, in the manner of torch.distributed.tensor.parallel.

mesh = torch.distributed.device_mesh.init_device_mesh("cuda", (4,))
parallelize(model, mesh, {"layers.*.up": ColwiseSparseParallel(), "layers.*.down": RowwiseSparseParallel()})
"""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ParallelStyle

from .partition import Partition
from .plan import layers_of_plan, partitions_of_plan
from .rank_entries import RankEntries
from .sharded_layer import ShardedBlockSparseLinear
from .sharded_state import local_state, whole_state
from .styles import ColwiseSparseParallel, RowwiseSparseParallel, SparseParallelStyle, check_layer, check_partition

__all__ = [
    "ColwiseSparseParallel", "Partition", "RankEntries", "RowwiseSparseParallel", "ShardedBlockSparseLinear", "SparseParallelStyle",
    "local_state", "parallelize", "whole_state",
]  # fmt: skip


def parallelize(
    module: torch.nn.Module,
    device_mesh: DeviceMesh,
    plan: ParallelStyle | dict[str, ParallelStyle],
    *,
    src_data_rank: int | None = 0,
) -> torch.nn.Module:
    """Shards the block-sparse layers of a module over the ranks of a mesh, in place, by equal work; returns the module.

    plan           a style for the module itself, or styles by name, in which * stands for one part of a name:
                   {"layers.*.up": ColwiseSparseParallel(), "layers.*.down": RowwiseSparseParallel()}. Styles of PyTorch are
                   applied to other modules
    device_mesh    of one dimension; a part of a larger one, mesh["tp"]
    src_data_rank  the rank whose weights all have; None: each has them already

    Layers whose sharded features meet get one partition, by the sum of their work: those of one parent module with as many
    features, and a row-wise layer that has none there with the column-wise one before it. partition= of the styles says
    otherwise. All is checked before anything is changed: layers of another kind, with max_blocks, with hooks, or that share
    parameters are refused, as are layouts that are not the same on all ranks. Make optimizers afterwards.
    """
    layers, others = layers_of_plan(module, plan)
    for one in layers:
        check_layer(one.name or "the module", one.layer, one.style, device_mesh, module)
    partitions = partitions_of_plan(layers, device_mesh.size())
    for one, partition in zip(layers, partitions):
        check_partition(one.name or "the module", one.style, one.style.side(one.layer), partition, device_mesh)
    for one, partition in zip(layers, partitions):
        one.style.shard(one.layer, device_mesh, partition, src_data_rank)
    for other, style in others:
        style.src_data_rank = src_data_rank
        style._apply(other, device_mesh)
    return module
