"""What convolutions and transposed ones share, in 1, 2 and 3 dimensions."""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch

import sparsekiln
from sparsekiln._arguments import flag, integer, shown

from .. import init
from ..blocks import parse_block
from ..operands import autocast, check_tensor
from ..weight_tools import computed_weight, refuse_tools_of_weight
from .blocks import blocks_of_dense, check_channels, dense_of_blocks, random_layout, strongest_layout, within_groups
from .geometry import Geometry
from .masked_layer import MaskedLayer
from .tap_masks import parse_mask

Tensor = torch.Tensor
_Layer = TypeVar("_Layer", bound="ConvolutionLayer")
#: What the dimensions are called in documents and messages.
EXTENTS = {1: "length", 2: "height, width", 3: "depth, height, width"}


def _is_dense(images: Tensor) -> bool:
    """Whether strides are those of a contiguous tensor, also of axes of extent 1, where is_contiguous() takes any."""
    stride = 1
    for size, found in zip(reversed(images.shape), reversed(images.stride())):
        if found != stride:
            return False
        stride *= max(size, 1)
    return True


class ConvolutionLayer(MaskedLayer):
    """A layer whose weight is, as a dense tensor, [rows, columns / groups, *kernel_size]; a block has all taps of the kernel, or those of a mask.

    A class says which dense layer it stands for, and computes y of images whose channels come last (_of_images).
    """

    dimensions: ClassVar[int] = 0
    dense_class: ClassVar[type[torch.nn.Module]]  #: of which this is the layer of some blocks
    dense_function: ClassVar[Callable[..., Tensor]]  #: what that one computes
    #: Arguments of the dense layer, and attributes of both, beside bias, device and dtype.
    OPTIONS: ClassVar[tuple[str, ...]] = ()

    FEATURES = "channels"

    def __init__(
        self, in_channels: int, out_channels: int, geometry: Geometry, groups: int, bias: bool, padding_mode: str, device: Any,
        dtype: torch.dtype | None, layout: Any, density: float, block: int | tuple[int, int], max_blocks: int | None, tap_mask: Any,
        overlap: bool,
    ):  # fmt: skip
        super().__init__()
        self.overlap = overlap
        self.in_channels, self.out_channels = integer("in_channels", in_channels), integer("out_channels", out_channels)
        self.groups = integer("groups", groups)
        self.block = parse_block(block)
        self.max_blocks = None if max_blocks is None else integer("max_blocks", max_blocks, 0)
        if not isinstance(padding_mode, str) or padding_mode != "zeros":
            raise ValueError(
                f"a padding_mode of {shown(padding_mode)}; block-sparse convolutions pad with 'zeros', and torch.nn.functional.pad before "
                "one without padding would work"
            )
        self.padding_mode = padding_mode
        self._form = geometry
        self.kernel_size, self.stride, self.dilation = geometry.kernel, geometry.stride, geometry.dilation
        check_channels(self.weight_shape, self.groups, self.block, self.SIDES)
        self._make_masks(tap_mask, layout)
        if layout is None:
            layout = random_layout(self.weight_shape, self.groups, density, self.block)
        self._make_weight(layout, self.out_channels if bias is not None and flag("bias", bias) else None, device, dtype)

    # ---- where weights come from ----

    @classmethod
    def from_conv(
        cls: type[_Layer], conv: torch.nn.Module, density: float = 0.1, block: int | tuple[int, int] = 32, layout: Any = None,
        max_blocks: int | None = None, tap_mask: Any = None, overlap: bool = False,
    ) -> _Layer:  # fmt: skip
        """The blocks of largest Frobenius norm, over all taps, of a dense layer, `density` × all of them; or those of `layout`.

        tap_mask  the taps that stay, as the layer takes it; what the others have is dropped, and counts in no norm
        """
        if not isinstance(conv, cls.dense_class):
            raise TypeError(f"{cls.__name__}.from_conv was given a {type(conv).__name__}; it takes a {cls.dense_class.__name__}")
        weight, sides = conv.weight.detach(), parse_block(block)
        check_channels((weight.shape[0], weight.shape[1] * conv.groups), conv.groups, sides, cls.SIDES)
        if layout is None:
            mask = parse_mask(tap_mask, tuple(conv.kernel_size), None)
            kept = weight if mask is None else weight * torch.from_numpy(mask.present.reshape(mask.kernel)).to(weight)
            layout = strongest_layout(kept, conv.groups, density, sides)
        options = {name: getattr(conv, name) for name in cls.OPTIONS}
        layer = cls(
            **options, bias=conv.bias is not None, device=weight.device, dtype=weight.dtype, layout=layout, block=sides,
            max_blocks=max_blocks, tap_mask=tap_mask, overlap=overlap,
        )  # fmt: skip
        return layer._adopt(conv)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Uniform in ±1/√fan_in like the dense layer, with the fan-in of each row of blocks: see sparsekiln.torch.init."""
        self._write_indices()
        if not self.weight_values.is_meta:
            init.reset(self)

    # ---- the weight ----

    @property
    def block_shape(self) -> tuple[int, ...]:
        return (self.taps, *self.block)

    @property
    def dense_shape(self) -> tuple[int, ...]:
        rows, columns = self.weight_shape
        return (rows, columns // self.groups, *self.kernel_size)

    def _fitting(self, layout: Any) -> "sparsekiln.Layout":
        return within_groups(super()._fitting(layout), self.groups)

    def blocks_of(self, dense: Tensor) -> Tensor:
        """[blocks, taps, *block] of dense [rows, columns / groups, *kernel_size]; zeros where a block lacks a tap."""
        self._check_dense(dense)
        return self._of_mask(blocks_of_dense(dense, self.layout, self.groups, self.block))

    def dense_weight(self) -> Tensor:
        """The weight as the dense layer has it, [rows, columns / groups, *kernel_size]; differentiable."""
        self._check_for_use()
        blocks = self._present_blocks()
        return dense_of_blocks(blocks._replace(values=self._of_kernel(blocks.values)), self.groups, self.dense_shape)

    @property
    def weight(self) -> Tensor:
        """dense_weight(), for code that reads that of the dense layer: see ComputedWeight."""
        refuse_tools_of_weight(self)
        return computed_weight(self, self.dense_weight)

    @torch.no_grad()
    def to_dense(self) -> torch.nn.Module:
        """A dense layer with copies of the same weights, and zeros where there are no blocks, or no taps."""
        values, options = self.weight_values, {name: getattr(self, name) for name in self.OPTIONS}
        dense = self.dense_class(**options, bias=self.bias is not None, device=values.device, dtype=values.dtype)
        dense.weight.copy_(self.dense_weight())
        dense.weight.requires_grad_(values.requires_grad)
        if self.bias is not None:
            dense.bias.copy_(self.bias)
            dense.bias.requires_grad_(self.bias.requires_grad)
        return dense.train(self.training)

    def _apply(self, fn, recurse=True):
        def keep_format(tensor: Tensor) -> Tensor:  # .to(memory_format=torch.channels_last) is meant for dense weights
            if tensor.dim() != 4 or type(tensor.data) is not Tensor:  # a DTensor has parts that cannot be flattened
                return fn(tensor)
            return fn(tensor.flatten(0, 1)).unflatten(0, tensor.shape[:2])

        return super()._apply(keep_format, recurse)

    # ---- use ----

    def _convolve(self, x: Tensor, *extents: Any) -> Tensor:
        """y of x, one image or several, by _of_images; `extents` are passed on."""
        one = x.dim() == self.dimensions + 1
        if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
            if torch.onnx.is_in_onnx_export():
                return self._of_standard_operators(x, *extents)
        else:
            self._check_indices(self.crow_indices, self.col_indices)
        (weight, crow, col), bias = self._operands(), self.bias
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            x, weight, bias = autocast(x.device.type, x, weight, bias)
        batch = x[None] if one else x
        channels_last = batch.stride(1) == 1 and batch.stride(-1) >= self.in_channels
        y = self._of_images(batch.movedim(1, -1), weight, crow, col, bias, *extents).movedim(-1, 1)
        if not channels_last and not _is_dense(y):
            y = y.clone(memory_format=torch.contiguous_format)
        return y[0] if one else y

    def _check_images(self, x: Tensor) -> None:
        check_tensor(x)
        ranks = self.dimensions + 1, self.dimensions + 2
        if x.is_nested or x.dim() not in ranks or x.shape[-1 - self.dimensions] != self.in_channels:
            extents = EXTENTS[self.dimensions]
            raise ValueError(
                f"the input has the shape {'of a nested tensor' if x.is_nested else tuple(x.shape)}; this layer takes "
                f"[n, {self.in_channels}, {extents}] or [{self.in_channels}, {extents}]"
            )

    def _of_images(self, images: Tensor, weight: Tensor, crow: Tensor, col: Tensor, bias: Tensor | None, *extents: Any) -> Tensor:
        """y[n, …, out_channels] of x[n, …, in_channels], with the weight and its index tensors as operators take them."""
        raise NotImplementedError

    def _of_standard_operators(self, x: Tensor, *extents: Any) -> Tensor:
        """The same, for formats that have no others: of the dense weight."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        block = self.block[0] if self.block[0] == self.block[1] else self.block
        unsaid = {"padding": ("valid", (0,) * self.dimensions), "output_padding": ((0,) * self.dimensions,)}
        unsaid |= {"dilation": ((1,) * self.dimensions,), "groups": (1,), "padding_mode": ("zeros",)}
        text = f"{self.in_channels}, {self.out_channels}"
        for name in self.OPTIONS[2:]:
            value = getattr(self, name)
            text += "" if value in unsaid.get(name, ()) else f", {name}={value!r}"
        text += f", block={block}, blocks={self.layout.blocks}, density={self.layout.density:.4g}"
        text += "" if self._mask is None else f", taps={self._mask}"
        text += "" if self.max_blocks is None else f", max_blocks={self.max_blocks}"
        text += ", overlap=True" if self.overlap else ""
        return text if self.bias is not None else f"{text}, bias=False"
