"""`./dev gpu` as on a server: a tree with only what is copied there, an empty environment, and the emulator instead of the
driver. It is interrupted, continues, and survives a process that crashes.

Where the programs are from, server_tree.py says. TEST_EVERY selects a part of the suite and of the cases of portable ones (each
Nth).
"""

import csv
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(_ROOT / "tests" / "gpu")]

import portable  # noqa: E402
import server_tree  # noqa: E402

_MOST_BROUGHT_BACK = 10e6  # bytes
_SECONDS = 400


def every_without_refusals(cases):
    """The least step from 6 on through the families of cases that meets none with a case which the emulator refuses: as a
    driver for CUDA it cannot say that it may."""
    families = sorted(cases.glob("*.cases"))
    refuses = ["\nrefused " in family.read_text() for family in families]
    return str(next(step for step in range(6, len(families)) if not any(refuses[::step])))


# Runs what it is given, and has one metric of its first kernel, whose name is what a launch of the command would have.
_NCU = """import subprocess, sys
begin = next(i for i, word in enumerate(sys.argv) if word.endswith("/sparsekiln"))
done = subprocess.run(sys.argv[begin:], capture_output=True, text=True)
print(done.stdout)
columns = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
row = ["0", "1", "sparsekiln_forward_0", "(64, 1, 1)", "(8, 1, 1)", "GPU Speed Of Light Throughput", "Duration", "us", "5.5"]
for cells in (columns, row, [*row[:6], "", "", ""]):
    print(",".join(f'"{cell}"' for cell in cells))
sys.exit(done.returncode)
"""


class Rehearsal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="sparsekiln-rehearsal-")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.tree, cls.out = cls.folder / "tree", cls.folder / "results"
        server_tree.make(cls.tree)
        found = server_tree.nvrtc()
        if found is None:
            raise unittest.SkipTest("no NVRTC here")
        for name in ("home", "tmp"):
            (cls.folder / name).mkdir()
        cls.environment = {
            "PATH": "/usr/bin:/bin", "HOME": str(cls.folder / "home"), "TMPDIR": str(cls.folder / "tmp"),
            "SPARSEKILN_NVRTC": found, "SPARSEKILN_CUDA_DRIVER": str(cls.tree / "build-portable" / portable.EMULATOR),
            "SPARSEKILN_TEST_SEED": "1",
        }  # fmt: skip

    def start(self, *arguments):
        return subprocess.Popen(
            ["./dev", "gpu", *arguments, "--out", str(self.out)], cwd=self.tree, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def finish(self, process):
        """Exit status and the last line."""
        try:
            self.said, _ = process.communicate(timeout=_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        lines = self.said.splitlines()
        return process.returncode, lines[-1] if lines else ""

    def archive(self, verb):
        """The results of a verb in the one archive of all."""
        (archive,) = self.out.glob("*.tar.gz")
        self.assertLess(archive.stat().st_size, _MOST_BROUGHT_BACK)
        self.assertRegex(archive.name, r"^gpu-Sparsekiln-emulator-sm-90-.*\.tar\.gz$")
        with tarfile.open(archive) as tar:
            return json.load(tar.extractfile(next(name for name in tar.getnames() if name.endswith(f"/{verb}.json"))))

    def kept(self):
        """Names of what is in the archive."""
        (archive,) = self.out.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            return sorted(pathlib.PurePath(name).name for name in tar.getnames())

    def claims(self, key):
        """Lines of the file of claims that have a key, so far."""
        file = self.out / "test.claims"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in map(json.loads, filter(lambda line: line.endswith("}"), lines)) if key in line]

    def wait_for(self, found, process):
        end = time.monotonic() + _SECONDS
        while not (value := found()):
            self.assertIsNone(process.poll(), "it ended before it was to be interrupted")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        return value

    def open_compiles(self):
        ended = {line["end"] for line in self.claims("end")}
        return [line for line in self.claims("begin") if line["begin"].startswith("compile ") and line["begin"] not in ended]

    def test_what_is_carried_is_small(self):
        built = list((self.tree / "build-portable").rglob("*"))
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=_ROOT, capture_output=True, text=True)
        if tracked.returncode == 0:
            files = [*built, *(_ROOT / name for name in tracked.stdout.split("\0") if name)]
            self.assertLess(sum(file.stat().st_size for file in files if file.is_file()), server_tree.LARGEST)
        self.assertEqual([file for file in built if file.suffix in (".o", ".a", ".ninja", ".p") or file.is_symlink()], [])

    def test_the_suite_names_what_crashes_and_goes_on_where_it_was_killed(self):
        some = ("test", "--only", "random problems", "--every", "50", "--workers", "1")
        process = self.start(*some)
        crashed = self.wait_for(self.open_compiles, process)[0]
        os.kill(crashed["worker"], signal.SIGKILL)  # which no handler of the program can turn into another end
        name = crashed["begin"].removeprefix("compile ")
        (failed,) = self.wait_for(lambda: [line for line in self.claims("end") if line["end"] == name], process)
        self.assertFalse(failed["ok"])
        self.assertIn("crashed: SIGKILL", failed["failure"])
        self.assertTrue(failed["what"].startswith("SPARSEKILN_TEST_SEED=1, draw "))

        passed = self.wait_for(
            lambda: [line["end"] for line in self.claims("end") if line["ok"] and not line["end"].startswith("compile ")],
            process,
        )
        os.killpg(process.pid, signal.SIGKILL)
        self.finish(process)
        self.assertEqual(self.finish(self.start(*some))[0], 1, self.said)
        self.assertEqual([line["end"] for line in self.claims("end") if line["end"] == name and not line["ok"]], [name])
        self.assertNotIn(name, [line["begin"] for line in self.claims("begin")])  # not before all others were reached
        status, last = self.finish(self.start(*some))
        self.assertEqual(status, 0, self.said)
        self.assertTrue(set(passed) <= {line["end"] for line in self.claims("end")})
        self.assertEqual({line["begin"] for line in self.claims("begin")} & set(passed), set())  # none ran again
        results = self.archive("test")
        self.assertEqual((results["failed"], results["not_reached"]), (0, 0))
        self.assertEqual(last, f"{results['passed']} passed, 0 failed")
        self.assertGreater(results["passed"], 4)
        self.assertIn("found", results["doctor"]["nvrtc"])
        self.assertEqual(list((self.folder / "tmp").glob("sparsekiln-gpu-*")), [])  # nothing is left of what was compiled

    def test_conformance_leaves_its_answers_in_the_results(self):
        every = os.environ.get("TEST_EVERY") or every_without_refusals(self.tree / "build-portable" / portable.CASES)
        status, last = self.finish(self.start("conformance", "--every", every))
        self.assertEqual(status, 0, self.said)
        results = self.archive("conformance")
        self.assertEqual(last, f"{results['passed']} passed, 0 failed")
        self.assertEqual(len(results["answers"]["cases"]), results["passed"])

    def test_bench_measures_every_layer_and_names_what_it_is_not_compared_with(self):
        status, last = self.finish(self.start("bench", "--short"))
        self.assertEqual((status, last), (0, "2 passed, 0 failed"), self.said)
        self.assertIn("every peer: ", self.said)
        for part in self.archive("bench")["parts"].values():
            self.assertTrue(part["command"]["checked"] and part["command"]["timing"]["cold"])

    def test_tune_leaves_records_that_another_machine_takes(self):
        status, last = self.finish(self.start("tune", "--short"))
        self.assertEqual((status, last), (0, "1 passed, 0 failed"), self.said)
        self.assertIn("tune.log", self.kept())
        tool = self.tree / "build-portable" / "tools" / "sparsekiln"
        for name in ("records.jsonl", "shipped.jsonl"):
            store = dict(self.environment, SPARSEKILN_CACHE_DIR=str(self.folder / "elsewhere"))
            imported = subprocess.run([tool, "records", "import", self.out / name, "--json"], env=store, capture_output=True)
            self.assertTrue(json.loads(imported.stdout)["ok"], imported.stdout)

    def test_one_archive_has_what_all_verbs_left(self):
        ncu = self.folder / "bin" / "ncu"
        ncu.parent.mkdir(exist_ok=True)
        ncu.write_text(f"#!{sys.executable}\n{_NCU}")
        ncu.chmod(0o755)
        self.environment["PATH"] += f":{ncu.parent}"
        shutil.rmtree(self.out, ignore_errors=True)
        status, last = self.finish(self.start("bench", "layers", "profile", "tune", "--short"))
        self.assertEqual((status, last), (0, "1 passed, 0 failed"), self.said)
        names = [f"{verb}.{kind}" for verb in ("bench", "layers", "profile", "tune") for kind in ("json", "log")]
        self.assertEqual(self.kept(), sorted([*names, "profile.csv", "records.jsonl", "shipped.jsonl"]))
        self.assertIn("the driver is the emulator, which PyTorch does not use", self.said)
        with (self.out / "profile.csv").open(newline="") as file:
            (row,) = csv.DictReader(file)
        self.assertEqual((row["metric"], row["value"], row["unit"]), ("Duration", "5.5", "us"))
        self.assertIn("sparsekiln_forward", row["kernel"])

    @unittest.skipUnless(os.environ.get("TEST_EVERY"), "only by hand, on programs that are portable")
    def test_a_part_of_the_whole_suite(self):
        self.addCleanup(shutil.rmtree, self.out, ignore_errors=True)
        status, last = self.finish(self.start("test", "--every", os.environ["TEST_EVERY"]))
        print(self.said)
        self.assertIn(status, (0, 3), self.said)
        self.assertEqual(self.archive("test")["failed"], 0)


if __name__ == "__main__":
    unittest.main()
