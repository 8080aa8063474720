"""What every block-sparse layer has: a weight of blocks, the index tensors of its layout, and their saved state."""

from typing import Any

import torch

import sparsekiln

from . import resizing
from .blocks import along_outputs, gathered, grid, moved, row_of
from .graphs import forget_recorded_graphs, make_numbers_of_blocks_dynamic
from .kernels import DTYPES, find, is_known, kernels_of, know, layout_from_indices
from .weight_tools import Parametrizations

Tensor = torch.Tensor

make_numbers_of_blocks_dynamic()


class BlockSparseLayer(torch.nn.Module):
    """A layer whose weight is a matrix of blocks, or one matrix for each tap of a kernel, with the same blocks.

    Parameters: `weight_values` [blocks, *block_shape], row-major over the layout, and `bias`. Buffers: `crow_indices` and
    `col_indices`, as in a BSR tensor of PyTorch. A class says what its rows and columns are (weight_shape), which dense
    tensor its weight is the blocks of (blocks_of), and how values start (reset_parameters).
    """

    taps = 1  #: matrices of the weight
    groups = 1  #: of features; blocks connect those of one group
    parts_alike = 1  #: parts of the rows, one after the other, that have the same blocks
    OUTPUTS = 0  #: which side of the weight its outputs are: 0 rows, 1 columns
    block: tuple[int, int]  #: sides of a block: of rows and of columns
    max_blocks: int | None  #: room for layouts of up to so many blocks; None for as many as the layout has
    SIDES = ("output", "input")  # what rows and columns of the weight are
    FEATURES = "features"

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
        within_rows = torch.from_numpy(row_of(layout))[:, None] * side_out + torch.arange(side_out, device="cpu") < rows
        within_columns = torch.tensor(layout.col, device="cpu").long()[:, None] * side_in + torch.arange(side_in, device="cpu") < columns
        counted = within_rows[:, :, None] & within_columns[:, None, :]
        if len(self.block_shape) == 2:
            return counted
        return counted[:, None].expand(-1, self.taps, -1, -1) if present is None else counted[:, None] & present[..., None, None]

    def output_blocks(self, device: Any = None) -> Tensor:
        """int64 [blocks of the layout]: the block of output features of each block, its row or its column.

        device  None: that of the weight
        """
        places = torch.tensor(self.layout.col, device="cpu").long() if self.OUTPUTS == 1 else torch.from_numpy(row_of(self.layout))
        return places.to(self.weight_values.device if device is None else device)

    def of_outputs(self, numbers: Tensor) -> Tensor:
        """numbers [output features] in the shape in which they multiply `weight_values`."""
        room = self.layout.shape[self.OUTPUTS] * self.block[self.OUTPUTS]
        whole = torch.nn.functional.pad(numbers, (0, room - numbers.shape[0]))
        return along_outputs(whole, self.output_blocks(), self.OUTPUTS, self.weight_values)

    def reset_parameters(self) -> None:
        raise NotImplementedError

    def _make_weight(self, layout: Any, bias_features: int | None, device: Any, dtype: torch.dtype | None) -> None:
        """Makes parameters and buffers, when all else of the layer is there. None for no bias."""
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if dtype not in DTYPES:
            raise TypeError(f"a weight of {dtype}; there are kernels for {', '.join(map(str, DTYPES))}")
        layout = self._fitting(layout)
        shape = (self._room(layout), *self.block_shape)
        self.weight_values = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        bias = None if bias_features is None else torch.nn.Parameter(torch.empty(bias_features, device=device, dtype=dtype))
        self.register_parameter("bias", bias)
        self._take(layout)
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
        self._used_values().copy_(self.blocks_of(weight.detach()))
        if bias is not None:
            self.bias.copy_(bias)

    # ---- the layout ----

    @property
    def layout(self) -> "sparsekiln.Layout":
        """Which blocks the weight has. relayout changes it."""
        return self._kernels.layout

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

    def _room(self, layout: "sparsekiln.Layout") -> int:
        """Blocks that `weight_values` has with this layout."""
        if self.max_blocks is None:
            return layout.blocks
        if layout.blocks > self.max_blocks:
            raise ValueError(f"the layout has {layout.blocks} blocks, and the layer was made for max_blocks={self.max_blocks}")
        return self.max_blocks

    def _used_values(self) -> Tensor:
        return self.weight_values[: self.layout.blocks]

    def _used_columns(self) -> Tensor:
        return self.col_indices[: self.layout.blocks].long()

    def _take(self, layout: "sparsekiln.Layout") -> None:
        device = self.weight_values.device
        self._kernels = kernels_of(layout)
        old = self._buffers.get("col_indices")
        if old is None or old.shape[0] != self._room(layout):  # else in place: a CUDA graph may hold the addresses
            self.register_buffer("crow_indices", torch.zeros(layout.rows + 1, dtype=torch.int32, device=device))
            self.register_buffer("col_indices", torch.zeros(self._room(layout), dtype=torch.int32, device=device))
        self._write_indices(layout)

    def _write_indices(self, layout: "sparsekiln.Layout") -> None:
        with torch.no_grad():
            self.crow_indices.copy_(torch.tensor(layout.crow))
            self.col_indices[: layout.blocks].copy_(torch.tensor(layout.col))
            self.col_indices[layout.blocks :].zero_()
        self._know_indices()

    def _know_indices(self) -> None:
        """The index tensors need not be read to know their layout."""
        know(self.crow_indices, self.col_indices, self._kernels, type(self).__name__)
        self._set_known()

    def _set_known(self) -> None:
        counted = not self.crow_indices.is_inference()  # else PyTorch does not count writes, and forward compares each time
        self._known = (self.crow_indices, self.col_indices) if counted else (None, None)

    def _check_indices(self, crow: Tensor, col: Tensor) -> None:
        """Index tensors that are not those that the layer made must hold its layout."""
        if crow is self._known[0] and col is self._known[1]:
            return
        if type(crow) is Tensor and type(col) is Tensor and not crow.is_meta:
            if find(crow, col, self.layout.cols).kernels is not self._kernels:
                raise ValueError(
                    "crow_indices and col_indices were exchanged for those of another layout; use "
                    f"{type(self).__name__}.relayout"
                )
            self._set_known()

    def _apply(self, fn, recurse=True):  # to(), cuda(), to_empty(), …
        was_known = not self.crow_indices.is_meta and is_known(self.crow_indices, self.col_indices)
        result = super()._apply(fn, recurse)
        if was_known:
            self._know_indices()
        return result

    def __setstate__(self, state):  # copies and pickles
        super().__setstate__(state)
        if self._known[0] is self.crow_indices and self._known[1] is self.col_indices:
            self._know_indices()

    @torch.no_grad()
    def relayout(self, layout: Any, optimizer: torch.optim.Optimizer | None = None) -> Tensor:
        """Moves to another layout of the same grid: blocks that stay keep their values, new ones are zeros.

        `weight_values` stays the same Parameter, so that an optimizer continues with it. What the optimizer keeps for each of its
        elements (momentum, squares) moves along if `optimizer` is given, and so does `weight_values.grad`. Without it, an
        optimizer that has such state fails at its next step, or, if the number of blocks is the same, mixes up blocks: give
        it, or make a new one. Call it between a step and the next forward pass.

        Where the shape of `weight_values` must not change (DistributedDataParallel, CUDA graphs), make the layer with
        max_blocks. Whatever cannot move is refused before anything has changed: an optimizer with state that is not block
        by block, a parameter that is sharded, or that DistributedDataParallel averages and whose shape would change.

        Returns int64 [blocks of the new layout]: each block's number in the old one, or -1. gather() applies it to other
        tensors shaped like `weight_values`.
        """
        layout = self._fitting(layout)
        self.check_move(layout)
        parameter = self.weight_values
        if optimizer is not None:
            resizing.check_optimizer(optimizer, parameter, "weight_values")
        origin, room = moved(self.layout, layout), self._room(layout)

        def move(tensor: Tensor) -> Tensor:
            return gathered(tensor, origin, room)

        values = move(parameter)
        state = {} if optimizer is None else resizing.moved_state(optimizer, parameter, move)
        gradient = None if parameter.grad is None else move(parameter.grad)
        self._resize(values, layout)
        if gradient is not None and parameter.grad is not None:
            parameter.grad.copy_(gradient)
        else:
            parameter.grad = gradient
        if optimizer is not None:
            resizing.write_state(optimizer, parameter, state)
        return origin

    def check_move(self, layout: "sparsekiln.Layout") -> None:
        """Raises before anything has changed if `weight_values` cannot hold the blocks of this layout."""
        room = self._room(layout)
        resizing.check_whole(self.weight_values, "weight_values", (self._room(self.layout), *self.block_shape))
        if room != self.weight_values.shape[0]:
            resizing.check_free(self.weight_values, "weight_values")

    def _resize(self, values: Tensor, layout: "sparsekiln.Layout") -> None:
        if values.shape != self.weight_values.shape:
            self.weight_values.grad = None
        resizing.reshape_(self.weight_values, values)
        forget_recorded_graphs(values.device)
        self._take(layout)

    @staticmethod
    def gather(tensor: Tensor, origin: Tensor) -> Tensor:
        """The blocks of `tensor` [blocks, …] in their new order: `origin` is what relayout returned."""
        return gathered(tensor, origin)

    # ---- saved state ----

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:  # fmt: skip
        names = [prefix + name for name in ("weight_values", "crow_indices", "col_indices")]
        missing = [name for name in names if name not in state_dict]
        if "weight_values" not in self._parameters or type(self.weight_values) is not torch.nn.Parameter:
            error = self._refuse_another_layout(*(state_dict.get(name) for name in names[1:]))
        elif not missing:
            error = self._take_saved(state_dict, *names)
        elif len(missing) < len(names):
            error = f"has {' and '.join(name for name in names if name not in missing)} alone; the three go together"
        else:
            error = None
        if error is not None:
            error_msgs.append(f"{prefix[:-1] or type(self).__name__}: {error}")
            return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        if not missing:
            self._know_indices()

    def _refuse_another_layout(self, crow: Tensor | None, col: Tensor | None) -> str | None:
        """For a layer whose weight_values are sharded, or computed from something else: it keeps its layout."""
        try:
            if crow is None or col is None or layout_from_indices(crow, col, self.layout.cols) == self.layout:
                return None
            self.check_move(self.layout)
        except (ValueError, RuntimeError) as error:
            return str(error)
        return None

    def _take_saved(self, state: dict, *names: str) -> str | None:
        """Prepares for the tensors of these names, and cuts or pads them to its room; returns what is wrong with them, if anything."""
        values, crow, col = (state[name] for name in names)
        try:
            layout = layout_from_indices(crow, col, self.layout.cols)
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
        if col.shape[0] != room:
            state[names[0]], state[names[2]] = (_of_length(one, layout.blocks, room) for one in (values, col))
        if layout != self.layout:
            try:
                self.check_move(layout)
            except RuntimeError as error:
                return str(error)
            self.weight_values.grad = None
            self._resize(self.weight_values.new_empty((room, *self.block_shape)), layout)
        return None


def _of_length(tensor: Tensor, used: int, length: int) -> Tensor:
    """The first `used` entries, and zeros."""
    result = tensor.new_zeros((length, *tensor.shape[1:]))
    result[:used] = tensor[:used]
    return result
