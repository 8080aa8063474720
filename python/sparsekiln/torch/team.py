"""Kernels on the cpu run on the threads of PyTorch's own operators, where those spin for some milliseconds after each operator:
threads of another pool would compete with them for their cores. Threads that sleep at once are no such hindrance, and take longer
to wake than the library's own.
"""

import ctypes
import os
from collections.abc import Mapping

import torch

from sparsekiln import _core


def threads_spin(environment: Mapping[str, str]) -> bool:
    """Whether those of OpenMP wait for work in a loop before they sleep, as they do if nothing else is said."""
    spins = environment.get("GOMP_SPINCOUNT", environment.get("KMP_BLOCKTIME", ""))
    return spins != "0" and (spins != "" or environment.get("OMP_WAIT_POLICY", "").lower() != "passive")


def share_threads() -> None:
    """From now on, for the whole process. Does nothing where PyTorch has no OpenMP runtime, or one whose threads sleep."""
    if not threads_spin(os.environ):
        return
    try:  # a look-up in a library takes in those that it was linked with
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        parallel = library.GOMP_parallel
    except (OSError, AttributeError):
        return
    _core.set_team(ctypes.cast(parallel, ctypes.c_void_p).value)
