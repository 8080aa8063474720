"""The styles of parallelize: how a block-sparse layer is sharded over the ranks of a mesh, and which layers cannot be."""

from abc import abstractmethod
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ParallelStyle
from torch.distributed.tensor.placement_types import Placement

from ..linear.layer import BlockSparseLinear
from .feature_exchange import is_shard_of_features
from .partition import Partition, Side, common_partition
from .sharded_layer import ShardedBlockSparseLinear, Sharding


class SparseParallelStyle(ParallelStyle):
    """What the two styles have in common."""

    def __init__(
        self, input_layouts: Placement, output_layouts: Placement, use_local_output: bool, group: int | None, parts: int,
        partition: Partition | str | None,
    ) -> None:  # fmt: skip
        super().__init__()
        for name, placement in (("input_layouts", input_layouts), ("output_layouts", output_layouts)):
            if not isinstance(placement, (Replicate, Shard)):
                raise ValueError(f"{name}={placement!r}; Replicate() or Shard(dimension) would work")
        self.input_layouts, self.output_layouts = input_layouts, output_layouts
        whole = "input_layouts" if isinstance(self, ColwiseSparseParallel) else "output_layouts"
        if is_shard_of_features(getattr(self, whole)):
            raise ValueError(
                f"{whole}=Shard(-1) of a {type(self).__name__}, which has all features there; Replicate(), or Shard of rows, would work"
            )
        self.use_local_output, self.group, self.parts, self.partition = use_local_output, group, parts, partition

    @property
    @abstractmethod
    def shares_features(self) -> bool:
        """Whether a rank has its features alone where this layer meets another one, which must then have the same partition."""

    @abstractmethod
    def side(self, layer: BlockSparseLinear) -> Side:
        """The features of the layer that are sharded."""

    def _apply(self, module: torch.nn.Module, device_mesh: DeviceMesh) -> torch.nn.Module:
        check_layer("the module", module, self, device_mesh)
        assert isinstance(module, BlockSparseLinear)
        if isinstance(self.partition, Partition):
            partition = self.partition
        elif self.partition is not None or (self.shares_features and isinstance(self, RowwiseSparseParallel)):
            raise ValueError(
                f"{type(self).__name__} must have the partition of the layer before, which only a plan for both knows: "
                "sparsekiln.torch.parallelize, or partition=layer.partition of the layer before, would work"
            )
        else:
            partition = common_partition([self.side(module)], device_mesh.size())
        check_partition("the module", self, self.side(module), partition, device_mesh)
        return self.shard(module, device_mesh, partition, self.src_data_rank)

    def shard(
        self, layer: BlockSparseLinear, mesh: DeviceMesh, partition: Partition, src_data_rank: int | None
    ) -> BlockSparseLinear:
        """Leaves the layer with the part of this rank. With src_data_rank, the weights are those of that rank of the mesh."""
        sharding = Sharding(mesh, partition, self.side(layer), self.input_layouts, self.output_layouts, self.use_local_output)
        if src_data_rank is not None and not layer.weight_values.is_meta:
            for parameter in layer.parameters():
                torch.distributed.broadcast(parameter.detach(), group=mesh.get_group(), group_src=src_data_rank)
        layer.__class__ = ShardedBlockSparseLinear
        assert isinstance(layer, ShardedBlockSparseLinear)
        layer._become(sharding)
        return layer

    def __repr__(self) -> str:
        more = "".join(f", {name}={getattr(self, name)}" for name in ("group", "partition") if getattr(self, name) is not None)
        more += f", parts={self.parts}" if self.parts > 1 else ""
        return (
            f"{type(self).__name__}(input_layouts={self.input_layouts}, output_layouts={self.output_layouts}, "
            f"use_local_output={self.use_local_output}{more})"
        )


class ColwiseSparseParallel(SparseParallelStyle):
    """Shards the output features of a BlockSparseLinear: block rows of its weight. What torch's ColwiseParallel is for nn.Linear.

    The block rows that a rank has are not the neighbouring ones, but chosen so that all ranks have equal work.

    input_layouts     how the input is placed: Replicate(), or Shard(1) where each rank has some positions of a sequence
    output_layouts    Shard(-1): each rank has its own features; Replicate() or Shard(1) bring all of them, in their order
    use_local_output  the output is a tensor of this rank; otherwise a DTensor
    group             features that stay on one rank, such as those of a head of attention
    parts             equal parts of the outputs that are sharded alike: 3 if query, key and value are one layer
    partition         of another layer, or a name: layers of a plan with the same one share a partition. None: parallelize decides
    """

    def __init__(
        self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None, use_local_output: bool = True,
        group: int | None = None, parts: int = 1, partition: Partition | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_layouts or Replicate(), output_layouts or Shard(-1), use_local_output, group, parts, partition)

    @property
    def shares_features(self) -> bool:
        return is_shard_of_features(self.output_layouts)

    def side(self, layer: BlockSparseLinear) -> Side:
        return Side(layer.layout, 0, layer.out_features, layer.block[0], self.parts, self.group)


class RowwiseSparseParallel(SparseParallelStyle):
    """Shards the input features of a BlockSparseLinear: block columns of its weight. What torch's RowwiseParallel is for nn.Linear.

    input_layouts     Shard(-1): each rank has the features that the layer before left it; or all features, Replicate() or Shard(1)
    output_layouts    Replicate(), or Shard(1) to leave each rank some positions of a sequence: the sums of all ranks
    use_local_output, group, partition  see ColwiseSparseParallel
    """

    def __init__(
        self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None, use_local_output: bool = True,
        group: int | None = None, partition: Partition | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_layouts or Shard(-1), output_layouts or Replicate(), use_local_output, group, 1, partition)

    @property
    def shares_features(self) -> bool:
        return is_shard_of_features(self.input_layouts)

    def side(self, layer: BlockSparseLinear) -> Side:
        return Side(layer.layout, 1, layer.in_features, layer.block[1], 1, self.group)


def check_layer(
    name: str, layer: Any, style: SparseParallelStyle, mesh: DeviceMesh, model: torch.nn.Module | None = None
) -> None:
    """Raises before anything is changed if a layer cannot be sharded."""
    if mesh.ndim != 1:
        raise ValueError(
            f"a mesh of {mesh.ndim} dimensions, {mesh.mesh_dim_names}; features are sharded along one: mesh[name] of that dimension would work"
        )
    reason = _reason_to_refuse(layer, model)
    if reason:
        raise TypeError(f"{type(style).__name__} cannot be applied to {name}, which {reason}")
    kind = layer.weight_values.device.type
    if kind not in (mesh.device_type, "meta"):
        raise ValueError(f"{name} is on a {kind} device, and the mesh is of {mesh.device_type}; move it there first")


def _reason_to_refuse(layer: Any, model: torch.nn.Module | None) -> str:
    if isinstance(layer, ShardedBlockSparseLinear):
        return "is sharded already"
    if type(layer) is not BlockSparseLinear:
        more = "; it takes torch's ColwiseParallel and RowwiseParallel" if isinstance(layer, torch.nn.Linear) else ""
        return f"is a {type(layer).__name__}, and no BlockSparseLinear{more}"
    if layer.max_blocks is not None:
        return (
            "has max_blocks to move to other layouts, and a sharded layer keeps its layout; a layer without max_blocks would work"
        )
    if type(layer.weight_values) is not torch.nn.Parameter:
        return f"has weight_values that are a {type(layer.weight_values).__name__}; parallelize before other wrappers"
    if any((layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)):
        return "has hooks, which would see parts of what they expect; register them afterwards"
    own = {id(parameter) for parameter in layer.parameters()}
    for other, module in () if model is None else model.named_modules():
        if module is not layer and any(id(parameter) in own for parameter in module.parameters(recurse=False)):
            return f"shares a parameter with {other}; parameters that are sharded belong to one layer"
    return ""


def check_partition(name: str, style: SparseParallelStyle, side: Side, partition: Partition, mesh: DeviceMesh) -> None:
    """Raises if the partition does not fit the layer or the mesh, or the ranks do not have the same layout."""
    if partition.ranks != mesh.size():
        raise ValueError(f"{name}: {partition}, and the mesh has {mesh.size()}")
    try:
        side.unit_of(partition)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    in_order = side.parts == 1 and partition.is_in_order
    if not style.use_local_output and is_shard_of_features(style.output_layouts) and not in_order:
        raise ValueError(
            f"{name}: use_local_output=False with features that are sharded by work; a DTensor is sharded in order. A local output, "
            "output_layouts=Replicate(), or partition=Partition.in_order(features, ranks, block) would work"
        )
    of_ranks: list[Any] = [None] * mesh.size()
    torch.distributed.all_gather_object(of_ranks, (side.layout.digest, partition.owners.tobytes()), group=mesh.get_group())
    if len(set(of_ranks)) != 1:
        raise ValueError(f"{name}: the ranks have different layouts; make the model from the same seed, or layouts, on each")
