"""Measures a workload's contestants (contestants.py) in one process: all take turns in every round, and count only if right.

Each is timed in up to four ways. `cold`: launches rotate through copies of the operands that are four times the L2 together;
`warm`: each launch has the same operands. `graph`: many launches from a CUDA graph; `events`: launched one by one, where what
a call costs on the cpu counts too. Inputs are small integers while results are checked, and normal random numbers while
times are taken, since a GPU's clock depends on them. One whose launches take long has fewer samples.

`worker` serves gpu_workloads.py in a process of its own, which a contestant may crash or hang.
"""

import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

_ROUNDS = 10
_SHARE = 1.0  # seconds in which a contestant takes its samples, if they are some
_FEWEST = 3  # samples, however long they take
_LEAST_MS = 1.0  # of a sample: many launches, so that the events' own time does not count
_MOST_LAUNCHES = 256
_L2S = 4  # the copies of operands together, in sizes of the L2
# How far the relative Frobenius norm of the error may be from 0, by type: the distance between two numbers.
_BOUNDS = {"f32": 2.0**-20, "tf32": 2.0**-20, "f16": 2.0**-10, "bf16": 2.0**-7}


#: What a worker tells before the first contestant: a fault there is no contestant's.
BEFORE = "what comes before the first contestant"


class CudaClock:
    device, ways = "cuda", ("graph", "events")

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError(f"PyTorch {torch.__version__} finds no CUDA device")
        self._torch = torch
        self.l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self.about = f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}"

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()

    def memory_left(self) -> int:
        return self._torch.cuda.mem_get_info()[0]

    def release(self) -> None:
        self._torch.cuda.synchronize()
        self._torch.cuda.empty_cache()

    def prepare(self, way: str, launches: list[Callable[[], None]]) -> Callable[[], None]:
        """What launches all of them in order."""
        if way == "graph":
            graph = self._torch.cuda.CUDAGraph()
            with self._torch.cuda.graph(graph):
                for launch in launches:
                    launch()
            graph.replay()
            self.synchronize()
            return graph.replay

        def one_by_one() -> None:
            for launch in launches:
                launch()

        return one_by_one

    def milliseconds(self, run: Callable[[], None]) -> float:
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)


class CpuClock(CudaClock):
    """Without a GPU: so that all of it can be tried."""

    device, ways, l2_bytes = "cpu", ("events",), 0

    def __init__(self) -> None:
        import torch

        self._torch, self.about = torch, f"PyTorch {torch.__version__} on the cpu"

    def synchronize(self) -> None:
        pass

    def memory_left(self) -> int:
        return 2**30

    def release(self) -> None:
        pass

    def milliseconds(self, run: Callable[[], None]) -> float:
        begin = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - begin)


def summary(samples: list[float]) -> dict:
    """Microseconds of one launch."""
    cuts = statistics.quantiles(samples, n=5, method="inclusive") if len(samples) > 1 else samples * 2
    return {"us": statistics.median(samples), "p20_us": cuts[0], "p80_us": cuts[-1], "samples": len(samples)}


def check(result, expected, dtype, type_name: str) -> dict:
    """Against the dense product in float32: exactly, rounded once, or by a bound."""
    rounded, result = expected.to(dtype).float(), result.float()
    exact = bool((result == rounded).all())
    error = float(((result - expected).norm() / expected.norm().clamp(min=1)).item())
    return {"ok": exact or error <= _BOUNDS[type_name], "exact": exact, "rel_error": error if error == error else None}


def judge(contestant, case, first) -> dict:
    """Its result against the product; of one that computes something else, against what it says, exactly."""
    result, own = contestant.result(first), getattr(contestant, "expected", None)
    if own is None:
        return check(result, case.expected, case.dtype, case.workload.type)
    exact = bool((result == own).all())
    return {"ok": exact, "exact": exact, "rel_error": None}


class Entrant:
    """A contestant that was right, with what its samples launch."""

    def __init__(self, contestant, clock, first):
        self.times: dict[str, dict[str, list[float]]] = {"cold": {}, "warm": {}}
        self.refused: dict[str, str] = {}
        self._spent, self._rounds = 0.0, 0
        self._runs: dict[tuple[str, str], tuple[Callable[[], None], int]] = {}
        copies = min(_MOST_LAUNCHES, max(1, -(-_L2S * clock.l2_bytes // first.bytes)))
        copies = max(1, min(copies, clock.memory_left() // 2 // first.bytes))
        self.rotation = {"copies": copies, "operand_bytes": first.bytes, "cold": copies * first.bytes >= _L2S * clock.l2_bytes}
        sets = [first, *(contestant.operands() for _ in range(copies - 1))]
        for one in sets:
            for tensor in one.inputs:
                tensor.normal_()

        def launch_of(one) -> Callable[[], None]:
            return lambda: contestant.launch(one)

        rotating = [launch_of(one) for one in sets]
        once = [clock.milliseconds(rotating[i % copies]) for i in range(5)]
        self.launches = max(copies, min(_MOST_LAUNCHES, round(_LEAST_MS / max(1e-4, statistics.median(once)))))
        for cache, chosen in (("cold", rotating), ("warm", rotating[:1])):
            launches = [chosen[i % len(chosen)] for i in range(self.launches)]
            for way in clock.ways:
                try:
                    run = clock.prepare(way, launches)
                except Exception as error:  # it synchronises, allocates, … while a graph is captured
                    self.refused[way] = f"{type(error).__name__}: {error}".splitlines()[0]
                    clock.synchronize()
                    continue
                self._runs[cache, way] = (run, len(launches))
                self.times[cache][way] = []

    def sample(self, clock) -> None:
        """One of each way, unless its share of the time is spent."""
        if self._rounds >= _FEWEST and self._spent > _SHARE:
            return
        begin = time.perf_counter()
        for (cache, way), (run, launches) in self._runs.items():
            self.times[cache][way].append(1e3 * clock.milliseconds(run) / launches)
        self._rounds += 1
        self._spent += time.perf_counter() - begin

    def document(self) -> dict:
        times = {cache: {way: summary(samples) for way, samples in ways.items()} for cache, ways in self.times.items()}
        return {**times, "rotation": self.rotation, "launches": self.launches, "refused": self.refused}


def measure(workload, mask, clock, contestants, rounds: int, left_out: dict[str, str], tell: Callable[[str], None]) -> dict:
    """By contestant, in their order: its times, or {"ok": False, "why": …}. `left_out` are those that broke an earlier process, and
    how. `tell` is told the name of the one that is about to run."""
    from contestants import Case, Refusal

    tell(BEFORE)
    case = Case(workload, mask, clock.device)
    found: dict[str, dict] = {}
    entrants: dict[str, Entrant] = {}
    for make in contestants:
        name = make.name
        if name in left_out:
            found[name] = {"ok": False, "why": left_out[name]}
            continue
        tell(name)
        try:
            contestant = make(case)
            first = contestant.operands()
            first.output.fill_(float("nan") if first.output.is_floating_point() else -1)
            contestant.launch(first)
            clock.synchronize()
            checked = judge(contestant, case, first)
            found[name] = {"ok": checked["ok"], "check": checked, "note": contestant.note}
            if checked["ok"]:
                entrants[name] = Entrant(contestant, clock, first)
            else:
                found[name]["why"] = f"the result is wrong: relative error {checked['rel_error']}"
        except Refusal as why:
            found[name] = {"ok": False, "why": str(why), "refused": True}
        except Exception as error:
            found[name] = {"ok": False, "why": f"{type(error).__name__}: {error}"}
        clock.synchronize()  # raises if the context is broken; then the process is of no more use
    names = list(entrants)
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            tell(name)
            entrants[name].sample(clock)
    for name, entrant in entrants.items():
        found[name] |= entrant.document()
    return found


def serve(pipe, folders: list[str], environment: dict[str, str], prepare: Callable[[], Callable]) -> None:
    """Answers (workload, layout, left_out) by ("at", name) … and ("done", contestants) or ("broken", why), after one ("ready", about)
    or ("unavailable", why). `prepare` imports what is needed and gives the contest: contest(clock, workload, layout, left_out, tell)
    answers with the contestants. `folders` may hold the Python package."""
    os.environ.update(environment)
    sys.path[:0] = [folder for folder in folders if pathlib.Path(folder, "sparsekiln").is_dir()]
    try:
        clock = CudaClock()
        contest = prepare()
    except Exception as error:
        pipe.send(("unavailable", f"{type(error).__name__}: {error}"))
        return
    pipe.send(("ready", clock.about))
    while (job := pipe.recv()) is not None:
        try:
            answer = contest(clock, *job, lambda name: pipe.send(("at", name)))
            clock.release()
        except Exception as error:
            pipe.send(("broken", f"{type(error).__name__}: {error}"))
            return
        pipe.send(("done", answer))


def worker(pipe, folders: list[str], rounds: int, environment: dict[str, str]) -> None:
    """Serves products: a layout is a file."""

    def prepare() -> Callable:
        import numpy
        import torch
        from contestants import CONTESTANTS

        def products(clock, workload, layout: str, left_out: dict[str, str], tell: Callable[[str], None]) -> dict:
            mask = torch.from_numpy(numpy.load(layout) != 0)
            return measure(workload, mask, clock, CONTESTANTS, rounds, left_out, tell)

        return products

    serve(pipe, folders, environment, prepare)
