"""Large results on the cpu: memory that is asked for in large pages.

What PyTorch allocates there is new to the process each time, and each page of it is cleared when it is first written to. With
pages of 4 KB that takes longer than normalising what is in them.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import torch

_LARGE = 8 << 20  # bytes
_PAGE = 4096
_MADV_HUGEPAGE = 14  # madvise(2), Linux


def _madvise() -> Callable[[Any, Any, Any], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        function = ctypes.CDLL(None).madvise
    except (AttributeError, OSError):
        return None
    function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return function


_advise = _madvise()


def large_empty(like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """like.new_empty(shape); if large, and of the cpu, in large pages where the system gives them to those who ask."""
    result = like.new_empty(shape)
    size = result.numel() * result.element_size()
    if size >= _LARGE and result.device.type == "cpu" and _advise is not None:
        begin = -(-result.data_ptr() // _PAGE) * _PAGE
        _advise(begin, result.data_ptr() + size - begin, _MADV_HUGEPAGE)  # advice: it may fail
    return result
