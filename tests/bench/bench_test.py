"""Every program and script of bench/ works in its short form (--short), which takes seconds, and says something sensible.

One test for each, named for it. No test looks at how fast anything is.
"""

import importlib.util
import json
import math
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_BENCH = _ROOT / "bench"
sys.path[:0] = [str(_ROOT / "tests" / "cli"), str(_BENCH)]

import disassembly  # noqa: E402
from command import compilable_targets, runs_level  # noqa: E402
from documented import documented  # noqa: E402
from predicted_cases import PredictedCases  # noqa: E402
from sass_listing import LISTING, WGMMA_LISTING  # noqa: E402
from small_batch_cases import SmallBatchCases  # noqa: E402
from torch_call_cases import TorchCallCases  # noqa: E402

_BUILD = pathlib.Path(os.environ.get("SPARSEKILN_BUILD", _ROOT / "build"))
_BUILT = os.environ["SPARSEKILN_BENCHES"].split()  # programs that Meson found everything for
_EMULATOR = os.environ["SPARSEKILN_EMULATOR"]
_PYTHON_PACKAGE = os.environ["SPARSEKILN_PYTHON"]  # the folder that holds it; empty where it was not built
_SPARSITIES = (97, 90, 50)

needs_cpu = unittest.skipUnless("cpu" in compilable_targets(), "this build has no cpu target")
needs_nvrtc = unittest.skipUnless("sm_90" in compilable_targets(), "no NVRTC")


def programs() -> list[str]:
    """Files of bench/ that someone runs; the others are their parts."""
    mains = {".cpp": "int main(", ".py": "__main__"}
    return sorted(file.name for file in _BENCH.iterdir() if file.suffix in mains and mains[file.suffix] in file.read_text())


class Bench(PredictedCases, SmallBatchCases, TorchCallCases, unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="sparsekiln-bench-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def call(self, command: list, status: int = 0, **environment: str) -> subprocess.CompletedProcess:
        """Runs a command to the exit status that is expected, in a folder and with a store of its own."""
        kept = {"SPARSEKILN_CACHE_DIR": str(self.folder / "cache"), "TMPDIR": str(self.folder)}
        done = subprocess.run(
            list(map(str, command)), cwd=self.folder, env={**os.environ, **kept, **environment}, capture_output=True,
            text=True, timeout=300,
        )  # fmt: skip
        self.assertEqual(done.returncode, status, f"{shlex.join(map(str, command))}\n{done.stdout}{done.stderr}")
        return done

    def program(self, name: str) -> pathlib.Path:
        if name not in _BUILT:
            self.skipTest("not built: Google Benchmark, oneDNN or the cpu target is missing")
        return _BUILD / "bench" / name

    def assert_positive(self, value: float, what: str):
        self.assertTrue(math.isfinite(value) and value > 0, f"{what} is {value}")

    def measured(self, name: str, unit: str, *options: object, **environment: str) -> dict[str, dict]:
        """What a program on Google Benchmark reports, medians where it repeats; times positive, figures finite."""
        out = self.folder / f"{name}.json"
        formatted = (f"--benchmark_out={out}", "--benchmark_out_format=json")
        self.said = self.call([self.program(name), "--short", *options, *formatted], **environment).stdout
        rows = {}
        for row in json.loads(out.read_text())["benchmarks"]:
            if row["run_type"] == "aggregate" and row["aggregate_name"] != "median":
                continue
            rows[re.sub(r"/(iterations:\d+|repeats:\d+|threads:\d+|manual_time|real_time)", "", row["run_name"])] = row
            self.assertEqual(row["time_unit"], unit)
            self.assert_positive(row["real_time"], row["name"])
            for figure, value in row.items():
                self.assertTrue(isinstance(value, str | bool) or math.isfinite(value), f"{row['name']}: {figure} is {value}")
        return rows

    def script(self, name: str, *options: object, **environment: str) -> str:
        """What a script prints in its short form."""
        return self.call([sys.executable, _BENCH / name, *options, "--short"], **environment).stdout

    def written(self, name: str, *options: object) -> list[dict[str, str]]:
        """Runs a script as the documents show, and gives the rows of the tables that it writes."""
        (shown,) = (one for one in documented(name) if "--from" not in one)
        (document,) = (one for one in shown if one.endswith(".md"))
        return self.tables_in(
            document, lambda copy: self.script(name, *self.placed(shown, {"build": _BUILD, document: copy}), *options)
        )

    def with_torch(self) -> None:
        """For a script for PyTorch layers."""
        if not _PYTHON_PACKAGE:
            self.skipTest("the Python package was not built")
        if importlib.util.find_spec("torch") is None:
            self.skipTest("not installed: torch")
        os.environ["PYTHONPATH"] = _PYTHON_PACKAGE
        self.addCleanup(os.environ.pop, "PYTHONPATH")

    def written_with_torch(self, name: str) -> list[dict[str, str]]:
        """The rows of `written`, for a script for PyTorch layers."""
        self.with_torch()
        return self.written(name)

    def placed(self, arguments: list[str], places: dict) -> list[str]:
        return [str(places.get(argument, argument)) for argument in arguments]

    def tables_in(self, document: str, write) -> list[dict[str, str]]:
        """Has a copy of a document written to: only what lies between two marks may change. The rows of the tables there."""
        before = (_ROOT / document).read_text()
        copy = self.folder / pathlib.Path(document).name
        copy.write_text(before)
        write(copy)
        self.assertEqual((_ROOT / document).read_text(), before, "the document itself was written to")
        after = copy.read_text()
        parts, changed = (re.split(r"(<!-- .*? -->)", text) for text in (before, after))
        self.assertEqual(len(parts), len(changed))
        (place,) = (i for i, (one, other) in enumerate(zip(parts, changed)) if one != other)
        self.assertTrue(parts[place - 1].startswith("<!--") and parts[place + 1].startswith("<!--"))
        self.text = changed[place]
        self.assertNotRegex(self.text, r"\b(nan|inf|None)\b")
        rows, header = [], None
        for line in self.text.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not line.startswith("|"):
                header = None
            elif header is None:
                header = cells
            elif not set(line) <= set("|-"):
                self.assertEqual(len(cells), len(header), line)
                rows.append(dict(zip(header, cells)))
        return rows

    # ---- programs ----

    @needs_nvrtc
    def test_cache_speed(self):
        names = {"warm_build", "look_up", "reader_alone", "reader_while_trimming", "reader_held_up", "trim"}
        names |= {"warm_compile"} if "cpu" in compilable_targets() else set()
        (shown,) = documented("cache_speed")

        def write(copy):
            rows = self.measured("cache_speed", "ms", *self.placed(shown, {"docs/cache.md": copy}))
            self.assertEqual(set(rows), names)

        rows = self.tables_in("docs/cache.md", write)
        self.assertEqual(len(rows), len(names))
        for row in rows:
            self.assertRegex(row["median"], r"^[\d.e+-]+ ms$")
            self.assert_positive(float(row["median"].split()[0]), row["with 200 entries in the store"])

    @needs_nvrtc
    def test_compile_latency(self):
        in_this_one = self.measured("compile_latency", "ns", "--benchmark_filter=memory|launch|driver_call")
        self.assertEqual(list(in_this_one), ["memory", "launch", "driver_call", "launch_wgmma", "launch_mma"])
        (shown,) = documented("compile_latency")
        only = "--benchmark_filter=cold|pinned|any_batch|nvrtc|store|choice"
        of_a_layer = ("cold", "pinned", "any_batch", "nvrtc", "store", "any_batch_store", "choice")
        names = [f"{what}/{sparsity}" for sparsity in (99, 90, 50) for what in of_a_layer]

        def write(copy):
            rows = self.measured("compile_latency", "ms", *self.placed(shown, {"docs/scheduling.md": copy}), only)
            self.assertEqual(list(rows), [*names, "nvrtc/empty"])

        rows = self.tables_in("docs/scheduling.md", write)
        self.assertEqual(len(rows), len(of_a_layer))
        for row in rows:
            for sparsity in (99, 90, 50):
                self.assert_positive(float(row[f"{sparsity} % sparse"].removesuffix(" ms")), str(row))

    def test_cpu_backward(self):
        rows = self.measured("cpu_backward", "ms", "--dtype=bf16", "--threads=1", "--clock=cpu")
        shapes = [f"features:256/block:{block}/density:0.25/n:{n}" for block in (8, 32) for n in (1, 32)]
        self.assertEqual(list(rows), shapes)
        ratios = ["grad_input_vs_forward", "grad_weight_vs_forward"]
        for name, row in rows.items():
            for figure in ("forward", "grad_input", "grad_weight", *ratios):
                self.assert_positive(row[figure], f"{name}: {figure}")
        means = re.findall(r"^(\w+): geometric mean [\d.]+, worst [\d.]+ of 4 shapes$", self.said, re.M)
        self.assertEqual(means, ratios)

    def test_cpu_anatomy(self):
        """As the document shows, for the levels that this machine runs."""
        (shown,) = documented("cpu_anatomy")
        every = [target.partition(":")[0] for target in shown[0].removeprefix("--target=").split(",")]
        levels = [level for level in every if runs_level(level)] or self.skipTest(f"a machine that runs none of {every}")
        targets = f"--target={','.join(f'{level}:2' for level in levels)}"

        def write(copy):
            places = {shown[0]: targets, "docs/performance.md": copy}
            rows = self.measured("cpu_anatomy", "ms", *self.placed(shown, places))
            names = [f"anatomy/target:{level}/block:{block}/density:0.25/n:64" for level in levels for block in (8, 32)]
            self.assertEqual(list(rows), names)
            for name, row in rows.items():
                for figure in ("of_peak", "loop_memory", "loop_l3", "loop_l2", "loop_l1", "pack", "store"):
                    self.assert_positive(row[figure], f"{name}: {figure}")
                self.assertLess(row["wait"], 1)

        for row in self.tables_in("docs/performance.md", write):
            self.assert_positive(float(row["launch, % of peak"]), str(row))

    def test_cpu_balance(self):
        rows = self.written("cpu_balance.py")
        self.assertEqual([row["n"] for row in rows], ["32", "256", "2048"])
        for row in rows:
            self.assertEqual(float(row["1 threads"]), 1)
            self.assertTrue(all(1 <= float(row[f"{threads} threads"]) < 1.5 for threads in (16, 64, 128)), str(row))

    def test_cpu_convolution(self):
        (shown,) = documented("cpu_convolution")

        def write(copy):
            rows = self.measured("cpu_convolution", "ms", *self.placed(shown, {"docs/performance.md": copy}))
            self.assertEqual(list(rows), ["convolution/features:64/side:5/stride:1/block:16/density:0.5"])
            (row,) = rows.values()
            for operation in ("forward", "grad_input", "grad_weight"):
                self.assert_positive(row[f"{operation}_vs_linear"], operation)
            for figure in ("GFLOPs", "vs_onednn", "vs_channels_last"):
                self.assert_positive(row[figure], figure)

        for row in self.tables_in("docs/performance.md", write):
            self.assert_positive(float(row["oneDNN's time over ours"]), str(row))

    def test_cpu_convolution_torch(self):
        if not _PYTHON_PACKAGE:
            self.skipTest("the Python package was not built")
        if importlib.util.find_spec("torch") is None:
            self.skipTest("not installed: torch")
        document = self.folder / "document.md"
        begin, end = "<!-- bench/cpu_convolution_torch.py writes from here -->", "<!-- to here -->"
        document.write_text(f"before\n{begin}\n{end}\nafter\n")
        said = self.script("cpu_convolution_torch.py", "--write", document, PYTHONPATH=_PYTHON_PACKAGE).strip()
        self.assertEqual(document.read_text(), f"before\n{begin}\n\n{said}\n\n{end}\nafter\n")
        heads = [line for line in said.splitlines() if line.startswith("| channels")]
        rows = [line.strip("| ").split(" | ") for line in said.splitlines() if line.startswith("| 64 ")]
        self.assertEqual([head.split(" | ")[4] for head in heads], ["inference, ms", "forward and both gradients, ms"])
        self.assertEqual([len(row) for row in rows], [8, 7])
        for row in rows:
            self.assertEqual(row[:4], ["64", "5", "16", "0.5"])
            for figure in row[4:]:
                self.assert_positive(float(figure), str(row))

    def test_cpu_forward(self):
        rows = self.measured("cpu_forward", "ms")
        shapes = [f"forward/block:{block}/density:0.25/n:{n}" for block in (8, 32) for n in (1, 64)]
        self.assertEqual(list(rows), shapes)
        figures = {"peak_GFLOPs", "GFLOPs", "of_peak", "packed_of_peak", "packed_gain", "vs_onednn", "vs_prepacked", "pack_ms"}
        for name, row in rows.items():
            read = {"read_GBs", "of_bandwidth", "packed_of_bandwidth"} if name.endswith("n:1") else set()
            for figure in figures | read:
                self.assert_positive(row[figure], f"{name}: {figure}")
            self.assertIn("packed=1", row["label"])

    def test_dense_cpu(self):
        answer = json.loads(self.call([self.program("dense_cpu"), "--short"]).stdout)
        self.assertIn("oneDNN", answer["through"])
        for figure in ("run_ms", "p20_ms", "p80_ms", "gflops"):
            self.assert_positive(answer[figure], figure)
        self.assertLessEqual(answer["p20_ms"], answer["p80_ms"])

    @needs_nvrtc
    def test_emulator_speed(self):
        rows = self.measured("emulator_speed", "ms")
        threads = ("one_thread", "all_threads")
        kinds = [f"launch/{checks}/{spread}" for checks in ("all_checks", "no_checks") for spread in threads]
        self.assertEqual(list(rows), kinds)
        for name, row in rows.items():
            self.assert_positive(row["warp_instructions"], f"{name}: warp instructions")

    @needs_nvrtc
    def test_relayout_speed(self):
        rows = self.measured("relayout_speed", "ms")
        cases = [f"bf16/n=64/rows={rows}/{density}" for density in ("10%", "50%") for rows in (1, 4)]
        self.assertEqual(list(rows), [f"{what}/{case}" for case in cases for what in ("attach", "relayout")])
        for case in cases:
            for figure in ("blocks", "table_bytes"):
                self.assert_positive(rows[f"relayout/{case}"][figure], f"{case}: {figure}")

    def test_schedule_speed(self):
        rows = self.measured("schedule_speed", "ms")
        self.assertEqual(len(rows), 18)
        for density in (0.1, 0.5):
            for rewire in (0, 0.3, 1):
                single, *merged = (rows[f"schedule/density:{density}/rewire:{rewire}/rows:{count}"] for count in (1, 2, 4))
                self.assertEqual((single["loads_saved"], single["shuffled_saved"]), (0, 0))
                for row in (single, *merged):
                    self.assertGreaterEqual(row["balance"], 1)
                for row in merged:
                    self.assertTrue(0 < row["loads_saved"] < 1 and 0 < row["shuffled_saved"] < 1, row)

    # ---- scripts ----

    def assert_ran(self, answer: dict):
        self.assertTrue(answer["ok"] and answer["checked"] and answer["exact"]["ok"] and answer["random"]["ok"], answer)
        self.assert_positive(answer["run_ms"], "run_ms")
        self.assert_positive(answer["gflops"], "gflops")
        self.assert_positive(answer["rel_error"], "rel_error")

    def demo(self, driver: str) -> list[dict]:
        """The layers of the demo's document, after checks of all that holds whatever the target."""
        file = self.folder / "demo.json"
        said = self.script("demo.py", _BUILD, "--json", file, SPARSEKILN_CUDA_DRIVER=driver)
        results = json.loads(file.read_text())
        expected = [(sparsity, arch) for sparsity in _SPARSITIES for arch in ("sm_80", "sm_90")]
        self.assertEqual([(one["sparsity"], one["target"]) for one in results["cubins"]], expected)
        self.assertEqual([one["sparsity"] for one in results["layers"]], list(_SPARSITIES))
        for compiled in [one["compile"] for one in (*results["cubins"], *results["layers"])]:
            self.assert_positive(compiled["compile_ms"], "compile_ms")
            self.assert_positive(compiled["store_ms"], "store_ms")
        for layer in results["layers"]:
            self.assert_ran(layer["run"])
        rows = re.findall(r"^ +(\d+) % .*", said, re.M)
        self.assertEqual(rows, [*(str(sparsity) for sparsity, _ in expected), *map(str, _SPARSITIES)])
        self.assertNotRegex(said, r"\b(nan|inf|None)\b")
        return results["layers"]

    @needs_cpu
    @needs_nvrtc
    def test_demo(self):
        for layer in self.demo("/nowhere/libcuda.so.1"):
            self.assertIn("x86-64", layer["run"]["device"])
            if "dense_cpu" in _BUILT:
                self.assert_positive(layer["dense"]["run_ms"], "dense")
            else:
                self.assertIn("oneDNN", layer["dense"]["why"])

    @needs_nvrtc
    def test_demo_on_a_gpu(self):
        for layer in self.demo(_EMULATOR):
            self.assertIn("Sparsekiln emulator", layer["run"]["device"])
            self.assertTrue(layer["dense"]["run_ms"] or layer["dense"]["why"])

    @needs_nvrtc
    def test_gpu_tune(self):
        said = self.script("gpu_tune.py", "--build", _BUILD, "--out", self.folder / "out", SPARSEKILN_CUDA_DRIVER=_EMULATOR)
        results = json.loads((self.folder / "out" / "tune.json").read_text())
        ((title, part),) = results["parts"].items()
        self.assertIn(f"{title} ", said)
        self.assertIn("Sparsekiln emulator", part["environment"]["device"])
        self.assertTrue(part["ok"] and part["best"]["measured"], part)
        for figure in ("gain", "floor_us", "configs"):
            self.assert_positive(part[figure], figure)
        self.assertTrue(1 <= part["pick"] <= part["spread"])
        self.assertTrue(part["correlation"] is None or -1 <= part["correlation"] <= 1)
        (whole,) = map(json.loads, (self.folder / "out" / "records.jsonl").read_text().splitlines())
        (shipped,) = map(json.loads, (self.folder / "out" / "shipped.jsonl").read_text().splitlines())
        self.assertEqual(whole["problem"], shipped["problem"])

    @needs_nvrtc
    def test_gpu_workloads(self):
        said = self.script("gpu_workloads.py", "--build", _BUILD, "--out", self.folder / "out", SPARSEKILN_CUDA_DRIVER=_EMULATOR)
        results = json.loads((self.folder / "out" / "bench.json").read_text())
        self.assertIn("Sparsekiln emulator", results["device"]["name"])
        self.assertEqual(list(results["parts"]), results["identity"]["asked"]["workloads"])
        self.assertEqual(len(results["parts"]), 2)
        self.assertIn("every peer: the driver is the emulator", said)
        for title, part in results["parts"].items():
            self.assert_ran(part["command"])
            self.assertEqual(part["command"]["timing"]["clock"], "cuda events")
            self.assert_positive(part["predicted_us"], "the model's time")
            self.assertIn(part["bound"], ("memory", "cache", "arithmetic", "instructions", "latency"))
            line = next(line for line in said.splitlines() if line.startswith(f"{title} "))
            self.assertEqual(line.removeprefix(title).split()[0], f"{1e3 * part['command']['run_ms']:.4g}")

    def test_gpu_layers(self):
        said = self.script("gpu_layers.py", "--build", _BUILD, "--out", self.folder / "out", SPARSEKILN_CUDA_DRIVER=_EMULATOR)
        results = json.loads((self.folder / "out" / "layers.json").read_text())
        self.assertEqual(list(results["parts"]), results["identity"]["asked"]["layers"])
        for title, part in results["parts"].items():
            self.assertIn(f"{title}: the driver is the emulator", said)
            self.assertTrue(part["no_contest"])

    def profile(self, status: int, **environment: str) -> tuple[dict, str]:
        """The parts of a short run, and what was printed; a toolkit's ncu is not found."""
        run = f"import sys; sys.path.insert(0, {str(_BENCH)!r}); import gpu_profile; gpu_profile._FOLDERS = (); sys.exit(gpu_profile.main())"
        command = [sys.executable, "-c", run, "--build", _BUILD, "--out", self.folder / "out", "--short"]
        done = self.call(command, status=status, SPARSEKILN_CUDA_DRIVER=_EMULATOR, CUDA_HOME="", CUDA_PATH="", **environment)
        return json.loads((self.folder / "out" / "profile.json").read_text())["parts"], done.stdout

    def test_gpu_profile(self):
        alone = self.folder / "alone"  # a PATH without ncu
        alone.mkdir()
        parts, _ = self.profile(0, PATH=str(alone))
        ((title, part),) = parts.items()
        self.assertTrue(part["ok"] and "ncu (Nsight Compute) is neither on PATH nor in a CUDA toolkit" in part["no_profile"], title)

    @needs_nvrtc
    def test_gpu_profile_says_why_ncu_fails(self):
        ncu = self.folder / "ncu"
        ncu.write_text("#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - no permission' >&2\necho '==PROF== Disconnected'\nexit 1\n")
        ncu.chmod(0o755)
        parts, said = self.profile(1, PATH=f"{self.folder}:{os.environ['PATH']}")
        self.assertIn("ncu, exit status 1: ==ERROR== ERR_NVGPUCTRPERM - no permission", said)
        self.assertEqual([part["forbidden"] for part in parts.values()], [True])

    @needs_cpu
    def test_model_accuracy(self):
        rows = self.written("model_accuracy.py")
        self.assertEqual([row["operation"] for row in rows], ["forward", "grad_input"])
        for row in rows:
            self.assertGreaterEqual(int(row["configs"]), 3)
            self.assertTrue(-1 <= float(row["correlation"]) <= 1)
            self.assertTrue(1 <= float(row["pick"]) <= float(row["slowest / best"]) + 0.01, row)

    @needs_cpu
    def test_model_speed(self):
        self.assertEqual(self.written("model_speed.py"), [])
        figures = dict(re.findall(r"^- (\w+): ([\d.]+) ms a problem$", self.text, re.M))
        self.assertEqual(list(figures), ["sm_80", "sm_90", "cpu"])
        for target, ms in figures.items():
            self.assert_positive(float(ms), target)

    def test_model_defaults(self):
        rows = self.written("model_defaults.py")
        self.assertEqual(len(rows), 3)
        for row in rows:
            self.assertGreaterEqual(float(row["over the best"]), 1)
            self.assertGreaterEqual(float(row["over the roofline"]), 1)
        means = [float(mean) for mean in re.findall(r"geometric mean ([\d.]+), worst", self.text)]
        self.assertEqual(len(means), 2)

    def l2(self, *arguments: str) -> dict:
        self.call([_BUILD / "tools" / "sparsekiln", "layout", "make", "random", "--size", "64", "--density", "0.2", "-o", "L.npy"])
        batch = [] if "--batch" in arguments else ["--batch", "8192"]
        return json.loads(self.call([self.program("l2"), "L.npy", "--block", "64", *batch, *arguments]).stdout)

    def test_l2(self):
        for operation in ("forward", "grad_input", "grad_weight"):
            with self.subTest(operation):
                small, large = (self.l2("--op", operation, "--l2-mb", size) for size in ("2", "4000"))
                self.assertEqual(large["ratio"], 1)  # each operand once
                if operation != "grad_weight":  # whose runs are all computed at once here
                    self.assertGreater(small["ratio"], 1.5)
        everything = self.l2("--l2-mb", "20", "--config", "mma tile_n=128 warps=8 stages=4 in_flight=all")
        some = self.l2("--l2-mb", "20", "--config", "mma tile_n=128 warps=8 stages=4 in_flight=8")
        self.assertLess(some["memory_bytes"], everything["memory_bytes"])

    def test_l2_of_partial_sums(self):
        for operation, partial in (("forward", True), ("grad_weight", False)):
            splits = ["--config", "mma tile_n=256 warps=8 stages=3 in_flight=3"] if partial else []
            small, large = (self.l2("--op", operation, "--l2-mb", size, *splits) for size in ("40", "4000"))
            self.assertEqual(large["with_partial_sums"]["ratio"], 1, "none is evicted")
            self.assertEqual(large["with_partial_sums"]["partial_sums_bytes"] > 0, partial)
            self.assertEqual(small["with_partial_sums"]["memory_bytes"] > small["memory_bytes"], partial)

    def test_l2_of_convolutions(self):
        def convolved(geometry: str, operation: str, size: str) -> dict:
            return self.l2("--op", operation, "--batch", "64", "--conv", geometry, "--l2-mb", size)

        for operation in ("forward", "grad_input", "grad_weight"):
            with self.subTest(operation):
                # Every position is read by some tap: each operand once.
                self.assertEqual(convolved("kernel=3x2 stride=2x1 dilation=1x2 padding=1 input=5x7", operation, "4000")["ratio"], 1)
                every, some = (convolved(f"kernel=1 {word} input=6x6", operation, "4000") for word in ("stride=1", "stride=2"))
                self.assertEqual(every["ratio"], 1)
                # A stride of 2 reads a quarter of the positions, in forward of x and in grad_weight of x: of 64 blocks of 64.
                unread = 64 * 27 * 64 * 64 * 2 if operation != "grad_input" else 0
                self.assertEqual(some["once_bytes"] - some["memory_bytes"], unread)
        small, large = (convolved("kernel=3x3 padding=1 input=6x6", "forward", size) for size in ("2", "4000"))
        self.assertGreater(small["memory_bytes"], 1.5 * large["memory_bytes"])

    def test_l2_bytes(self):
        self.program("l2")
        linear, convolution = self.written("l2_bytes.py")
        for row, name in ((linear, "26.5 MB"), (linear, "50 MB with partial sums"), (convolution, "forward"), (convolution, "grad_weight, sums")):
            self.assert_positive(float(row[name]), name)

    @needs_nvrtc
    def test_precompile_jobs(self):
        (shown,) = documented("precompile_jobs.py")
        tool = str(_BUILD / "tools" / "sparsekiln")
        said = self.script("precompile_jobs.py", *shown, SPARSEKILN_TOOL=tool)
        self.assertIn("4 kernels for sm_90", said)
        made = self.call([tool, "precompile", self.folder / shown[-1] / "jobs.json", "-o", "a.pack", "--json"])
        answer = json.loads(made.stdout)
        self.assertEqual((answer["ok"], answer["kernels"], answer["compiled"]), (True, 4, 4))

    def disassembler(self) -> pathlib.Path:
        """A program that prints a listing of whatever cubin: of wgmma, or another."""
        (self.folder / "listing").write_text(LISTING)
        (self.folder / "wgmma_listing").write_text(WGMMA_LISTING.replace("UMOV", "NOP"))
        program = self.folder / "nvdisasm"
        wgmma = 'grep -q "\\(spmm_wgmma\\|spmm_wgmma_rows\\|spmm_halo\\|sddmm_halo\\)<" "${2%/*}/kernel.cu" && exec cat'
        program.write_text(f'#!/bin/sh\n{wgmma} "{self.folder}/wgmma_listing"\nexec cat "{self.folder}/listing"\n')
        program.chmod(0o755)
        return program

    def assert_products_are_together(self, rows: list[dict[str, str]]):
        self.assertEqual(len(rows), 11)
        for row in rows:
            self.assertEqual((row["spilled bytes"], row["C75xx"]), ("0", "-"))
            if not ("grad_weight" in row["workload"] and row["config"].startswith("halo")):  # whose descriptors do not fit uniform registers
                self.assertEqual(row["between them"], "-")

    @needs_nvrtc
    def test_sass(self):
        rows = self.written("sass.py", "--nvdisasm", self.disassembler())
        self.assertEqual(len(rows), 17)
        for loop, resources in zip(rows[:3], rows[3:6]):
            self.assertEqual(loop["workload"], resources["workload"])
            self.assertEqual((loop["instructions"], loop["tensor core"], loop["per product"]), ("12", "2", "6.00"))
            for figure in ("registers", "threads", "predicted, µs", "roofline bound, µs"):
                self.assert_positive(float(resources[figure]), figure)
            self.assertEqual(resources["spilled bytes"], "0")
            self.assertGreaterEqual(float(resources["predicted / bound"]), 1)
            self.assertIn(resources["bound by"], ("memory", "cache", "arithmetic", "instructions", "latency"))
        self.assert_products_are_together(rows[6:])
        self.assertEqual({row["products"] for row in rows[6:]}, {"2 + 3"})

    @needs_nvrtc
    def test_sass_of_code_that_was_disassembled(self):
        if disassembly.find_nvdisasm(None) is None:
            self.skipTest("nvdisasm is missing: no CUDA toolkit, and no triton")
        rows = self.written("sass.py")
        f16, f32, gradient = rows[:3]
        for row in (f16, gradient):
            self.assertGreater(int(row["tensor core"]), 0)
        self.assertGreater(int(f32["products"]), 0)
        for row in rows[:3]:
            kinds = [int(row[kind]) for kind in disassembly.KINDS]
            self.assertEqual(sum(kinds), int(row["instructions"]))
            self.assertGreater(int(row["copies"]), 0)
            self.assertGreater(int(row["barriers, waits"]), 0)
        self.assert_products_are_together(rows[6:])
        self.assertEqual([row["products"] for row in rows[6:]], ["4", "4 + 4", "8", "8", "4 + 4", "4", "8", "2", "2", "2", "28"])

    def test_sass_says_how_to_get_what_disassembles(self):
        done = self.call([sys.executable, _BENCH / "sass.py", _BUILD, "--short", "--nvdisasm", "/nowhere/nvdisasm"], status=2)
        self.assertIn("--nvdisasm /nowhere/nvdisasm: no such program", done.stderr)
        self.assertIn("pip install triton", disassembly.ADVICE)

    @needs_cpu
    def test_threads(self):
        if not _PYTHON_PACKAGE:
            self.skipTest("the Python package was not built")
        if importlib.util.find_spec("numpy") is None:
            self.skipTest("not installed: numpy")
        said = json.loads(self.script("threads.py", PYTHONPATH=_PYTHON_PACKAGE))
        self.assert_positive(said["apart_over_together"], "apart_over_together")
        self.assertTrue(0 < said["share_of_calling_thread"] <= 1.01)

    def test_against(self):
        rows = self.written_with_torch("against.py")
        titles = [next(iter(row)) for row in rows]
        growth = ["features"] * 2 + ["batch"] * 2 + ["threads"] * len(os.sched_getaffinity(0))
        self.assertEqual(titles, ["layer"] * 2 + ["density"] + ["against"] * 5 + growth + ["layer"] * 2 + ["convolution"])
        training, convolution = rows[-3], rows[-1]
        for row, title in (
            (rows[0], "ms"), (rows[0], "kernel alone, ms"), (rows[0], "× PyTorch dense"), (rows[1], "× PyTorch dense"), (rows[2], "block 32"),
            *((row, "BlockSparseLinear") for row in rows[8:-3]), (training, "× nn.Linear, dense"), (training, "× BSR, by hand"),
            (convolution, "inference, ms"), (convolution, "× dense"),
        ):  # fmt: skip
            self.assert_positive(float(row[title].partition(" (")[0]), title)

    @needs_cpu
    def test_growth(self):
        rows = self.written("growth.py")
        self.assertEqual(len(rows), 2)
        for row in rows:
            self.assertGreater(int(row["blocks"]), 900)
            self.assert_positive(float(row.get("launch, ms", row.get("launch, ns a weight"))), "launch")

    def test_torch_linear(self):
        rows = self.written_with_torch("torch_linear.py")
        titles = [next(iter(row)) for row in rows]
        self.assertEqual(titles, ["inference"] * 4 + ["training step"] * 3 + ["call"] * 7)
        for row in rows:
            for title, cell in row.items():
                if title in ("median, ms", "× BlockSparseLinear", "µs"):
                    self.assertTrue(math.isfinite(float(cell)) and float(cell) >= 0, row)

    def test_recurrent(self):
        rows = self.written_with_torch("recurrent.py")
        titles = [next(iter(row)) for row in rows]
        lstm, small_world = (["inference"] * count + ["forward and all gradients"] * count for count in (4, 3))
        self.assertEqual(titles, lstm + small_world + ["launches of SmallWorldLSTM"] * 2)
        for row in rows:
            self.assert_positive(float(row["median, ms"]), "median")
            self.assert_positive(float(next(row[title] for title in row if title.startswith("over "))), "ratio")

    @needs_cpu
    def test_tuning(self):
        rows = self.written("tuning.py", "--budget", "60s", "--json", "all.json", "--records", "records.jsonl")
        self.assertEqual([(row["hidden"], row["block"]) for row in rows], [("256", "32"), ("256", "16")])
        for row in rows:
            self.assertGreaterEqual(int(row["tried"]), 3)
            self.assertTrue(-1 <= float(row["correlation"]) <= 1)
            for title in ("default / tuned, run 1", "run 2", "pick"):
                self.assert_positive(float(row[title]), title)
        everything = json.loads((self.folder / "all.json").read_text())
        self.assertEqual((len(everything["rows"]), everything["summary"]["problems"]), (2, 2))
        for row in everything["rows"]:
            self.assert_positive(row["best_us"], "best")
            self.assert_positive(row["floor_us"], "floor")
        records = self.folder / "records.jsonl"
        self.assertEqual(len(list(map(json.loads, records.read_text().splitlines()))), 2)
        imported = self.call([_BUILD / "tools" / "sparsekiln", "records", "import", records, "--json"])
        self.assertTrue(json.loads(imported.stdout)["ok"])

    # ---- all of them ----

    def test_every_program_is_run_above(self):
        tests = {name.removeprefix("test_") for name in dir(self) if name.startswith("test_")}
        meson = (_BENCH / "meson.build").read_text()
        for file in programs():
            stem, _, kind = file.partition(".")
            self.assertIn(stem, tests, f"bench/{file} has no test of its short form here")
            if kind == "cpp":
                self.assertIn(f"benches += executable('{stem}'", meson)

    def test_documents_name_programs_that_are_there(self):
        for document in (_ROOT / "README.md", _ROOT / "dev", *sorted((_ROOT / "docs").rglob("*.md"))):
            for name in re.findall(r"\bbench/(\w+(?:\.(?:py|json))?)(?![\w/])", document.read_text()):
                file = name if "." in name else f"{name}.cpp"
                self.assertTrue(file in programs() or (file.endswith(".json") and (_BENCH / file).exists()), f"{document.name}: {file}")

    def test_an_unknown_option_is_refused(self):
        for name in _BUILT:
            with self.subTest(name):
                done = self.call([self.program(name), "--no-such-option"], status=2)
                self.assertRegex(done.stderr, "--no-such-option|usage: ")
        with_package = {"against.py", "cpu_convolution_torch.py", "recurrent.py", "recurrent_segment.py", "torch_calls.py", "torch_linear.py"}
        scripts = [file for file in programs() if file.endswith(".py") and file not in with_package]
        for name in scripts:
            with self.subTest(name):
                done = self.call([sys.executable, _BENCH / name, "a", "b", "--no-such-option"], status=2)
                self.assertIn("usage: ", done.stderr)

    def test_a_script_refuses_a_document_without_marks_before_it_measures(self):
        (self.folder / "other.md").write_text("no marks\n")
        done = self.call([sys.executable, _BENCH / "tuning.py", _BUILD, "--write", "other.md"], status=2)
        self.assertIn("other.md lacks the marks <!-- bench/tuning.py writes from here -->", done.stderr)

    def test_a_program_refuses_a_document_without_marks_before_it_measures(self):
        (self.folder / "other.md").write_text("no marks\n")
        done = self.call([self.program("cache_speed"), "--write", "other.md"], status=2)
        self.assertIn("other.md: it lacks the marks", done.stderr)

    def test_a_benchmark_that_fails_ends_the_program_with_1(self):
        program = self.program("emulator_speed")
        done = self.call([program, "--short"], status=1, SPARSEKILN_EMULATOR="/nowhere/e.so")
        self.assertIn("/nowhere/e.so", done.stderr)
        self.call([program, "--short", "--benchmark_filter=nothing"], status=1)


if __name__ == "__main__":
    unittest.main()
