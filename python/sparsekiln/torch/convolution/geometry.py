"""The geometry of a convolution: read from the arguments of nn.ConvNd, and in the forms of operators and of kernels."""

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from sparsekiln._arguments import shown

Numbers = tuple[int, ...]


class Geometry(NamedTuple):
    """One number for each of the 1, 2 or 3 dimensions. Operators take all of them as one list, in this order; the last ones may
    be missing."""

    kernel: Numbers
    stride: Numbers
    dilation: Numbers
    before: Numbers  #: padding at the low end of each dimension
    after: Numbers
    most: Numbers = ()  #: the extents of x up to which one kernel serves all; none: each has a kernel of its own

    @staticmethod
    def from_list(numbers: Sequence[int]) -> "Geometry":
        """The inverse of as_list(). ValueError for a number of entries that is neither five nor six for each dimension, and for entries that
        no convolution has."""
        dimensions = next((one for one in (1, 2, 3) if len(numbers) in (5 * one, 6 * one)), None)
        if dimensions is None:
            raise ValueError(f"a geometry of {len(numbers)} numbers; it is five or six for each of 1, 2 or 3 dimensions")
        form = Geometry(*(tuple(numbers[start : start + dimensions]) for start in range(0, len(numbers), dimensions)))
        for name, least in (("kernel", 1), ("stride", 1), ("dilation", 1), ("before", 0), ("after", 0)):
            if any(isinstance(one, int) and one < least for one in getattr(form, name)):
                what = f"padding {name}" if least == 0 else name
                raise ValueError(f"a geometry with a {what} of {by(getattr(form, name))}; numbers of {least} or more would work")
        return form

    def as_list(self) -> list[int]:
        return list(itertools.chain(*self))

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def is_pointwise(self) -> bool:
        """Whether each output position is the product of one input position, its own."""
        return self.taps == 1 and set(self.stride) == {1} and not any(self.before) and not any(self.after)

    def output(self, input: Sequence[int]) -> Numbers:
        """The extents of y for those of x. ValueError if the kernel is larger than the padded input."""
        sizes = []
        for size, kernel, stride, dilation, before, after in zip(input, *self[:5]):
            room = size + before + after - dilation * (kernel - 1) - 1
            if room < 0:
                raise ValueError(
                    f"an input of {by(input)} with a padding of {by(self.before)} before and {by(self.after)} after is "
                    f"smaller than the kernel of {by(self.kernel)} with a dilation of {by(self.dilation)}; a larger input or "
                    "padding would work"
                )
            sizes.append(room // stride + 1)
        return tuple(sizes)

    def least_input(self, output: Sequence[int]) -> Numbers:
        """The extents of the smallest x that gives this y: those of y of the transposed convolution, without an output padding."""
        return tuple(
            (size - 1) * stride - before - after + dilation * (kernel - 1) + 1
            for size, kernel, stride, dilation, before, after in zip(output, *self[:5])
        )

    def text(self, input: Numbers, taps: str = "", output_padding: Numbers | None = None) -> str:
        """As sparsekiln.compile takes it.

        taps            digits of the mask, "" for all; see TapMask.text
        output_padding  of the transposed convolution, whose x has the extents `input`; None: of the convolution

        ValueError for an input of more than `most`.
        """
        if any(size > most for size, most in zip(input, self.most)):
            raise ValueError(f"an input of {by(input)}, where the convolution is for up to {by(self.most)}")
        return _masked_text(self, input, taps, output_padding) if taps else _text(self, input, output_padding)


@functools.lru_cache(maxsize=4096)
def _text(form: Geometry, input: Numbers, output_padding: Numbers | None) -> str:
    padding = "x".join(f"{before}:{after}" for before, after in zip(form.before, form.after))
    extents = f"up-to:{by(form.most)}" if form.most else by(input)
    return (
        f"kernel={by(form.kernel)} stride={by(form.stride)} dilation={by(form.dilation)} padding={padding} input={extents}"
        + ("" if output_padding is None else f" transposed output-padding={by(output_padding)}")
    )


@functools.lru_cache(maxsize=64)  # of long texts
def _masked_text(form: Geometry, input: Numbers, taps: str, output_padding: Numbers | None) -> str:
    return f"{_text(form, input, output_padding)} taps={taps.replace(',', '')}"


def parse_geometry(dimensions: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> Geometry:
    """From the arguments of nn.ConvNd. ValueError for what is no geometry."""
    kernel = numbers("kernel_size", kernel_size, dimensions, 1)
    strides = numbers("stride", stride, dimensions, 1)
    dilations = numbers("dilation", dilation, dimensions, 1)
    if isinstance(padding, str):
        before, after = _named_padding(padding, kernel, strides, dilations)
    else:
        before = after = numbers("padding", padding, dimensions, 0)
    return Geometry(kernel, strides, dilations, before, after)


def _named_padding(name: str, kernel: Numbers, stride: Numbers, dilation: Numbers) -> tuple[Numbers, Numbers]:
    if name == "valid":
        return (0,) * len(kernel), (0,) * len(kernel)
    if name != "same":
        raise ValueError(f"a padding of {name!r}; there are 'same' and 'valid', and numbers")
    if set(stride) != {1}:
        raise ValueError(f"padding='same' with a stride of {by(stride)}; it goes with a stride of 1, and numbers with any")
    total = [step * (size - 1) for step, size in zip(dilation, kernel)]
    return tuple(one // 2 for one in total), tuple(one - one // 2 for one in total)


def numbers(name: str, given: Any, dimensions: int, least: int) -> Numbers:
    """One number for each dimension, from that or from one for all; ValueError for others."""
    given = given.tolist() if hasattr(given, "tolist") else given  # of NumPy, and of PyTorch
    several = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,) * dimensions
    if len(several) != dimensions or any(not hasattr(one, "__index__") or one < least for one in several):
        tuples = f", or a tuple of {dimensions} of them" if dimensions > 1 else ""
        raise ValueError(f"{name}={shown(given)}; a whole number of {least} or more{tuples} would work")
    return tuple(map(operator.index, several))


def by(numbers: Sequence[int]) -> str:
    """3x3"""
    return "x".join([f"{one}" for one in numbers])  # which torch.compile traces, unlike str() of a symbolic size
