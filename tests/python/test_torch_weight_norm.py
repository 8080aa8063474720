"""weight_norm: one gain for each output feature, as PyTorch's has for dense layers."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_convolution import LAYERS, TRANSPOSED, close, refused  # noqa: E402

from sparsekiln.torch import BlockSparseConv2d, BlockSparseLinear, weight_norm  # noqa: E402

parametrize = torch.nn.utils.parametrize
_LAYOUT = [[1, 0, 1], [0, 1, 0]]
MAKERS = {
    "linear": lambda **options: BlockSparseLinear(42, 30, _LAYOUT, 16, **options),
    "conv": lambda **options: LAYERS[1](48, 32, 3, layout=_LAYOUT, block=16, **options),
    "transposed": lambda **options: TRANSPOSED[2](32, 48, 2, layout=_LAYOUT, block=16, **options),
    "room": lambda **options: LAYERS[2](48, 32, 3, layout=_LAYOUT, block=16, max_blocks=5, **options),
}


@pytest.fixture(params=MAKERS)
def make(request):
    torch.manual_seed(0)
    return MAKERS[request.param]


@pytest.fixture
def layer(make):
    return make()


def parameters_of(layer):
    list_ = layer.parametrizations.weight_values
    return list_.original0, list_.original1


def dense_of(layer):
    """The weight as a dense tensor whose first dimension are the output features."""
    dense = layer.to_dense() if isinstance(layer, BlockSparseLinear) else layer.dense_weight()
    return dense if layer.OUTPUTS == 0 else dense.transpose(0, 1)


def input_of(layer):
    if isinstance(layer, BlockSparseLinear):
        return torch.randn(5, layer.in_features)
    return torch.randn(2, layer.in_channels, *(5, 4)[: layer.dimensions])


def test_the_weight_stays_and_the_gains_are_its_norms(layer):
    x, before, plain = input_of(layer), dense_of(layer).detach(), copy.deepcopy(layer)
    assert weight_norm(layer) is layer
    gain, v = parameters_of(layer)
    norms = before.flatten(1).norm(dim=1)
    close(gain[: norms.shape[0]], norms)
    assert v.shape == layer.weight_values.shape and {name for name, _ in layer.named_parameters()} == {
        "bias", "parametrizations.weight_values.original0", "parametrizations.weight_values.original1",
    }  # fmt: skip
    close(dense_of(layer), before)
    close(layer(x), plain(x))


def test_values_and_gradients_are_those_of_the_dense_formula(make):
    layer, plain = weight_norm(make()), make()
    gain, v = parameters_of(layer)
    with torch.no_grad():
        gain.uniform_(0.5, 2)
        v.mul_(3)
        plain.weight_values.copy_(v)
        layer.bias.zero_()
    x = input_of(layer)
    dy = torch.randn(layer(x).shape)
    found = torch.autograd.grad(layer(x), (gain, v), dy)
    # The same by PyTorch's own function, of the dense weight in float64.
    dense = dense_of(plain).detach().double().requires_grad_()
    outputs = dense.shape[0]
    g = gain.detach().double()[:outputs].requires_grad_()
    weight = torch._weight_norm(dense, g.reshape(-1, *(1 for _ in dense.shape[1:])), 0)
    if isinstance(layer, BlockSparseLinear):
        y = torch.nn.functional.linear(x.double(), weight)
    elif layer.OUTPUTS == 0:
        y = layer.dense_function(x.double(), weight)
    else:
        y = layer.dense_function(x.double(), weight.transpose(0, 1))
    close(dense_of(layer).double(), weight.detach())
    close(layer(x).double(), y)
    dg, dv = torch.autograd.grad(y, (g, dense), dy.double())
    close(found[0][:outputs].double(), dg, 1e-4)
    wanted = plain.blocks_of((dv if layer.OUTPUTS == 0 else dv.transpose(0, 1)).float())
    close(found[1][: layer.layout.blocks], wanted, 1e-4)
    assert not found[1][layer.layout.blocks :].any()


def test_outputs_without_blocks_and_of_zeros_stay_zero_with_finite_gradients():
    layer = BlockSparseConv2d(32, 48, 3, layout=[[1, 1], [0, 0], [0, 1]], block=16)
    with torch.no_grad():
        layer.weight_values[0, :, 3] = layer.weight_values[1, :, 3] = 0
    weight_norm(layer)
    gain, v = parameters_of(layer)
    assert not gain[3] and not gain[16:32].any() and gain[32:].all()
    layer(torch.randn(2, 32, 4, 4)).square().sum().backward()
    assert gain.grad.isfinite().all() and v.grad.isfinite().all() and not v.grad[0, :, 3].any()


def test_it_trains_copies_saves_and_becomes_permanent(make):
    layer, other = make(), weight_norm(make())
    x = input_of(layer)
    weight_norm(layer)
    optimizer = torch.optim.SGD(layer.parameters(), 0.01)
    before = layer(x).detach()
    layer(x).square().sum().backward()
    optimizer.step()
    assert not torch.equal(layer(x), before)
    y, values = layer(x), layer.weight_values.detach().clone()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(copy.deepcopy(layer)(x), y) and torch.equal(other(x), y)
    parametrize.remove_parametrizations(layer, "weight_values")
    assert torch.equal(layer.weight_values, values) and torch.equal(layer(x), y)
    layer.relayout([[1, 1, 0], [0, 1, 0]])


def test_it_is_compiled_in_one_graph_and_follows_autocast():
    layer = weight_norm(MAKERS["conv"]())
    x = input_of(layer)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    close(compiled(x), layer(x))
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    close(y.float(), layer(x), 1e-2)


def test_half_types_keep_their_type():
    layer = MAKERS["transposed"](dtype=torch.bfloat16)
    before = layer.weight_values.detach().float()
    weight_norm(layer)
    assert layer.weight_values.dtype == torch.bfloat16
    close(layer.weight_values.float(), before, 1e-2)


def test_a_parametrized_layer_keeps_its_layout():
    layer = weight_norm(MAKERS["conv"]())
    with refused(RuntimeError, "parametrization", "remove_parametrizations"):
        layer.relayout([[1, 1, 1], [0, 1, 0]])


def test_other_layers():
    with refused(TypeError, "a Linear", "parametrizations.weight_norm"):
        weight_norm(torch.nn.Linear(8, 8))


def test_a_layer_without_memory_takes_a_state_or_memory(make):
    layer, other, empty = (weight_norm(make(device=device)) for device in (None, "meta", "meta"))
    x = input_of(layer)
    other.load_state_dict(layer.state_dict(), assign=True)
    assert torch.equal(other(x), layer(x))
    empty.to_empty(device="cpu").load_state_dict(layer.state_dict())
    assert torch.equal(empty(x), layer(x))
