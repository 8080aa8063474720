"""A block-sparse layer in PyTorch against nn.Linear and PyTorch's own BSR tensors: python3 bench/torch_linear.py [--write docs/performance.md] [--short]

4096 features in and out, 10 % dense in blocks of 32, batch 64, float32, on this machine's cpu, with a bias: inference,
and a step of training (forward, both gradients, SGD). All contestants take turns in every round; times are medians over
the rounds, and ratios medians of the rounds' ratios. PyTorch has no gradients through BSR tensors on a cpu; those of the
contest are computed from the products that it does have, see training_contestants.py.

Then what a call costs in addition to its kernel: a layer of one block, called a thousand times in a row.
"""

import datetime
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import publish
import torch
import torch_contest
from torch_contest import contest, processor
from training_contestants import OURS, check_gradients, dense_of, training

import sparsekiln
from sparsekiln.torch import BlockSparseLinear

_FEATURES, _BLOCK, _DENSITY, _BATCH = 4096, 32, 0.1, 64


# ---- contestants ----


def inference(ours: BlockSparseLinear, dense: torch.nn.Linear, x: torch.Tensor) -> dict:
    bsr, bias = ours.to_bsr().detach(), ours.bias.detach()
    column = bias[:, None]
    return {
        OURS: lambda: ours(x),
        "nn.Linear, dense": lambda: dense(x),
        "BSR, F.linear": lambda: torch.nn.functional.linear(x, bsr, bias),
        "BSR, addmm": lambda: torch.addmm(column, bsr, x.T).T,
    }


def check(ours: BlockSparseLinear, dense: torch.nn.Linear, x: torch.Tensor, dy: torch.Tensor) -> None:
    """All contestants compute the same."""
    expected = dense(x)
    with torch.no_grad():
        for name, run in inference(ours, dense, x).items():
            torch.testing.assert_close(run(), expected, rtol=1e-3, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}")
    check_gradients(ours, dense, x, dy)


# ---- timing ----


def microseconds(run, rounds: int, calls: int) -> float:
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        times.append(1e6 * (time.perf_counter() - begin) / calls)
    return statistics.median(times)


def overhead(rounds: int, calls: int) -> dict[str, float]:
    """Microseconds of a layer of one block of 8 features, one row of input; and of its kernel alone, timed in C++."""
    layout = sparsekiln.Layout([[1]])
    kernel = sparsekiln.compile(layout, block=8, batch=1, target="cpu")
    x, w, y = torch.zeros(1, 8), torch.zeros(1, 8, 8), torch.zeros(1, 8)
    ours, dense = BlockSparseLinear(8, 8, layout, block=8, bias=False), torch.nn.Linear(8, 8, bias=False)
    leaf, dy = x.clone().requires_grad_(), torch.zeros(1, 8)
    with tempfile.TemporaryDirectory(prefix="sparsekiln-torch-") as folder:
        layout.save(f"{folder}/one.npy")
        command = [sys.executable, "-m", "sparsekiln", "run", f"{folder}/one.npy", "--block", "8", "--batch", "1"]
        done = subprocess.run(
            [*command, "--target", "cpu", "--time", "--json"], capture_output=True, text=True, check=True
        )  # fmt: skip
    alone = 1e3 * json.loads(done.stdout)["run_ms"]
    times = {"the kernel alone, in C++": alone, "kernel(x, w, y=y)": microseconds(lambda: kernel(x, w, y=y), rounds, calls)}
    times["kernel(x, w)"] = microseconds(lambda: kernel(x, w), rounds, calls)
    with torch.no_grad():
        times["BlockSparseLinear, inference"] = microseconds(lambda: ours(x), rounds, calls)
        times["nn.Linear, inference"] = microseconds(lambda: dense(x), rounds, calls)
    times["BlockSparseLinear, forward and backward"] = microseconds(lambda: ours(leaf).backward(dy), rounds, calls)
    times["nn.Linear, forward and backward"] = microseconds(lambda: dense(leaf).backward(dy), rounds, calls)
    return times


# ---- the document ----


def table(title: str, times: dict[str, list[float]]) -> list[str]:
    def cells(name: str, all_of_it: list[float]) -> list[str]:
        low, *_, high = statistics.quantiles(all_of_it, n=5)
        ratio = statistics.median(a / b for a, b in zip(all_of_it, times[OURS]))
        return [name, f"{statistics.median(all_of_it):.2f}", f"{low:.2f} – {high:.2f}", f"{ratio:.1f}"]

    columns = [title, "median, ms", "p20 – p80, ms", f"× {OURS}"]
    return [*publish.table(columns, (cells(*one) for one in times.items())), ""]


def report(times: dict[str, dict[str, list[float]]], calls: dict[str, float], features: int, rounds: int) -> str:
    alone = calls["the kernel alone, in C++"]
    lines = [
        f"{datetime.date.today()}, {processor()}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}: {features} features in and out, "
        f"{100 * _DENSITY:g} % dense in blocks of {_BLOCK}, batch {_BATCH}, float32, {rounds} rounds in which all take turns.", "",
    ]  # fmt: skip
    for title, contestants in times.items():
        lines += table(title, contestants)
    lines += ["A layer of one block of 8 features, one row of input:", ""]
    rows = ([name, f"{one:.1f}", f"{one - alone:.1f}"] for name, one in calls.items())
    lines += publish.table(["call", "µs", "above the kernel"], rows)
    return "\n".join(lines)


def main() -> None:
    options = torch_contest.options(__doc__, __file__, rounds=25)
    warnings.filterwarnings("ignore", message="Sparse")
    features, calls = (256, 10) if options.short else (_FEATURES, 1000)
    rounds = options.rounds
    side = features // _BLOCK
    layout = sparsekiln.patterns.random(side, side, _DENSITY, seed=1)
    ours = BlockSparseLinear(features, features, layout, _BLOCK)
    dense = dense_of(ours)
    x, dy = torch.randn(_BATCH, features), torch.randn(_BATCH, features)
    check(ours, dense, x, dy)
    with torch.no_grad():
        times = {"inference": contest(inference(ours, dense, x), rounds)}
    times["training step"] = contest(training(ours, dense, x, dy), rounds)
    text = report(times, overhead(rounds, calls), features, rounds)
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)


if __name__ == "__main__":
    main()
