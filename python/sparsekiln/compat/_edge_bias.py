"""The edge bias of a convolution: a gain and a bias of their own for outputs that are computed from padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsekiln.compat import _convolution_space as space
from sparsekiln.compat._elementwise import Functions, functions_of, wide
from sparsekiln.compat._frameworks import type_name

_CHANNELS_FIRST = ("NCW", "NCHW", "NCDHW")
_CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")


class EdgeBias:
    """y · g + b at the positions of each edge, and y elsewhere.

    edges: positions of an image, in row-major order, a list for each edge.
    shape: of g and b, [channels, edges], or where channels are last [edges, channels].
    edge_of: of each position, the number of its edge from 1 on, or 0 for none.
    """

    def __init__(self, edges: Sequence[list[int]], positions: int, channels: int, channels_first: bool):
        self.edges = list(edges)
        self.shape = (channels, len(self.edges)) if channels_first else (len(self.edges), channels)
        self._axis = 1 if channels_first else 0  # of edges
        self._image = (channels, positions) if channels_first else (positions, channels)
        self.edge_of = np.zeros(positions, np.int64)  # 0: none of them
        for number, edge in enumerate(self.edges):
            self.edge_of[edge] = number + 1

    def check(self, g: Any, b: Any) -> None:
        """ValueError for those of another shape."""
        for name, numbers in (("g", g), ("b", b)):
            if numbers is not None and tuple(numbers.shape) != self.shape:
                raise ValueError(f"{name} is {list(numbers.shape)}; an edge bias of this convolution is {list(self.shape)}")

    def apply(self, y: Any, g: Any, b: Any) -> Any:
        """Has y's framework, shape and type; differentiable. g may be None: nothing is multiplied."""
        self._check(y, g, b)
        if not self.edges:
            return y
        f, compute = functions_of(y, g, b), wide(y, g, b)
        result = f.reshape(f.cast(y, compute), (-1, *self._image))
        if g is not None:
            result = result * self._at_positions(f, f.cast(g, compute), f.ones_like)
        result = result + self._at_positions(f, f.cast(b, compute), f.zeros_like)
        return f.cast(f.reshape(result, f.shape(y)), type_name(y.dtype))

    def gradient(self, dy: np.ndarray, y: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Gradients of apply() with respect to y, g and b: NumPy's."""
        self._check(dy, g, g)
        f, compute = functions_of(dy), wide(dy, y, g)
        dy_, y_ = (one.astype(compute).reshape(-1, *self._image) for one in (dy, y))
        dx = dy_ * self._at_positions(f, g.astype(compute), f.ones_like) if self.edges else dy_
        dg, db = np.empty(self.shape, compute), np.empty(self.shape, compute)
        for number, edge in enumerate(self.edges):
            here = (number, slice(None)) if self._axis == 0 else (slice(None), number)
            of_edge = dy_.take(edge, 1 + self._axis)
            db[here] = of_edge.sum((0, 1 + self._axis))
            dg[here] = (of_edge * y_.take(edge, 1 + self._axis)).sum((0, 1 + self._axis))
        return dx.reshape(dy.shape).astype(dy.dtype), dg.astype(g.dtype), db.astype(g.dtype)

    def _at_positions(self, f: Functions, numbers: Any, elsewhere: Callable[[Any], Any]) -> Any:
        first = numbers[:, :1] if self._axis else numbers[:1]
        return f.take(f.join([elsewhere(first), numbers], self._axis), self.edge_of, self._axis)

    def _check(self, y: Any, g: Any, b: Any) -> None:
        self.check(g, b)
        shape = list(y.shape)
        spatial = shape[2:] if self._axis else shape[1:-1]
        channels = (shape[1] if self._axis else shape[-1]) if len(shape) > 1 else None
        if (channels, int(np.prod(spatial))) != (self._image if self._axis else self._image[::-1]):
            raise ValueError(f"y is {shape}; it has {' and '.join(map(str, self._image))} "
                             f"{'channels and positions' if self._axis else 'positions and channels'} in this order")  # fmt: skip


class ConvEdgeBias:
    """The edge bias of a convolution of TensorFlow, from the shapes of its y, x and w.

    Args:
      y_shape, x_shape: in `data_format`: "NCW", "NCHW" or "NCDHW", or "NWC", "NHWC" or "NDHWC".
      w_shape: [(T, R,) S, C, K], as TensorFlow has it for either.
      strides, dilations: with an entry for each dimension of x, or None for 1.
      padding: "SAME" or "VALID", as TensorFlow pads. (The original leaves the dilation out of it, and so finds other
        edges where a dilation is not 1.)
      deconv: of the transposed convolution, whose shapes are given as those of the convolution: y_shape is that of its input.

    Attributes:
      shape: of g and b: (K, edges), or where channels are last (edges, K). May have no edges.
      edgeBiasDim, edgeBiasMap: how many edges there are, and the positions of each, in row-major order.
    """

    def __init__(
        self,
        y_shape: Any,
        x_shape: Any,
        w_shape: Any,
        strides: Any = None,
        padding: str = "SAME",
        data_format: str = "NHWC",
        dilations: Any = None,
        deconv: bool = False,
    ):
        if data_format not in _CHANNELS_FIRST + _CHANNELS_LAST:
            raise ValueError(f"data_format is {data_format!r}; it is one of {', '.join(_CHANNELS_FIRST + _CHANNELS_LAST)}")
        y_shape, x_shape, w_shape = (tuple(shape) for shape in (y_shape, x_shape, w_shape))
        if not len(y_shape) == len(x_shape) == len(w_shape) == len(data_format):
            raise ValueError(
                f"y is {list(y_shape)}, x {list(x_shape)} and w {list(w_shape)}; with data_format={data_format!r} each has "
                f"{len(data_format)} dimensions"
            )
        channels_first = data_format in _CHANNELS_FIRST
        spatial = slice(2, None) if channels_first else slice(1, -1)
        ones = (1,) * len(y_shape)
        form = space.of_tensorflow(
            w_shape[:-2], x_shape[spatial], y_shape[spatial],
            (ones if strides is None else tuple(strides))[spatial], (ones if dilations is None else tuple(dilations))[spatial], padding,
        )  # fmt: skip
        result = x_shape if deconv else y_shape
        positions = int(np.prod(result[spatial]))
        self._bias = EdgeBias(form.edges(deconv), positions, int(result[1 if channels_first else -1]), channels_first)
        self.shape = self._bias.shape
        self.edgeBiasMap = self._bias.edges
        self.edgeBiasDim = len(self.edgeBiasMap)

    def __call__(self, x: Any, g: Any, b: Any, inference: bool = False, bench: int = 0, name: str | None = None) -> Any:
        """x · g + b where padding was read, and x elsewhere: of x's framework and type, differentiable in all three.

        `inference`, `bench` and `name` are ignored.
        """
        return self._bias.apply(x, g, b)

    def grad(self, dy: Any, x: Any, g: Any) -> tuple[Any, Any, Any]:
        """dx, dg and db, of arrays that nothing differentiates: NumPy's."""
        return self._bias.gradient(np.asarray(dy), np.asarray(x), np.asarray(g))


def conv_edge_bias_init(
    y: Any, x: Any, w: Any, strides: Any = None, padding: str = "SAME", data_format: str = "NHWC", dilations: Any = None
) -> ConvEdgeBias:
    """The edge bias of y = conv(x, w), of which only the shapes are read."""
    return ConvEdgeBias(y.shape, x.shape, w.shape, strides, padding, data_format, dilations)


def deconv_edge_bias_init(
    y: Any, x: Any, w: Any, strides: Any = None, padding: str = "SAME", data_format: str = "NHWC", dilations: Any = None
) -> ConvEdgeBias:
    """The edge bias of y = conv_transpose(x, w), of which only the shapes are read."""
    return ConvEdgeBias(x.shape, y.shape, w.shape, strides, padding, data_format, dilations, deconv=True)
