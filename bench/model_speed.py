"""How long the cost model alone takes: python3 bench/model_speed.py BUILD_DIR [--write docs/tuning-model.md]

A jobs file of 999 problems: a layer of 80 x 80 blocks of 32, a tenth of them present, three operations, three types, and
111 batches. `sparsekiln tune --model` enumerates the space of each, prices all of it, and compiles nothing. Prints
milliseconds a problem, the medians of three runs. With --write it puts them between the marks of that document.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import tuning

_TARGETS = ("sm_75", "sm_90", "cpu")
_RUNS = 3
_JOB = {
    "operations": ["forward", "grad_input", "grad_weight"],
    "blocks": ["32"],
    "dtypes": ["f32", "bf16", "f16"],
    "batches": [8 * (1 + i) for i in range(111)],
}
_PROBLEMS = 999
_MARKS = ("<!-- bench/model_speed.py writes from here -->", "<!-- to here -->")


def seconds(command: list[str], environment: dict) -> float:
    begin = time.monotonic()
    answer = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    taken = time.monotonic() - begin
    assert len(answer["problems"]) == _PROBLEMS
    return taken


def measure(tool: pathlib.Path, folder: pathlib.Path) -> dict[str, float]:
    environment = dict(os.environ, SPARSEKILN_CACHE_DIR=str(folder / "cache"))
    layout = folder / "L.npy"
    make = ["layout", "make", "random", "--rows", "80", "--cols", "80", "--density", "0.1", "--seed", "1", "-o", str(layout)]
    subprocess.run([str(tool), *make], env=environment, check=True, capture_output=True)
    jobs = folder / "jobs.json"
    jobs.write_text(json.dumps({"jobs": [_JOB | {"layouts": [str(layout)]}]}))
    return {
        target: 1e3 / _PROBLEMS * statistics.median(
            seconds([str(tool), "tune", str(jobs), "--model", "--target", target, "--json"], environment)
            for _ in range(_RUNS)
        )
        for target in _TARGETS
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sparsekiln-model-") as folder:
        found = measure(options.build.resolve() / "tools" / "sparsekiln", pathlib.Path(folder))
    text = "\n".join(f"- {target}: {ms:.1f} ms a problem" for target, ms in found.items())
    print(text)
    if options.write:
        tuning.write(options.write, text, _MARKS)


if __name__ == "__main__":
    main()
