"""Bars on standard error."""

import sys
from collections.abc import Callable
from typing import Any

_WIDTH = 24


class bar:
    """A context that gives what is to be told of the progress: None, the caller's own function, or one that draws a bar on standard
    error.

    progress  that function; whether a bar is drawn; or None, which draws it where standard error is a terminal
    what      what is being done, at the beginning of the bar
    rest      text to its end, of all that the function is told: first how many are done, and of how many
    """

    def __init__(self, progress: bool | Callable[..., Any] | None, what: str, rest: Callable[..., str]) -> None:
        self._own = progress if callable(progress) else None
        self._draws = self._own is None and (_is_terminal() if progress is None else bool(progress))
        self._drawn = False
        self._what, self._rest = what, rest

    def __enter__(self) -> Callable[..., Any] | None:
        return self._own or (self._draw if self._draws else None)

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            _write("\n")

    def _draw(self, done: int, of: int, *others: Any) -> None:
        marks = _WIDTH * done // max(of, 1)
        _write(f"\r{self._what} [{'#' * marks}{' ' * (_WIDTH - marks)}] {done}/{of}, {self._rest(done, of, *others)} ")
        self._drawn = True


def tuning_bar(progress: bool | Callable[..., Any] | None) -> bar:
    """What _core.compile calls: told of candidates settled and in all, the best so far in microseconds, and seconds."""

    def rest(settled: int, candidates: int, best_us: float, seconds: float) -> str:
        best = f"best {best_us:.1f} us" if best_us > 0 else "nothing measured yet"
        return f"{best}, {seconds:.0f} s"

    return bar(progress, "tuning", rest)


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it has been closed
        return False


def _write(text: str) -> None:
    """A message that cannot be written is no reason to end."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass
