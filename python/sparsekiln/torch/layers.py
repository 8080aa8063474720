"""BlockSparseLinear: nn.Linear whose weight has only the blocks that its layout names."""

import math
from typing import Any

import torch

import sparsekiln

from .blocks import gathered, grid, in_blocks, moved, parse_block, row_of, strongest
from .functional import apply, check_bsr, parse_activation
from .kernels import DTYPES, kernels_of, layout_from_indices

Tensor = torch.Tensor


class BlockSparseLinear(torch.nn.Module):
    """y = act(x · Wᵀ + bias), W[out, in] block-sparse.

    Takes x[..., in_features], gives [..., out_features], and is used like nn.Linear: in training, torch.compile,
    torch.export, autocast, DDP, on cpu and CUDA tensors. Kernels are compiled when they are first needed, for all batches.

    in_features, out_features  need not be multiples of the block: the last blocks are then partial
    layout      sparsekiln.Layout, or what makes one: [rows, cols] of blocks, rows of output features
    block       side of a block: 8, 16, 32, 64 or 128; or (out, in)
    activation  None or one of sparsekiln.activations, such as "gelu": computed with the product
    dtype       float32, bfloat16 or float16, accumulated in float32, or on the cpu float64

    Parameters: `weight_values` [blocks, block_out, block_in], row-major over the layout, and `bias` [out_features]. Buffers:
    `crow_indices` and `col_indices`, as in a BSR tensor of PyTorch. The state holds all of them: load_state_dict adopts
    the layout that was saved. What `weight_values` holds beyond the last feature has no effect.
    """

    def __init__(
        self, in_features: int, out_features: int, layout: Any, block: int | tuple[int, int] = 32, bias: bool = True,
        activation: str | None = None, device: Any = None, dtype: torch.dtype | None = None,
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
        self._check_grid(layout)
        self.weight_values = torch.nn.Parameter(torch.empty((layout.blocks, *self.block), device=device, dtype=dtype))
        self.register_parameter(
            "bias", torch.nn.Parameter(torch.empty(self.out_features, device=device, dtype=dtype)) if bias else None
        )
        self._take(layout)
        self.reset_parameters()

    # ---- where weights come from ----

    @classmethod
    def from_linear(
        cls, linear: torch.nn.Linear, density: float = 0.1, block: int | tuple[int, int] = 32, layout: Any = None,
        activation: str | None = None,
    ) -> "BlockSparseLinear":  # fmt: skip
        """The blocks of largest Frobenius norm of a dense layer, `density` × all of them; or those of `layout`."""
        weight, sides = linear.weight.detach(), parse_block(block)
        if layout is None:
            layout = strongest(weight, density, sides)
        layer = cls(
            linear.in_features, linear.out_features, layout, sides, linear.bias is not None, activation, weight.device, weight.dtype
        )
        layer._copy_dense(weight, linear.bias)
        layer.weight_values.requires_grad_(linear.weight.requires_grad)
        if linear.bias is not None:
            layer.bias.requires_grad_(linear.bias.requires_grad)
        return layer.train(linear.training)

    @classmethod
    def from_bsr(cls, tensor: Tensor, bias: Tensor | None = None, activation: str | None = None) -> "BlockSparseLinear":
        """A copy of a BSR tensor [out, in] of PyTorch, and of the bias [out]."""
        check_bsr(tensor)
        tensor = tensor.detach()
        out_features, in_features = tensor.shape
        values = tensor.values()
        layer = cls(
            in_features, out_features, sparsekiln.Layout(tensor), tuple(values.shape[1:]), bias is not None, activation,
            values.device, values.dtype,
        )  # fmt: skip
        with torch.no_grad():
            layer.weight_values.copy_(values)
            if bias is not None:
                layer.bias.copy_(bias)
        return layer

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Like nn.Linear, uniform in ±1/√fan_in, with the fan-in of each row of blocks: its present features."""
        layout = self.layout
        self.crow_indices.copy_(torch.tensor(layout.crow))
        self.col_indices.copy_(torch.tensor(layout.col))
        if self.weight_values.is_meta:
            return
        fan_in = self._fan_in()
        bound = torch.where(fan_in > 0, fan_in.clamp(min=1).rsqrt(), 0.0).to(self.weight_values.device)
        rows = torch.from_numpy(row_of(layout)).to(self.weight_values.device)
        self.weight_values.uniform_(-1, 1).mul_(bound[rows].to(self.weight_values.dtype)[:, None, None])
        self._clear_beyond()
        if self.bias is not None:
            of_feature = bound.repeat_interleave(self.block[0])[: self.out_features]
            self.bias.uniform_(-1, 1).mul_(of_feature.to(self.bias.dtype))

    def _fan_in(self) -> Tensor:
        """[rows]: input features of the present blocks of each block row."""
        layout = self.layout
        width = torch.full((layout.cols,), float(self.block[1]))
        width[-1] -= layout.cols * self.block[1] - self.in_features
        rows, cols = torch.from_numpy(row_of(layout)), torch.tensor(layout.col, dtype=torch.int64)
        return torch.zeros(layout.rows).index_add_(0, rows, width[cols])

    def _clear_beyond(self) -> None:
        """Sets the values beyond the last features to zero."""
        layout, (block_out, block_in) = self.layout, self.block
        beyond_out, beyond_in = layout.rows * block_out - self.out_features, layout.cols * block_in - self.in_features
        if beyond_out:
            self.weight_values[int(layout.crow[-2]) :, block_out - beyond_out :, :] = 0
        if beyond_in:
            last = torch.from_numpy(layout.col == layout.cols - 1).to(self.weight_values.device)
            self.weight_values[:, :, block_in - beyond_in :] *= ~last[:, None, None]

    @torch.no_grad()
    def _copy_dense(self, weight: Tensor, bias: Tensor | None) -> None:
        blocks = in_blocks(weight.detach(), self.block)
        rows = torch.from_numpy(row_of(self.layout)).to(weight.device)
        self.weight_values.copy_(blocks[rows, self.col_indices.long()])
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

    def _take(self, layout: "sparsekiln.Layout") -> None:
        device = self.weight_values.device
        self._kernels = kernels_of(layout)
        self._digest = layout.digest
        self.register_buffer("crow_indices", torch.tensor(layout.crow, dtype=torch.int32, device=device))
        self.register_buffer("col_indices", torch.tensor(layout.col, dtype=torch.int32, device=device))

    @torch.no_grad()
    def relayout(self, layout: Any, optimizer: torch.optim.Optimizer | None = None) -> Tensor:
        """Moves to another layout of the same grid: blocks that stay keep their values, new ones are zeros.

        `weight_values` stays the same Parameter, so that an optimizer continues with it. What the optimizer keeps for each of its
        elements (momentum, squares) moves along if `optimizer` is given, and so does `weight_values.grad`. Without it, an
        optimizer that has such state fails at its next step, or, if the number of blocks is the same, mixes up blocks: give
        it, or make a new one. Call it between a step and the next forward pass.

        Returns int64 [blocks of the new layout]: each block's number in the old one, or -1. gather() applies it to other
        tensors shaped like `weight_values`.
        """
        if not isinstance(layout, sparsekiln.Layout):
            layout = sparsekiln.Layout(layout)
        self._check_grid(layout)
        origin = moved(self.layout, layout)
        old_shape = self.weight_values.shape
        gradient, self.weight_values.grad = self.weight_values.grad, None
        self._resize(gathered(self.weight_values, origin), layout)
        if gradient is not None:
            self.weight_values.grad = gathered(gradient, origin)
        state = optimizer.state.get(self.weight_values, {}) if optimizer is not None else {}
        for name, kept in state.items():
            if isinstance(kept, torch.Tensor) and kept.shape == old_shape:
                state[name] = gathered(kept, origin)
        return origin

    def _resize(self, values: Tensor, layout: "sparsekiln.Layout") -> None:
        self.weight_values.data = values
        torch.autograd.graph.increment_version(self.weight_values)  # a backward pass of the old layout is an error
        self._take(layout)

    @staticmethod
    def gather(tensor: Tensor, origin: Tensor) -> Tensor:
        """The blocks of `tensor` [blocks, …] in their new order: `origin` is what relayout returned."""
        return gathered(tensor, origin)

    # ---- use ----

    def forward(self, x: Tensor) -> Tensor:
        return apply(
            x, self.weight_values, self.bias, self.crow_indices, self.col_indices, self._digest, self.in_features, self.out_features,
            self.activation,
        )  # fmt: skip

    def to_dense(self) -> Tensor:
        """W [out_features, in_features], differentiable."""
        layout, (block_out, block_in) = self.layout, self.block
        rows = torch.from_numpy(row_of(layout)).to(self.weight_values.device)
        blocks = self.weight_values.new_zeros((layout.rows, layout.cols, block_out, block_in))
        blocks = blocks.index_put((rows, self.col_indices.long()), self.weight_values)
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
        return torch.sparse_bsr_tensor(self.crow_indices, self.col_indices, self.weight_values, size=shape, check_invariants=False)

    @property
    def weight(self) -> Tensor:
        """W for code that reads nn.Linear's: to_bsr(), or to_dense() if features are not a multiple of the block."""
        whole = not (self.out_features % self.block[0] or self.in_features % self.block[1])
        return self.to_bsr() if whole else self.to_dense()

    def extra_repr(self) -> str:
        block = self.block[0] if self.block[0] == self.block[1] else self.block
        text = f"in_features={self.in_features}, out_features={self.out_features}, block={block}, blocks={self.layout.blocks}"
        text += f", density={self.layout.density:.4g}, bias={self.bias is not None}"
        return text if self.activation == "none" else f"{text}, activation={self.activation}"

    # ---- saved state ----

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:  # fmt: skip
        if prefix + "values" in state_dict:  # what the parameter was called before
            state_dict.setdefault(prefix + "weight_values", state_dict.pop(prefix + "values"))
        names = [prefix + name for name in ("weight_values", "crow_indices", "col_indices")]
        present = [name in state_dict for name in names]
        if all(present):
            error = self._take_saved(*(state_dict[name] for name in names))
        elif any(present):
            error = f"has {' and '.join(name for name in names if name in state_dict)} alone; the three go together"
        else:
            error = None
        if error is not None:
            error_msgs.append(f"{prefix[:-1] or 'BlockSparseLinear'}: {error}")
            return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def _take_saved(self, values: Tensor, crow: Tensor, col: Tensor) -> str | None:
        """Prepares for these tensors; returns what is wrong with them, if anything."""
        try:
            layout = layout_from_indices(crow, col, self.layout.cols)
            self._check_grid(layout)
        except ValueError as error:
            return str(error)
        if tuple(values.shape) != (layout.blocks, *self.block):
            return f"weight_values has the shape {tuple(values.shape)}; its layout has {layout.blocks} blocks of {self.block[0]}x{self.block[1]}"
        if layout.digest != self._digest:
            self.weight_values.grad = None
            self._resize(self.weight_values.new_empty((layout.blocks, *self.block)), layout)
        return None
