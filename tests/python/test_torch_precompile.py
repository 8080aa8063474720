"""All kernels of a model at once: precompile, packs of a model, and the command that writes them."""

import os
import subprocess
import sys
import weakref

import pytest
import torch

import sparsekiln
import sparsekiln.torch
from sparsekiln.torch import background, kernels, precompile

LAYOUT = sparsekiln.patterns.random(2, 3, 0.6, seed=3)
SQUARE = sparsekiln.patterns.random(2, 2, 0.7, seed=4)

_linear, _conv = sparsekiln.torch.BlockSparseLinear, sparsekiln.torch.BlockSparseConv2d
MODELS = {
    "mlp": (lambda: torch.nn.Sequential(_linear(48, 32, LAYOUT, 16, activation="gelu"), torch.nn.ReLU(), _linear(32, 32, SQUARE, 16)),
            lambda: torch.randn(5, 48)),
    "leading dimensions, partial edge blocks": (lambda: _linear(45, 30, LAYOUT, 16, activation="relu"), lambda: torch.randn(2, 3, 45)),
    "convolutions": (lambda: torch.nn.Sequential(_conv(32, 32, 3, layout=SQUARE, block=16, padding=1),
                                                 _conv(32, 32, 3, layout=SQUARE, block=16, stride=2)),
                     lambda: torch.randn(2, 32, 6, 6)),
    "channels last": (lambda: _conv(32, 32, 3, layout=SQUARE, block=16),
                      lambda: torch.randn(2, 32, 6, 6).to(memory_format=torch.channels_last)),
    "lstm": (lambda: sparsekiln.torch.BlockSparseLSTM(32, 32, num_layers=2, layout=SQUARE, block=16), lambda: torch.randn(4, 2, 32)),
    "small world": (lambda: sparsekiln.torch.SmallWorldLSTM(64, 64, density=0.5, block=16), lambda: torch.randn(3, 2, 64)),
}  # fmt: skip


@pytest.fixture
def compiled(monkeypatch) -> list[kernels.Use]:
    """The uses that kernels were compiled for."""
    uses = []
    compile_kernel = kernels.compile_kernel

    def noted(layout, use, *others, **named):
        uses.append(use)
        return compile_kernel(layout, use, *others, **named)

    monkeypatch.setattr(kernels, "compile_kernel", noted)
    monkeypatch.setattr(kernels, "_by_digest", weakref.WeakValueDictionary())  # kernels of layouts that other tests have, too
    background.worker.wait()
    return uses


def _sum(results) -> torch.Tensor:
    return sum(one.sum() for one in torch.utils._pytree.tree_flatten(results)[0])


@pytest.mark.parametrize("name", MODELS)
def test_no_call_after_it_compiles(name, compiled):
    make, sample = MODELS[name]
    model, x = make(), sample().requires_grad_()
    assert precompile(model, x, progress=False) > 0
    assert compiled
    compiled.clear()
    _sum(model(x)).backward()
    assert not compiled


def test_in_evaluation_there_is_no_backward_pass(compiled):
    model = MODELS["mlp"][0]().eval()
    precompile(model, {"input": torch.randn(5, 48)}, progress=False)
    assert {use.operation for use in compiled} == {"forward"}


def test_the_model_computes_nothing_and_keeps_its_gradients(compiled):
    class Counted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = _linear(48, 32, LAYOUT, 16)

        def forward(self, x, scale):
            assert not x.is_meta and x.shape == (5, 48)
            return self.layer(x) * scale

    model = Counted()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    precompile(model, (torch.randn(5, 48), 2.0), progress=False)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_blocks_in_other_slots_are_those_of_the_layer(compiled):
    layer = _linear(48, 32, LAYOUT, 16, max_blocks=6)
    layer.relayout(sparsekiln.Layout([[0, 1, 0], [1, 0, 0]]))
    x = torch.randn(5, 48, requires_grad=True)
    precompile(layer, x, progress=False)
    compiled.clear()
    layer(x).sum().backward()
    assert not compiled


def test_autocast_decides_the_type(compiled):
    with torch.autocast("cpu", torch.bfloat16):
        precompile(_linear(48, 32, LAYOUT, 16), torch.randn(5, 48), progress=False)
    assert {use.dtype for use in compiled} == {torch.bfloat16}


def test_progress_is_told_once_a_call():
    told = []
    count = precompile(MODELS["mlp"][0](), torch.randn(5, 48), progress=lambda done, of, seconds: told.append((done, of)), threads=2)
    assert told == [(done, count) for done in range(1, count + 1)]


def test_what_makes_no_sense_is_refused():
    with pytest.raises(TypeError, match="nn.Module would work"):
        precompile(None, torch.randn(5, 48))
    with pytest.raises(TypeError, match="the sample is"):
        precompile(_linear(48, 32, LAYOUT, 16), 5)
    with pytest.raises(ValueError, match="threads is 0"):
        precompile(_linear(48, 32, LAYOUT, 16), torch.randn(5, 48), threads=0)


def test_an_error_of_a_kernel_comes_out(monkeypatch):
    def failing(*_, **__):
        raise sparsekiln.Error("no room")

    monkeypatch.setattr(kernels, "compile_kernel", failing)
    with pytest.raises(sparsekiln.Error, match="no room"):
        precompile(_linear(48, 32, sparsekiln.patterns.random(2, 3, 0.6, seed=77), 16), torch.randn(5, 48), progress=False)


_USER = """
import sys, torch, sparsekiln
from sparsekiln.torch import kernels
import model_of_user
compile_kernel = kernels.compile_kernel
sources = []
def noted(*given, **named):
    kernel = compile_kernel(*given, **named)
    sources.append(kernel.source)
    return kernel
kernels.compile_kernel = noted
model, x = model_of_user.make()
model(x).sum().backward()
print(" ".join(sources))
"""
_MODEL = """
import sparsekiln, torch
def make():
    layers = (sparsekiln.torch.BlockSparseLinear(32, 32, sparsekiln.Layout(mask), 16) for mask in ([[1, 0], [1, 1]], [[1, 1], [0, 1]]))
    return torch.nn.Sequential(*layers), torch.ones(3, 32, requires_grad=True)
import sparsekiln.torch
"""


def test_another_process_takes_the_kernels_from_a_pack(tmp_path):
    (tmp_path / "model_of_user.py").write_text(_MODEL)
    environment = {**os.environ, "SPARSEKILN_CACHE_DIR": str(tmp_path / "own"), "SPARSEKILN_PACKS": ""}
    command = [sys.executable, "-m", "sparsekiln", "precompile", "--from-model", "model_of_user:make", "-o", "model.pack"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    environment |= {"SPARSEKILN_CACHE_DIR": str(tmp_path / "empty"), "SPARSEKILN_PACKS": str(tmp_path / "model.pack")}
    ran = subprocess.run([sys.executable, "-c", _USER], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    sources = ran.stdout.split()
    assert len(sources) == 6
    assert set(sources) <= {"pack", "memory"}  # three operations of two layers, which share their code
    assert sources.count("pack") >= 3


def test_the_command_refuses_what_it_does_not_find(tmp_path):
    command = [sys.executable, "-m", "sparsekiln", "precompile", "--from-model", "no_such_module:make", "-o", "model.pack"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "no_such_module" in ran.stderr
