"""Arrays of NumPy, PyTorch and TensorFlow: which is which, and products that each of them differentiates."""

from __future__ import annotations

import sys
from typing import Any, Callable, Protocol

import numpy as np

from sparsekiln._arrays import in_own_order

Empty = Callable[..., Any]


class Product(Protocol):
    """y of x and w, linear in each. Arrays are NumPy's or PyTorch's; `empty` makes a result that is NumPy's, like np.empty."""

    #: Types of PyTorch devices that it computes on.
    _devices: tuple[str, ...]

    def _check_operands(self, x: Any, w: Any) -> None: ...
    def _y_shape(self, x_shape: Any) -> list[Any]: ...
    def _y(self, x: Any, w: Any, empty: Empty | None = None) -> Any: ...
    def _dx(self, dy: Any, w: Any, empty: Empty | None = None) -> Any: ...
    def _dw(self, x: Any, dy: Any, empty: Empty | None = None) -> Any: ...


def framework_of(*arrays: Any) -> str:
    """ "torch" or "tensorflow" where one of the arrays is, else "numpy"."""
    for name in ("torch", "tensorflow"):
        module = sys.modules.get(name)
        if module is None:
            continue
        kinds = module.Tensor if name == "torch" else (module.Tensor, module.Variable)
        if any(isinstance(array, kinds) for array in arrays):
            return name
    return "numpy"


def type_name(dtype: Any) -> str:
    """ "float32" for everything that frameworks call so."""
    if hasattr(dtype, "as_numpy_dtype"):  # TensorFlow
        return dtype.name
    text = str(dtype)
    return text.removeprefix("torch.") if text.startswith("torch.") else np.dtype(dtype).name


def of_type(w: np.ndarray, dtype: Any) -> Any:
    if str(dtype).startswith("torch."):
        import torch

        return torch.from_numpy(w).to(dtype)
    return w.astype(getattr(dtype, "as_numpy_dtype", dtype))


def target_of(array: Any) -> str:
    """The target of the device that an array of NumPy or PyTorch is on."""
    if isinstance(array, np.ndarray) or array.device.type == "cpu":
        return "cpu"
    return f"cuda:{array.device.index or 0}"


def aligned(array: Any) -> Any:
    """The array, or a copy of it in a form that kernels take, of NumPy or PyTorch."""
    if isinstance(array, np.ndarray):
        array = np.ascontiguousarray(array)
        return array if array.ctypes.data % 16 == 0 else array.copy()
    array = array.contiguous()
    return array if array.data_ptr() % 16 == 0 else array.clone()


def empty_aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Like np.empty, with the alignment that TensorFlow needs to take over the memory."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + 64, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + size].view(dtype).reshape(shape)


class Differentiable:
    """product(x, w), for arrays of each framework. What a framework needs is made when its arrays first come."""

    def __init__(self, product: Product):
        self._product = product
        self._made: dict[str, Callable[..., Any]] = {}

    def __call__(self, x: Any, w: Any) -> Any:
        framework = framework_of(x, w)
        if framework not in self._made:
            self._made[framework] = _FRAMEWORKS[framework](self._product)
        return self._made[framework](x, w)


def _numpy(product: Product) -> Callable[..., Any]:
    def multiply(x: Any, w: Any) -> Any:
        x, w = in_own_order(x), in_own_order(w)
        product._check_operands(x, w)
        return product._y(x, w)

    return multiply


def _torch(product: Product) -> Callable[..., Any]:
    import torch

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            with torch.cuda.device_of(x):  # autograd does it for backward
                return product._y(x, w)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, dy: Any) -> Any:
            x, w = ctx.saved_tensors
            wants_dx, wants_dw = ctx.needs_input_grad
            dx = product._dx(dy, w) if wants_dx else None
            dw = product._dw(x, dy).reshape(w.shape) if wants_dw else None
            return dx, dw

    @torch.compiler.disable
    def multiply(x: Any, w: Any) -> Any:
        x, w = torch.as_tensor(x), torch.as_tensor(w)
        product._check_operands(x, w)
        if x.device != w.device:
            raise ValueError(f"x is on {x.device} and w on {w.device}")
        if x.device.type not in product._devices:
            kernels = " and ".join(product._devices) + (" are" if len(product._devices) > 1 else " is")
            raise ValueError(f"x is on {x.device}; {kernels} where kernels run")
        return Function.apply(x, w)

    return multiply


def _tensorflow(product: Product) -> Callable[..., Any]:
    import tensorflow as tf

    def computed(compute: Callable[..., Any]) -> Callable[..., Any]:
        return lambda first, second: compute(first, second, empty_aligned)

    def run(compute: Callable[..., Any], shape: Any, *tensors: Any) -> Any:
        """Calls compute on NumPy arrays, for tensors of one type."""
        if not tf.executing_eagerly():
            result = tf.numpy_function(computed(compute), tensors, tensors[0].dtype)
            result.set_shape(shape)
            return result
        result = computed(compute)(*map(np.asarray, tensors))
        if result.size == 0:
            return tf.convert_to_tensor(result)
        if result.dtype.name == "bfloat16":  # a type that NumPy cannot pass by DLPack
            return tf.bitcast(adopted(result.view(np.uint16)), tf.bfloat16)
        return adopted(result)

    def adopted(array: Any) -> Any:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())

    @tf.custom_gradient
    def differentiable(x: Any, w: Any) -> Any:
        def gradient(dy: Any) -> Any:
            return run(product._dx, x.shape, dy, w), tf.reshape(run(product._dw, None, x, dy), w.shape)

        return run(product._y, product._y_shape(x.shape), x, w), gradient

    def multiply(x: Any, w: Any) -> Any:
        x, w = tf.convert_to_tensor(x), tf.convert_to_tensor(w)
        if x.shape.rank is None:
            raise ValueError("x has no known rank; set_shape says it")
        product._check_operands(x, w)
        return differentiable(x, w)

    return multiply


_FRAMEWORKS = {"numpy": _numpy, "torch": _torch, "tensorflow": _tensorflow}
