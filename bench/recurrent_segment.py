"""The host's part in a segment of steps of recurrent layers: python3 bench/recurrent_segment.py [--json] [--short]

Layers so small that next to nothing is computed, float32, on one thread of the cpu. A segment is launched by one call of the library, as
layers do it, and for comparison by a call for each launch. Both take turns in every round; microseconds of the thread's own time are
medians over the rounds, and the ratio is the median of those of each round.

    launches  of a segment
    calls     of the library that make them, beside those for gradients of weights and of the first state
    bytes     that a segment allocates on top of its input and parameters
"""

import argparse
import json
import statistics
from collections.abc import Callable

import torch
from torch_contest import turns

from sparsekiln.torch import BlockSparseLSTM, SmallWorldLSTM, launches, set_baking
from sparsekiln.torch.recurrent import lstm_steps, small_world_steps

_STEPS, _BATCH, _INPUTS, _UNITS, _BLOCK = 16, 2, 16, 64, 16
_MODULES = (lstm_steps, small_world_steps)
_of_steps = launches.run_steps


class Counted:
    """Stands in for run_steps: by one call, or by one for each launch."""

    def __init__(self) -> None:
        self.by_one_call = True
        self.launches = self.calls = 0

    def __call__(self, steps: launches.Steps, kernels: dict, tensors: dict, epsilon: float = 1e-5) -> None:
        self.launches += len(steps.launches)
        if self.by_one_call:
            self.calls += 1
            _of_steps(steps, kernels, tensors, epsilon)
            return
        self.calls += len(steps.launches)
        for one in steps.launches:
            operands = {
                name: tensors[at.tensor] if at.count < 0 else tensors[at.tensor][at.first : at.first + at.count]
                for name, at in one.operands.items()
            }
            positional = [operands.pop(name) for name in list(operands)[:3]]
            more = {"epsilon": epsilon} if "sums" in operands and "dnorm" not in operands else {}
            launches.run(kernels[one.kernel], one.n, *positional, **operands, **more)


def segments() -> dict[str, Callable[[], object]]:
    torch.manual_seed(0)
    lstm = BlockSparseLSTM(_INPUTS, _UNITS, layout=torch.ones(4, 4, dtype=torch.bool).numpy(), block=_BLOCK)
    world = SmallWorldLSTM(_INPUTS, _UNITS, block=_BLOCK, density=0.5)
    x = torch.randn(_STEPS, _BATCH, _INPUTS)

    def inference(layer: torch.nn.Module) -> Callable[[], object]:
        return torch.no_grad()(lambda: layer(x))

    def training(layer: torch.nn.Module) -> Callable[[], object]:
        return lambda: layer(x)[0].sum().backward()

    return {
        "LSTM, inference": inference(lstm), "LSTM, training": training(lstm), "SmallWorldLSTM, inference": inference(world),
        "SmallWorldLSTM, training": training(world),
    }  # fmt: skip


def bytes_of(run: Callable[[], object]) -> int:
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        run()
    return sum(max(0, event.self_cpu_memory_usage) for event in profile.function_events or ())


def measure(run: Callable[[], object], counted: Counted, rounds: int, count: int) -> dict[str, float]:
    def by(one_call: bool) -> Callable[[], object]:
        def segment() -> object:
            counted.by_one_call = one_call
            return run()

        return segment

    contestants, found = {"": by(True), ", each launch": by(False)}, {}
    for name, segment in contestants.items():
        segment()
        counted.launches = counted.calls = 0
        segment()
        found |= {"launches": counted.launches, f"calls{name}": counted.calls}
    times = turns(contestants, rounds, count)
    found |= {f"us{name}": statistics.median(several) for name, several in times.items()}
    found["ratio"] = statistics.median(one / each for one, each in zip(*times.values(), strict=True))
    counted.by_one_call = True
    return found | {"bytes": bytes_of(run)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", default=21, type=int)
    parser.add_argument("--calls", default=20, type=int, help="of each contestant in a round")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--short", action="store_true", help="tries whether it works")
    options = parser.parse_args()
    if options.short:
        options.rounds, options.calls = 3, 2
    set_baking(False)
    torch.set_num_threads(1)
    counted = Counted()
    for module in _MODULES:
        module.run_steps = counted
    found = {name: measure(run, counted, options.rounds, options.calls) for name, run in segments().items()}
    if options.json:
        print(json.dumps({"steps": _STEPS, "segments": found}))
        return
    print(f"{_STEPS} steps of {_UNITS} units, {_BATCH} sequences: a segment")
    for name, one in found.items():
        print(f"  {name:26} {one['launches']:4} launches by {one['calls']:3} calls: {one['us']:7.0f} µs, by {one['calls, each launch']:3} calls: "
              f"{one['us, each launch']:7.0f} µs, × {one['ratio']:.2f}; {one['bytes']} bytes")  # fmt: skip


if __name__ == "__main__":
    main()
