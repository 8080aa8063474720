"""BlockSparseLinear: nn.Linear whose weight has only the blocks that its layout names."""

from typing import Any

import torch

import sparsekiln

from . import init, resizing
from .blocks import gathered, grid, in_blocks, moved, parse_block, row_of, strongest
from .functional import apply, check_bsr, parse_activation
from .graphs import forget_recorded_graphs, make_numbers_of_blocks_dynamic
from .kernels import DTYPES, find, is_known, kernels_of, know, layout_from_indices
from .products import ACTIVATIONS
from .weight_tools import Parametrizations, refuse_tools_of_weight

Tensor = torch.Tensor

make_numbers_of_blocks_dynamic()


class BlockSparseLinear(torch.nn.Module):
    """y = act(x · Wᵀ + bias), W[out, in] block-sparse.

    Takes x[..., in_features], gives [..., out_features], and is used like nn.Linear: in training, torch.compile,
    torch.export, autocast, DDP, on cpu and CUDA tensors. Kernels are compiled when they are first needed, for all batches.

    in_features, out_features  need not be multiples of the block: the last blocks are then partial
    layout      sparsekiln.Layout, or what makes one: [rows, cols] of blocks, rows of output features
    block       side of a block: 8, 16, 32, 64 or 128; or (out, in)
    activation  None or one of sparsekiln.activations, such as "gelu": computed with the product
    dtype       float32, bfloat16 or float16, accumulated in float32, or on the cpu float64
    max_blocks  room for layouts of up to so many blocks, so that relayout changes no shape; None for the layout's own

    Parameters: `weight_values` [blocks, block_out, block_in], row-major over the layout, and `bias` [out_features]. Buffers:
    `crow_indices` and `col_indices`, as in a BSR tensor of PyTorch. With max_blocks, `weight_values` and `col_indices` have
    that length; what comes after the blocks of the layout has no effect, and a gradient of zeros. The state holds all of
    them: load_state_dict adopts the layout that was saved. What `weight_values` holds beyond the last feature has no effect.
    """

    def __init__(
        self, in_features: int, out_features: int, layout: Any, block: int | tuple[int, int] = 32, bias: bool = True,
        activation: str | None = None, device: Any = None, dtype: torch.dtype | None = None, max_blocks: int | None = None,
    ):  # fmt: skip
        super().__init__()
        self.in_features, self.out_features = int(in_features), int(out_features)
        self.block = parse_block(block)
        self.activation = parse_activation(activation)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if dtype not in DTYPES:
            raise TypeError(f"a weight of {dtype}; there are kernels for {', '.join(map(str, DTYPES))}")
        if not isinstance(layout, sparsekiln.Layout):
            layout = sparsekiln.Layout(layout)
        self.max_blocks = None if max_blocks is None else int(max_blocks)
        self._check_grid(layout)
        shape = (self._room(layout), *self.block)
        self.weight_values = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.register_parameter(
            "bias", torch.nn.Parameter(torch.empty(self.out_features, device=device, dtype=dtype)) if bias else None
        )
        self._take(layout)
        self.reset_parameters()

    parametrizations = Parametrizations()

    # ---- where weights come from ----

    @classmethod
    def from_linear(
        cls, linear: torch.nn.Linear, density: float = 0.1, block: int | tuple[int, int] = 32, layout: Any = None,
        activation: str | None = None, max_blocks: int | None = None,
    ) -> "BlockSparseLinear":  # fmt: skip
        """The blocks of largest Frobenius norm of a dense layer, `density` × all of them; or those of `layout`."""
        weight, sides = linear.weight.detach(), parse_block(block)
        if layout is None:
            layout = strongest(weight, density, sides)
        layer = cls(
            linear.in_features, linear.out_features, layout, sides, linear.bias is not None, activation, weight.device, weight.dtype,
            max_blocks,
        )  # fmt: skip
        layer._copy_dense(weight, linear.bias)
        layer.weight_values.requires_grad_(linear.weight.requires_grad)
        if linear.bias is not None:
            layer.bias.requires_grad_(linear.bias.requires_grad)
        return layer.train(linear.training)

    @classmethod
    def from_bsr(
        cls, tensor: Tensor, bias: Tensor | None = None, activation: str | None = None, max_blocks: int | None = None
    ) -> "BlockSparseLinear":
        """A copy of a BSR tensor [out, in] of PyTorch, and of the bias [out]."""
        check_bsr(tensor)
        tensor = tensor.detach()
        out_features, in_features = tensor.shape
        values = tensor.values()
        layer = cls(
            in_features, out_features, sparsekiln.Layout(tensor), tuple(values.shape[1:]), bias is not None, activation,
            values.device, values.dtype, max_blocks,
        )  # fmt: skip
        with torch.no_grad():
            layer._used_values().copy_(values)
            if bias is not None:
                layer.bias.copy_(bias)
        return layer

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Like nn.Linear, uniform in ±1/√fan_in, with the fan-in of each row of blocks: its present features.

        sparsekiln.torch.init has other initialisers.
        """
        self._write_indices(self.layout)
        if not self.weight_values.is_meta:
            init.reset(self)

    @torch.no_grad()
    def _copy_dense(self, weight: Tensor, bias: Tensor | None) -> None:
        blocks = in_blocks(weight.detach(), self.block)
        rows = torch.from_numpy(row_of(self.layout)).to(weight.device)
        self._used_values().copy_(blocks[rows, self._used_columns()])
        if bias is not None:
            self.bias.copy_(bias)

    # ---- the layout ----

    @property
    def layout(self) -> "sparsekiln.Layout":
        """Which blocks the weight has. relayout changes it."""
        return self._kernels.layout

    def _check_grid(self, layout: "sparsekiln.Layout") -> None:
        rows, cols = grid((self.out_features, self.in_features), self.block)
        if (layout.rows, layout.cols) != (rows, cols):
            raise ValueError(
                f"the layout has {layout.rows} × {layout.cols} blocks; {self.out_features} output and {self.in_features} input "
                f"features in blocks of {self.block[0]}x{self.block[1]} are {rows} × {cols}"
            )

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
        if type(crow) is Tensor and type(col) is Tensor and not crow.is_meta:
            if find(crow, col, self.layout.cols).kernels is not self._kernels:
                raise ValueError(
                    "crow_indices and col_indices were exchanged for those of another layout; use BlockSparseLinear.relayout"
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
        if not isinstance(layout, sparsekiln.Layout):
            layout = sparsekiln.Layout(layout)
        self._check_grid(layout)
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
        resizing.check_whole(self.weight_values, "weight_values", (self._room(self.layout), *self.block))
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

    # ---- use ----

    def forward(self, x: Tensor) -> Tensor:
        crow, col = self.crow_indices, self.col_indices
        if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
            if torch.onnx.is_in_onnx_export():
                return self._of_standard_operators(x)
        elif crow is not self._known[0] or col is not self._known[1]:
            self._check_indices(crow, col)
        return apply(x, self.weight_values, self.bias, crow, col, self.in_features, self.out_features, self.activation)

    def _of_standard_operators(self, x: Tensor) -> Tensor:
        """The same, for formats that have no others: a dense product. The file holds the present blocks alone."""
        y = torch.nn.functional.linear(x, self.to_dense(), self.bias)
        return y if self.activation == "none" else ACTIVATIONS[self.activation](y)

    def to_dense(self) -> Tensor:
        """W [out_features, in_features], differentiable."""
        layout, (block_out, block_in) = self.layout, self.block
        rows = torch.from_numpy(row_of(layout)).to(self.weight_values.device)
        blocks = self.weight_values.new_zeros((layout.rows, layout.cols, block_out, block_in))
        blocks = blocks.index_put((rows, self._used_columns()), self._used_values())
        whole = blocks.transpose(1, 2).reshape(layout.rows * block_out, layout.cols * block_in)
        return whole[: self.out_features, : self.in_features]

    def to_bsr(self) -> Tensor:
        """W as a BSR tensor of PyTorch that shares `weight_values`. ValueError if features are not a multiple of the block."""
        shape = (self.layout.rows * self.block[0], self.layout.cols * self.block[1])
        if shape != (self.out_features, self.in_features):
            raise ValueError(
                f"{self.out_features} × {self.in_features} features are no multiple of blocks of {self.block[0]}x{self.block[1]}, "
                "as BSR tensors need; take to_dense()"
            )
        columns = self.col_indices[: self.layout.blocks]
        return torch.sparse_bsr_tensor(self.crow_indices, columns, self._used_values(), size=shape, check_invariants=False)

    @property
    def weight(self) -> Tensor:
        """W for code that reads nn.Linear's: to_bsr(), or to_dense() if features are not a multiple of the block."""
        refuse_tools_of_weight(self)
        whole = not (self.out_features % self.block[0] or self.in_features % self.block[1])
        return self.to_bsr() if whole else self.to_dense()

    def extra_repr(self) -> str:
        block = self.block[0] if self.block[0] == self.block[1] else self.block
        text = f"in_features={self.in_features}, out_features={self.out_features}, block={block}, blocks={self.layout.blocks}"
        text += f", density={self.layout.density:.4g}, bias={self.bias is not None}"
        text += "" if self.max_blocks is None else f", max_blocks={self.max_blocks}"
        return text if self.activation == "none" else f"{text}, activation={self.activation}"

    # ---- saved state ----

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:  # fmt: skip
        if prefix + "values" in state_dict:  # what the parameter was called before
            state_dict.setdefault(prefix + "weight_values", state_dict.pop(prefix + "values"))
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
            error_msgs.append(f"{prefix[:-1] or 'BlockSparseLinear'}: {error}")
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
            self._check_grid(layout)
            room = self._room(layout)
        except ValueError as error:
            return str(error)
        if values.shape[:1] != col.shape or tuple(values.shape[1:]) != self.block:
            return (
                f"weight_values has the shape {tuple(values.shape)}; its layout has {layout.blocks} blocks of "
                f"{self.block[0]}x{self.block[1]}, and its col_indices {col.shape[0]} entries"
            )
        if col.shape[0] != room:
            state[names[0]], state[names[2]] = (_of_length(one, layout.blocks, room) for one in (values, col))
        if layout != self.layout:
            try:
                self.check_move(layout)
            except RuntimeError as error:
                return str(error)
            self.weight_values.grad = None
            self._resize(self.weight_values.new_empty((room, *self.block)), layout)
        return None


def _of_length(tensor: Tensor, used: int, length: int) -> Tensor:
    """The first `used` entries, and zeros."""
    result = tensor.new_zeros((length, *tensor.shape[1:]))
    result[:used] = tensor[:used]
    return result
