"""The interface of 2017 in TensorFlow 2: eager, in graphs, and the published sample."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: its side of the 2017 interface is untested")

from dense_blocksparse_conv import DIAGONAL, PUBLISHED, Case, biased, biased_gradients  # noqa: E402
from dense_matmul import assert_near, blocks_of, dense  # noqa: E402

from sparsekiln.compat import BlocksparseConv, BlocksparseDeconv, BlocksparseMatMul  # noqa: E402
from sparsekiln.compat.conv import conv_edge_bias_init, cwise_linear  # noqa: E402

GRID = np.array([[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1]])


def operands(bsmm, n=5, dtype=tf.float32):
    random = np.random.default_rng(0)
    x = tf.constant(random.standard_normal(bsmm.i_shape(n)), dtype)
    w = tf.Variable(tf.constant(random.standard_normal(bsmm.w_shape) / 8, dtype))
    dy = tf.constant(random.standard_normal(bsmm.o_shape(n)), dtype)
    return x, w, dy


def as64(tensor):
    return np.asarray(tf.cast(tensor, tf.float64))


def wanted(bsmm, x, w, dy):
    x, dy, full = as64(x), as64(dy), dense(bsmm, as64(w))
    if bsmm.axis:
        return x @ full, dy @ full.T, blocks_of(bsmm, x.T @ dy)
    return full.T @ x, full @ dy, blocks_of(bsmm, x @ dy.T)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
def test_values_and_gradients_are_those_of_a_dense_matrix(axis, graph):
    bsmm = BlocksparseMatMul(GRID, block_size=16, feature_axis=axis)
    x, w, dy = operands(bsmm)

    def all_three(x, w, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = bsmm(x, w)
        assert y.shape == bsmm.o_shape(5)
        return y, *tape.gradient(y, (x, w), output_gradients=dy)

    if graph:
        all_three = tf.function(all_three)
    for got, want in zip(all_three(x, w, dy), wanted(bsmm, x, w, dy)):
        assert got.dtype == tf.float32
        assert_near(got, want)


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16], ids=["bfloat16", "float16"])
def test_half_precisions_are_multiplied(dtype, graph):
    bsmm = BlocksparseMatMul(GRID)
    x, w, dy = operands(bsmm, dtype=dtype)

    def both(x):
        with tf.GradientTape() as tape:
            y = bsmm(x, w)
        return y, tape.gradient(y, w, output_gradients=dy)

    got = (tf.function(both) if graph else both)(x)
    want = wanted(bsmm, x, w, dy)
    assert got[0].dtype == got[1].dtype == dtype
    assert_near(as64(got[0]), want[0], 1e-2)
    assert_near(as64(got[1]), want[2], 1e-2)


def test_one_traced_function_takes_any_batch():
    bsmm = BlocksparseMatMul(GRID)
    _, w, _ = operands(bsmm)
    traces = []

    @tf.function(input_signature=[tf.TensorSpec([None, bsmm.C], tf.float32)])
    def layer(x):
        traces.append(x)
        return bsmm(x, w)

    for n in (1, 4, 0, 33):
        x = tf.ones((n, bsmm.C))
        assert_near(layer(x), np.ones((n, bsmm.C)) @ dense(bsmm, w))
    assert len(traces) == 1


def test_a_gradient_step_lowers_the_loss():
    bsmm = BlocksparseMatMul(GRID)
    x, w, _ = operands(bsmm)
    target = tf.ones(bsmm.o_shape(5))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((bsmm(x, w) - target) ** 2)
        w.assign_sub(0.5 * tape.gradient(loss, w))
        return loss

    losses = [float(step()) for _ in range(10)]
    assert losses[-1] < 0.5 * losses[0]


def test_results_outlive_what_they_were_made_of():
    bsmm = BlocksparseMatMul(GRID)
    x, w, dy = operands(bsmm)
    want = wanted(bsmm, x, w, dy)[0]
    kept = [bsmm(x, w) for _ in range(8)]
    del x, bsmm
    for y in kept:
        assert_near(y + 0, want)


def test_initialisers_are_taken_by_get_variable():
    code = """
        import numpy as np
        import tensorflow.compat.v1 as tf
        tf.disable_v2_behavior()
        from sparsekiln.compat import BlocksparseMatMul
        bsmm = BlocksparseMatMul(np.eye(3, dtype=int))
        same = tf.get_variable("i", bsmm.w_shape, dtype=tf.float32, initializer=bsmm.identity_init())
        ortho = tf.get_variable("o", bsmm.w_shape, dtype=tf.float32, initializer=bsmm.ortho_init())
        x = tf.placeholder(tf.float32, shape=[None, bsmm.C])
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            values = np.random.normal(size=(4, bsmm.C)).astype(np.float32)
            np.testing.assert_array_equal(session.run(bsmm(x, same), {x: values}), values)
            lengths = np.linalg.norm(session.run(bsmm(x, ortho), {x: values}), axis=1)
            np.testing.assert_allclose(lengths, np.linalg.norm(values, axis=1), rtol=1e-5)
            gradient = session.run(tf.gradients(bsmm(x, ortho), ortho)[0], {x: values})
            assert gradient.shape == bsmm.w_shape and gradient.any()
    """
    run_python(code)


# The steps of the sample that the original was published with, call for call; `tf` is TensorFlow 2's module of the
# interface that TensorFlow 1 had.
SAMPLE = """
    import numpy as np
    import tensorflow.compat.v1 as tf
    from sparsekiln.compat import BlocksparseMatMul
    tf.disable_v2_behavior()

    hidden, block, batch = 4096, 32, 64
    grid = np.random.randint(2, size=(hidden // block, hidden // block))
    bsmm = BlocksparseMatMul(grid, block_size=block)
    x = tf.placeholder(tf.float32, shape=[None, hidden])
    w = tf.get_variable("w", bsmm.w_shape, dtype=tf.float32)
    y = bsmm(x, w)
    session = tf.InteractiveSession()
    session.run(tf.global_variables_initializer())
    result = session.run([y], feed_dict={x: np.ones((batch, hidden), dtype="float32")})

    # x is ones: an element of y is the sum of a column of W.
    sums = np.zeros((hidden // block, block))
    for i, values in enumerate(session.run(w).astype(np.float64)):
        sums[bsmm.block_coord(i)[1]] += values.sum(axis=0)
    assert result[0].shape == (batch, hidden)
    np.testing.assert_allclose(result[0], np.tile(sums.reshape(-1), (batch, 1)), atol=1e-3)
"""


def test_the_steps_of_the_published_sample_run():
    run_python(SAMPLE)


# ---- convolutions ----


CONVOLUTIONS = {name: PUBLISHED[name] for name in ("overlapping, dilation 2", "3x3", "deconvolution, stride 2")}
CONVOLUTIONS["any channels"] = Case([([2, 0, 1], range(9)), ([1, 3], [9, 4])], (1, 1, 3), (1, 1, 9), (1, 1, 9), (0, 0, 1))


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
def test_a_convolution_and_its_gradients_are_those_of_a_dense_one(name, graph):
    case = CONVOLUTIONS[name]
    conv = (BlocksparseDeconv if case.deconv else BlocksparseConv)(**case.arguments)
    filters = case.filters()
    F = tf.Variable(conv.collapse_filter(filters).reshape(conv.f_shape()))
    x, dy = case.images(2)

    def all_three(x, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = conv(F, x)
        assert y.shape == conv.o_shape(2)
        return y, *tape.gradient(y, (x, F), output_gradients=dy)

    got = (tf.function(all_three) if graph else all_three)(tf.constant(x), tf.constant(dy))
    assert got[2].shape == F.shape
    for one, wanted in zip((*got[:2], tf.reshape(got[2], [-1])), case.results(filters, x, dy)):
        assert one.dtype == tf.float32
        assert_near(one, wanted, 2e-5)


def test_a_convolution_of_half_precision():
    case = PUBLISHED["3x3"]
    conv = BlocksparseConv(**case.arguments)
    filters = [as64(tf.cast(one, tf.bfloat16)) for one in case.filters()]
    x, dy = (tf.cast(one, tf.bfloat16) for one in case.images(2))
    F = tf.constant(conv.collapse_filter(filters), tf.bfloat16)
    with tf.GradientTape() as tape:
        tape.watch(F)
        y = conv(F, x)
    wanted = case.results(filters, as64(x), as64(dy))
    assert y.dtype == tf.bfloat16
    assert_near(as64(y), wanted[0], 1e-2)
    assert_near(as64(tape.gradient(y, F, output_gradients=dy)), wanted[2], 1e-2)


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
def test_filters_are_normalised_with_gradients(graph):
    case = PUBLISHED["deconvolution, stride 2"]
    conv, filters = BlocksparseDeconv(**case.arguments), case.filters()
    F, U = conv.collapse_filter(filters), np.cos(np.arange(conv.sizeF, dtype=np.float32))
    gain = np.linspace(-1, 1, conv.normSize, dtype=np.float32)

    def all_three(F, gain):
        with tf.GradientTape() as tape:
            tape.watch((F, gain))
            normalised = conv.l2_normalize(F, gain)
        return normalised, *tape.gradient(normalised, (F, gain), output_gradients=tf.constant(U))

    got = (tf.function(all_three) if graph else all_three)(tf.constant(F), tf.constant(gain))
    for one, wanted in zip(got, (case.normalised(filters, gain), *case.normalised_gradients(filters, U, gain))):
        assert_near(one, wanted)


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
def test_an_edge_bias_has_gradients(graph):
    conv = BlocksparseConv(DIAGONAL, (1, 3, 3), (1, 8, 8), edge_bias=True)
    edges = PUBLISHED["3x3"].edges()
    random = np.random.default_rng(1)
    y, dy = (random.standard_normal(conv.o_shape(2)).astype(np.float32) for _ in range(2))
    g, b = (random.standard_normal(conv.edge_bias_shape()).astype(np.float32) for _ in range(2))

    def all_four(y, g, b):
        with tf.GradientTape() as tape:
            tape.watch((y, g, b))
            result = conv.edge_bias(y, b, g)
        return result, *tape.gradient(result, (y, g, b), output_gradients=tf.constant(dy))

    if graph:
        shape = [None, *y.shape[1:]]
        all_four = tf.function(all_four, input_signature=[tf.TensorSpec(shape), tf.TensorSpec(g.shape), tf.TensorSpec(b.shape)])
    for one, wanted in zip(all_four(*map(tf.constant, (y, g, b))), (biased(y, edges, g, b), *biased_gradients(dy, y, edges, g))):
        assert_near(one, wanted)


def test_the_steps_of_the_published_edge_bias_run():
    x, w = tf.random.normal((2, 6, 7, 3)), tf.random.normal((3, 3, 3, 4))
    y = tf.nn.conv2d(x, w, (1, 2, 2, 1), "SAME")
    bias = conv_edge_bias_init(y, x, w, (1, 2, 2, 1), "SAME", data_format="NHWC")
    assert bias.shape == (bias.edgeBiasDim, 4) and bias.edgeBiasDim > 0
    # With the means of the taps that are not padding, an image of ones is convolved as if it had no edge.
    taps = tf.nn.conv2d(tf.ones((1, 6, 7, 1)), tf.ones((3, 3, 1, 1)), (1, 2, 2, 1), "SAME")
    taps = tf.reshape(taps, [-1])
    g = tf.stack([tf.repeat(9 / taps[edge[0]], 4) for edge in bias.edgeBiasMap])
    ones = tf.nn.conv2d(tf.ones_like(x), tf.ones_like(w), (1, 2, 2, 1), "SAME")
    assert_near(bias(ones, g, tf.zeros_like(g)), tf.fill(y.shape, 27.0))
    assert_near(cwise_linear(tf.transpose(y, (0, 3, 1, 2)), tf.ones(4) * 2, relu=True), 2 * tf.nn.relu(tf.transpose(y, (0, 3, 1, 2))))


def run_python(code):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
