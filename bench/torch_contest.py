"""What the benchmarks of PyTorch layers share: how they are called, and how contestants take turns."""

import argparse
import os
import pathlib
import platform
import sys
import time
from collections.abc import Callable

import publish
import torch

_TURN = 3.0  # milliseconds
_MOST_CALLS = 20


def options(description: str, script: str, rounds: int, add_options=lambda parser: None) -> argparse.Namespace:
    """The arguments of a benchmark: --short, --rounds, --threads and --write, and what `add_options(parser)` adds. PyTorch then has so many threads, on as many
    cores, and draws the same numbers each time."""
    parser = publish.parser(description, build=False)
    parser.add_argument("--rounds", type=int, help=f"{rounds} where not given")
    cores = sorted(os.sched_getaffinity(0))
    parser.add_argument("--threads", type=int, default=len(cores), choices=range(1, len(cores) + 1), help="cores, of all contestants")
    publish.add_write(parser, script)
    add_options(parser)
    given = parser.parse_args()
    if os.getloadavg()[0] > 1:
        print("others are at work on this machine: dense layers suffer most from it; measure again when it is idle", file=sys.stderr)
    os.sched_setaffinity(0, cores[: given.threads])
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    given.rounds = given.rounds or (2 if given.short else rounds)
    return given


def contest(contestants: dict, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each, in rounds in which all of them take turns, beginning with another each time. A short contestant is called
    several times in a row; and as often before, uncounted, because what the one before left in the caches is not its fault."""
    names = list(contestants)
    times: dict[str, list[float]] = {name: [] for name in names}
    for run in contestants.values():
        run()
    once = {name: min(_milliseconds(contestants[name], 1) for _ in range(3)) for name in names}
    calls = {name: max(1, min(_MOST_CALLS, int(_TURN / once[name]))) for name in names}
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            _milliseconds(contestants[name], calls[name])
            times[name].append(_milliseconds(contestants[name], calls[name]))
    return times


def turns(
    contestants: dict, rounds: int, calls: int, clock: Callable[[], float] = time.thread_time, wait: Callable[[], object] = lambda: None
) -> dict[str, list[float]]:  # fmt: skip
    """Microseconds of a call of each, in rounds in which all of them take turns. `clock`: by default the thread's own time, which does not
    count those of other processes; `wait`: for what calls have begun elsewhere."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            run()
            wait()
            begin = clock()
            for _ in range(calls):
                run()
            times[name].append(1e6 * (clock() - begin) / calls)
    return times


def _milliseconds(run: Callable[[], object], calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        run()
    return 1e3 * (time.perf_counter() - begin) / calls


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
