"""`./dev gpu conformance`, with a GPU and a program that are scripts: it resumes, finds the case that failed, and keeps
the answers."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

_HERE = pathlib.Path(__file__).resolve().parent
_DOCTOR = """#!/bin/sh
echo '{"cuda_driver": {"found": true, "cuda_version": 13000, "devices": [{"name": "Test GPU", "pci_bus_id": "0000:b3:00.0"}]}}'
"""
# A program as test_conformance: `hangs` breaks the context, and what comes after it in the process fails as well.
_PROGRAM = """#!/usr/bin/env python3
import json, os, pathlib, sys, time
options = dict(argument.lstrip("-").split("=", 1) for argument in sys.argv[1:] if "=" in argument)
positional = sys.argv[1:]
assert positional[:2] == ["--target", "cuda"]
cases = pathlib.Path(positional[positional.index("--cases") + 1])
answers = pathlib.Path(positional[positional.index("--answers") + 1])
open("ran", "a").write(options.get("test-suite", options.get("test-case", "")) + "\\n")
passed = failed = 0
for file in sorted(cases.glob("*.cases")):
    names = [line[5:] for line in file.read_text().splitlines() if line.startswith("case ")]
    if file.stem == "newer":
        print("1 cases are for newer devices")
        continue
    for name in names:
        title = f"{file.stem}: {name}".replace(",", "\\\\,")
        if options.get("test-suite", file.stem) != file.stem or options.get("test-case", title) != title:
            continue
        if "test-case" in options and os.path.exists("sleeps alone"):
            time.sleep(60)
        if failed or name == "broken" and os.path.exists("breaks"):
            failed += 1
            print(f"{name} is wrong")
            continue
        passed += 1
        if name == "slow" and os.path.exists("sleeps"):
            time.sleep(60)
        held = json.loads(answers.read_text())["answers"]["cases"] if answers.exists() else {}
        held[f"{file.stem}: {name}"] = {"digest": "d", "values": "1"}
        answers.write_text(json.dumps({"answers": {"device": "Test GPU", "cases": held}}))
        if name == "cut off":
            answers.write_text('{"answers": ')
print(f"[doctest] test cases: {passed + failed} | {passed} passed | {failed} failed | 0 skipped")
sys.exit(1 if failed else 0)
"""

_CASES = "build/tests/conformance/cases"


class Conformance(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
        self.write("build/tools/sparsekiln", _DOCTOR)
        self.write("build/tests/conformance/test_conformance", _PROGRAM)
        self.write("build/COMMIT", "unknown")
        self.write(f"{_CASES}/first.cases", "case good\ncase broken\ncase last, with a comma\n")
        self.write(f"{_CASES}/newer.cases", "case new\n")
        self.write(f"{_CASES}/second.cases", "case other\n")

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def run_cases(self, *arguments):
        """Exit status, the last line, and what the program was asked for."""
        (self.folder / "ran").write_text("")
        done = subprocess.run(
            [sys.executable, _HERE / "conformance.py", "--build", "build", "--out", "out", *arguments],
            cwd=self.folder, capture_output=True, text=True,
            env=dict(os.environ, PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}"),
        )  # fmt: skip
        self.said = done.stdout + done.stderr
        return done.returncode, done.stdout.splitlines()[-1], sorted((self.folder / "ran").read_text().splitlines())

    def answers(self, family):
        """The names of its cases that have an answer."""
        answers = json.loads((self.folder / "out" / "conformance.json").read_text())["answers"]
        self.assertEqual(answers["device"], "Test GPU")
        return [title.removeprefix(f"{family}: ") for title in answers["cases"] if title.startswith(f"{family}: ")]

    def test_a_family_at_a_time_and_only_what_failed_or_changed_again(self):
        self.assertEqual(self.run_cases(), (0, "4 passed, 0 failed", ["first", "newer", "second"]))
        self.assertEqual(self.answers("first"), ["broken", "good", "last, with a comma"])
        self.assertEqual(self.run_cases(), (0, "4 passed, 0 failed", []))
        self.write(f"{_CASES}/second.cases", "case other\ncase more\n")
        self.assertEqual(self.run_cases(), (0, "5 passed, 0 failed", ["second"]))
        self.assertEqual((self.answers("first")[0], self.answers("second")), ("broken", ["more", "other"]))

    def test_leaves_one_file_of_results_a_log_and_one_archive_of_both(self):
        self.run_cases()
        left = sorted(file.name for file in (self.folder / "out").iterdir())
        self.assertEqual(left, ["conformance.json", "conformance.log", "gpu-Test-GPU-unknown.tar.gz"])

    def test_a_family_that_time_does_not_allow_is_left_to_the_next_call(self):
        self.write(f"{_CASES}/second.cases", "case slow\n")
        self.write("sleeps", "")
        self.assertEqual(self.run_cases("--minutes", "0.05")[:2], (3, "3 passed, 0 failed, 1 families not reached: call it again"))
        (self.folder / "sleeps").unlink()
        self.assertEqual(self.run_cases(), (0, "4 passed, 0 failed", ["second"]))

    def test_a_case_that_breaks_the_context_is_the_only_one_that_fails(self):
        self.write("breaks", "")
        status, last, ran = self.run_cases()
        self.assertEqual((status, last), (1, "3 passed, 1 failed"))
        self.assertEqual(
            ran, ["first", "first: broken", "first: good", "first: last\\, with a comma", "newer", "second"]
        )
        self.assertIn("first: broken\nbroken is wrong", self.said)
        self.assertEqual(self.answers("first"), ["good", "last, with a comma"])
        (self.folder / "breaks").unlink()
        self.assertEqual(self.run_cases()[2], ["first"])

    def test_a_family_that_failed_is_recorded_though_there_is_no_time_for_each_case(self):
        self.write("breaks", "")
        self.write("sleeps alone", "")
        self.assertEqual(self.run_cases("--minutes", "0.1")[:2], (1, "1 passed, 1 failed"))
        self.assertIn("broken is wrong", self.said)
        self.assertIn("there was no time for each case alone", self.said)

    def test_answers_that_cannot_be_read_fail_their_family_alone(self):
        self.write(f"{_CASES}/second.cases", "case cut off\n")
        self.assertEqual(self.run_cases()[:2], (1, "3 passed, 1 failed"))
        self.assertIn("second\nJSONDecodeError", self.said)
        self.assertEqual(len(list((self.folder / "out").glob("*.tar.gz"))), 1)

    def test_a_gpu_that_runs_no_case_is_a_failure(self):
        for family in ("first", "second"):
            (self.folder / _CASES / f"{family}.cases").unlink()
        self.assertEqual(self.run_cases()[:2], (1, "0 passed, 0 failed"))


if __name__ == "__main__":
    unittest.main()
