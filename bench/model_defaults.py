"""What the default configs lose against the best of the whole space, by the cost model:

    python3 bench/model_defaults.py BUILD_DIR [--target h100] [--write docs/tuning-model.md] [--short]

Of the 999 problems of bench/model_speed.py and of the workloads (workloads.json): the model's time of the default over that of
its best config. Nothing is compiled. Prints the geometric mean and the worst of both, and each workload with the model's times
and its roofline. --write puts that between the marks of the document.
"""

import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import model_speed
import publish
import workloads


def contests(tool: pathlib.Path, arguments: list[str], target: str, environment: dict) -> list[dict]:
    """The contest of each problem, as `sparsekiln tune --model` describes it."""
    command = [str(tool), "tune", *arguments, "--model", "--target", target, "--json"]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)["problems"]


def loss(contest: dict) -> float:
    return contest["default"]["predicted_us"] / contest["modelled"]["predicted_us"]


def of_workload(tool: pathlib.Path, folder: pathlib.Path, load: workloads.Workload, target: str, environment: dict) -> dict:
    layout = folder / f"{load.grid[0]}x{load.grid[1]}-{load.density}.npy"
    if not layout.exists():
        subprocess.run([str(tool), "layout", "make", *load.layout_arguments(), "-o", str(layout)], env=environment, check=True,
                       capture_output=True)  # fmt: skip
    arguments = [str(layout), "--block", str(load.block), "--batch", str(load.batch), "--dtype", load.dtype, "--math", load.math,
                 "--op", load.operation]  # fmt: skip
    (contest,) = contests(tool, arguments, target, environment)
    return contest


def summary(losses: list[float]) -> str:
    return f"geometric mean {statistics.geometric_mean(losses):.3f}, worst {max(losses):.3f}"


def main() -> None:
    parser = publish.parser(__doc__)
    publish.add_write(parser, __file__)
    parser.add_argument("--target", default="h100")
    options = parser.parse_args()
    tool = options.build.resolve() / "tools" / "sparsekiln"
    chosen = workloads.workloads()[:: 20 if options.short else 1]
    with tempfile.TemporaryDirectory(prefix="sparsekiln-model-") as name:
        folder = pathlib.Path(name)
        environment = dict(os.environ, SPARSEKILN_CACHE_DIR=str(folder / "cache"))
        jobs = model_speed.write_jobs(tool, folder, 2 if options.short else 111, environment)
        many = [loss(contest) for contest in contests(tool, [str(jobs)], options.target, environment)]
        each = [(load, of_workload(tool, folder, load, options.target, environment)) for load in chosen]
    lines = [
        f"{options.target}. The model's time of the default over that of its best config:",
        "",
        f"- {len(many)} problems: {summary(many)}",
        f"- {len(each)} workloads: {summary([loss(contest) for _, contest in each])}",
        "",
        "| workload | default µs | over the best | over the roofline | dense at its peak µs | default config |",
        "|---|---|---|---|---|---|",
    ]
    for load, contest in each:
        us = contest["default"]["predicted_us"]
        dense = contest["dense_us"]
        lines.append(
            f"| {load.title} | {us:.1f} | {loss(contest):.3f} | {us / contest['floor_us']:.2f} | "
            f"{'' if dense is None else f'{dense:.1f}'} | {contest['default']['config']} |"
        )
    text = "\n".join(lines)
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)


if __name__ == "__main__":
    main()
