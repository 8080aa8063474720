"""Runs the conformance cases on this machine's GPU: tests/gpu/conformance.py --build BUILD --out DIR [--minutes N].

Runs as many families of instructions at once as there are cores, one process each: the driver compiles their PTX. Writes
DIR/conformance.json as it goes: one part per family, and under "answers" what the device answered. When that file is copied
to tests/conformance/golden/, the emulator is checked against it. A family that has passed is not run again, and one that the
minutes do not allow is left to the next call. If a family fails, each of its cases runs in a process of its own, because a
kernel that breaks its context makes those after it fail as well. The last line is `N passed, N failed`. Exit status:
0 all passed, 1 some failed, 3 some were not reached. Everything of DIR is also in one
DIR/gpu-DEVICE-COMMIT.tar.gz.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import sys
import tempfile
import time

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(_ROOT / "tests"), str(_ROOT / "bench")]

from gpu_results import Results, add_arguments  # noqa: E402
from bounded import run_bounded  # noqa: E402
from counting import count_doctest  # noqa: E402

_MOST_PROCESSES = 16
_SECONDS = 120  # a process


class NotReached(Exception):
    """Time is up."""


def escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace(",", "\\,")


def run(program: list[str], chosen: str, answers: pathlib.Path, until: float) -> dict:
    """One process over the chosen cases: how many passed and failed, and what it said where any did."""
    seconds = min(_SECONDS, until - time.time())
    if seconds <= 0:
        raise NotReached
    status, output = run_bounded([*program, chosen, "--answers", str(answers), "--no-colors"], dict(os.environ), None, seconds)
    if status is None:
        if seconds < _SECONDS:
            raise NotReached
        return {"passed": 0, "failed": 1, "why": f"ran longer than {_SECONDS} s", "output": output}
    if status == 0 and "cases are for newer devices" in output and "test cases: 0 |" in " ".join(output.split()):
        return {"passed": 0, "failed": 0}
    count = count_doctest(status, output)
    if status == 0 and not count.failed:
        return {"passed": count.passed, "failed": 0}
    return {
        "passed": count.passed,
        "failed": max(count.failed, 1),
        "why": count.why or f"exit status {status}",
        "output": output,
    }


def case_names(family: pathlib.Path) -> list[str]:
    """As the program names them: `logic: and.b16`."""
    lines = family.read_text().splitlines()
    return [f"{family.stem}: {line.removeprefix('case ')}" for line in lines if line.startswith("case ")]


def run_family(program: list[str], family: pathlib.Path, scratch: pathlib.Path, until: float) -> dict:
    """What came of it, and "answers": one document of answers for each process that left any."""
    (scratch / family.stem).mkdir()
    whole_answers = scratch / family.stem / "all.json"
    whole = run(program, f"--test-suite={family.stem}", whole_answers, until)
    if not whole["failed"]:
        return {"ok": True, **whole, "answers": read_answers([whole_answers])}
    passed, failures, files = 0, {}, []
    try:
        for number, name in enumerate(case_names(family)):
            files.append(scratch / family.stem / f"{number}.json")
            alone = run(program, f"--test-case={escaped(name)}", files[-1], until)
            passed += alone["passed"]
            if alone["failed"]:
                failures[name] = f"{alone['output']}    {alone['why']}"
        if not failures:
            failures[family.stem] = f"{whole['output']}    {whole['why']}; each case alone passes"
    except NotReached:
        failures[family.stem] = f"{whole['output']}    {whole['why']}; there was no time for each case alone"
    answers = read_answers(files)
    return {"ok": False, "passed": passed, "failed": len(failures), "failures": failures, "answers": answers}


def read_answers(files: list[pathlib.Path]) -> list[dict]:
    return [json.loads(file.read_text())["answers"] for file in files if file.exists()]


def merge(into: dict, answers: list[dict], family: str) -> dict:
    """The answers with those of a family in place of what they had of it."""
    cases = {title: answer for title, answer in into.get("cases", {}).items() if not title.startswith(f"{family}: ")}
    for document in answers:
        into = {**into, **document}
        cases |= document["cases"]
    return {**into, "cases": dict(sorted(cases.items()))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth family, for a try")
    given = parser.parse_args()
    until = time.time() + 60 * given.minutes * 0.95
    folder = (given.build / "tests" / "conformance").resolve()
    binary, cases = folder / "test_conformance", folder / "cases"
    program = [str(binary), "--target", "cuda", "--cases", str(cases)]
    results = Results(given.out / "conformance.json", binary, given.build)
    families = sorted(cases.glob("*.cases"))[:: given.every]
    digests = {family.stem: hashlib.sha256(family.read_bytes()).hexdigest() for family in families}

    def is_done(name: str) -> bool:
        return results.has(name) and results[name]["ok"] and results[name]["cases"] == digests[name]

    def tell(name: str, outcome: str) -> None:
        result = results[name]
        results.say(f"{outcome} {name} ({result['passed']} passed, {result['failed']} failed)")
        for case, output in result.get("failures", {}).items():
            results.say(f"{case}\n{output}")

    left = []
    processes = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    with tempfile.TemporaryDirectory(prefix="conformance-") as scratch, concurrent.futures.ThreadPoolExecutor(processes) as pool:
        running = {}
        for family in sorted(families, key=lambda family: results.has(family.stem)):  # what failed comes last
            if is_done(family.stem):
                tell(family.stem, "done")
            else:
                running[pool.submit(run_family, program, family, pathlib.Path(scratch), until)] = family.stem
        for future in concurrent.futures.as_completed(running):
            name = running[future]
            try:
                result = future.result()
                results.document["answers"] = merge(results.document.get("answers", {}), result.pop("answers"), name)
            except NotReached:
                left.append(name)
                results.say(f"left {name}")
                continue
            except Exception as error:  # truncated answers, a full disk …: the other families continue
                result = {"ok": False, "passed": 0, "failed": 1, "failures": {name: f"{type(error).__name__}: {error}"}}
            results.record(name, {**result, "cases": digests[name]})
            tell(name, "ok  " if result["ok"] else "FAIL")
    reached = [results[family.stem] for family in families if family.stem not in left]
    passed, failed = sum(part["passed"] for part in reached), sum(part["failed"] for part in reached)
    results.document.update(passed=passed, failed=failed, not_reached=sorted(left))
    results.finish(f"{passed} passed, {failed} failed" + (f", {len(left)} families not reached: call it again" if left else ""))
    return 1 if failed or not (passed or left) else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
