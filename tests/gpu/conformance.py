"""Runs the conformance cases on this machine's GPU: tests/gpu/conformance.py --build BUILD --out DIR.

Writes DIR/conformance.json as it goes, a part a family of instructions, and what the device answered as
DIR/golden/DEVICE/FAMILY.json: copied to tests/conformance/golden/, the emulator is held to it. A family that has
passed is not run again. Where one fails, each of its cases runs in a process of its own, because a kernel that breaks
its context takes those after it with it. The last line is `N passed, N failed`.
"""

import argparse
import hashlib
import json
import os
import pathlib
import sys
import tempfile

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(_ROOT / "tests"), str(_ROOT / "bench")]

from gpu_results import Results  # noqa: E402
from run import count_doctest, run_bounded  # noqa: E402

_SECONDS = 600  # a process


def escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace(",", "\\,")


def run(program: list[str], chosen: str, answers: pathlib.Path) -> dict:
    """One process over the chosen cases: how many passed and failed, and what it said where any did."""
    status, output = run_bounded(
        [*program, chosen, "--answers", str(answers), "--no-colors"], dict(os.environ), None, _SECONDS
    )
    if status is None:
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


def merge(parts: pathlib.Path, into: pathlib.Path) -> None:
    """One answer file of those that single cases left, a line a case."""
    merged: dict[pathlib.Path, dict] = {}
    for file in sorted(parts.glob("*/*/*.json")):
        document = json.loads(file.read_text())
        held = merged.setdefault(into / file.parent.name / file.name, {**document, "cases": {}})
        held["cases"].update(document["cases"])
    for path, document in merged.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        cases = document.pop("cases")
        head = json.dumps(document)[:-1]
        body = ",\n".join(f"{json.dumps(name)}: {json.dumps(cases[name])}" for name in sorted(cases))
        path.write_text(f'{head}, "cases": {{\n{body}\n}}}}\n')


def run_family(program: list[str], family: pathlib.Path, answers: pathlib.Path) -> dict:
    whole = run(program, f"--test-suite={family.stem}", answers)
    if not whole["failed"]:
        return {"ok": True, **whole}
    passed, failures = 0, {}
    with tempfile.TemporaryDirectory(prefix="conformance-") as parts:
        for number, name in enumerate(case_names(family)):
            alone = run(program, f"--test-case={escaped(name)}", pathlib.Path(parts) / str(number))
            passed += alone["passed"]
            if alone["failed"]:
                failures[name] = f"{alone['output']}    {alone['why']}"
        merge(pathlib.Path(parts), answers)
    if not failures:
        failures[family.stem] = f"{whole['output']}    {whole['why']}; each case alone passes"
    return {"ok": False, "passed": passed, "failed": len(failures), "failures": failures}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--cases", type=pathlib.Path, default=_ROOT / "tests" / "conformance" / "cases")
    given = parser.parse_args()
    binary = (given.build / "tests" / "conformance" / "test_conformance").resolve()
    program = [str(binary), "--target", "cuda", "--cases", str(given.cases)]
    results = Results(given.out / "conformance.json", binary, given.build)
    families = sorted(given.cases.glob("*.cases"))
    for family in families:
        digest = hashlib.sha256(family.read_bytes()).hexdigest()
        again = results.has(family.stem) and results[family.stem]["ok"] and results[family.stem]["cases"] == digest
        if not again:
            results.record(family.stem, {**run_family(program, family, given.out / "golden"), "cases": digest})
        result = results[family.stem]
        verdict = "done" if again else "ok  " if result["ok"] else "FAIL"
        print(f"{verdict} {family.stem} ({result['passed']} passed, {result['failed']} failed)", flush=True)
        for name, output in result.get("failures", {}).items():
            print(f"{name}\n{output}", flush=True)
    passed = sum(results[family.stem]["passed"] for family in families)
    failed = sum(results[family.stem]["failed"] for family in families)
    results.document["passed"], results.document["failed"] = passed, failed
    results.write()
    print(
        f"{given.out / 'conformance.json'}: {results.document['device']['name']}, commit {results.document['commit']}"
    )
    print(f"{passed} passed, {failed} failed", flush=True)
    return 0 if passed and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
