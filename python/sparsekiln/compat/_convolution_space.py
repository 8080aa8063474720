"""The spatial side of a convolution of the interface of 2017: always three dimensions, of which the first may be 1."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

Three = tuple[int, int, int]


class Space(NamedTuple):
    """Position q of the output has, at tap s, position q · stride + s · dilation - before of the input, or padding."""

    kernel: Three
    input: Three
    output: Three
    stride: Three
    dilation: Three
    before: Three

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def after(self) -> Three:
        """The padding at the high end that the output needs; negative where it leaves out positions of the input."""
        return tuple(  # type: ignore[return-value]
            (q - 1) * stride + extent(s, dilation) - x - before
            for s, x, q, stride, dilation, before in zip(*self)
        )

    def check(self) -> Space:
        """ValueError unless it is a convolution with some output that leaves out no window of its input."""
        if min(self.output) < 1:
            raise ValueError(
                f"a kernel of {by(self.kernel)} with dilates {by(self.dilation)} and a padding of {by(self.before)} has no output on "
                f"{by(self.input)}; a larger input or padding would work"
            )
        if any(after <= -stride for after, stride in zip(self.after, self.stride)):
            raise ValueError(
                f"{by(self.input)} on one side and {by(self.output)} on the other of a convolution with strides {by(self.stride)}, a "
                f"kernel of {by(self.kernel)} and a padding of {by(self.before)}: the latter has fewer windows than fit; MPQ would be "
                "left out, or be nearer to that"
            )
        return self

    def text(self, transposed: bool = False) -> str:
        """As sparsekiln.compile takes it, without leading dimensions that are one position. `transposed`: the transposed
        convolution, whose input is the output here."""
        ones = (1, 1, 1, 0, 0)
        first = 0
        while first < 2 and (self.kernel[first], self.input[first], self.output[first], self.before[first], self.after[first]) == ones:
            first += 1
        padding = "x".join(f"{before}:{max(after, 0)}" for before, after in zip(self.before[first:], self.after[first:]))
        text = f"kernel={by(self.kernel[first:])} stride={by(self.stride[first:])} dilation={by(self.dilation[first:])} padding={padding}"
        if not transposed:
            return f"{text} input={by(self.input[first:])}"
        more = by([max(-after, 0) for after in self.after[first:]])
        return f"{text} transposed output-padding={more} input={by(self.output[first:])}"

    def padded_positions(self) -> int:
        return math.prod(x + before + max(after, 0) for x, before, after in zip(self.input, self.before, self.after))

    def edges(self, transposed: bool) -> list[list[int]]:
        """Positions of the output (of the transposed convolution: of its output, the input here), in row-major order, of
        which some taps fall into padding: a list for each set of such taps, ordered by its first position."""
        taps = self._taps_in_input if transposed else self._taps_in_output
        extents = self.input if transposed else self.output
        dimensions = [[taps(dimension, position) for position in range(extents[dimension])] for dimension in range(3)]
        found: dict[tuple[Any, ...], list[int]] = {}
        for number, each in enumerate(product(*dimensions)):
            outside = tuple(_outside(each))
            if outside:
                found.setdefault(outside, []).append(number)
        return list(found.values())

    def _taps_in_output(self, dimension: int, q: int) -> list[bool]:
        """Which taps of a position of y fall into the padding of x."""
        kernel, x, _, stride, dilation, before = (of[dimension] for of in self)
        return [not 0 <= q * stride + tap * dilation - before < x for tap in range(kernel)]

    def _taps_in_input(self, dimension: int, x: int) -> list[bool]:
        """Which taps of a position of x fall outside of y. Those between two strides fall into a hole."""
        kernel, _, output, stride, dilation, before = (of[dimension] for of in self)
        reached = [x + before - tap * dilation for tap in range(kernel)]
        return [one % stride == 0 and not 0 <= one // stride < output for one in reached]


def _outside(each: tuple[list[bool], ...]) -> Iterator[tuple[int, ...]]:
    """The taps that are outside in some dimension."""
    if any(map(any, each)):
        for tap in product(*map(range, map(len, each))):
            if any(dimension[one] for dimension, one in zip(each, tap)):
                yield tap


def of_convolution(TRS: Any, DHW: Any, MPQ: Any, strides: Any, dilates: Any, padding: Any) -> Space:
    """MPQ is None, or the extents of the output."""
    kernel, input, stride, dilation = _extents(TRS, DHW, strides, dilates)
    before = _padding(padding, kernel, dilation)
    if MPQ is None:
        natural = zip(kernel, input, before, stride, dilation)
        output = tuple((x + 2 * pad - extent(s, dilate)) // step + 1 for s, x, pad, step, dilate in natural)
    else:
        output = three("MPQ", MPQ)
    return Space(kernel, input, output, stride, dilation, before).check()  # type: ignore[arg-type]


def of_transposed(TRS: Any, DHW: Any, MPQ: Any, strides: Any, dilates: Any, padding: Any) -> Space:
    """The convolution from MPQ to DHW, of which the transposed one leads from DHW to MPQ."""
    kernel, output, stride, dilation = _extents(TRS, DHW, strides, dilates)
    before = _padding(padding, kernel, dilation)
    if MPQ is None:  # several are possible; the original takes this one, for any dilation
        input = tuple(q * step + s - 2 * pad - (s & 1) for s, q, pad, step in zip(kernel, output, before, stride))
        if min(input) < 1:
            raise ValueError(f"a kernel of {by(kernel)} and a padding of {by(before)} make {by(output)} to nothing; MPQ says to what")
    else:
        input = three("MPQ", MPQ)
    return Space(kernel, input, output, stride, dilation, before).check()  # type: ignore[arg-type]


def of_tensorflow(TRS: Any, DHW: Any, MPQ: Any, strides: Any, dilates: Any, padding: Any) -> Space:
    """A convolution of TensorFlow, which pads as few positions as MPQ needs: of an odd number one more after the input."""
    kernel, input, stride, dilation = _extents(TRS, DHW, strides, dilates)
    output, before = three("MPQ", MPQ), (0, 0, 0)
    if _named(padding) == "SAME":
        before = tuple(  # type: ignore[assignment]
            max((q - 1) * step + extent(s, dilate) - x, 0) // 2
            for s, x, q, step, dilate in zip(kernel, input, output, stride, dilation)
        )
    return Space(kernel, input, output, stride, dilation, before).check()


def extent(taps: int, dilation: int) -> int:
    """How many positions a kernel reaches over."""
    return (taps - 1) * dilation + 1


def by(numbers: Sequence[int]) -> str:
    """3x3"""
    return "x".join(map(str, numbers))


def three(name: str, given: Any, least: int = 1, fill: int = 1) -> Three:
    """One to three whole numbers, with `fill` in front; ValueError for others."""
    try:
        several = [operator.index(one) for one in given]
    except TypeError:
        several = []
    if not 1 <= len(several) <= 3 or min(several) < least:
        raise ValueError(f"{name} is {given!r}; it is one, two or three whole numbers of {least} or more, such as (3, 3)")
    return tuple([fill] * (3 - len(several)) + several)  # type: ignore[return-value]


def _extents(TRS: Any, DHW: Any, strides: Any, dilates: Any) -> tuple[Three, Three, Three, Three]:
    kernel, image = three("TRS", TRS), three("DHW", DHW)
    if len(TRS) != len(DHW):
        raise ValueError(f"TRS has {len(TRS)} dimensions and DHW {len(DHW)}; both are those of an image")
    return kernel, image, three("strides", strides), three("dilates", dilates)


def _named(padding: str) -> str:
    if not isinstance(padding, str) or padding.upper() not in ("SAME", "VALID"):
        raise ValueError(f"padding is {padding!r}; 'SAME' and 'VALID' are those with a name")
    return padding.upper()


def _padding(padding: Any, kernel: Three, dilation: Three) -> Three:
    if not isinstance(padding, str):
        return three("padding", padding, 0, 0)
    if _named(padding) == "VALID":
        return (0, 0, 0)
    return tuple(extent(s, dilate) // 2 for s, dilate in zip(kernel, dilation))  # type: ignore[return-value]
