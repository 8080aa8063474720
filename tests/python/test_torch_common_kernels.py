"""The pack of kernels of common layers: what packaging/kernels/common_layers.json names is what layers ask for on a GPU."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from emulated_device import needs_emulator  # noqa: E402

from sparsekiln import _core  # noqa: E402

_JOBS = pathlib.Path(__file__).resolve().parent.parent.parent / "packaging/kernels/common_layers.json"

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


#: Inference and a training step of a layer with an activation, whose kernels are in no pack, twice: arguments are a type and an
#: activation, and "captured" for launches as in a CUDA graph that is captured. Prints the epilogues and derivatives of the launches of each.
_ACTIVATION = """
import sys, threading
import pytest, torch, sparsekiln
import sparsekiln.torch
from emulated_device import emulate_linear
from sparsekiln.torch import background, kernels
from sparsekiln.torch.linear import products

dtype, activation = getattr(torch, sys.argv[1]), sys.argv[2]
act = {"relu": torch.relu, "gelu": torch.nn.functional.gelu}[activation]
torch.manual_seed(1)
layout = sparsekiln.patterns.random(3, 2, 0.6, seed=5)

def step():
    used, go_on = [], threading.Event()
    for _ in range(16):  # as many threads as there are at most: nothing is compiled in the background until this is over
        background.worker.do(go_on.wait)
    x = torch.randn(11, 64, dtype=dtype)
    with pytest.MonkeyPatch.context() as patch:
        emulated = emulate_linear(patch, "sm_90", bound=kernels._BOUNDS[0])
        run = emulated.run
        patch.setattr(products, "is_captured", lambda operand: "captured" in sys.argv)
        patch.setattr(emulated, "run", lambda kernel, *given, **named: used.append(kernel) or run(kernel, *given, **named))
        with torch.no_grad():
            inference = layer(x)
        leaf = x.clone().requires_grad_()
        y = layer(leaf)
        dy = torch.randn_like(y)
        y.backward(dy)
        go_on.set()
        background.worker.wait()
    w, v = layer.to_dense().detach().double().requires_grad_(), x.double().requires_grad_()
    b = layer.bias.detach().double().requires_grad_()
    wanted = act(torch.nn.functional.linear(v, w, b))
    wanted.backward(dy.double())
    near = {"rtol": 2.0**-6, "atol": 2.0**-4} if dtype == torch.bfloat16 else {"rtol": 2.0**-9, "atol": 2.0**-7}
    for name, found, value in (("inference", inference, wanted), ("y", y, wanted), ("dx", leaf.grad, v.grad),
                               ("dw", layer.weight_values.grad, layer.blocks_of(w.grad)), ("db", layer.bias.grad, b.grad)):
        torch.testing.assert_close(found.double(), value.double(), **near, msg=lambda text: name + ": " + text)
    layer.zero_grad()
    return [one.computation["epilogue"] if one.op == "forward" else one.computation["derivative"] for one in used]

with pytest.MonkeyPatch.context() as patch:
    emulate_linear(patch, "sm_90", bound=kernels._BOUNDS[0])
    layer = sparsekiln.torch.BlockSparseLinear(64, 96, layout, 32, activation=activation, dtype=dtype)
    print(*step())
    print(*step())
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


_FUSED = {"relu": ["bias+relu", "bias+relu", "relu", "relu"], "gelu": ["bias+gelu", "bias", "gelu", "gelu"]}


def steps_with_activation(pack, tmp_path, nvrtc, *arguments):
    hidden = {"SPARSEKILN_CACHE_DIR": str(tmp_path / "empty"), "SPARSEKILN_PACKS": str(pack)}
    if not nvrtc:
        hidden["SPARSEKILN_NVRTC"] = "/nonexistent"
    environment = {**os.environ, **hidden, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(pathlib.Path(__file__).parent)])}
    step = subprocess.run([sys.executable, "-c", _ACTIVATION, "float16", *arguments], env=environment, capture_output=True, text=True)
    assert step.returncode == 0, step.stderr
    assert nvrtc == ("RuntimeWarning: an activation is left to PyTorch" not in step.stderr)
    return [line.split() for line in step.stdout.splitlines()]


@needs_emulator
@pytest.mark.parametrize("nvrtc", [True, False])
@pytest.mark.parametrize("activation", list(_FUSED))
def test_activations_are_computed_apart_until_their_kernels_are_there(pack, tmp_path, activation, nvrtc):
    apart = ["bias", "bias", "none", "none"]
    assert steps_with_activation(pack, tmp_path, nvrtc, activation) == [apart, _FUSED[activation] if nvrtc else apart]


@needs_emulator
@pytest.mark.parametrize("activation", list(_FUSED))
def test_launches_that_a_graph_captures_wait_for_the_kernels_of_activations(pack, tmp_path, activation):
    assert steps_with_activation(pack, tmp_path, True, activation, "captured") == [_FUSED[activation]] * 2


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
    monkeypatch.setenv("SPARSEKILN_PACKS", "")
    _places.name_places()
    assert os.environ["SPARSEKILN_PACKS"] == ""
