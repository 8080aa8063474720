"""The library _torch_operators.so of the package: operators in C++, which find the kernel of a call and launch it without Python.

It knows the kernels that Python has found for index tensors, and asks Python where it knows none: for the first call of a kind, after a
write to index tensors, for operands that a kernel refuses as they are. Where the package has no such library, or PyTorch cannot load
it, Python serves every call.
"""

import ctypes
import os
import threading
from typing import Any, Protocol

import torch

from sparsekiln import _core

_FILE = os.path.join(os.path.dirname(_core.__file__), "_torch_operators.so")


class _Functions(Protocol):
    """What the library exports, as request.cpp and cuda.cpp of python/torch_operators define it."""

    def sparsekiln_torch_connect(self, interface: int) -> None: ...
    def sparsekiln_torch_launches(self) -> int: ...
    def sparsekiln_torch_add(
        self, weight: int, kernel: int, blocks: int, least: int, most: int, asks_after: int, crow_version: int, col_version: int
    ) -> None: ...  # fmt: skip
    def sparsekiln_torch_fail(self, reason: bytes) -> None: ...
    def sparsekiln_torch_forget(self, weight: int) -> None: ...
    def sparsekiln_torch_known(self) -> int: ...
    def sparsekiln_torch_set_overlapping(self, on: bool) -> None: ...
    def sparsekiln_torch_set_remembering(self, on: bool) -> None: ...
    def sparsekiln_torch_pretend_cuda(self, on: bool) -> None: ...


def _load() -> Any:
    try:
        torch.ops.load_library(_FILE)
        library, held = ctypes.CDLL(_FILE), ctypes.PyDLL(_FILE)
    except OSError:
        return None
    numbers, flag = ctypes.c_int64, ctypes.c_bool
    arguments = {
        "connect": [ctypes.c_void_p], "add": [numbers] * 8, "fail": [ctypes.c_char_p], "forget": [numbers], "launches": [], "known": [],
        "set_overlapping": [flag], "set_remembering": [flag], "pretend_cuda": [flag],
    }  # fmt: skip
    for name, types in arguments.items():
        function = getattr(held if types == [flag] else library, f"sparsekiln_torch_{name}")  # a flag is set before other threads go on
        setattr(library, f"sparsekiln_torch_{name}", function)
        function.argtypes, function.restype = types, numbers if name in ("launches", "known") else None
    library.sparsekiln_torch_connect(_core.interface())
    return library


#: None where there is none.
functions: _Functions | None = _load()


class _Refused(threading.local):
    error: BaseException | None = None


_refused = _Refused()


def _reason(error: BaseException) -> str:
    """What C++ raises instead, which is never empty."""
    return f"{type(error).__name__}: {error}"


def refuse(error: BaseException) -> None:
    """Ends a call that C++ has asked Python for: an exception does not get through C++."""
    assert functions is not None
    _refused.error = error
    functions.sparsekiln_torch_fail(_reason(error).encode(errors="replace"))


def refusal(error: RuntimeError) -> BaseException:
    """What was refused in the call that ended with `error`, or that itself."""
    refused, _refused.error = _refused.error, None
    return error if refused is None or _reason(refused) not in str(error) else refused  # else that of a graph, which raised it
