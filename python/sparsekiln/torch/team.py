"""Kernels on the cpu run on the threads of PyTorch's own operators.

Those spin for some milliseconds after each operator. Threads of another pool would compete with them for their cores.
"""

import ctypes
import os

import torch

from sparsekiln import _core


def share_threads() -> None:
    """From now on, for the whole process. Does nothing where PyTorch has no OpenMP runtime."""
    try:  # a look-up in a library takes in those that it was linked with
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        parallel = library.GOMP_parallel
    except (OSError, AttributeError):
        return
    _core.set_team(ctypes.cast(parallel, ctypes.c_void_p).value)
