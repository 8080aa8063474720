"""Work of other threads: kernels that are compiled while the program goes on."""

import atexit
import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable


class Worker:
    """Threads that do one job after the other, each the first one that waits. A process that was forked has threads of its own."""

    def __init__(self, name: str, threads: int = 1, niceness: int = 0) -> None:
        self._name, self._most, self._niceness = name, threads, niceness
        self._begin()
        atexit.register(self.end)

    def _begin(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()
        self._state = threading.Condition()
        self._waiting = 0  # jobs that are not done
        self._ends = False

    def do(self, job: Callable[[], None]) -> None:
        if self._process != os.getpid():
            self._begin()
        if self._ends:
            return
        with self._state:
            self._waiting += 1
            self._threads = [one for one in self._threads if one.is_alive()]
            if len(self._threads) < min(self._most, self._waiting):
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._jobs.put(job)

    def _work(self) -> None:
        if self._niceness:
            with contextlib.suppress(OSError, AttributeError):  # of this thread, and of those that it starts
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._niceness)
        while (job := self._jobs.get()) is not None and not self._ends:
            try:
                job()
            except Exception as error:  # warnings may be errors; the thread goes on
                print(f"{self._name}: {error}", file=sys.stderr)
            finally:
                with self._state:
                    self._waiting -= 1
                    self._state.notify_all()

    def wait(self) -> None:
        """Until all jobs so far are done, or dropped."""
        with self._state:
            while self._waiting and not self._ends:
                self._state.wait(0.1)

    def end(self) -> None:
        """Waits for the jobs that are being done, and drops the others: code must not be unloaded under a compile."""
        self._ends = True
        for _ in self._threads:
            self._jobs.put(None)
        if self._process == os.getpid():
            for thread in self._threads:
                thread.join()


class Job:
    """Something that one thread does, this one or another."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._claim = threading.Lock()
        self._ended = threading.Event()
        self._process = os.getpid()

    def run(self) -> None:
        """Does it, unless it was begun. What fails is left to those who need the result, and say so."""
        if self._claim.acquire(blocking=False):
            try:
                with contextlib.suppress(Exception):
                    self._work()
            finally:
                self._ended.set()

    def is_lost(self) -> bool:
        """Whether another process was to do it, which this one was forked from."""
        return self._process != os.getpid()

    def has_ended(self) -> bool:
        """Waits for it if it was begun. False where it was not: now it is the caller's."""
        if self.is_lost():
            return False
        if self._claim.acquire(blocking=False):
            self._ended.set()
            return False
        self._ended.wait()
        return True


#: Compiles, on as many threads as there are cores.
worker = Worker("sparsekiln compiles", threads=min(os.cpu_count() or 1, 16))
