"""Runs the kernel suite on this machine's GPU, case by case: tests/gpu/suite.py --build BUILD --out DIR.

Writes DIR/test.json as it goes. A case that has passed is not run again; one that has failed is. The last line is
`N passed, N failed`.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(_ROOT / "tests"), str(_ROOT / "bench")]

from gpu_results import Results  # noqa: E402
from run import count_doctest, run_bounded  # noqa: E402

_SECONDS = 600  # a case


def list_cases(program: list[str]) -> list[str]:
    listing = subprocess.run([*program, "--list-test-cases", "--no-colors"], capture_output=True, text=True, timeout=60)
    lines = listing.stdout.splitlines()
    rules = [number for number, line in enumerate(lines) if re.fullmatch(r"=+", line)]
    if listing.returncode != 0 or len(rules) < 2:
        raise SystemExit(f"{program[0]} did not list its cases:\n{listing.stdout}{listing.stderr}")
    return lines[rules[0] + 1 : rules[-1]]


def run_case(program: list[str], case: str, environment: dict) -> dict:
    began = time.monotonic()
    pattern = case.replace("\\", "\\\\").replace(",", "\\,")
    status, output = run_bounded([*program, f"--test-case={pattern}", "--no-colors"], environment, None, _SECONDS)
    seconds = round(time.monotonic() - began, 2)
    if status is None:
        return {"ok": False, "seconds": seconds, "why": f"ran longer than {_SECONDS} s", "output": output}
    count = count_doctest(status, output)
    if status < 0 or count.failed or not count.passed:
        return {"ok": False, "seconds": seconds, "why": count.why or f"exit status {status}", "output": output}
    return {"ok": True, "seconds": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    given = parser.parse_args()
    binary = (given.build / "tests" / "kernels" / "test_kernels").resolve()
    program = [str(binary), "--target", "cuda"]
    results = Results(given.out / "test.json", binary, given.build)
    cases = list_cases(program)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="sparsekiln-gpu-") as cache:
        environment = dict(os.environ, SPARSEKILN_CACHE_DIR=cache)
        for number, case in enumerate(cases, 1):
            again = results.has(case) and results[case]["ok"]
            if not again:
                results.record(case, run_case(program, case, environment))
            result = results[case]
            verdict = "done" if again else "ok  " if result["ok"] else "FAIL"
            print(f"{verdict} {number}/{len(cases)} {case} ({result['seconds']} s)", flush=True)
            if not result["ok"]:
                failed += 1
                print(f"{result['output']}    {result['why']}", flush=True)
    results.document["passed"], results.document["failed"] = len(cases) - failed, failed
    results.write()
    print(f"{given.out / 'test.json'}: {results.document['device']['name']}, commit {results.document['commit']}")
    print(f"{len(cases) - failed} passed, {failed} failed", flush=True)
    return 0 if cases and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
