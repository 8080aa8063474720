"""Large results on the cpu, in memory that the next call of the same shape finds again.

PyTorch asks the system for such memory each time, which then clears every page that is written to: for a recurrent layer that takes
longer than to normalise what is in it. Here it comes in large pages, where the system gives them to those who ask, and when the
last tensor in it is gone it is kept for the next one of about the same size, as memory of a GPU is.
"""

import contextlib
import ctypes
import mmap
import weakref

import torch

_LARGE = 8 << 20  # bytes
_UNIT = 2 << 20  # a large page
_MOST_FREE = 16  # pieces that are kept

# Without a lock: memory is given back wherever Python collects a tensor, also within these functions. Methods of lists are atomic.
_free: list[mmap.mmap] = []  #: the one that was given back last is at the end


def large_empty(like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """like.new_empty(shape); if it is large, and of the cpu, in such memory."""
    count = torch.Size(shape).numel()
    size = count * like.element_size()
    if size < _LARGE or like.device.type != "cpu" or not hasattr(mmap, "MAP_ANONYMOUS"):
        return like.new_empty(shape)
    piece = _take(-(-size // _UNIT) * _UNIT)
    # PyTorch holds this object for as long as a tensor is in the memory.
    lease = (ctypes.c_char * size).from_buffer(piece)
    weakref.finalize(lease, _free.append, piece).atexit = False
    result = like.new_empty(0)
    return result.set_(torch.frombuffer(lease, dtype=like.dtype, count=count).untyped_storage(), 0, shape)


def release() -> None:
    """Gives the memory that no tensor is in back to the system."""
    _free.clear()


def _take(size: int) -> mmap.mmap:
    while len(_free) > _MOST_FREE:
        _free.pop(0)
    for piece in reversed(_free.copy()):
        if size <= len(piece) <= size + size // 4:
            try:
                _free.remove(piece)
            except ValueError:  # another thread has it
                continue
            return piece
    piece = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # it is advice
            piece.madvise(mmap.MADV_HUGEPAGE)
    return piece
