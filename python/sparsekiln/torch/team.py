"""Kernels on the cpu run on the threads of PyTorch's own operators, where those spin for some milliseconds after each operator:
threads of another pool would compete with them for their cores. Threads that sleep at once are no such hindrance, and take longer
to wake than the library's own.
"""

import ctypes
import os
from collections.abc import Mapping

import torch

from sparsekiln import _core


def gomp_threads_spin(environment: Mapping[str, str]) -> bool:
    """Whether threads of GNU's OpenMP runtime wait for work in a loop before they sleep, as they do if nothing else is said. It reads no
    other variables for that (https://gcc.gnu.org/onlinedocs/libgomp/Environment-Variables.html)."""
    spins = environment.get("GOMP_SPINCOUNT", "").strip()
    if spins:
        return spins != "0"
    return environment.get("OMP_WAIT_POLICY", "").strip().lower() != "passive"


def share_threads() -> None:
    """From now on, for the whole process. Does nothing where PyTorch has no OpenMP runtime, or one whose threads sleep."""
    try:  # a look-up in a library takes in those that it was linked with
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        parallel = library.GOMP_parallel
    except (OSError, AttributeError):
        return
    blocktime = getattr(library, "kmp_get_blocktime", None)  # of the runtimes of LLVM and Intel; 0: threads sleep at once
    if gomp_threads_spin(os.environ) if blocktime is None else blocktime() > 0:
        _core.set_team(ctypes.cast(parallel, ctypes.c_void_p).value)
