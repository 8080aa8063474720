"""Runs every test that Meson knows and counts what really ran. The last line is `N passed, N failed`.

    tests/run.py [--full] [--times [--write FILE]] BUILD [BUILD:KIND …]

Each argument is a build folder, where wanted limited to one kind of test. The kinds, which tests/meson.build
describes, are the tests' Meson suites; they say how a test's own output is counted (tests/counting.py). A program that
crashes, runs out of time, or ends without saying what it ran counts as one failure.

What is remembered between runs is in $SPARSEKILN_TEST_CACHE, by default sparsekiln-tests in the user's cache folder: what NVRTC
made of sources (tests/nvrtc_memo), and that tests of some suites passed with the files that they depend on (tests/gates.py).
These are not repeated while the files are the same; the last line then ends in `, N not repeated`. --full repeats them, and
compiles everything.

--times prints which programs took longest, and how much of that was compiling by NVRTC and LLVM and Python's imports;
with --write, also puts that between the marks in FILE.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import gates  # noqa: E402
import slowest  # noqa: E402
from counting import COUNTERS, Count, passed_over  # noqa: E402

_ISOLATED = pathlib.Path(__file__).resolve().with_name("isolated.py")
_FULL_FACTOR = 20  # how much longer a test may take when the whole product is asked for
_SHOWN_LINES = 200  # of a failed test's output
_UNUSED_DAYS = 14  # after which what is remembered is removed


def cache_folder() -> pathlib.Path:
    usual = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sparsekiln-tests"
    return pathlib.Path(os.environ.get("SPARSEKILN_TEST_CACHE") or usual)


def remove_unused(folder: pathlib.Path) -> None:
    oldest = time.time() - _UNUSED_DAYS * 24 * 3600
    for file in folder.glob("*"):
        try:
            if file.stat().st_mtime < oldest:
                file.unlink()
        except FileNotFoundError:
            pass  # another run removed it


def with_memo(environment: dict, build: pathlib.Path, folder: pathlib.Path) -> dict:
    """The environment in which NVRTC remembers what it has compiled; as it is where there is no NVRTC."""
    memo = build / "tests/nvrtc_memo/libnvrtc_memo.so"
    doctor = build / "tools/sparsekiln"
    if not memo.exists() or not doctor.exists():
        return environment
    said = subprocess.run([doctor, "doctor", "--json"], capture_output=True, text=True, env=environment).stdout
    real = json.loads(said)["nvrtc"].get("path") if said else None
    if real is None:
        return environment
    folder.mkdir(parents=True, exist_ok=True)
    remove_unused(folder)
    return {**environment, "SPARSEKILN_NVRTC": str(memo.resolve()), "SPARSEKILN_MEMO_NVRTC": real, "SPARSEKILN_MEMO": str(folder)}


def kind_of(test: dict) -> str | None:
    """The kind that a test's suite names ("sparsekiln:doctest"), or None."""
    return next((kind for kind in map(suite_name, test["suite"]) if kind in COUNTERS), None)


def suite_name(suite: str) -> str:
    return suite.rpartition(":")[2]


def tests_of(build: pathlib.Path, only: str) -> list[dict]:
    listed = json.loads((build / "meson-info/intro-tests.json").read_text())
    return [test for test in listed if only in ("", kind_of(test))]


def run_meson(build: pathlib.Path, tests: list[dict], environment: dict, full: bool) -> dict[str, dict]:
    """What Meson says of each test that it ran, by the test's name. It shows how far it is."""
    log = build / f"meson-logs/testlog-{pathlib.Path(sys.executable).name}.json"  # so Meson names it where there is a wrapper
    log.unlink(missing_ok=True)
    width = min(4, os.cpu_count() or 1)
    subprocess.run(
        ["meson", "test", "-C", build, "--no-rebuild", f"--num-processes={width}", f"--wrapper={sys.executable} {_ISOLATED}",
         f"--timeout-multiplier={_FULL_FACTOR if full else 1}", *(test["name"] for test in tests)],
        env={"MALLOC_PERTURB_": "0", **environment},  # which costs time in every test
    )  # fmt: skip
    said = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return {one["name"].rpartition(" / ")[2]: one for one in said}


def count(test: dict, said: dict | None, environment: dict) -> Count:
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
        ask = lambda command: subprocess.run(  # noqa: E731
            command, env={**environment, **test["env"]}, cwd=test["workdir"], capture_output=True, text=True
        ).stdout
        counted.skipped = passed_over(test["cmd"], ask, counted)
    if status > 128 and status - 128 in set(signal.Signals):
        counted.failed = max(counted.failed, 1)
        counted.why = f"crashed: {signal.Signals(status - 128).name}"
    return counted


def report_failure(name: str, counted: Count, output: str) -> None:
    print(f"\nFAIL {name}: {counted.passed} passed, {counted.failed} failed")
    lines = output.splitlines()
    if len(lines) > _SHOWN_LINES:
        print(f"    … {len(lines) - _SHOWN_LINES} lines left out")
    for line in lines[-_SHOWN_LINES:]:
        print(f"    {line}")
    if counted.why:
        print(f"    {name}: {counted.why}")


def run_build(build: pathlib.Path, only: str, options: argparse.Namespace, environment: dict) -> tuple[Count, int, list]:
    """Counts of all tests together, how many cases were not repeated, and (name, seconds, command) of each program."""
    tests = tests_of(build, only)
    gate = gates.Gate(cache_folder() / "passed", build)
    kept = {} if options.full else {test["name"]: gate.passed(test) for test in tests}
    again = [test for test in tests if not kept.get(test["name"])]
    if not options.full:
        environment = with_memo(environment, build, cache_folder() / "nvrtc")
    said = run_meson(build, again, environment, options.full) if again else {}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        counts = list(pool.map(lambda test: count(test, said.get(test["name"]), environment), again))
    total, times = Count(), []
    for test, counted in zip(again, counts):
        outcome = said.get(test["name"], {})
        if counted.failed:
            report_failure(test["name"], counted, outcome.get("stdout", ""))
        else:
            gate.note(test, counted)
        total.passed += counted.passed
        total.failed += counted.failed
        total.skipped += counted.skipped
        times.append((test["name"], outcome.get("duration", 0.0), test["cmd"]))
    return total, sum(kept.values()), times


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE")
    parser.add_argument("builds", nargs="+", metavar="BUILD[:KIND]")
    options = parser.parse_args(arguments)
    environment = {key: value for key, value in os.environ.items() if key != "SPARSEKILN_CACHE_DIR"}
    if options.full:
        environment["SPARSEKILN_TEST_FULL"] = "1"
    total, not_repeated, times = Count(), 0, []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sparsekiln-times-") as folder:
        if options.times:
            environment["SPARSEKILN_TIMES_DIR"] = folder
        for argument in options.builds:
            build, _, only = argument.partition(":")
            counted, kept, timed = run_build(pathlib.Path(build), only, options, environment)
            total.passed += counted.passed
            total.failed += counted.failed
            total.skipped += counted.skipped
            not_repeated += kept
            times += timed
        if options.times:
            slowest.tell(slowest.table(times, folder, time.monotonic() - began), options.write)
    if total.skipped:
        print(f"{total.skipped} skipped")
    if total.passed + total.failed == 0:
        print("no test ran")
    unchanged = f", {not_repeated} not repeated" if not_repeated else ""
    print(f"{total.passed} passed, {total.failed} failed{unchanged}", flush=True)
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
