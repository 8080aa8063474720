"""Language models on characters, trained in runs that can be interrupted: each leaves a result of a few kilobytes and its weights.

A run that is interrupted goes on from its last checkpoint. Checkpoints and weights go to a folder outside the source.
"""

import copy
import json
import math
import os
import pathlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace

import kjv
import numpy as np
import torch
from multiplicative_lstm import MultiplicativeLSTM, start
from sparsekiln import patterns
from sparsekiln.torch import BlockSparseLinear, SmallWorldLSTM
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

WINDOW = 64  # characters that gradients go back through
STREAMS = 32  # places of the text that are read at once
EMBEDDING = 64
TEST, VALIDATION = 0.025, 0.0125  # of the text: its end, and what comes before that
REWIRED = 0.5  # of the blocks of a small world
FORMAT = "2"  # of weights that are kept, a folder of its own: the order of gates is i, f, u, o from 2 on
CHECKPOINT_SECONDS = 60


@dataclass(frozen=True)
class Network:
    """A recurrent network: of block-sparse layers where `row` names the blocks of each block row, dense otherwise."""

    hidden: int
    internal_steps: int
    row: int | None = None
    block: int = 16
    normalised: bool = True
    identity: bool = True  # what weights start as; normal ones otherwise

    @property
    def sparse(self) -> bool:
        return self.row is not None

    @property
    def density(self) -> float:
        return self.row * self.block / self.hidden if self.sparse else 1.0

    @property
    def in_words(self) -> str:
        """Such as "small world of 768 units, 5 internal steps"."""
        kind = "small world" if self.sparse else "dense"
        return f"{kind} of {self.hidden} units, {self.internal_steps} internal step{'s' if self.internal_steps > 1 else ''}"

    def __str__(self) -> str:
        """Its name in files."""
        kind = f"sparse{self.row}x{self.block}" if self.sparse else "dense"
        choices = ("" if self.normalised else "-unnormalised") + ("" if self.identity else "-normal")
        return f"{kind}-{self.hidden}-{self.internal_steps}{choices}"

    def layers(self, seed: int) -> nn.Module:
        """The network itself. A sparse one with all that SmallWorldLSTM has is a SmallWorldLSTM."""
        if not self.sparse:
            made = lambda number, inputs, outputs: start(nn.Linear(inputs, outputs, bias=False), self.identity)
            return MultiplicativeLSTM(EMBEDDING, self.hidden, made, self.internal_steps, self.normalised)
        side = self.hidden // self.block
        worlds = [
            patterns.watts_strogatz(
                side, side, self.row / side, REWIRED, seed=seed * (self.internal_steps + 1) + number, diagonal=True
            )
            for number in range(self.internal_steps + 1)
        ]
        if self.internal_steps >= 2 and self.normalised and self.identity:
            return SmallWorldLSTM(EMBEDDING, self.hidden, worlds, internal_steps=self.internal_steps, block=self.block)

        def small_world(number: int, inputs: int, outputs: int) -> nn.Module:
            mask = np.tile(worlds[number].mask(), (outputs // inputs, 1))
            return start(BlockSparseLinear(inputs, outputs, mask, self.block, bias=False), self.identity)

        return MultiplicativeLSTM(EMBEDDING, self.hidden, small_world, self.internal_steps, self.normalised)


class CharacterModel(nn.Module):
    """Logits of the character that follows. Embeddings and output weights have length 1 and gains (Salimans & Kingma 2016).

    The gains are of each feature of an embedding and of each character that is predicted.
    """

    def __init__(self, characters: int, network: Network, seed: int):
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Parameter(torch.randn(characters, EMBEDDING))
        self.embedding_gains = nn.Parameter(torch.full((EMBEDDING,), math.sqrt(EMBEDDING)))
        self.output = nn.Parameter(torch.randn(characters, network.hidden))
        self.output_gains = nn.Parameter(torch.ones(characters))
        self.output_biases = nn.Parameter(torch.zeros(characters))
        self.recurrent = network.layers(seed)

    def states(self, text: Tensor, state=None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """text [steps, batch] -> h of each step [steps, batch, hidden], and (h, c) after it, [1, batch, hidden] each."""
        embedded = functional.embedding(text, functional.normalize(self.embedding) * self.embedding_gains)
        return self.recurrent(embedded, state)

    def forward(self, text: Tensor, state=None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """text [steps, batch] -> logits [steps, batch, characters], and the state after it."""
        h, state = self.states(text, state)
        weights = functional.normalize(self.output) * self.output_gains.unsqueeze(1)
        return functional.linear(h, weights, self.output_biases), state


def parameters(characters: int, network: Network) -> int:
    """How many a CharacterModel has."""
    wide, layers = network.hidden, network.internal_steps + 4
    weight = wide * (network.row * network.block if network.sparse else wide)
    norms = 2 * wide * (layers + 1)  # gains and biases; the two projections have half as many
    return characters * (EMBEDDING + wide + 2) + EMBEDDING + EMBEDDING * wide + norms + layers * weight


@dataclass
class Text:
    """The text in three parts, as numbers of its characters, int64 [length, STREAMS]: its streams are read side by side."""

    alphabet: str
    characters: int
    training: Tensor
    validation: Tensor
    test: Tensor

    @classmethod
    def load(cls, short: bool = False) -> "Text":
        """The King James Bible; a `short` one is a part of it."""
        text = kjv.text()[: 200_000 if short else None]
        alphabet = "".join(sorted(set(kjv.text())))
        numbers = numbered(text, alphabet)
        test = round(len(text) * (1 - TEST))
        validation = round(len(text) * (1 - TEST - VALIDATION))
        parts = streams(numbers[:validation]), streams(numbers[validation:test]), streams(numbers[test:])
        return cls(alphabet, len(text), *parts)

    def windows_of(self, seed: int) -> Iterator[Tensor]:
        """Window after window of the training part, from another place for each seed, without end; each overlaps by one."""
        at = seed * len(self.training) // 3 // WINDOW * WINDOW
        while True:
            if at + WINDOW + 1 > len(self.training):
                at = 0
            yield self.training[at : at + WINDOW + 1]
            at += WINDOW


def numbered(text: str, alphabet: str) -> Tensor:
    """The text as numbers of its characters, int64 [length]. All of them are in the alphabet, which is sorted."""
    codes = lambda one: np.frombuffer(one.encode("utf-32-le"), np.uint32)
    return torch.from_numpy(np.searchsorted(codes(alphabet), codes(text)))


def streams(text: Tensor) -> Tensor:
    """The text cut into STREAMS pieces that are read side by side: [length // STREAMS, STREAMS]."""
    length = len(text) // STREAMS
    return text[: length * STREAMS].reshape(STREAMS, length).T.contiguous()


def bits(model: CharacterModel, window: Tensor, state=None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Bits per character of a window [WINDOW + 1, STREAMS], and the state after it, detached."""
    logits, state = model(window[:-1], state)
    entropy = functional.cross_entropy(logits.flatten(0, 1), window[1:].flatten()) / math.log(2)
    return entropy, tuple(one.detach() for one in state)


@torch.no_grad()
def evaluate(model: CharacterModel, text: Tensor) -> list[float]:
    """Bits per character of each window of text [length, STREAMS], rounded; the state goes on from each to the next."""
    found, state = [], None
    for begin in range(0, len(text) - WINDOW, WINDOW):
        entropy, state = bits(model, text[begin : begin + WINDOW + 1], state)
        found.append(round(entropy.item(), 4))
    return found


@dataclass(frozen=True)
class Run:
    """A training, and all that decides what comes of it."""

    network: Network
    rate: float
    steps: int
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{self.network}-rate{self.rate:g}-steps{self.steps}-seed{self.seed}"

    def rate_at(self, step: int) -> float:
        """Rises over the first twentieth of the steps and then falls to 0, both linearly."""
        return self.rate * min(step / max(1, self.steps // 20), 1) * (1 - (step - 1) / self.steps)


@dataclass
class Result:
    """What came of a run. Bits are per character, of averaged weights; NaN, and no more of them, after it diverged."""

    run: Run
    parameters: int
    characters: int  # of the text that it was trained on, each as often as it was read
    validation: dict[int, float] = field(default_factory=dict)  # after so many steps
    test: list[float] = field(default_factory=list)  # at the end, of each window
    step_ms: float = math.nan  # the median of a step of training, beside whatever else the machine did

    @property
    def diverged(self) -> bool:
        return not self.test

    @property
    def validated(self) -> float:
        """Bits on the validation part at the end."""
        return math.inf if self.diverged else self.validation[self.run.steps]

    @property
    def tested(self) -> float:
        return math.inf if self.diverged else statistics.fmean(self.test)

    def write(self, file: pathlib.Path) -> None:
        content = asdict(self) | {"step_ms": None if math.isnan(self.step_ms) else round(self.step_ms, 1)}
        lines = ",\n".join(f' "{name}": {json.dumps(value)}' for name, value in content.items())
        written = file.with_suffix(".partial")
        written.write_text(f"{{\n{lines}\n}}\n")
        written.replace(file)

    @classmethod
    def read(cls, file: pathlib.Path) -> "Result":
        content = json.loads(file.read_text())
        run = content.pop("run")
        content["run"] = Run(**run | {"network": Network(**run["network"])})
        content["validation"] = {int(step): value for step, value in content["validation"].items()}
        content["step_ms"] = math.nan if content["step_ms"] is None else content["step_ms"]
        return cls(**content)


class Training:
    """A run under way: a model, the exponential average of its weights, and where it is in the text."""

    def __init__(self, run: Run, text: Text):
        self.run, self.text, self.step, self.state = run, text, 0, None
        self.model = CharacterModel(len(text.alphabet), run.network, run.seed)
        self.averaged = copy.deepcopy(self.model).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.model.parameters(), betas=(0.9, 0.99), foreach=True)
        self.windows = text.windows_of(run.seed)
        self.validation: dict[int, float] = {}
        self.times: list[float] = []

    def advance(self, window: Tensor) -> float:
        """A step of Adam with clipped gradients; gives bits per character before it."""
        self.step += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.run.rate_at(self.step)
        loss, self.state = bits(self.model, window, self.state)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        with torch.no_grad():
            decay = min(0.995, (1 + self.step) / (10 + self.step))
            torch._foreach_lerp_(list(self.averaged.parameters()), list(self.model.parameters()), 1 - decay)
        return loss.item()

    def save(self, file: pathlib.Path) -> None:
        parts = {name: getattr(self, name).state_dict() for name in ("model", "averaged", "optimizer")}
        partial = file.with_suffix(".partial")
        torch.save(parts | {"step": self.step, "state": self.state, "validation": self.validation, "times": self.times}, partial)
        partial.replace(file)

    def load(self, file: pathlib.Path) -> None:
        saved = torch.load(file, weights_only=True)
        for name in ("model", "averaged", "optimizer"):
            getattr(self, name).load_state_dict(saved[name])
        self.step, self.state, self.validation, self.times = (saved[name] for name in ("step", "state", "validation", "times"))
        for _ in range(self.step):
            next(self.windows)


@dataclass
class Trainer:
    """Does the runs whose results are missing. `results` are for the source, `checkpoints` (with the weights) are not."""

    text: Text
    results: pathlib.Path
    checkpoints: pathlib.Path
    checks: int = 10  # of the validation part in a run

    def __post_init__(self):
        self.results.mkdir(parents=True, exist_ok=True)
        self.checkpoints = self.checkpoints / FORMAT
        self.checkpoints.mkdir(parents=True, exist_ok=True)

    def result(self, run: Run) -> Result:
        """The result of the run, which is done now if it never was."""
        file = self.results / f"{run.name}.json"
        if file.exists():
            found = Result.read(file)
            if found.run == run:
                return found
        return self._train(run)

    def model(self, run: Run) -> CharacterModel:
        """The averaged weights of the run; it is done again where they are absent."""
        file = self._weights(run)
        if not file.exists():
            self._train(run)
        model = CharacterModel(len(self.text.alphabet), run.network, run.seed).requires_grad_(False)
        model.load_state_dict(torch.load(file, weights_only=True))
        return model.eval()

    def _weights(self, run: Run) -> pathlib.Path:
        return self.checkpoints / f"{run.name}.weights"

    def _train(self, run: Run) -> Result:
        training, checkpoint = Training(run, self.text), self.checkpoints / f"{run.name}.checkpoint"
        if checkpoint.exists():
            training.load(checkpoint)
        saved, loss = time.monotonic(), 0.0
        bar = tqdm(total=run.steps, initial=training.step, desc=run.name, leave=False, mininterval=1)
        while training.step < run.steps and math.isfinite(loss):
            began = time.perf_counter()
            loss = training.advance(next(training.windows))
            training.times.append(round(time.perf_counter() - began, 4))
            if training.step % max(1, run.steps // self.checks) == 0 or training.step == run.steps:
                found = evaluate(training.averaged, self.text.validation)
                training.validation[training.step] = round(statistics.fmean(found), 4)
                bar.set_postfix_str(f"{training.validation[training.step]:.3f} bits a character")
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                training.save(checkpoint)
                saved = time.monotonic()
            bar.update()
        bar.close()
        result = self._finish(training, math.isfinite(loss))
        checkpoint.unlink(missing_ok=True)
        return result

    def _finish(self, training: Training, converged: bool) -> Result:
        run = training.run
        result = Result(
            run, sum(one.numel() for one in training.model.parameters()), training.step * STREAMS * WINDOW, training.validation,
            evaluate(training.averaged, self.text.test) if converged else [],
            1000 * statistics.median(training.times),
        )  # fmt: skip
        torch.save(training.averaged.state_dict(), self._weights(run))
        result.write(self.results / f"{run.name}.json")
        return result


def cache_folder() -> pathlib.Path:
    """Where checkpoints go if nothing else is asked for."""
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "sparsekiln/examples"


def dense_like(characters: int, sparse: Network, internal_steps: int) -> Network:
    """The dense network, with so many internal steps, that comes closest to a sparse one in parameters."""
    wanted = parameters(characters, sparse)
    dense = lambda hidden: replace(sparse, hidden=hidden, internal_steps=internal_steps, row=None)
    return min(map(dense, range(16, sparse.hidden, 4)), key=lambda one: abs(parameters(characters, one) - wanted))


def sparse_like(characters: int, sparse: Network, **changed) -> Network:
    """The sparse network with other choices that comes closest to it in parameters, by the blocks of a row."""
    wanted, other = parameters(characters, sparse), replace(sparse, **changed)
    rows = [replace(other, row=row) for row in range(2, other.hidden // other.block + 1)]
    return min(rows, key=lambda one: abs(parameters(characters, one) - wanted))
