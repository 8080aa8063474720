"""Tunes six of the workloads on this machine's GPU: bench/gpu_tune.py --build BUILD --out DIR [--minutes N] [--short]

`sparsekiln tune … --target cuda` for each of them, in equal shares of the time. Writes DIR/tune.json as it goes: what tuning
gained over the default, and how the cost model ranks what was measured, as bench/model_accuracy.py has it for the cpu:

  correlation  Spearman's, of the model's times and the measured ones, over all configs that were measured
  pick         measured time of the config that the model ranks first of these, over that of the best

DIR/records.jsonl has all records, to be taken to another machine by `sparsekiln records import`, and DIR/shipped.jsonl the same
with their finalists alone, as autotune/records/ has them. DIR/tune-store keeps what was measured: a problem that time did not
allow is left to the next call. Everything of DIR is also in
DIR/gpu-DEVICE-COMMIT.tar.gz. Exit status: 0 success, 1 a
problem failed, 3 some were not reached.
"""

import json
import math
import pathlib
import sys
import tempfile
import time

import publish
import tuning
from gpu_results import Results, add_arguments
from model_accuracy import accuracy
from sparsekiln_command import answer, environment_of, make_layout, request
from workloads import Workload, chosen

_SHORT = [Workload("short", 64, 64, 0.75, 32, "f16", 8, "forward")]
_LEAST_SECONDS = 10  # of a problem
_BEYOND = 60  # seconds: a budget that is too short for the default and the finals is exceeded
_END = 0.95  # of the minutes: then what runs is stopped


def is_done(part: dict) -> bool:
    """With every candidate tried."""
    return part["ok"] and part["candidates"]["untried"] == 0


def or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


class Tuner:
    def __init__(self, tool: pathlib.Path, out: pathlib.Path):
        self._tool, self._out = tool, out
        self._environment = {**environment_of(out), "SPARSEKILN_CACHE_DIR": str(out / "tune-store")}

    def records(self) -> list[dict]:
        """All of the store, left in records.jsonl and, with the finalists alone, in shipped.jsonl."""
        lines = self._out / "records.jsonl"
        exported = answer(self._tool, ["records", "export", str(lines)], self._environment)
        if not exported["ok"]:
            raise SystemExit(f"the records cannot be exported: {exported['why']}")
        records = [json.loads(line) for line in lines.read_text().splitlines()]
        shipped = [json.dumps(tuning.shipped(record), separators=(",", ":")) for record in records]
        (self._out / "shipped.jsonl").write_text("".join(f"{line}\n" for line in shipped))
        return records

    def tune(self, workload: Workload, budget: float, seconds: float) -> dict:
        """A part of the results; {"ok": False, "timed_out": …} if it was stopped after so many seconds."""
        with tempfile.TemporaryDirectory(prefix="sparsekiln-tune-") as scratch:
            layout = pathlib.Path(scratch) / "layout.npy"
            made = answer(self._tool, make_layout(workload, layout), self._environment, seconds)
            if not made["ok"]:
                return made
            tune_it = ["tune", *request(workload, layout, "cuda"), "--budget", f"{budget:.0f}s"]
            tuned = answer(self._tool, tune_it, self._environment, seconds)
        if not tuned["ok"]:
            return tuned
        (problem,) = tuned["problems"]
        if problem["best"] is None:
            return {"ok": False, "why": f"no candidate has a time: {problem['candidates']['why_failed']}"}
        (record,) = [one for one in self.records() if dict(one["problem"]) == problem["problem"]]
        measured = accuracy(record)
        return {
            "ok": True, "best": problem["best"], "default": problem["default"], "floor_us": problem["floor_us"],
            "gain": tuning.gain(record, problem["best"]["config"]), **measured,
            "correlation": or_none(measured["correlation"]), "candidates": problem["candidates"],
            "environment": problem["environment"], "budget_s": budget,
        }  # fmt: skip


def table(titles: list[str], results: Results) -> str:
    width = max(map(len, titles))
    head = f"{'best us':>9} {'default':>9} {'bound':>9} {'gain':>6} {'configs':>7} {'untried':>7} {'correlation':>11} {'pick':>6}"
    lines = [f"{'':{width}} {head}  best"]
    for title in titles:
        part = results[title] if results.has(title) else {"ok": False, "why": "not reached: call it again"}
        if not part["ok"]:
            lines.append(f"{title:{width}} {part['why']}")
            continue
        correlation = "-" if part["correlation"] is None else f"{part['correlation']:.2f}"
        default = part["default"]["median_us"]
        lines.append(
            f"{title:{width}} {part['best']['median_us']:9.4g} {'-' if default is None else f'{default:.4g}':>9} {part['floor_us']:9.4g} "
            f"{part['gain']:6.3f} {part['configs']:7} {part['candidates']['untried']:7} {correlation:>11} {part['pick']:6.3f}  "
            f"{part['best']['config']}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = publish.parser(__doc__, build=False)
    add_arguments(parser)
    given = parser.parse_args()
    until = time.monotonic() + _END * 60 * given.minutes
    tool = (given.build / "tools" / "sparsekiln").resolve()
    wanted = _SHORT if given.short else chosen("tuned")
    results = Results(given.out / "tune.json", tool, given.build, asked={"workloads": [one.title for one in wanted]})
    tuner = Tuner(tool, given.out)
    left = [one for one in wanted if not (results.has(one.title) and is_done(results[one.title]))]
    left.sort(key=lambda one: results.has(one.title))  # what was never reached comes before what failed
    for number, workload in enumerate(left):
        seconds = until - time.monotonic()
        budget = seconds / (len(left) - number) - (0 if given.short else _LEAST_SECONDS / 2)  # which the finals may exceed
        if given.short:
            budget = min(budget, 8)
        elif budget < _LEAST_SECONDS:
            break
        limit = min(seconds, budget + _BEYOND)
        part = tuner.tune(workload, max(1, budget), limit)
        if part.get("timed_out") and limit == seconds:
            continue
        results.record(workload.title, {**part, "clocks": results.clocks()})
    titles = [one.title for one in wanted]
    results.say(table(titles, results))
    return results.conclude(titles, [given.out / "shipped.jsonl", given.out / "records.jsonl"])


if __name__ == "__main__":
    sys.exit(main())
