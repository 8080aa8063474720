"""How long the cost model alone takes: python3 bench/model_speed.py BUILD_DIR [--write docs/tuning-model.md] [--short]

A jobs file of 999 problems: a layer of 80 x 80 blocks of 32, a tenth of them present, three operations, three types, and
111 batches. `sparsekiln tune --model` enumerates the space of each, prices all of it, and compiles nothing. Prints
milliseconds a problem, the medians of three runs. With --write it puts them between the marks of that document.
"""

import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import publish

_TARGETS = ("sm_80", "sm_90", "cpu")
_JOB = {
    "operations": ["forward", "grad_input", "grad_weight"],
    "blocks": ["32"],
    "dtypes": ["f32", "bf16", "f16"],
}


def seconds(command: list[str], environment: dict, problems: int) -> float:
    begin = time.monotonic()
    answer = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    taken = time.monotonic() - begin
    if len(answer["problems"]) != problems:
        raise SystemExit(f"{' '.join(command)} answered of {len(answer['problems'])} problems, not of {problems}")
    return taken


def write_jobs(tool: pathlib.Path, folder: pathlib.Path, batches: int, environment: dict) -> pathlib.Path:
    """A jobs file of nine problems for each of so many batches."""
    layout = folder / "L.npy"
    make = ["layout", "make", "random", "--rows", "80", "--cols", "80", "--density", "0.1", "--seed", "1", "-o", str(layout)]
    subprocess.run([str(tool), *make], env=environment, check=True, capture_output=True)
    jobs = folder / "jobs.json"
    job = _JOB | {"batches": [8 * (1 + i) for i in range(batches)], "layouts": [str(layout)]}
    jobs.write_text(json.dumps({"jobs": [job]}))
    return jobs


def measure(tool: pathlib.Path, folder: pathlib.Path, batches: int, runs: int) -> dict[str, float]:
    environment = dict(os.environ, SPARSEKILN_CACHE_DIR=str(folder / "cache"))
    jobs = write_jobs(tool, folder, batches, environment)
    problems = 9 * batches
    return {
        target: 1e3 / problems * statistics.median(
            seconds([str(tool), "tune", str(jobs), "--model", "--target", target, "--json"], environment, problems)
            for _ in range(runs)
        )
        for target in _TARGETS
    }  # fmt: skip


def main() -> None:
    parser = publish.parser(__doc__)
    publish.add_write(parser, __file__)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sparsekiln-model-") as folder:
        found = measure(options.build.resolve() / "tools" / "sparsekiln", pathlib.Path(folder), *((2, 1) if options.short else (111, 3)))
    text = "\n".join(f"- {target}: {ms:.1f} ms a problem" for target, ms in found.items())
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)


if __name__ == "__main__":
    main()
