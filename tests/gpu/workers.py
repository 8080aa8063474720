"""Processes that share the kernel suite: started, watched, and started again after a crash."""

import os
import pathlib
import signal
import subprocess
import time

from claims import COMPILE, Claims

_CONTEXT_LOST = 86  # kContextLost in tests/kernels/table.h
_LAST_WORDS = 4000  # characters of a process's output


def describe(status: int) -> str:
    return f"crashed: {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


class Workers:
    """`count` processes of `command`. One that crashes, or spends more than `limit` seconds on one part, fails that part,
    and another replaces it; processes without a part are in `broken`."""

    def __init__(self, command: list[str], environment: dict, folder: pathlib.Path, count: int, claims: Claims, limit: float):
        self.command, self.environment, self.folder = command, environment, folder
        self.claims, self.limit = claims, limit
        self.broken: list[str] = []
        self._started = 0
        self._most = count + 64  # crashes after which it still continues
        self._running: list[tuple[subprocess.Popen, pathlib.Path]] = []
        for _ in range(count):
            self._start()

    def _start(self) -> None:
        self._started += 1
        log = self.folder / f"worker-{self._started}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        self._running.append((process, log))

    def step(self, until: float) -> bool:
        """Checks all of them; False when none is left."""
        self.claims.look()
        now = time.time()
        for process, log in list(self._running):
            status = process.poll()
            late = [line for line in self.claims.of_worker(process.pid) if now - line["at"] > self.limit]
            if status is None and not late:
                continue
            if status is None:
                self._kill(process)
            self._running.remove((process, log))
            self.claims.look()
            begun = self.claims.of_worker(process.pid)
            why = f"ran longer than {self.limit:.0f} s" if status is None else describe(status)
            words = log.read_text(errors="replace")[-_LAST_WORDS:]
            for line in begun:
                stage = "compiling: " if line["begin"].startswith(COMPILE) else ""
                self.claims.fail(line, f"{stage}{why}\n{words}".rstrip())
            if status == 0:
                continue
            if not begun and status != _CONTEXT_LOST:
                self.broken.append(f"a process that had begun nothing {why}\n{words}".rstrip())
            if now < until and self._started < self._most and len(self.broken) < 3:
                self._start()
        return bool(self._running)

    def _kill(self, process: subprocess.Popen) -> None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def kill(self) -> None:
        """Ends the remaining ones: what they had begun counts as not reached."""
        for process, _ in self._running:
            self._kill(process)
        self._running.clear()
