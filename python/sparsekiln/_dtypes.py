"""The element types, as the core lists them."""

from typing import Any

import numpy as np

from sparsekiln import _core

#: From NumPy's and PyTorch's names of element types to the core's: "float32" to "f32".
NAMES: dict[str, str] = {array_name: name for name, array_name, *_ in _core.element_types}
#: From NumPy's and PyTorch's name to that of the type in which elements are summed, also of block scales, dbias and dblock_scales.
SUMS: dict[str, str] = {array_name: sums for _, array_name, sums, *_ in _core.element_types}
#: Bytes of an element.
BYTES: dict[str, int] = {array_name: bits // 8 for _, array_name, _, bits, *_ in _core.element_types}
#: Those that the cpu target alone computes with.
CPU_ONLY: frozenset[str] = frozenset(array_name for _, array_name, _, _, on_cuda, _ in _core.element_types if not on_cuda)
#: As NAMES, of those that gradients can be computed of, which layers take.
TRAINED: dict[str, str] = {array_name: name for name, array_name, *_, forward_only in _core.element_types if not forward_only}


def listed() -> str:
    """ "float32, float16, bfloat16 and float64": what layers take."""
    *others, last = TRAINED
    return f"{', '.join(others)} and {last}"


def numpy_dtype(name: str) -> np.dtype:
    """NumPy's own, else that of ml_dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def exported_name(array: Any) -> str | None:
    """The name of the type of a NumPy array that NumPy does not export; None where it does."""
    name = array.dtype.name if isinstance(array, np.ndarray) else None
    added = 2  # what NumPy says of types that a package such as ml_dtypes has added; its own are 1
    return name if name in NAMES and array.dtype.isbuiltin == added else None
