"""Times of several calls that take turns, so that all of them meet the same disturbances of a machine."""

import time
from collections.abc import Callable

import numpy as np
from tqdm import tqdm


def take_turns(what: str, calls: list[Callable], arguments: list) -> np.ndarray:
    """Milliseconds [rounds, calls]: a round is one argument, which all calls take in turn. What comes first is not counted."""
    times = np.empty((len(arguments), len(calls)))
    for call in calls:
        call(arguments[0])
    for taken, argument in zip(times, tqdm(arguments, desc=what, leave=False)):
        for index, call in enumerate(calls):
            begin = time.perf_counter()
            call(argument)
            taken[index] = 1e3 * (time.perf_counter() - begin)
    return times
