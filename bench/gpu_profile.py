"""Nsight Compute's counters of our kernels: bench/gpu_profile.py --build BUILD --out DIR [--minutes N] [--only WORDS] [--short]

One launch of the default kernel of each of the `first` workloads of workloads.json, with cold caches and the clocks as they are.
DIR/profile.csv has a row for each metric: workload, kernel, its launch's grid and block, and Nsight Compute's section, metric, unit and
value. Kernels are compiled ahead, so that ncu meets nothing else.

Needs `ncu` on PATH and a machine where counters may be read. Writes DIR/profile.json and the CSV as it goes; what --minutes do not
allow is left to the next call, and so is a workload that failed. Everything of DIR is also in DIR/gpu-DEVICE-COMMIT.tar.gz. Exit status:
0 success, 1 a workload failed, 3 some were not reached.
"""

import csv
import io
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import publish
from gpu_contest_process import NotReached
from gpu_kernels import Sparsekiln
from gpu_results import Results, add_arguments
from workloads import Workload, chosen

_NCU = ["ncu", "--csv", "--set", "detailed", "--clock-control", "none", "--kernel-name", "regex:^sparsekiln", "--launch-count", "4"]
_SECONDS = 60  # of a workload
_END = 0.95  # of the minutes
_COLUMNS = ["workload", "kernel", "grid", "block", "section", "metric", "unit", "value"]
_SHORT = [Workload("short", 256, 256, 0.25, 32, "f16", 16, "forward")]


def metrics(workload: Workload, said: str) -> list[dict[str, str]]:
    """Rows of the CSV from what ncu printed: what comes before its table, and its advice, are left out."""
    begin = said.find('"ID","Process ID"')
    if begin < 0:
        return []
    found = csv.DictReader(io.StringIO(said[begin:]))
    return [
        {
            "workload": workload.title, "kernel": row["Kernel Name"], "grid": row["Grid Size"], "block": row["Block Size"],
            "section": row["Section Name"], "metric": row["Metric Name"], "unit": row["Metric Unit"], "value": row["Metric Value"],
        }
        for row in found
        if row.get("Metric Name") and row["Metric Value"]
    ]  # fmt: skip


class Table:
    """The CSV: rows by workload."""

    def __init__(self, path: pathlib.Path, resumed: bool):
        self._path = path
        self._rows: dict[str, list[dict[str, str]]] = {}
        if resumed and path.exists():
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    self._rows.setdefault(row["workload"], []).append(row)

    def put(self, title: str, rows: list[dict[str, str]]) -> None:
        self._rows[title] = rows
        with self._path.open("w", newline="") as file:
            writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
            writer.writeheader()
            for each in self._rows.values():
                writer.writerows(each)


def profile(workload: Workload, kiln: Sparsekiln, table: Table, until: float) -> dict:
    """A part of the results."""
    for step in (kiln.make, kiln.compile):
        done = step(workload)
        if not done["ok"]:
            return done
    command, environment = kiln.run_command(workload)
    seconds = min(_SECONDS, until - time.monotonic())
    if seconds <= 0:
        raise NotReached
    try:
        ended = subprocess.run([*_NCU, *command], capture_output=True, text=True, env=environment, timeout=seconds)
    except subprocess.TimeoutExpired:
        if seconds < _SECONDS:
            raise NotReached from None
        return {"ok": False, "why": f"ncu ran longer than {_SECONDS} s"}
    rows = metrics(workload, ended.stdout)
    if not rows:
        said = (ended.stdout + ended.stderr).strip().splitlines()
        return {"ok": False, "why": f"ncu, exit status {ended.returncode}: {said[-1] if said else 'it said nothing'}"}
    table.put(workload.title, rows)
    durations = [f"{row['value']} {row['unit']}" for row in rows if row["metric"] == "Duration"]
    return {"ok": True, "config": done["config"], "metrics": len(rows), "durations": durations}


def main() -> int:
    parser = publish.parser(__doc__, build=False)
    add_arguments(parser)
    parser.add_argument("--only", default="", metavar="WORDS", help="workloads whose titles contain this")
    given = parser.parse_args()
    until = time.monotonic() + _END * 60 * given.minutes
    if shutil.which(_NCU[0]) is None:
        print(f"{_NCU[0]} (Nsight Compute) is not on PATH; it is in the bin folder of a CUDA toolkit", file=sys.stderr)
        return 1
    every = _SHORT if given.short else chosen("first")
    wanted = [one for one in every if given.only in one.title]
    tool = (given.build / "tools" / "sparsekiln").resolve()
    results = Results(given.out / "profile.json", tool, given.build, asked={"workloads": [one.title for one in every]})
    csv_file = given.out / "profile.csv"
    table = Table(csv_file, results.resumed)
    left = [one for one in wanted if not (results.has(one.title) and results[one.title]["ok"])]
    left.sort(key=lambda one: results.has(one.title))  # what was never reached comes before what failed
    with tempfile.TemporaryDirectory(prefix="sparsekiln-gpu-") as scratch:
        kiln = Sparsekiln(tool, pathlib.Path(scratch), until)
        for workload in left:
            try:
                part = profile(workload, kiln, table, until)
            except NotReached:
                break
            results.record(workload.title, part)
            results.say(f"{workload.title}: {', '.join(part['durations']) if part['ok'] else part['why']}")
    return results.conclude([one.title for one in wanted], [csv_file])


if __name__ == "__main__":
    sys.exit(main())
