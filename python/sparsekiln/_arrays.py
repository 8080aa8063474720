"""Arrays of frameworks without DLPack's C exchange interface: the functions that sparsekiln._core calls for them."""

import sys
from typing import Any

import numpy as np

_DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16)}


_IMMUTABLE = {"jax", "jaxlib", "tensorflow"}


def exportable(array: Any, written: bool) -> tuple[Any, bool]:
    """The array, and False; for bfloat16 that NumPy does not export, its 16-bit words, and True."""
    if written and _framework(array) in _IMMUTABLE:
        raise TypeError(f"arrays of {_framework(array)} are never written to; give a NumPy array, or leave the output out")
    if isinstance(array, np.ndarray) and array.dtype.name == "bfloat16":
        return array.view(np.uint16), True
    return array, False


def empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """An uninitialized array of `like`'s framework and device. dtype: "float32", "float16" or "bfloat16"."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, _DTYPES.get(dtype) or _bfloat16())
    framework = _framework(like)
    if framework == "cupy":
        import cupy

        with cupy.cuda.Device(like.device.id):
            return cupy.empty(shape, dtype)
    raise TypeError(
        f"arrays of {framework} cannot be made and then written to here; give the output as an operand (a NumPy array, "
        "say), or use sparsekiln.jax for JAX"
    )


def _framework(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def _bfloat16() -> np.dtype:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def current_stream(array: Any) -> int:
    """The stream that the array's framework is using, as a number; 0: the default one."""
    if _framework(array) == "cupy":
        with array.device:
            return sys.modules["cupy"].cuda.get_current_stream().ptr
    raise TypeError(f"the current stream of {_framework(array)} is not known; give `stream`, a number, or use its layer")


def refuse_gradient(operand: str) -> None:
    """Refuses an array that requires grad: a kernel's result would have none."""
    if sys.modules["torch"].is_grad_enabled():
        raise TypeError(
            f"operand {operand} requires grad, and no gradient flows through a kernel: sparsekiln.torch has layers, and .detach() "
            "or torch.no_grad() would work"
        )


def was_written(array: Any) -> None:
    """Tells autograd that a tensor's values have changed."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor) and not array.is_inference():
        torch.autograd.graph.increment_version(array)
