"""SmallWorldLSTM against the same network of dense layers."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_small_world import assert_close_to_dense, of_layer  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import SmallWorldLSTM  # noqa: E402

INPUTS, UNITS, BLOCK = 24, 64, 16


def make(dtype=torch.float32, randomised=True, **options):
    torch.manual_seed(0)
    layer = SmallWorldLSTM(INPUTS, UNITS, density=0.5, block=BLOCK, dtype=dtype, **options)
    if randomised:
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter += 0.03 * torch.randn_like(parameter)
    return layer


@pytest.mark.parametrize(("dtype", "steps"), [(torch.float64, 6), (torch.float32, 64), (torch.bfloat16, 64)], ids=str)
@pytest.mark.parametrize(("stride", "internal_steps"), [(2, 5), (1, 2), (4, 3)])
def test_it_computes_what_dense_layers_do(stride, internal_steps, dtype, steps):
    layer = make(dtype, projection_stride=stride, internal_steps=internal_steps)
    x = torch.randn(steps, 3, INPUTS, dtype=dtype)
    state = [0.3 * torch.randn(1, 3, UNITS, dtype=dtype) for _ in range(2)]
    assert_close_to_dense(of_layer(layer, x, state), layer, x, state)


def test_it_starts_as_the_identity():
    layer = make(randomised=False)
    for sparse in layer.internal:
        assert torch.equal(sparse.to_dense(), torch.eye(UNITS))
    assert torch.equal(layer.gates.to_dense(), torch.eye(UNITS).repeat(4, 1))
    assert torch.equal(layer.multiply.weight, torch.eye(INPUTS).repeat(2, 1)[: UNITS // 2])
    assert layer.gate_biases[1].eq(1).all() and not layer.gate_biases[[0, 2, 3]].any()


def test_its_layouts_differ_and_have_the_diagonal():
    layouts = [sparse.layout for sparse in SmallWorldLSTM(INPUTS, 512, density=0.2, block=BLOCK).internal]
    assert len({one.digest for one in layouts}) == len(layouts)
    assert all(one.mask().diagonal().all() for one in layouts)


def test_a_state_that_is_carried_on_gives_what_one_long_sequence_does():
    layer, x = make(), torch.randn(6, 3, INPUTS)
    whole, state = layer(x)
    first, carried = layer(x[:4])
    second, last = layer(x[4:], carried)
    for parts, one in ((torch.cat([first, second]), whole), (last[0], state[0]), (last[1], state[1])):
        torch.testing.assert_close(parts, one, rtol=1e-5, atol=1e-6)  # dense projections round by their number of rows


def test_dropout_is_in_training_alone():
    layer, x = make(dropout=0.5), torch.randn(2, 3, INPUTS)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"internal_steps": 1}, "2 or more"),
        ({"projection_stride": 3}, "no multiple"),
        ({"dropout": -1.0}, "probability"),
        ({"layouts": [np.eye(4, dtype=int)] * 3}, "6 together"),
        ({"layouts": [np.eye(4, k=1, dtype=int)] * 6}, "diagonal"),
    ],
)
def test_a_network_without_sense_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        make(**options)
    with pytest.raises(ValueError, match="no multiple"):
        SmallWorldLSTM(INPUTS, 50)


def test_inputs_and_states_of_another_shape_are_refused():
    layer = make()
    with pytest.raises(ValueError, match=r"\[steps, n, 24\]"):
        layer(torch.randn(3, INPUTS))
    with pytest.raises(ValueError, match="h has the shape"):
        layer(torch.randn(2, 3, INPUTS), (torch.zeros(3, UNITS), torch.zeros(3, UNITS)))


def test_layouts_may_be_given():
    layouts = [sparsekiln.patterns.barabasi_albert(4, 1, diagonal=True, seed=number) for number in range(3)]
    layer = SmallWorldLSTM(INPUTS, UNITS, layouts, internal_steps=2, block=BLOCK)
    assert [one.layout for one in layer.internal] == layouts[:2]


def test_it_gives_the_same_with_and_without_a_gradient():
    layer, x = make(), torch.randn(5, 3, INPUTS)
    with_gradient, state = layer(x)
    with torch.no_grad():
        without, last = layer(x)
    assert torch.equal(with_gradient, without) and torch.equal(state[0], last[0]) and torch.equal(state[1], last[1])


def test_gradients_of_many_steps_do_not_depend_on_how_many_are_summed_at_a_time(monkeypatch):
    from sparsekiln.torch.recurrent import small_world_steps

    layer, x = make(torch.float64), torch.randn(7, 3, INPUTS, dtype=torch.float64)
    state = [torch.randn(1, 3, UNITS, dtype=torch.float64) for _ in range(2)]
    found = []
    for rows in (1, 6, 1000):
        monkeypatch.setattr(small_world_steps, "ROWS", rows)
        layer.zero_grad()
        found.append(of_layer(layer, x, state))
    for others in found[1:]:
        for one, other in zip(found[0], others):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", [(0, 3, INPUTS), (4, 0, INPUTS)])
def test_without_steps_or_sequences_there_is_nothing_to_compute(shape):
    layer, x = make(), torch.randn(shape, requires_grad=True)
    y, (h, c) = layer(x)
    assert y.shape == (*shape[:2], UNITS) and h.shape == c.shape == (1, shape[1], UNITS)
    (y.sum() + h.sum() + c.sum()).backward()
    assert not any(one.grad.any() for one in (x, *layer.parameters()) if one.grad is not None)


def test_what_is_frozen_gets_no_gradient():
    layer, x = make(), torch.randn(4, 3, INPUTS)
    layer(x)[0].square().sum().backward()
    wanted = layer.gate_gains.grad.clone()
    layer.zero_grad()
    for parameter in (*layer.internal.parameters(), *layer.gates.parameters()):
        parameter.requires_grad_(False)
    layer(x)[0].square().sum().backward()
    assert all(one.grad is None for one in layer.internal.parameters())
    torch.testing.assert_close(layer.gate_gains.grad, wanted)


def test_what_is_frozen_is_not_computed(monkeypatch):
    from sparsekiln.torch.recurrent import small_world_steps

    layer, x = make(), torch.randn(4, 3, INPUTS)
    for parameter in (*layer.internal.parameters(), *layer.gates.parameters()):
        parameter.requires_grad_(False)
    y, _ = layer(x)
    launched, run = [], small_world_steps.run
    monkeypatch.setattr(small_world_steps, "run", lambda kernel, *given, **named: launched.append(kernel.op) or run(kernel, *given, **named))
    y.sum().backward()
    assert not launched  # neither gradients of weights, nor that of h0


@pytest.mark.parametrize("steps", [3, 40])
def test_gradients_of_weights_in_16_bits_are_rounded_once(steps):
    layer, x = make(torch.bfloat16, internal_steps=2), torch.randn(steps, 64, INPUTS, dtype=torch.bfloat16)
    layer(x)[0].sum().backward()
    found = [one.weight_values.grad.clone() for one in (*layer.internal, layer.gates)]
    layer.zero_grad()
    for part in x.split(32, 1):  # sums of half as many rows each, added in float32
        layer(part)[0].sum().backward()
        for number, one in enumerate((*layer.internal, layer.gates)):
            found[number] = found[number].float() - one.weight_values.grad.float()
        layer.zero_grad()
    layer(x)[0].sum().backward()
    for rest, one in zip(found, (*layer.internal, layer.gates)):
        assert rest.norm() < 0.008 * one.weight_values.grad.float().norm()


def test_dropout_has_the_gradient_of_finite_differences():
    layer, x = make(torch.float64, internal_steps=2, dropout=0.5), torch.randn(3, 2, INPUTS, dtype=torch.float64)
    values = layer.gates.weight_values

    def loss():
        torch.manual_seed(4)
        return layer(x)[0].square().sum()

    loss().backward()
    direction = torch.randn_like(values)
    with torch.no_grad():
        values += 1e-6 * direction
        above = loss()
        values -= 2e-6 * direction
        below = loss()
    torch.testing.assert_close((above - below) / 2e-6, (values.grad * direction).sum(), rtol=1e-6, atol=1e-9)


def test_second_derivatives_are_refused():
    layer, x = make(), torch.randn(2, 3, INPUTS, requires_grad=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)[0].sum(), x)


def test_torch_compile_takes_it_as_one_graph():
    layer, x = make(), torch.randn(3, 2, INPUTS)
    wanted = layer(x)[0]
    wanted.square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    compiled = torch.compile(layer, fullgraph=True)
    y, _ = compiled(x)
    y.square().sum().backward()
    torch.testing.assert_close(y, wanted)
    for parameter, gradient in zip(layer.parameters(), gradients):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5)


def test_under_autocast_it_computes_in_its_type():
    layer, x = make(), torch.randn(4, 3, INPUTS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = layer(x)
    assert y.dtype == torch.bfloat16
    assert (y.float() - layer(x)[0]).norm() < 0.1 * y.float().norm()


def test_its_operator_is_what_pytorch_expects_of_one():
    layer = make(internal_steps=2)
    layers = [*layer.internal, layer.gates]
    products = [torch.randn(3, 2, UNITS // 2, requires_grad=True) for _ in range(2)]
    of_inputs = [*layer.multiply_norm.parameters(), *layer.add_norm.parameters()]
    h, c = (torch.randn(2, UNITS, requires_grad=True) for _ in range(2))
    gains = torch.stack([norm.weight for norm in layer.internal_norms])
    operands = (
        *products, of_inputs, h, c, [one.weight_values for one in layers], [one.crow_indices for one in layers],
        [one.col_indices for one in layers], gains, torch.zeros_like(gains), layer.gate_gains.flatten(), layer.gate_biases.flatten(),
        None, 1e-6, True,
    )  # fmt: skip
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(torch.ops.sparsekiln.small_world_lstm, operands, test_utils=checks)


def test_inputs_may_have_gaps_and_need_a_gradient():
    layer, kept = make(), torch.randn(5, INPUTS, 3)
    found = []
    for x in (kept.transpose(1, 2).requires_grad_(), kept.transpose(1, 2).contiguous().requires_grad_()):
        layer.zero_grad()
        y, _ = layer(x)
        (gradient,) = torch.autograd.grad(y.square().sum(), x)
        found.append((y, gradient))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-6, atol=1e-7)


def test_an_input_of_another_type_is_refused():
    with pytest.raises(RuntimeError, match="dtype"):
        make()(torch.randn(2, 3, INPUTS, dtype=torch.bfloat16))


def test_its_projections_are_modules_as_others():
    layer, x = make(), torch.randn(4, 3, INPUTS)
    torch.nn.utils.parametrizations.weight_norm(layer.multiply)
    calls = []
    layer.multiply.register_forward_hook(lambda *given: calls.append(given))
    before = layer(x)[0].detach()
    with torch.no_grad():
        layer.multiply.parametrizations.weight.original1 *= -1
    after = layer(x)[0]
    after.square().sum().backward()
    assert len(calls) == 2 and not torch.equal(before, after)
    assert layer.multiply.parametrizations.weight.original0.grad.abs().sum() > 0


def test_it_is_trained_after_its_projections_were_made_sparse():
    network, x = torch.nn.Sequential(make()), torch.randn(3, 2, INPUTS)
    sparsekiln.torch.sparsify_(network, 0.5, block=8)
    assert isinstance(network[0].multiply, sparsekiln.torch.BlockSparseLinear)
    network(x)[0].square().sum().backward()
    assert network[0].multiply.weight_values.grad.abs().sum() > 0


def test_gradients_that_are_expanded_or_not_aligned():
    layer, x = make(torch.float64), torch.randn(5, 3, INPUTS, dtype=torch.float64)
    y = layer(x)[0]
    found = []
    expanded, displaced = torch.full_like(y[0, 0, 0], 2).expand_as(y), y.new_full((y.numel() + 1,), 2)[1:].view_as(y)
    for of_y in (torch.full_like(y, 2), expanded, displaced):
        layer.zero_grad()
        layer(x)[0].backward(of_y)
        found.append(layer.gates.weight_values.grad.clone())
    for other in found[1:]:
        torch.testing.assert_close(found[0], other)


def test_gradients_of_the_gains_of_inputs_in_16_bits_are_summed_in_more():
    narrow, x = make(torch.bfloat16, internal_steps=2), torch.randn(2, 600, INPUTS).to(torch.bfloat16)
    found = []
    for one in (copy.deepcopy(narrow).float(), narrow):
        one(x.to(one.add.weight.dtype))[0].float().square().sum().backward()
        found.append(torch.cat([one.multiply_norm.bias.grad, one.add_norm.bias.grad]).float())
    assert (found[0] - found[1]).norm() < 0.01 * found[0].norm()


@pytest.mark.parametrize("steps,n", [(7, 200), (2, 600)])
def test_without_a_gradient_several_windows_give_the_same(steps, n):
    layer, x = make(), torch.randn(steps, n, INPUTS)
    wanted = layer(x)[0].detach()
    with torch.no_grad():
        assert torch.equal(layer(x)[0], wanted)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grad", [True, False])
def test_traces_of_torch_jit(grad):
    layer = SmallWorldLSTM(24, 64, block=16, density=0.5)
    with torch.set_grad_enabled(grad):
        trace = torch.jit.trace(layer, (torch.randn(4, 3, 24),))
        for steps in (4, 6):
            x = torch.randn(steps, 3, 24)
            assert torch.equal(trace(x)[0], layer(x)[0])
