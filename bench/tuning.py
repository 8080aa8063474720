"""What tuning gains on the cpu target: python3 bench/tuning.py BUILD_DIR [--budget 8s] [--json FILE] [--records FILE] [--write docs/tuning.md] [--short]

Layers of 2560, 5120 and 10240 hidden units, 25, 6.56 and 2.71 % dense, blocks of 32, 16 and 8, batch 64, float32: the
sizes that Gray, Radford and Kingma (2017) trained with. Tunes each of them twice, in two independent stores, and compares
the results with each other, with the default, and with the model:

  gain         default over tuned, from rounds in which both took turns
  agreement    whether the two runs chose the same config, or one that ties with the other's
  correlation  Spearman's, of the cost model's times and the measured ones, over the configs that were tried
  pick         measured time of the config that the model ranks first over that of the best

With --write it puts its tables between the marks of that document.
"""

import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import publish

_HIDDEN = (2560, 5120, 10240)
_DENSITIES = (0.25, 0.0656, 0.0271)
_BLOCKS = (32, 16, 8)
_BATCH = 64
_TIE = 1.02


def run(tool: pathlib.Path, cache: pathlib.Path, *arguments: object) -> dict:
    command = [str(tool), *map(str, arguments), "--json"]
    environment = dict(os.environ, SPARSEKILN_CACHE_DIR=str(cache))
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def ranks(values: list[float]) -> list[float]:
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def correlation(a: list[float], b: list[float]) -> float:
    """Spearman's rank correlation."""
    if len(a) < 3 or len(set(a)) == 1 or len(set(b)) == 1:
        return math.nan
    return statistics.correlation(ranks(a), ranks(b))


def time_of(candidate: dict) -> float:
    return statistics.median(candidate["final_us"] or candidate["samples_us"])


def relative_time(candidate: dict) -> float:
    """The time relative to the default's of the same rounds: other work on the machine does not affect it."""
    return statistics.median(candidate["relative"])


def timed(record: dict) -> list[dict]:
    """The candidates of its only contest."""
    return [one for one in record["contests"][0]["candidates"] if one["outcome"] == "measured" and one["samples_us"]]


def ties(record: dict, config: str, best: str) -> bool:
    """Whether this run, too, cannot distinguish `config` from its best."""
    if config == best:
        return True
    times = {one["config"]: one for one in timed(record)}
    if config not in times:
        return False
    a, b = times[config], times[best]
    rounds = [x / y for x, y in zip(a["final_us"], b["final_us"])]
    if not rounds:
        return time_of(a) <= _TIE * time_of(b)
    low = statistics.quantiles(rounds, n=5)[0] if len(rounds) > 1 else rounds[0]
    return statistics.median(rounds) <= _TIE or low <= 1


def compare(
    tool: pathlib.Path, folder: pathlib.Path, hidden: int, density: float, block: int, batch: int, budget: str
) -> dict:
    side = hidden // block
    layout = folder / f"{hidden}-{density}-{block}.npy"
    run(tool, folder, "layout", "make", "random", "--rows", side, "--cols", side, "--density", density, "--seed", 1, "-o", layout)
    records, best = [], []
    for number in (1, 2):
        cache = folder / f"cache-{hidden}-{density}-{block}-{number}"
        answer = run(tool, cache, "tune", layout, "--block", block, "--batch", batch, "--target", "cpu", "--budget", budget)
        lines = folder / "records.jsonl"
        run(tool, cache, "records", "export", lines)
        records.append(json.loads(lines.read_text()))
        best.append(answer["problems"][0]["best"]["config"])
    problem = answer["problems"][0]
    first = timed(records[0])
    fastest = min(map(relative_time, first))
    default_us = time_of(next(one for one in first if one["config"] == records[0]["contests"][0]["default"]))
    pick = min(first, key=lambda one: one["predicted_us"])
    return {
        "hidden": hidden, "density": density, "block": block, "best": best[0],
        "gain": [gain(record, config) for record, config in zip(records, best)],
        "agree": ties(records[1], best[0], best[1]) or ties(records[0], best[1], best[0]),
        "tried": len(first), "best_us": answer["problems"][0]["best"]["median_us"], "floor_us": problem["floor_us"],
        "correlation": correlation([one["predicted_us"] for one in first], [relative_time(one) for one in first]),
        "pick": relative_time(pick) / fastest, "record": shipped(records[0]), "environment": records[0]["environment"], "times": [
            (one["predicted_us"], default_us * relative_time(one)) for one in first],
    }  # fmt: skip


def gain(record: dict, best: str) -> float:
    """Default over tuned: the median of the ratios of the rounds of the finals."""
    times = {one["config"]: one for one in timed(record)}
    default = times.get(record["contests"][0]["default"])
    if default is None or default["config"] == best:
        return 1.0
    rounds = [a / b for a, b in zip(default["final_us"], times[best]["final_us"])]
    return statistics.median(rounds) if rounds else time_of(default) / time_of(times[best])


def shipped(record: dict) -> dict:
    """The record with only what decides: the finalists."""
    contest = record["contests"][0]
    finalists = [one | {"samples_us": [], "relative": []} for one in contest["candidates"] if one["final_us"]]
    return record | {"contests": [contest | {"candidates": finalists, "pruned": []}]}


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def summary(rows: list[dict]) -> dict:
    gains = [one for row in rows for one in row["gain"]]
    correlations = [row["correlation"] for row in rows if not math.isnan(row["correlation"])]
    everything = [pair for row in rows for pair in row["times"]]
    return {
        "problems": len(rows), "gain": geometric_mean(gains), "least_gain": min(gains), "largest_gain": max(gains),
        "agree": sum(row["agree"] for row in rows),
        "correlation": statistics.median(correlations or [math.nan]),
        "pooled_correlation": correlation([a for a, _ in everything], [b for _, b in everything]),
        "pick": statistics.median(row["pick"] for row in rows), "worst_pick": max(row["pick"] for row in rows),
    }  # fmt: skip


def tables(rows: list[dict], whole: dict, budget: str) -> str:
    environment = rows[0]["environment"]
    text = [
        f"{environment['device']}, {environment['workers']} threads; `--budget {budget}`, two runs.", "",
        f"- default over tuned: geometric mean {whole['gain']:.3f}, {whole['least_gain']:.3f} to {whole['largest_gain']:.3f}",
        f"- the two runs agree on the winner, or on a tie: {whole['agree']} of {whole['problems']} problems",
        f"- the cost model's times and the measured ones: rank correlation within a problem {whole['correlation']:.2f} "
        f"(median), over all problems {whole['pooled_correlation']:.2f}",
        f"- the config that the model ranks first, over the best: {whole['pick']:.3f} (median), "
        f"{whole['worst_pick']:.3f} (worst)", "",
    ]  # fmt: skip

    def cells(row: dict) -> list[str]:
        gains = [f"{gain:.3f}" for gain in row["gain"]]
        times = [f"{row['best_us']:.0f}", f"{row['floor_us']:.0f}"]
        ranks = [f"{row['correlation']:.2f}", f"{row['pick']:.3f}"]
        agree = "yes" if row["agree"] else "no"
        return [row["hidden"], f"{100 * row['density']:.3g} %", row["block"], *times, *gains, agree, row["tried"], *ranks]

    problem, times = ["hidden", "density", "block"], ["best, µs", "bound, µs"]
    gains, ranks = ["default / tuned, run 1", "run 2"], ["agree", "tried", "correlation", "pick"]
    return "\n".join(text + publish.table([*problem, *times, *gains, *ranks], map(cells, rows)))


def main() -> None:
    parser = publish.parser(__doc__)
    parser.add_argument("--budget", default="8s", help="of each of the two runs of a problem")
    parser.add_argument("--hidden", type=int, nargs="+", help="units; those above where not given")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--records", type=pathlib.Path, help="write those of the first runs, as autotune/records/ has them")
    publish.add_write(parser, __file__)
    options = parser.parse_args()
    tool = options.build.resolve() / "tools" / "sparsekiln"
    sizes = ((256,), (0.25,), (32, 16), 8) if options.short else (_HIDDEN, _DENSITIES, _BLOCKS, _BATCH)
    all_hidden, densities, blocks, batch = sizes
    rows = []
    with tempfile.TemporaryDirectory(prefix="sparsekiln-tuning-") as folder:
        for hidden in options.hidden or all_hidden:
            for density in densities:
                for block in blocks:
                    row = compare(tool, pathlib.Path(folder), hidden, density, block, batch, options.budget)
                    rows.append(row)
                    print(f"{hidden} {density} {block}: {row['gain'][0]:.3f} {row['gain'][1]:.3f} agree {row['agree']} "
                          f"correlation {row['correlation']:.2f} pick {row['pick']:.2f} tried {row['tried']} {row['best']}",
                          flush=True)  # fmt: skip
    whole = summary(rows)
    print(tables(rows, whole, options.budget))
    if options.records:
        options.records.write_text("".join(json.dumps(row["record"], separators=(",", ":")) + "\n" for row in rows))
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "summary": whole}, indent=1))
    if options.write:
        publish.write(options.write, tables(rows, whole, options.budget), __file__)


if __name__ == "__main__":
    main()
