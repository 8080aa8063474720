"""normalised_linear, lstm_cell and normalised_lstm_cell against PyTorch's operators on dense weights, with all gradients."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import sparsekiln  # noqa: E402
from sparsekiln.torch import lstm_cell, normalised_linear, normalised_lstm_cell  # noqa: E402
from sparsekiln.torch.recurrent import normalised_products as products  # noqa: E402

N, INPUTS, UNITS, BLOCK = 9, 48, 32, 16
TYPES = [torch.float64, torch.float32, torch.bfloat16]
LEAST = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.03}


def bsr(rows, columns, dtype, alike=1, seed=3):
    """A BSR weight of `alike` parts with the same blocks, and its values as a leaf."""
    mask = np.tile(sparsekiln.patterns.random(rows // alike // BLOCK, columns // BLOCK, 0.6, seed=seed).mask(), (alike, 1))
    dense = torch.randn(rows, columns, dtype=dtype) * torch.from_numpy(mask).repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    made = dense.to_sparse_bsr((BLOCK, BLOCK))
    values = made.values().clone().requires_grad_()
    return torch.sparse_bsr_tensor(made.crow_indices(), made.col_indices(), values, made.shape), values


def dense_of(weight, values):
    """The dense weight in float64, differentiable by the values that it gets."""
    crow, col = weight.crow_indices(), weight.col_indices()
    rows = torch.arange(len(crow) - 1).repeat_interleave(crow.diff())
    blocks = torch.zeros(len(crow) - 1, weight.shape[1] // BLOCK, BLOCK, BLOCK, dtype=torch.float64)
    return blocks.index_put((rows, col), values).transpose(1, 2).reshape(weight.shape)


def leaves(dtype, *shapes):
    return [None if shape is None else (1 + 0.3 * torch.randn(*shape)).to(dtype).requires_grad_() for shape in shapes]


def doubled(tensors):
    return [None if one is None else one.detach().double().requires_grad_() for one in tensors]


def assert_alike(found, wanted, inputs, exact, least):
    """Results, and the gradients of a loss of them."""
    weights = [torch.randn_like(one) for one in wanted]
    sum((one.double() * weight).sum() for one, weight in zip(found, weights)).backward()
    sum((one * weight).sum() for one, weight in zip(wanted, weights)).backward()
    pairs = [*zip(found, wanted), *((one.grad, other.grad) for one, other in zip(inputs, exact) if one is not None)]
    for one, other in pairs:
        assert one.shape == other.shape
        assert (one.double() - other).norm() <= least * other.norm()


@pytest.mark.parametrize(
    ("dtype", "activation", "multiplies", "adds", "affine"),
    [
        (torch.float64, None, False, False, False), (torch.float64, "relu", False, True, True), (torch.float64, "tanh", True, False, True),
        *((dtype, "gelu", True, True, True) for dtype in TYPES),
    ],
)  # fmt: skip
def test_a_normalised_linear_layer_is_what_separate_operators_compute(dtype, activation, multiplies, adds, affine):
    torch.manual_seed(0)
    weight, values = bsr(UNITS, INPUTS, dtype)
    inputs = leaves(
        dtype, (3, N, INPUTS), (UNITS,) if affine else None, (UNITS,) if affine else None, (3, N, UNITS) if multiplies else None,
        (3, N, UNITS) if adds else None,
    )  # fmt: skip
    x, gain, bias, multiplier, addend = inputs
    y = normalised_linear(x, weight, gain, bias, multiplier=multiplier, addend=addend, activation=activation, epsilon=1e-3)
    exact = doubled([*inputs, values])
    x, gain, bias, multiplier, addend, of_blocks = exact
    wanted = torch.nn.functional.layer_norm(x @ dense_of(weight, of_blocks).T, (UNITS,), gain, bias, 1e-3)
    wanted = wanted if multiplier is None else wanted * multiplier
    wanted = wanted if addend is None else wanted + addend
    wanted = getattr(torch.nn.functional, activation)(wanted) if activation else wanted
    assert_alike([y], [wanted], [*inputs, values], exact, LEAST[dtype])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_cell_is_that_of_torch(dtype):
    torch.manual_seed(0)
    weight, values = bsr(4 * UNITS, UNITS, dtype, alike=4)
    inputs = leaves(dtype, (N, 4 * UNITS), (N, UNITS), (N, UNITS))
    h, c = lstm_cell(*inputs, weight)
    exact = doubled([*inputs, values])
    projection, before, state, of_blocks = exact
    i, f, g, o = (projection + before @ dense_of(weight, of_blocks).T).chunk(4, 1)
    state = f.sigmoid() * state + i.sigmoid() * g.tanh()
    assert_alike([h, c], [o.sigmoid() * state.tanh(), state], [*inputs, values], exact, LEAST[dtype])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("multiplies", [False, True])
def test_the_gates_of_a_normalised_cell_are_normalised_one_by_one(multiplies, dtype):
    torch.manual_seed(0)
    weight, values = bsr(4 * UNITS, INPUTS, dtype)
    inputs = leaves(dtype, (N, INPUTS), (N, UNITS), (4 * UNITS,), (4 * UNITS,))
    mask = (torch.rand(N, UNITS) > 0.5).to(dtype) * 2 if multiplies else None
    x, c, gain, bias = inputs
    h, c = normalised_lstm_cell(x, c, weight, gain, bias, multiplier=mask)
    exact = doubled([*inputs, values])
    x, state, gain, bias, of_blocks = exact
    z = (x @ dense_of(weight, of_blocks).T).unflatten(1, (4, UNITS))
    z = torch.nn.functional.layer_norm(z, (UNITS,)).flatten(1) * gain + bias
    i, f, g, o = z.chunk(4, 1)
    g = g.tanh() if mask is None else g.tanh() * mask.double()
    state = f.sigmoid() * state + i.sigmoid() * g
    assert_alike([h, c], [o.sigmoid() * state.tanh(), state], [*inputs, values], exact, LEAST[dtype])


HALVES = {torch.float16: 2**-11, torch.bfloat16: 2**-8}  #: unit roundoffs


def assert_rounded(found, wanted, dtype):
    """Element by element: errors of float32 in sums of few terms, and one rounding where the result is narrower."""
    exact = 1e-5 * wanted.abs().max()
    assert found.dtype == dtype and found.isfinite().all()
    assert ((found.double() - wanted).abs() <= exact + HALVES.get(dtype, 0) * wanted.abs()).all()


@pytest.mark.parametrize("cell", [False, True])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_gradients_of_16_bits_are_rounded_once_and_those_of_float32_not_at_all(dtype, cell):
    torch.manual_seed(0)
    groups = 4 if cell else 1
    weight, values = bsr(UNITS, INPUTS, dtype)
    above = products.blocks_of(weight.crow_indices(), weight.col_indices(), values.detach(), INPUTS)
    dy, residual, multiplier, addend = (one.detach() for one in leaves(dtype, (N, UNITS), *[(N, INPUTS)] * 3))
    z, gain, bias = (one.detach() for one in leaves(dtype, (N, groups * INPUTS), *[(groups * INPUTS,)] * 2))
    c_before, dc = torch.randn(2, N, INPUTS)
    moments = [(one.mean(1), (one.var(1, correction=0) + 1e-5).rsqrt()) for one in z.double().chunk(groups, 1)]
    statistics = torch.stack([one for both in moments for one in both], 1).float()

    exact = doubled([z, gain, bias, multiplier, addend, c_before])
    of_z, of_gain, of_bias, of_multiplier, of_addend, state = exact
    u = torch.nn.functional.layer_norm(of_z.unflatten(1, (groups, INPUTS)), (INPUTS,)).flatten(1)
    v = u * of_gain + of_bias
    if cell:
        i, f, g, o = v.chunk(4, 1)
        c = f.sigmoid() * state + i.sigmoid() * g.tanh() * multiplier.double()
        y = o.sigmoid() * c.tanh()
    else:
        c, y = torch.zeros(()), torch.nn.functional.gelu(v * of_multiplier + of_addend)
    dh = dy.double() @ dense_of(weight, values.detach().double()) + residual.double()
    ((y * dh).sum() + (c * dc if cell else c).sum()).backward()

    epilogue = "layer_norm+multiply+lstm" if cell else "layer_norm+multiply+add+gelu"
    norm = products.Norm(epilogue, gain, bias, z, statistics, multiplier, None if cell else addend)
    dx, dnorm = torch.empty_like(z), torch.zeros(3, 2 * groups * INPUTS)
    found = {name: torch.empty_like(multiplier) for name in ("dmultiplier", "daddend")}
    if cell:
        found = {"c_before": c_before, "c": c.detach().float(), "dc": dc, "dc_before": torch.empty_like(dc)}
    products.backward(above, dy, dx, norm, dnorm, residual, **found)
    for one, wanted in zip(dnorm.sum(0).chunk(2), (of_gain.grad, of_bias.grad)):
        assert_rounded(one, wanted, torch.float32)
    assert_rounded(dx, of_z.grad, dtype)
    if cell:
        assert_rounded(found["dc_before"], state.grad, torch.float32)
    else:
        assert_rounded(found["dmultiplier"], of_multiplier.grad, dtype)
        assert_rounded(found["daddend"], of_addend.grad, dtype)


def test_gradients_are_those_of_finite_differences():
    torch.manual_seed(0)
    weight, values = bsr(UNITS, INPUTS, torch.float64)
    crow, col = weight.crow_indices(), weight.col_indices()
    inputs = leaves(torch.float64, (2, INPUTS), (UNITS,), (UNITS,), (2, UNITS), (2, UNITS))

    def layer(values, x, gain, bias, multiplier, addend):
        one = torch.sparse_bsr_tensor(crow, col, values, weight.shape)
        return normalised_linear(x, one, gain, bias, multiplier=multiplier, addend=addend, activation="tanh")

    assert torch.autograd.gradcheck(layer, (values, *inputs))


def test_features_that_cut_their_last_block_are_normalised_without_what_is_missing():
    torch.manual_seed(0)
    x = torch.randn(N, INPUTS, dtype=torch.float64)
    dense = torch.randn(UNITS, INPUTS, dtype=torch.float64)
    crow, col = torch.tensor([0, 3, 6]), torch.arange(3).repeat(2)
    values = dense.to_sparse_bsr((BLOCK, BLOCK)).values()
    gain, bias = torch.rand(25, dtype=torch.float64, requires_grad=True), torch.rand(25, dtype=torch.float64)
    y, *_ = torch.ops.sparsekiln.normalised(x, values, gain, bias, crow, col, INPUTS, 25, None, None, None, "none", 1e-5)
    wanted = torch.nn.functional.layer_norm(x @ dense[:25].T, (25,), gain, bias)
    torch.testing.assert_close(y, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(one.square().sum(), gain)[0] for one in (y, wanted)))


def test_leading_dimensions_are_those_of_the_input():
    torch.manual_seed(0)
    weight, _ = bsr(4 * UNITS, INPUTS, torch.float32)
    recurrent, _ = bsr(4 * UNITS, UNITS, torch.float32, alike=4)
    x, c, h, projection = (torch.randn(2, 3, features) for features in (INPUTS, UNITS, UNITS, 4 * UNITS))
    for call, operands, others in (
        (normalised_linear, (x,), (weight,)), (normalised_lstm_cell, (x, c), (weight,)), (lstm_cell, (projection, h, c), (recurrent,)),
    ):  # fmt: skip
        whole, rows, first = (call(*(view(one) for one in operands), *others) for view in (
            lambda one: one, lambda one: one.flatten(0, 1), lambda one: one[0, 0]))  # fmt: skip
        for one, flat, single in zip(*((result,) if isinstance(result, torch.Tensor) else result for result in (whole, rows, first))):
            assert one.shape[:2] == (2, 3) and torch.equal(one.flatten(0, 1), flat)
            torch.testing.assert_close(one[0, 0], single)


def test_kernels_of_a_backward_pass_are_made_once(monkeypatch):
    from sparsekiln.torch import kernels

    weight = bsr(UNITS, INPUTS, torch.float32)[0].detach()
    made, compile_kernel = [], kernels.compile_kernel
    monkeypatch.setattr(kernels, "compile_kernel", lambda *asked: made.append(asked) or compile_kernel(*asked))
    x = torch.randn(N, INPUTS, requires_grad=True)
    normalised_linear(x, weight).sum().backward()
    count = len(made)
    normalised_linear(x, weight).sum().backward()
    assert len(made) == count > 0


def test_an_empty_batch_has_gradients_of_zeros():
    weight, values = bsr(UNITS, INPUTS, torch.float32)
    x, gain = leaves(torch.float32, (0, INPUTS), (UNITS,))
    normalised_linear(x, weight, gain).sum().backward()
    assert x.grad.shape == x.shape and not gain.grad.any() and not values.grad.any()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda w: normalised_linear(torch.randn(N, 7), w), "takes"),
        (lambda w: normalised_linear(torch.randn(N, INPUTS), w, torch.ones(3)), "gain has the shape"),
        (lambda w: normalised_linear(torch.randn(N, INPUTS), w, multiplier=torch.ones(N, 3)), "multiplier has the shape"),
        (lambda w: normalised_linear(torch.randn(2, 3, INPUTS), w, addend=torch.ones(3, 2, UNITS)), r"it is \[2, 3, 32\]"),
        (lambda w: lstm_cell(torch.randn(4, UNITS), torch.randn(5, INPUTS), torch.zeros(5, UNITS // 4), w), "recurrent one"),
        (lambda w: normalised_linear(torch.randn(N, INPUTS), w, activation="cube"), "no activation"),
        (lambda w: normalised_linear(torch.randn(N, INPUTS), w, epsilon=-1.0), "epsilon"),
        (lambda w: normalised_lstm_cell(torch.randn(N, INPUTS), torch.zeros(N, 3), w), "c has the shape"),
        (lambda w: normalised_lstm_cell(torch.randn(N, INPUTS), torch.zeros(N, UNITS // 4), w,
                                        multiplier=torch.ones(N, UNITS // 4, requires_grad=True)), "detach"),
    ],
)  # fmt: skip
def test_operands_without_sense_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(bsr(UNITS, INPUTS, torch.float32)[0])


@pytest.mark.parametrize("cell", [False, True])
def test_the_operator_is_what_pytorch_expects_of_one(cell):
    weight, values = bsr(4 * UNITS, INPUTS, torch.float32)
    x, gain, bias, c = leaves(torch.float32, (N, INPUTS), (4 * UNITS,), (4 * UNITS,), (N, UNITS))
    operands = (
        x, values, gain, bias, weight.crow_indices(), weight.col_indices(), INPUTS, 4 * UNITS, None, None, c if cell else None, "none",
        1e-5,
    )  # fmt: skip
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(torch.ops.sparsekiln.normalised, operands, test_utils=checks)
