"""Which networks the experiment of small_world_lstm.py compares, their runs, and what came of them."""

import itertools
import json
import math
import os
import pathlib
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace

import character_models
import numpy as np
import reporting
import turns
from character_models import Network, Result, Run, Text, Trainer, Training

RESULTS = pathlib.Path(__file__).resolve().parent.parent.parent / "out/examples/small_world_lstm"
RATES = 8e-3, 16e-3  # the first to be tried; then on in factors of 2 while the best one is at the edge
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}  # standard errors of a 95 % interval, by count


@dataclass(frozen=True)
class Plan:
    """Which networks are trained, and for how many steps."""

    characters: int  # in the alphabet
    wide: Network = Network(hidden=768, internal_steps=5, row=3, block=16)
    between: int = 384  # units of the sparse network of a width between
    steps: int = 2000
    search: int = 400  # steps of the runs that choose a rate, and of the comparison of parts
    seeds: int = 3
    limits: tuple[float, float] = (2.5e-4, 6.4e-2)  # of learning rates

    def dense(self, internal_steps: int) -> Network:
        return character_models.dense_like(self.characters, self.wide, internal_steps)

    def sparse(self, **changed) -> Network:
        return character_models.sparse_like(self.characters, self.wide, **changed)

    @property
    def kinds(self) -> tuple[Network, Network, Network, Network]:
        """The small world, one of 1 internal step, and dense networks of as many steps and of 1, all of as many parameters."""
        steps = self.wide.internal_steps
        return self.wide, self.sparse(internal_steps=1), self.dense(steps), self.dense(1)

    @property
    def compared(self) -> tuple[Network, ...]:
        """The networks that have long runs."""
        return self.kinds

    @property
    def narrower(self) -> Network:
        return self.sparse(hidden=self.between)

    @property
    def parts(self) -> list[Network]:
        """The networks that show what each part does."""
        normalised = [replace(kind, normalised=kept) for kind in self.kinds for kept in (True, False)]
        return [*normalised, self.narrower, *(replace(one, identity=False) for one in self.kinds if one != self.kinds[1])]

    def searches(self, network: Network, rate: float) -> Run:
        return Run(network, rate, self.search)

    def trainings(self, network: Network, rate: float) -> list[Run]:
        return [Run(network, rate, self.steps, seed) for seed in range(self.seeds)]


# ---- doing the runs ----


def best_rate(trainer: Trainer, plan: Plan, network: Network) -> float:
    """The rate with the fewest bits on the validation part, of RATES and of those beyond that are worth a try."""
    tried = {rate: trainer.result(plan.searches(network, rate)).validated for rate in RATES}
    while (best := min(tried, key=tried.get)) in (min(tried), max(tried)):
        beyond = best / 2 if best == min(tried) else best * 2
        if not plan.limits[0] <= beyond <= plan.limits[1]:
            break
        tried[beyond] = trainer.result(plan.searches(network, beyond)).validated
    return best


def train_compared(trainer: Trainer, plan: Plan) -> None:
    """The runs that the experiment is about, if they have no result: to choose rates, then of all networks seed by seed."""
    rates = {network: best_rate(trainer, plan, network) for network in plan.compared}
    for seed, (network, rate) in itertools.product(range(plan.seeds), rates.items()):
        trainer.result(plan.trainings(network, rate)[seed])


def train_parts(trainer: Trainer, plan: Plan) -> None:
    """The short runs that show what each part does, if they have no result, in the order of interest."""
    for network in sorted(plan.parts, key=lambda one: (one == plan.narrower or not one.identity, not one.normalised, one.sparse)):
        best_rate(trainer, plan, network)


def time_all(networks: Iterable[Network], text: Text, file: pathlib.Path, rounds: int) -> None:
    """Writes the milliseconds that a step of training takes: medians of rounds in which all networks take turns. Also the load."""
    trainings = [Training(Run(network, 1e-3, rounds), text) for network in networks]
    windows = list(itertools.islice(text.windows_of(0), rounds))
    times = np.median(turns.take_turns("timing", [one.advance for one in trainings], windows), axis=0)
    steps = {str(one.run.network): round(float(ms), 1) for one, ms in zip(trainings, times)}
    beside = {"load": round(os.getloadavg()[0], 1), "cores": os.cpu_count()}
    file.write_text(json.dumps({"machine": reporting.machine(), **beside, "rounds": rounds, "step_ms": steps}, indent=1) + "\n")


# ---- what came of them ----


@dataclass(frozen=True)
class Mean:
    """A mean with its standard error, NaN of a single value."""

    value: float
    error: float
    count: int

    @classmethod
    def of(cls, values: list[float]) -> "Mean":
        count = len(values)
        error = statistics.stdev(values) / math.sqrt(count) if count > 1 else math.nan
        return cls(statistics.fmean(values) if values else math.nan, error, count)

    def __format__(self, spec: str) -> str:
        return format(self.value, f"{spec}.3f") + ("" if math.isnan(self.error) else f" ± {self.error:.3f}")

    def __str__(self) -> str:
        return format(self, "")

    @property
    def clear(self) -> bool:
        """Whether 0 is outside the 95 % interval of Student's t. The interval of a single value is infinite."""
        return self.count > 1 and abs(self.value) > STUDENT[min(self.count, max(STUDENT))] * self.error


def paired(one: dict[int, Result], other: dict[int, Result]) -> Mean:
    """The bits a character on the test part that `one` has more than `other`, seed by seed."""
    return Mean.of([one[seed].tested - other[seed].tested for seed in sorted(one.keys() & other.keys())])


@dataclass
class Findings:
    """All results that there are of a plan, and times."""

    plan: Plan
    results: list[Result]
    times: dict

    @classmethod
    def read(cls, plan: Plan, folder: pathlib.Path) -> "Findings":
        timing = folder / "timing.json"
        results = [Result.read(file) for file in sorted(folder.glob("*-seed*.json"))]
        return cls(plan, results, json.loads(timing.read_text()) if timing.exists() else {"step_ms": {}})

    @property
    def compared(self) -> list[Network]:
        """The networks of the plan that have a long run."""
        return [network for network in self.plan.compared if self.trained(network)]

    def searched(self, network: Network) -> list[Result]:
        """The short runs of a network, the best first."""
        found = [one for one in self.results if one.run == self.plan.searches(network, one.run.rate)]
        return sorted(found, key=lambda one: one.validated)

    def rates(self) -> list[float]:
        """Those that were tried with any network."""
        return sorted({one.run.rate for one in self.results if one.run.steps == self.plan.search})

    def trained(self, network: Network) -> dict[int, Result]:
        """The long runs of a network at the rate that was chosen, by seed."""
        if not (searched := self.searched(network)):
            return {}
        wanted = self.plan.trainings(network, searched[0].run.rate)
        return {one.run.seed: one for one in self.results if one.run in wanted and not one.diverged}

    def best_dense(self) -> Network | None:
        """The dense network with the fewest bits on the validation part."""
        dense = [network for network in self.compared if not network.sparse]
        ended = lambda network: self.checked(network)[self.plan.steps].value
        return min(dense, key=ended, default=None)

    def checked(self, network: Network) -> dict[int, Mean]:
        """Bits on the validation part after so many steps of the long runs."""
        runs = list(self.trained(network).values())
        return {step: Mean.of([run.validation[step] for run in runs]) for step in runs[0].validation}

    def change(self, network: Network, other: Network) -> float:
        """The bits on the validation part that the first has more, each in the best of its short runs; NaN where one has none."""
        ends = [min((one.validated for one in self.searched(each)), default=math.nan) for each in (network, other)]
        return ends[0] - ends[1]

    def step_ms(self, network: Network) -> float:
        return self.times["step_ms"].get(str(network), math.nan)


# ---- options ----


def plan_of(options, text: Text) -> Plan:
    """The plan of these options: that of a short run or the one whose results are published."""
    characters = len(text.alphabet)
    if options.short:
        return Plan(characters, Network(64, 2, 2, 8), between=32, steps=2, search=1, seeds=2, limits=RATES)
    return Plan(characters)


def add_folders(parser, results: pathlib.Path) -> None:
    """Adds the options --results and --checkpoints."""
    parser.add_argument("--results", type=pathlib.Path, metavar="FOLDER", default=results, help="what was found, in small files")
    parser.add_argument(
        "--checkpoints", type=pathlib.Path, metavar="FOLDER", default=character_models.cache_folder() / "small_world_lstm",
        help="runs under way, and the weights of those that are done",
    )  # fmt: skip
