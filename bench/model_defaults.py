"""What the default configs lose against the best of the whole space, by the cost model:

    python3 bench/model_defaults.py BUILD_DIR [--target h100] [--write docs/tuning-model.md] [--short]

The problems are the 999 of bench/model_speed.py and the workloads (workloads.json); the figure is the model's time of the
default over that of the best config. Nothing is compiled. Prints the geometric mean and the worst of both, and each workload with the model's time,
what limits it, and the roofline. --write puts that between the marks of the document.
"""

import pathlib
import statistics
import tempfile

import model_speed
import publish
import sparsekiln_command
import workloads


def loss(problem: dict) -> float:
    return problem["model"]["default"]["predicted_us"] / problem["model"]["first"]["predicted_us"]


def tuned(tool: pathlib.Path, arguments: list[str], environment: dict) -> list[dict]:
    return sparsekiln_command.must_answer(tool, ["tune", *arguments, "--model"], environment)["problems"]


def of_workload(tool: pathlib.Path, folder: pathlib.Path, load: workloads.Workload, target: str, environment: dict) -> dict:
    layout = folder / f"{load.grid[0]}x{load.grid[1]}-{load.density}.npy"
    if not layout.exists():
        sparsekiln_command.must_answer(tool, sparsekiln_command.make_layout(load, layout), environment)
    (problem,) = tuned(tool, sparsekiln_command.request(load, layout, target), environment)
    return problem


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
        environment = sparsekiln_command.environment_of(folder)
        jobs = model_speed.write_jobs(tool, folder, 2 if options.short else 111, environment)
        many = [loss(problem) for problem in tuned(tool, [str(jobs), "--target", options.target], environment)]
        each = [(load, of_workload(tool, folder, load, options.target, environment)) for load in chosen]
    lines = [
        f"{options.target}. The model's time of the default over that of its best config:",
        "",
        f"- {len(many)} problems: {summary(many)}",
        f"- {len(each)} workloads: {summary([loss(problem) for _, problem in each])}",
        "",
    ]

    def cells(load: workloads.Workload, problem: dict) -> list[str]:
        default = problem["model"]["default"]
        us = default["predicted_us"]
        return [load.title, f"{us:.1f}", default["bound"], f"{loss(problem):.3f}", f"{us / problem['floor_us']:.2f}"]

    columns = ["workload", "default µs", "bound", "over the best", "over the roofline"]
    text = "\n".join(lines + publish.table(columns, (cells(*one) for one in each)))
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)


if __name__ == "__main__":
    main()
