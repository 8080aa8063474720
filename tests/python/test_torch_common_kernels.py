"""The pack of kernels of common layers: what packaging/kernels/common.json names is what layers ask for on a GPU."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from emulated_device import needs_emulator  # noqa: E402

from sparsekiln import _core  # noqa: E402

_JOBS = pathlib.Path(__file__).resolve().parent.parent.parent / "packaging/kernels/common.json"

#: A training step, each result within the bound of sums in float32 that are rounded once: arguments are block, type and "bias".
_STEP = """
import math, sys
import pytest, torch, sparsekiln
import sparsekiln.torch
from emulated_device import emulate_linear
from sparsekiln.torch import kernels

block, dtype, bias = int(sys.argv[1]), getattr(torch, sys.argv[2]), sys.argv[3] == "bias"
sources = []
compile_kernel = kernels.compile_kernel
def noted(*given, **named):
    kernel = compile_kernel(*given, **named)
    sources.append(kernel.source)
    return kernel
kernels.compile_kernel = noted
torch.manual_seed(1)
layout = sparsekiln.patterns.random(3, 2, 0.6, seed=5)
with pytest.MonkeyPatch.context() as patch:
    emulated = emulate_linear(patch, "sm_90", bound=kernels._BOUNDS[0])
    layer = sparsekiln.torch.BlockSparseLinear(2 * block, 3 * block, layout, block, bias=bias, dtype=dtype)
    x = torch.randn(11, 2 * block, dtype=dtype).requires_grad_()
    y = layer(x)
    dy = torch.randn_like(y)
    y.backward(dy)
assert emulated.launches == ["forward", "grad_input", "grad_weight"], emulated.launches

def check(name, given, wanted, terms, sums):
    unit = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}[dtype]
    bound = unit * wanted.abs() + 2.0**-23 * (sums + 2) * terms + 2.0**-24
    assert ((given.double() - wanted).abs() <= 1.01 * bound).all(), name

w, d, v = (one.detach().double() for one in (layer.to_dense(), dy, x))
b = layer.bias.detach().double() if bias else 0
check("y", y, v @ w.T + b, v.abs() @ w.abs().T + abs(b), 2 * block)
check("dx", x.grad, d @ w, d.abs() @ w.abs(), 3 * block)
check("dw", layer.weight_values.grad, layer.blocks_of(d.T @ v), layer.blocks_of(d.abs().T @ v.abs()), 11)
if bias:
    check("dbias", layer.bias.grad, d.sum(0), d.abs().sum(0), 11)
print(*sources)
"""


@pytest.fixture(scope="module")
def pack(tmp_path_factory) -> pathlib.Path:
    """The part of the pack for sm_90 and blocks of 32, made as ./dev kernels makes all of it."""
    folder = tmp_path_factory.mktemp("pack")
    jobs = json.loads(_JOBS.read_text())
    for job in jobs["jobs"]:
        job["blocks"] = ["32"]
        job["layouts"] = [str(_JOBS.parent / layout) for layout in job["layouts"]]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    path = folder / "common.pack"
    command = ["sparsekiln", "precompile", folder / "jobs.json", "--arch", "sm_90", "--lean", "-o", path]
    assert _core.run_command_line([os.fsencode(word) for word in command]) == 0
    return path


@needs_emulator
@pytest.mark.parametrize("bias", ["bias", "no bias"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_first_training_step_compiles_nothing(pack, tmp_path, dtype, bias):
    hidden = {"SPARSEKILN_NVRTC": "/nonexistent", "SPARSEKILN_CACHE_DIR": str(tmp_path / "empty"), "SPARSEKILN_PACKS": str(pack)}
    environment = {**os.environ, **hidden, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(pathlib.Path(__file__).parent)])}
    step = subprocess.run([sys.executable, "-c", _STEP, "32", dtype, bias], env=environment, capture_output=True, text=True)
    assert step.returncode == 0, step.stderr
    assert step.stdout.split() == ["pack"] * 3


def test_the_jobs_are_of_all_common_layers():
    jobs = json.loads(_JOBS.read_text())
    assert jobs["archs"] == ["sm_80", "sm_90", "sm_100"]
    for job in jobs["jobs"]:
        assert job["attached"] and job["batches"] == [f"up-to:{1 << 20}"]
        assert job["blocks"] == ["16", "32", "64", "128"]
        assert job["dtypes"] == ["f16", "bf16"]


def test_the_package_names_its_pack(tmp_path, monkeypatch):
    from sparsekiln import _places

    monkeypatch.setattr(_places, "_PACKAGE", tmp_path)
    monkeypatch.setenv("SPARSEKILN_PACKS", "/one.pack")
    _places.name_places()
    assert os.environ["SPARSEKILN_PACKS"] == "/one.pack"
    (tmp_path / "common.pack").touch()
    for _ in range(2):
        _places.name_places()
        assert os.environ["SPARSEKILN_PACKS"] == f"/one.pack:{tmp_path / 'common.pack'}"
    monkeypatch.delenv("SPARSEKILN_PACKS")
    _places.name_places()
    assert os.environ["SPARSEKILN_PACKS"] == str(tmp_path / "common.pack")
