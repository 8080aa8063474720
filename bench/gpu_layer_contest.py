"""Measures a layer's contestants (layer_contestants.py) in one process: ours as it is at first, ours once its kernels are baked, and dense
ones.

Microseconds of a call: `graph` from a CUDA graph of inference, `overlap` from one of ours whose launches overlap, `events` of inference called one by one, `training` of forward and
all gradients called one by one, and `host` in which a call of inference returns; all with warm caches. `first_s` are the seconds of its first call and of
its first training step, with their compiles, in a store that is empty at first.
"""

import time
import warnings
from collections.abc import Callable

import gpu_contest

ATTACHED, BAKED = "ours, attached", "ours, baked"
_SAMPLE_MS = 4.0  # that calls of a sample take together, if one does not take longer
_MOST_CALLS = 20
_HOST_CALLS = 10  # launches of fewer than a stream queues
# How far the relative Frobenius norm of the error may be from 0: sums of products that are rounded, and after steps of an LSTM again.
_BOUNDS = {"f32": 1e-3, "f16": 1e-2, "bf16": 3e-2}


def _bake(layer, run: list[Callable[[], None]]) -> str:
    """Calls until the kernels of these calls are baked; why one is not, empty if all are."""
    from sparsekiln.torch import baking

    baking.CALLS, baking.SECONDS = 1, 0
    baking.set_baking(True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):  # the second call asks for what the first one made
            for call in run:
                call()
        baking.worker.wait()
    failed = [str(one.message) for one in said if issubclass(one.category, RuntimeWarning)]
    for call in run:
        call()
    return failed[0] if failed else _still_attached(layer)


def _still_attached(layer) -> str:
    from sparsekiln.torch import kernels

    for module in layer.modules():
        if getattr(module, "layout", None) is None:
            continue
        there = kernels.kernels_of(module.layout)
        for (use, bound), kernel in there._kernels.items():
            if kernel.tier == "attached" and kernels.is_baked_later(use):
                return f"the kernel of {use.operation} up to {bound} is not baked"
    return ""


def _seconds(clock, call: Callable[[], None]) -> float:
    begin = time.perf_counter()
    call()
    clock.synchronize()
    return time.perf_counter() - begin


class Entrant:
    """A layer, its calls, and samples of them."""

    def __init__(
        self, clock, inference: Callable[[], None], training: Callable[[], None], overlapped: Callable[[], None] | None = None
    ):  # fmt: skip
        self.samples: dict[str, list[float]] = {"events": [], "training": [], "host": []}
        self.refused: dict[str, str] = {}
        self._host = inference
        runs = {way: [call] * self._calls(clock, call) for way, call in (("events", inference), ("training", training))}
        self._launches = {way: (clock.prepare("events", calls), len(calls)) for way, calls in runs.items()}
        if "graph" in clock.ways:
            self._capture(clock, "graph", runs["events"])
            if overlapped is not None:
                overlapped()  # the launches of a graph overlap where a call before has read the weights
                self._capture(clock, "overlap", [overlapped] * len(runs["events"]))

    def _capture(self, clock, way: str, calls: list[Callable[[], None]]) -> None:
        try:
            self._launches[way] = (clock.prepare("graph", calls), len(calls))
            self.samples[way] = []
        except Exception as error:
            self.refused[way] = f"{type(error).__name__}: {error}".splitlines()[0]
            clock.synchronize()

    @staticmethod
    def _calls(clock, call: Callable[[], None]) -> int:
        once = min(clock.milliseconds(call) for _ in range(3))
        return max(1, min(_MOST_CALLS, round(_SAMPLE_MS / max(once, 1e-3))))

    def sample(self, clock) -> None:
        for way, (launch, calls) in self._launches.items():
            launch()  # what the one before left in the caches is not its fault
            clock.synchronize()
            self.samples[way].append(1e3 * clock.milliseconds(launch) / calls)
        clock.synchronize()
        begin = time.perf_counter()
        for _ in range(_HOST_CALLS):
            self._host()
        self.samples["host"].append(1e6 * (time.perf_counter() - begin) / _HOST_CALLS)
        clock.synchronize()


def measure(clock, case, rounds: int, left_out: dict[str, str], tell: Callable[[str], None]) -> dict:
    """By contestant: its times, or {"ok": False, "why": …}."""
    import layer_contestants
    import torch

    from sparsekiln.torch import baking

    tell(gpu_contest.BEFORE)
    baking.set_baking(False)
    layer = layer_contestants.ours(case, clock.device)
    dense = layer_contestants.dense_of(layer)
    x = layer_contestants.input_of(case, layer, clock.device)
    with torch.no_grad():
        expected = layer_contestants.result_of(next(iter(dense.values())), x).float()
    found: dict[str, dict] = {}
    entrants: dict[str, Entrant] = {}
    for name, one in {ATTACHED: layer, BAKED: layer, **dense}.items():
        if name in left_out:
            found[name] = {"ok": False, "why": left_out[name]}
            continue
        tell(name)
        try:
            its_x = layer_contestants.input_of(case, one, clock.device).copy_(x)
            inference = layer_contestants.inference(one, its_x)
            first = [_seconds(clock, inference)]
            training = layer_contestants.training(one, its_x)
            first.append(_seconds(clock, training))
            overlapped = layer_contestants.overlapped(one, its_x) if name in (ATTACHED, BAKED) else None
            if name == BAKED and (why := _bake(layer, [inference, training, overlapped, overlapped])):
                found[name] = {"ok": False, "why": why}
                continue
            with torch.no_grad():
                y = layer_contestants.result_of(one, its_x).float()
            error = float((y - expected).norm() / expected.norm())
            found[name] = {"ok": error <= _BOUNDS[case.dtype], "rel_error": error, "first_s": first}
            if found[name]["ok"]:
                entrants[name] = Entrant(clock, inference, training, overlapped)
            else:
                found[name]["why"] = f"the result is wrong: relative error {error}"
        except Exception as error:
            found[name] = {"ok": False, "why": f"{type(error).__name__}: {error}"}
        clock.synchronize()
        # Ours are one layer: what is attached is measured before it is baked.
        if name == ATTACHED and name in entrants:
            for _ in range(rounds):
                entrants[name].sample(clock)
    for number in range(rounds):
        names = [name for name in entrants if name != ATTACHED]
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            tell(name)
            entrants[name].sample(clock)
    for name, entrant in entrants.items():
        found[name] |= {way: gpu_contest.summary(times) for way, times in entrant.samples.items()}
        found[name]["refused"] = entrant.refused
    return found


def worker(pipe, folders: list[str], rounds: int, environment: dict[str, str]) -> None:
    """Serves layers: a workload is a LayerCase, and there is no file of its layout."""

    def prepare() -> Callable:
        import layer_contestants  # noqa: F401

        def layers(clock, case, _layout: str, left_out: dict[str, str], tell: Callable[[str], None]) -> dict:
            return measure(clock, case, rounds, left_out, tell)

        return layers

    gpu_contest.serve(pipe, folders, environment, prepare)
