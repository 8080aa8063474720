"""The GPU suite's driver, with scripts instead of a GPU and a test program: it resumes, and counts only what has run."""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

_HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parent.parent / "bench")]

import gpu_results  # noqa: E402
from claims import Claims  # noqa: E402

_FIELDS = (
    "name driver_version compute_cap clocks.sm clocks.mem clocks.max.sm clocks.max.mem clocks.applications.graphics "
    "power.limit temperature.gpu ecc.mode.current memory.total"
)
_VALUES = "Test_GPU 580.95 9.0 1980 2619 1980 2619 1980 700.00 30 Enabled 81559"
# Two cards, of which doctor's is nvidia-smi's second; one field that it does not know makes the whole query fail.
_SMI = f"""#!/usr/bin/env python3
import os, sys
values = dict(zip("{_FIELDS}".split(), "{_VALUES}".split()))
arguments = dict(argument.lstrip("-").split("=", 1) for argument in sys.argv[1:])
if arguments["id"] != "0000:b3:00.0":
    print("the other card, " + ", ".join(["1"] * (len(arguments["query-gpu"].split(",")) - 1)))
    sys.exit()
for field in arguments["query-gpu"].split(","):
    if field == os.environ.get("SMI_KNOWS_NO"):
        print(f'Field "{{field}}" is not a valid field to query.')
        sys.exit(2)
print(", ".join(values[field] for field in arguments["query-gpu"].split(",")))
"""
_DOCTOR = """#!/bin/sh
echo '{"cuda_driver": {"found": true, "cuda_version": 13000, "devices": [{"name": "Test GPU", "pci_bus_id": "0000:b3:00.0"}]}}'
"""
# A program like test_kernels that shares the suite: cases "one" and "table" with three parts. The file `orders` says what
# it does at each name.
_PROGRAM = """#!/usr/bin/env python3
import fcntl, json, os, signal, sys, time
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert options["--target"] == "cuda" and os.path.isdir(options["--store"])
orders = json.load(open("orders"))
claims = open(options["--claims"], "a+")

def append(**line):
    claims.write(json.dumps(line) + "\\n")
    claims.flush()

def claim(name):
    fcntl.flock(claims, fcntl.LOCK_EX)
    claims.seek(0)
    lines = [json.loads(line) for line in claims]
    free = all(name not in (line.get("begin"), line.get("end")) for line in lines) and time.time() < float(options["--until"])
    if free:
        append(begin=name, what="what it is", worker=os.getpid(), at=time.time())
    fcntl.flock(claims, fcntl.LOCK_UN)
    return free

append(planned="one", parts=1)
append(planned="table", parts=3)
open("workers", "a").write("x")
for name in ("compile table #0", "table #0", "table #1", "table #2", "one"):
    if not claim(name):
        continue
    open("ran", "a").write(name + "\\n")
    order = orders.get(name, "")
    if order == "crash":
        print("something went wrong", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if order == "sleep":
        time.sleep(60)
    append(end=name, ok=order != "fail" and order != "lose", failure=order, seconds=1, worker=os.getpid())
    if order == "lose":
        os._exit(86)
"""


class Suite(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("bin/nvidia-smi", _SMI)
        self.write("build/tools/sparsekiln", _DOCTOR)
        self.write("build/tests/kernels/test_kernels", _PROGRAM)
        (self.folder / "build" / "COMMIT").write_text("abc\n")

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def run_suite(self, orders=(), arguments=("--workers", "1"), seconds=180, **environment):
        """Exit status, the last line, and what was run. `seconds` is what a part may take."""
        main = f"import sys, suite; suite._SECONDS = {seconds}; sys.exit(suite.main())"
        (self.folder / "ran").write_text("")
        (self.folder / "orders").write_text(json.dumps(dict(orders)))
        done = subprocess.run(
            [sys.executable, "-c", main, "--build", "build", "--out", "out", *arguments],
            cwd=self.folder, capture_output=True, text=True,
            env=dict(
                os.environ, PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}", TMPDIR=str(self.folder),
                PYTHONPATH=str(_HERE), **environment,
            ),
        )  # fmt: skip
        self.said = done.stdout + done.stderr
        lines = done.stdout.splitlines()
        return done.returncode, lines[-1] if lines else "", (self.folder / "ran").read_text().splitlines()

    def part(self, name):
        return json.loads((self.folder / "out" / "test.json").read_text())["parts"][name]

    def test_writes_what_ran_where_and_of_which_commit(self):
        status, last, ran = self.run_suite()
        self.assertEqual((status, last), (0, "4 passed, 0 failed"), self.said)
        self.assertEqual(ran, ["compile table #0", "table #0", "table #1", "table #2", "one"])
        document = json.loads((self.folder / "out" / "test.json").read_text())
        self.assertEqual((document["commit"], document["passed"], document["failed"]), ("abc", 4, 0))
        self.assertEqual(document["device"]["name"], "Test_GPU")
        self.assertEqual((document["device"]["clocks.sm"], document["device"]["driver_version"]), ("1980", "580.95"))
        self.assertEqual(document["doctor"]["cuda_driver"]["cuda_version"], 13000)
        self.assertNotIn("unanswered", document["device"])

    def test_leaves_one_archive_with_all_of_it(self):
        self.run_suite()
        (archive,) = (self.folder / "out").glob("*.tar.gz")
        self.assertEqual(archive.name, "gpu-Test-GPU-abc.tar.gz")
        with tarfile.open(archive) as tar:
            names = [pathlib.Path(name).name for name in tar.getnames()]
            log = tar.extractfile(tar.getnames()[1]).read().decode()
        self.assertEqual(names, ["test.json", "test.log", "test.claims"])
        self.assertTrue(log.endswith("4 passed, 0 failed\n"))

    def test_an_archive_that_is_too_large_has_the_end_of_the_log(self):
        bytes_that_do_not_pack = os.urandom(300_000).hex()
        (self.folder / "out").mkdir()
        (self.folder / "out" / "first").write_text("{}")
        (self.folder / "out" / "a.log").write_text(bytes_that_do_not_pack + "the end")
        archive = self.folder / "out" / "some.tar.gz"
        gpu_results.bundle(archive, [self.folder / "out" / "first", self.folder / "out" / "a.log"], kept=1000)
        with tarfile.open(archive) as tar:
            self.assertEqual([entry.size for entry in tar], [2, 1000])
            self.assertTrue(tar.extractfile("some/a.log").read().endswith(b"the end"))

    def test_a_part_that_crashes_its_process_fails_with_its_name_and_the_rest_runs(self):
        self.assertEqual(self.run_suite({"table #1": "crash"})[:2], (1, "3 passed, 1 failed"), self.said)
        ((name, failure),) = self.part("table")["failures"].items()
        self.assertEqual(name, "table #1: what it is")
        self.assertIn("crashed: SIGSEGV\nsomething went wrong", failure)

    def test_a_compile_that_crashes_fails_its_part(self):
        status, last, ran = self.run_suite({"compile table #0": "crash"})
        self.assertEqual((status, last), (1, "3 passed, 1 failed"), self.said)
        self.assertNotIn("table #0", ran)
        self.assertIn("compiling: crashed", self.part("table")["failures"]["table #0: what it is"])

    def test_a_process_that_loses_its_context_fails_one_part_and_another_goes_on(self):
        (self.folder / "workers").write_text("")
        self.assertEqual(self.run_suite({"table #0": "lose"})[:2], (1, "3 passed, 1 failed"), self.said)
        self.assertEqual((self.folder / "workers").read_text(), "xx")

    def test_a_part_that_hangs_fails_and_another_process_goes_on(self):
        self.assertEqual(self.run_suite({"table #1": "sleep"}, seconds=2)[:2], (1, "3 passed, 1 failed"), self.said)
        self.assertIn("ran longer than 2 s", self.part("table")["failures"]["table #1: what it is"])

    def test_what_time_does_not_allow_is_left_to_the_next_call(self):
        status, last, _ = self.run_suite({"table #2": "sleep"}, ("--workers", "1", "--minutes", "0.05"))
        self.assertEqual((status, last), (3, "2 passed, 0 failed, 2 not reached: call it again"), self.said)
        self.assertEqual((self.part("table")["passed"], self.part("table")["not_reached"]), (2, 1))
        status, last, ran = self.run_suite()
        self.assertEqual((status, last, ran), (0, "4 passed, 0 failed", ["compile table #0", "table #2", "one"]))

    def test_processes_share_the_parts(self):
        status, last, ran = self.run_suite(arguments=("--workers", "3"))
        self.assertEqual((status, last, len(ran)), (0, "4 passed, 0 failed", 5), self.said)

    def test_a_program_that_does_not_start_is_a_failure(self):
        self.write("build/tests/kernels/test_kernels", "#!/bin/sh\necho no driver\nexit 1\n")
        self.assertEqual(self.run_suite()[0], 1)
        self.assertIn("a process that had begun nothing ended with status 1\nno driver", self.said)

    def test_a_field_that_nvidia_smi_does_not_know_is_said_and_takes_no_other_with_it(self):
        self.run_suite(SMI_KNOWS_NO="clocks.applications.graphics")
        device = json.loads((self.folder / "out" / "test.json").read_text())["device"]
        self.assertEqual((device["clocks.sm"], device["memory.total"]), ("1980", "81559"))
        self.assertEqual(list(device["unanswered"]), ["clocks.applications.graphics"])
        self.assertIn("not a valid field", device["unanswered"]["clocks.applications.graphics"])
        self.assertIn("not recorded, clocks.applications.graphics: nvidia-smi: Field", self.said)

    def test_without_nvidia_smi_the_device_is_what_doctor_says(self):
        self.write("bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
        self.assertEqual(self.run_suite()[:2], (0, "4 passed, 0 failed"))
        device = json.loads((self.folder / "out" / "test.json").read_text())["device"]
        self.assertEqual((device["name"], device["driver_version"]), ("Test GPU", "CUDA 13.0"))
        self.assertIn("clocks.sm", device["unanswered"])

    def test_runs_only_what_failed_again(self):
        self.assertEqual(self.run_suite({"one": "fail"})[:2], (1, "3 passed, 1 failed"))
        self.assertEqual(self.run_suite(), (0, "4 passed, 0 failed", ["compile table #0", "one"]))

    def test_takes_nothing_over_from_another_program(self):
        self.run_suite()
        self.write("build/tests/kernels/test_kernels", _PROGRAM + "# rebuilt\n")
        self.assertEqual(len(self.run_suite()[2]), 5)

    def test_survives_a_damaged_result_file(self):
        self.write("out/test.json", "{")
        self.assertEqual(self.run_suite()[:2], (0, "4 passed, 0 failed"))

    def test_what_failed_runs_again_only_when_nothing_is_left(self):
        failing = {"compile table #0": "crash", "table #1": "fail", "table #2": "sleep"}
        status, last, _ = self.run_suite(failing, ("--workers", "1", "--minutes", "0.05"))
        self.assertEqual((status, last), (1, "0 passed, 2 failed, 2 not reached: call it again"), self.said)
        self.assertEqual(self.run_suite(), (1, "2 passed, 2 failed", ["table #2", "one"]))
        self.assertIn("compiling: crashed", self.part("table")["failures"]["table #0: what it is"])
        self.assertEqual(self.run_suite(), (0, "4 passed, 0 failed", ["compile table #0", "table #0", "table #1"]))

    def test_a_part_that_failed_stays_failed_though_another_process_ends_it_well(self):
        claims = Claims(self.folder / "claims")
        begun = [
            {"begin": "compile table #0", "what": "what it is", "worker": 1, "at": 0},
            {"begin": "table #0", "what": "what it is", "worker": 2, "at": 0},
        ]
        claims.path.write_text("".join(json.dumps(line) + "\n" for line in begun))
        claims.look()
        claims.fail(begun[0], "crashed")
        self.assertEqual(claims.of_worker(2), [begun[1]])
        with claims.path.open("a") as file:
            file.write(json.dumps({"end": "table #0", "ok": True, "worker": 2}) + "\n")
        claims.look()
        self.assertEqual((claims.totals[:2], claims.of_worker(2)), ((0, 1), []))


if __name__ == "__main__":
    unittest.main()
