"""What the cost model predicts of the kernels that compile() takes: python3 bench/predicted.py BUILD_DIR [--target h100] [--write docs/gpu.md] [--short]

The workloads that matter most (`first` of workloads.json), and the convolutions of layer_cases.py for a fixed number of images and without a
bias, forward with the layout in the code and as tables, and the gradient of the weight. Predictions, not measurements: times, what they rest on (the bytes that memory and that L2 move, the
products of present blocks) and the config. Needs no GPU.
"""

import json
import pathlib
import subprocess
import tempfile

import layer_cases
import publish
import workloads

_SEED = 7


def of_workload(load: workloads.Workload) -> dict:
    return {
        "rows": load.out_features, "cols": load.in_features, "density": load.density, "block": load.block, "type": load.type, "n": load.batch,
        "op": load.operation, "layout_seed": _SEED,
    }  # fmt: skip


def of_convolution(case: layer_cases.LayerCase, operation: str = "forward") -> dict:
    return {
        "rows": case.out_features, "cols": case.in_features, "density": case.density, "block": case.block, "type": case.dtype,
        "n": case.batch, "op": operation, "layout_seed": _SEED, "conv": f"kernel=3x3 padding=1 input={case.extent}x{case.extent}",
    }  # fmt: skip


def predict(build: pathlib.Path, target: str, problems: list[dict]) -> list[dict]:
    with tempfile.TemporaryDirectory(prefix="sparsekiln-predicted-") as folder:
        file = pathlib.Path(folder) / "problems.jsonl"
        file.write_text("".join(f"{json.dumps(one)}\n" for one in problems))
        command = [build / "bench" / "predictions", file, "--target", target]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in said.splitlines()]


def main() -> None:
    parser = publish.parser(__doc__)
    publish.add_write(parser, __file__)
    parser.add_argument("--target", default="h100")
    options = parser.parse_args()
    loads = workloads.chosen("first")[:: 5 if options.short else 1]
    layers = [case for case in layer_cases.FIRST if case.kind == "convolution"]
    problems = {load.title: of_workload(load) for load in loads}
    for case in layers:
        problems[case.title] = of_convolution(case)
        problems[f"{case.title}, attached"] = of_convolution(case) | {"attached": True}
        problems[f"{case.title}, grad_weight"] = of_convolution(case, "grad_weight")
    answers = predict(options.build.resolve(), options.target, list(problems.values()))
    columns = ["kernel", "predicted, µs", "bound by", "memory, MB", "L2, MB", "products, GFLOP", "config"]

    def cells(title: str, said: dict) -> list[str]:
        megabytes = [f"{said[name] / 1e6:.4g}" for name in ("memory_bytes", "cache_bytes")]
        return [title, f"{said['predicted_us']:.4g}", said["bound"], *megabytes, f"{said['flops'] / 1e9:.4g}", said["config"]]

    text = "\n".join([f"{options.target}. Predicted, not measured.", "", *publish.table(columns, map(cells, problems, answers))])
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)


if __name__ == "__main__":
    main()
