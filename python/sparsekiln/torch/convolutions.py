"""BlockSparseConv1d, 2d and 3d: nn.ConvNd whose channels are connected by the blocks that a layout names."""

from typing import Any, TypeVar

import torch

import sparsekiln

from . import operators, resizing
from .blocks import grid, parse_block, row_of
from .convolution_blocks import (
    blocks_of_dense, check_channels, dense_of_blocks, random_layout, strongest_layout, within_groups,
)  # fmt: skip
from .convolution_geometry import by, parse_geometry
from .convolution_operators import call
from .functional import autocast
from .graphs import forget_recorded_graphs
from .kernels import DTYPES, find, kernels_of, layout_from_indices

Tensor = torch.Tensor
_Layer = TypeVar("_Layer", bound="_BlockSparseConv")
_DENSE = {1: torch.nn.Conv1d, 2: torch.nn.Conv2d, 3: torch.nn.Conv3d}
_FUNCTIONS = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}
_EXTENTS = {1: "length", 2: "height, width", 3: "depth, height, width"}


class _BlockSparseConv(torch.nn.Module):
    """What the classes of 1, 2 and 3 dimensions share."""

    dimensions = 0

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int | tuple[int, ...], stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0, dilation: int | tuple[int, ...] = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", device: Any = None, dtype: torch.dtype | None = None, *, layout: Any = None,
        density: float = 0.1, block: int | tuple[int, int] = 32,
    ):  # fmt: skip
        super().__init__()
        self.in_channels, self.out_channels, self.groups = int(in_channels), int(out_channels), int(groups)
        self.block = parse_block(block)
        self._form = parse_geometry(self.dimensions, kernel_size, stride, padding, dilation)
        self.kernel_size, self.stride, self.dilation = self._form.kernel, self._form.stride, self._form.dilation
        self.padding = padding if isinstance(padding, str) else self._form.before
        if padding_mode != "zeros":
            raise ValueError(
                f"a padding_mode of {padding_mode!r}; block-sparse convolutions pad with 'zeros', and torch.nn.functional.pad before "
                "one without padding would work"
            )
        self.padding_mode = padding_mode
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if dtype not in DTYPES:
            raise TypeError(f"a weight of {dtype}; there are kernels for {', '.join(map(str, DTYPES))}")
        check_channels(self.in_channels, self.out_channels, self.groups, self.block)
        if layout is None:
            layout = random_layout((self.out_channels, self.in_channels), self.groups, density, self.block)
        elif not isinstance(layout, sparsekiln.Layout):
            layout = sparsekiln.Layout(layout)
        self._check_grid(layout)
        layout = within_groups(layout, self.groups)
        self.weight_values = torch.nn.Parameter(torch.empty(self._shape(layout), device=device, dtype=dtype))
        self.register_parameter(
            "bias", torch.nn.Parameter(torch.empty(self.out_channels, device=device, dtype=dtype)) if bias else None
        )
        self._take(layout)
        self.reset_parameters()

    # ---- where weights come from ----

    @classmethod
    def from_conv(
        cls: type[_Layer], conv: torch.nn.Module, density: float = 0.1, block: int | tuple[int, int] = 32, layout: Any = None
    ) -> _Layer:
        """The blocks of largest Frobenius norm, over all taps, of a dense layer, `density` × all of them; or those of `layout`."""
        dense = _DENSE[cls.dimensions]
        if not isinstance(conv, dense):
            raise TypeError(f"{cls.__name__}.from_conv was given a {type(conv).__name__}; it takes a {dense.__name__}")
        weight, sides = conv.weight.detach(), parse_block(block)
        check_channels(conv.in_channels, conv.out_channels, conv.groups, sides)
        if layout is None:
            layout = strongest_layout(weight, conv.groups, density, sides)
        layer = cls(
            conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups,
            conv.bias is not None, conv.padding_mode, weight.device, weight.dtype, layout=layout, block=sides,
        )  # fmt: skip
        with torch.no_grad():
            layer.weight_values.copy_(blocks_of_dense(weight, layer.layout, layer.groups, sides))
            if conv.bias is not None:
                layer.bias.copy_(conv.bias)
        layer.weight_values.requires_grad_(conv.weight.requires_grad)
        if conv.bias is not None:
            layer.bias.requires_grad_(conv.bias.requires_grad)
        return layer.train(conv.training)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Like nn.ConvNd, uniform in ±1/√fan_in, with the fan-in of each row of blocks: its present channels times the taps."""
        self._write_indices(self.layout)
        if self.weight_values.is_meta:
            return
        crow = torch.tensor(self.layout.crow, device="cpu")
        fan = (crow.diff() * self.block[1] * self._form.taps).float()
        bound = torch.where(fan > 0, fan.clamp(min=1).rsqrt(), 0.0)
        of_block = bound[torch.from_numpy(row_of(self.layout))]
        self.weight_values.uniform_(-1, 1).mul_(of_block.to(self.weight_values)[:, None, None, None])
        if self.bias is not None:
            self.bias.uniform_(-1, 1).mul_(bound.repeat_interleave(self.block[0]).to(self.bias))

    # ---- the layout ----

    @property
    def layout(self) -> "sparsekiln.Layout":
        """Which blocks the weight has: rows of output channels, columns of input channels."""
        return self._kernels.layout

    def _shape(self, layout: "sparsekiln.Layout") -> tuple[int, ...]:
        return (layout.blocks, self._form.taps, *self.block)

    def _check_grid(self, layout: "sparsekiln.Layout") -> None:
        rows, cols = grid((self.out_channels, self.in_channels), self.block)
        if layout.shape != (rows, cols):
            raise ValueError(
                f"the layout has {layout.rows} × {layout.cols} blocks; {self.out_channels} output and {self.in_channels} input "
                f"channels in blocks of {self.block[0]}x{self.block[1]} are {rows} × {cols}"
            )

    def _take(self, layout: "sparsekiln.Layout") -> None:
        device = self.weight_values.device
        self._kernels = kernels_of(layout)
        self.register_buffer("crow_indices", torch.zeros(layout.rows + 1, dtype=torch.int32, device=device))
        self.register_buffer("col_indices", torch.zeros(layout.blocks, dtype=torch.int32, device=device))
        self._write_indices(layout)

    @torch.no_grad()
    def _write_indices(self, layout: "sparsekiln.Layout") -> None:
        self.crow_indices.copy_(torch.tensor(layout.crow))
        self.col_indices.copy_(torch.tensor(layout.col))

    def _check_indices(self) -> None:
        if find(self.crow_indices, self.col_indices, self.layout.cols).kernels is not self._kernels:
            raise ValueError(
                "crow_indices and col_indices do not hold the layout of the layer; load_state_dict would change all of it"
            )

    def _apply(self, fn, recurse=True):  # .to(memory_format=torch.channels_last) is meant for dense weights
        result = super()._apply(fn, recurse)
        if type(self.weight_values) is torch.nn.Parameter and not self.weight_values.is_contiguous():
            self.weight_values.data = self.weight_values.data.contiguous()
        return result

    # ---- use ----

    def forward(self, x: Tensor) -> Tensor:
        one = x.dim() == self.dimensions + 1
        if x.is_nested or not (one or x.dim() == self.dimensions + 2) or x.shape[-1 - self.dimensions] != self.in_channels:
            extents = _EXTENTS[self.dimensions]
            raise ValueError(
                f"the input has the shape {'of a nested tensor' if x.is_nested else tuple(x.shape)}; this layer takes "
                f"[n, {self.in_channels}, {extents}] or [{self.in_channels}, {extents}]"
            )
        if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
            if torch.onnx.is_in_onnx_export():
                return _FUNCTIONS[self.dimensions](
                    x, self.dense_weight(), self.bias, self.stride, self.padding, self.dilation, self.groups
                )
        elif operators.unobserved(self.crow_indices, self.col_indices):
            self._check_indices()
        weight, bias = self.weight_values, self.bias
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            x, weight, bias = autocast(x.device.type, x, weight, bias)
        batch = x[None] if one else x
        channels_last = batch.stride(1) == 1 and batch.stride(-1) >= self.in_channels
        y = self._of_images(batch.movedim(1, -1), weight, bias).movedim(-1, 1)
        if not channels_last:  # contiguous() would leave the strides of images of one position
            y = y.clone(memory_format=torch.contiguous_format)
        return y[0] if one else y

    def _of_images(self, images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """y[n, …, out_channels] of x[n, …, in_channels]."""
        crow, col = self.crow_indices, self.col_indices
        if not self._form.is_pointwise:
            return call(images, weight, bias, crow, col, self.out_channels, self._form.as_list())
        rows = images.flatten(0, -2)
        y = operators.call(rows, weight.flatten(0, 1), bias, crow, col, self.in_channels, self.out_channels, "none")
        return y.reshape(*images.shape[:-1], self.out_channels)

    def dense_weight(self) -> Tensor:
        """W [out_channels, in_channels / groups, *kernel_size], as nn.ConvNd has it; differentiable."""
        return dense_of_blocks(self.weight_values, self.layout, self.groups, self.kernel_size)

    @torch.no_grad()
    def to_dense(self) -> torch.nn.Module:
        """An nn.ConvNd with copies of the same weights, and zeros where there are no blocks."""
        dense = _DENSE[self.dimensions](
            self.in_channels, self.out_channels, self.kernel_size, self.stride, self.padding, self.dilation, self.groups,
            self.bias is not None, self.padding_mode, self.weight_values.device, self.weight_values.dtype,
        )  # fmt: skip
        dense.weight.copy_(self.dense_weight())
        dense.weight.requires_grad_(self.weight_values.requires_grad)
        if self.bias is not None:
            dense.bias.copy_(self.bias)
            dense.bias.requires_grad_(self.bias.requires_grad)
        return dense.train(self.training)

    def extra_repr(self) -> str:
        block = self.block[0] if self.block[0] == self.block[1] else self.block
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", padding={self.padding!r}" if self.padding not in ("valid", (0,) * self.dimensions) else ""
        text += f", dilation={self.dilation}" if set(self.dilation) != {1} else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        text += f", block={block}, blocks={self.layout.blocks}, density={self.layout.density:.4g}"
        return text if self.bias is not None else f"{text}, bias=False"

    # ---- saved state ----

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:  # fmt: skip
        names = [prefix + name for name in ("weight_values", "crow_indices", "col_indices")]
        missing = [name for name in names if name not in state_dict]
        if "weight_values" not in self._parameters or type(self.weight_values) is not torch.nn.Parameter:
            error = self._take_saved(None, *(state_dict.get(name) for name in names[1:]))
        elif not missing:
            error = self._take_saved(*(state_dict[name] for name in names))
        elif len(missing) < len(names):
            error = f"has {' and '.join(name for name in names if name not in missing)} alone; the three go together"
        else:
            error = None
        if error is not None:
            error_msgs.append(f"{prefix[:-1] or type(self).__name__}: {error}")
            return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def _take_saved(self, values: Tensor | None, crow: Tensor | None, col: Tensor | None) -> str | None:
        """Adopts the layout of saved tensors; returns what is wrong with them, if anything. No values are given where
        they are sharded, or computed from something else: the layer then keeps its layout."""
        if crow is None or col is None:
            return None
        try:
            layout = layout_from_indices(crow, col, self.layout.cols)
            self._check_grid(layout)
            if values is not None and tuple(values.shape) != self._shape(layout):
                return (
                    f"weight_values has the shape {tuple(values.shape)}; that of a layout of {layout.blocks} blocks of "
                    f"{self.block[0]}x{self.block[1]} and a kernel of {by(self.kernel_size)} is {self._shape(layout)}"
                )
            if layout == self.layout:
                return None
            if within_groups(layout, self.groups) != layout:
                return f"the saved layout connects channels of different groups; this layer has {self.groups}"
            resizing.check_whole(self.weight_values, "weight_values", self._shape(self.layout))
            if layout.blocks != self.layout.blocks:
                resizing.check_free(self.weight_values, "weight_values")
        except (ValueError, RuntimeError) as error:
            return str(error)
        self.weight_values.grad = None
        resizing.reshape_(self.weight_values, self.weight_values.new_empty(self._shape(layout)))
        forget_recorded_graphs(self.weight_values.device)
        self._take(layout)
        return None


_ABOUT = """nn.Conv{d}d whose weight has only the blocks of channels that its layout names. Each block has all taps of the kernel.

    Takes [n, in_channels, {extents}] or [in_channels, {extents}], contiguous or channels-last, and gives a tensor of the same
    memory format. Computes channels-last: an input of that format is read in place, and others are copied. Kernels are compiled
    when they are first needed, for each size of the input, and serve all batches; those of the gradient of the weight, all up to a
    power of two. On cpu tensors; where kernel_size and stride are 1 and nothing is padded, which is a linear layer of each
    position, on CUDA tensors as well, and one kernel serves all sizes of the input.

    in_channels, out_channels, groups  the channels of each group must fill whole blocks; a layout keeps the blocks within groups
    kernel_size, stride, padding, dilation, bias, device, dtype  as in nn.Conv{d}d; types are float32, bfloat16 and float16
    padding_mode  "zeros" alone
    layout   sparsekiln.Layout, or what makes one: [rows, cols] of blocks, rows of output channels
    density  where there is no layout: the fraction of blocks that are present, drawn at random, as many in each row
    block    side of a block: 8, 16, 32, 64 or 128; or (out, in)

    Parameters: `weight_values` [blocks, taps, block_out, block_in], blocks in row-major order over the layout, taps in
    row-major order of the kernel, and `bias` [out_channels]. Buffers: `crow_indices` and `col_indices`, as in a BSR tensor of PyTorch.
    load_state_dict adopts the layout that was saved.
    """


class BlockSparseConv1d(_BlockSparseConv):
    __doc__ = _ABOUT.format(d=1, extents=_EXTENTS[1])
    dimensions = 1


class BlockSparseConv2d(_BlockSparseConv):
    __doc__ = _ABOUT.format(d=2, extents=_EXTENTS[2])
    dimensions = 2


class BlockSparseConv3d(_BlockSparseConv):
    __doc__ = _ABOUT.format(d=3, extents=_EXTENTS[3])
    dimensions = 3
