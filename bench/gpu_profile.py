"""Nsight Compute's counters of our kernels: bench/gpu_profile.py --build BUILD --out DIR [--minutes N] [--only WORDS] [--short]

The first launch of the default kernel of each of the `first` workloads of workloads.json, with cold caches and the clocks as they are: of
a launch with several kernels, the first of them. DIR/profile.csv has a row for each metric: workload, kernel, its launch's grid and block,
and Nsight Compute's section, metric, unit and value.

Needs `ncu`, on PATH or in a CUDA toolkit, and a machine where counters may be read; where it is missing it says so. Writes DIR/profile.json and the CSV as it goes; what --minutes do not
allow is left to the next call, and so is a workload that failed. Everything of DIR is also in DIR/gpu-DEVICE-COMMIT.tar.gz. Exit status:
0 success, 1 a workload failed, 3 some were not reached.
"""

import argparse
import contextlib
import csv
import io
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import publish
from gpu_contest_process import NotReached
from gpu_kernels import Sparsekiln
from gpu_results import Results, add_arguments
from workloads import Workload, chosen

_PROGRAM = "ncu"
_OPTIONS = ["--csv", "--set", "detailed", "--clock-control", "none", "--kernel-name", "regex:^sparsekiln", "--launch-count", "1", "--kill", "yes"]
_FOLDERS = ("/usr/local/cuda/bin",)  # where a toolkit has it, if PATH does not
_FORBIDDEN = "ERR_NVGPUCTRPERM"
_SECONDS = 60  # of a workload
_END = 0.95  # of the minutes
_COLUMNS = ["workload", "kernel", "grid", "block", "section", "metric", "unit", "value"]
_MOST_BYTES = 1_000_000  # of the CSV
_SHORT = [Workload("short", 256, 256, 0.25, 32, "f16", 16, "forward")]


def metrics(workload: Workload, said: str) -> list[dict[str, str]]:
    """Rows of the CSV from what ncu printed: what comes before its table, and its advice, are left out."""
    begin = said.find('"ID","Process ID"')
    if begin < 0:
        return []
    found = list(csv.DictReader(io.StringIO(said[begin:])))
    return [
        {
            "workload": workload.title, "kernel": row["Kernel Name"], "grid": row["Grid Size"], "block": row["Block Size"],
            "section": row["Section Name"], "metric": row["Metric Name"], "unit": row["Metric Unit"], "value": row["Metric Value"],
        }
        for row in found
        if row.get("Metric Name") and row["Metric Value"] and row["ID"] == found[0]["ID"]
    ]  # fmt: skip


class Table:
    """The CSV: rows by workload."""

    def __init__(self, path: pathlib.Path, resumed: bool):
        self._path = path
        self._rows: dict[str, list[dict[str, str]]] = {}
        if not resumed:
            path.unlink(missing_ok=True)
        elif path.exists():
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    self._rows.setdefault(row["workload"], []).append(row)

    def put(self, title: str, rows: list[dict[str, str]]) -> str:
        """Why the rows have no place in it; empty if they have."""
        text = io.StringIO()
        writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        for each in (self._rows | {title: rows}).values():
            writer.writerows(each)
        if len(text.getvalue().encode()) > _MOST_BYTES:
            return f"the CSV would be larger than {_MOST_BYTES} bytes"
        self._rows[title] = rows
        self._path.write_text(text.getvalue())
        return ""


def find_ncu() -> str | None:
    folders = [os.environ.get("PATH", ""), *(f"{os.environ[name]}/bin" for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ)]
    return shutil.which(_PROGRAM, path=os.pathsep.join([*folders, *_FOLDERS]))


def run(command: list[str], environment: dict[str, str], seconds: float) -> tuple[int, str]:
    """Exit status and what was printed. TimeoutExpired after so many seconds, with all that was started ended."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=seconds)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, said


def profile(ncu: str, workload: Workload, kiln: Sparsekiln, table: Table, until: float) -> dict:
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
        status, said = run([ncu, *_OPTIONS, *command], environment, seconds)
    except subprocess.TimeoutExpired:
        if seconds < _SECONDS:
            raise NotReached from None
        return {"ok": False, "why": f"ncu ran longer than {_SECONDS} s"}
    rows = metrics(workload, said)
    if not rows:
        lines = said.strip().splitlines() or ["it said nothing"]
        why = next((line for line in lines if "==ERROR==" in line), lines[-1])
        return {"ok": False, "why": f"ncu, exit status {status}: {why}", "forbidden": _FORBIDDEN in said}
    if why := table.put(workload.title, rows):
        return {"ok": False, "why": why}
    durations = [f"{row['value']} {row['unit']}" for row in rows if row["metric"] == "Duration"]
    return {"ok": True, "config": done["config"], "metrics": len(rows), "durations": durations}


def measure(given: argparse.Namespace, left: list[Workload], tool: pathlib.Path, table: Table, results: Results) -> None:
    until = time.monotonic() + _END * 60 * given.minutes
    ncu = find_ncu()
    with tempfile.TemporaryDirectory(prefix="sparsekiln-gpu-") as scratch:
        kiln = Sparsekiln(tool, pathlib.Path(scratch), until)
        for workload in left:
            if ncu is None:
                part = {"ok": True, "no_profile": f"{_PROGRAM} (Nsight Compute) is neither on PATH nor in a CUDA toolkit"}
            else:
                try:
                    part = profile(ncu, workload, kiln, table, until)
                except NotReached:
                    return
            results.record(workload.title, part)
            results.say(f"{workload.title}: {part.get('why') or part.get('no_profile') or ', '.join(part['durations'])}")
            if part.get("forbidden"):
                return


def main() -> int:
    parser = publish.parser(__doc__, build=False)
    add_arguments(parser)
    parser.add_argument("--only", default="", metavar="WORDS", help="workloads whose titles contain this")
    given = parser.parse_args()
    every = _SHORT if given.short else chosen("first")
    wanted = [one for one in every if given.only in one.title]
    tool = (given.build / "tools" / "sparsekiln").resolve()
    results = Results(given.out / "profile.json", tool, given.build, asked={"workloads": [one.title for one in every]})
    csv_file = given.out / "profile.csv"
    table = Table(csv_file, results.resumed)
    left = [one for one in wanted if not (results.has(one.title) and results[one.title]["ok"])]
    left.sort(key=lambda one: results.has(one.title))  # what was never reached comes before what failed
    measure(given, left, tool, table, results)
    return results.conclude([one.title for one in wanted], [csv_file])


if __name__ == "__main__":
    sys.exit(main())
