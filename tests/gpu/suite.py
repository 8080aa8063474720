"""Runs the kernel suite on this machine's GPU: tests/gpu/suite.py --build BUILD --out DIR [--minutes N].

As many processes as there are cores share the suite's kernels and test cases, first a quarter of the kernels of each
table, then the other test cases, then the rest; each quarter is compiled as a whole before it is run. Work that is not
reached within the minutes is left to the next call, which continues from DIR; once nothing is left, what failed runs
again. A process that crashes, hangs or loses its context fails its current part, and another one continues with the rest.
The last line is `N passed, N failed`, with what was not reached. Exit status: 0 all passed, 1 some failed, 3 some were not reached.

Leaves DIR/test.json, DIR/test.log, DIR/test.claims (a line for each thing done, from which the next call continues), and
all of them, with what the other verbs left, in one DIR/gpu-DEVICE-COMMIT.tar.gz.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(_ROOT / "tests"), str(_ROOT / "bench")]

from claims import Claims  # noqa: E402
from gpu_results import Results, add_arguments  # noqa: E402
from workers import Workers  # noqa: E402

_MOST_PROCESSES = 16
_SECONDS = 180  # a kernel with its compile, or a test case
_TELL_EACH = 15  # seconds


def scratch_of(out: pathlib.Path) -> pathlib.Path:
    """A folder for compiled kernels. It stays between calls with the same DIR, and is too large to bring back from a server."""
    digest = hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:12]
    folder = pathlib.Path(tempfile.gettempdir()) / f"sparsekiln-gpu-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise SystemExit(f"{folder} belongs to somebody else; set TMPDIR")
    return folder


def share(program: pathlib.Path, given, scratch: pathlib.Path, results: Results, claims: Claims) -> None:
    """Lets the processes work until all is done or time is up."""
    for folder in ("store", "cache", "tmp"):
        (scratch / folder).mkdir(exist_ok=True)
    until = given.until - min(25, 0.1 * 60 * given.minutes)  # then what was begun is ended
    command = [str(program), "--target", "cuda", "--claims", str(claims.path.resolve()), "--store", str(scratch / "store")]
    command += ["--until", f"{until:.0f}", "--sample", str(given.every), "--only", given.only]
    environment = dict(
        os.environ, SPARSEKILN_CACHE_DIR=str(scratch / "cache"), TMPDIR=str(scratch / "tmp"),
        SPARSEKILN_TEST_SEED=str(results.document["seed"]), SPARSEKILN_TEST_SHRINK="0",
    )  # fmt: skip
    workers = Workers(command, environment, scratch, given.workers, claims, _SECONDS)
    began = told = time.time()
    try:
        while workers.step(until) and time.time() < given.until - 0.2 * (given.until - until):
            time.sleep(0.2)
            if time.time() - told > _TELL_EACH:
                told = time.time()
                passed, failed, _ = claims.totals
                results.say(f"{told - began:4.0f} s: {claims.compiled} compiled ahead, {passed} passed, {failed} failed")
            for line in claims.fresh_failures:
                results.say(f"FAIL {line['end']}\n    {line['what']}\n{line['failure']}")
            claims.fresh_failures.clear()
    finally:
        workers.kill()
        claims.look()
    results.document["broken"] = workers.broken
    for failure in workers.broken:
        results.say(failure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth kernel and test case, for a try")
    parser.add_argument("--only", default="", metavar="WORDS", help="test cases whose names have these words")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--workers", type=int, default=min(cores, _MOST_PROCESSES), metavar="N", help="processes")
    given = parser.parse_args()
    given.until = time.time() + 60 * given.minutes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # like an interrupt: ends the processes, keeps the results
    binary = (given.build / "tests" / "kernels" / "test_kernels").resolve()
    results = Results(given.out / "test.json", binary, given.build, asked={"every": given.every, "only": given.only})
    claims = Claims(given.out / "test.claims")
    if results.resumed:
        claims.take_up()
    else:
        claims.path.unlink(missing_ok=True)
    results.document.setdefault("seed", int(os.environ.get("SPARSEKILN_TEST_SEED") or time.time() // 86400))
    results.write()
    scratch = scratch_of(given.out)
    try:
        share(binary, given, scratch, results, claims)
    finally:
        for name, case in sorted(claims.cases.items()):
            results.document["parts"][name] = case.document()
        passed, failed, left = claims.totals
        results.document.update(passed=passed, failed=failed, not_reached=left)
        results.document["compiled_ahead"] = {"kernels": claims.compiled, "cpu_seconds": round(claims.compile_seconds, 1)}
        results.write()
    for name, part in results.document["parts"].items():
        outcome = "FAIL" if part["failed"] else "ok  " if part["ok"] else "left"
        counts = f"{part['passed']} passed, {part['failed']} failed, {part['not_reached']} not reached"
        results.say(f"{outcome} {name} ({counts}, {part['seconds']} s)")
    done = left == 0 and claims.cases and not results.document["broken"]
    if done and not failed:
        shutil.rmtree(scratch, ignore_errors=True)
    last = f"{passed} passed, {failed} failed" + (f", {left} not reached: call it again" if left else "")
    results.finish(last, [claims.path])
    return 1 if failed or results.document["broken"] or not claims.cases else 0 if done else 3


if __name__ == "__main__":
    sys.exit(main())
