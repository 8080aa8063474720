"""The interface of 2017: ``BlocksparseMatMul`` as in the blocksparse package for TensorFlow 1.

    from sparsekiln.compat import BlocksparseMatMul      # was: from blocksparse.matmul import BlocksparseMatMul

    bsmm = BlocksparseMatMul(sparsity, block_size=32)
    y = bsmm(x, w)

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

import sys
from typing import Any, Callable

import numpy as np

import sparsekiln
from sparsekiln._dtypes import BYTES, NAMES, listed

__all__ = ["BlocksparseMatMul"]

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
        grid = np.asarray(layout)
        if grid.ndim != 2:
            raise ValueError(f"layout has {grid.ndim} dimensions; it is [input blocks, output blocks]")
        if block_size not in (8, 16, 32, 64, 128):
            raise ValueError(f"block_size {block_size} is none of 8, 16, 32, 64, 128")
        if feature_axis not in (0, 1):
            raise ValueError(f"feature_axis {feature_axis} is neither 0, for [C, N], nor 1, for [N, C]")
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
        self._frameworks: dict[str, Callable[..., Any]] = {}

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
            return _of_type(w, dtype)

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
            return _of_type(w, dtype)

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
        framework = _framework_of(x, w)
        if dw_dtype is not None and _type_name(dw_dtype) != _type_name(w.dtype):
            raise ValueError(f"dw_dtype is {_type_name(dw_dtype)}; dw has the type of w, {_type_name(w.dtype)}")
        if framework not in self._frameworks:
            self._frameworks[framework] = _FRAMEWORKS[framework](self)
        return self._frameworks[framework](x, w)

    def grad_input(self, dy: Any, w: Any) -> Any:
        """dx = dy · Wᵀ, of arrays that nothing differentiates: NumPy's."""
        dy, w = np.asarray(dy), np.asarray(w)
        self._check(dy.shape, w.shape, dy.dtype, w.dtype, "dy", self.K)
        return self._product("forward", dy, self._gathered(w), "cpu")

    def grad_weight(self, x: Any, dy: Any) -> Any:
        """dw = xᵀ · dy on the present blocks, of arrays that nothing differentiates: NumPy's."""
        x, dy = np.asarray(x), np.asarray(dy)
        self._check(x.shape, self.w_shape, x.dtype, dy.dtype, "x", self.C)
        return self._scattered(self._weight_gradient(x, dy, "cpu"))

    def _check(self, x_shape: Any, w_shape: Any, x_type: Any, w_type: Any, name: str, features: int) -> None:
        place = -1 if self.axis else 0
        if len(x_shape) < 2 or x_shape[place] != features:
            wanted = f"[N, {features}]" if self.axis else f"[{features}, N]"
            raise ValueError(f"{name} is {list(x_shape)}; with feature_axis={self.axis} it must be {wanted}")
        if tuple(w_shape) != self.w_shape:
            raise ValueError(f"w is {list(w_shape)}; this layout takes {list(self.w_shape)}")
        if _type_name(x_type) not in NAMES:
            raise TypeError(f"{name} is {_type_name(x_type)}; {listed()} are multiplied")
        if _type_name(x_type) != _type_name(w_type):
            raise TypeError(f"{name} is {_type_name(x_type)} and w is {_type_name(w_type)}; cast one of them")

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
                dtype=NAMES[dtype],
                op=op,
                order="batch-major" if self.axis else "feature-major",
                alignment=alignment,
                target=target,
            )
        return self._kernels[asked]

    def _matrix(self, x: Any) -> Any:
        """Two dimensions in the form that kernels take: dense, and aligned to 16 bytes."""
        return _aligned(x.reshape(-1, x.shape[-1]) if self.axis else x.reshape(x.shape[0], -1))

    def _product(self, op: str, x: Any, w: Any, target: str, empty: Callable[..., Any] | None = None) -> Any:
        """grad_input: x · W. forward: x · Wᵀ. `empty` makes the result, like NumPy's; without it the kernel does."""
        matrix = self._matrix(x)
        batch = matrix.shape[0] if self.axis else matrix.shape[1]
        features = self.K if op == "grad_input" else self.C
        shape = (batch, features) if self.axis else (features, batch)
        y = self._kernel(op, _type_name(x.dtype), batch, target)(matrix, w, empty and empty(shape, x.dtype))
        return y.reshape(*x.shape[:-1], features) if self.axis else y.reshape(features, *x.shape[1:])

    def _weight_gradient(self, x: Any, dy: Any, target: str, empty: Callable[..., Any] | None = None) -> Any:
        x, dy = self._matrix(x), self._matrix(dy)
        batch = x.shape[0] if self.axis else x.shape[1]
        kernel = self._kernel("grad_weight", _type_name(x.dtype), batch, target)
        # sparsekiln's W[out, in] is W[C, K] here: its dy is x, and its x is dy.
        return kernel(dy, x, empty and empty(self.w_shape, x.dtype))

    def _gathered(self, w: np.ndarray) -> np.ndarray:
        return _aligned(w) if self._in_order else w[self._number]

    def _scattered(self, dw: np.ndarray, empty: Callable[..., Any] = np.empty) -> np.ndarray:
        return dw if self._in_order else dw.take(self._row_major, 0, empty(dw.shape, dw.dtype))


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


def _aligned(array: Any) -> Any:
    """The array, or a copy of it in a form that kernels take, of NumPy or PyTorch."""
    if isinstance(array, np.ndarray):
        array = np.ascontiguousarray(array)
        return array if array.ctypes.data % 16 == 0 else array.copy()
    array = array.contiguous()
    return array if array.data_ptr() % 16 == 0 else array.clone()


def _empty_aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Like np.empty, with the alignment that TensorFlow needs to take over the memory."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + 64, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + size].view(dtype).reshape(shape)


def _orthogonal(rows: int, columns: int) -> np.ndarray:
    """A random matrix whose columns (rows, where it has fewer) are orthonormal."""
    normal = np.random.normal(size=(rows, columns))
    q, r = np.linalg.qr(normal if rows >= columns else normal.T)
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)  # so that it is uniformly distributed (Mezzadri 2007)
    return q if rows >= columns else q.T


def _type_name(dtype: Any) -> str:
    """ "float32" for everything that frameworks call so."""
    if hasattr(dtype, "as_numpy_dtype"):  # TensorFlow
        return dtype.name
    text = str(dtype)
    return text.removeprefix("torch.") if text.startswith("torch.") else np.dtype(dtype).name


def _of_type(w: np.ndarray, dtype: Any) -> Any:
    if str(dtype).startswith("torch."):
        import torch

        return torch.from_numpy(w).to(dtype)
    return w.astype(getattr(dtype, "as_numpy_dtype", dtype))


# ---- frameworks: each makes a function of (x, w) for a BlocksparseMatMul ----


def _framework_of(x: Any, w: Any) -> str:
    for name in ("torch", "tensorflow"):
        module = sys.modules.get(name)
        if module is None:
            continue
        kinds = module.Tensor if name == "torch" else (module.Tensor, module.Variable)
        if isinstance(x, kinds) or isinstance(w, kinds):
            return name
    return "numpy"


def _numpy(bsmm: BlocksparseMatMul) -> Callable[..., Any]:
    def multiply(x: Any, w: Any) -> Any:
        x, w = np.asarray(x), np.asarray(w)
        bsmm._check(x.shape, w.shape, x.dtype, w.dtype, "x", bsmm.C)
        return bsmm._product("grad_input", x, bsmm._gathered(w), "cpu")

    return multiply


def _torch(bsmm: BlocksparseMatMul) -> Callable[..., Any]:
    import torch

    numbers: dict[torch.device, tuple[torch.Tensor, ...]] = {}

    def target(device: torch.device) -> str:
        return "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"

    def gathered(w: torch.Tensor) -> Any:
        return _aligned(w) if bsmm._in_order else w.index_select(0, numbers_on(w.device)[0])

    def scattered(dw: torch.Tensor) -> torch.Tensor:
        return dw if bsmm._in_order else dw.index_select(0, numbers_on(dw.device)[1])

    def numbers_on(device: torch.device) -> tuple[torch.Tensor, ...]:
        if device not in numbers:
            numbers[device] = tuple(
                torch.from_numpy(order).to(device) for order in (bsmm._number, bsmm._row_major)
            )
        return numbers[device]

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            with torch.cuda.device_of(x):  # autograd does it for backward
                return bsmm._product("grad_input", x, gathered(w), target(x.device))

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, dy: Any) -> Any:
            x, w = ctx.saved_tensors
            wants_dx, wants_dw = ctx.needs_input_grad
            dx = bsmm._product("forward", dy, gathered(w), target(dy.device)) if wants_dx else None
            dw = scattered(bsmm._weight_gradient(x, dy, target(dy.device))) if wants_dw else None
            return dx, dw

    @torch.compiler.disable
    def multiply(x: Any, w: Any) -> Any:
        x, w = torch.as_tensor(x), torch.as_tensor(w)
        bsmm._check(x.shape, w.shape, x.dtype, w.dtype, "x", bsmm.C)
        if x.device != w.device:
            raise ValueError(f"x is on {x.device} and w on {w.device}")
        if x.device.type not in ("cpu", "cuda"):
            raise ValueError(f"x is on {x.device}; cpu and cuda are where kernels run")
        return Product.apply(x, w)

    return multiply


def _tensorflow(bsmm: BlocksparseMatMul) -> Callable[..., Any]:
    import tensorflow as tf

    def product(op: str) -> Callable[..., Any]:
        return lambda x, w: bsmm._product(op, x, bsmm._gathered(w), "cpu", _empty_aligned)

    def weight_gradient(x: Any, dy: Any) -> Any:
        dw = bsmm._weight_gradient(x, dy, "cpu", _empty_aligned)
        return bsmm._scattered(dw, _empty_aligned)

    def run(compute: Callable[..., Any], shape: Any, *tensors: Any) -> Any:
        """Calls compute on NumPy arrays, for tensors of one type."""
        if not tf.executing_eagerly():
            result = tf.numpy_function(compute, tensors, tensors[0].dtype)
            result.set_shape(shape)
            return result
        result = compute(*map(np.asarray, tensors))
        if result.size == 0:
            return tf.convert_to_tensor(result)
        if result.dtype.name == "bfloat16":  # a type that NumPy cannot pass by DLPack
            return tf.bitcast(adopted(result.view(np.uint16)), tf.bfloat16)
        return adopted(result)

    def adopted(array: Any) -> Any:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())

    @tf.custom_gradient
    def differentiable(x: Any, w: Any) -> Any:
        place = len(x.shape) - 1 if bsmm.axis else 0
        y_shape = list(x.shape)
        y_shape[place] = bsmm.K

        def gradient(dy: Any) -> Any:
            return run(product("forward"), x.shape, dy, w), run(weight_gradient, w.shape, x, dy)

        return run(product("grad_input"), y_shape, x, w), gradient

    def multiply(x: Any, w: Any) -> Any:
        x, w = tf.convert_to_tensor(x), tf.convert_to_tensor(w)
        if x.shape.rank is None:
            raise ValueError("x has no known rank; set_shape says it")
        bsmm._check(x.shape, w.shape, x.dtype, w.dtype, "x", bsmm.C)
        return differentiable(x, w)

    return multiply


_FRAMEWORKS = {"numpy": _numpy, "torch": _torch, "tensorflow": _tensorflow}
