"""What a call of a block-sparse layer takes on the host, beside nn.Linear's: python3 bench/torch_calls.py [--json] [--short]

Layers so small that next to nothing is computed, float32, with a bias, on one thread of the cpu, and on a GPU where there is one:
there, time until a call returns. Ours and nn.Linear take turns in every round; times are medians over the rounds, and ratios and
differences are medians of those of each round. `allowed` is the aim: a ratio, or microseconds that a core of 3 GHz may take longer.

    inference             under no_grad
    forward               recorded by autograd
    training              forward and backward, with gradients of input, weight and bias
    compiled inference    the first one in a graph of torch.compile
    compiled training     the third one in a graph of torch.compile

--stub DRIVER  measures what launches on CUDA take besides, without a GPU: DRIVER is the tests' libstub_cuda_driver.so, whose launches
               do nothing, and tensors of the cpu stand for those of a GPU
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch_contest import turns

import sparsekiln
from sparsekiln.torch import BlockSparseLinear, kernels, operator_library, set_baking
from sparsekiln.torch.linear import products

_BLOCK, _SIDE = 32, 2  # blocks of a side of the weight, half of which are present
_FEATURES = _BLOCK * _SIDE
_PROCESSOR_GHZ = 3.0  # for which microseconds are allowed

OURS, DENSE = "BlockSparseLinear", "nn.Linear"


class Allowed(NamedTuple):
    ratio: float | None
    more_us: float | None

    def __str__(self) -> str:
        return f"× {self.ratio}" if self.more_us is None else f"+ {self.more_us:g} µs"


ALLOWED = {
    "inference": Allowed(None, 3.0),
    "forward": Allowed(None, 15.0),
    "training": Allowed(1.3, None),
    "compiled inference": Allowed(1.2, None),
    "compiled training": Allowed(1.2, None),
}


def calls(layer: torch.nn.Module, x: torch.Tensor) -> dict[str, Callable[[], object]]:
    leaf, dy = x.clone().requires_grad_(), torch.ones_like(x)
    compiled, trained = torch.compile(layer), torch.compile(layer)

    def without_gradient(call: Callable) -> Callable[[], object]:
        @torch.no_grad()
        def run() -> object:
            return call(x)

        return run

    return {
        "inference": without_gradient(layer),
        "forward": lambda: layer(leaf),
        "training": lambda: layer(leaf).backward(dy),
        "compiled inference": without_gradient(compiled),
        "compiled training": lambda: trained(leaf).backward(dy),
    }


def contest(ours: Callable, dense: Callable, rounds: int, count: int, device: str) -> dict[str, float]:
    """Microseconds of a call of each, and how the two compare. On the cpu, of the thread's own time, which does not count those of
    other processes."""
    elsewhere = {"clock": time.perf_counter, "wait": torch.cuda.synchronize} if device == "cuda" else {}
    times = turns({OURS: ours, DENSE: dense}, rounds, count, **elsewhere)
    pairs = list(zip(times[OURS], times[DENSE], strict=True))
    return {name: statistics.median(several) for name, several in times.items()} | {
        "ratio": statistics.median(a / b for a, b in pairs),
        "more_us": statistics.median(a - b for a, b in pairs),
    }


def measure(device: str, batch: int, rounds: int, count: int) -> dict[str, dict[str, float]]:
    torch.manual_seed(0)
    layout = sparsekiln.Layout(torch.eye(_SIDE, dtype=torch.bool).numpy())
    ours, dense = BlockSparseLinear(_FEATURES, _FEATURES, layout, _BLOCK), torch.nn.Linear(_FEATURES, _FEATURES)
    x = torch.randn(batch, _FEATURES, device=device)
    all_of_ours, all_of_dense = calls(ours.to(device), x), calls(dense.to(device), x)
    return {name: contest(run, all_of_dense[name], rounds, count, device) for name, run in all_of_ours.items()}


def pretend_cuda(driver: str) -> None:
    """From now on, the operators in C++ launch on tensors of the cpu as on those of a GPU. Python, which they ask for the kernels of their
    first calls, compiles these for the driver's device, and launches nothing."""
    os.environ["SPARSEKILN_CUDA_DRIVER"] = driver
    use, gpu = kernels.Use, torch.device("cuda:0")

    def run(kernel: sparsekiln.Kernel, n: int, *operands: torch.Tensor, **named: object) -> object:
        like = operands[0]
        if kernel.op != "grad_weight":
            return like.new_empty(n, kernel.out_features if kernel.op == "forward" else kernel.in_features)
        dw = like.new_empty(kernel.layout.blocks, *kernel.block)
        return (dw, like.new_empty(kernel.out_features)) if kernel.computation["bias_gradient"] == "yes" else dw

    products.run = run
    products.Use = lambda *given, **more: use(*given, **more)._replace(device=gpu)
    operator_library.functions.sparsekiln_torch_pretend_cuda(True)


def clock_ghz() -> float | None:
    """The clock of a core of this machine, as the system tells it."""
    try:
        with open("/proc/cpuinfo") as text:
            return max(float(line.rpartition(":")[2]) for line in text if line.startswith("cpu MHz")) / 1e3
    except (OSError, ValueError):
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", default=1, type=int, help="rows of the input")
    parser.add_argument("--rounds", default=51, type=int)
    parser.add_argument("--calls", default=200, type=int, help="of each contestant in a round")
    parser.add_argument("--stub", metavar="DRIVER", help="measures launches on CUDA without a GPU")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--short", action="store_true", help="tries whether it works")
    options = parser.parse_args()
    if options.short:
        options.rounds, options.calls = 3, 3
    set_baking(False)
    torch.set_num_threads(1)
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    ghz = clock_ghz()
    found = {device: measure(device, options.batch, options.rounds, options.calls) for device in devices}
    if options.stub:
        pretend_cuda(options.stub)
        found["cuda, stub driver"] = measure("cpu", options.batch, options.rounds, options.calls)
    if options.json:
        print(json.dumps({"torch": torch.__version__, "ghz": ghz, "microseconds": found}))
        return
    for device, rows in found.items():
        print(f"{device}, PyTorch {torch.__version__}, {f'{ghz:.2f} GHz' if ghz else 'clock unknown'}, {_FEATURES} features, "
              f"batch {options.batch}: microseconds of a call")  # fmt: skip
        for name, one in rows.items():
            at_speed = one["more_us"] * (ghz or _PROCESSOR_GHZ) / _PROCESSOR_GHZ
            print(f"  {name:20} ours {one[OURS]:7.1f}   nn.Linear {one[DENSE]:7.1f}   × {one['ratio']:.2f}   "
                  f"+ {at_speed:.1f} at {_PROCESSOR_GHZ:g} GHz   allowed {ALLOWED[name]}")  # fmt: skip


if __name__ == "__main__":
    main()
