"""How many cases of a test program passed, by what it printed and how it ended. tests/meson.build says of which kinds they are."""

import dataclasses
import re


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


COUNTERS = {
    "doctest": count_doctest, "unittest": count_unittest, "pytest": count_pytest, "fuzz": count_fuzz, "program": count_program,
}  # fmt: skip
