"""Whether the model ranks configs as measurements do: python3 bench/model_accuracy.py BUILD_DIR [--write docs/tuning-model.md] [--short]
                                                     python3 bench/model_accuracy.py BUILD_DIR --from FILE [--json] [--write docs/gpu.md]

With --from: the CUDA model, and configs that a GPU has measured (bench/measured/*.jsonl, a line each: see predictions.cpp). Needs no
GPU. For each problem it prints the two figures below, the median of how far the model is off, as a factor, and the measured time of
what compile() takes where that is among the configs; no records are read. These configs are no records: compile() does not know them.

Without it, the cpu target's model, which is measured here.

Layers of 2560 hidden units, 25, 6.56 and 2.71 % dense, blocks of 32, 16 and 8, batch 64: forward in float32, and at 6.56 %
both gradients, and forward in bfloat16. For each of them, every candidate is measured whose predicted time is at most three
times that of the best (bench/tuning.py has a budget, and reaches only those that the model ranks first). For each problem

  correlation  Spearman's, of the model's times and the measured ones, over all configs that were measured
  pick         measured time of the config that the model ranks first, over that of the best

With --write it puts its table between the marks of that document.
"""

import json
import pathlib
import statistics
import tempfile

import measured_configs
import publish
import tuning

_HIDDEN = 2560
_BATCH = 64
_PROBLEMS = [("forward", "f32", density, block) for density in (0.25, 0.0656, 0.0271) for block in (32, 16, 8)] + [
    (operation, dtype, 0.0656, block)
    for operation, dtype in (("grad_input", "f32"), ("grad_weight", "f32"), ("forward", "bf16"))
    for block in (32, 16, 8)
]  # fmt: skip
_SHORT = [("forward", "f32", 0.25, 32), ("grad_input", "f32", 0.25, 32)]


def compare(
    tool: pathlib.Path, folder: pathlib.Path, hidden: int, batch: int, seed: int, budget: str, problem: tuple
) -> dict:
    operation, dtype, density, block = problem
    side = hidden // block
    layout, lines, cache = folder / "layout.npy", folder / "records.jsonl", folder / "-".join(map(str, problem))
    grid = ["--rows", side, "--cols", side, "--density", density, "--seed", seed]
    tuning.run(tool, cache, "layout", "make", "random", *grid, "-o", layout)
    wanted = ["--op", operation, "--block", block, "--batch", batch, "--dtype", dtype, "--target", "cpu"]
    answer = tuning.run(tool, cache, "tune", layout, *wanted, "--budget", budget)["problems"][0]
    if answer["candidates"]["untried"]:
        raise SystemExit(f"{problem}: {answer['candidates']['untried']} candidates are not tried yet; give it a larger --budget")
    tuning.run(tool, cache, "records", "export", lines)
    record = json.loads(lines.read_text())
    return {"problem": problem, **accuracy(record), "environment": record["environment"]}


def accuracy(record: dict) -> dict:
    """How the model ranks the measured configs of a record's only contest; there must be one."""
    timed = tuning.timed(record)
    times = [tuning.relative_time(one) for one in timed]
    predicted = [one["predicted_us"] for one in timed]
    return {
        "configs": len(timed), "spread": max(times) / min(times), "correlation": tuning.correlation(predicted, times),
        "pick": times[predicted.index(min(predicted))] / min(times),
    }  # fmt: skip


def table(rows: list[dict]) -> str:
    environment = rows[0]["environment"]
    correlations, picks = [row["correlation"] for row in rows], [row["pick"] for row in rows]
    text = [
        f"{environment['device']}, {environment['workers']} threads: {sum(row['configs'] for row in rows)} configs of "
        f"{len(rows)} problems.", "",
        f"- rank correlation within a problem: {statistics.median(correlations):.2f} (median), {min(correlations):.2f} (worst)",
        f"- the config that the model ranks first, over the best: {statistics.median(picks):.3f} (median), {max(picks):.3f} (worst)",
        "",
    ]  # fmt: skip
    columns = ["operation", "type", "density", "block", "configs", "slowest / best", "correlation", "pick"]

    def cells(row: dict) -> list[str]:
        operation, dtype, density, block = row["problem"]
        numbers = [f"{row['spread']:.2f}", f"{row['correlation']:.2f}", f"{row['pick']:.3f}"]
        return [operation, dtype, f"{100 * density:.3g} %", block, row["configs"], *numbers]

    return "\n".join(text + publish.table(columns, map(cells, rows)))


def main() -> None:
    parser = publish.parser(__doc__)
    parser.add_argument("--budget", default="120s", help="of a problem; must do for all of its candidates")
    parser.add_argument("--seed", type=int, default=1, help="of the layouts")
    parser.add_argument("--from", type=pathlib.Path, dest="measured", metavar="FILE", help="configs that a GPU has measured")
    parser.add_argument("--target", default="h100", help="the GPU that measured them")
    parser.add_argument("--json", action="store_true", help="a list with a document for each problem")
    publish.add_write(parser, __file__)
    options = parser.parse_args()
    if options.measured:
        found = measured_configs.rank(options.build.resolve(), options.measured, options.target)
        text = measured_configs.table(found)
        print("[\n" + ",\n".join(map(json.dumps, found)) + "\n]" if options.json else text)
        if options.write:
            publish.write(options.write, text, __file__)
        return
    tool = options.build.resolve() / "tools" / "sparsekiln"
    hidden, batch, problems = (256, 8, _SHORT) if options.short else (_HIDDEN, _BATCH, _PROBLEMS)
    rows = []
    with tempfile.TemporaryDirectory(prefix="sparsekiln-model-") as folder:
        for problem in problems:
            rows.append(compare(tool, pathlib.Path(folder), hidden, batch, options.seed, options.budget, problem))
            print(f"{problem}: correlation {rows[-1]['correlation']:.2f} pick {rows[-1]['pick']:.2f}", flush=True)
    text = table(rows)
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)


if __name__ == "__main__":
    main()
