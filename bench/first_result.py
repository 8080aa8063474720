"""How long a program waits for its first result of a layer: python3 bench/first_result.py [--json] [--short] [--stub DRIVER]

A new process each time, with an empty cache, imports PyTorch and takes a step of training with a dense layer, for which PyTorch loads
more of itself. Then it imports sparsekiln.torch, makes a layer, without and with an activation, and takes a step. Seconds since that
import began, medians:

    import        until sparsekiln.torch is imported
    first result  until the first forward pass has returned
    first step    until its backward pass has

On the cpu kernels are compiled. --stub DRIVER measures what a GPU's host does without a GPU: DRIVER is the tests'
libstub_cuda_driver.so, whose launches do nothing, tensors of the cpu stand for those of a GPU, and there is no NVRTC: kernels come from
a pack, as that of common layers in a wheel, for this driver's GPU.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_JOBS = _ROOT / "packaging/kernels/common_layers.json"
_BLOCK, _TYPE = 32, "bfloat16"
#: What the driver of --stub says that it has.
_STUB_ARCH = "sm_90"

_CHILD = f"""
import sys, time
import torch
torch.nn.Linear(8, 8)(torch.randn(1, 8)).sum().backward()
began = time.perf_counter()
import sparsekiln.torch
imported = time.perf_counter()
activation = sys.argv[1] or None
if len(sys.argv) > 2:
    sys.path.insert(0, {str(_ROOT / "bench")!r})
    import torch_calls
    before = time.perf_counter()
    torch_calls.pretend_cuda(sys.argv[2])
else:
    before = imported
layout = sparsekiln.patterns.random(64, 64, 0.1, seed=1)
layer = sparsekiln.torch.BlockSparseLinear(64 * {_BLOCK}, 64 * {_BLOCK}, layout, {_BLOCK}, activation=activation, dtype=torch.{_TYPE})
x = torch.randn(16, 64 * {_BLOCK}, dtype=torch.{_TYPE})
y = layer(x)
first = time.perf_counter()
y.backward(torch.ones_like(y))
step = time.perf_counter()
skipped = before - imported  # of the benchmark's own module
print(imported - began, first - began - skipped, step - began - skipped)
"""


def make_pack(folder: pathlib.Path) -> pathlib.Path:
    """The part of the pack of common layers that the layer takes."""
    from sparsekiln import _core

    jobs = json.loads(_JOBS.read_text())
    for job in jobs["jobs"]:
        job.update(blocks=[str(_BLOCK)], dtypes=["bf16"], layouts=[str(_JOBS.parent / layout) for layout in job["layouts"]])
    (folder / "jobs.json").write_text(json.dumps(jobs))
    command = ["sparsekiln", "precompile", folder / "jobs.json", "--arch", _STUB_ARCH, "--lean", "-o", folder / "common.pack"]
    if _core.run_command_line([os.fsencode(word) for word in command]) != 0:
        sys.exit("the pack could not be made")
    return folder / "common.pack"


def first_step(environment: dict[str, str], arguments: list[str]) -> list[float]:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, **environment, "SPARSEKILN_CACHE_DIR": cache}
        child = subprocess.run([sys.executable, "-c", _CHILD, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [float(one) for one in child.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", default=5, type=int)
    parser.add_argument("--stub", metavar="DRIVER", help="measures the host of a GPU without a GPU")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--short", action="store_true", help="tries whether it works")
    options = parser.parse_args()
    count = 1 if options.short else options.processes
    devices: dict[str, tuple[dict[str, str], list[str]]] = {"cpu": ({}, [])}
    with tempfile.TemporaryDirectory() as folder:
        if options.stub:
            hidden = {"SPARSEKILN_PACKS": str(make_pack(pathlib.Path(folder))), "SPARSEKILN_NVRTC": "/nonexistent"}
            devices["cuda, stub driver"] = hidden, [options.stub]
        found = {
            f"{device}, {activation or 'no activation'}": [first_step(environment, [activation, *more]) for _ in range(count)]
            for device, (environment, more) in devices.items()
            for activation in ("", "relu")
        }
    names = "import", "first result", "first step"
    medians = {device: dict(zip(names, map(statistics.median, zip(*times)))) for device, times in found.items()}
    if options.json:
        print(json.dumps({"seconds": medians}))
        return
    for device, times in medians.items():
        print(f"{device:32} " + "   ".join(f"{name} {seconds:.3f} s" for name, seconds in times.items()))


if __name__ == "__main__":
    main()
