"""The bar that tuning draws on standard error."""

import sys
from collections.abc import Callable
from typing import Any

_WIDTH = 24


class bar:
    """A context that gives what _core.compile calls: None, the caller's own, or a bar on standard error."""

    def __init__(self, progress: bool | Callable[..., Any] | None) -> None:
        self._own = progress if callable(progress) else None
        self._draws = self._own is None and (_is_terminal() if progress is None else bool(progress))
        self._drawn = False

    def __enter__(self) -> Callable[..., Any] | None:
        return self._own or (self._draw if self._draws else None)

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            _write("\n")

    def _draw(self, settled: int, candidates: int, best_us: float, seconds: float) -> None:
        done = _WIDTH * settled // max(candidates, 1)
        best = f"best {best_us:.1f} us" if best_us > 0 else "nothing measured yet"
        _write(f"\rtuning [{'#' * done}{' ' * (_WIDTH - done)}] {settled}/{candidates}, {best}, {seconds:.0f} s ")
        self._drawn = True


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
