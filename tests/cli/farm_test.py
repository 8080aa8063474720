"""Precompiling and tuning in parts: together they are what one machine makes, byte for byte."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import unittest

from command import CommandTest, compilable_targets

_CUDA = "sm_90" in compilable_targets()
_ARCHS = ["sm_80", "sm_90"] if _CUDA else ["x86-64-v3:1", "x86-64-v3:2"]
_SCRIPT = pathlib.Path(__file__).parents[2] / "examples" / "farm" / "parallel.sh"


class FarmTest(CommandTest):
    def setUp(self):
        super().setUp()
        for seed in (1, 2):
            self.make("random", "--size", 4, "--density", 0.5, "--seed", seed, file=f"L{seed}.npy")
        jobs = [
            {"layouts": ["L1.npy", "L2.npy"], "operations": ["forward", "grad_input"], "blocks": ["16"], "batches": [8, 64], "dtypes": ["f32"]},
            {"layouts": ["L2.npy"], "blocks": ["16"], "batches": [64], "dtypes": ["f32"]},  # again
        ]  # fmt: skip
        self.write("jobs.json", json.dumps({"archs": _ARCHS, "jobs": jobs}))

    def sha256(self, file: str) -> str:
        return hashlib.sha256((self.folder / file).read_bytes()).hexdigest()

    def store(self, name: object) -> dict[str, str]:
        return {"SPARSEKILN_CACHE_DIR": str(self.folder.parent / f"store-{name}")}

    def test_the_parts_of_any_number_of_machines_make_the_pack_of_one(self):
        whole = self.answer("precompile", "jobs.json", "-o", "whole.pack", **self.store("whole"))
        self.assertEqual(whole["kernels"], 16)  # of 18 jobs
        for machines in (2, 3, 20):  # of the last, two have nothing to do
            parts = [f"{machines}-{i}.pack" for i in range(machines)]
            made = [
                self.answer("precompile", "jobs.json", "--shard", f"{i}/{machines}", "-o", part, **self.store(f"{machines}-{i}"))["kernels"]
                for i, part in enumerate(parts)
            ]  # fmt: skip
            self.assertIn(sum(made), (16, 17, 18))  # what is twice in the list may be in two parts
            self.assertLessEqual(max(made), -(-18 // machines))
            self.answer("pack", "merge", *parts, "-o", "merged.pack")
            self.assertEqual(self.sha256("merged.pack"), self.sha256("whole.pack"))

    def test_what_a_machine_has_tuned_moves_no_job_to_another_machine(self):
        self.answer("tune", "L2.npy", "--block", 16, "--batch", 8, "--dtype", "f32", "--target", _ARCHS[1], "--budget", "1ms", **self.store(1))
        made = [self.answer("precompile", "jobs.json", "--shard", f"{i}/2", "-o", f"{i}.pack", **self.store(i)) for i in range(2)]
        self.assertEqual([one["kernels"] for one in made], [8, 8])

    @unittest.skipUnless(shutil.which("parallel"), "there is no GNU parallel")
    def test_the_example_for_gnu_parallel_makes_it_too(self):
        self.answer("precompile", "jobs.json", "-o", "whole.pack", **self.store("whole"))
        path = f"{pathlib.Path(self.tool).resolve().parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [_SCRIPT, "jobs.json", "farm.pack", "3"], cwd=self.folder, env={**os.environ, "PATH": path}, capture_output=True, timeout=200
        )
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertEqual(self.sha256("farm.pack"), self.sha256("whole.pack"))

    @unittest.skipUnless(_CUDA, "times of an architecture are the model's, and need NVRTC")
    def test_records_of_parts_are_those_of_one_machine(self):
        def tuned(store: dict[str, str], *shard: str) -> None:
            self.answer("tune", "jobs.json", "--target", "sm_90", "--budget", "1ms", *shard, **store)

        tuned(self.store("whole"))
        for i in range(3):
            tuned(self.store(i), "--shard", f"{i}/3")
            self.answer("records", "export", f"{i}.jsonl", **self.store(i))
        joined = [json.loads(line) for i in range(3) for line in (self.folder / f"{i}.jsonl").read_text().splitlines()]
        self.assertEqual(len(joined), 8)
        for i in range(3):
            self.answer("records", "import", f"{i}.jsonl", **self.store("joined"))
        self.answer("records", "export", "whole.jsonl", **self.store("whole"))
        self.answer("records", "export", "joined.jsonl", **self.store("joined"))
        whole, other = (self.records(f"{name}.jsonl") for name in ("whole", "joined"))
        self.assertEqual(whole, other)

    def records(self, file: str) -> list[dict]:
        """By problem, without how long tuning took."""
        records = [json.loads(line) for line in (self.folder / file).read_text().splitlines()]
        for record in records:
            del record["seconds"]
            for contest in record["contests"]:
                for candidate in contest["candidates"]:
                    candidate.pop("compile_ms", None)
        return sorted(records, key=lambda record: json.dumps(record["problem"], sort_keys=True))

    def test_a_shard_that_makes_no_sense_is_refused(self):
        self.assert_refused(2, ["precompile", "--from-store", "--shard", "0/2", "-o", "x.pack"], ["--from-store"])
        self.assert_refused(2, ["tune", "--from-store", "--shard", "0/2"], ["--from-store"])
        for shard in ("", "8/8", "1", "/2", "-1/2", "1/0", "1/2/3", "a/b"):
            given = [f"--shard={shard}"] if shard else ["--shard", ""]
            self.assert_refused(2, ["precompile", "jobs.json", "-o", "x.pack", *given], ["--shard", "I/N"])


if __name__ == "__main__":
    unittest.main()
