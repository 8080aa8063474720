"""A wide small-world LSTM against narrow dense ones of as many parameters, on the characters of the King James Bible.

The experiment of "GPU Kernels for Block-Sparse Weights" (Gray, Radford & Kingma 2017, §4) at a size for two cores: a
normalised multiplicative LSTM that mixes its state through several layers in each step, whose blocks are small worlds (Watts &
Strogatz 1998) with the diagonal and start as the identity. All networks get their learning rate by the same search.

Without options, does the runs that are missing among the results, and prints what all of them say; with --write, only tells
what is there. A run that is interrupted goes on where it was. The text is the package bible-kjv of Debian.
"""

import math
import pathlib
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import reporting
from character_models import STREAMS, TEST, VALIDATION, WINDOW, Network, Text, Trainer
from small_world_runs import RESULTS, Findings, Mean, add_folders, paired, plan_of, time_all, train_compared, train_parts


def milliseconds(ms: float) -> str:
    return "" if math.isnan(ms) else f"{ms:.0f}"


def comparison_table(findings: Findings) -> str:
    """The long runs: a row for each network, with means over seeds."""
    header = ["network", "parameters", "learning rate", "runs", "test", "validation", "ms a step", "training, s"]
    rows = []
    for network in findings.compared:
        runs, ms = list(findings.trained(network).values()), findings.step_ms(network)
        rows.append([
            network.in_words, f"{runs[0].parameters:,}", f"{runs[0].run.rate:g}", f"{len(runs)}",
            str(Mean.of([one.tested for one in runs])), str(Mean.of([one.validated for one in runs])),
            milliseconds(ms), milliseconds(ms * findings.plan.steps / 1000),
        ])  # fmt: skip
    return reporting.table(header, rows)


def how_clear(more: Mean) -> str:
    """Whether a difference is there, in words."""
    if math.isnan(more.error):
        return "of one pair of runs, which says nothing of other seeds"
    return "a clear difference" if more.clear else "0 is within the 95 % interval, so that no difference is shown"


def conclusion(findings: Findings) -> str:
    """Whether the small-world network beats the better one of the dense networks, and where the difference comes from."""
    wide, best = findings.plan.wide, findings.best_dense()
    if best is None or wide not in findings.compared:
        return "Networks to compare are missing among the runs."
    more = paired(findings.trained(wide), findings.trained(best))
    if not more.count:
        return "No seed has runs of both networks to compare."
    headline = (
        f"**The small-world network of {wide.internal_steps} internal steps, {wide.hidden / best.hidden:.1f} times as wide, has "
        f"{in_amount(more)} on the test part than the dense one that is better on the validation part ({best.in_words}): "
        f"{how_clear(more)}.**"
    )
    said = [shallow_one(findings, best), contributions(findings), over_steps(findings, best), over_seconds(findings, best)]
    return " ".join([headline, *filter(None, said)])


def in_amount(more: Mean) -> str:
    """Such as "0.020 ± 0.005 bits a character fewer"."""
    return f"{Mean(abs(more.value), more.error, more.count)} bits a character {'fewer' if more.value < 0 else 'more'}"


def shallow_one(findings: Findings, dense: Network) -> str:
    """How the small world of 1 internal step compares with that dense network."""
    shallow = findings.plan.kinds[1]
    more = paired(findings.trained(shallow), findings.trained(dense))
    if not more.count:
        return ""
    return f"The {shallow.in_words}, has {in_amount(more)} than that one: {how_clear(more)}."


def contributions(findings: Findings) -> str:
    """The way from the ordinary dense network to the small world, change by change."""
    wide, deep, ordinary = findings.plan.wide, findings.plan.dense(findings.plan.wide.internal_steps), findings.plan.dense(1)
    deeper = paired(findings.trained(deep), findings.trained(ordinary))
    wider = paired(findings.trained(wide), findings.trained(deep))
    if not deeper.count or not wider.count:
        return ""
    return (
        f"Two changes lead from the dense network of 1 internal step to the small world of {deep.internal_steps}. "
        f"{deep.internal_steps} internal steps instead of 1, for which {ordinary.hidden} units become {deep.hidden}, change the "
        f"bits by {deeper:+} ({how_clear(deeper)}); sparse layers, with which {deep.hidden} units become {wide.hidden}, by "
        f"{wider:+} ({how_clear(wider)})."
    )


def over_steps(findings: Findings, dense: Network) -> str:
    """Whether the difference of the two grows or shrinks over the steps."""
    sparse, other = findings.checked(findings.plan.wide), findings.checked(dense)
    steps = [step for step in sparse if step in other]
    middle, end = (sparse[step].value - other[step].value for step in (steps[(len(steps) - 1) // 2], steps[-1]))
    return (
        f"On the validation part, the small world of {findings.plan.wide.internal_steps} differs from the better dense one by "
        f"{end:+.3f} after {steps[-1]} steps and was "
        f"{middle:+.3f} after {steps[(len(steps) - 1) // 2]}; it {'grew' if abs(end) > abs(middle) else 'shrank'}."
    )


def over_seconds(findings: Findings, dense: Network) -> str:
    """How the two compare after as many seconds of training."""
    plan = findings.plan
    seconds = {network: findings.step_ms(network) * plan.steps / 1000 for network in (plan.wide, dense)}
    if any(map(math.isnan, seconds.values())):
        return ""
    of_wide, of_dense = seconds[plan.wide], seconds[dense]
    said = f"The small world of {plan.wide.internal_steps} takes {of_wide:.0f} s to train, that dense one {of_dense:.0f} s."
    sooner, later = sorted(seconds, key=seconds.get)
    reached = [step for step in findings.checked(later) if step * findings.step_ms(later) / 1000 <= seconds[sooner]]
    if not reached or reached[-1] == plan.steps:
        return said
    names = {plan.wide: "the small-world network", dense: "the dense network"}
    ended, then = findings.checked(sooner)[plan.steps].value, findings.checked(later)[reached[-1]].value
    return (
        f"{said} When {names[sooner]} ends, at {ended:.3f} bits on the validation part, {names[later]} has done "
        f"{reached[-1]} steps and is at {then:.3f}, before its learning rate has fallen."
    )


def parts_table(findings: Findings) -> str:
    """The short runs: a row for each network, with its best rate."""
    header = ["layers", "units", "internal steps", "normalised", "start", "parameters", "best rate", "validation", "test"]
    rows = []
    for network in findings.plan.parts:
        if not (runs := findings.searched(network)):
            continue
        best = runs[0]
        rows.append([
            f"{100 * network.density:.0f} % of blocks" if network.sparse else "dense",
            f"{network.hidden}", f"{network.internal_steps}",
            "yes" if network.normalised else "no", "identity" if network.identity else "normal",
            f"{best.parameters:,}", f"{best.run.rate:g} of {len(runs)}",
            *(("diverged", "") if best.diverged else (f"{best.validated:.3f}", f"{best.tested:.3f}")),
            milliseconds(findings.step_ms(network)),
        ])  # fmt: skip
    return reporting.table([*header, "ms a step"], rows)


def effects(findings: Findings) -> Iterator[str]:
    """What each part changes: a line for each, with the pairs of networks that differ in that part alone."""
    plan = findings.plan
    wide, shallow, deep, ordinary = plan.kinds
    steps = f"{plan.wide.internal_steps} internal steps instead of 1"
    pairs = {
        "normalisation": [(one.in_words, one, replace(one, normalised=False)) for one in plan.kinds],
        f"{steps}, at as many parameters": [
            (f"{kind}, {'' if kept else 'not '}normalised", replace(one, normalised=kept), replace(other, normalised=kept))
            for kind, one, other in (("small world", wide, shallow), ("dense", deep, ordinary))
            for kept in (True, False)
        ],
        "a sparse network instead of a dense one, at as many parameters": [
            (f"{one.in_words}, {'' if kept else 'not '}normalised", replace(one, normalised=kept), replace(other, normalised=kept))
            for one, other in ((wide, deep), (shallow, ordinary))
            for kept in (True, False)
        ] + [(plan.narrower.in_words, plan.narrower, deep)],
        "a start as the identity instead of normal weights": [
            (one.in_words, one, replace(one, identity=False)) for one in (wide, deep, ordinary)
        ],
    }  # fmt: skip
    for part, cases in pairs.items():
        changes = [(case, findings.change(with_it, without)) for case, with_it, without in cases]
        if said := [f"{change:+.3f} ({case})" for case, change in changes if math.isfinite(change)]:
            yield f"- {part}: {'; '.join(said)}"


def spread(findings: Findings) -> str:
    """How far apart seeds are, for scale."""
    runs = [list(findings.trained(network).values()) for network in findings.compared]
    deviations = [statistics.stdev(one.tested for one in of_network) for of_network in runs if len(of_network) > 1]
    if not deviations:
        return ""
    return (
        f" Each figure is of two single runs; of the long runs, two of the same network that differ in the seed are "
        f"{math.sqrt(2) * statistics.fmean(deviations):.3f} apart (standard deviation)."
    )


def setting(findings: Findings, characters: int) -> str:
    """What was done, in words."""
    plan, wide = findings.plan, findings.plan.wide
    times = findings.times
    machine = f"{times['machine']}. " if "machine" in times else ""
    load = f", while {times['load']:.1f} processes on average wanted the {times['cores']} cores" if "load" in times else ""
    epochs = plan.steps * STREAMS * WINDOW / (characters * (1 - TEST - VALIDATION))
    return (
        f"{machine}{characters:,} characters; the last {100 * TEST:g} % are the test part, and the {100 * VALIDATION:g} % before "
        f"them the validation part, on which learning rates are chosen. {plan.steps} steps of {STREAMS} × {WINDOW} characters, "
        f"which is {epochs:.2g} times the training part. The layers of the small world with {wide.internal_steps} internal "
        f"steps have {100 * wide.density:.2g} % of their blocks, of {wide.block} × {wide.block}. These figures are of "
        f"{len(findings.results)} runs. ± is the standard error over seeds, each of which has its own layouts, first weights and "
        f"place to begin in the text. Times are of one core: medians of rounds in which all networks take turns{load}. “Test” and "
        f"“validation” are bits a character at the end."
    )


def report(findings: Findings, characters: int) -> str:
    parts = (
        f"What each part does, in single runs of {findings.plan.search} steps: each network with the best of the learning rates "
        f"that were tried with it, of {', '.join(f'{rate:g}' for rate in findings.rates())}. "
        f"Without normalisation, gains and biases stay."
    )
    changes = f"What each part changes, in bits a character on the validation part (less than 0 is better).{spread(findings)}"
    tables = [comparison_table(findings), conclusion(findings), parts, parts_table(findings), changes, "\n".join(effects(findings))]
    return "\n\n".join([setting(findings, characters), *tables])


def plot(findings: Findings):
    """Bits on the validation part over steps and over seconds of training, with standard errors over seeds."""
    figure, (left, right) = reporting.new_figure(ncols=2, sharey=True, figsize=(9, 3.6))
    for network in findings.compared:
        means = findings.checked(network)
        steps, values = np.array(list(means)), [one.value for one in means.values()]
        errors = np.nan_to_num([one.error for one in means.values()])
        left.errorbar(steps, values, errors, marker="o", markersize=3, capsize=2, label=network.in_words)
        right.errorbar(steps * findings.step_ms(network) / 1000, values, errors, marker="o", markersize=3, capsize=2)
    left.set(xlabel="steps", ylabel="bits a character, validation")
    right.set(xlabel="seconds of training")
    left.set_ylim(top=min(left.get_ylim()[1], 3))
    if findings.compared:
        left.legend()
    return figure


def main() -> None:
    def add_options(parser):
        add_folders(parser, RESULTS)
        parser.add_argument("--time", action="store_true", help="take times again")

    options = reporting.parse(__doc__, add_options)
    if options.short:
        with tempfile.TemporaryDirectory() as folder:
            options.results = options.checkpoints = pathlib.Path(folder)
            work(options)
    else:
        work(options)


def work(options) -> None:
    """Does what is missing, unless results are only to be written, and publishes what there is."""
    text = Text.load(options.short)
    plan = plan_of(options, text)
    if not options.write:
        trainer = Trainer(text, options.results, options.checkpoints)
        train_compared(trainer, plan)
        train_parts(trainer, plan)
    timing = options.results / "timing.json"
    if options.time or not (options.write or timing.exists()):
        untimed = Findings.read(plan, options.results)
        networks = [network for network in dict.fromkeys([*plan.compared, *plan.parts]) if untimed.searched(network)]
        time_all(networks, text, timing, 2 if options.short else 15)
    findings = Findings.read(plan, options.results)
    described = "bits a character of the small-world and the dense networks, over steps and over seconds of training"
    reporting.publish(options, "small_world_lstm", report(findings, text.characters), plot(findings), described)


if __name__ == "__main__":
    main()
