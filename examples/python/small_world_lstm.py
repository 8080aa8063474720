"""A wide small-world LSTM against narrow dense ones of as many parameters, on the characters of the King James Bible.

The experiment of "GPU Kernels for Block-Sparse Weights" (Gray, Radford & Kingma 2017, §4) at a size for two cores: a
normalised multiplicative LSTM that mixes its state through several layers in each step, whose blocks are small worlds (Watts &
Strogatz 1998) with the diagonal and start as the identity. All networks get their learning rate by the same search.

Without options, does the runs that are missing among the results, and prints what all of them say; with --write, only tells
what is there. A run that is interrupted goes on where it was. The text is the package bible-kjv of Debian.
"""

import itertools
import json
import math
import pathlib
import statistics
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import character_models
import numpy as np
import reporting
import turns
from character_models import STREAMS, WINDOW, Network, Result, Run, Text, Trainer, Training

RESULTS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/examples/small_world_lstm"
RATES = (2e-3, 4e-3, 8e-3)  # the first to be tried; then on in factors of 2 while the best one is at the edge
LIMITS = (2.5e-4, 6.4e-2)
CLEAR = 2  # standard errors, from which a difference counts


@dataclass(frozen=True)
class Plan:
    """Which networks are trained, and for how many steps."""

    characters: int  # in the alphabet
    wide: Network = Network(hidden=768, internal_steps=5, row=3, block=16)
    between: int = 384  # units of the sparse network of a width between
    steps: int = 1500
    search: int = 400  # steps of the runs that choose a rate, and of the comparison of parts
    seeds: int = 3

    @property
    def compared(self) -> dict[str, Network]:
        """The networks that the experiment is about."""
        dense = {f"dense, {steps} internal step{'s' if steps > 1 else ''}": self.dense(steps) for steps in (5, 1)}
        return {f"small world, {self.wide.internal_steps} internal steps": self.wide} | dense

    def dense(self, internal_steps: int) -> Network:
        return character_models.dense_like(self.characters, self.wide, internal_steps)

    def sparse(self, **changed) -> Network:
        return character_models.sparse_like(self.characters, self.wide, **changed)

    @property
    def parts(self) -> list[Network]:
        """The networks that show what each part does: each with and without normalisation, wide and narrow, and so on."""
        kinds = [self.wide, self.sparse(internal_steps=1), self.dense(5), self.dense(1)]
        normalised = [replace(kind, normalised=kept) for kind in kinds for kept in (True, False)]
        other_starts = [replace(kind, identity=False) for kind in (self.wide, self.dense(5), self.dense(1))]
        return [*normalised, self.sparse(hidden=self.between), *other_starts]

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
        if not LIMITS[0] <= beyond <= LIMITS[1]:
            break
        tried[beyond] = trainer.result(plan.searches(network, beyond)).validated
    return best


def train_all(trainer: Trainer, plan: Plan) -> None:
    """All runs of the plan that have no result, those first that the experiment is about."""
    rates = {network: best_rate(trainer, plan, network) for network in plan.compared.values()}
    for seed, (network, rate) in itertools.product(range(plan.seeds), rates.items()):
        trainer.result(plan.trainings(network, rate)[seed])
    for network in plan.parts:
        best_rate(trainer, plan, network)


def time_all(networks: Iterable[Network], text: Text, file: pathlib.Path, rounds: int) -> None:
    """Writes the milliseconds that a step of training takes: medians of rounds in which all networks take turns."""
    trainings = [Training(Run(network, 1e-3, rounds), text) for network in networks]
    windows = list(itertools.islice(text.windows_of(0), rounds))
    times = np.median(turns.take_turns("timing", [one.advance for one in trainings], windows), axis=0)
    steps = {str(one.run.network): round(float(ms), 1) for one, ms in zip(trainings, times)}
    file.write_text(json.dumps({"machine": reporting.machine(), "rounds": rounds, "step_ms": steps}, indent=1) + "\n")


# ---- what came of them ----


@dataclass
class Findings:
    """All results that there are, and times."""

    plan: Plan
    results: list[Result]
    times: dict

    @classmethod
    def read(cls, plan: Plan, folder: pathlib.Path) -> "Findings":
        timing = folder / "timing.json"
        results = [Result.read(file) for file in sorted(folder.glob("*-seed*.json"))]
        return cls(plan, results, json.loads(timing.read_text()) if timing.exists() else {"step_ms": {}})

    def searched(self, network: Network) -> list[Result]:
        """The short runs of a network, the best first."""
        found = [one for one in self.results if one.run == self.plan.searches(network, one.run.rate)]
        return sorted(found, key=lambda one: one.validated)

    def trained(self, network: Network) -> dict[int, Result]:
        """The long runs of a network at the rate that was chosen, by seed."""
        if not (searched := self.searched(network)):
            return {}
        wanted = self.plan.trainings(network, searched[0].run.rate)
        return {one.run.seed: one for one in self.results if one.run in wanted}

    def step_ms(self, network: Network) -> float:
        return self.times["step_ms"].get(str(network), math.nan)


@dataclass(frozen=True)
class Mean:
    """A mean with its standard error, NaN of a single value."""

    value: float
    error: float

    @classmethod
    def of(cls, values: list[float]) -> "Mean":
        if len(values) < 2:
            return cls(values[0] if values else math.nan, math.nan)
        return cls(statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)))

    def __str__(self) -> str:
        return f"{self.value:.3f}" if math.isnan(self.error) else f"{self.value:.3f} ± {self.error:.3f}"

    @property
    def clear(self) -> bool:
        """More than CLEAR standard errors from 0. A single value never is."""
        return abs(self.value) > CLEAR * self.error


def paired(one: dict[int, Result], other: dict[int, Result]) -> Mean:
    """The bits a character on the test part that `one` has more than `other`, seed by seed."""
    return Mean.of([one[seed].tested - other[seed].tested for seed in sorted(one.keys() & other.keys())])


def verdict(more: Mean, runs: int, against: str) -> str:
    """What a difference says, in whichever direction: `more` bits a character of the sparse network than of the other."""
    amount = f"{abs(more.value):.3f}" + ("" if math.isnan(more.error) else f" ± {more.error:.3f}")
    kind = "fewer" if more.value < 0 else "more"
    said = f"{amount} bits a character {kind} than {against}, in the mean of {runs} pair{'s' if runs != 1 else ''} of runs"
    if runs < 2:
        return f"{said}, which say nothing of other seeds"
    return f"{said}: {'a clear difference' if more.clear else f'less than {CLEAR} standard errors, so no difference is shown'}"


def after_seconds(findings: Findings, network: Network, seconds: float) -> tuple[int, float] | None:
    """The last check of the validation part within so many seconds: its step, and bits in the mean over seeds."""
    runs = list(findings.trained(network).values())
    step_s = findings.step_ms(network) / 1000
    reached = [step for step in (runs[0].validation if runs else {}) if step * step_s <= seconds]
    if not reached:
        return None
    return reached[-1], statistics.fmean(run.validation[reached[-1]] for run in runs)


def comparison(findings: Findings) -> str:
    """The experiment: a table, and what it says."""
    plan = findings.plan
    networks = {name: network for name, network in plan.compared.items() if findings.trained(network)}
    header = ["network", "units", "parameters", "learning rate", "runs", "bits a character, test", "validation", "ms a step", "training, s"]
    rows = []
    for name, network in networks.items():
        runs = list(findings.trained(network).values())
        ms = findings.step_ms(network)
        rows.append([
            name, f"{network.hidden}", f"{runs[0].parameters:,}", f"{runs[0].run.rate:g}", f"{len(runs)}",
            str(Mean.of([one.tested for one in runs])), str(Mean.of([one.validated for one in runs])),
            "" if math.isnan(ms) else f"{ms:.0f}", "" if math.isnan(ms) else f"{ms * plan.steps / 1000:.0f}",
        ])  # fmt: skip
    return f"{reporting.table(header, rows)}\n\n{conclusion(findings, networks)}"


def conclusion(findings: Findings, networks: dict[str, Network]) -> str:
    """Whether the sparse network beats the better one of the dense networks."""
    plan = findings.plan
    dense = {name: findings.trained(network) for name, network in networks.items() if not network.sparse}
    sparse = findings.trained(plan.wide)
    if not dense or not sparse:
        return "Networks to compare are missing among the runs."
    best = min(dense, key=lambda name: Mean.of([one.validated for one in dense[name].values()]).value)
    shared = len(sparse.keys() & dense[best].keys())
    more = paired(sparse, dense[best])
    times_wide = plan.wide.hidden / networks[best].hidden
    said = (
        f"**The small-world network, {times_wide:.1f} times as wide, has {verdict(more, shared, 'the better of the dense ones')}.** "
        f"The better one, on the validation part, is: {best}."
    )
    return f"{said} {over_seconds(findings, networks[best])}"


def over_seconds(findings: Findings, dense: Network) -> str:
    """How the two compare after as many seconds of training."""
    wide, steps = findings.plan.wide, findings.plan.steps
    budget, of_sparse = (findings.step_ms(network) * steps / 1000 for network in (dense, wide))
    if math.isnan(budget) or math.isnan(of_sparse):
        return ""
    end = statistics.fmean(run.validated for run in findings.trained(dense).values())
    sooner, later = (dense, wide) if budget < of_sparse else (wide, dense)
    names = {dense: "the dense network", wide: "the small-world network"}
    stood = after_seconds(findings, later, min(budget, of_sparse))
    ended = end if sooner == dense else statistics.fmean(run.validated for run in findings.trained(wide).values())
    said = f"Training takes {of_sparse:.0f} s instead of {budget:.0f} s."
    if stood is None or stood[0] == steps:
        return said
    return (
        f"{said} When {names[sooner]} ends, at {ended:.3f} bits on the validation part, {names[later]} has done {stood[0]} steps "
        f"and stands at {stood[1]:.3f}, its rate not yet down."
    )


def described(network: Network) -> list[str]:
    layers = f"{100 * network.row * network.block / network.hidden:.2g} % dense" if network.sparse else "dense"
    return [
        layers, f"{network.hidden}", f"{network.internal_steps}", "yes" if network.normalised else "no",
        "identity" if network.identity else "normal",
    ]  # fmt: skip


def parts_table(findings: Findings) -> str:
    """The short runs: a row for each network, with its best rate."""
    header = ["layers", "units", "internal steps", "normalised", "start", "parameters", "rates tried", "best", "bits a character, validation", "test", "ms a step"]
    rows = []
    for network in findings.plan.parts:
        if not (runs := findings.searched(network)):
            continue
        best, ms = runs[0], findings.step_ms(network)
        rows.append([
            *described(network), f"{best.parameters:,}", f"{len(runs)}", f"{best.run.rate:g}",
            *(("diverged", "") if best.diverged else (f"{best.validated:.3f}", f"{best.tested:.3f}")), "" if math.isnan(ms) else f"{ms:.0f}",
        ])  # fmt: skip
    return reporting.table(header, rows)


def effects(findings: Findings) -> Iterator[str]:
    """What each part changes, of the networks that differ in nothing else."""
    plan = findings.plan
    short = lambda network: f"{'small world' if network.sparse else 'dense'}, {network.internal_steps} internal steps"

    def changes(what: str, pairs: list[tuple[str, Network, Network]]) -> Iterator[str]:
        said = []
        for where, with_it, without in pairs:
            one, other = findings.searched(with_it), findings.searched(without)
            if one and other:
                difference = one[0].validated - other[0].validated
                said.append(f"{difference:+.3f} ({where})" if math.isfinite(difference) else f"without it no run converged ({where})")
        if said:
            yield f"- {what}: {'; '.join(said)}"

    both = [plan.wide, plan.sparse(internal_steps=1), plan.dense(5), plan.dense(1)]
    yield from changes("normalisation", [(short(one), one, replace(one, normalised=False)) for one in both])
    yield from changes(
        "5 internal steps instead of 1, at as many parameters",
        [
            (f"{kind}, {'' if kept else 'not '}normalised", replace(five, normalised=kept), replace(one, normalised=kept))
            for kind, five, one in (("small world", both[0], both[1]), ("dense", both[2], both[3]))
            for kept in (True, False)
        ],
    )
    narrower = plan.sparse(hidden=plan.between)
    yield from changes(
        "width, at as many parameters and 5 internal steps",
        [
            (f"{plan.wide.hidden} units of a small world instead of {plan.dense(5).hidden} dense ones", both[0], both[2]),
            (f"{narrower.hidden} units of a small world instead of {plan.dense(5).hidden} dense ones", narrower, both[2]),
            (f"{plan.wide.hidden} units of a small world instead of {both[3].hidden} dense ones of 1 internal step", both[0], both[3]),
        ],
    )
    yield from changes(
        "a start as the identity instead of normal weights",
        [(short(one), one, replace(one, identity=False)) for one in (both[0], both[2], both[3])],
    )


def spread(findings: Findings) -> str:
    """How far seeds lie apart, for scale."""
    deviations = [
        statistics.stdev(one.tested for one in runs.values())
        for network in findings.plan.compared.values()
        if len(runs := findings.trained(network)) > 1
    ]
    if not deviations:
        return ""
    return (
        f" Each of these is a single run. For scale: seeds of the long runs differ by a standard deviation of "
        f"{statistics.fmean(deviations):.3f}, and the difference of two runs by {math.sqrt(2) * statistics.fmean(deviations):.3f}."
    )


def setting(findings: Findings, characters: int) -> str:
    """What was done, in words."""
    plan, runs = findings.plan, len(findings.results)
    wide = plan.wide
    test, validation = (100 * share for share in (character_models.TEST, character_models.VALIDATION))
    read = plan.steps * STREAMS * WINDOW / (characters * (1 - character_models.TEST - character_models.VALIDATION))
    machine = f"{findings.times['machine']}. " if "machine" in findings.times else ""
    return (
        f"{machine}{characters:,} characters, of which the last {test:g} % are the test part, and {validation:g} % before them the "
        f"validation part that learning rates are chosen on. {plan.steps} steps of {STREAMS} × {WINDOW} characters, {read:.2g} times "
        f"the training part; Adam, averaged weights. Layers of the small-world network are {100 * wide.row * wide.block / wide.hidden:.2g} % dense, "
        f"in blocks of {wide.block}. {runs} runs are in these figures. ± are standard errors over seeds, each with its own "
        f"layouts, first weights and place to begin in the text. Times are of one core: medians of rounds in which all networks take turns."
    )


def report(findings: Findings, characters: int) -> str:
    parts = (
        f"What each part does, in runs of {findings.plan.search} steps, each network with the best one of the learning rates that were "
        f"tried. “Normalised” is whether layer normalisation is there, or gains and biases alone."
    )
    listed = "\n".join(effects(findings))
    changed = f"Bits a character on the validation part that each part adds (fewer are better):{spread(findings)}\n\n{listed}"
    return "\n\n".join([setting(findings, characters), comparison(findings), parts, parts_table(findings), changed])


def plot(findings: Findings):
    """Bits on the validation part over steps and over seconds of training, with standard errors over seeds."""
    figure, (left, right) = reporting.new_figure(ncols=2, sharey=True, figsize=(9, 3.6))
    for name, network in findings.plan.compared.items():
        runs = list(findings.trained(network).values())
        if not runs:
            continue
        steps = np.array(list(runs[0].validation))
        means = [Mean.of([run.validation[step] for run in runs]) for step in steps]
        values, errors = np.array([one.value for one in means]), np.nan_to_num([one.error for one in means])
        left.errorbar(steps, values, errors, marker="o", markersize=3, capsize=2, label=f"{name}, {network.hidden} units")
        right.errorbar(steps * findings.step_ms(network) / 1000, values, errors, marker="o", markersize=3, capsize=2)
    left.set(xlabel="steps", ylabel="bits a character, validation")
    right.set(xlabel="seconds of training")
    left.set_ylim(top=min(left.get_ylim()[1], 3))
    left.legend()
    return figure


def short_plan(characters: int) -> Plan:
    return Plan(characters, Network(64, 2, 2, 8), between=32, steps=4, search=2, seeds=2)


def main() -> None:
    def add_options(parser):
        parser.add_argument("--results", type=pathlib.Path, metavar="FOLDER", default=RESULTS, help="of what runs gave")
        parser.add_argument(
            "--checkpoints", type=pathlib.Path, metavar="FOLDER", default=character_models.cache_folder() / "small_world_lstm",
            help="of runs under way, and of weights",
        )  # fmt: skip
        parser.add_argument("--time", action="store_true", help="take times again")

    options = reporting.parse(__doc__, add_options)
    text = Text.load(options.short)
    if options.short:
        with tempfile.TemporaryDirectory() as folder:
            work(options, text, short_plan(len(text.alphabet)), pathlib.Path(folder), pathlib.Path(folder))
    else:
        work(options, text, Plan(len(text.alphabet)), options.results, options.checkpoints)


def work(options, text: Text, plan: Plan, results: pathlib.Path, checkpoints: pathlib.Path) -> None:
    """Does what is missing, unless results are only to be written, and publishes what there is."""
    if not options.write:
        train_all(Trainer(text, results, checkpoints), plan)
    timing = results / "timing.json"
    if options.time or not (options.write or timing.exists()):
        time_all(dict.fromkeys([*plan.compared.values(), *plan.parts]), text, timing, 2 if options.short else 15)
    findings = Findings.read(plan, results)
    described_plot = "bits a character of the small-world and the dense networks, over steps and over seconds of training"
    reporting.publish(options, "small_world_lstm", report(findings, text.characters), plot(findings), described_plot)


if __name__ == "__main__":
    main()
