"""What the default kernels of large batches read and write beyond L2, over every operand once:

    python3 bench/l2_bytes.py BUILD_DIR [--target h100] [--write docs/tuning-model.md] [--short]

build/bench/l2 passes the schedule's accesses in launch order through a cache of 50 and of 60 MB that evicts what was used least
recently, for the workloads with 4096 batch rows or more (workloads.json). Exits with 1 if any is above 1.25.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import publish
import sparsekiln_command
import workloads

_MOST = 1.25
_LARGE = 4096
_MEGABYTES = (50, 60)


def ratios(build: pathlib.Path, folder: pathlib.Path, load: workloads.Workload, target: str) -> list[float]:
    environment = sparsekiln_command.environment_of(folder)
    layout = folder / "L.npy"
    sparsekiln_command.must_answer(build / "tools" / "sparsekiln", sparsekiln_command.make_layout(load, layout), environment)
    command = [str(build / "bench" / "l2"), *sparsekiln_command.request(load, layout, target)]
    return [
        json.loads(subprocess.run([*command, "--l2-mb", str(size)], check=True, capture_output=True, text=True).stdout)["ratio"]
        for size in _MEGABYTES
    ]


def main() -> int:
    parser = publish.parser(__doc__)
    publish.add_write(parser, __file__)
    parser.add_argument("--target", default="h100")
    options = parser.parse_args()
    large = [load for load in workloads.workloads() if load.batch >= _LARGE][: 1 if options.short else None]
    rows = []
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="sparsekiln-l2-") as name:
        for load in large:
            found = ratios(options.build.resolve(), pathlib.Path(name), load, options.target)
            worst = max(worst, *found)
            rows.append([load.title, *(f"{ratio:.2f}" for ratio in found)])
    text = "\n".join(publish.table(["workload", *(f"{size} MB" for size in _MEGABYTES)], rows))
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)
    return 0 if worst <= _MOST else 1


if __name__ == "__main__":
    sys.exit(main())
