"""BlockSparseConv1d, 2d and 3d: nn.ConvNd whose channels are connected by the blocks that a layout names."""

from typing import Any

import torch

from sparsekiln._arguments import flag

from ..linear import operators as linear
from .edge_bias import call as call_with_edges, check_type, situations_of
from .geometry import by, numbers, parse_geometry
from .layer import EXTENTS, ConvolutionLayer
from .operators import call

Tensor = torch.Tensor
F = torch.nn.functional


class _BlockSparseConv(ConvolutionLayer):
    """What the classes of 1, 2 and 3 dimensions share."""

    OPTIONS = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int | tuple[int, ...], stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0, dilation: int | tuple[int, ...] = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", device: Any = None, dtype: torch.dtype | None = None, *, layout: Any = None,
        density: float = 0.1, block: int | tuple[int, int] = 32, max_blocks: int | None = None, tap_mask: Any = None,
        edge_bias: int | tuple[int, ...] | None = None, max_input: int | tuple[int, ...] | None = None, overlap: bool = False,
    ):  # fmt: skip
        form = parse_geometry(self.dimensions, kernel_size, stride, padding, dilation)
        bias = edge_bias is None and bias is not None and flag("bias", bias)
        super().__init__(
            in_channels, out_channels, form, groups, bias, padding_mode, device, dtype, layout, density, block, max_blocks, tap_mask,
            overlap,
        )  # fmt: skip
        self.padding = padding if isinstance(padding, str) else form.before
        self._make_edges(edge_bias)
        self.max_input = max_input

    @property
    def weight_shape(self) -> tuple[int, int]:
        return self.out_channels, self.in_channels

    @property
    def max_input(self) -> tuple[int, ...] | None:
        """The extents of the largest input, up to which one kernel serves all; None: each size has a kernel of its own. May be set."""
        return self._form.most or None

    @max_input.setter
    def max_input(self, extents: int | tuple[int, ...] | None) -> None:
        most = () if extents is None else numbers("max_input", extents, self.dimensions, 1)
        if most and self.edge_extents is not None:
            raise ValueError("max_input and an edge bias, which is for images of one size; one of the two would work")
        if most:
            self._form.output(most)  # refuses those that have none
        self._form = self._form._replace(most=most)

    def _make_edges(self, extents: Any) -> None:
        self.edge_extents = None if extents is None else numbers("edge_bias", extents, self.dimensions, 1)
        if extents is not None and self._pairs is not None:
            raise ValueError(
                "an edge bias and a tap_mask for each block, by whose blocks its situations would change; a mask for all blocks would work"
            )
        if extents is not None:
            check_type(self.weight_values.dtype)
        for name in ("edge_gain", "edge_bias"):
            edges = None
            if self.edge_extents is not None:
                shape = situations_of(self._form, self.edge_extents, self._taps).count, self.out_channels
                edges = torch.nn.Parameter(self.weight_values.detach().new_empty(shape))
            self.register_parameter(name, edges)
        self._reset_edges()

    @torch.no_grad()
    def _reset_edges(self) -> None:
        if self.edge_extents is not None and not self.edge_gain.is_meta:
            self.edge_gain.fill_(1)
            self.edge_bias.zero_()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if hasattr(self, "edge_extents"):  # not while the layer is made
            self._reset_edges()

    def to_dense(self) -> torch.nn.Module:
        if self.edge_extents is not None:
            raise ValueError(f"a {type(self).__name__} with an edge bias, which dense layers do not have; one without would work")
        return super().to_dense()

    def forward(self, x: Tensor) -> Tensor:
        self._check_images(x)
        extents = tuple(x.shape[-self.dimensions :])
        if self.edge_extents is not None and extents != self.edge_extents:
            raise ValueError(
                f"images of {by(extents)}; the edge bias of this layer is for images of {by(self.edge_extents)}"
            )
        if self.max_input is not None and any(size > most for size, most in zip(extents, self.max_input)):
            raise ValueError(f"images of {by(extents)}; max_input of this layer is {by(self.max_input)}")
        return self._convolve(x)

    def extra_repr(self) -> str:
        text = super().extra_repr()
        if self.max_input is not None:
            text += f", max_input={self.max_input}"
        return text if self.edge_extents is None else text.removesuffix(", bias=False") + f", edge_bias={self.edge_extents}"

    def _of_images(self, images: Tensor, weight: Tensor, crow: Tensor, col: Tensor, bias: Tensor | None) -> Tensor:
        asked = self._ask_to_overlap()
        if self.edge_extents is not None:
            return call_with_edges(
                images, weight, self.edge_gain, self.edge_bias, crow, col, self.out_channels, self._form.as_list(), self._taps, overlap=asked
            )
        if not self._form.is_pointwise or self._taps:
            return call(images, weight, bias, crow, col, self.out_channels, self._form.as_list(), self._taps, overlap=asked)
        rows = images.flatten(0, -2)
        y = linear.call(
            rows, weight.flatten(0, 1), bias, crow, col, self.in_channels, self.out_channels, "none", overlap=asked
        )
        return y.reshape(*images.shape[:-1], self.out_channels)

    def _of_standard_operators(self, x: Tensor) -> Tensor:
        y = self.dense_function(x, self.dense_weight(), self.bias, self.stride, self.padding, self.dilation, self.groups)
        if self.edge_extents is None:
            return y
        situations = torch.from_numpy(situations_of(self._form, self.edge_extents, self._taps).of_position).long().to(y.device)
        gain, bias = (one[situations].movedim(-1, 0) for one in (self.edge_gain, self.edge_bias))
        return y * gain + bias


_ABOUT = """nn.Conv{d}d whose weight has only the blocks of channels that its layout names. Each block has all taps of the
    kernel, or those of a mask.

    Takes [n, in_channels, {extents}] or [in_channels, {extents}], contiguous or channels-last, and gives a tensor of the same
    memory format. An input that is channels-last, or on the cpu contiguous, is read in place, and others are copied. Kernels
    are compiled when they are first needed, for each size of the input unless there is a `max_input`, and serve all batches; on
    the cpu those of the gradient of the weight, except in float64, all up to a power of two. Where kernel_size and stride are 1
    and nothing is padded, which is a linear layer of each position, one kernel serves all sizes of the input. On CUDA tensors
    the extents of a kernel are 64 together at most, with 1 for each dimension that there is not.

    in_channels, out_channels, groups  channels need not be multiples of the block: the last blocks are then partial. The channels
             of each of several groups must be; a layout keeps the blocks within groups
    kernel_size, stride, padding, dilation, bias, device, dtype  as in nn.Conv{d}d; types are float32, bfloat16 and float16, and
             on the cpu float64
    padding_mode  "zeros" alone
    layout   sparsekiln.Layout, or what makes one: [rows, cols] of blocks, rows of output channels
    density  where there is no layout: the fraction of blocks that are present, drawn at random, as many in each row
    block    side of a block: 8, 16, 32, 64 or 128; or (out, in)
    max_blocks  room for layouts of up to so many blocks, as in BlockSparseLinear
    tap_mask  bool, the taps that blocks have: [*kernel_size] of all blocks, or, with a layout, [blocks, *kernel_size] of each;
             others cost nothing. relayout keeps it; where each block has its own, it takes blocks away alone
    max_input   extents of the largest images of the input: one kernel serves all sizes up to it, instead of one for each. Its
             workspace is that of the largest, and on the cpu its time that of the largest width. May be set later, too
    overlap  as in BlockSparseLinear
    edge_bias   the extents of the images of the input, which are then fixed. Outputs have a gain and a bias for each edge
             situation, y · edge_gain + edge_bias, both [situations, out_channels], instead of `bias`: see
             sparsekiln.edge_situations. Gains begin as 1, biases as 0

    Parameters: `weight_values` [blocks, taps, block_out, block_in], blocks in row-major order over the layout, taps in
    row-major order of the kernel, and `bias` [out_channels]. Buffers: `crow_indices` and `col_indices`, as in a BSR tensor of
    PyTorch. With a mask, `weight_values` has the taps that any block has, `tap_mask` [*kernel_size] says which, and
    `block_tap_mask` [blocks, taps] which of them each block has, where blocks differ: then each call copies what is present.
    What `weight_values` holds beyond the last channel has no effect. load_state_dict adopts the layout that was saved; relayout
    changes it.
    """


class BlockSparseConv1d(_BlockSparseConv):
    __doc__ = _ABOUT.format(d=1, extents=EXTENTS[1])
    dimensions, dense_class, dense_function = 1, torch.nn.Conv1d, staticmethod(F.conv1d)


class BlockSparseConv2d(_BlockSparseConv):
    __doc__ = _ABOUT.format(d=2, extents=EXTENTS[2])
    dimensions, dense_class, dense_function = 2, torch.nn.Conv2d, staticmethod(F.conv2d)


class BlockSparseConv3d(_BlockSparseConv):
    __doc__ = _ABOUT.format(d=3, extents=EXTENTS[3])
    dimensions, dense_class, dense_function = 3, torch.nn.Conv3d, staticmethod(F.conv3d)
