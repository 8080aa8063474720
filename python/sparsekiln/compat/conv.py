"""Convolutions of the interface of 2017, as in ``blocksparse.conv``.

    from sparsekiln.compat import BlocksparseConv      # was: from blocksparse.conv import BlocksparseConv

    conv = BlocksparseConv(BCK, TRS=(3, 3), DHW=(28, 28))
    y = conv(F, x)      # x [N, C, 1, 28, 28]

A block of ``BCK`` connects a list of input channels with a list of output channels, by a filter [K, C, T, R, S] of its own.
The lists are of any lengths, in any order, and may overlap: where blocks have an output channel in common, their results
are added.

Channels whose lists are all made of aligned runs of 8, 16, 32 or 64 are those that kernels compute with. Others are copied
into blocks of their own, and filled up to multiples of 8 at least. Images are channels-first, as in the original, and
kernels compute channels-last: each call copies x and y, except for PyTorch's channels-last tensors with such channels.

Arrays are NumPy's, PyTorch's (differentiable, on the cpu or a CUDA device) or TensorFlow's (differentiable); compiled code and
graphs of these treat a convolution as they do the product, see ``sparsekiln.compat``. Types are float32, bfloat16 and float16,
accumulated in float32. Kernels are compiled when they are first needed, for the size of the images, and serve all batches; on the
cpu those of the gradient of the filters, all up to a power of two.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import sparsekiln
from sparsekiln._arrays import in_own_order
from sparsekiln._dtypes import CPU_ONLY, TRAINED
from sparsekiln.compat import _convolution_plan, _convolution_space
from sparsekiln.compat._edge_bias import ConvEdgeBias, EdgeBias, conv_edge_bias_init, deconv_edge_bias_init
from sparsekiln.compat._elementwise import Filters, cwise_linear
from sparsekiln.compat._frameworks import Differentiable, aligned, framework_of, target_of, type_name
from sparsekiln.compat._kernel_edges import KernelEdges

__all__ = [
    "BlocksparseConv", "BlocksparseDeconv", "ConvEdgeBias", "conv_edge_bias_init", "cwise_linear", "deconv_edge_bias_init",
]  # fmt: skip

_MOST = 65536  # images of one launch
_MOST_POSITIONS = 1 << 30  # of all images of one launch
_MOST_WORKSPACE = 1 << 28  # bytes, of the gradient of the filters on the cpu
_TYPES = tuple(name for name in TRAINED if name not in CPU_ONLY)


class BlocksparseConv:
    """y = conv(x), of blocks of channels.

    Args:
      BCK: a pair of lists for each block, (input channels, output channels).
      TRS: extents of the filters, (T, R, S), (R, S) or (S,). Missing dimensions are 1, here and in what follows.
      DHW: extents of an input image.
      MPQ: extents of an output image, where it is not what the padding makes it to.
      strides, dilates: for each dimension.
      padding: for each dimension, on both sides; "VALID", or "SAME", which is half of what the filters reach over.
      edge_bias: whether outputs that are computed from padding may have a bias and a gain of their own.
      debug: ignored.

    Attributes:
      C, K: input and output channels. blocks: of BCK. sizeF: elements of all filters.
      TRS, DHW, MPQ, strides, dilates, padding: of three dimensions each. trs: taps of a filter.
      overlapC, overlapK: whether some channel is in several blocks. fixed_block_size: whether all blocks are of one size.
      normSize: output channels of all blocks. edgeBiasDim: edges, sets of taps that fall into padding; 0 without edge_bias.
      flops: multiplications and additions for one image.
    """

    _transposed = False

    def __init__(
        self,
        BCK: Any,
        TRS: Sequence[int],
        DHW: Sequence[int],
        MPQ: Sequence[int] | None = None,
        strides: Sequence[int] = (1, 1, 1),
        dilates: Sequence[int] = (1, 1, 1),
        padding: Sequence[int] | str = "SAME",
        *,
        edge_bias: bool = False,
        debug: bool = False,
    ):
        self._state = {
            "BCK": BCK, "TRS": TRS, "DHW": DHW, "MPQ": MPQ, "strides": strides, "dilates": dilates, "padding": padding,
            "edge_bias": edge_bias,
        }  # fmt: skip
        pairs = _pairs(BCK)
        self.BCK = [(second, first) for first, second in pairs] if self._transposed else pairs
        names = ("output channels", "input channels") if self._transposed else ("input channels", "output channels")
        inputs, self.C, self.overlapC = _convolution_plan.channel_lists(names[0], [one[0] for one in self.BCK])
        outputs, self.K, self.overlapK = _convolution_plan.channel_lists(names[1], [one[1] for one in self.BCK])

        make = _convolution_space.of_transposed if self._transposed else _convolution_space.of_convolution
        self._space = make(TRS, DHW, MPQ, strides, dilates, padding)
        self.userTRS = [int(extent) for extent in TRS]
        self.TRS, self.DHW, self.MPQ = list(self._space.kernel), list(self._space.input), list(self._space.output)
        self.strides, self.dilates, self.padding = list(self._space.stride), list(self._space.dilation), list(self._space.before)
        self.trs, self.blocks = self._space.taps, len(self.BCK)

        shapes = [(len(out), len(in_), self.trs) for out, in_ in zip(outputs, inputs)]
        self._filters = Filters(shapes, outputs=1 if self._transposed else 0)
        self.sizeF = sum(map(math.prod, shapes))
        self.fixed_block_size = len(set(shapes)) == 1
        self.normSize = sum(shape[self._filters.outputs] for shape in shapes)
        self.flops = 2 * self.sizeF * math.prod(self.MPQ)

        edges = self._space.edges(self._transposed) if edge_bias else []
        channels, *image = self.o_shape(1)[1:]
        self._edge_bias = EdgeBias(edges, math.prod(image), channels, channels_first=True)
        self.edgeBiasMap, self.edgeBiasDim = self._edge_bias.edges, len(edges)
        self._kernel_edges: KernelEdges | None = None

        self._plan = _convolution_plan.planned(inputs, outputs, (self.C, self.K), self.trs)
        self._kernels: dict[tuple[str, str, int, str, bool], sparsekiln.Kernel] = {}
        self._differentiable = Differentiable(self)

    def __getstate__(self) -> dict[str, Any]:
        return self._state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __repr__(self) -> str:
        channels, images = self.i_shape(1)[1:], self.o_shape(1)[1:]
        return f"{type(self).__name__}({channels} -> {images}, TRS={self.userTRS}, blocks={self.blocks})"

    # ---- shapes ----

    def i_shape(self, N: int) -> list[int]:
        """The shape of x for a batch of N: [N, C, D, H, W]."""
        return [N, self.C, *self.DHW]

    def o_shape(self, N: int) -> list[int]:
        """The shape of y for a batch of N: [N, K, M, P, Q]."""
        return [N, self.K, *self.MPQ]

    def f_shape(self, block: int | None = None) -> list[int]:
        """The shape of the filters of one block, [K, C, T, R, S], with as many dimensions as TRS was given with (a
        deconvolution's are [C, K, T, R, S]). Without `block`: of all filters, with the blocks as the first dimension, or
        [sizeF] where they are not of one size."""
        if block is None:
            return [self.blocks, *self.f_shape(0)] if self.fixed_block_size else [self.sizeF]
        inputs, outputs = self.BCK[block]
        return [len(outputs), len(inputs), *self.userTRS]

    def edge_bias_shape(self) -> tuple[int, int]:
        """The shape of an edge bias, and of its gain: (output channels, edgeBiasDim)."""
        return self._edge_bias.shape

    def collapse_filter(self, F: Sequence[Any], dtype: Any = None) -> np.ndarray:
        """NumPy's filters of all blocks, each f_shape(block), as one flat array; in their type if `dtype` is None."""
        blocks = [np.asarray(one) for one in F]
        if [list(one.shape) for one in blocks] != [self.f_shape(block) for block in range(self.blocks)]:
            raise ValueError(f"F has blocks of {[list(one.shape) for one in blocks]}; f_shape(block) says what each is, such as {self.f_shape(0)}")
        flat = np.concatenate([one.reshape(-1) for one in blocks])
        return flat if dtype is None else flat.astype(getattr(dtype, "as_numpy_dtype", dtype))

    # ---- the convolution ----

    def __call__(self, F: Any, I: Any, edge_bias: Any = None) -> Any:
        """y = conv(x).

        Args:
          F: filters, flat or f_shape().
          I: i_shape(N), or without leading dimensions of the image that are 1 in i_shape and o_shape. It has F's type.
          edge_bias: b, edge_bias_shape(), which is added; or (g, b): y · g + b at the edges.

        Returns:
          o_shape(N), with as many dimensions as I: an array of its framework and type.
        """
        if edge_bias is None:
            return self._differentiable(I, F)
        g, b = edge_bias if isinstance(edge_bias, (tuple, list)) else (None, edge_bias)
        if self._edges_are_in_kernels() and framework_of(I, F, g, b) != "tensorflow":
            self._kernel_edges = self._kernel_edges or KernelEdges(self, self._edge_bias)
            return self._kernel_edges(I, F, g, b)
        return self.edge_bias(self._differentiable(I, F), b, g)

    def _edges_are_in_kernels(self) -> bool:
        """Whether an edge bias is an epilogue of the kernel: each output channel is one of the kernel's features."""
        side = self._plan.input if self._transposed else self._plan.output
        return self.edgeBiasDim > 0 and side.channels.is_one_to_one and self._situations is not None

    @functools.cached_property
    def _situations(self) -> np.ndarray | None:
        """For each edge situation of the kernels its edge, from 1 on, or 0 for none; None if there are too many for kernels."""
        try:
            situations = sparsekiln.edge_situations(self._space.text(self._transposed)).of_position.reshape(-1)
        except sparsekiln.InvalidArgument:
            return None
        return self._edge_bias.edge_of[np.unique(situations, return_index=True)[1]]

    def edge_bias(self, x: Any, eb: Any, gain: Any = None) -> Any:
        """x · gain + eb at the edges, and x elsewhere; differentiable. x is an output of the convolution."""
        if not self._state["edge_bias"]:
            raise ValueError("an edge bias of a convolution without; edge_bias=True, when it is built, would work")
        return self._edge_bias.apply(x, gain, eb)

    def edge_bias_grad(self, dy: Any, x: Any, gain: Any) -> tuple[Any, Any, Any]:
        """Gradients of edge_bias with respect to x, gain and eb, of arrays that nothing differentiates: NumPy's."""
        return self._edge_bias.gradient(in_own_order(dy), in_own_order(x), in_own_order(gain))

    def fprop(self, F: Any, I: Any) -> Any:
        """y = conv(x), of arrays that nothing differentiates: NumPy's."""
        F, I = in_own_order(F), in_own_order(I)
        self._check_operands(I, F)
        return self._y(I, F)

    def bprop(self, F: Any, E: Any) -> Any:
        """The gradient of the input, i_shape(N), from E, that of the output: NumPy's."""
        F, E = in_own_order(F), in_own_order(E)
        self._check_filters(F)
        self._check_images("E", E, self.o_shape, F)
        return self._dx(E, F)

    def update(self, E: Any, I: Any) -> Any:
        """The gradient of the filters, flat, from E, that of the output, and the input: NumPy's."""
        E, I = in_own_order(E), in_own_order(I)
        self._check_images("I", I, self.i_shape, I)
        self._check_images("E", E, self.o_shape, I)
        if E.shape[0] != I.shape[0] or E.ndim != I.ndim:
            raise ValueError(f"E is {list(E.shape)} and I {list(I.shape)}; they are of one batch, with as many dimensions")
        return self._dw(I, E)

    # ---- weight normalisation ----

    def l2_normalize(self, F: Any, gain: Any = None, epsilon: float = 1e-12, dtype: Any = np.float32) -> Any:
        """Filters of unit length for each output channel of each block, gain · F / √max(ΣF², epsilon); differentiable.

        Args:
          F: flat or f_shape().
          gain: [normSize], a number for each output channel, in the order in which BCK lists them; not where blocks overlap in them.
          dtype: of the result. Computed in float32, or where F or gain is float64 in float64.
        """
        self._check_normalised(F, gain)
        return self._filters.normalised(F, gain, epsilon, type_name(dtype))

    def l2_normalize_grad(self, F: Any, U: Any, gain: Any = None, epsilon: float = 1e-12) -> tuple[Any, Any]:
        """Gradients of l2_normalize with respect to F and gain (None without one), from U, that of its result: NumPy's."""
        F, U, gain = in_own_order(F), in_own_order(U), None if gain is None else in_own_order(gain)
        self._check_normalised(F, gain)
        self._check_normalised(U, None)
        return self._filters.gradient(F, U, gain, epsilon)

    def _check_normalised(self, F: Any, gain: Any) -> None:
        self._check_filters(F)
        if gain is None:
            return
        if self.overlapC if self._transposed else self.overlapK:
            raise ValueError("a gain for blocks that overlap in output channels; l2_normalize works without one, or with other blocks")
        if tuple(gain.shape) != (self.normSize,):
            raise ValueError(f"gain is {list(gain.shape)}; this convolution takes {[self.normSize]}")

    # ---- checks ----

    def _check_filters(self, F: Any) -> None:
        if list(F.shape) not in ([self.sizeF], self.f_shape()):
            flat = "" if not self.fixed_block_size else f", or {[self.sizeF]}"
            raise ValueError(f"F is {list(F.shape)}; this convolution takes {self.f_shape()}{flat}")

    def _check_images(self, name: str, images: Any, shape_of: Callable[[int], list[int]], like: Any) -> None:
        shape = list(images.shape)
        if not 3 <= len(shape) <= 5 or [shape_of(0)[1], *shape_of(0)[-(len(shape) - 2) :]] != shape[1:] or not self._may_lack(5 - len(shape)):
            raise ValueError(f"{name} is {shape}; this convolution takes [N, {', '.join(map(str, shape_of(0)[1:]))}]")
        if type_name(images.dtype) not in _TYPES:
            raise TypeError(f"{name} is {type_name(images.dtype)}; {', '.join(_TYPES[:-1])} and {_TYPES[-1]} are convolved")
        if type_name(images.dtype) != type_name(like.dtype):
            raise TypeError(f"{name} is {type_name(images.dtype)}, and what it is convolved with {type_name(like.dtype)}; cast one of them")

    def _may_lack(self, dimensions: int) -> bool:
        return set(self.DHW[:dimensions] + self.MPQ[:dimensions]) <= {1}

    # ---- what frameworks differentiate: see Product. Arrays are NumPy's or PyTorch's ----

    _devices = ("cpu", "cuda")

    def _check_operands(self, x: Any, w: Any) -> None:
        self._check_filters(w)
        self._check_images("I", x, self.i_shape, w)

    def _y_shape(self, x_shape: Any) -> list[Any]:
        return [x_shape[0], self.o_shape(0)[1], *self.o_shape(0)[-(len(x_shape) - 2) :]]

    def _y(self, x: Any, w: Any, empty: Callable[..., Any] | None = None) -> Any:
        return self._convolved("forward", x, w, empty)

    def _y_with_edges(self, x: Any, w: Any, edges: tuple[Any, Any]) -> Any:
        return self._convolved("grad_input" if self._transposed else "forward", x, w, None, edges)

    def _dx(self, dy: Any, w: Any, empty: Callable[..., Any] | None = None) -> Any:
        return self._convolved("grad_input", dy, w, empty)

    def _dw(self, x: Any, dy: Any, empty: Callable[..., Any] | None = None) -> Any:
        return self._gradient_of_filters(x, dy, empty)

    # ---- kernels ----

    def _convolved(
        self, op: str, images: Any, F: Any, empty: Callable[..., Any] | None, edges: tuple[Any, Any] | None = None
    ) -> Any:  # fmt: skip
        """forward: images of DHW -> of MPQ; grad_input: the other way. `edges`: of the kernel's epilogue, see KernelEdges."""
        plan, n = self._plan, images.shape[0]
        sides = (plan.input, self.DHW), (plan.output, self.MPQ)
        (before, _), (after, extents) = sides if op == "forward" else sides[::-1]
        weight = aligned(plan.weight.scatter_add(F.reshape(-1))).reshape(plan.layout.blocks, self.trs, plan.output.block, plan.input.block)
        rows, positions = _rows(before, images), math.prod(extents)
        result = _empty_like(rows, (n * positions, after.features))
        most, more = self._most_images(op, rows), {}
        if edges is not None:
            more = {name: aligned(after.channels.gather(one)) for name, one in zip(("edge_gain", "edge_bias"), edges)}
        for first in range(0, n, most):
            count = min(most, n - first)
            kernel = self._kernel(op, rows, most, edges is not None)
            kernel(_of_images(rows, n, first, count), weight, _of_images(result, n, first, count), **more)
        result = after.channels.scatter_add(result.reshape(n, *extents[-(images.ndim - 2) :], after.features))
        return _channels_first(result, images, empty)

    def _gradient_of_filters(self, x: Any, dy: Any, empty: Callable[..., Any] | None) -> Any:
        """x is an image of DHW, dy one of MPQ."""
        plan, n, total = self._plan, x.shape[0], None
        x, dy = _rows(plan.input, x), _rows(plan.output, dy)
        most = self._most_images("grad_weight", x)
        if target_of(x) == "cpu":
            most = min(most, 1 << max(n - 1, 0).bit_length())
        for first in range(0, max(n, 1), most):
            dw = _empty_like(x, (plan.layout.blocks, self.trs, plan.output.block, plan.input.block))
            if n:
                count = min(most, n - first)
                self._kernel("grad_weight", x, most)(
                    _of_images(x, n, first, count), _of_images(dy, n, first, count), dw
                )
            else:
                dw[...] = 0
            total = dw if total is None else _as_float32(total) + _as_float32(dw)
        flat = plan.weight.gather(total.reshape(-1))
        if not isinstance(flat, np.ndarray):
            return flat.to(x.dtype)
        result = (empty or np.empty)(flat.shape, x.dtype)
        result[...] = flat
        return result

    def _most_images(self, op: str, like: Any) -> int:
        """How many images of this device a launch takes: a power of two."""
        most = min(_MOST, _MOST_POSITIONS // max(math.prod(self.DHW), math.prod(self.MPQ)))
        if op == "grad_weight" and target_of(like) == "cpu":  # its workspace has float32 copies of the padded input and of dy
            bytes_ = 4 * (self._space.padded_positions() * self._plan.input.features + math.prod(self.MPQ) * self._plan.output.features)
            most = min(most, _MOST_WORKSPACE // bytes_)
        return 1 << (max(most, 1).bit_length() - 1)

    def _kernel(self, op: str, like: Any, most: int, edges: bool = False) -> sparsekiln.Kernel:
        asked = (op, type_name(like.dtype), most, target_of(like), edges)
        if asked not in self._kernels:
            # A gradient has no epilogue: grad_input is the forward product of the transposed convolution.
            transposed = edges and op == "grad_input"
            self._kernels[asked] = sparsekiln.compile(
                self._plan.layout,
                block=(self._plan.output.block, self._plan.input.block),
                batch=sparsekiln.up_to(most),
                dtype=TRAINED[asked[1]],
                op="forward" if edges else op,
                epilogue="edge_bias" if edges else "none",
                convolution=self._space.text(transposed),
                target=asked[3],
            )
        return self._kernels[asked]


class BlocksparseDeconv(BlocksparseConv):
    """y = conv_transpose(x), of blocks of channels.

    Arguments are those of BlocksparseConv: DHW are the extents of the input and MPQ those of the output. Where it is None,
    and a stride leaves several possible, MPQ is the one that the original chose, DHW · strides + TRS - 2 · padding, less 1
    for odd TRS. Filters are [C, K, T, R, S].

    Attributes are those of the convolution that it is the transpose of, as in the original: C, DHW and overlapC are of its
    output, K, MPQ and overlapK of its input, and the pairs of BCK are exchanged.
    """

    _transposed = True

    def i_shape(self, N: int) -> list[int]:
        return [N, self.K, *self.MPQ]

    def o_shape(self, N: int) -> list[int]:
        return [N, self.C, *self.DHW]

    def _y(self, x: Any, w: Any, empty: Callable[..., Any] | None = None) -> Any:
        return self._convolved("grad_input", x, w, empty)

    def _dx(self, dy: Any, w: Any, empty: Callable[..., Any] | None = None) -> Any:
        return self._convolved("forward", dy, w, empty)

    def _dw(self, x: Any, dy: Any, empty: Callable[..., Any] | None = None) -> Any:
        return self._gradient_of_filters(dy, x, empty)


def _pairs(BCK: Any) -> list[tuple[Any, Any]]:
    pairs = [tuple(one) for one in BCK] if isinstance(BCK, Iterable) and not isinstance(BCK, str) else []
    if not pairs or any(len(one) != 2 for one in pairs):
        raise ValueError("BCK is a pair of lists, (input channels, output channels), for each of one or more blocks")
    return pairs  # type: ignore[return-value]


def _rows(side: _convolution_plan.Side, images: Any) -> Any:
    """[n, channels, …] -> [positions of all images, features]."""
    last = np.moveaxis(images, 1, -1) if isinstance(images, np.ndarray) else images.movedim(1, -1)
    return aligned(side.channels.gather(last).reshape(math.prod(images.shape[:1] + images.shape[2:]), side.features))


def _of_images(rows: Any, n: int, first: int, count: int) -> Any:
    positions = rows.shape[0] // n
    return rows[first * positions : (first + count) * positions]


def _channels_first(last: Any, like: Any, empty: Callable[..., Any] | None) -> Any:
    """[n, …, channels] -> [n, channels, …]: contiguous, or of the memory format of `like`, PyTorch's."""
    if isinstance(last, np.ndarray):
        moved = np.moveaxis(last, -1, 1)
        result = (empty or np.empty)(moved.shape, moved.dtype)
        result[...] = moved
        return result
    moved = last.movedim(-1, 1)
    is_last = like.movedim(1, -1).is_contiguous() and not like.is_contiguous()
    return moved if is_last else moved.contiguous()


def _empty_like(array: Any, shape: tuple[int, ...]) -> Any:
    return np.empty(shape, array.dtype) if isinstance(array, np.ndarray) else array.new_empty(shape)


def _as_float32(array: Any) -> Any:
    return array.astype(np.float32) if isinstance(array, np.ndarray) else array.float()
