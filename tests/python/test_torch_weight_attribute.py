"""`weight` of a layer, which code for dense layers reads: what it is like costs nothing, and what it holds is computed."""

import copy
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import sparsekiln  # noqa: E402
from sparsekiln.torch import (  # noqa: E402
    BlockSparseConv1d, BlockSparseConv2d, BlockSparseConvTranspose2d, BlockSparseLinear, linear, sparsify_,
)  # fmt: skip
from sparsekiln.torch.weight_tools import ComputedWeight  # noqa: E402

_LAYOUT = sparsekiln.patterns.random(5, 6, 0.5, 1)
_TAPS = torch.rand(_LAYOUT.blocks, 3, 3, generator=torch.Generator().manual_seed(1)) < 0.7
# A layer, the shape of its input, and of its weight.
LAYERS = {
    "whole": (lambda **to: BlockSparseLinear(96, 80, _LAYOUT, 16, **to), (3, 96), (80, 96)),
    "cut": (lambda **to: BlockSparseLinear(90, 75, _LAYOUT, 16, **to), (3, 90), (75, 90)),
    "convolution": (lambda **to: BlockSparseConv2d(96, 80, 3, layout=_LAYOUT, block=16, **to), (2, 96, 5, 5), (80, 96, 3, 3)),
    "cut convolution": (lambda **to: BlockSparseConv1d(90, 75, 3, layout=_LAYOUT, block=16, **to), (2, 90, 5), (75, 90, 3)),
    "taps of each block": (
        lambda **to: BlockSparseConv2d(96, 80, 3, layout=_LAYOUT, block=16, tap_mask=_TAPS, **to), (2, 96, 5, 5), (80, 96, 3, 3)
    ),
    "taps of all blocks": (
        lambda **to: BlockSparseConv2d(96, 80, 3, layout=_LAYOUT, block=16, tap_mask=torch.eye(3), **to), (2, 96, 5, 5), (80, 96, 3, 3)
    ),
    "groups": (lambda **to: BlockSparseConv2d(96, 96, 3, groups=2, density=0.5, block=16, **to), (2, 96, 5, 5), (96, 48, 3, 3)),
    "transposed": (lambda **to: BlockSparseConvTranspose2d(80, 96, 3, layout=_LAYOUT, block=16, **to), (2, 80, 5, 5), (80, 96, 3, 3)),
}  # fmt: skip
EACH = pytest.mark.parametrize("kind", list(LAYERS))
CASES = pytest.mark.parametrize("kind, room", [(kind, room) for kind in LAYERS for room in (None, "in order", "in slots")])


def make_layer(kind, room=None, **to):
    """With room for other blocks, and with blocks in other slots than the first ones."""
    make, shape, of_weight = LAYERS[kind]
    if room is None:
        return make(**to), shape, of_weight
    layer = make(max_blocks=20, **to) if kind != "groups" else make(max_blocks=18, **to)
    if room == "in slots":
        mask = layer.layout.mask()
        mask[tuple(zip(*mask.nonzero()))[0][0], mask.nonzero()[1][0]] = False
        layer.relayout(mask)
        assert layer._gathered is not None
    return layer, shape, of_weight


def dense(layer):
    return layer.to_dense() if isinstance(layer, BlockSparseLinear) else layer.dense_weight()


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_a_weight_is_like_is_known_without_computing_it(kind, dtype, monkeypatch):
    layer, _, shape = make_layer(kind, dtype=dtype)
    for name in ("to_dense", "to_bsr", "dense_weight"):
        if hasattr(layer, name):
            monkeypatch.setattr(layer, name, lambda: pytest.fail("it is computed"))
    weight = layer.weight
    assert isinstance(weight, torch.Tensor) and weight.dtype == dtype and weight.device == torch.device("cpu")
    assert weight.shape == shape and weight.size() == shape and weight.size(0) == shape[0] == len(weight)
    assert weight.dim() == weight.ndim == len(shape) and weight.numel() == torch.numel(weight) == torch.Size(shape).numel()
    assert weight.requires_grad and not weight.is_meta and not weight.is_cuda and weight.is_floating_point()
    assert weight.element_size() == dtype.itemsize
    assert weight.layout == (torch.sparse_bsr if kind == "whole" else torch.strided)
    layer.weight_values.requires_grad_(False)
    assert not layer.weight.requires_grad
    assert make_layer(kind, device="meta")[0].weight.is_meta


@CASES
def test_a_weight_that_is_used_is_the_layers(kind, room):
    layer, _, _ = make_layer(kind, room)
    expected = dense(layer)
    weight = layer.weight
    whole = weight.to_dense() if weight.layout == torch.sparse_bsr else weight + 0
    assert torch.equal(whole, expected) and type(whole) is torch.Tensor
    if kind != "whole":
        assert torch.equal(layer.weight[0], expected[0]) and torch.equal(layer.weight.detach(), expected)
        assert torch.equal(layer.weight.data, expected) and not layer.weight.data.requires_grad
        assert layer.weight.numpy(force=True).shape == expected.shape and "tensor(" in repr(layer.weight)
        (layer.weight * expected.detach()).sum().backward()
        assert torch.equal(layer._used_values().detach(), layer.blocks_in(layer.weight_values.grad))


@CASES
def test_copies_of_a_weight_hold_it(kind, room):
    if kind == "whole":
        pytest.skip("PyTorch copies no BSR tensors")
    layer, _, _ = make_layer(kind, room)
    values = [copy.deepcopy(layer.weight.detach()), pickle.loads(pickle.dumps(layer.weight.detach())), layer.weight.detach().clone()]
    values += [copy.deepcopy(layer.weight.data), torch.nn.Parameter(layer.weight.detach()), torch.as_tensor(layer.weight)]
    assert all(torch.equal(value, dense(layer)) for value in values)


def test_products_with_a_weight_have_gradients():
    for kind in ("whole", "cut"):
        layer, shape, _ = make_layer(kind)
        x = torch.randn(shape)
        y = linear(x, layer.weight, layer.bias) if kind == "whole" else torch.nn.functional.linear(x, layer.weight, layer.bias)
        torch.testing.assert_close(y, layer(x))
        y.sum().backward()
        mine = layer.weight_values.grad.clone()
        layer.zero_grad()
        layer(x).sum().backward()
        torch.testing.assert_close(mine, layer.weight_values.grad)


def test_a_kernel_takes_a_weight_for_what_it_is():
    layer, _, shape = make_layer("cut")
    kernel = sparsekiln.compile(sparsekiln.patterns.random(2, 3, 0.5, 1), 32, 75, in_features=90, out_features=40, target="cpu")
    w = torch.randn(kernel.layout.blocks, 32, 32)
    with torch.no_grad():
        assert torch.equal(kernel(layer.weight, w), kernel(dense(layer), w))
    sparsekiln.Layout(make_layer("whole")[0].weight.detach())


@pytest.mark.parametrize("write", [
    lambda weight: weight.zero_(), lambda weight: torch.nn.init.ones_(weight), lambda weight: weight.__setitem__(0, 0.0),
    lambda weight: weight.data.copy_(weight), lambda weight: weight.copy_(torch.zeros(weight.shape)),
])  # fmt: skip
def test_a_write_that_would_be_lost_is_refused(write):
    layer, _, _ = make_layer("cut")
    with torch.no_grad(), pytest.raises(TypeError, match="write to a copy.*weight_values"):
        write(layer.weight)


def test_the_bsr_form_shares_the_values():
    layer, _, _ = make_layer("whole")
    with torch.no_grad():
        layer.weight.values().zero_()
    assert not layer.weight_values.any()


class OfType(torch.nn.Module):
    """As in T5, Whisper and Bart."""

    def __init__(self, inner, outer):
        super().__init__()
        self.inner, self.outer = inner, outer

    def forward(self, x):
        x = torch.relu(self.inner(x.to(self.inner.weight.device)))
        if isinstance(self.outer.weight, torch.Tensor) and x.dtype != self.outer.weight.dtype:
            x = x.to(self.outer.weight.dtype)
        return self.outer(x).reshape(-1, *self.outer.weight.shape[:1])


@pytest.mark.parametrize("features", [(64, 96), (60, 90)])
def test_a_model_that_reads_weights_compiles_as_one_graph_and_exports(features):
    model = OfType(torch.nn.Linear(*features), torch.nn.Linear(*reversed(features)))
    sparsify_(model, 0.5, block=16)
    x = torch.randn(4, features[0])
    expected = model(x)
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), expected)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend=backend)(x), expected)
    for strict in (False, True):
        exported = torch.export.export(model, (x,), strict=strict).module()
        torch.testing.assert_close(exported(x), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(x)


@CASES
def test_a_weight_that_is_used_in_a_compiled_function_is_the_layers(kind, room):
    layer, shape, _ = make_layer(kind, room)
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def total(x):
        return layer(x).sum() + (layer.weight * 2).sum(), layer.weight

    x = torch.randn(shape)
    value, weight = total(x)
    torch.testing.assert_close(weight, dense(layer))
    torch.testing.assert_close(value, layer(x).sum() + 2 * dense(layer).sum())
    value.backward()
    mine = layer.weight_values.grad.clone()
    layer.zero_grad()
    (layer(x).sum() + (dense(layer) * 2).sum()).backward()
    torch.testing.assert_close(mine, layer.weight_values.grad)


@pytest.mark.parametrize("kind", ["whole", "cut"])
def test_derivatives_of_torch_func_pass_through_a_weight(kind):
    layer, _, _ = make_layer(kind)
    values = layer.weight_values.detach()

    class Squares(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self):
            return self.layer.weight.square().sum()

    def squares(values):
        return torch.func.functional_call(Squares(), {"layer.weight_values": values}, ())

    counted = layer.counted()
    expected = 2 * values if counted is None else 2 * values * counted
    torch.testing.assert_close(torch.func.grad(squares)(values), expected)


def test_a_weight_is_a_tensor_of_a_class_of_its_own_only_where_it_must_be():
    layer, _, _ = make_layer("whole")
    assert type(layer.weight) is ComputedWeight
    assert type(layer.weight.detach()) is torch.Tensor and type(layer.to_bsr()) is torch.Tensor
