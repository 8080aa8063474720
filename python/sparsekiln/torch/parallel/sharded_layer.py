"""ShardedBlockSparseLinear: what BlockSparseLinear becomes when its blocks are sharded over the ranks of a mesh."""

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

import sparsekiln

from ..blocks import row_of
from ..layouts import layout_from_indices
from ..linear.functional import apply
from ..linear.layer import BlockSparseLinear
from ..linear.products import ACTIVATIONS
from ..resizing import Optimizers
from ..weight_tools import ComputedWeight
from .feature_exchange import gather_features, is_shard_of_features, result_of, sum_over_ranks, whole_input
from .partition import Numbers, Partition, Side
from .rank_entries import RankEntries

Tensor = torch.Tensor


@dataclass(frozen=True)
class Sharding:
    """How a layer is sharded: whose features, by which partition, and how its input and output are placed."""

    mesh: DeviceMesh
    partition: Partition
    side: Side  #: outputs if the rows of blocks are sharded, inputs if the columns are; with the layout of all blocks
    input_layout: Placement
    output_layout: Placement
    use_local_output: bool

    @property
    def shards_inputs(self) -> bool:
        return self.side.number == 1

    def features_of(self, rank: int) -> Numbers:
        """The features that a rank has, ascending."""
        return np.flatnonzero(self.side.owners_of_features(self.partition) == rank)

    def blocks_of(self, rank: int) -> Numbers:
        """The blocks that a rank has, ascending."""
        return np.flatnonzero(self._owners_of_blocks() == rank)

    def most_features(self) -> int:
        """As many as any rank has."""
        return int(np.bincount(self.side.owners_of_features(self.partition), minlength=self.partition.ranks).max())

    def most_blocks(self) -> int:
        """As many as any rank has, and at least one."""
        return max(1, int(np.bincount(self._owners_of_blocks(), minlength=self.partition.ranks).max()))

    def layout_of(self, rank: int) -> "sparsekiln.Layout":
        """The rows, or columns, of blocks of a rank, one after the other."""
        layout, mine = self.side.layout, self.side.owners_of_blocks(self.partition) == rank
        numbers = np.cumsum(mine) - 1  # of the rows or columns of this rank
        blocks = self.blocks_of(rank)
        rows, cols = row_of(layout)[blocks], np.asarray(layout.col, np.int64)[blocks]
        rows, cols = (rows, numbers[cols]) if self.shards_inputs else (numbers[rows], cols)
        shape = (layout.rows, int(mine.sum())) if self.shards_inputs else (int(mine.sum()), layout.cols)
        crow = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
        return sparsekiln.Layout.from_csr(*shape, crow.astype(np.int32), cols.astype(np.int32))

    def _owners_of_blocks(self) -> Numbers:
        places = np.asarray(self.side.layout.col, np.int64) if self.shards_inputs else row_of(self.side.layout)
        return self.side.owners_of_blocks(self.partition)[places]


class ShardedBlockSparseLinear(BlockSparseLinear):
    """The part of a block-sparse layer that one rank has. sparsekiln.torch.parallelize makes it of a BlockSparseLinear, in place.

    `in_features`, `out_features`, `layout` and the index tensors are those of this rank; `whole_layout` has all blocks.
    `weight_values` is a DTensor that is sharded along the blocks: the blocks of each rank, padded to as many as any has. So is
    the bias where outputs are sharded; otherwise each rank has all of it. The state has the shapes, and the layout, of the layer
    in one process (see RankEntries), and loads from such a state.
    """

    HAS_SLOTS = False
    sharding: Sharding
    feature_places: Tensor  #: see _places_of_features; no buffer, of which others might make averages
    whole_features: tuple[int, int]  #: out and in, of all ranks together
    most_features: int  #: of the sharded ones, that any rank has
    _written: list[int] | None = None  #: how often parameters had been written at the last call

    @property
    def partition(self) -> Partition:
        """Which rank has which features: of the outputs if this is column-wise, of the inputs if it is row-wise."""
        return self.sharding.partition

    @property
    def whole_layout(self) -> "sparsekiln.Layout":
        """The blocks of all ranks."""
        return self.sharding.side.layout

    @property
    def features(self) -> Tensor:
        """int64: the numbers of the features that this rank has of the sharded ones."""
        return torch.from_numpy(self.sharding.features_of(self._rank))

    @property
    def _rank(self) -> int:
        return self.sharding.mesh.get_local_rank()

    # ---- use ----

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self._check_indices(self.crow_indices, self.col_indices)
        return self._of_sharded_inputs(x) if self.sharding.shards_inputs else self._of_sharded_outputs(x)

    def _of_sharded_outputs(self, x: Tensor) -> Tensor:
        """Each rank computes some outputs of all inputs."""
        how = self.sharding
        bias = None if self.bias is None else _local(self.bias)[: self.out_features]
        y = self._product(whole_input(x, how.mesh, how.input_layout), bias, self.activation)
        if not is_shard_of_features(how.output_layout):
            return gather_features(y, how.mesh, self.most_features, self.feature_places, how.output_layout, how.use_local_output)
        if how.use_local_output:
            return y
        return DTensor.from_local(y, how.mesh, [Shard(y.dim() - 1)], run_check=False)

    def _of_sharded_inputs(self, x: Tensor) -> Tensor:
        """Each rank computes, of some inputs, a part of the sum of every output."""
        how = self.sharding
        if self._is_sharded(x):
            x = x.to_local() if isinstance(x, DTensor) else x
        else:
            x = whole_input(x, how.mesh, how.input_layout).index_select(-1, self.feature_places)
        summed = sum_over_ranks(self._product(x, None, "none"), how.mesh, how.output_layout)
        y = _local(summed)
        if self.bias is not None:
            bias = _local(self.bias)
            if isinstance(summed, DTensor):  # each rank has other rows, and a part of the gradient
                bias = whole_input(bias, how.mesh, Replicate())
            y = y + bias.to(y.dtype)
        y = y if self.activation == "none" else ACTIVATIONS[self.activation](y)
        return result_of(y, summed, how.mesh, how.use_local_output)

    def _is_sharded(self, x: Tensor) -> bool:
        """Whether x has the features of this rank alone."""
        if not isinstance(x, DTensor):
            return is_shard_of_features(self.sharding.input_layout)
        if not x.placements[0].is_shard(x.dim() - 1):
            return False
        if not self.partition.is_in_order:
            raise ValueError(
                "the input is a DTensor that is sharded in order along its features, and this layer's are sharded by work: a local "
                "tensor of the layer before, a DTensor that is not sharded along them, or partition=Partition.in_order would work"
            )
        return True

    def _product(self, x: Tensor, bias: Tensor | None, activation: str) -> Tensor:
        values = _local(self.weight_values)
        features = self.in_features, self.out_features
        return apply(x, values, bias, self.crow_indices, self.col_indices, *features, activation, self._ask_to_overlap())

    def _ask_to_overlap(self) -> bool | None:
        """Also False once after a write: PyTorch counts those to a DTensor, but not to the tensor of it that kernels read."""
        parameters = [one for one in (self.weight_values, self.bias) if one is not None]
        if torch.compiler.is_compiling() or any(one.is_inference() for one in parameters):
            return False
        before, self._written = self._written, [one._version for one in parameters]
        return before == self._written and super()._ask_to_overlap()

    # ---- what needs all blocks ----

    def _refuse(self, what: str) -> NoReturn:
        raise RuntimeError(
            f"{what} needs all blocks of the layer, which are sharded over {self.partition.ranks} ranks; do it before parallelize"
        )

    def relayout(self, layout: Any, optimizer: Optimizers = None) -> Tensor:
        self._refuse("relayout")

    def to_dense(self) -> Tensor:
        self._refuse("the dense weight")

    def to_bsr(self) -> Tensor:
        self._refuse("the BSR tensor of the weight")

    @property
    def weight(self) -> Tensor:
        """What the whole weight is like; its elements are refused."""
        if torch.compiler.is_compiling():
            self._refuse("the weight as one tensor")
        out, into = self.whole_features
        return ComputedWeight((out, into), self.weight_values, self.weight_values.requires_grad, self.to_bsr, True)

    def reset_parameters(self) -> None:
        self._refuse("an initialiser")

    def present_taps(self) -> Tensor | None:
        self._refuse("an initialiser")  # which asks for them, and would count the inputs of this rank alone

    def output_blocks(self, device: Any = None) -> Tensor:
        self._refuse("a norm of the weights")

    def extra_repr(self) -> str:
        out, into = self.whole_features
        mine = f"rank {self._rank}: {self.layout.blocks} of {self.whole_layout.blocks} blocks"
        how = "input features" if self.sharding.shards_inputs else "output features"
        return f"in_features={into}, out_features={out}, {how} sharded, {mine}" + (", overlap=True" if self.overlap else "")

    # ---- made of a layer, and its state ----

    @torch.no_grad()
    def _become(self, sharding: Sharding) -> None:
        """Keeps the part of this rank, of a BlockSparseLinear that has all."""
        self.sharding, self.whole_features = sharding, (self.out_features, self.in_features)
        self.most_features = sharding.most_features()
        features, rank = int(sharding.features_of(self._rank).size), self._rank
        if sharding.shards_inputs:
            self.in_features = features
        else:
            self.out_features = features
        self.max_blocks = sharding.most_blocks()
        values = _padded(self.weight_values.detach(), sharding.blocks_of(rank), sharding.most_blocks())
        self._replace("weight_values", values, Shard(0))
        if self.bias is not None and sharding.shards_inputs:
            self._replace("bias", self.bias.detach(), Replicate())
        elif self.bias is not None:
            self._replace("bias", _padded(self.bias.detach(), sharding.features_of(rank), self.most_features), Shard(0))
        for name in ("crow_indices", "col_indices"):
            del self._buffers[name]
        self._take(sharding.layout_of(rank), None)

    def _replace(self, name: str, local: Tensor, placement: Placement) -> None:
        trained = getattr(self, name).requires_grad
        whole = DTensor.from_local(local, self.sharding.mesh, [placement], run_check=False)
        self.register_parameter(name, torch.nn.Parameter(whole, requires_grad=trained))

    def _write_indices(self) -> None:
        super()._write_indices()
        self.feature_places = self._places_of_features().to(self.crow_indices.device)

    def _places_of_features(self) -> Tensor:
        """Where a row-wise layer finds its inputs among all, or a column-wise one each output among those of all ranks."""
        how = self.sharding
        if how.shards_inputs:
            return self.features
        places, width = np.zeros(how.side.features, np.int64), self.most_features
        for rank in range(how.partition.ranks):
            mine = how.features_of(rank)
            places[mine] = rank * width + np.arange(mine.size)
        return torch.from_numpy(places)

    def entries_of_rank(self, name: str) -> tuple[Numbers, int] | None:
        """The entries of a parameter that this rank has, and how many there are; None if it has all."""
        if name == "weight_values":
            return self.sharding.blocks_of(self._rank), self.whole_layout.blocks
        if name == "bias" and not self.sharding.shards_inputs:
            return self.sharding.features_of(self._rank), self.sharding.side.features
        return None

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name in ("weight_values", "bias"):
            tensor, entries = getattr(self, name), self.entries_of_rank(name)
            if tensor is not None:
                tensor = tensor if keep_vars and entries is None else tensor.detach()
                destination[prefix + name] = tensor if entries is None else RankEntries(tensor, *entries)
        device = self.crow_indices.device
        destination[prefix + "crow_indices"] = torch.tensor(self.whole_layout.crow, device=device)
        destination[prefix + "col_indices"] = torch.tensor(self.whole_layout.col, device=device)

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:  # fmt: skip
        names = ["weight_values", "crow_indices", "col_indices"] + ([] if self.bias is None else ["bias"])
        if strict:
            missing_keys += [prefix + name for name in names if prefix + name not in state_dict]
            expected = {prefix + name for name in names}
            unexpected_keys += [key for key in state_dict if key.startswith(prefix) and key not in expected]
        try:
            self._check_saved_layout(state_dict, prefix)
            self._write_indices()
            for name in ("weight_values", "bias"):
                if prefix + name in state_dict and getattr(self, name) is not None:
                    self._load_entries(name, state_dict[prefix + name])
        except ValueError as error:
            error_msgs.append(f"{prefix[:-1] or type(self).__name__}: {error}")

    def _check_saved_layout(self, state_dict: Any, prefix: str) -> None:
        crow, col = (state_dict.get(prefix + name) for name in ("crow_indices", "col_indices"))
        if crow is not None and col is not None and layout_from_indices(crow, col, self.whole_layout.cols) != self.whole_layout:
            raise ValueError("the saved state has another layout, and a sharded layer keeps its own; load it before parallelize")

    @torch.no_grad()
    def _load_entries(self, name: str, saved: Tensor) -> None:
        own, entries = getattr(self, name), self.entries_of_rank(name)
        target = own.detach()
        if entries is None:
            target.copy_(saved if isinstance(saved, DTensor) or not isinstance(target, DTensor) else _like(saved, target))
            return
        view = RankEntries(target, *entries)
        if tuple(saved.shape) != tuple(view.shape):
            raise ValueError(f"{name} has the shape {tuple(saved.shape)}; {tuple(view.shape)}, as in one process, would work")
        stored, numbers = view.local()
        if isinstance(saved, RankEntries):
            from_there, others = saved.local()
            if not np.array_equal(numbers, others):
                raise ValueError(f"{name} is of ranks that have other parts; torch.distributed.checkpoint converts between them")
            stored[: numbers.size].copy_(from_there[: numbers.size])
        elif isinstance(saved, DTensor):
            raise ValueError(
                f"{name} is a DTensor {saved.placements}; a tensor of one process, or the layer's own state, would work"
            )
        else:
            stored[: numbers.size].copy_(saved[torch.from_numpy(numbers).to(saved.device)])
        stored[numbers.size :].zero_()


def _padded(tensor: Tensor, numbers: Numbers, length: int) -> Tensor:
    """The entries of these numbers, and zeros up to a length."""
    result = tensor.new_zeros((length, *tensor.shape[1:]))
    result[: numbers.size] = tensor[torch.from_numpy(numbers).to(tensor.device)]
    return result


def _local(tensor: Tensor) -> Tensor:
    """What this rank has of it; of a parameter with FSDP or DDP beside, during a forward pass."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _like(whole: Tensor, target: DTensor) -> DTensor:
    """A tensor that each rank has all of, placed like `target`."""
    everywhere = DTensor.from_local(
        whole.to(target.device), target.device_mesh, [Replicate()] * target.device_mesh.ndim, run_check=False
    )
    return everywhere.redistribute(placements=target.placements)
