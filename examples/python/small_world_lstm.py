"""A wide block-sparse LSTM against a narrow dense one of as many parameters, on the characters of the King James Bible.

After "GPU Kernels for Block-Sparse Weights" (Gray, Radford & Kingma 2017): at equal parameters a sparse LSTM has a wider
state, and where its blocks are laid out as a small world (Watts & Strogatz 1998) every unit still reaches every other one in
a few steps. Each model gets the learning rate that did best for it in the same short search, then trains for as many steps.
The text is the package bible-kjv of Debian.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import kjv
import numpy as np
import reporting
import torch
from sparsekiln import Layout, patterns
from sparsekiln.torch import BlockSparseLinear
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

WINDOW = 64  # characters that gradients go back through
STREAMS = 32  # places of the text that are read at once
EMBEDDING = 16
RATES = (3e-3, 6e-3, 12e-3)
HELD_OUT = 0.025  # of the text, at its end


class CharacterLSTM(nn.Module):
    """An LSTM of `hidden` units; `recurrent` takes [batch, hidden] to [batch, 4 · hidden], all gates at once.

    The cell is normalised on its way out (Ba, Kiros & Hinton 2016). The gates' order: input, forget, output, candidate.
    """

    def __init__(self, characters: int, hidden: int, recurrent: nn.Module):
        super().__init__()
        self.hidden, self.recurrent = hidden, recurrent
        self.embedding = nn.Embedding(characters, EMBEDDING)
        self.input = nn.Linear(EMBEDDING, 4 * hidden)
        self.norm = nn.LayerNorm(hidden)
        self.output = nn.Linear(hidden, characters)
        with torch.no_grad():
            self.input.bias[hidden : 2 * hidden] = 1  # to remember, at first

    def start(self, batch: int) -> tuple[Tensor, Tensor]:
        """The state before any text: h and c, zeros [batch, hidden]."""
        return torch.zeros(batch, self.hidden), torch.zeros(batch, self.hidden)

    def forward(self, text: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """text [steps, batch] -> logits of the characters that follow [steps, batch, characters], and the state after it."""
        h, c = state
        of_character = self.input(self.embedding.weight)  # the input's part of the gates, which the character alone decides
        outputs = []
        for inputs in functional.embedding(text, of_character).unbind():
            into, forget, out, candidate = (self.recurrent(h) + inputs).chunk(4, dim=1)
            c = forget.sigmoid() * c + into.sigmoid() * candidate.tanh()
            h = out.sigmoid() * self.norm(c).tanh()
            outputs.append(h)
        return self.output(torch.stack(outputs)), (h, c)


def small_world(hidden: int, density: float, block: int) -> BlockSparseLinear:
    """A recurrent weight with a Watts-Strogatz layout for each gate, which start from different seeds."""
    side = hidden // block
    gates = [patterns.watts_strogatz(side, side, density, rewire=0.3, seed=gate).mask() for gate in range(4)]
    return BlockSparseLinear(hidden, 4 * hidden, Layout(np.concatenate(gates)), block, bias=False)


def dense(hidden: int) -> nn.Linear:
    return nn.Linear(hidden, 4 * hidden, bias=False)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def shares(model: CharacterLSTM) -> list[dict]:
    """Groups of parameters for the optimizer, with the `share` of the learning rate that each takes.

    That of the two weights which the state goes through is in proportion to 1/√fan_in, as their first values are, with the
    fan-in that is present.
    """
    recurrent, output = list(model.recurrent.parameters()), [model.output.weight]
    fan_in = sum(one.numel() for one in recurrent) / (4 * model.hidden)
    rest = [one for one in model.parameters() if all(one is not other for other in recurrent + output)]
    return [
        {"params": recurrent, "share": math.sqrt(256 / fan_in)},
        {"params": output, "share": math.sqrt(256 / model.hidden)},
        {"params": rest, "share": 1.0},
    ]


def width_of_dense(characters: int, wanted: int) -> int:
    """The units with which a dense LSTM comes closest to so many parameters."""

    def missed(hidden: int) -> int:
        with torch.device("meta"):
            return abs(parameters(CharacterLSTM(characters, hidden, dense(hidden))) - wanted)

    return min(range(8, 2048, 2), key=missed)


def numbered(text: str) -> tuple[Tensor, int]:
    """The text as numbers of its characters, int64 [length], and how many different ones there are."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    alphabet, numbers = np.unique(codes, return_inverse=True)
    return torch.from_numpy(numbers), len(alphabet)


def streams(text: Tensor) -> Tensor:
    """The text cut into STREAMS pieces that are read side by side: [length // STREAMS, STREAMS]."""
    length = len(text) // STREAMS
    return text[: length * STREAMS].reshape(STREAMS, length).T.contiguous()


def bits(model: CharacterLSTM, text: Tensor) -> Iterator[Tensor]:
    """Bits per character of window after window of text [length, STREAMS]; the state goes on from each to the next."""
    state = model.start(STREAMS)
    for begin in range(0, len(text) - WINDOW, WINDOW):
        window = text[begin : begin + WINDOW + 1]
        logits, state = model(window[:-1], state)
        state = tuple(one.detach() for one in state)
        yield functional.cross_entropy(logits.flatten(0, 1), window[1:].flatten()) / math.log(2)


def endless(make: Callable[[], Iterator[Tensor]]) -> Iterator[Tensor]:
    while True:
        yield from make()


@torch.no_grad()
def evaluate(model: CharacterLSTM, text: Tensor) -> np.ndarray:
    """Bits per character of each window of text [length, STREAMS]."""
    return np.array([one.item() for one in bits(model, text)])


@dataclass
class Run:
    """What a training gave: bits per character on the text of each step, and on held-out text after some of them.

    Those on held-out text are of its windows, one by one.
    """

    model: CharacterLSTM
    rate: float
    trained: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # each step's
    held_out: dict[int, np.ndarray] = field(default_factory=dict)  # after so many steps

    @property
    def end(self) -> np.ndarray:
        return self.held_out[len(self.trained)]


def train(
    name: str, make: Callable[[], CharacterLSTM], rate: float, steps: int, text: Tensor, held_out: Tensor | None = None
) -> Run:
    """Adam with clipped gradients; the rate rises over 50 steps and falls as a cosine. Reads held-out text 20 times."""
    torch.manual_seed(0)
    run = Run(make(), rate)
    optimizer = torch.optim.Adam(shares(run.model), betas=(0.9, 0.99))
    losses = endless(lambda: bits(run.model, text))
    for step in (bar := tqdm(range(1, steps + 1), f"{name}, rate {rate}", leave=False)):
        began = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = group["share"] * rate * min(1, step / 50) * (1 + math.cos(math.pi * step / steps)) / 2
        loss = next(losses)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
        optimizer.step()
        run.seconds.append(time.perf_counter() - began)
        run.trained.append(loss.item())
        if held_out is not None and (step % max(1, steps // 20) == 0 or step == steps):
            run.held_out[step] = evaluate(run.model, held_out)
            bar.set_postfix_str(f"{run.held_out[step].mean():.3f} bits a character, held out")
    return run


def best_rate(name: str, make: Callable[[], CharacterLSTM], steps: int, text: Tensor) -> float:
    """The rate of RATES with the fewest bits over the last fifth of a short training, on text that is read for the first time."""
    ends = {rate: statistics.fmean(train(name, make, rate, steps, text).trained[-(steps // 5) :]) for rate in RATES}
    return min(ends, key=ends.get)


def at_time(run: Run, seconds: float) -> tuple[int, float]:
    """The last held-out check that was reached in so many seconds of training: its step, and bits per character."""
    elapsed = np.cumsum(run.seconds)
    return max(
        ((step, windows.mean()) for step, windows in run.held_out.items() if elapsed[step - 1] <= seconds), default=(0, math.nan)
    )


def row(name: str, run: Run) -> list[str]:
    model = run.model
    values = sum(parameter.numel() for parameter in model.recurrent.parameters())
    held_out = [f"{run.rate:g}", f"{run.end.mean():.3f}"] if run.held_out else ["", "timed only"]
    step = 1000 * statistics.median(run.seconds)
    return [name, f"{model.hidden}", f"{parameters(model):,}", f"{values:,}", *held_out, f"{step:.0f}"]


def at_the_edge(*runs: Run) -> str:
    """Says so where a better learning rate may lie beyond those that were tried."""
    return "; the largest learning rate that was tried did best" if any(run.rate == max(RATES) for run in runs) else ""


def story(sparse: Run, narrow: Run, characters: int) -> str:
    """What the numbers say, in words."""
    steps = len(sparse.trained)
    layer = sparse.model.recurrent
    wider, fewer = sparse.model.hidden / narrow.model.hidden, narrow.end - sparse.end
    error = fewer.std(ddof=1) / math.sqrt(len(fewer))
    when, by_then = at_time(sparse, sum(narrow.seconds))
    said = (
        f"{steps} steps of {STREAMS} × {WINDOW} characters, {steps * STREAMS * WINDOW / characters:.1f} times the text, of "
        f"which the last {100 * HELD_OUT:g} % are held out. The sparse recurrent weight is {100 * layer.layout.density:.2g} % dense, "
        f"in blocks of {layer.block[0]}. The sparse LSTM, {wider:.1f} times as wide as the dense one of as many parameters, "
        f"ends with {abs(fewer.mean()):.3f} bits a character {'fewer' if fewer.mean() > 0 else 'more'} (standard error over the "
        f"held-out windows {error:.3f}; one training of each, which tells nothing of other seeds"
        f"{at_the_edge(sparse, narrow)}). It trained for {sum(sparse.seconds):.0f} s, the dense one for {sum(narrow.seconds):.0f} s"
    )
    if when in (0, steps):
        return f"{said}."
    return f"{said}; at its last check by then, after {when} steps, it stood at {by_then:.3f}, its rate not yet down."


def plot(runs: dict[str, Run]):
    """Held-out bits per character over steps and over seconds of training."""
    figure, (left, right) = reporting.new_figure(ncols=2, sharey=True, figsize=(9, 3.6))
    for name, run in runs.items():
        steps, bits_then = np.array(list(run.held_out)), [windows.mean() for windows in run.held_out.values()]
        left.plot(steps, bits_then, marker="o", markersize=3, label=f"{name}, {run.model.hidden} units")
        right.plot(np.cumsum(run.seconds)[steps - 1], bits_then, marker="o", markersize=3)
    left.set(xlabel="steps", ylabel="bits a character, held out")
    right.set(xlabel="seconds of training")
    left.legend()
    return figure


def main() -> None:
    def add_options(parser):
        parser.add_argument("--hidden", type=int, default=1024, help="units of the sparse LSTM")
        parser.add_argument("--density", type=float, default=0.08, help="of its recurrent weight")
        parser.add_argument("--block", type=int, default=16)
        parser.add_argument("--steps", type=int, default=2000)

    options = reporting.parse(__doc__, add_options)
    steps, search, timed = (10, 3, 2) if options.short else (options.steps, 400, 10)
    text, characters = numbered(kjv.text())
    cut = round(len(text) * (1 - HELD_OUT))
    trained_on, held_out = streams(text[:cut]), streams(text[cut : cut + 5000] if options.short else text[cut:])

    def wide() -> CharacterLSTM:
        return CharacterLSTM(characters, options.hidden, small_world(options.hidden, options.density, options.block))

    def dense_of(hidden: int) -> Callable[[], CharacterLSTM]:
        return lambda: CharacterLSTM(characters, hidden, dense(hidden))

    narrow = width_of_dense(characters, parameters(wide()))
    runs = {}
    for name, make in {"sparse": wide, "dense": dense_of(narrow)}.items():
        rate = best_rate(name, make, search, trained_on)
        runs[name] = train(name, make, rate, steps, trained_on, held_out)
    as_wide = train("dense, as wide", dense_of(options.hidden), RATES[0], timed, trained_on)
    header = ["LSTM", "units", "parameters", "of them recurrent", "learning rate", "bits a character, held out", "ms a step"]
    rows = [row(name, run) for name, run in {**runs, "dense, as wide": as_wide}.items()]
    said = f"{reporting.machine()}: {story(runs['sparse'], runs['dense'], len(text))}\n\n{reporting.table(header, rows)}"
    described = "held-out bits per character of the sparse and the dense LSTM, over steps and over seconds of training"
    reporting.publish(options, "small_world_lstm", said, plot(runs), described)


if __name__ == "__main__":
    main()
