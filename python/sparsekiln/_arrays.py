"""Arrays of frameworks without DLPack's C exchange interface: the functions that sparsekiln._core calls for them."""

import sys
from typing import Any, NoReturn

import numpy as np

from sparsekiln._dtypes import NAMES, exported_name, numpy_dtype

_IMMUTABLE = {"jax", "jaxlib", "tensorflow"}


def exportable(operand: str, array: Any, written: bool) -> tuple[Any, str | None]:
    """The array, and None; or, of a type that NumPy does not export, such as bfloat16, words of its size, and its name.

    An operand that is read becomes a copy if its bytes or elements are not where a kernel looks for them: in the other byte
    order, or among other fields of a structured array.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor) and not written:  # one that has to be computed
        if array.requires_grad:
            refuse_gradient(operand)
        array = array.detach().resolve_neg()
    if written and _framework(array) in _IMMUTABLE:
        raise TypeError(f"arrays of {_framework(array)} are never written to; give a NumPy array, or leave the output out")
    if isinstance(array, np.ndarray):
        array = _readable(operand, array, written)
    name = exported_name(array)
    return (array, None) if name is None else (array.view(f"u{array.itemsize}"), name)


def _readable(operand: str, array: np.ndarray, written: bool) -> np.ndarray:
    if array.dtype.name not in NAMES and array.dtype.kind not in "biuc":  # of those the core says what would work
        raise TypeError(f"operand {operand} is an array of {array.dtype}; one of {', '.join(NAMES)} would work")
    native, whole = array.dtype.isnative, all(stride % array.itemsize == 0 for stride in array.strides)
    if native and whole:
        return array
    if written:
        why = "has gaps between its elements that are no multiple of their size" if native else f"is of {array.dtype.str}, another byte order"
        raise TypeError(f"operand {operand} {why}, and is written to; an array of {array.dtype.newbyteorder('=')} of its own would work")
    return array.astype(array.dtype.newbyteorder("="), order="C")


def in_own_order(array: Any) -> np.ndarray:
    """An array of NumPy in the byte order of this machine, where results have the type of what they are computed from."""
    array = np.asarray(array)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Not initialised, of `like`'s framework and device. dtype: NumPy's name, "float32"."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, numpy_dtype(dtype))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)
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


def refuse_form(operand: str, tensor: Any, reason: BaseException) -> NoReturn:
    """Refuses a tensor without memory that kernels read: a sparse or nested one, one on meta, or one that PyTorch traces with."""
    form = "nested" if getattr(tensor, "is_nested", False) else str(getattr(tensor, "layout", type(tensor).__name__))
    why = str(reason).partition("\n")[0].partition(". ")[0].rstrip(".")
    raise TypeError(
        f"operand {operand} is a tensor ({form}, {tensor.dtype}, on {tensor.device}) whose memory cannot be read: {why}; a dense one on "
        "the device of the kernel would work"
    ) from reason


def resolved(operand: str, array: Any, written: bool) -> Any:
    """A copy of a lazily negated tensor of PyTorch, whose values in memory have the right signs."""
    if written:
        raise TypeError(f"operand {operand} is lazily negated, and would be read with other signs than were written; .resolve_neg() would work")
    return array.detach().resolve_neg()


def was_written(array: Any) -> None:
    """Tells autograd that a tensor's values have changed."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor) and not array.is_inference():
        torch.autograd.graph.increment_version(array)
