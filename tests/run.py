"""Runs every test that Meson knows and counts what really ran. The last line is `N passed, N failed`.

    tests/run.py BUILD [BUILD:KIND …]

Each argument is a build folder, where wanted limited to one kind of test. The kinds, which tests/meson.build
describes, are the tests' Meson suites; they say how a test's own output is counted. A program that crashes, runs out
of time, or ends without saying what it ran counts as one failure. As many run at once as there are cores (4 at most),
of higher priority first, so that a long one does not run alone at last; those that Meson knows as not parallel run
alone, at the end.
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

_FULL_FACTOR = 20  # how much longer a test may take when the whole product is asked for
_SHOWN_LINES = 200  # of a failed test's output
_SILENCE_S = 30  # after which it says what runs


@dataclasses.dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    why: str = ""  # of a failure that the output itself does not show


def count_doctest(status: int, output: str) -> Count:
    found = re.findall(
        r"^\[doctest\] test cases:\s*(\d+)\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed\s*\|\s*(\d+) skipped", output, re.M
    )
    if not found:
        return Count(failed=1, why=f"no doctest summary, exit status {status}")
    _, passed, failed, skipped = (int(number) for number in found[-1])
    if status != 0 and failed == 0:
        return Count(passed, 1, skipped, f"exit status {status} after all cases passed")
    if passed + failed == 0:
        return Count(0, 1, skipped, "ran no case")
    return Count(passed, failed, skipped)


# doctest's options that choose cases, in all spellings: "-tc=", "--test-case-exclude=", "-dt-sf=" …
_CHOOSES_CASES = re.compile(
    r"--?(dt-)?(tc|tce|sf|sfe|ts|tse|f|l|(test-case|source-file|test-suite)(-exclude)?|first|last)="
)


def passed_over(command: list[str], ask, count: Count) -> int:
    """How many of the cases that a doctest program counts as skipped its command line asked for: it counts those
    that the command line chose not to run as well. `ask` runs a command and gives its output."""
    if count.skipped == 0 or not any(_CHOOSES_CASES.match(argument) for argument in command):
        return count.skipped
    chosen = re.search(r"passing the current filters: (\d+)", ask([*command, "--count", "--no-skip"]))
    return count.skipped if chosen is None else max(0, int(chosen[1]) - count.passed - count.failed)


def count_unittest(status: int, output: str) -> Count:
    ran = re.findall(r"^Ran (\d+) tests? in ", output, re.M)
    verdict = re.findall(r"^(OK|FAILED|NO TESTS RAN)\b(.*)$", output, re.M)
    if not ran or not verdict:
        return Count(failed=1, why=f"no unittest summary, exit status {status}")
    parts = {key: int(number) for key, number in re.findall(r"([a-z ]+)=(\d+)", verdict[-1][1])}
    parts = {key.strip(): number for key, number in parts.items()}
    failed = sum(parts.get(key, 0) for key in ("failures", "errors", "unexpected successes"))
    skipped = parts.get("skipped", 0)
    passed = max(0, int(ran[-1]) - failed - skipped)
    if status != 0 and failed == 0:
        return Count(passed, 1, skipped, f"exit status {status}")
    if passed + failed + skipped == 0:
        return Count(0, 1, 0, "ran no test")
    return Count(passed, failed, skipped)


def count_pytest(status: int, output: str) -> Count:
    summary = re.findall(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [0-9.]+s", output, re.M)
    if not summary:
        return Count(failed=1, why=f"no pytest summary, exit status {status}")
    parts = {what: int(number) for number, what in re.findall(r"(\d+) ([a-z]+)", summary[-1])}
    failed = sum(parts.get(key, 0) for key in ("failed", "error", "errors", "xpassed"))
    passed, skipped = parts.get("passed", 0), parts.get("skipped", 0)
    if status not in (0, 5) and failed == 0:  # 5: all were skipped when they were collected
        return Count(passed, 1, skipped, f"exit status {status}")
    if passed + failed + skipped == 0:
        return Count(0, 1, 0, "ran no test")
    return Count(passed, failed, skipped)


def count_program(status: int, output: str) -> Count:
    if status == 77:  # what Meson and Automake take for "skipped"
        return Count(skipped=1)
    return Count(passed=1) if status == 0 else Count(failed=1, why=f"exit status {status}")


def count_fuzz(status: int, output: str) -> Count:
    if status == 0 and "DONE" not in output:
        return Count(failed=1, why="libFuzzer did not say that it was done")
    return Count(passed=1) if status == 0 else Count(failed=1, why=f"exit status {status}")  # 77 is libFuzzer's "crashed"


_COUNTERS = {
    "doctest": count_doctest, "unittest": count_unittest, "pytest": count_pytest, "fuzz": count_fuzz, "program": count_program,
}  # fmt: skip


def kind_of(test: dict) -> str | None:
    """The kind that a test's suite names ("sparsekiln:doctest"), or None."""
    for suite in test["suite"]:
        if suite.rpartition(":")[2] in _COUNTERS:
            return suite.rpartition(":")[2]
    return None


def run_bounded(command: list[str], environment: dict, folder: str | None, seconds: float) -> tuple[int, str]:
    """Exit status (a negative signal number, or None after `seconds`) and the output. No process outlives it."""
    with tempfile.TemporaryFile() as sink:
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return 127, str(error)
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # and the processes that it may have left
            except ProcessLookupError:
                pass
            process.wait()
        sink.seek(0)
        return status, sink.read().decode(errors="replace")


def run_test(test: dict, kind: str, full: bool) -> tuple[Count, str]:
    limit = (test["timeout"] or 600) * (_FULL_FACTOR if full else 1)
    with tempfile.TemporaryDirectory(prefix="sparsekiln-test-") as scratch:
        os.chmod(scratch, 0o711)  # a test may give up being root, and must still reach its files
        environment = dict(os.environ, SPARSEKILN_CACHE_DIR=os.path.join(scratch, "cache"), TMPDIR=scratch)
        environment.update(test["env"])
        status, output = run_bounded(test["cmd"], environment, test["workdir"], limit)
        if status is None:
            return Count(failed=1, why=f"ran longer than {limit:.0f} s and was ended"), output
        count = _COUNTERS[kind](status, output)
        if kind == "doctest":
            count.skipped = passed_over(
                test["cmd"], lambda command: run_bounded(command, environment, test["workdir"], limit)[1], count
            )
    if status < 0:
        count.failed = max(count.failed, 1)
        count.why = f"crashed: {signal.Signals(-status).name}"
    return count, output


def tests_of(argument: str) -> list[tuple[dict, str | None]]:
    folder, _, only = argument.partition(":")
    listing = pathlib.Path(folder) / "meson-info" / "intro-tests.json"
    found = [(test, kind_of(test)) for test in json.loads(listing.read_text())]
    return [(test, kind) for test, kind in found if only in ("", kind)]


def in_turn(pairs: list) -> list:
    """Tests (and their kinds) of higher priority first, else in their order."""
    return sorted(pairs, key=lambda pair: -pair[0]["priority"])


class Progress:
    """How far the run is: what runs now, and how many tests have ended. Thread-safe."""

    def __init__(self, total: int):
        self._total = total
        self._ended = 0
        self._began = time.monotonic()
        self._running: dict[str, float] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._said = self._began

    def __enter__(self):
        threading.Thread(target=self._remind, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._over.set()

    def begin(self, name: str) -> None:
        with self._lock:
            self._running[name] = time.monotonic()

    def end(self, name: str) -> float:
        """The seconds that it took."""
        with self._lock:
            return time.monotonic() - self._running.pop(name)

    def count(self) -> str:
        """The number of one more test that ended: "[ 3/98]"."""
        with self._lock:
            self._ended += 1
            self._said = time.monotonic()
            return f"[{self._ended:{len(str(self._total))}}/{self._total}]"

    def _remind(self) -> None:
        while not self._over.wait(1):
            with self._lock:
                now = time.monotonic()
                if now - self._said < _SILENCE_S or not self._running:
                    continue
                self._said = now
                running = ", ".join(f"{name} ({now - began:.0f} s)" for name, began in self._running.items())
                minutes, seconds = divmod(int(now - self._began), 60)
                print(f"{minutes}:{seconds:02}  {self._ended} of {self._total} ended; running: {running}", flush=True)


def report(test: dict, count: Count, output: str, seconds: float, place: str) -> None:
    verdict = "FAIL" if count.failed else "ok  "
    skipped = f", {count.skipped} skipped" if count.skipped else ""
    print(f"{place} {verdict} {test['name']}: {count.passed} passed, {count.failed} failed{skipped} ({seconds:.1f} s)")
    if count.failed:
        lines = output.splitlines()
        if len(lines) > _SHOWN_LINES:
            print(f"    … {len(lines) - _SHOWN_LINES} lines left out")
        for line in lines[-_SHOWN_LINES:]:
            print(f"    {line}")
        if count.why:
            print(f"    {test['name']}: {count.why}")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    full = os.environ.get("SPARSEKILN_TEST_FULL") == "1"

    def timed(pair: tuple[dict, str | None]) -> tuple[dict, Count, str, float]:
        test, kind = pair
        progress.begin(test["name"])
        if kind is None:
            count, output = Count(failed=1, why="its suite names no kind of test; see tests/meson.build"), ""
        else:
            count, output = run_test(test, kind, full)
        return test, count, output, progress.end(test["name"])

    pairs = [pair for argument in arguments for pair in tests_of(argument)]
    pairs = in_turn(pairs)
    together = [pair for pair in pairs if pair[0]["is_parallel"]]
    alone = [pair for pair in pairs if not pair[0]["is_parallel"]]
    total = Count()
    width = min(4, os.cpu_count() or 1)
    print(f"{len(pairs)} test programs, {width} at a time, the longest first", flush=True)
    with Progress(len(pairs)) as progress:
        for group, at_once in ((together, width), (alone, 1)):
            with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
                for done in concurrent.futures.as_completed([pool.submit(timed, pair) for pair in group]):
                    test, count, output, seconds = done.result()
                    report(test, count, output, seconds, progress.count())
                    total.passed += count.passed
                    total.failed += count.failed
                    total.skipped += count.skipped
    if total.skipped:
        print(f"{total.skipped} skipped")
    if total.passed + total.failed == 0:
        print("no test ran")
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
