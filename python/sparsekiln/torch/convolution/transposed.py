"""BlockSparseConvTranspose1d, 2d and 3d: nn.ConvTransposeNd whose channels are connected by the blocks that a layout names.

A transposed convolution is the gradient by the input of the convolution with the same weight whose input has the extents of
its output. The operator convolution_transposed adds the bias too; the gradient of x is convolution, and that of the weight is
convolution_grad_weight with x and dy exchanged.
"""

from collections.abc import Sequence
from typing import Any

import torch

from sparsekiln._arguments import shown

from ..linear import operators as linear
from .geometry import Numbers, by, numbers, parse_geometry
from .layer import EXTENTS, ConvolutionLayer
from .operators import call_transposed

Tensor = torch.Tensor
F = torch.nn.functional


def _are_sizes(given: Any) -> bool:
    return isinstance(given, Sequence) and all(hasattr(one, "__index__") for one in given)


class _BlockSparseConvTranspose(ConvolutionLayer):
    """What the classes of 1, 2 and 3 dimensions share."""

    OPTIONS = (
        "in_channels", "out_channels", "kernel_size", "stride", "padding", "output_padding", "dilation", "groups", "padding_mode",
    )  # fmt: skip
    OUTPUTS = 1
    SIDES = ("input", "output")

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int | tuple[int, ...], stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0, output_padding: int | tuple[int, ...] = 0, groups: int = 1, bias: bool = True,
        dilation: int | tuple[int, ...] = 1, padding_mode: str = "zeros", device: Any = None, dtype: torch.dtype | None = None, *,
        layout: Any = None, density: float = 0.1, block: int | tuple[int, int] = 32, max_blocks: int | None = None,
        tap_mask: Any = None, overlap: bool = False,
    ):  # fmt: skip
        if isinstance(padding, str):
            raise ValueError(f"a padding of {padding!r}; transposed convolutions take numbers")
        form = parse_geometry(self.dimensions, kernel_size, stride, padding, dilation)
        more = numbers("output_padding", output_padding, self.dimensions, 0)
        if any(one >= max(steps) for one, *steps in zip(more, form.stride, form.dilation)):
            raise ValueError(
                f"an output_padding of {by(more)} with a stride of {by(form.stride)} and a dilation of {by(form.dilation)}; numbers "
                "that are smaller than one of the two would work"
            )
        super().__init__(
            in_channels, out_channels, form, groups, bias, padding_mode, device, dtype, layout, density, block, max_blocks, tap_mask,
            overlap,
        )  # fmt: skip
        self.padding, self.output_padding = form.before, more

    @property
    def weight_shape(self) -> tuple[int, int]:
        return self.in_channels, self.out_channels

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """output_size  the extents of y, with or without its channels and images before them; by default those that
        output_padding gives"""
        self._check_images(x)
        # torch.jit.trace has tensors of these, which operators do not take: it records one size of the images.
        input = tuple(int(size) if isinstance(size, Tensor) else size for size in x.shape[-self.dimensions :])
        return self._convolve(x, input, self._output_padding(input, x.dim(), output_size))

    def _output_padding(self, input: Numbers, rank: int, output_size: Sequence[int] | None) -> Numbers:
        """How much larger y is than the least output of x, which has these extents."""
        least = self._output(input, (0,) * self.dimensions)
        if output_size is None:
            padding = self.output_padding
        else:
            if not torch.compiler.is_compiling() and not _are_sizes(output_size):
                raise TypeError(f"output_size is {shown(output_size)}; a list of {self.dimensions} integers would work")
            if len(output_size) not in (self.dimensions, rank):
                raise ValueError(
                    f"an output_size of {len(output_size)} numbers, {tuple(output_size)}; {self.dimensions} of them, or {rank}, "
                    f"would work for an input of {rank} dimensions"
                )
            wanted = output_size[-self.dimensions :]
            padding = tuple(size - low for size, low in zip(wanted, least))
            if any(not 0 <= more < stride for more, stride in zip(padding, self.stride)):
                high = [low + stride - 1 for low, stride in zip(least, self.stride)]
                raise ValueError(
                    f"an output_size of {by(wanted)} for an input of {by(input)}; sizes from {by(least)} to {by(high)} would work"
                )
        output = [low + more for low, more in zip(least, padding)]
        if any(size < 1 for size in (*input, *output)):
            raise ValueError(f"an input of {by(input)} gives an output of {by(output)}; a larger input, or less padding, would work")
        return padding

    def _output(self, input: Sequence[int], padding: Numbers) -> Numbers:
        """The extents of y for those of x."""
        return tuple(least + more for least, more in zip(self._form.least_input(input), padding))

    def _of_images(
        self, images: Tensor, weight: Tensor, crow: Tensor, col: Tensor, bias: Tensor | None, input: Numbers, padding: Numbers
    ) -> Tensor:  # fmt: skip
        if self._form.is_pointwise and not any(padding) and not self._taps:
            rows = images.flatten(0, -2)
            features = self.out_channels, self.in_channels
            y = linear.call_transposed(rows, weight.flatten(0, 1), crow, col, *features, self._ask_to_overlap())
            y = y.reshape(*images.shape[:-1], self.out_channels)
            return y if bias is None else y + bias
        output = list(self._output(input, padding))
        windows = [more // stride for more, stride in zip(padding, self.stride)]  # which x has not: dilation > stride
        if any(windows):  # the gradient is that of a convolution with these too
            images = F.pad(images, (0, 0, *(size for one in reversed(windows) for size in (0, one))))
        form, asked = self._form.as_list(), self._ask_to_overlap()
        return call_transposed(images, weight, bias, crow, col, self.out_channels, output, form, self._taps, overlap=asked)

    def _of_standard_operators(self, x: Tensor, input: Numbers, padding: Numbers) -> Tensor:
        return self.dense_function(
            x, self.dense_weight(), self.bias, self.stride, self.padding, padding, self.groups, self.dilation
        )


_ABOUT = """nn.ConvTranspose{d}d whose weight has only the blocks of channels that its layout names. Each block has all taps of the kernel, or those of a mask.

    Takes [n, in_channels, {extents}] or [in_channels, {extents}], and gives a tensor of the same memory format. For memory
    formats, kernels and devices see BlockSparseConv{d}d. Outputs that no input reaches have the bias alone.

    The weight is PyTorch's, [in_channels, out_channels / groups, …]: rows of the layout and of blocks are input channels, columns
    output channels.

    in_channels, out_channels, groups  channels need not be multiples of the block: the last blocks are then partial. The channels
             of each of several groups must be; a layout keeps the blocks within groups
    kernel_size, stride, padding, output_padding, bias, dilation, device, dtype  as in nn.ConvTranspose{d}d; types are float32,
             bfloat16 and float16, and on the cpu float64
    padding_mode  "zeros" alone
    layout   sparsekiln.Layout, or what makes one: [rows, cols] of blocks, rows of input channels
    density  where there is no layout: the fraction of blocks that are present, drawn at random, as many in each row
    block    side of a block: 8, 16, 32, 64 or 128; or (in, out)
    max_blocks  room for layouts of up to so many blocks, as in BlockSparseLinear
    tap_mask  bool, the taps that blocks have: [*kernel_size] of all blocks, or, with a layout, [blocks, *kernel_size] of each; others
             cost nothing. relayout keeps it; where each block has its own, it takes blocks away alone
    overlap  as in BlockSparseLinear

    Parameters: `weight_values` [blocks, taps, block_in, block_out], blocks in row-major order over the layout, taps in
    row-major order of the kernel, and `bias` [out_channels]. Buffers: `crow_indices` and `col_indices`, as in a BSR tensor of PyTorch.
    With a mask, `weight_values` has the taps that any block has, `tap_mask` [*kernel_size] says which, and `block_tap_mask`
    [blocks, taps] which of them each block has, where blocks differ: then each call copies what is present.
    What `weight_values` holds beyond the last channel has no effect. load_state_dict adopts the layout that was saved; relayout
    changes it.
    """


class BlockSparseConvTranspose1d(_BlockSparseConvTranspose):
    __doc__ = _ABOUT.format(d=1, extents=EXTENTS[1])
    dimensions, dense_class, dense_function = 1, torch.nn.ConvTranspose1d, staticmethod(F.conv_transpose1d)


class BlockSparseConvTranspose2d(_BlockSparseConvTranspose):
    __doc__ = _ABOUT.format(d=2, extents=EXTENTS[2])
    dimensions, dense_class, dense_function = 2, torch.nn.ConvTranspose2d, staticmethod(F.conv_transpose2d)


class BlockSparseConvTranspose3d(_BlockSparseConvTranspose):
    __doc__ = _ABOUT.format(d=3, extents=EXTENTS[3])
    dimensions, dense_class, dense_function = 3, torch.nn.ConvTranspose3d, staticmethod(F.conv_transpose3d)
