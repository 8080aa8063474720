"""Kernels with the layout compiled in, for layouts that stay: made in the background, and taken when they are there.

A layer's first kernels take the layout as tables, so that all layouts share a compile and a relayout is quick. They are priced for
a layout as any; code that was compiled for a layout has the config that suits it, and its tables beside it.
"""

import atexit
import contextlib
import os
import queue
import sys
import threading
import warnings
from collections.abc import Callable

import torch

#: Calls of a kernel, and seconds since its layout was first used, after which the layout is taken to stay.
CALLS = 64
SECONDS = 10.0

_NICENESS = 10
_SWITCHES = {"": True, "1": True, "on": True, "0": False, "off": False}


def _stated() -> bool:
    said = os.environ.get("SPARSEKILN_BAKING", "")
    if said.lower() not in _SWITCHES:
        warnings.warn(f"SPARSEKILN_BAKING is '{said}'; on and off would work. It counts as on", stacklevel=2)
    return _SWITCHES.get(said.lower(), True)


_on = _stated()


def set_baking(on: bool) -> None:
    """Whether kernels of layouts that stay are compiled again in the background, with the layout in their code.

    They are taken as soon as they are there, for each call from then on; their results may differ from those before in how they
    are rounded. CUDA graphs that were captured before keep the kernels that they have. It is on, unless the environment has
    SPARSEKILN_BAKING=off; under torch.use_deterministic_algorithms nothing is baked. A kernel that is being compiled when this is
    switched off is not taken.
    """
    global _on
    _on = bool(on)


def is_on() -> bool:
    """Whether anything is baked now."""
    return _on and not torch.are_deterministic_algorithms_enabled()


class Worker:
    """A thread of low priority that does one job after the other. A process that was forked has one of its own."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._starting = threading.Lock()
        self._ends = False

    def do(self, job: Callable[[], None]) -> None:
        if self._process != os.getpid():
            self._begin()
        if self._ends:
            return
        self._jobs.put(job)
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="sparsekiln baking", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # of this thread, and of those that it starts
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while (job := self._jobs.get()) is not None and not self._ends:
            try:
                job()
            except Exception as error:  # warnings may be errors; the thread goes on
                print(f"sparsekiln: baking: {error}", file=sys.stderr)

    def wait(self) -> None:
        """Until all jobs so far are done, or dropped."""
        done = threading.Event()
        self.do(done.set)
        while not self._ends and not done.wait(0.1):
            pass

    def end(self) -> None:
        """Waits for the job that is being done, and drops the others: code must not be unloaded under a compile."""
        self._ends = True
        self._jobs.put(None)
        if self._thread is not None and self._process == os.getpid():
            self._thread.join()


worker = Worker()
atexit.register(worker.end)

_said = False


def say_once(error: Exception) -> None:
    """That a bake has failed; the kernels that are there stay in use."""
    global _said
    if not _said:
        _said = True
        warnings.warn(f"a kernel was not compiled with its layout, and goes on without: {error}", RuntimeWarning, stacklevel=2)
