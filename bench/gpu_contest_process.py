"""The contest of gpu_contest.py in a process of its own: a library that crashes or hangs costs only itself."""

import multiprocessing
import pathlib
import time

import gpu_contest
from workloads import Workload

_SECONDS = 40  # of one contestant, with its tuning
_START_SECONDS = 120  # of importing the libraries


class NotReached(Exception):
    """Time is up."""


class Unavailable(Exception):
    """There is no contest on this machine, and why."""


class ContestProcess:
    """Measures workloads, one after the other, in a process that is started again after it was broken."""

    def __init__(self, folders: list[str], rounds: int, environment: dict[str, str], serve=gpu_contest.worker):
        """`serve` gets a pipe and the other arguments."""
        self._arguments, self._serve = (folders, rounds, environment), serve
        self._process, self._pipe = None, None
        self.about = ""
        self._unavailable = ""

    def refuse(self, why: str) -> None:
        """There is to be no contest."""
        self._unavailable = why

    def _start(self, until: float) -> None:
        if self._unavailable:
            raise Unavailable(self._unavailable)
        spawn = multiprocessing.get_context("spawn")
        self._pipe, there = spawn.Pipe()
        self._process = spawn.Process(target=self._serve, args=(there, *self._arguments), daemon=True)
        self._process.start()
        there.close()
        try:
            kind, text = self._receive(_START_SECONDS, until)
        except (EOFError, TimeoutError) as error:
            self.stop()
            kind, text = "unavailable", f"its process did not start: {error}"
        if kind != "ready":
            self._unavailable = text
            self.stop()
            raise Unavailable(text)
        self.about = text

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process = self._pipe = None

    def _receive(self, seconds: float, until: float) -> tuple:
        """A message. TimeoutError if none comes in so many seconds, NotReached if `until` was before that, EOFError if the process
        ended."""
        allowed = min(seconds, until - time.monotonic())
        if allowed <= 0 or not self._pipe.poll(allowed):
            if allowed < seconds:
                raise NotReached
            raise TimeoutError(f"it ran longer than {seconds} s")
        try:
            return self._pipe.recv()
        except EOFError:
            self._process.join()
            raise EOFError(f"its process ended with status {self._process.exitcode}") from None

    def measure(self, workload: Workload, layout: pathlib.Path, until: float) -> dict:
        """By contestant. One that breaks the process is left out of the next try, with the reason."""
        left_out: dict[str, str] = {}
        while True:
            if self._process is None:
                self._start(until)
            at = gpu_contest.BEFORE
            try:
                self._pipe.send((workload, str(layout), left_out))
                kind, answer = "at", at
                while kind == "at":
                    at = answer
                    kind, answer = self._receive(_SECONDS, until)
                if kind == "done":
                    return answer
            except NotReached:
                self.stop()
                raise
            except (EOFError, TimeoutError, BrokenPipeError) as error:
                answer = str(error)
            self.stop()
            if at in left_out or len(left_out) > 20 or at == gpu_contest.BEFORE:
                return {at: {"ok": False, "why": answer}}
            left_out[at] = answer
