"""The demo's layers on this machine's GPU against cuBLAS dense: bench/gpu_forward.py --build BUILD --out DIR [--short]

Sparse: `sparsekiln run … --target cuda --time` on the layers of headline.py, checked first.
Dense: the same layer as one product in cuBLAS through PyTorch or CuPy, whichever can be imported, in true float32
(TF32 off). Both by CUDA events, medians of as many samples of many launches each, and both cold: the dense weight is
several times larger than any L2, and `run` takes turns among copies of its operands until they are, too. The layers
are compiled ahead, all at once. Writes DIR/bench.json as it goes; a part that fails or hangs is recorded as such, and
the others are measured all the same; what --minutes do not allow is left to the next call. At the end everything is also
in DIR/bench-DEVICE-COMMIT.tar.gz. Exit status: 0 success, 1 a part failed, 3 some were not reached.
"""

import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import headline
import publish
from gpu_results import Results, add_arguments
from headline import Headline

_WARM_UP, _SAMPLES, _LAUNCHES = 50, 30, 10  # launches before; samples; launches a sample, so that their cost hides
_SECONDS = 240  # a command of sparsekiln, or the dense product
_BEGIN, _END = 0.8, 0.95  # of the minutes: after _BEGIN nothing more is started, at _END what runs is stopped


class NotReached(Exception):
    """Time is up."""


def seconds_left(until: float) -> float:
    """The time limit of a command, at most _SECONDS; NotReached if nothing is left."""
    left = min(_SECONDS, until - time.monotonic())
    if left <= 0:
        raise NotReached
    return left


def too_long(allowed: float) -> str:
    """What is wrong with a command that took longer; NotReached if the end of the minutes stopped it."""
    if allowed < _SECONDS:
        raise NotReached
    return f"ran longer than {_SECONDS} s"


def summary(samples: list[float]) -> dict:
    """Milliseconds of one launch."""
    cuts = statistics.quantiles(samples, n=5)
    return {"run_ms": statistics.median(samples), "p20_ms": cuts[0], "p80_ms": cuts[-1], "samples_ms": samples}


def dense_pytorch(layer: Headline) -> dict:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    x = torch.randn(layer.batch, layer.width, device="cuda")
    w = torch.randn(layer.width, layer.width, device="cuda")
    y = torch.empty(layer.batch, layer.width, device="cuda")
    for _ in range(_WARM_UP):
        torch.mm(x, w.t(), out=y)
    samples = []
    for _ in range(_SAMPLES):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(_LAUNCHES):
            torch.mm(x, w.t(), out=y)
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) / _LAUNCHES)
    return {"through": f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}", **summary(samples)}


def dense_cupy(layer: Headline) -> dict:
    os.environ.pop("CUPY_TF32", None)
    import cupy

    x = cupy.random.standard_normal((layer.batch, layer.width), dtype=cupy.float32)
    w = cupy.random.standard_normal((layer.width, layer.width), dtype=cupy.float32)
    y = cupy.empty((layer.batch, layer.width), dtype=cupy.float32)
    for _ in range(_WARM_UP):
        cupy.matmul(x, w.T, out=y)
    samples = []
    for _ in range(_SAMPLES):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(_LAUNCHES):
            cupy.matmul(x, w.T, out=y)
        end.record()
        end.synchronize()
        samples.append(cupy.cuda.get_elapsed_time(start, end) / _LAUNCHES)
    return {"through": f"CuPy {cupy.__version__}", **summary(samples)}


def _answer(pipe, measure, layer: Headline) -> None:
    try:
        pipe.send((True, measure(layer)))
    except Exception as error:
        pipe.send((False, f"{type(error).__name__}: {error}"))


def isolated(measure, layer: Headline, until: float) -> dict:
    """What the function returns, in a process of its own: a library that crashes or hangs affects nothing else."""
    allowed = seconds_left(until)
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_answer, args=(there, measure, layer), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(allowed):
            raise RuntimeError(too_long(allowed))
        fine, answer = here.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"its process ended with status {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
    if not fine:
        raise RuntimeError(answer)
    return answer


def dense(layer: Headline, until: float) -> dict:
    why = []
    for measure in (dense_pytorch, dense_cupy):
        try:
            return {"ok": True, **isolated(measure, layer, until)}
        except NotReached:
            raise
        except Exception as error:  # not there, built without CUDA, for another driver …: the other may do
            why.append(f"{measure.__name__}: {error}")
    return {"ok": False, "run_ms": None, "why": "; ".join(why)}


def call(tool: pathlib.Path, arguments: list[str], environment: dict, until: float) -> dict:
    """The document of a command with --json; {"ok": False, "why": …} if it leaves none."""
    command = f"sparsekiln {' '.join(arguments)}"
    allowed = seconds_left(until)
    try:
        done = subprocess.run([tool, *arguments], capture_output=True, text=True, env=environment, timeout=allowed)
    except OSError as error:
        return {"ok": False, "why": str(error)}
    except subprocess.TimeoutExpired:
        return {"ok": False, "why": f"{command}: {too_long(allowed)}"}
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return {"ok": False, "why": f"{command}: exit status {done.returncode}: {done.stderr.strip()}"}
    if done.returncode == 0 and answer["ok"]:
        return answer
    # A wrong result is a whole document, with check results and times; an Error says why.
    failures = [answer.get(oracle, {}).get("first_failure") for oracle in ("exact", "random")]
    failures += [answer.get("error", {}).get("message"), done.stderr.strip()]
    why = next((failure for failure in failures if failure), f"exit status {done.returncode}")
    return {**answer, "ok": False, "why": why}


def environment_of(folder: pathlib.Path) -> dict:
    return dict(os.environ, SPARSEKILN_CACHE_DIR=str(folder / "cache"))


def prepare(tool: pathlib.Path, layer: Headline, sparsity: int, folder: pathlib.Path, until: float) -> dict:
    """Draws the layout, and compiles its kernel into the store."""
    layout = folder / f"{sparsity}.npy"
    made = call(tool, [*layer.make(sparsity, layout), "--json"], environment_of(folder), until)
    compile_it = [*layer.request("compile", layout, "cuda"), "--json"]
    return call(tool, compile_it, environment_of(folder), until) if made["ok"] else made


def sparse(tool: pathlib.Path, layer: Headline, sparsity: int, samples: int, folder: pathlib.Path, until: float) -> dict:
    run = [*layer.request("run", folder / f"{sparsity}.npy", "cuda"), "--check", "--time", "--repeat", str(samples), "--json"]
    return call(tool, run, environment_of(folder), until)


def table(layer: Headline, results: Results) -> str:
    reference = results["dense"] if results.has("dense") else {"run_ms": None, "why": "not reached: call it again"}
    lines = [f"{'sparsity':>8} {'run ms':>9} {'GFLOP/s':>9} {'dense ms':>9} {'speed-up':>9} {'rel. error':>11}"]
    for sparsity in layer.sparsities:
        if not results.has(f"sparse {sparsity} %"):
            lines.append(f"{sparsity:>6} %  not reached: call it again")
            continue
        part = results[f"sparse {sparsity} %"]
        if not part.get("ok"):
            lines.append(f"{sparsity:>6} %  failed: {part['why']}")
            continue
        dense_ms, ms = reference["run_ms"], part["run_ms"]
        against = f"{dense_ms:9.3f} {dense_ms / ms:8.1f}x" if dense_ms else f"{'-':>9} {'-':>9}"
        lines.append(f"{sparsity:>6} % {ms:9.4f} {part['gflops']:9.0f} {against} {part['rel_error']:11.1e}")
        if not part["timing"]["cold"]:
            lines.append(f"{'':>8} NOT cold, unlike the dense product: do not compare")
    lines.append(f"dense: {reference.get('through') or reference['why']}")
    return "\n".join(lines)


def main() -> int:
    parser = publish.parser(__doc__, build=False)
    add_arguments(parser)
    given = parser.parse_args()
    began = time.monotonic()
    until = began + _END * 60 * given.minutes
    tool = (given.build / "tools" / "sparsekiln").resolve()
    layer, samples = (headline.SHORT, 2) if given.short else (Headline(), _SAMPLES)
    about = {**dataclasses.asdict(layer), "dtype": "f32", "math": "ieee"}
    results = Results(given.out / "bench.json", tool, given.build, asked=about)
    names = {f"sparse {sparsity} %": sparsity for sparsity in layer.sparsities}
    wanted = [name for name in (*names, "dense") if not (results.has(name) and results[name].get("ok"))]
    wanted.sort(key=results.has)  # what was never reached comes before what failed
    with tempfile.TemporaryDirectory(prefix="sparsekiln-gpu-") as scratch:
        folder = pathlib.Path(scratch)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            prepared = {
                name: pool.submit(prepare, tool, layer, names[name], folder, until) for name in wanted if name in names
            }
        for name in wanted:
            if time.monotonic() >= began + _BEGIN * 60 * given.minutes:
                break
            try:
                if name == "dense":
                    part = dense(layer, until)
                else:
                    compiled = prepared[name].result()
                    part = sparse(tool, layer, names[name], samples, folder, until) if compiled["ok"] else compiled
                    part = {**part, "compile": compiled}
            except NotReached:
                continue
            results.record(name, {**part, "clocks": results.clocks()})
    results.say(table(layer, results))
    emulated = "emulator" in results.document["device"]["name"]
    counted = [*names, "dense"]
    if (given.short or emulated) and results.has("dense") and not results["dense"]["ok"]:
        counted.remove("dense")  # nothing is compared with it
    reached = [name for name in counted if results.has(name)]
    failed = [name for name in reached if not results[name].get("ok")]
    left = len(counted) - len(reached)
    results.document.update(passed=len(reached) - len(failed), failed=len(failed), not_reached=left)
    last = f"{len(reached) - len(failed)} passed, {len(failed)} failed"
    results.finish(last + (f", {left} not reached: call it again" if left else ""))
    return 1 if failed else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
