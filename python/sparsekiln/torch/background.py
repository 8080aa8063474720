"""Work of other threads: kernels that are compiled while the program goes on."""

import atexit
import contextlib
import os
import queue
import sys
import threading
import warnings
from collections.abc import Callable


class Worker:
    """Threads that do jobs in the order in which they were given. A process that was forked has threads of its own."""

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
        with self._state:
            if self._ends:
                return
            self._waiting += 1
            self._jobs.put(job)
            self._threads = [one for one in self._threads if one.is_alive()]
            if len(self._threads) < min(self._most, self._waiting):
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # there are as many as the system allows: the job waits for another thread, or for its caller
                    return
                self._threads.append(thread)

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
            while self._waiting and not self._ends and any(one.is_alive() for one in self._threads):
                self._state.wait(0.1)

    def end(self) -> None:
        """Waits for the jobs that are being done, and drops the others: code must not be unloaded under a compile."""
        with self._state:
            self._ends = True
            threads = self._threads if self._process == os.getpid() else []
            for _ in threads:
                self._jobs.put(None)
        for thread in threads:
            thread.join()


_said: set[str] = set()


def say_once(what: str, error: Exception) -> None:
    """Warns of something that goes on without what has failed."""
    if what not in _said:
        _said.add(what)
        warnings.warn(f"{what}: {error}", RuntimeWarning, stacklevel=3)


class Job:
    """Something that one thread does, this one or another."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._claim = threading.Lock()
        self._ended = threading.Event()
        self._process = os.getpid()
        self.error: Exception | None = None  #: why it has failed

    def run(self) -> None:
        """Does it, unless it was begun. What fails is left to those who need the result."""
        if self._claim.acquire(blocking=False):
            try:
                self._work()
            except Exception as error:
                self.error = error
            finally:
                self._ended.set()

    def finish(self) -> None:
        """Does it, or waits until another thread has."""
        self.run()
        self._ended.wait()

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


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


#: Compiles, on as many threads as there are cores.
worker = Worker("sparsekiln compiles", threads=min(_cores(), 16))
