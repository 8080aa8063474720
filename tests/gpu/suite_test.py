"""The GPU suite's driver, with a GPU and a doctest program that are scripts: it resumes, and believes nothing unproven."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

_HERE = pathlib.Path(__file__).resolve().parent
_FIELDS = (
    "name driver_version compute_cap clocks.sm clocks.mem clocks.max.sm clocks.max.mem clocks.applications.graphics "
    "power.limit temperature.gpu ecc.mode.current memory.total"
)
_VALUES = "Test_GPU 580.95 9.0 1980 2619 1980 2619 1980 700.00 30 Enabled 81559"
# Two cards, of which doctor's is nvidia-smi's second; a field that it does not know spoils the whole query.
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
_PROGRAM = """#!/usr/bin/env python3
import os, sys
assert sys.argv[1:3] == ["--target", "cuda"]
if "--list-test-cases" in sys.argv:
    rule = "=" * 79
    print("[doctest] listing all test case names", rule, "one, with a comma", "two", rule, sep="\\n")
    sys.exit()
case = sys.argv[3].removeprefix("--test-case=")
open("ran", "a").write(case + "\\n")
if case == "two" and os.path.exists("broken"):
    print("two is wrong")
    os.abort()
print("[doctest] test cases: 1 | 1 passed | 0 failed | 1 skipped")
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

    def run_suite(self, **environment):
        (self.folder / "ran").write_text("")
        done = subprocess.run(
            [sys.executable, _HERE / "suite.py", "--build", "build", "--out", "out"],
            cwd=self.folder, capture_output=True, text=True,
            env=dict(os.environ, PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}", **environment),
        )  # fmt: skip
        ran = (self.folder / "ran").read_text().splitlines()
        self.said = done.stderr
        return done.returncode, done.stdout.splitlines()[-1], ran

    def test_writes_what_ran_where_and_of_which_commit(self):
        self.assertEqual(self.run_suite(), (0, "2 passed, 0 failed", ["one\\, with a comma", "two"]))
        document = json.loads((self.folder / "out" / "test.json").read_text())
        self.assertEqual((document["commit"], document["passed"], document["failed"]), ("abc", 2, 0))
        self.assertEqual(document["device"]["name"], "Test_GPU")
        self.assertEqual((document["device"]["clocks.sm"], document["device"]["driver_version"]), ("1980", "580.95"))
        self.assertNotIn("unanswered", document["device"])

    def test_a_field_that_nvidia_smi_does_not_know_is_said_and_takes_no_other_with_it(self):
        self.run_suite(SMI_KNOWS_NO="clocks.applications.graphics")
        device = json.loads((self.folder / "out" / "test.json").read_text())["device"]
        self.assertEqual((device["clocks.sm"], device["memory.total"]), ("1980", "81559"))
        self.assertEqual(list(device["unanswered"]), ["clocks.applications.graphics"])
        self.assertIn("not a valid field", device["unanswered"]["clocks.applications.graphics"])
        self.assertIn("not recorded, clocks.applications.graphics: nvidia-smi: Field", self.said)

    def test_without_nvidia_smi_the_device_is_what_doctor_says(self):
        self.write("bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
        self.assertEqual(self.run_suite()[:2], (0, "2 passed, 0 failed"))
        device = json.loads((self.folder / "out" / "test.json").read_text())["device"]
        self.assertEqual((device["name"], device["driver_version"]), ("Test GPU", "CUDA 13.0"))
        self.assertIn("clocks.sm", device["unanswered"])

    def test_runs_only_what_failed_again(self):
        (self.folder / "broken").touch()
        self.assertEqual(self.run_suite()[:2], (1, "1 passed, 1 failed"))
        (self.folder / "broken").unlink()
        self.assertEqual(self.run_suite(), (0, "2 passed, 0 failed", ["two"]))

    def test_takes_nothing_over_from_another_program(self):
        self.run_suite()
        self.write("build/tests/kernels/test_kernels", _PROGRAM + "# rebuilt\n")
        self.assertEqual(len(self.run_suite()[2]), 2)

    def test_survives_a_damaged_result_file(self):
        self.write("out/test.json", "{")
        self.assertEqual(self.run_suite()[:2], (0, "2 passed, 0 failed"))


if __name__ == "__main__":
    unittest.main()
