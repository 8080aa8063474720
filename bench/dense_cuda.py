"""The dense product of the demo's layer in cuBLAS, through PyTorch or CuPy, whichever can be imported, in true float32 (TF32
off): by CUDA events, cold, since the weight is several times larger than any L2."""

import multiprocessing
import os
import statistics

from headline import Headline

_WARM_UP, _SAMPLES, _LAUNCHES = 50, 30, 10  # launches before; samples; launches a sample, so that their cost hides
_SECONDS = 240


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


def isolated(measure, layer: Headline) -> dict:
    """What the function returns, in a process of its own: a library that crashes or hangs affects nothing else."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_answer, args=(there, measure, layer), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(_SECONDS):
            raise RuntimeError(f"ran longer than {_SECONDS} s")
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


def dense(layer: Headline) -> dict:
    why = []
    for measure in (dense_pytorch, dense_cupy):
        try:
            return {"ok": True, **isolated(measure, layer)}
        except Exception as error:  # not there, built without CUDA, for another driver …: the other may do
            why.append(f"{measure.__name__}: {error}")
    return {"ok": False, "run_ms": None, "why": "; ".join(why)}
