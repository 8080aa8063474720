"""NVIDIA's assembler accepts every kernel of the case files.

This needs ptxas: in CUDA_HOME, on the path, or in the usual folder.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest


def find_ptxas():
    folders = [f"{os.environ[name]}/bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    return shutil.which("ptxas", path=os.pathsep.join([*folders, os.environ.get("PATH", ""), "/usr/local/cuda/bin"]))


def join(modules):
    """One text of many modules that declare nothing next to their entry; None if they declare something."""
    head, bodies = None, []
    for number, module in enumerate(modules):
        head, body = module.split(".address_size 64\n", 1)
        if not body.startswith(".visible"):
            return None
        bodies.append(body.replace(" conformance(", f" conformance_{number}(", 1))
    return head[head.index(".version") :] + ".address_size 64\n" + "\n".join(bodies)


class Cases(unittest.TestCase):
    def test_every_file_that_is_written_by_hand_is_run(self):
        by_hand = {file.name for file in (pathlib.Path(__file__).resolve().parent / "cases").iterdir()}
        self.assertLessEqual(by_hand, {file.name for file in pathlib.Path(os.environ["TEST_CASES"]).iterdir()})

    @unittest.skipUnless(find_ptxas(), "no ptxas here")
    def test_every_kernel_assembles_for_its_own_architecture_and_for_sm_90(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            program = os.environ["TEST_CONFORMANCE"]
            subprocess.run([program, "--cases", os.environ["TEST_CASES"], "--write-ptx", folder], check=True)
            jobs = []
            for own in sorted(folder.iterdir()):
                files = sorted(own.glob("*.ptx"))
                apart = [file for file in files if join([file.read_text()]) is None]
                together = [file.read_text() for file in files if file not in apart]
                if together:
                    apart.append(folder / f"{own.name}.ptx")
                    apart[-1].write_text(join(together))
                jobs += [(file, target) for file in apart for target in self.targets(own.name)]
            self.assertGreater(len(jobs), 20)
            with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                failures = list(filter(None, pool.map(lambda job: self.assemble(*job), jobs)))
        self.assertEqual(failures, [])

    @staticmethod
    def targets(own):
        """What kernels for an architecture run on: sm_90a has no successor."""
        return {own} if own.endswith("a") else {own, "sm_90"}

    @staticmethod
    def assemble(file, target):
        """What ptxas complains of, with the case and the line; empty where it does not."""
        command = [find_ptxas(), "-O0", "--gpu-name", target, str(file), "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return ""
        complaint = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
        found = re.search(r"line (\d+)", complaint)
        lines = file.read_text().splitlines()
        before = lines[: int(found.group(1))] if found else []
        case = next((line for line in reversed(before) if line.startswith("// ")), file.name)
        return f"{target}, {case}: {before[-1] if before else ''}: {complaint}"


if __name__ == "__main__":
    unittest.main()
