"""The entries of a rank in a tensor that all ranks hold together, as torch.distributed.checkpoint saves and loads them."""

import bisect
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.distributed.tensor import DTensor

from .partition import Numbers

Tensor = torch.Tensor
Run = tuple[int, int, int]  #: of neighbours: their first number among all, and in the local tensor, and how many they are


class RankEntries(torch.Tensor):
    """A tensor of the shape that it has in one process, of which each rank holds some of the entries along the first dimension.

    It has no arithmetic. torch.distributed.checkpoint reads and writes `source` in place, runs of entries at a time: nothing is
    copied or gathered. A tensor that is saved loads into any number of ranks, and into a layer of one process.

    source   a DTensor, or its local part, whose first entries are those of `numbers`
    numbers  ascending: which of all entries this rank has, except for padding
    entries  of all ranks
    """

    source: Tensor
    numbers: Numbers
    _runs: list[Run] | None = None

    @staticmethod
    def __new__(cls, source: Tensor, numbers: Numbers, entries: int) -> "RankEntries":
        shape = (entries, *source.shape[1:])
        view = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=source.dtype, device=source.device)
        view.source, view.numbers = source, numbers
        return view

    def __init__(self, source: Tensor, numbers: Numbers, entries: int) -> None:
        pass

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kept = (torch.ops.aten.detach.default, torch.ops.aten.clone.default, torch.ops.aten._to_copy.default)
        if function in kept and isinstance(args[0], RankEntries):
            one = args[0]
            return RankEntries(function(one.source, *args[1:], **(kwargs or {})), one.numbers, one.shape[0])
        raise NotImplementedError(
            f"{function} of a tensor that is sharded over ranks: its entries are on several of them; torch.distributed.checkpoint "
            "saves and loads it, and `source` is what this rank has"
        )

    def __repr__(self, **_: Any) -> str:
        return f"RankEntries({self.numbers.size} of {self.shape[0]} entries of shape {tuple(self.shape[1:])}, {self.dtype})"

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return RankEntries, (self.source, self.numbers, self.shape[0])

    def __deepcopy__(self, memo: dict[int, Any]) -> "RankEntries":
        return RankEntries(self.source.detach().clone(), self.numbers, self.shape[0])

    def local(self) -> tuple[Tensor, Numbers]:
        """The entries that are stored here, and their numbers among all."""
        if not isinstance(self.source, DTensor):
            return self.source, self.numbers
        stored, start = self.source._local_tensor, _first_of_local_part(self.source)
        return stored, self.numbers[start : start + stored.shape[0]]

    def runs(self) -> list[Run]:
        if self._runs is None:
            _, numbers = self.local()
            starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
            lengths = np.diff(starts, append=numbers.size)
            self._runs = [(int(numbers[start]), int(start), int(length)) for start, length in zip(starts, lengths)]
            if self.shape[0] == 0:  # without a run of none, nothing would be saved of it, and it would not be found
                self._runs = [(0, 0, 0)]
        return self._runs

    # ---- what torch.distributed.checkpoint asks ----

    def _chunk(self, first: int, length: int) -> ChunkStorageMetadata:
        rest = self.shape[1:]
        return ChunkStorageMetadata(torch.Size((first, *(0 for _ in rest))), torch.Size((length, *rest)))

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [self._chunk(first, length) for first, _, length in self.runs()]

    def __create_write_items__(self, name: str, _: object) -> list[WriteItem]:
        properties = TensorProperties.create_from_tensor(self.local()[0])
        return [
            WriteItem(
                index=MetadataIndex(name, chunk.offsets), type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk=chunk, properties=properties, size=self.size()),
            )
            for chunk in self.__create_chunk_list__()
        ]  # fmt: skip

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        first = -1 if index.offset is None else index.offset[0]
        runs = self.runs()
        place = bisect.bisect_left(runs, (first, 0, 0))
        if place == len(runs) or runs[place][0] != first:
            raise ValueError(f"{index} does not begin a run of entries of this rank")
        _, start, length = runs[place]
        return self.local()[0][start : start + length]


def _first_of_local_part(source: DTensor) -> int:
    """With FSDP beside: the first entry that this process has, of those of its rank among the layer's.

    The last dimension of the mesh is that of the layer; along one of the others FSDP cuts what a rank has into equal ranges.
    """
    mesh = source.device_mesh
    of_rank, first = source.shape[0] // mesh.size(mesh.ndim - 1), 0
    for dim, placement in enumerate(source.placements[:-1]):
        if not placement.is_replicate():
            first += mesh.get_local_rank(dim) * -(-of_rank // mesh.size(dim))
    return first
