"""The interface of 2017: ``BlocksparseMatMul`` and convolutions as in the blocksparse package for TensorFlow 1.

    from sparsekiln.compat import BlocksparseMatMul      # was: from blocksparse.matmul import BlocksparseMatMul

    bsmm = BlocksparseMatMul(sparsity, block_size=32)
    y = bsmm(x, w)

``BlocksparseConv`` and ``BlocksparseDeconv`` are documented in ``sparsekiln.compat.conv``; what follows is of the product.

Weights of that package give the same results here. Its conventions, which differ from those of the rest of sparsekiln:

- ``layout[c, k]``: rows are blocks of *input* features, columns blocks of *output* features. y = x · W, W[C, K].
- ``w[i]`` is the block W[c, k] without transposing, ``[input, output]``.
- Blocks are numbered along a Morton curve, with the column's bits above the row's (``block_order="morton"``).

A product here is the one that sparsekiln calls the gradient of the input, of the same layout: no block is ever
transposed. The order of the blocks differs, however: kernels take them row-major, so each call gathers w, and the
gradient of w is scattered back, one copy of w each. ``block_order="rows"`` numbers them row-major and avoids that.

Arrays are NumPy's, PyTorch's (differentiable, also on CUDA), or TensorFlow's (differentiable, on the CPU).

- PyTorch: ``torch.compile`` breaks its graph at a call. ``sparsekiln.torch.BlockSparseLinear`` is what compiles;
  :meth:`BlocksparseMatMul.to_linear` gives it the weight.
- TensorFlow: tensors are read in place, and results are returned without a copy. In a graph
  (``tf.function``, ``tf.compat.v1`` sessions) the product is a Python function of the process that built the graph:
  each product waits for the GIL, and a saved graph does not hold it. Eager calls compute both gradients, whichever
  is asked for. Tensors on a GPU are copied to the host and back.

Types are float32, bfloat16 and float16, accumulated in float32, and on the cpu float64, accumulated in float64.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

import sparsekiln
from sparsekiln._arrays import in_own_order
from sparsekiln._dtypes import BYTES, TRAINED, listed
from sparsekiln.compat.conv import BlocksparseConv, BlocksparseDeconv
from sparsekiln.compat._frameworks import Differentiable, aligned, of_type, target_of, type_name

__all__ = ["BlocksparseConv", "BlocksparseDeconv", "BlocksparseMatMul"]

_MOST = 65536  # batch rows of one kernel; larger batches get their own

_ORDERS = ("morton", "columns", "rows")


class BlocksparseMatMul:
    """y = x · W for a block-sparse W[C, K].

    Args:
      layout: ``[C // block_size, K // block_size]``, not 0 where the block is present: rows are inputs.
      block_size: 8, 16, 32, 64 or 128, with either axis.
      feature_axis: 1: activations are ``[N, C]``. 0: they are ``[C, N]``; fastest where N elements are a multiple
        of 16 bytes.
      name: kept as an attribute.
      block_order: which block ``w[i]`` is. "morton": as the original; "columns": as the original with
        ``z_order=False``, column by column; "rows": row by row, and without a copy at each call.

    Attributes:
      w_shape: ``(blocks, block_size, block_size)``.
      C, K: input and output features. CB, KB: these in blocks. blocks: present ones.
      sparsity: their share, 1.0 for a dense matrix. layout: the grid as bool.
      flops: multiplications and additions for one row of x.
    """

    def __init__(
        self,
        layout: Any,
        block_size: int = 32,
        feature_axis: int = 1,
        name: str | None = None,
        *,
        block_order: str = "morton",
    ):
        grid = np.asarray(layout.toarray() if hasattr(layout, "toarray") else layout)  # of SciPy
        if grid.ndim != 2:
            raise ValueError(f"layout has {grid.ndim} dimensions; it is [input blocks, output blocks]")
        if block_size not in (8, 16, 32, 64, 128):
            raise ValueError(f"block_size {block_size!r} is none of 8, 16, 32, 64, 128")
        if feature_axis not in (0, 1):
            raise ValueError(f"feature_axis {feature_axis!r} is neither 0, for [C, N], nor 1, for [N, C]")
        if block_order not in _ORDERS:
            raise ValueError(f"block_order {block_order!r} is none of {', '.join(map(repr, _ORDERS))}")
        self.layout = grid != 0
        self.bsize = int(block_size)
        self.axis = int(feature_axis)
        self.name = "BlocksparseMatMul" if name is None else name
        self.block_order = block_order

        self.CB, self.KB = grid.shape
        self.C, self.K = self.CB * self.bsize, self.KB * self.bsize
        rows, columns = np.nonzero(self.layout)
        self.blocks = len(rows)
        self.w_shape = (self.blocks, self.bsize, self.bsize)
        self.flops = self.blocks * self.bsize * self.bsize * 2
        self.sparsity = self.blocks / self.layout.size if self.layout.size else 0.0

        # The number of a block among the rows, by its number in w, and the inverse.
        self._row_major = _numbering(rows, columns, block_order)
        self._number = np.argsort(self._row_major)
        self._in_order = bool(np.array_equal(self._row_major, np.arange(self.blocks)))
        self._coordinates = np.stack([rows, columns], axis=1)[self._row_major]
        self._bsr = sparsekiln.Layout(self.layout)
        self._kernels: dict[tuple[Any, ...], Any] = {}
        self._gathers: dict[Any, tuple[Any, ...]] = {}
        self._differentiable = Differentiable(self)

    def __getstate__(self) -> tuple[Any, ...]:
        return (self.layout, self.bsize, self.axis, self.name, self.block_order)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        *arguments, block_order = state
        self.__init__(*arguments, block_order=block_order)  # type: ignore[misc]

    def __repr__(self) -> str:
        return (
            f"BlocksparseMatMul({self.C} -> {self.K}, block_size={self.bsize}, feature_axis={self.axis}, "
            f"blocks={self.blocks}, sparsity={self.sparsity:.3f})"
        )

    # ---- shapes ----

    def i_shape(self, N: int) -> tuple[int, int]:
        """The shape of x for a batch of N."""
        return (N, self.C) if self.axis else (self.C, N)

    def o_shape(self, N: int) -> tuple[int, int]:
        """The shape of y for a batch of N."""
        return (N, self.K) if self.axis else (self.K, N)

    def block_coord(self, block: int) -> tuple[int, int]:
        """(c, k) of the block that ``w[block]`` is, in the layout."""
        c, k = self._coordinates[block]
        return int(c), int(k)

    # ---- initial weights: functions of (shape, dtype), like TensorFlow's initializers ----

    def identity_init(self, scale: float = 1.0, gpu: bool = False) -> Callable[..., Any]:
        """``scale`` times the identity on each block of the diagonal, which is repeated if W is not square.

        ``gpu`` is ignored: the same weights are made.
        """
        if isinstance(scale, bool):  # the first version had gpu in this position
            scale = 1.0
        c, k = self._coordinates.T
        diagonal = c % max(self.KB, 1) == k % max(self.CB, 1)

        def initializer(shape: Any = None, dtype: Any = np.float32, partition_info: Any = None) -> Any:
            w = np.zeros(self._checked_shape(shape), np.float32)
            w[diagonal] = np.eye(self.bsize, dtype=np.float32) * scale
            return of_type(w, dtype)

        return initializer

    def ortho_init(self) -> Callable[..., Any]:
        """Columns of unit length that are orthogonal to each other: within each block column, and in all of W where
        it is dense and not wider than high. Drawn from NumPy's global generator, as ``np.random.seed`` left it.
        """

        def initializer(shape: Any = None, dtype: Any = np.float32, partition_info: Any = None) -> Any:
            w = np.empty(self._checked_shape(shape), np.float64)
            c, k = self._coordinates.T
            if 0 < self.blocks == self.layout.size:
                dense = _orthogonal(self.C, self.K).reshape(self.CB, self.bsize, self.KB, self.bsize)
                w[:] = dense.transpose(0, 2, 1, 3)[c, k]
            else:
                for column in range(self.KB):
                    (present,) = np.nonzero(k == column)
                    if len(present):
                        columns = _orthogonal(len(present) * self.bsize, self.bsize)
                        w[present] = columns.reshape(-1, self.bsize, self.bsize)
            return of_type(w, dtype)

        return initializer

    def _checked_shape(self, shape: Any) -> tuple[int, int, int]:
        if shape is not None and tuple(int(extent) for extent in shape) != self.w_shape:
            raise ValueError(f"a weight of this layout is {self.w_shape}, not {tuple(shape)}")
        return self.w_shape

    def to_linear(self, w: Any) -> tuple[sparsekiln.Layout, np.ndarray]:
        """The layout and the weight in the form of the rest of sparsekiln: W[out, in] by rows of output blocks.

        ``BlockSparseLinear(bsmm.C, bsmm.K, layout, ...)`` with this weight computes what ``bsmm(x, w)`` does.
        """
        c, k = self._coordinates.T
        w = np.asarray(w.detach().cpu() if hasattr(w, "detach") else w)
        self._checked_shape(w.shape)
        return sparsekiln.Layout(self.layout.T), np.ascontiguousarray(w[np.lexsort((c, k))].transpose(0, 2, 1))

    # ---- the product ----

    def __call__(self, x: Any, w: Any, dw_dtype: Any = None, name: str | None = None) -> Any:
        """y = x · W.

        Args:
          x: ``[N, C]``, or ``[C, N]`` with feature_axis 0. N may be several dimensions.
          w: ``w_shape``, of x's type.
          dw_dtype: the gradient of w has w's type, and nothing else may be asked for.
          name: ignored.

        Returns:
          ``[N, K]`` or ``[K, N]``, an array of x's framework, device and type.
        """
        if dw_dtype is not None and type_name(dw_dtype) != type_name(w.dtype):
            raise ValueError(f"dw_dtype is {type_name(dw_dtype)}; dw has the type of w, {type_name(w.dtype)}")
        return self._differentiable(x, w)

    def grad_input(self, dy: Any, w: Any) -> Any:
        """dx = dy · Wᵀ, of arrays that nothing differentiates: NumPy's."""
        dy, w = in_own_order(dy), in_own_order(w)
        self._check(dy.shape, w.shape, dy.dtype, w.dtype, "dy", self.K)
        return self._dx(dy, w)

    def grad_weight(self, x: Any, dy: Any) -> Any:
        """dw = xᵀ · dy on the present blocks, of arrays that nothing differentiates: NumPy's."""
        x, dy = in_own_order(x), in_own_order(dy)
        self._check(x.shape, self.w_shape, x.dtype, dy.dtype, "x", self.C)
        return self._dw(x, dy)

    def _check(self, x_shape: Any, w_shape: Any, x_type: Any, w_type: Any, name: str, features: int) -> None:
        place = -1 if self.axis else 0
        if len(x_shape) < 2 or x_shape[place] != features:
            wanted = f"[N, {features}]" if self.axis else f"[{features}, N]"
            raise ValueError(f"{name} is {list(x_shape)}; with feature_axis={self.axis} it must be {wanted}")
        if tuple(w_shape) != self.w_shape:
            raise ValueError(f"w is {list(w_shape)}; this layout takes {list(self.w_shape)}")
        if type_name(x_type) not in TRAINED:
            raise TypeError(f"{name} is {type_name(x_type)}; {listed()} are multiplied")
        if type_name(x_type) != type_name(w_type):
            raise TypeError(f"{name} is {type_name(x_type)} and w is {type_name(w_type)}; cast one of them")

    # From here on, arrays are NumPy's or PyTorch's, with blocks of w by rows.

    def _kernel(self, op: str, dtype: str, batch: int, target: str) -> sparsekiln.Kernel:
        most = _MOST if batch <= _MOST else 1 << (batch - 1).bit_length()
        # Feature-major rows are as long as the batch: this is the power of two that divides their bytes.
        row_bytes = batch * BYTES[dtype]
        alignment = 16 if self.axis else min(16, row_bytes & -row_bytes or 16)
        asked = (op, dtype, most, alignment, target)
        if asked not in self._kernels:
            self._kernels[asked] = sparsekiln.compile(
                self._bsr,
                block=self.bsize,
                batch=sparsekiln.up_to(most),
                dtype=TRAINED[dtype],
                op=op,
                order="batch-major" if self.axis else "feature-major",
                alignment=alignment,
                target=target,
            )
        return self._kernels[asked]

    def _matrix(self, x: Any) -> Any:
        """Two dimensions in the form that kernels take: dense, and aligned to 16 bytes."""
        return aligned(x.reshape(-1, x.shape[-1]) if self.axis else x.reshape(x.shape[0], -1))

    def _product(self, op: str, x: Any, w: Any, target: str, empty: Callable[..., Any] | None = None) -> Any:
        """grad_input: x · W. forward: x · Wᵀ. `empty` makes the result, like NumPy's; without it the kernel does."""
        matrix = self._matrix(x)
        batch = matrix.shape[0] if self.axis else matrix.shape[1]
        features = self.K if op == "grad_input" else self.C
        shape = (batch, features) if self.axis else (features, batch)
        y = self._kernel(op, type_name(x.dtype), batch, target)(matrix, w, empty and empty(shape, x.dtype))
        return y.reshape(*x.shape[:-1], features) if self.axis else y.reshape(features, *x.shape[1:])

    def _weight_gradient(self, x: Any, dy: Any, target: str, empty: Callable[..., Any] | None = None) -> Any:
        x, dy = self._matrix(x), self._matrix(dy)
        batch = x.shape[0] if self.axis else x.shape[1]
        kernel = self._kernel("grad_weight", type_name(x.dtype), batch, target)
        # sparsekiln's W[out, in] is W[C, K] here: its dy is x, and its x is dy.
        return kernel(dy, x, empty and empty(self.w_shape, x.dtype))

    def _gathered(self, w: Any) -> Any:
        if self._in_order:
            return aligned(w)
        return w[self._number] if isinstance(w, np.ndarray) else w.index_select(0, self._orders_on(w.device)[0])

    def _scattered(self, dw: Any, empty: Callable[..., Any] | None = None) -> Any:
        if self._in_order:
            return dw
        if isinstance(dw, np.ndarray):
            return dw.take(self._row_major, 0, (empty or np.empty)(dw.shape, dw.dtype))
        return dw.index_select(0, self._orders_on(dw.device)[1])

    def _orders_on(self, device: Any) -> tuple[Any, ...]:
        """The number of a block and its inverse, as PyTorch tensors."""
        if device not in self._gathers:
            import torch

            self._gathers[device] = tuple(torch.from_numpy(order).to(device) for order in (self._number, self._row_major))
        return self._gathers[device]

    # What frameworks differentiate: see Product.

    _devices = ("cpu", "cuda")

    def _check_operands(self, x: Any, w: Any) -> None:
        self._check(x.shape, w.shape, x.dtype, w.dtype, "x", self.C)

    def _y_shape(self, x_shape: Any) -> list[Any]:
        shape = list(x_shape)
        shape[-1 if self.axis else 0] = self.K
        return shape

    def _y(self, x: Any, w: Any, empty: Callable[..., Any] | None = None) -> Any:
        return self._product("grad_input", x, self._gathered(w), target_of(x), empty)

    def _dx(self, dy: Any, w: Any, empty: Callable[..., Any] | None = None) -> Any:
        return self._product("forward", dy, self._gathered(w), target_of(dy), empty)

    def _dw(self, x: Any, dy: Any, empty: Callable[..., Any] | None = None) -> Any:
        return self._scattered(self._weight_gradient(x, dy, target_of(dy), empty), empty)


def _numbering(rows: np.ndarray, columns: np.ndarray, block_order: str) -> np.ndarray:
    """Blocks, numbered row-major, in the order of w."""
    if block_order == "rows":
        return np.arange(len(rows))
    if block_order == "columns":
        return np.lexsort((rows, columns))
    return np.argsort(_spread(rows) | _spread(columns) << np.uint64(1), kind="stable")


def _spread(value: np.ndarray) -> np.ndarray:
    """Puts bit i of numbers below 2^32 at bit 2 i."""
    value = value.astype(np.uint64)
    spread = np.zeros_like(value)
    for bit in range(32):
        spread |= (value >> np.uint64(bit) & np.uint64(1)) << np.uint64(2 * bit)
    return spread


def _orthogonal(rows: int, columns: int) -> np.ndarray:
    """A random matrix whose columns (rows, where it has fewer) are orthonormal."""
    normal = np.random.normal(size=(rows, columns))
    q, r = np.linalg.qr(normal if rows >= columns else normal.T)
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)  # so that it is uniformly distributed (Mezzadri 2007)
    return q if rows >= columns else q.T
