"""run.py counts what ran: no crash, time-out or silent program passes for a success."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from unittest import mock

_RUN = pathlib.Path(__file__).with_name("run.py")
sys.path.insert(0, str(_RUN.parent))
import run  # noqa: E402
_DOCTEST = "[doctest] test cases:  5 |  4 passed | {failed} failed | 1 skipped"


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tests = []

    def declare(self, kind, script, timeout=60, arguments=(), priority=0):
        self.tests.append(
            {
                "name": f"test {len(self.tests)}",
                "cmd": [sys.executable, "-c", textwrap.dedent(script), *arguments],
                "env": {},
                "workdir": None,
                "timeout": timeout,
                "is_parallel": True,
                "priority": priority,
                "suite": [f"sparsekiln:{kind}"],
            }
        )

    def run_all(self, only=""):
        info = self.folder / "meson-info"
        info.mkdir(exist_ok=True)
        (info / "intro-tests.json").write_text(json.dumps(self.tests))
        environment = {key: value for key, value in os.environ.items() if key != "SPARSEKILN_TEST_FULL"}
        done = subprocess.run(
            [sys.executable, _RUN, f"{self.folder}{only}"], capture_output=True, text=True, env=environment
        )
        return done.returncode, done.stdout.splitlines()[-1], done.stdout

    def test_sums_the_cases_of_all_programs(self):
        self.declare("doctest", f"print('{_DOCTEST.format(failed=0)}')")
        self.declare("doctest", f"print('{_DOCTEST.format(failed=0)}')")
        self.declare("program", "pass")
        self.assertEqual(self.run_all()[:2], (0, "9 passed, 0 failed"))

    def test_begins_with_what_has_the_highest_priority(self):
        for priority in (0, 2, 0, 3):
            self.declare("program", "pass", priority=priority)
        names = [test["name"] for test, _ in run.in_turn([(test, "program") for test in self.tests])]
        self.assertEqual(names, ["test 3", "test 1", "test 0", "test 2"])

    def test_says_how_far_it_is_as_each_program_ends(self):
        for _ in range(3):
            self.declare("program", "pass")
        lines = self.run_all()[2].splitlines()
        self.assertRegex(lines[0], r"^3 test programs, \d at a time, the longest first$")
        self.assertEqual([line.split()[0] for line in lines[1:4]], ["[1/3]", "[2/3]", "[3/3]"])

    def test_says_what_runs_when_nothing_has_ended_for_long(self):
        spoken = io.StringIO()
        with mock.patch.object(run, "_SILENCE_S", 0), contextlib.redirect_stdout(spoken):
            with run.Progress(7) as progress:
                progress.begin("a long one")
                deadline = time.monotonic() + 60
                while "a long one" not in spoken.getvalue() and time.monotonic() < deadline:
                    time.sleep(0.05)
        self.assertIn("0 of 7 ended; running: a long one (", spoken.getvalue())

    def test_counts_unittest_failures_and_leaves_out_what_was_skipped(self):
        self.declare("unittest", "print('Ran 7 tests in 0.1s'); print('FAILED (failures=1, errors=2, skipped=1)'); exit(1)")
        self.assertEqual(self.run_all()[:2], (1, "3 passed, 3 failed"))

    def test_counts_pytest_failures_and_errors_and_leaves_out_what_was_skipped(self):
        self.declare("pytest", "print('1 failed, 5 passed, 2 skipped, 1 error in 0.41s'); exit(1)")
        self.declare("pytest", "print('===== 4 passed, 3 warnings in 61.20s (0:01:01) =====')")
        self.declare("pytest", "print('2 skipped in 0.01s'); exit(5)")
        self.assertEqual(self.run_all()[:2], (1, "9 passed, 2 failed"))

    def test_takes_a_pytest_run_without_a_summary_for_a_failure(self):
        self.declare("pytest", "print('no tests ran in 0.01s'); exit(5)")
        self.declare("pytest", "print('5 passed in 0.41s'); exit(3)")
        self.assertEqual(self.run_all()[:2], (1, "5 passed, 2 failed"))

    def test_takes_cases_that_the_command_line_leaves_out_for_none_at_all(self):
        script = f"""
            import sys
            if "--count" in sys.argv:
                assert "--no-skip" in sys.argv and "-tc=some *" in sys.argv
                print("[doctest] unskipped test cases passing the current filters: 4")
            else:
                print('{_DOCTEST.format(failed=0)}'.replace('1 skipped', '21 skipped'))
        """
        self.declare("doctest", script, arguments=["--target", "here", "-tc=some *"])
        status, last, output = self.run_all()
        self.assertEqual((status, last), (0, "4 passed, 0 failed"))
        self.assertNotIn("skipped", output)

    def test_counts_a_case_that_was_asked_for_and_skipped_itself(self):
        script = f"""
            import sys
            if "--count" in sys.argv:
                print("[doctest] unskipped test cases passing the current filters: 6")
            else:
                print('{_DOCTEST.format(failed=0)}'.replace('1 skipped', '21 skipped'))
        """
        self.declare("doctest", script, arguments=["-tce=others *"])
        self.assertIn("2 skipped", self.run_all()[2].splitlines())

    def test_shows_the_output_of_what_failed(self):
        self.declare("program", "print('the reason'); exit(3)")
        status, last, output = self.run_all()
        self.assertEqual((status, last), (1, "0 passed, 1 failed"))
        self.assertIn("the reason", output)
        self.assertIn("exit status 3", output)

    def test_takes_a_crash_for_a_failure_even_after_a_good_summary(self):
        self.declare("doctest", f"print('{_DOCTEST.format(failed=0)}', flush=True); import os; os.kill(os.getpid(), 11)")
        status, last, output = self.run_all()
        self.assertEqual((status, last), (1, "4 passed, 1 failed"))
        self.assertIn("SIGSEGV", output)

    def test_takes_silence_for_a_failure(self):
        self.declare("doctest", "pass")
        self.declare("unittest", "pass")
        self.assertEqual(self.run_all()[:2], (1, "0 passed, 2 failed"))

    def test_ends_a_program_that_takes_too_long(self):
        self.declare("program", "import time; time.sleep(60)", timeout=1)
        status, last, output = self.run_all()
        self.assertEqual((status, last), (1, "0 passed, 1 failed"))
        self.assertIn("ran longer than 1 s", output)

    def test_refuses_a_test_of_no_kind(self):
        self.declare("", "pass")
        self.assertEqual(self.run_all()[:2], (1, "0 passed, 1 failed"))

    def test_fails_when_nothing_ran(self):
        self.declare("program", "exit(77)")
        self.assertEqual(self.run_all()[:2], (1, "0 passed, 0 failed"))

    def test_takes_a_fuzzer_s_status_77_for_the_crash_that_it_is(self):
        self.declare("fuzz", "print('#9 DONE cov: 1'); exit(77)")
        self.assertEqual(self.run_all()[:2], (1, "0 passed, 1 failed"))

    def test_runs_one_kind_where_asked(self):
        self.declare("program", "pass")
        self.declare("fuzz", "print('#9 DONE cov: 1')")
        self.assertEqual(self.run_all(":fuzz")[:2], (0, "1 passed, 0 failed"))


if __name__ == "__main__":
    unittest.main()
