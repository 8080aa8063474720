"""`sparsekiln tune`: what it says, and what is left of it when it is stopped, killed or run twelve times at once."""

import json
import os
import pathlib
import random
import signal
import subprocess
import time
import unittest

from command import CommandTest, compilable_targets

_TOOL = str(pathlib.Path(os.environ.get("SPARSEKILN_TOOL", "build/tools/sparsekiln")).resolve())
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
_CUDA = "sm_90" in compilable_targets()
_CPU = "cpu" in compilable_targets()
_PROCESSES = 12  # that tune the same at once
_KILLS = 10


class TuneTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.make("random", "--size", 8, "--density", 0.4, "--seed", 3)

    def tune(self, *arguments: object, **environment: str) -> dict:
        """The only problem of a run that succeeds."""
        answer = self.answer("tune", *arguments, **environment)
        self.assertEqual(len(answer["problems"]), 1)
        return answer["problems"][0]

    def begin(self, *arguments: object) -> subprocess.Popen:
        process = subprocess.Popen(
            [_TOOL, "tune", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env={**os.environ, "SPARSEKILN_CACHE_DIR": str(self.cache)},
        )
        self.addCleanup(self.end, process)
        return process

    def end(self, process: subprocess.Popen) -> None:
        if process.poll() is None:
            process.kill()
        process.communicate()

    def journal(self) -> list[str]:
        """Its whole lines; none where there is no journal."""
        files = list(self.cache.glob("*/*.journal"))
        self.assertLessEqual(len(files), 1)
        if not files:
            return []
        return files[0].read_bytes().decode().split("\n")[:-1]

    def records(self) -> list[dict]:
        self.succeed("records", "export", "all.jsonl")
        return [json.loads(line) for line in (self.folder / "all.jsonl").read_text().splitlines()]

    def wait_for_samples(self, process: subprocess.Popen) -> None:
        until = time.monotonic() + 60
        while samples_noted(self.journal()) < 20:
            self.assertLess(time.monotonic(), until)
            self.assertIsNone(process.poll(), "it ended by itself")
            time.sleep(0.02)


def samples_noted(lines: list[str]) -> int:
    return sum('"sample_us":' in line or '"final_us":' in line for line in lines if '"candidate":' not in line)


def samples_kept(record: dict) -> int:
    return sum(
        len(candidate["samples_us"]) + len(candidate["final_us"])
        for contest in record["contests"]
        for candidate in contest["candidates"]
    )


@unittest.skipUnless(_CPU, "built without the cpu target")
class CpuTest(TuneTest):
    request = ("L.npy", "--block", 8, "--batch", 16, "--target", "cpu")

    def compiled(self) -> str:
        """The config that `compile` chooses."""
        return self.answer("compile", *self.request)["config"].removeprefix("16: ")

    def test_a_layer_is_tuned_and_compile_takes_what_won(self):
        found = self.tune(*self.request, "--budget", "1s")
        for part in ("best", "default"):
            self.assertIs(found[part]["measured"], True)
            self.assertGreater(found[part]["median_us"], 0)
            self.assertLessEqual(found[part]["p20_us"], found[part]["p80_us"])
        self.assertLessEqual(found["best"]["median_us"], found["default"]["median_us"] * 1.02)
        self.assertGreater(found["candidates"]["tried"], 0)
        self.assertEqual(found["candidates"]["failed"], 0)
        self.assertGreater(found["floor_us"], 0)
        self.assertIs(found["peak"]["measured"], True)
        self.assertEqual(self.compiled(), found["best"]["config"])

    def test_people_are_told_the_best_the_default_and_what_became_of_the_candidates(self):
        result = self.succeed("tune", *self.request, "--budget", "1s")
        for part in ("best ", "default ", "measured", "tried", "pruned", "untried", "vector tile_n="):
            self.assertIn(part, result.out)
        self.assertEqual(result.err, "", "no bar where there is no terminal")

    def test_the_space_is_listed_with_the_reason_of_each_config_that_cannot_serve(self):
        text = self.succeed("tune", *self.request, "--space").out
        found = self.tune(*self.request, "--space")
        self.assertGreater(len(found["configs"]), 20)
        self.assertGreater(len(found["rejected"]), 10)
        for one in found["rejected"]:
            self.assertTrue(one["reason"])
            self.assertNotIn(one["config"], found["configs"])
        self.assertEqual(text.count("\n  no: "), len(found["rejected"]))
        self.assertIn(f"{len(found['configs'])} configs, {len(found['rejected'])} rejected", text)
        self.assertEqual(list(self.cache.glob("*/*")), [], "nothing is tuned")

    def test_the_model_alone_compiles_nothing_and_measures_nothing(self):
        found = self.tune(*self.request, "--model")
        self.assertEqual(found["candidates"]["tried"], 0)
        self.assertGreater(found["candidates"]["untried"], 20)
        self.assertEqual(list(self.cache.glob("*/*.entry")), [])
        self.assertEqual(self.compiled(), found["default"]["config"])

    def test_the_model_says_how_long_its_first_choice_and_the_default_take_and_what_bounds_them(self):
        found = self.tune(*self.request, "--model")
        model = found["model"]
        self.assertEqual(model["default"]["config"], found["default"]["config"])
        self.assertLessEqual(found["floor_us"], model["first"]["predicted_us"])
        self.assertLessEqual(model["first"]["predicted_us"], model["default"]["predicted_us"])
        text = self.succeed("tune", *self.request, "--model").out
        for which in ("default", "first"):
            self.assertIn(model[which]["bound"], ("memory", "cache", "arithmetic", "instructions", "latency"))
            self.assertIn(f"bound by {model[which]['bound']}: {model[which]['config']}", text)

    def test_the_model_alone_prices_every_job_of_a_file(self):
        jobs = {"jobs": [{"layouts": ["L.npy"], "blocks": ["8", "16"], "batches": list(range(1, 51))}]}
        self.write("jobs.json", json.dumps(jobs))
        for target in ("cpu", "sm_90"):
            problems = self.answer("tune", "jobs.json", "--target", target, "--model")["problems"]
            self.assertEqual(len(problems), 100)

    def test_every_job_of_a_file_is_tuned(self):
        self.write(
            "jobs.json",
            json.dumps({"jobs": [{"layouts": ["L.npy"], "blocks": ["8"], "batches": [1, 8], "dtypes": ["f32", "bf16"]}]}),
        )
        answer = self.answer("tune", "jobs.json", "--target", "cpu", "--budget", "300ms")
        asked = {(one["problem"]["batch"], one["problem"]["dtype"]) for one in answer["problems"]}
        self.assertEqual(asked, {("1", "f32"), ("8", "f32"), ("1", "bf16"), ("8", "bf16")})
        for one in answer["problems"]:
            self.assertIs(one["best"]["measured"], True)
        self.assertEqual(len(self.records()), 4)

    def test_what_makes_no_sense_is_refused(self):
        for budget in ("3x", "0", "-1s", "s", "nan", "1e400", "infs"):
            with self.subTest(budget):
                self.assert_refused(2, ["tune", *self.request, f"--budget={budget}"], ["--budget"])
        self.assert_refused(2, ["tune", "--target", "cpu"], ["--from-store"])
        self.assert_refused(2, ["tune", "L.npy", "--batch", 0, "--target", "cpu", "--block", 8], ["batch of 0"])
        self.assert_refused(2, ["tune", "L.npy", "--config", "vector tile_n=16", "--target", "cpu"], ["config"])

    def test_a_kill_at_any_time_loses_no_sample_that_was_noted(self):
        chance = random.Random(7)
        before: list[str] = []
        for kill in range(_KILLS):
            process = self.begin(*self.request, "--budget", "60s")
            if kill == _KILLS - 1 and samples_noted(before) == 0:
                self.wait_for_samples(process)  # on a slow machine
            time.sleep(chance.uniform(0.05, 0.8) + 0.2 * kill)
            if process.poll() is not None:
                break  # it was done
            process.kill()
            process.wait()
            lines = self.journal()
            self.assertEqual(lines[: len(before)], before)
            before = lines
        self.assertGreater(samples_noted(before), 0)
        found = self.tune(*self.request, "--budget", "1s")
        self.assertIs(found["best"]["measured"], True)
        (record,) = self.records()
        self.assertGreaterEqual(samples_kept(record), samples_noted(before))
        kept = {
            (contest["n"], candidate["config"], us)
            for contest in record["contests"]
            for candidate in contest["candidates"]
            for us in candidate["samples_us"] + candidate["final_us"]
        }
        for event in map(json.loads, before[1:]):
            if us := event.get("sample_us", event.get("final_us")):
                self.assertIn((event["n"], event["config"], us), kept)
        self.assertEqual(self.journal(), [])

    def test_ctrl_c_keeps_what_was_measured_and_the_same_command_goes_on(self):
        process = self.begin(*self.request, "--budget", "60s", "--json")
        self.wait_for_samples(process)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 1)
        self.assertIs(json.loads(out)["interrupted"], True)
        (record,) = self.records()
        before = samples_kept(record)
        self.assertGreaterEqual(before, 20)
        self.assertEqual(self.journal(), [])
        self.tune(*self.request, "--budget", "1s")
        (record,) = self.records()
        self.assertGreater(samples_kept(record), before)

    def test_processes_that_tune_the_same_at_once_end_with_the_same_winner_and_one_record(self):
        request = ("L.npy", "--block", 8, "--batch", 16, "--target", "cpu", "--budget", "4s", "--json")
        processes = [self.begin(*request) for _ in range(_PROCESSES)]
        answers = []
        for process in processes:
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, err)
            answers.append(json.loads(out)["problems"][0])
        self.assertEqual(len({json.dumps(answer["best"]) for answer in answers}), 1)
        self.assertEqual(len(self.records()), 1)
        self.assertEqual(self.compiled(), answers[0]["best"]["config"])


@unittest.skipUnless(_CUDA, "no NVRTC")
class CudaTest(TuneTest):
    def test_without_a_gpu_candidates_are_compiled_and_their_times_are_the_models(self):
        found = self.tune("L.npy", "--block", 16, "--batch", 8, "--dtype", "f16", "--target", "sm_90", "--budget", "1s", **_NO_GPU)
        self.assertIs(found["best"]["measured"], False)
        self.assertGreater(found["best"]["median_us"], 0)
        self.assertGreater(found["candidates"]["tried"], 0)
        self.assertEqual(found["candidates"]["failed"], 0)
        said = self.succeed(
            "tune", "L.npy", "--block", 16, "--batch", 8, "--dtype", "f16", "--target", "sm_90", "--budget", "500ms", **_NO_GPU
        ).out
        self.assertIn("modelled", said)
        self.assertNotIn("measured", said)

    @unittest.skipUnless("SPARSEKILN_EMULATOR" in os.environ, "no emulator")
    def test_on_an_emulated_device_candidates_are_checked_and_their_times_are_the_models(self):
        self.make("random", "--size", 2, "--density", 0.5, "--seed", 1, file="tiny.npy")
        found = self.tune("tiny.npy", "--block", 16, "--batch", 8, "--dtype", "f16", "--target", "emulated", "--budget", "3s")
        self.assertIs(found["best"]["measured"], False)
        self.assertGreater(found["candidates"]["tried"], 0)
        self.assertEqual(found["candidates"]["failed"], 0)
        self.assertIn("emulator", json.dumps(found["environment"]))


if __name__ == "__main__":
    unittest.main()
