"""The cell of an LSTM by `compile`, with NumPy's arrays: steps of a recurrent layer and their gradients, against NumPy's float64."""

import numpy as np
import pytest
from dense import blocks_of, dense_weight

import sparsekiln as sk

BLOCK, LAYOUT, N, STEPS = (16, 8), sk.patterns.random(2, 4, 0.6, seed=1), 5, 3
FEATURES = LAYOUT.rows * BLOCK[0]  # as many as come in: what the layer computes, it is given again
TOLERANCE = {"f32": 2e-6, "f64": 1e-14}
NUMPY = {"f32": np.float32, "f64": np.float64}
KINDS = pytest.mark.parametrize(
    ("dtype", "order"), [(dtype, order) for dtype in NUMPY for order in ("batch-major", "feature-major")]
)


def compiled(op="forward", epilogue="lstm", dtype="f32", order="batch-major", **options):
    if order == "feature-major":  # rows of N elements, which are no multiple of 16 bytes
        options["alignment"] = np.dtype(NUMPY[dtype]).itemsize
    return sk.compile(LAYOUT, BLOCK, N, dtype, op, epilogue, target="cpu", order=order, **options)


def draw(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


class Steps:
    """A recurrent layer in float64, everything as [n, features]; loss = Σ of all h times dh."""

    def __init__(self):
        assert LAYOUT.cols * BLOCK[1] == FEATURES
        self.w = draw(4, LAYOUT.blocks, *BLOCK) / 4
        self.projections = draw(STEPS, N, 4 * FEATURES)
        self.dh = draw(STEPS, N, FEATURES, seed=1)
        self.h, self.c, self.activations = [draw(N, FEATURES)], [draw(N, FEATURES, seed=2)], []
        self.dense = np.concatenate([dense_weight(LAYOUT, one) for one in self.w])
        for projection in self.projections:
            z = np.split(self.h[-1] @ self.dense.T + projection, 4, axis=1)
            i, f, g, o = sigmoid(z[0]), sigmoid(z[1]), np.tanh(z[2]), sigmoid(z[3])
            self.c.append(f * self.c[-1] + i * g)
            self.h.append(o * np.tanh(self.c[-1]))
            self.activations.append(np.concatenate([i, f, g, o], axis=1))
        self.dz, self.dc = [np.zeros((N, 4 * FEATURES))], [np.zeros((N, FEATURES))]
        for t in reversed(range(STEPS)):
            i, f, g, o = np.split(self.activations[t], 4, axis=1)
            dh, tanh = self.dz[0] @ self.dense + self.dh[t], np.tanh(self.c[t + 1])
            d = self.dc[0] + dh * o * (1 - tanh**2)
            dz = [d * g * i * (1 - i), d * self.c[t] * f * (1 - f), d * i * (1 - g**2), dh * tanh * o * (1 - o)]
            self.dz.insert(0, np.concatenate(dz, axis=1))
            self.dc.insert(0, d * f)
        dense_dw = sum(dz.T @ h for dz, h in zip(self.dz, self.h))
        self.dw = np.stack([blocks_of(LAYOUT, one, BLOCK) for one in np.split(dense_dw, 4)])


@pytest.fixture(scope="module")
def steps():
    return Steps()


class Arrays:
    """A float64 [n, features] as what kernels of a type and an order take, and back."""

    def __init__(self, dtype, order):
        self.dtype, self.feature_major = dtype, order == "feature-major"

    def given(self, matrix):
        return np.ascontiguousarray((matrix.T if self.feature_major else matrix).astype(NUMPY[self.dtype]))

    def made(self, features, fill=np.nan):
        return np.full((features, N) if self.feature_major else (N, features), fill, NUMPY[self.dtype])

    def assert_is(self, got, wanted):
        assert got.dtype == NUMPY[self.dtype]
        got = got.T if self.feature_major else got
        assert got.shape == wanted.shape
        assert np.linalg.norm(got - wanted) <= TOLERANCE[self.dtype] * np.linalg.norm(wanted)


@KINDS
def test_steps_of_a_recurrent_layer_agree_with_float64(steps, dtype, order):
    arrays = Arrays(dtype, order)
    kernel, keeps = (compiled("forward", epilogue, dtype, order) for epilogue in ("lstm", "lstm+keep"))
    w = steps.w.astype(NUMPY[dtype])
    h, c = arrays.given(steps.h[0]), arrays.given(steps.c[0])
    for t in range(STEPS):
        given = {"projection": arrays.given(steps.projections[t]), "c_before": c}
        y, c, activations = keeps(h, w, **given)
        without = kernel(h, w, **given)
        assert len(without) == 2
        for one, other in zip(without, (y, c)):
            np.testing.assert_array_equal(one, other)
        h = y
        arrays.assert_is(h, steps.h[t + 1])
        arrays.assert_is(c, steps.c[t + 1])
        arrays.assert_is(activations, steps.activations[t])


@KINDS
def test_gradients_through_the_steps_agree_with_float64(steps, dtype, order):
    arrays = Arrays(dtype, order)
    back = compiled("grad_input", "lstm+residual", dtype, order)
    w = steps.w.astype(NUMPY[dtype])
    dz, dc = arrays.made(4 * FEATURES, 0), arrays.made(FEATURES, 0)
    of_steps = []
    for t in reversed(range(STEPS)):
        cell = {"activations": steps.activations[t], "c_before": steps.c[t], "c": steps.c[t + 1], "residual": steps.dh[t]}
        dz, dc = back(dz, w, dc=dc, **{name: arrays.given(matrix) for name, matrix in cell.items()})
        arrays.assert_is(dz, steps.dz[t])
        arrays.assert_is(dc, steps.dc[t])
        of_steps.insert(0, dz)
    add = compiled("grad_weight", "scale+lstm", dtype, order)
    dw = np.full((4 * LAYOUT.blocks, *BLOCK), np.nan, NUMPY[dtype])
    for t in range(STEPS):
        assert add(arrays.given(steps.h[t]), of_steps[t], dw, beta=float(t > 0)) is dw
    wanted = steps.dw.reshape(dw.shape)
    assert np.linalg.norm(dw - wanted) <= 2 * TOLERANCE[dtype] * np.linalg.norm(wanted)


@KINDS
def test_without_a_residual_the_gradient_is_of_dy_alone(steps, dtype, order):
    arrays = Arrays(dtype, order)
    t = STEPS - 2
    cell = {"activations": steps.activations[t], "c_before": steps.c[t], "c": steps.c[t + 1], "dc": steps.dc[t + 1]}
    cell = {name: arrays.given(matrix) for name, matrix in cell.items()}
    dy, w = arrays.given(steps.dz[t + 1]), steps.w.astype(NUMPY[dtype])
    zeros = arrays.made(FEATURES, 0)
    got = compiled("grad_input", "lstm", dtype, order)(dy, w, **cell)
    for one, other in zip(got, compiled("grad_input", "lstm+residual", dtype, order)(dy, w, residual=zeros, **cell)):
        np.testing.assert_array_equal(one, other)


def test_half_precision_keeps_c_and_its_gradient_in_float32(steps):
    half = lambda matrix: matrix.astype(np.float16)
    single = lambda matrix: matrix.astype(np.float32)
    y, c, activations = compiled("forward", "lstm+keep", "f16")(
        half(steps.h[0]), half(steps.w), projection=half(steps.projections[0]), c_before=single(steps.c[0])
    )
    assert (y.dtype, c.dtype, activations.dtype) == (np.float16, np.float32, np.float16)
    np.testing.assert_allclose(y, steps.h[1], atol=4e-3)
    np.testing.assert_allclose(c, steps.c[1], atol=4e-3)
    dx, dc_before = compiled("grad_input", "lstm", "f16")(
        half(steps.dz[1]), half(steps.w), activations=activations, c_before=single(steps.c[0]), c=c, dc=single(steps.dc[1])
    )
    assert (dx.dtype, dc_before.dtype) == (np.float16, np.float32)


def test_the_bias_gradient_has_all_four_gates(steps):
    arrays = Arrays("f64", "batch-major")
    kernel = compiled("grad_weight", dtype="f64", bias_gradient=True)
    dw, dbias = kernel(steps.h[0], steps.dz[0])
    assert dw.shape == (4 * LAYOUT.blocks, *BLOCK)
    arrays.assert_is(dbias[None, :], steps.dz[0].sum(0, keepdims=True))


class Operands:
    """What one step takes in float32, and its gradient."""

    def __init__(self, steps):
        single = lambda matrix: matrix.astype(np.float32)
        self.x, self.w = single(steps.h[0]), single(steps.w)
        self.of_forward = {"projection": single(steps.projections[0]), "c_before": single(steps.c[0])}
        self.dy = single(steps.dz[1])
        self.of_gradient = {
            "activations": single(steps.activations[0]), "c_before": single(steps.c[0]), "c": single(steps.c[1]),
            "dc": single(steps.dc[1]), "residual": single(steps.dh[0]),
        }  # fmt: skip


@pytest.fixture
def operands(steps):
    return Operands(steps)


def test_outputs_are_written_where_they_are_given(operands):
    arrays = Arrays("f32", "batch-major")
    forward, back = compiled("forward", "lstm+keep"), compiled("grad_input", "lstm+residual")
    wanted = forward(operands.x, operands.w, **operands.of_forward)
    given = [arrays.made(features) for features in (FEATURES, FEATURES, 4 * FEATURES)]
    got = forward(operands.x, operands.w, given[0], c=given[1], activations=given[2], **operands.of_forward)
    assert all(one is other for one, other in zip(got, given))
    for one, other in zip(got, wanted):
        np.testing.assert_array_equal(one, other)
    wanted = back(operands.dy, operands.w, **operands.of_gradient)
    given = [arrays.made(features) for features in (4 * FEATURES, FEATURES)]
    got = back(operands.dy, operands.w, given[0], dc_before=given[1], **operands.of_gradient)
    assert all(one is other for one, other in zip(got, given))
    for one, other in zip(got, wanted):
        np.testing.assert_array_equal(one, other)


def test_c_and_dc_are_updated_in_place_where_that_is_asked_for(operands):
    forward, back = compiled(), compiled("grad_input", "lstm+residual")
    y, c = forward(operands.x, operands.w, **operands.of_forward)
    state = operands.of_forward["c_before"].copy()
    got = forward(operands.x, operands.w, projection=operands.of_forward["projection"], c_before=state, c=state)
    assert got[1] is state
    np.testing.assert_array_equal(got[0], y)
    np.testing.assert_array_equal(state, c)
    dx, dc_before = back(operands.dy, operands.w, **operands.of_gradient)
    state = operands.of_gradient["dc"].copy()
    got = back(operands.dy, operands.w, **(operands.of_gradient | {"dc": state}), dc_before=state)
    np.testing.assert_array_equal(got[0], dx)
    np.testing.assert_array_equal(state, dc_before)


def test_the_four_weights_may_have_an_axis_of_their_own_or_none(operands):
    flat = operands.w.reshape(4 * LAYOUT.blocks, *BLOCK)
    for op, epilogue, of in (("forward", "lstm", operands.of_forward), ("grad_input", "lstm+residual", operands.of_gradient)):
        kernel, first = compiled(op, epilogue), operands.x if op == "forward" else operands.dy
        for one, other in zip(kernel(first, flat, **of), kernel(first, operands.w, **of)):
            np.testing.assert_array_equal(one, other)
        for wrong in (operands.w[:3], operands.w.reshape(LAYOUT.blocks, 4, *BLOCK), flat[:-1], operands.w[0]):
            assert wrong.shape not in (operands.w.shape, flat.shape)
            with pytest.raises(sk.InvalidArgument, match=rf"w: .*dense \[{4 * LAYOUT.blocks}, 16, 8\] or \[4, {LAYOUT.blocks}, 16, 8\]"):
                kernel(first, wrong, **of)
    weight = compiled("grad_weight")
    dw = weight(operands.x, operands.dy)
    own = np.full(operands.w.shape, np.nan, np.float32)
    assert weight(operands.x, operands.dy, own) is own
    np.testing.assert_array_equal(own.reshape(dw.shape), dw)


def test_what_is_read_may_be_read_only_and_what_is_written_may_not(operands):
    def read_only(array):
        view = array.view()
        view.flags.writeable = False
        return view

    forward, back = compiled("forward", "lstm+keep"), compiled("grad_input", "lstm+residual")
    frozen = lambda operands: {name: read_only(array) for name, array in operands.items()}
    y, c, activations = forward(read_only(operands.x), read_only(operands.w), **frozen(operands.of_forward))
    back(read_only(operands.dy), read_only(operands.w), **frozen(operands.of_gradient))
    for name, output in (("c", c), ("activations", activations)):
        with pytest.raises(TypeError, match=f"{name}.*written"):
            forward(operands.x, operands.w, **operands.of_forward, **{name: read_only(output)})
    with pytest.raises(TypeError, match="dc_before.*written"):
        back(operands.dy, operands.w, **operands.of_gradient, dc_before=read_only(c))


@pytest.mark.parametrize("name", ["projection", "c_before", "c", "activations"])
def test_operands_of_forward_with_other_shapes_or_types_are_refused_by_name(operands, name):
    kernel = compiled("forward", "lstm+keep")
    features = 4 * FEATURES if name in ("projection", "activations") else FEATURES
    for shape in ((N, features + 8), (N, features // 2), (features,), (N + 1, features)):
        with pytest.raises(sk.InvalidArgument, match=rf"^{name}: "):
            kernel(operands.x, operands.w, **(operands.of_forward | {name: np.zeros(shape, np.float32)}))
    with pytest.raises(sk.InvalidArgument, match=f"^{name}: .*f64"):
        kernel(operands.x, operands.w, **(operands.of_forward | {name: np.zeros((N, features))}))


@pytest.mark.parametrize("name", ["activations", "c_before", "c", "dc", "residual", "dc_before"])
def test_operands_of_the_gradient_with_other_shapes_are_refused_by_name(operands, name):
    kernel = compiled("grad_input", "lstm+residual")
    features = 4 * FEATURES if name == "activations" else FEATURES
    for shape in ((N, 2 * features), (N, features // 2), (N - 1, features)):
        with pytest.raises(sk.InvalidArgument, match=rf"^{name}: "):
            kernel(operands.dy, operands.w, **(operands.of_gradient | {name: np.zeros(shape, np.float32)}))


def test_operands_that_are_missing_or_of_another_kernel_are_refused_by_name(operands):
    forward, back = compiled(), compiled("grad_input")
    for name in operands.of_forward:
        with pytest.raises(sk.InvalidArgument, match=f"{name}: it was not given"):
            forward(operands.x, operands.w, **{other: one for other, one in operands.of_forward.items() if other != name})
    needed = {name: one for name, one in operands.of_gradient.items() if name != "residual"}
    for name in needed:
        with pytest.raises(sk.InvalidArgument, match=f"{name}: it was not given"):
            back(operands.dy, operands.w, **{other: one for other, one in needed.items() if other != name})
    with pytest.raises(TypeError, match="not take operand activations"):
        forward(operands.x, operands.w, **operands.of_forward, activations=operands.of_gradient["activations"])
    with pytest.raises(TypeError, match="not take operand projection"):
        back(operands.dy, operands.w, **needed, projection=operands.of_forward["projection"])
    with pytest.raises(TypeError, match="not take operand c"):
        compiled("grad_weight")(operands.x, operands.dy, c=operands.of_gradient["c"])
    plain = sk.compile(LAYOUT, BLOCK, N, target="cpu")
    with pytest.raises(TypeError, match="not take operand c_before"):
        plain(operands.x, operands.w[0], c_before=operands.of_forward["c_before"])


def test_batches_of_matrices_are_taken_where_they_are_one_matrix(operands):
    kernel = sk.compile(LAYOUT, BLOCK, sk.up_to(2 * N), epilogue="lstm+keep", target="cpu")
    twice = lambda array: np.concatenate([array, array[::-1]])
    x, of = twice(operands.x), {name: twice(array) for name, array in operands.of_forward.items()}
    wanted = kernel(x, operands.w, **of)
    batch = {name: array.reshape(2, N, -1) for name, array in of.items()}
    got = kernel(x.reshape(2, N, -1), operands.w, **batch)
    for one, other in zip(got, wanted):
        assert one.shape == (2, N, other.shape[1])
        np.testing.assert_array_equal(one.reshape(other.shape), other)
    apart = np.zeros((2, N + 1, FEATURES), np.float32)[:, :N]
    with pytest.raises(sk.InvalidArgument, match="a launch for each would work"):
        kernel(apart, operands.w, **batch)


def test_a_batch_of_none_has_outputs_of_no_rows(operands):
    kernel = sk.compile(LAYOUT, BLOCK, sk.up_to(N), epilogue="lstm+keep", target="cpu")
    none = kernel(operands.x[:0], operands.w, **{name: array[:0] for name, array in operands.of_forward.items()})
    assert [one.shape for one in none] == [(0, FEATURES), (0, FEATURES), (0, 4 * FEATURES)]
