"""BlockSparseLSTM and BlockSparseLSTMCell against the dense modules with the same weights: values, states, gradients."""

import copy
import io
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import sparsekiln  # noqa: E402
from sparsekiln.torch import BlockSparseLSTM, BlockSparseLSTMCell, Sparsifier  # noqa: E402

INPUTS, HIDDEN, BLOCK = 20, 64, 16
TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 6e-2}


def layout(seed=3, rows=HIDDEN // BLOCK, cols=HIDDEN // BLOCK):
    return sparsekiln.patterns.random(rows, cols, 0.4, seed=seed)


def make(seed=0, **options):
    torch.manual_seed(seed)
    return BlockSparseLSTM(INPUTS, HIDDEN, **{"layout": layout(), "block": BLOCK, **options})


def close(found, wanted, tolerance):
    scale = wanted.abs().max().clamp(min=1e-9)
    assert (found - wanted).abs().max() <= tolerance * scale


def results(module, x, state, packed):
    """Everything that a module computes of these, and their gradients from a loss of all."""
    x, state = x.clone().requires_grad_(), [one.clone().requires_grad_() for one in state]
    taken = x
    if packed:
        lengths = [x.shape[0] - 1, x.shape[0], 1]
        taken = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    y, (h, c) = module(taken, tuple(state))
    computed = (y.data if packed else y, h, c)
    generator = torch.Generator().manual_seed(1)
    sum((one * torch.randn(one.shape, generator=generator).to(one.dtype)).sum() for one in computed).backward()
    return [*computed, x.grad, *(one.grad for one in state)]


@pytest.mark.parametrize("dtype", list(TOLERANCES), ids=str)
@pytest.mark.parametrize(("bidirectional", "sparse_inputs"), list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("packed", [False, True])
def test_it_computes_what_the_dense_module_does(packed, bidirectional, sparse_inputs, dtype):
    directions = 2 if bidirectional else 1
    of_inputs = None
    if sparse_inputs:
        widths = [INPUTS] * directions + [HIDDEN * directions] * directions
        of_inputs = [layout(seed, HIDDEN // BLOCK, -(-width // BLOCK)) for seed, width in enumerate(widths)]
    layouts = [layout(seed) for seed in range(2 * directions)]
    sparse = make(num_layers=2, bidirectional=bidirectional, layout=layouts, input_layout=of_inputs, dtype=dtype)
    dense = sparse.to_dense()
    x = torch.randn(5, 3, INPUTS, dtype=dtype)
    state = [0.5 * torch.randn(2 * directions, 3, HIDDEN, dtype=dtype) for _ in range(2)]
    for found, wanted in zip(results(sparse, x, state, packed), results(dense, x, state, packed)):
        assert found.dtype == wanted.dtype
        close(found, wanted, TOLERANCES[dtype])
    for number, gates in enumerate(sparse.gates):
        suffix = f"l{number // directions}" + ("_reverse" if number % directions else "")
        of_hidden = getattr(dense, f"weight_hh_{suffix}").grad
        close(gates.recurrent.weight_values.grad, gates.recurrent.blocks_of(of_hidden), TOLERANCES[dtype])
        of_input = getattr(dense, f"weight_ih_{suffix}").grad
        if sparse_inputs:
            close(gates.input.weight_values.grad, gates.input.blocks_of(of_input), TOLERANCES[dtype])
        else:
            close(gates.input.weight.grad, of_input, TOLERANCES[dtype])
        close(gates.input.bias.grad, getattr(dense, f"bias_ih_{suffix}").grad, TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_64_steps_give_what_the_dense_module_does(dtype):
    sparse = make(dtype=dtype)
    x = torch.randn(64, 4, INPUTS, dtype=dtype)
    state = [torch.zeros(1, 4, HIDDEN, dtype=dtype) for _ in range(2)]
    # The dense module rounds c to bfloat16 after each step, so what it computes in float32 is the measure.
    dense = copy.deepcopy(sparse).to_dense().float()
    wanted = results(dense, x.float(), [one.float() for one in state], False)
    for found, expected in zip(results(sparse, x, state, False), wanted):
        close(found.float(), expected, {torch.float32: 1e-4, torch.bfloat16: 0.1}[dtype])


def test_batch_first_single_sequences_and_no_state_are_taken_like_nn_lstm():
    sparse = make(batch_first=True)
    dense = sparse.to_dense()
    x = torch.randn(3, 5, INPUTS)
    for taken in (x, x[0], x[:, :1], x[:1]):
        y, (h, c) = sparse(taken)
        wanted, (h_wanted, c_wanted) = dense(taken)
        for found, expected in ((y, wanted), (h, h_wanted), (c, c_wanted)):
            assert found.shape == expected.shape
            close(found, expected, 2e-5)


def test_a_state_that_is_carried_on_gives_what_one_long_sequence_does():
    layer = make()
    x = torch.randn(6, 3, INPUTS)
    whole, state = layer(x)
    first, carried = layer(x[:4])
    second, last = layer(x[4:], carried)
    for parts, one in ((torch.cat([first, second]), whole), (last[0], state[0]), (last[1], state[1])):
        torch.testing.assert_close(parts, one, rtol=1e-5, atol=1e-6)  # dense projections round by their number of rows


def test_without_gradients_the_same_bits_are_computed():
    layer = make(num_layers=2, bidirectional=True)
    x = torch.randn(5, 3, INPUTS)
    y, _ = layer(x)
    with torch.no_grad():
        assert torch.equal(layer(x)[0], y)


def test_a_cell_is_one_step():
    torch.manual_seed(0)
    cell = BlockSparseLSTMCell(INPUTS, HIDDEN, layout=layout(), block=BLOCK)
    dense = torch.nn.LSTMCell(INPUTS, HIDDEN)
    weight_ih, weight_hh, bias = cell.gates.dense()
    with torch.no_grad():
        for parameter, value in zip(dense.parameters(), (weight_ih, weight_hh, bias, torch.zeros_like(bias))):
            parameter.copy_(value)
    x, state = torch.randn(3, INPUTS), tuple(torch.randn(3, HIDDEN) for _ in range(2))
    for found, wanted in zip(cell(x, state), dense(x, state)):
        close(found, wanted, 2e-5)
    for found, wanted in zip(cell(x[0]), dense(x[0])):
        close(found, wanted, 2e-5)


def test_from_lstm_keeps_the_strongest_blocks_of_all_gates():
    torch.manual_seed(0)
    dense = torch.nn.LSTM(INPUTS, HIDDEN, 2, bidirectional=True)
    layer = BlockSparseLSTM.from_lstm(dense, density=0.25, block=BLOCK)
    again = layer.to_dense()
    for name, weight in dense.named_parameters():
        if "weight_hh" not in name:
            continue
        norms = weight.detach().reshape(4, 4, BLOCK, 4, BLOCK).square().sum((0, 2, 4))
        kept = norms >= norms.flatten().sort(descending=True).values[3]
        mask = kept.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1).repeat(4, 1)
        assert torch.equal(getattr(again, name), weight * mask)
    x = torch.randn(4, 2, INPUTS)
    all_blocks = BlockSparseLSTM.from_lstm(dense, layout=np.ones((4, 4), int), block=BLOCK)
    close(all_blocks(x)[0], dense(x)[0], 2e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_states_and_values_in_any_memory_order_are_taken(compiled):
    layer, x = make(), torch.randn(4, 3, INPUTS)
    state = torch.randn(1, HIDDEN, 3).transpose(1, 2)
    contiguous = state.contiguous()
    wanted, _ = layer(x, (contiguous, contiguous))
    wanted.sum().backward()
    gradient = layer.gates[0].recurrent.weight_values.grad.clone()
    layer.zero_grad()
    run = torch.compile(layer, fullgraph=True) if compiled else layer
    y, _ = run(x, (state, state))
    y.sum().backward()
    close(y, wanted, 1e-6)
    close(layer.gates[0].recurrent.weight_values.grad, gradient, 1e-6)


def test_values_that_a_parametrization_computes_have_gradients():
    class Transposed(torch.nn.Module):
        def forward(self, values):
            return values.transpose(1, 2)

    layer, x = make(), torch.randn(4, 3, INPUTS)
    recurrent = layer.gates[0].recurrent
    torch.nn.utils.parametrize.register_parametrization(recurrent, "weight_values", Transposed())
    layer(x)[0].sum().backward()
    found = recurrent.parametrizations.weight_values.original.grad
    dense = layer.to_dense()
    dense(x)[0].sum().backward()
    close(found.transpose(1, 2), recurrent.blocks_of(dense.weight_hh_l0.grad), 2e-5)


def test_only_the_gradients_that_are_needed_are_computed():
    layer, x = make(), torch.randn(4, 3, INPUTS)
    state = [torch.randn(1, 3, HIDDEN, requires_grad=True) for _ in range(2)]
    layer.requires_grad_(False)
    layer(x, state)[0].sum().backward()
    dense = layer.to_dense()
    wanted = [one.detach().clone().requires_grad_() for one in state]
    dense(x, wanted)[0].sum().backward()
    for one, other in zip(state, wanted):
        close(one.grad, other.grad, 2e-5)


def test_a_sparsifier_removes_blocks_of_all_gates_together():
    model = torch.nn.Sequential(make(layout=np.ones((4, 4), int)))
    recurrent = model[0].gates[0].recurrent
    norms = recurrent.weight_values.detach().square().sum((1, 2)).reshape(4, 16).sum(0)
    sparsifier = Sparsifier(model, final_density=0.25, block=BLOCK, begin_step=0, end_step=1, every=1, where="*recurrent")
    sparsifier.step()
    assert recurrent.layout.blocks == 16
    kept = norms >= norms.sort(descending=True).values[3]
    assert np.array_equal(recurrent.layout.mask(), np.tile(kept.reshape(4, 4).numpy(), (4, 1)))
    assert model(torch.randn(4, 3, INPUTS))[0].isfinite().all()


def test_what_has_no_derivative_is_refused():
    layer, x = make(), torch.randn(4, 3, INPUTS)
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jvp(lambda one: layer(one)[0], (x,), (x,))
    with pytest.raises(NotImplementedError, match="lstm_backward has no derivative"):
        torch.func.jacrev(torch.func.jacrev(lambda one: layer(one)[0].square().sum()))(x)


def test_derivatives_of_torch_func():
    layer, x = make(num_layers=2, bidirectional=True), torch.randn(4, 3, INPUTS)

    def loss(parameters, x):
        return torch.func.functional_call(layer, parameters, (x,))[0].square().sum()

    found = torch.func.grad(loss, (0, 1))({name: one.detach() for name, one in layer.named_parameters()}, x)
    x.requires_grad_()
    loss(dict(layer.named_parameters()), x).backward()
    assert torch.equal(found[1], x.grad)
    for name, one in layer.named_parameters():
        torch.testing.assert_close(found[0][name], one.grad)


def test_dropout_is_between_layers_and_in_training_alone():
    layer = make(num_layers=2, dropout=0.9)
    x = torch.randn(4, 3, INPUTS)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])


def test_compiled_as_one_graph_it_computes_the_same_and_its_gradients():
    layer = make(num_layers=2)
    compiled = torch.compile(layer, fullgraph=True)
    x = torch.randn(4, 3, INPUTS)
    y, (h, c) = layer(x)
    (y.sum() + c.sum()).backward()
    wanted = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    found, (_, c) = compiled(x)
    (found.sum() + c.sum()).backward()
    assert torch.equal(found, y)
    for parameter, gradient in zip(layer.parameters(), wanted):
        close(parameter.grad, gradient, 1e-6)


def test_under_autocast_it_computes_in_its_type():
    layer = make()
    x = torch.randn(4, 3, INPUTS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = layer(x)
    assert y.dtype == torch.bfloat16
    close(y.float(), layer(x)[0], 6e-2)


def test_copies_and_saved_states_compute_the_same():
    layer, x = make(), torch.randn(4, 3, INPUTS)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = make(seed=5)
    other.load_state_dict(torch.load(file))
    for one in (copy.deepcopy(layer), other):
        assert torch.equal(one(x)[0], layer(x)[0])


def test_the_operator_is_what_pytorch_expects_of_one():
    layer = make().gates[0]
    projection = torch.randn(6, 4 * HIDDEN, requires_grad=True)
    h, c = (torch.randn(3, HIDDEN, requires_grad=True) for _ in range(2))
    recurrent = layer.recurrent
    operands = (projection, h, c, recurrent.weight_values, recurrent.crow_indices, recurrent.col_indices, [3, 2, 1], False, True)
    torch.library.opcheck(torch.ops.sparsekiln.lstm, operands, test_utils=("test_schema", "test_faketensor", "test_autograd_registration"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"proj_size": 8}, "proj_size"),
        ({"num_layers": 0}, "one or more"),
        ({"dropout": 2.0}, "probability"),
        ({"layout": [np.ones((4, 4), int)] * 3}, "3 of layout"),
        ({"block": 128}, "no multiple"),
        ({"layout": np.ones((3, 4), int)}, "layout"),
    ],
)
def test_a_layer_without_sense_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        make(**options)


def test_inputs_and_states_of_another_shape_are_refused():
    layer = make()
    with pytest.raises(ValueError, match=r"\[steps, n, 20\]"):
        layer(torch.randn(4, 3, 21))
    with pytest.raises(ValueError, match="without steps"):
        layer(torch.randn(0, 3, INPUTS))
    with pytest.raises(ValueError, match="h0 has the shape"):
        layer(torch.randn(4, 3, INPUTS), (torch.zeros(2, 3, HIDDEN), torch.zeros(1, 3, HIDDEN)))


def test_another_layout_of_all_gates_keeps_what_stays_and_of_one_gate_alone_is_refused():
    layer, x = make(), torch.randn(4, 3, INPUTS)
    dense = layer.to_dense()
    other = layout(seed=9)
    layer.gates[0].recurrent.relayout(np.tile(other.mask(), (4, 1)))
    mask = layout().mask() & other.mask()
    with torch.no_grad():
        dense.weight_hh_l0 *= torch.from_numpy(mask).repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1).repeat(4, 1)
    close(layer(x)[0], dense(x)[0], 2e-5)
    with pytest.raises(ValueError, match="not alike"):
        layer.gates[0].recurrent.relayout(np.eye(16, 4, dtype=int))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [BlockSparseLSTM, BlockSparseLSTMCell])
@pytest.mark.parametrize("grad", [True, False])
def test_traces_of_torch_jit_are_of_one_shape_of_the_input(kind, grad):
    layer, shape = kind(INPUTS, HIDDEN, layout=layout(), block=BLOCK), (4, 3, INPUTS) if kind is BlockSparseLSTM else (3, INPUTS)
    with torch.set_grad_enabled(grad):
        trace, x = torch.jit.trace(layer, (torch.randn(shape),)), torch.randn(shape)
        for mine, other in zip(torch.utils._pytree.tree_leaves(trace(x)), torch.utils._pytree.tree_leaves(layer(x))):
            assert torch.equal(mine, other)
        with pytest.raises(RuntimeError):
            trace(torch.randn(shape[0] + 1, *shape[1:]))
    if grad:
        trace(x)[0].sum().backward()
