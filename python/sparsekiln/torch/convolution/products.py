"""What a convolution computes, by the kernels of its layout: on tensors with memory, without a gradient.

Functions here are the bodies of the operators, and their annotations the schemas; see operators.py. Images have the shape
[n, …, channels]. In memory they are channels-last, or on the cpu channels-first, as PyTorch's images usually are: then kernels
read them in place, too, and results are of the same format. Elsewhere channels-first images are copied.
"""

import functools
import math
import re
from collections.abc import Sequence
from typing import List, Optional  # noqa: UP035, the schema of an operator is made of them

import torch

from sparsekiln._arguments import shown

from ..kernels import Use, Weight, find
from ..launch_overlap import Asked, start
from ..launches import run, used, with_room
from ..operands import blocks_for, check_alike, check_bias, check_blocks, check_indices, check_one_device, check_sides, dense, readable
from .geometry import Geometry, Numbers, by
from .tap_masks import differs_by_block

Tensor = torch.Tensor

#: Bytes that a kernel of grad_weight on the cpu may have as its workspace; of more images, the gradients of several launches are
#: summed. On a GPU its workspace does not depend on the images.
MOST_WORKSPACE = 1 << 28


def _rows(images: Tensor) -> Tensor:
    """[n, …, channels] -> [positions of all images, channels]. Copies where they are not at one distance from the next."""
    return images.reshape(math.prod(images.shape[:-1]), images.shape[-1])


def is_first(images: Tensor, device: torch.device) -> bool:
    """Whether kernels for a device read these images channels-first: contiguous ones, if they are not channels-last as well."""
    in_place = device.type == "cpu" and images.dtype != torch.float64
    return in_place and not images.is_contiguous() and images.movedim(-1, 1).is_contiguous()


def empty_images(like: Tensor, shape: Sequence[int], first: bool) -> Tensor:
    """Images of a shape [n, …, channels], in memory channels-first or channels-last."""
    n, *extents, channels = shape
    return like.new_empty((n, channels, *extents)).movedim(1, -1) if first else like.new_empty((n, *extents, channels))


def _given(images: Tensor, use: Use) -> Tensor:
    """Images as a kernel of this use takes them: copied if they are not so in memory."""
    if use.order == "feature-major":
        return dense(images.movedim(-1, 1))
    return readable(_rows(images), use.alignment).unflatten(0, images.shape[:-1])


def _ordered(use: Use, *images: Tensor) -> Use:
    """The use of these images, in their format in memory if they all have the same."""
    return use._replace(order="feature-major") if all(is_first(one, use.device) for one in images) else use


def _taken(images: Tensor, use: Use) -> Tensor:
    """Images made by empty_images, as a kernel of this use takes them."""
    return images.movedim(-1, 1) if use.order == "feature-major" else images


def _use(
    operation: str, block: tuple[int, int], x: Tensor, channels: tuple[int, int], form: Geometry, taps: str, input: Sequence[int],
    output: Sequence[int], output_padding: Numbers | None = None, **more,
) -> Use:  # fmt: skip
    """`channels` of the input and of the output."""
    largest = (form.most, form.output(form.most)) if form.most else (input, output)
    return Use(
        operation, block, *channels, x.dtype, x.device, convolution=form.text(tuple(input), taps, output_padding),
        transposed=output_padding is not None, positions=max(map(math.prod, largest)), masks_blocks=differs_by_block(taps), **more,
    )  # fmt: skip


def values_shape(blocks: int, form: Geometry, taps: str) -> tuple[int, ...]:
    """What the values of so many blocks have before the two sides of a block; for `taps` see TapMask.text."""
    if differs_by_block(taps):
        return (taps.count("1"),)
    return blocks, taps.count("1") if taps else form.taps


@functools.lru_cache(maxsize=64)  # of long texts
def _check_taps(taps: str, count: int) -> None:
    if taps and not re.fullmatch(f"[01]{{{count}}}|([01]{{{count}}},)+", taps):
        raise ValueError(
            f"taps are {shown(taps)}; {count} digits of 0 and 1 for a kernel of as many taps would work, or as many and a comma for each block"
        )


def _check_values(values: Tensor, crow: Tensor, col: Tensor, channels: tuple[int, int], form: Geometry, taps: str) -> None:
    _check_taps(taps, form.taps)
    places = values_shape(0, form, taps)
    if values.dim() != len(places) + 2 or values.shape[len(places) - 1] != places[-1]:
        what = f"a kernel of {by(form.kernel)}" + (" with this mask of taps" if taps else "")
        shape = f"{'' if differs_by_block(taps) else 'blocks, '}{places[-1]}, block_out, block_in"
        raise ValueError(f"the weight has the shape {tuple(values.shape)}; that of {what} is [{shape}]")
    blocks = col.shape[0] if differs_by_block(taps) else values.shape[0]
    check_blocks(values, crow, col, blocks, *channels)


def _used(values: Tensor, weight: Weight, masks_blocks: bool) -> Tensor:
    return dense(values if masks_blocks else used(values, weight))


def _check_images(name: str, images: Tensor, channels: int, form: Geometry, like: Tensor) -> None:
    check_alike(name, images, like)
    if images.dim() != len(form.kernel) + 2 or images.shape[-1] != channels:
        extents = ", ".join(("depth", "height", "width")[3 - len(form.kernel) :])
        raise ValueError(f"{name} has the shape {tuple(images.shape)}; this operator takes [n, {extents}, {channels}]")


def _check_dy(dy: Tensor, n: int, input: Sequence[int], form: Geometry) -> None:
    if len(input) != len(form.kernel):
        raise ValueError(f"an input of {by(input)} for a kernel of {by(form.kernel)}; it has as many dimensions")
    if tuple(dy.shape[:-1]) != (n, *form.output(input)):
        raise ValueError(
            f"the gradient of the output has the shape {tuple(dy.shape)}; for {n} images of {by(input)} it is "
            f"{[n, *form.output(input), dy.shape[-1]]}"
        )


# ---- y ----


def check_convolution(x, values, bias, crow, col, out_channels, geometry, taps, overlap=False) -> Geometry:
    form = Geometry.from_list(geometry)
    _check_values(values, crow, col, (x.shape[-1], out_channels), form, taps)
    _check_images("the input", x, x.shape[-1], form, values)
    check_bias(bias, out_channels, values)
    return form


def convolution(
    x: Tensor, values: Tensor, bias: Optional[Tensor], crow: Tensor, col: Tensor, out_channels: int, geometry: List[int], taps: str,
    overlap: Optional[bool] = False,
) -> Tensor:  # fmt: skip
    return convolve(x, values, bias, crow, col, out_channels, geometry, taps, overlap, {})


def convolve(x, values, bias, crow, col, out_channels, geometry, taps, overlap, edges: dict[str, Tensor]) -> Tensor:
    """`edges`: edge_gain and edge_bias, by these names, instead of a bias, of any type; the kernel takes them in float32."""
    form = check_convolution(x, values, bias, crow, col, out_channels, geometry, taps)
    n, *input, in_channels = x.shape
    output = form.output(input)
    use = _use(
        "forward", tuple(values.shape[-2:]), x, (in_channels, out_channels), form, taps, input, output,
        epilogue="edge_bias" if edges else _epilogue(bias),
    )  # fmt: skip
    use = use if edges else _ordered(use, x)
    weight = find(crow, col, blocks_for(in_channels, values.shape[-1]))
    y = empty_images(x, (n, *output, out_channels), use.order == "feature-major")
    return _forward(use, weight, x, values, y, bias, overlap, **edges)


def _epilogue(bias: Tensor | None) -> str:
    return "none" if bias is None else "bias"


def _forward(
    use: Use, weight: Weight, x: Tensor, values: Tensor, y: Tensor, bias: Tensor | None, overlap: Asked, **edges: Tensor
) -> Tensor:  # fmt: skip
    n, given = x.shape[0], (values, bias, *edges.values())
    values, bias = _used(values, weight, use.masks_blocks), None if bias is None else dense(bias)
    edges = {name: dense(one.to(torch.float32)) for name, one in edges.items()}
    begin = start(overlap, given, (values, bias, *edges.values()))
    kernel = weight.kernels.kernel(use._replace(overlap=True) if begin.early else use, n)
    run(kernel, n, _given(x, use), values, _taken(y, use), bias=bias, **edges)
    begin.launched(weight.kernels, use, n)
    return y


# ---- y of the transposed convolution ----


def check_transposed(x, values, bias, crow, col, out_channels, output, geometry, taps, overlap=False) -> Geometry:
    """`output`: the extents of y, of which those of x follow."""
    form = Geometry.from_list(geometry)
    _check_values(values, crow, col, (out_channels, x.shape[-1]), form, taps)
    _check_images("the input", x, x.shape[-1], form, values)
    check_bias(bias, out_channels, values)
    if len(output) != len(form.kernel) or tuple(x.shape[1:-1]) != form.output(output):
        raise ValueError(
            f"an input of {by(x.shape[1:-1])} for an output of {by(output)}; one of {by(form.output(output))} would work"
        )
    return form


def transposed(
    x: Tensor, values: Tensor, bias: Optional[Tensor], crow: Tensor, col: Tensor, out_channels: int, output: List[int],
    geometry: List[int], taps: str, overlap: Optional[bool] = False,
) -> Tensor:  # fmt: skip
    form = check_transposed(x, values, bias, crow, col, out_channels, output, geometry, taps)
    n, *input, in_channels = x.shape
    padding = tuple(size - least for size, least in zip(output, form.least_input(input)))
    use = _use(
        "forward", tuple(values.shape[-2:]), x, (in_channels, out_channels), form, taps, input, output, padding,
        epilogue=_epilogue(bias),
    )  # fmt: skip
    use = _ordered(use, x)
    weight = find(crow, col, blocks_for(out_channels, values.shape[-1]))
    y = empty_images(x, (n, *output, out_channels), use.order == "feature-major")
    return _forward(use, weight, x, values, y, bias, overlap)


# ---- dx ----


def check_grad_input(dy, values, crow, col, in_channels, input, geometry, taps) -> Geometry:
    form = Geometry.from_list(geometry)
    _check_values(values, crow, col, (in_channels, dy.shape[-1]), form, taps)
    _check_images("the gradient of the output", dy, dy.shape[-1], form, values)
    _check_dy(dy, dy.shape[0], input, form)
    return form


def grad_input(
    dy: Tensor, values: Tensor, crow: Tensor, col: Tensor, in_channels: int, input: List[int], geometry: List[int], taps: str
) -> Tensor:
    form = check_grad_input(dy, values, crow, col, in_channels, input, geometry, taps)
    n, *output, out_channels = dy.shape
    use = _ordered(_use("grad_input", tuple(values.shape[-2:]), dy, (in_channels, out_channels), form, taps, input, output), dy)
    weight = find(crow, col, blocks_for(in_channels, values.shape[-1]))
    kernel = weight.kernels.kernel(use, n)
    dx = empty_images(dy, (n, *input, in_channels), use.order == "feature-major")
    run(kernel, n, _given(dy, use), _used(values, weight, use.masks_blocks), _taken(dx, use))
    return dx


# ---- dW ----


def check_grad_weight(x, dy, crow, col, block_out, block_in, geometry, bias, taps) -> Geometry:
    form = Geometry.from_list(geometry)
    check_sides(block_out, block_in)
    _check_taps(taps, form.taps)
    check_indices(crow, col, block_out, dy.shape[-1], col.shape[0])
    check_one_device(x=x, crow_indices=crow, col_indices=col)
    _check_images("the input", x, x.shape[-1], form, x)
    _check_images("the gradient of the output", dy, dy.shape[-1], form, x)
    _check_dy(dy, x.shape[0], x.shape[1:-1], form)
    return form


def grad_weight(
    x: Tensor, dy: Tensor, crow: Tensor, col: Tensor, block_out: int, block_in: int, geometry: List[int], bias: bool, taps: str
) -> tuple[Tensor, Tensor]:
    """The second result, the gradient of the bias, is empty if `bias` is false."""
    form = check_grad_weight(x, dy, crow, col, block_out, block_in, geometry, bias, taps)
    n, *input, in_channels = x.shape
    channels, output = (in_channels, dy.shape[-1]), dy.shape[1:-1]
    use = _use("grad_weight", (block_out, block_in), x, channels, form, taps, input, output, bias_gradient=bias)
    use = _ordered(use, x, dy)
    weight = find(crow, col, blocks_for(in_channels, block_in))

    def launch(x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor | None]:
        dw = x.new_empty((*values_shape(weight.blocks, form, taps), block_out, block_in))
        kernel = weight.kernels.kernel(use, x.shape[0])
        result = run(kernel, x.shape[0], _given(x, use), _given(dy, use), dw)
        return dw, result[1] if bias else None

    most = _most_images(in_channels, dy.shape[-1], form, form.most or input) if use.keeps_images else max(n, 1)
    dw, dbias = launch(x[:most], dy[:most])
    if n > most:
        dw = dw.to(torch.promote_types(dw.dtype, torch.float32))
        for start in range(most, n, most):
            more, more_bias = launch(x[start : start + most], dy[start : start + most])
            dw += more
            dbias = None if dbias is None else dbias + more_bias
        dw = dw.to(x.dtype)
    dw = dw if differs_by_block(taps) else with_room(dw, col.shape[0])
    return dw, x.new_empty(0) if dbias is None else dbias.to(x.dtype)


def _most_images(in_channels: int, out_channels: int, form: Geometry, input: Sequence[int]) -> int:
    """How many images a launch of grad_weight on the cpu takes: a power of two. Its workspace has float32 copies of the padded input
    and of dy."""
    padded = math.prod(size + before + after for size, before, after in zip(input, form.before, form.after))
    image = 4 * (padded * in_channels + math.prod(form.output(input)) * out_channels)
    return 1 << (max(1, MOST_WORKSPACE // image).bit_length() - 1)
