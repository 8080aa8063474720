"""Configs that a GPU has measured, and how the cost model ranks them: for bench/model_accuracy.py --from."""

import json
import math
import pathlib
import statistics
import subprocess
from typing import Any

import publish
import tuning

Row = dict[str, Any]
_PROBLEM = ("rows", "cols", "density", "block", "type", "n", "op", "layout_seed")
_LEAST = 2  #: configs of a problem, of which one is to be picked


def rank(build: pathlib.Path, file: pathlib.Path, target: str) -> list[Row]:
    """A row for each problem of the file, in its order. Raises CalledProcessError where a line is not read.

    A line that is `rescheduled` says nothing of what is scheduled now: its rows were split, and are whole now.
    """
    measured = [json.loads(line) for line in file.read_text().splitlines()]
    command = [build / "bench" / "predictions", file, "--target", target]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    by_problem: dict[tuple, list[tuple[dict, dict]]] = {}
    for line, answer in zip(measured, map(json.loads, said.splitlines()), strict=True):
        if not line.get("rescheduled"):
            by_problem.setdefault(tuple(line[name] for name in _PROBLEM), []).append((line, answer))
    beside = file.with_suffix(".peers.json")  # by problem, microseconds of other libraries
    peers = json.loads(beside.read_text()) if beside.exists() else {}
    rows = [row_of(pairs) for pairs in by_problem.values() if len(pairs) >= _LEAST]
    return [row | {"peer": fastest(peers.get(row["problem"], {}))} for row in rows]


def fastest(peers: dict[str, float]) -> tuple[str, float] | None:
    """The sparse product that took least, and what it took; None where none was measured."""
    return min(((name, us) for name, us in peers.items() if "dense" not in name), key=lambda one: one[1], default=None)


def row_of(pairs: list[tuple[dict, dict]]) -> Row:
    """`pairs`: a measured line and what the model says of it, of one problem."""
    first, chosen = pairs[0][0], pairs[0][1]["default"]
    times = [line["cold_us"] for line, _ in pairs]
    predicted = [answer["predicted_us"] for _, answer in pairs]
    best = min(times)
    defaults = [line["cold_us"] for line, answer in pairs if tiles_of(answer["config"]) == tiles_of(chosen)]
    return {
        "problem": name_of(first), "configs": len(pairs), "correlation": tuning.correlation(predicted, times),
        "pick": times[predicted.index(min(predicted))] / best, "best_us": best,
        "error": math.exp(statistics.median(abs(math.log(mine / other)) for mine, other in zip(predicted, times))),
        "default": chosen, "default_us": min(defaults) if defaults else None,
        "dense_us": statistics.median(line["dense_cublas_us"] for line, _ in pairs),
    }  # fmt: skip


def tiles_of(config: str) -> set[str]:
    """A config but for where its tables are, and when rows are split, which a measured line may not say."""
    return {word for word in config.split() if not word.startswith(("table=", "split_saves="))}


def name_of(line: dict) -> str:
    """14336x4096 10 % block 64 bf16 n=8192 forward"""
    return f"{line['rows']}x{line['cols']} {100 * line['density']:.3g} % block {line['block']} {line['type']} n={line['n']} {line['op']}"


def table(rows: list[Row]) -> str:
    columns = ["problem", "configs", "correlation", "pick", "error", "best, µs", "default, µs", "cuBLAS dense, µs", "others, sparse, µs"]

    def cells(row: Row) -> list[object]:
        default = "not among them" if row["default_us"] is None else f"{row['default_us']:.1f}"
        return [
            row["problem"], row["configs"], f"{row['correlation']:.2f}", f"{row['pick']:.3f}", f"{row['error']:.2f}", f"{row['best_us']:.1f}",
            default, f"{row['dense_us']:.0f}", "not measured" if row["peer"] is None else f"{row['peer'][1]:.1f} ({row['peer'][0]})",
        ]  # fmt: skip

    said = f"{sum(row['configs'] for row in rows)} configs of {len(rows)} problems; of those with one config nothing is said."
    return "\n".join([said, "", *publish.table(columns, map(cells, rows))])
