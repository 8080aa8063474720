"""What every block-sparse layer has: a weight of blocks, the index tensors of its layout, and their saved state."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import sparsekiln
from sparsekiln._arguments import flag, shown

from . import resizing
from .averages import Lineage, check_averages, check_averages_in_order
from .blocks import PresentBlocks, along_outputs, gathered, grid, moved, places_of
from .graphs import forget_recorded_graphs
from .index_tensors import IndexTensors, saved_layout
from .kernels import DTYPES
from .operands import blocks_for, check_tensor
from .settled_indices import settled
from .slots import Slots
from .weight_tools import Parametrizations

Tensor = torch.Tensor


class BlockSparseLayer(IndexTensors):
    """A layer whose weight is a matrix of blocks, or one matrix for each tap of a kernel, with the same blocks.

    Parameters: `weight_values` [blocks, *block_shape], row-major over the layout, or with max_blocks [max_blocks, *block_shape],
    where blocks have slots (see Slots), and `bias`. Buffers: those of IndexTensors. A class says what its rows and columns are
    (weight_shape), which dense tensor its weight is the blocks of (blocks_of), and how values start (reset_parameters).
    """

    taps = 1  #: matrices of the weight
    groups = 1  #: of features; blocks connect those of one group
    parts_alike = 1  #: parts of the rows, one after the other, that have the same blocks
    OUTPUTS = 0  #: which side of the weight its outputs are: 0 rows, 1 columns
    block: tuple[int, int]  #: sides of a block: of rows and of columns
    SIDES = ("output", "input")  # what rows and columns of the weight are
    FEATURES = "features"
    _overlap = False
    _is_fsdp_managed_module = False  #: FSDP sets it

    parametrizations = Parametrizations()

    @property
    def weight_shape(self) -> tuple[int, int]:
        """Features of the rows and of the columns of the weight: out and in, of all groups."""
        raise NotImplementedError

    @property
    def block_shape(self) -> tuple[int, ...]:
        """The shape of what `weight_values` holds for each block."""
        return self.block

    @property
    def dense_shape(self) -> tuple[int, ...]:
        """The shape of the weight as a dense tensor."""
        return self.weight_shape

    @property
    def places(self) -> int:
        """How many blocks a layout of the layer can have."""
        return self.layout.rows * self.layout.cols // self.groups

    def blocks_of(self, dense: Tensor) -> Tensor:
        """[blocks, *block_shape]: the entries of a tensor shaped like the dense weight, at the blocks of the layout."""
        raise NotImplementedError

    def _check_dense(self, dense: Tensor) -> None:
        """For blocks_of."""
        if not isinstance(dense, Tensor):
            raise TypeError(f"the dense weight is {shown(dense)}; a tensor {list(self.dense_shape)} would work")
        if tuple(dense.shape) != tuple(self.dense_shape):
            raise ValueError(f"a tensor of the shape {list(dense.shape)}; that of the dense weight, {list(self.dense_shape)}, would work")

    def present_taps(self) -> Tensor | None:
        """bool [blocks of the layout, taps], on the cpu: which taps of `weight_values` each block has; None: all."""
        return None

    def counted(self) -> Tensor | None:
        """bool [blocks of the layout, *block_shape], on the cpu: the elements of `weight_values` that have an effect, which are
        neither beyond the last features nor of absent taps; None: all."""
        layout, (side_out, side_in), (rows, columns) = self.layout, self.block, self.weight_shape
        present = self.present_taps()
        if present is None and layout.rows * side_out == rows and layout.cols * side_in == columns:
            return None
        of_rows, of_columns = places_of(layout)
        within_rows = of_rows[:, None] * side_out + torch.arange(side_out, device="cpu") < rows
        within_columns = of_columns[:, None] * side_in + torch.arange(side_in, device="cpu") < columns
        counted = within_rows[:, :, None] & within_columns[:, None, :]
        if len(self.block_shape) == 2:
            return counted
        return counted[:, None].expand(-1, self.taps, -1, -1) if present is None else counted[:, None] & present[..., None, None]

    def output_blocks(self, device: Any = None) -> Tensor:
        """int64 [blocks of the layout]: the block of output features of each block, its row or its column.

        device  None: that of the weight
        """
        places = places_of(self.layout)[self.OUTPUTS]
        return places.to(self.weight_values.device if device is None else device)

    def of_outputs(self, numbers: Tensor) -> Tensor:
        """numbers [output features] in the shape in which they multiply `weight_values`."""
        room, outputs = self.layout.shape[self.OUTPUTS] * self.block[self.OUTPUTS], self.weight_shape[self.OUTPUTS]
        if tuple(numbers.shape) != (outputs,):
            raise ValueError(f"numbers of the shape {list(numbers.shape)}; [{outputs}], one for each output feature, would work")
        whole = torch.nn.functional.pad(numbers, (0, room - numbers.shape[0]))
        return self._in_slots(along_outputs(whole, self.output_blocks(), self.OUTPUTS, self._used_values()))

    def reset_parameters(self) -> None:
        raise NotImplementedError

    @property
    def overlap(self) -> bool:
        """Whether launches of inference may begin before the launch before them in their stream has ended: see
        overlapping_launches. May be set."""
        return self._overlap

    @overlap.setter
    def overlap(self, on: bool) -> None:
        self._overlap = flag("overlap", on)

    def _ask_to_overlap(self) -> bool | None:
        """As operators take it. FSDP writes weights before each call, and hides it from PyTorch's count of writes."""
        return not self._is_fsdp_managed_module and (self._overlap or None)

    def _make_weight(self, layout: Any, bias_features: int | None, device: Any, dtype: torch.dtype | None) -> None:
        """Makes parameters and buffers, when all else of the layer is there. None for no bias."""
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if not isinstance(dtype, torch.dtype) or dtype not in DTYPES:
            raise TypeError(f"a weight of {shown(dtype)}; there are kernels for {', '.join(map(str, DTYPES))}")
        layout = self._fitting(layout)
        shape = (self._room(layout), *self.block_shape)
        self.weight_values = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        bias = None if bias_features is None else torch.nn.Parameter(torch.empty(bias_features, device=device, dtype=dtype))
        self.register_parameter("bias", bias)
        self._lineage = Lineage()
        self._lineage.members.add(self)
        self._take(layout, self._slots_of(layout))
        self.reset_parameters()

    def _adopt(self, dense: torch.nn.Module) -> Any:
        """Copies the weights of a dense layer, whether they are trained, and its mode. Returns the layer."""
        self._copy_dense(dense.weight, dense.bias)
        self.weight_values.requires_grad_(dense.weight.requires_grad)
        if dense.bias is not None:
            self.bias.requires_grad_(dense.bias.requires_grad)
        return self.train(dense.training)

    @torch.no_grad()
    def _copy_dense(self, weight: Tensor, bias: Tensor | None) -> None:
        self._write_values(self.blocks_of(weight.detach()))
        if bias is not None:
            self.bias.copy_(bias)

    # ---- the layout ----

    def _fitting(self, layout: Any) -> "sparsekiln.Layout":
        """The layout that the layer has when it is given this one. ValueError for another grid."""
        if not isinstance(layout, sparsekiln.Layout):
            layout = sparsekiln.Layout(layout)
        rows, cols = grid(self.weight_shape, self.block)
        if layout.shape != (rows, cols):
            features = " and ".join(f"{number} {side}" for number, side in zip(self.weight_shape, self.SIDES))
            raise ValueError(
                f"the layout has {layout.rows} × {layout.cols} blocks; {features} {self.FEATURES} in blocks of "
                f"{self.block[0]}x{self.block[1]} are {rows} × {cols}"
            )
        return layout

    def blocks_in(self, tensor: Tensor) -> Tensor:
        """[blocks of the layout, …], in its order, of a tensor with an entry for each block that `weight_values` has room for, such as its
        gradient: a part of it, or a copy where blocks are in other slots than the first ones. Differentiable."""
        if self._gathered is not None:
            return tensor.index_select(0, self._gathered.to(tensor.device))
        return tensor if tensor.shape[0] == self.layout.blocks else tensor[: self.layout.blocks]

    def _used_values(self) -> Tensor:
        return self.blocks_in(self.weight_values)

    @torch.no_grad()
    def _write_values(self, blocks: Tensor) -> None:
        """Sets the blocks of the layout, given in its order, and zeros where there is room for others."""
        resizing.write_(self.weight_values, self._in_slots(blocks))

    def _in_slots(self, blocks: Tensor) -> Tensor:
        """A tensor [blocks of the layout, …], in its order, put in the order of `weight_values`, with zeros where there is room for others."""
        room = self._room(self.layout)
        if self._gathered is not None:
            return blocks.new_zeros((room, *blocks.shape[1:])).index_copy(0, self._gathered.to(blocks.device), blocks)
        return blocks if blocks.shape[0] == room else torch.cat([blocks, blocks.new_zeros((room - blocks.shape[0], *blocks.shape[1:]))])

    def _present_blocks(self) -> PresentBlocks:
        """The blocks of the layout and their places, by operations on tensors alone where torch.compile traces: it knows no layouts."""
        if not torch.compiler.is_dynamo_compiling():
            rows, columns = (places.to(self._device) for places in places_of(self.layout))
            return PresentBlocks(self._used_values(), rows, columns, self.layout.shape)
        values, crow, col = self.weight_values, self.crow_indices, self.col_indices
        if self._gathered is not None and self._columns is not None:
            values, col = values.index_select(0, self._gathered), self._columns
        width = blocks_for(self.weight_shape[1], self.block[1])
        crow, col = settled(crow, col, width)
        numbers = torch.arange(col.shape[0], dtype=crow.dtype, device=crow.device)
        rows = torch.searchsorted(crow, numbers, right=True) - 1  # of room for others: a row after the last one
        return PresentBlocks(values, rows, col.long(), (crow.shape[0], width))

    def _check_for_use(self) -> None:
        if not torch.compiler.is_compiling():
            self.settle_indices()

    def _operands(self) -> tuple[Tensor, Tensor, Tensor]:
        """The weight and its index tensors, as operators take them."""
        col = self.col_indices if self._columns is None else self._columns.to(self._device)
        return self._launched(self.weight_values), self.crow_indices, col

    def _launched(self, weight: Tensor) -> Tensor:
        """What operators take of a tensor like `weight_values`: itself, or a copy where blocks are in other slots than the first ones."""
        return weight if self._gathered is None else weight.index_select(0, self._gathered.to(self._device))

    @torch.no_grad()
    def relayout(self, layout: Any, optimizer: resizing.Optimizers = None) -> Tensor:
        """Moves to another layout of the same grid: blocks that stay keep their values, new ones are zeros.

        `weight_values` stays the same Parameter, so that an optimizer continues with it. What the optimizer keeps for each of its
        elements (momentum, squares) moves along if `optimizer` is given, one or several, and so does `weight_values.grad`. Without it, an
        optimizer that has such state fails at its next step, or, if the number of blocks is the same, mixes up blocks: give
        it, or make a new one. Call it between a step and the next forward pass.

        Where the shape of `weight_values` must not change (DistributedDataParallel, CUDA graphs), make the layer with
        max_blocks: then blocks keep their slots while some are taken away, which leave zeros, so that an average of the
        layer that is made element by element (AveragedModel) averages each block with itself. Whatever cannot move is refused
        before anything has changed: an optimizer with state that is not block by block, a parameter that is sharded, or
        that DistributedDataParallel averages and whose shape would change, or that an AveragedModel would average with another block.

        Returns int64 [blocks of the new layout]: each block's number in the old one, or -1; with max_blocks int64 [max_blocks]: the
        slot where each slot's block was before, or -1 where there is none, or a new one. gather() applies it to other tensors
        shaped like `weight_values`.
        """
        layout = self._fitting(layout)
        self.settle_indices()
        optimizers, parameter = resizing.each_of(optimizer), self.weight_values
        self.check_relayout(layout, optimizers)
        slots = self._slots_of(layout)
        if slots is None or self._slots is None:
            origin = moved(self.layout, layout)
        else:
            origin = torch.from_numpy(slots.origin(self._slots))

        def move(tensor: Tensor) -> Tensor:
            return gathered(tensor, origin)

        values = move(parameter)
        states = [resizing.moved_state(one, parameter, move) for one in optimizers]
        gradient = None if parameter.grad is None else move(parameter.grad)
        self._resize(values, layout, slots)
        if gradient is not None and parameter.grad is not None:
            parameter.grad.copy_(gradient)
        else:
            parameter.grad = gradient
        for one, state in zip(optimizers, states):
            resizing.write_state(one, parameter, state)
        return origin

    def check_relayout(self, layout: "sparsekiln.Layout", optimizers: Sequence[torch.optim.Optimizer] = ()) -> None:
        """Raises before anything has changed if the layer cannot move to this layout, or what optimizers keep for it cannot."""
        self.check_move(layout)
        for one in optimizers:
            resizing.check_optimizer(one, self.weight_values, "weight_values")
        check_averages(self, layout)

    def check_move(self, layout: "sparsekiln.Layout") -> None:
        """Raises before anything has changed if `weight_values` cannot hold the blocks of this layout."""
        room = self._room(layout)
        resizing.check_whole(self.weight_values, "weight_values", (self._room(self.layout), *self.block_shape))
        if room != self.weight_values.shape[0]:
            resizing.check_free(self.weight_values, "weight_values")

    def _resize(self, values: Tensor, layout: "sparsekiln.Layout", slots: Slots | None) -> None:
        if values.shape != self.weight_values.shape:
            self.weight_values.grad = None
        resizing.reshape_(self.weight_values, values)
        forget_recorded_graphs(values.device)
        self._take(layout, slots)

    @torch.no_grad()
    def put_in_order(self) -> None:
        """Moves the blocks to the first slots, as they are without max_blocks."""
        if self._slots is not None and not self._slots.are_in_order:
            self.check_move(self.layout)
            check_averages_in_order(self)
            slots = Slots.in_order(self.layout, self._room(self.layout))
            self._resize(gathered(self.weight_values, torch.from_numpy(slots.origin(self._slots))), self.layout, slots)

    @staticmethod
    def gather(tensor: Tensor, origin: Tensor) -> Tensor:
        """The blocks of `tensor` [blocks, …] in their new order: `origin` is what relayout returned."""
        for name, one in (("tensor", tensor), ("origin", origin)):
            check_tensor(one, name)
        return gathered(tensor, origin)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        self._lineage.members.add(self)

    # ---- saved state ----

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        self.settle_indices(counted=False)
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:  # fmt: skip
        names = [prefix + name for name in ("weight_values", "crow_indices", "col_indices")]
        missing = [name for name in names if name not in state_dict]
        if "weight_values" not in self._parameters or type(self.weight_values) is not torch.nn.Parameter:
            error = None if missing[-2:] == names[1:] else self._refuse_another_layout(state_dict, prefix)
        elif not missing:
            error = self._take_saved(state_dict, prefix)
        elif len(missing) < len(names):
            error = f"has {' and '.join(name for name in names if name not in missing)} alone; the three go together"
        else:
            error = None
        if error is not None:
            error_msgs.append(f"{prefix[:-1] or type(self).__name__}: {error}")
            return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        if not missing:
            self._write_indices()

    def _refuse_another_layout(self, state: dict, prefix: str) -> str | None:
        """For a layer whose weight_values are sharded, or computed from something else: it keeps its layout, and its slots."""
        try:
            layout, slots = saved_layout(state, prefix, self.layout.cols)
            if layout == self.layout and (self._slots is None or np.array_equal(slots.numbers, self._slots.numbers)):
                return None
            self.check_move(self.layout)
        except (ValueError, RuntimeError) as error:
            return str(error)
        return None

    def _take_saved(self, state: dict, prefix: str) -> str | None:
        """Prepares for the weight of the state, and has the state hold it as this layer does; returns what is wrong with it, if
        anything."""
        values, col = state[prefix + "weight_values"], state[prefix + "col_indices"]
        try:
            layout, saved = saved_layout(state, prefix, self.layout.cols)
            if self._fitting(layout) != layout:
                return "the saved layout has blocks that this layer does not: it connects channels of different groups"
            room = self._room(layout)
        except ValueError as error:
            return str(error)
        if values.shape[:1] != col.shape or tuple(values.shape[1:]) != self.block_shape:
            taps = "" if len(self.block_shape) == 2 else f" with {self.taps} taps"
            return (
                f"weight_values has the shape {tuple(values.shape)}; its layout has {layout.blocks} blocks of "
                f"{self.block[0]}x{self.block[1]}{taps}, and its col_indices {col.shape[0]} entries"
            )
        own = Slots.in_order(layout, room) if self._slots is None or saved.owners.size != room else saved
        if layout != self.layout or self._slots is not None and not np.array_equal(own.owners, self._slots.owners):
            try:
                self.check_move(layout)
            except RuntimeError as error:
                return str(error)
            self.weight_values.grad = None
            self._resize(self.weight_values.new_empty((room, *self.block_shape)), layout, None if self._slots is None else own)
        if saved.owners.size != room or not np.array_equal(saved.numbers, own.numbers):
            state[prefix + "weight_values"] = gathered(values, torch.from_numpy(own.origin(saved)))
            state[prefix + "col_indices"] = torch.from_numpy(np.pad(layout.col, (0, room - layout.blocks))).to(col)
        if self._slots is None:
            state.pop(prefix + "slot_blocks", None)
        else:
            state[prefix + "slot_blocks"] = torch.from_numpy(own.owners)
        return None
