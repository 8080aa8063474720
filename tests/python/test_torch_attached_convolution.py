"""Layers of convolutions share compiled code, whatever their layouts: a layout is only attached to it."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_convolution import LAYERS, TRANSPOSED, check, images  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import Sparsifier  # noqa: E402

MASK = [[1, 1, 1], [1, 1, 0], [0, 0, 0]]


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEKILN_CACHE_DIR", str(tmp_path))


def sources_of(layer):
    return [kernel.source for kernel in layer._kernels.kernels()]


@pytest.mark.parametrize("made, options", [(LAYERS, {}), (LAYERS, {"tap_mask": MASK, "stride": 2}), (TRANSPOSED, {"stride": 2})])
def test_twenty_layers_share_compiles(made, options):
    generator = np.random.default_rng(0)
    sources = []
    for _ in range(20):
        rows, cols = generator.integers(1, 6, 2)
        grid = generator.random((rows, cols)) < 0.5
        grid[0, 0] = True
        inputs, outputs = (cols, rows) if made is LAYERS else (rows, cols)
        layer = made[2](16 * inputs, 16 * outputs, 3, layout=grid, block=16, padding=1, bias=False, **options)
        check(layer, images(layer, 2, (5, 6)))
        assert {kernel.tier for kernel in layer._kernels.kernels()} == {"attached"}
        sources += sources_of(layer)
    assert len(sources) > 50
    assert sources.count("compiled") == 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("made", [LAYERS, TRANSPOSED])
def test_another_layout_compiles_nothing_and_is_right(made, dtype):
    layer = made[2](48, 32, 3, density=1.0, block=16, padding=1, dtype=getattr(torch, dtype))
    check(layer, images(layer, 2, (5, 6)))
    for density in (0.6, 0.3):
        layer.relayout(sparsekiln.patterns.random(layer.layout.rows, layer.layout.cols, density, seed=1))
        check(layer, images(layer, 2, (5, 6)))
        assert len(sources_of(layer)) == 3 and "compiled" not in sources_of(layer)


def test_a_model_that_is_pruned_while_it_trains_compiles_each_operation_once():
    torch.manual_seed(0)
    layers = [LAYERS[2](*channels, 3, density=1.0, block=16, padding=1) for channels in ((32, 64), (64, 32))]
    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sparsifier = Sparsifier(model, final_density=0.25, block=16, begin_step=1, end_step=5, every=1, optimizer=optimizer)
    x, layouts, made = torch.randn(2, 32, 6, 6), set(), {}
    for _ in range(6):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        for layer in layers:
            layouts.add(layer.layout.digest)
            made.update({id(kernel): kernel for kernel in layer._kernels.kernels()})
        sparsifier.step()
    assert len(layouts) >= 8
    sources = [kernel.source for kernel in made.values()]
    assert len(sources) >= 20
    assert sources.count("compiled") == 3


def test_a_mask_for_each_block_has_its_layout_in_its_code():
    mask = np.ones((2, 3, 3), bool)
    mask[0, 2] = False
    layer = LAYERS[2](16, 32, 3, layout=[[1], [1]], block=16, padding=1, tap_mask=mask)
    check(layer, images(layer, 2, (5, 6)))
    assert {kernel.tier for kernel in layer._kernels.kernels()} == {"baked"}
