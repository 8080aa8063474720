"""run.py counts what ran: no crash, time-out or silent program passes for a success."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

_RUN = pathlib.Path(__file__).with_name("run.py")
sys.path.insert(0, str(_RUN.parent))
import gates  # noqa: E402
import memory  # noqa: E402
import slowest  # noqa: E402
from counting import Count  # noqa: E402

_DOCTEST = "[doctest] test cases:  5 |  4 passed | {failed} failed | 1 skipped"


def has_ended(process):
    """Within a minute; what init has not taken notice of has ended, too."""
    deadline = time.monotonic() + 60
    status = pathlib.Path(f"/proc/{process}/stat")
    while time.monotonic() < deadline:
        try:
            if status.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = self.folder / "cache"
        self.meson = [
            "project('sparsekiln')",
            f"python = find_program({sys.executable!r})",
            f"add_test_setup('isolated', exe_wrapper: [python, {str(_RUN.with_name('isolated.py'))!r}], is_default: true)",
        ]

    def declare(self, kind, script, timeout=60, arguments=(), suites=()):
        """A test of a Meson project: `script` is run."""
        name = f"test {len(self.meson) - 3}"
        file = self.folder / name / "script.py"
        file.parent.mkdir()
        file.write_text(textwrap.dedent(script))
        suites = [one for one in (kind, *suites) if one]
        self.meson.append(f"test('{name}', python, args: {[str(file), *arguments]}, timeout: {timeout}, suite: {suites})")

    def run_all(self, only="", options=()):
        """Exit status, the last line, and all that is said."""
        (self.folder / "meson.build").write_text("\n".join(self.meson) + "\n")
        build = self.folder / "build"
        subprocess.run(["meson", "setup", *(["--reconfigure"] if build.exists() else []), build, self.folder],
                       check=True, capture_output=True)  # fmt: skip
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SPARSEKILN_")}
        environment["SPARSEKILN_TEST_CACHE"] = str(self.cache)
        done = subprocess.run(
            [sys.executable, _RUN, *options, f"{build}{only}"], capture_output=True, text=True, env=environment
        )
        return done.returncode, done.stdout.splitlines()[-1], done.stdout

    def test_sums_the_cases_of_all_programs(self):
        self.declare("doctest", f"print('{_DOCTEST.format(failed=0)}')")
        self.declare("doctest", f"print('{_DOCTEST.format(failed=0)}')")
        self.declare("program", "pass")
        self.assertEqual(self.run_all()[:2], (0, "9 passed, 0 failed"))

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
        self.declare("unknown", "pass")
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

    def test_each_has_an_empty_cache_and_leaves_nothing_behind(self):
        script = """
            import os, pathlib, subprocess, sys
            cache, scratch = pathlib.Path(os.environ["SPARSEKILN_CACHE_DIR"]), pathlib.Path(os.environ["TMPDIR"])
            assert not cache.exists() and not list(scratch.iterdir())
            cache.mkdir()
            lasting = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            pathlib.Path(sys.argv[1]).write_text(f"{lasting.pid}\\n{scratch}")
        """
        left = [self.folder / "first", self.folder / "second"]
        for file in left:
            self.declare("program", script, arguments=[str(file)])
        self.assertEqual(self.run_all()[:2], (0, "2 passed, 0 failed"))
        for file in left:
            process, scratch = file.read_text().splitlines()
            self.assertFalse(pathlib.Path(scratch).exists())
            self.assertTrue(has_ended(int(process)))

    def test_what_passed_is_not_repeated_while_what_it_depends_on_is_the_same(self):
        again = self.folder / "ran"
        script = f"open({str(again)!r}, 'a').write('x'); print('{_DOCTEST.format(failed=0).replace('1 skipped', '0 skipped')}')"
        self.declare("doctest", script, suites=["emulator"])
        self.declare("program", "pass")
        self.assertEqual(self.run_all()[:2], (0, "5 passed, 0 failed"))
        self.assertEqual(self.run_all()[:2], (0, "1 passed, 0 failed, 4 not repeated"))
        self.assertEqual(self.run_all(options=["--full"])[:2], (0, "5 passed, 0 failed"))
        self.assertEqual(again.read_text(), "xx")
        self.declare("program", "pass")
        self.meson[3] = self.meson[3].replace("args: [", "args: ['-B', ")
        self.assertEqual(self.run_all()[:2], (0, "6 passed, 0 failed"))

    def test_a_run_in_which_nothing_is_repeated_succeeds(self):
        self.declare("doctest", f"print('{_DOCTEST.format(failed=0).replace('1 skipped', '0 skipped')}')", suites=["emulator"])
        self.assertEqual(self.run_all()[:2], (0, "4 passed, 0 failed"))
        self.assertEqual(self.run_all()[:2], (0, "0 passed, 0 failed, 4 not repeated"))

    def test_says_of_each_program_how_many_cases_it_had(self):
        self.declare("doctest", f"print('{_DOCTEST.format(failed=0)}')")
        self.assertRegex(self.run_all()[2], r"ok   test 0: 4 passed, 0 failed, 1 skipped \(\d+\.\d s\)")

    def test_what_failed_or_skipped_a_part_is_repeated(self):
        self.declare("doctest", f"print('{_DOCTEST.format(failed=0)}')", suites=["emulator"])
        self.declare("doctest", f"print('{_DOCTEST.format(failed=1)}'); exit(1)", suites=["emulator"])
        for _ in range(2):
            self.assertEqual(self.run_all()[:2], (1, "8 passed, 1 failed"))

    def test_says_what_took_long_and_why(self):
        script = "import os; open(os.environ['SPARSEKILN_TIMES'], 'a').write('nvrtc 1.5\\nllvm 0.5\\nnvrtc 1\\n')"
        self.declare("program", script)
        self.declare("program", "pass")
        table = self.folder / "table.md"
        table.write_text("before\n<!-- ./dev test --times writes from here -->\nold\n<!-- ./dev test --times: to here -->\nafter\n")
        self.assertEqual(self.run_all(options=["--times", "--write", str(table)])[0], 0)
        written = table.read_text()
        self.assertNotIn("old", written)
        self.assertRegex(written, r"\| test 0 +\| \d+\.\d +\| 2\.5 +\| 0\.5 +\| +\|")
        with self.assertRaises(SystemExit):
            slowest.tell("text", self.folder / "meson.build")
        self.assertRegex(written, r"\| all 2 +\| \d+\.\d +\| 2\.5 +\| 0\.5 +\| +\|")


class Gates(unittest.TestCase):
    """On a small build."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.write("build/test_isa", "program")
        self.write("build/libemulator.so", "library")
        self.write("tests/names_test.py", "script")
        self.write("tests/names.txt", "data")
        targets = [{"id": "lib", "filename": [str(self.folder / "build/libemulator.so")]}]
        self.write("build/meson-info/intro-targets.json", json.dumps(targets))

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def test(self, *command, **more):
        command = [str(self.folder / part) if "/" in part else part for part in command]
        return {"name": "a", "cmd": command, "env": {}, "suite": ["sparsekiln:doctest", "sparsekiln:emulator"], **more}

    def gate(self, beside="NVRTC 13", day=""):
        return gates.Gate(self.folder / "passed", self.folder / "build", beside, self.folder, day)

    def pass_once(self, test):
        gate = self.gate()
        self.assertEqual(gate.passed(test), 0)
        gate.note(test, Count(passed=7))
        self.assertEqual(self.gate().passed(test), 7)

    def test_another_program_argument_or_compiler_is_another_test(self):
        self.pass_once(self.test("build/test_isa"))
        self.assertEqual(self.gate("NVRTC 12").passed(self.test("build/test_isa")), 0)
        self.assertEqual(self.gate().passed(self.test("build/test_isa", "-tc=b")), 0)
        self.write("build/test_isa", "another")
        self.assertEqual(self.gate().passed(self.test("build/test_isa")), 0)
        self.write("build/test_isa", "program")
        self.assertEqual(self.gate().passed(self.test("build/test_isa")), 7)

    def test_a_script_with_what_lies_beside_it_and_what_it_needs_count(self):
        test = self.test("python3", "tests/names_test.py", depends=["lib"])
        self.pass_once(test)
        for name in ("tests/names_test.py", "tests/names.txt", "build/libemulator.so"):
            with self.subTest(name):
                former = (self.folder / name).read_text()
                self.write(name, "changed")
                self.assertEqual(self.gate().passed(test), 0)
                self.write(name, former)
                self.assertEqual(self.gate().passed(test), 7)
        self.write("tests/new.txt", "new")
        self.assertEqual(self.gate().passed(test), 0)

    def test_files_that_the_environment_names_count(self):
        test = self.test("build/test_isa", env={"TEST_FILES": str(self.folder / "tests")})
        self.pass_once(test)
        self.write("tests/names.txt", "changed")
        self.assertEqual(self.gate().passed(test), 0)

    def test_kernels_on_the_emulator_are_repeated_once_a_day(self):
        for suite, again in (("emulated", 0), ("emulator", 7)):
            test = self.test("build/test_isa", suite=["sparsekiln:doctest", f"sparsekiln:{suite}"])
            gate = self.gate(day="2026-01-01")
            self.assertEqual(gate.passed(test), 0)
            gate.note(test, Count(passed=7))
            self.assertEqual(self.gate(day="2026-01-01").passed(test), 7)
            self.assertEqual(self.gate(day="2026-01-02").passed(test), again)
            self.write("build/test_isa", suite)

    def test_what_was_built_while_it_ran_is_not_what_passed(self):
        gate, test = self.gate(), self.test("build/test_isa")
        gate.passed(test)
        self.write("build/test_isa", "built since")
        gate.note(test, Count(passed=7))
        self.assertEqual(self.gate().passed(test), 0)

    def test_what_belongs_to_no_such_suite_is_always_repeated(self):
        test = self.test("build/test_isa", suite=["sparsekiln:doctest"])
        gate = self.gate()
        gate.passed(test)
        gate.note(test, Count(passed=7))
        self.assertEqual(self.gate().passed(test), 0)

    def test_a_folder_that_cannot_be_written_remembers_nothing(self):
        self.write("passed", "a file")
        gate, test = self.gate(), self.test("build/test_isa")
        gate.passed(test)
        gate.note(test, Count(passed=7))
        self.assertEqual(self.gate().passed(test), 0)


class Memory(unittest.TestCase):
    def test_what_was_used_longest_ago_is_removed(self):
        with tempfile.TemporaryDirectory() as folder:
            files = [pathlib.Path(folder) / name for name in "abcd"]
            for age, file in enumerate(files):
                file.write_bytes(bytes(100))
                os.utime(file, (1000 - age, 1000 - age))
            memory.trim(pathlib.Path(folder), 250)
            self.assertEqual([file.exists() for file in files], [True, True, False, False])

    def test_a_folder_that_is_not_there_is_small_enough(self):
        memory.trim(pathlib.Path("/nonexistent"), 0)

    def test_a_build_without_the_command_has_no_compiler(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(memory.Compiler.of([pathlib.Path(folder)], dict(os.environ)))

    def test_programs_take_the_library_that_remembers(self):
        with tempfile.TemporaryDirectory() as folder:
            build = pathlib.Path(folder)
            for name in ("tests/nvrtc_memo/libnvrtc_memo.so", "libnvrtc.so.13"):
                (build / name).parent.mkdir(parents=True, exist_ok=True)
                (build / name).write_bytes(b"1234")
            tool = build / "tools/sparsekiln"
            tool.parent.mkdir()
            tool.write_text(f"#!/bin/sh\necho '{json.dumps({'nvrtc': {'path': f'{folder}/libnvrtc.so.13'}})}'\n")
            tool.chmod(0o755)
            compiler = memory.Compiler.of([build / "none", build], dict(os.environ))
            self.assertEqual(compiler.said, f"{folder}/libnvrtc.so.13 4")
            variables = compiler.remembering(build / "memo")
            self.assertEqual(variables["SPARSEKILN_NVRTC"], str((build / "tests/nvrtc_memo/libnvrtc_memo.so").resolve()))
            self.assertEqual(variables["SPARSEKILN_MEMO"], f"{folder}/memo")
            self.assertTrue((build / "memo").is_dir())
            self.assertEqual(compiler.remembering(tool / "memo"), {})


if __name__ == "__main__":
    unittest.main()
