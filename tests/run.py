"""Runs every test that Meson knows and counts what really ran. The last line is `N passed, N failed`.

    tests/run.py [--full] [--times [--write FILE]] BUILD [BUILD:KIND …]

Each argument is a build folder, where wanted limited to one kind of test. The kinds, which tests/meson.build
describes, are the tests' Meson suites; they say how a test's own output is counted (tests/counting.py). A program that
crashes, runs out of time, or ends without saying what it ran counts as one failure.

Results remembered between runs are in $SPARSEKILN_TEST_CACHE, by default sparsekiln-tests in the user's cache folder: what NVRTC
made of sources (tests/nvrtc_memo), kernels for the cpu that tests of their results took (a store, in SPARSEKILN_TEST_STORE), and
which of the tests on the emulator passed with which files (tests/gates.py). These are not repeated while the files are the same;
the last line then ends in `, N not repeated`. --full, or SPARSEKILN_TEST_FULL=1, repeats them, compiles everything, and has the
tests try all combinations.

--times prints which programs took longest, and how much of that was compiling by NVRTC and LLVM and Python's imports;
with --write, also puts that between the marks in FILE.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import gates  # noqa: E402
import memory  # noqa: E402
import slowest  # noqa: E402
from counting import COUNTERS, Count, passed_over  # noqa: E402

_FULL_FACTOR = 20  # how much longer a test may take when the whole product is asked for
_SHOWN_LINES = 200  # of a failed test's output


def kind_of(test: dict) -> str | None:
    """The kind that a test's suite names ("sparsekiln:doctest"), or None."""
    return next((kind for kind in (suite.rpartition(":")[2] for suite in test["suite"]) if kind in COUNTERS), None)


def tests_of(build: pathlib.Path, only: str) -> list[dict]:
    listed = json.loads((build / "meson-info/intro-tests.json").read_text())
    return [test for test in listed if only in ("", kind_of(test))]


def run_meson(build: pathlib.Path, tests: list[dict], environment: dict, full: bool) -> dict[str, dict]:
    """What Meson says of each test that it ran, by the test's name. It shows how far it is."""
    logs = build / "meson-logs"
    for old in logs.glob("counted*"):
        old.unlink()
    width = min(4, os.cpu_count() or 1)
    subprocess.run(
        ["meson", "test", "-C", build, "--no-rebuild", f"--num-processes={width}", "--logbase=counted",
         f"--timeout-multiplier={_FULL_FACTOR if full else 1}", *(test["name"] for test in tests)],
        # Unless it is set, Meson has freed memory overwritten, which costs time in every test.
        env={"PYTHONUNBUFFERED": "1", "MALLOC_PERTURB_": "0", **environment},
    )  # fmt: skip
    said = [json.loads(line) for log in logs.glob("counted*.json") for line in log.read_text().splitlines()]
    names = {test["name"] for test in tests}
    return {name: one for one in said for name in names if one["name"] == name or one["name"].endswith(f" / {name}")}


def count(test: dict, said: dict | None, build: pathlib.Path, environment: dict) -> Count:
    kind = kind_of(test)
    if kind is None:
        return Count(failed=1, why="its suite names no kind of test; see tests/meson.build")
    if said is None:
        return Count(failed=1, why="it did not run")
    status, output = said["returncode"], said.get("stdout", "")
    if said["result"] == "TIMEOUT":
        return Count(failed=1, why=f"ran longer than {said['duration']:.0f} s and was ended")
    counted = COUNTERS[kind](status, output)
    if kind == "doctest":
        counted.skipped = passed_over(test["cmd"], lambda command: answer_of(command, test, build, environment), counted)
    if status > 128 and status - 128 in set(signal.Signals):
        counted.failed = max(counted.failed, 1)
        counted.why = f"crashed: {signal.Signals(status - 128).name}"
    return counted


def answer_of(command: list[str], test: dict, build: pathlib.Path, environment: dict) -> str:
    """What a program prints that only counts its cases."""
    folder = test["workdir"] or build
    done = subprocess.run(command, env={**environment, **test["env"]}, cwd=folder, capture_output=True, text=True, timeout=120)
    return done.stdout


def report(name: str, counted: Count, said: dict) -> None:
    """A line for a program, and what a failed one printed."""
    skipped = f", {counted.skipped} skipped" if counted.skipped else ""
    verdict = "FAIL" if counted.failed else "ok  "
    print(f"{verdict} {name}: {counted.passed} passed, {counted.failed} failed{skipped} ({said.get('duration', 0):.1f} s)")
    if not counted.failed:
        return
    lines = said.get("stdout", "").splitlines()
    if len(lines) > _SHOWN_LINES:
        print(f"    … {len(lines) - _SHOWN_LINES} lines left out")
    for line in lines[-_SHOWN_LINES:]:
        print(f"    {line}")
    if counted.why:
        print(f"    {name}: {counted.why}")


def run_build(build: pathlib.Path, only: str, gate: gates.Gate, environment: dict, full: bool) -> tuple[Count, int, list]:
    """Counts of all tests together, how many cases were not repeated, and (name, seconds, command) of each program."""
    tests = tests_of(build, only)
    kept = {test["name"]: gate.passed(test) for test in tests}
    again = [test for test in tests if full or not kept[test["name"]]]
    said = run_meson(build, again, environment, full) if again else {}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        counts = list(pool.map(lambda test: count(test, said.get(test["name"]), build, environment), again))
    total, times = Count(), []
    for test, counted in sorted(zip(again, counts), key=lambda pair: pair[1].failed):
        outcome = said.get(test["name"], {})
        report(test["name"], counted, outcome)
        gate.note(test, counted)
        total.passed += counted.passed
        total.failed += counted.failed
        total.skipped += counted.skipped
        times.append((test["name"], outcome.get("duration", 0.0), test["cmd"]))
    return total, 0 if full else sum(kept.values()), times


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE")
    parser.add_argument("builds", nargs="+", metavar="BUILD[:KIND]")
    options = parser.parse_args(arguments)
    full = options.full or os.environ.get("SPARSEKILN_TEST_FULL") == "1"
    environment = {key: value for key, value in os.environ.items() if key != "SPARSEKILN_CACHE_DIR"}
    if full:
        environment["SPARSEKILN_TEST_FULL"] = "1"
    builds = [(pathlib.Path(folder), only) for folder, _, only in (argument.partition(":") for argument in options.builds)]
    compiler = memory.Compiler.of([build for build, _ in builds], environment)
    if compiler and not full:
        environment |= compiler.remembering(memory.folder("nvrtc"))
    if not full:
        environment["SPARSEKILN_TEST_STORE"] = str(memory.place("kernels"))  # a store of kernels, which keeps its size itself
    passed = memory.folder("passed")
    tools = " ".join(memory.said_of(shutil.which(name)) for name in ("ptxas", os.environ.get("CXX", "c++")))
    beside = f"{compiler.said if compiler else ''} {tools}"
    total, not_repeated, times = Count(), 0, []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sparsekiln-times-") as folder:
        if options.times:
            environment["SPARSEKILN_TIMES_DIR"] = folder
        for build, only in builds:
            counted, kept, timed = run_build(build, only, gates.Gate(passed, build, beside), environment, full)
            total.passed += counted.passed
            total.failed += counted.failed
            total.skipped += counted.skipped
            not_repeated += kept
            times += timed
        if options.times:
            slowest.tell(slowest.table(times, folder, time.monotonic() - began), options.write)
    if total.skipped:
        print(f"{total.skipped} skipped")
    if total.passed + total.failed + not_repeated == 0:
        print("no test ran")
    unchanged = f", {not_repeated} not repeated" if not_repeated else ""
    print(f"{total.passed} passed, {total.failed} failed{unchanged}", flush=True)
    return 0 if total.failed == 0 and total.passed + not_repeated > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
