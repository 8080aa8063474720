"""sparsekiln.jax against dense float64, under the transformations that JAX programs are made of."""

import concurrent.futures
import functools
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: sparsekiln.jax is tested with it")
import jax.numpy as jnp  # noqa: E402
from dense import blocks_of, dense_weight  # noqa: E402
from dense_matmul import assert_near  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln import _core  # noqa: E402

if not hasattr(_core, "xla_handlers"):
    pytest.skip("sparsekiln was built without jaxlib's headers: it has no XLA handlers", allow_module_level=True)
import sparsekiln.jax as skj  # noqa: E402

LAYOUT = sparsekiln.Layout([[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1]])  # rows: output blocks
BLOCK = 16
IN, OUT = LAYOUT.cols * BLOCK, LAYOUT.rows * BLOCK
linear = functools.partial(skj.linear, layout=LAYOUT, block=BLOCK)


def draw(*shape, seed=0, dtype=np.float32):
    return jnp.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape) / 4, dtype)


def weight(seed=0, dtype=np.float32):
    return draw(LAYOUT.blocks, BLOCK, BLOCK, seed=seed, dtype=dtype)


ACTIVATIONS = {
    None: lambda z: z,
    **{name: getattr(jax.nn, name, None) for name in sparsekiln.activations},
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "hardswish": jax.nn.hard_swish,
}


def reference(x, w, bias=None, activation=None, dy=None):
    """y, or with dy (dx, dw, dbias), by JAX on dense float64."""
    with jax.enable_x64(True):
        full = jnp.asarray(dense_weight(LAYOUT, np.asarray(w)))
        x64 = jnp.asarray(np.asarray(x, np.float64))
        b64 = jnp.zeros(OUT) if bias is None else jnp.asarray(np.asarray(bias, np.float64))
        f = lambda x, full, b: ACTIVATIONS[activation](x @ full.T + b)  # noqa: E731
        if dy is None:
            return np.asarray(f(x64, full, b64))
        dx, dfull, db = jax.vjp(f, x64, full, b64)[1](jnp.asarray(np.asarray(dy, np.float64)))
        return np.asarray(dx), blocks_of(LAYOUT, np.asarray(dfull), (BLOCK, BLOCK)), np.asarray(db)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_values_and_gradients_are_those_of_a_dense_layer(activation, with_bias):
    x, w = draw(5, IN), weight()
    bias = draw(OUT) if with_bias else None
    assert_near(linear(x, w, bias=bias, activation=activation), reference(x, w, bias, activation))
    y, pull = jax.vjp(lambda x, w, b: linear(x, w, bias=b, activation=activation), x, w, bias)
    assert_near(y, reference(x, w, bias, activation))
    dy = draw(5, OUT, seed=1)
    dx, dw, dbias = pull(dy)
    wanted = reference(x, w, bias, activation, dy)
    assert_near(dx, wanted[0])
    assert_near(dw, wanted[1])
    if with_bias:
        assert_near(dbias, wanted[2])
    else:
        assert dbias is None


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precisions_give_results_of_their_type(dtype):
    x, w, bias = draw(9, IN, dtype=dtype), weight(dtype=dtype), draw(OUT, dtype=dtype)
    y, pull = jax.vjp(lambda *a: linear(a[0], a[1], bias=a[2], activation="gelu"), x, w, bias)
    assert y.dtype == dtype
    assert_near(y, reference(x, w, bias, "gelu"), 2e-2)
    dy = draw(9, OUT, seed=1, dtype=dtype)
    for got, wanted in zip(pull(dy), reference(x, w, bias, "gelu", dy)):
        assert got.dtype == dtype
        assert_near(got, wanted, 2e-2)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0,), (2, 0, 4)])
def test_any_leading_dimensions_are_taken(lead):
    x, w, bias = draw(*lead, IN), weight(), draw(OUT)
    y, pull = jax.vjp(lambda w: linear(x, w, bias=bias), w)
    assert_near(y, reference(x, w, bias))
    assert_near(pull(jnp.ones_like(y))[0], reference(x.reshape(-1, IN), w, bias, None, np.ones((x.size // IN, OUT)))[1])


def test_jit_takes_the_layout_as_a_static_argument():
    x, w = draw(4, IN), weight()
    jitted = jax.jit(skj.linear, static_argnums=2, static_argnames=("activation", "block"))
    assert_near(jitted(x, w, LAYOUT, activation="relu", block=BLOCK), reference(x, w, None, "relu"))
    assert_near(jitted(x[:3], w, LAYOUT, block=BLOCK), reference(x[:3], w))
    with pytest.raises(TypeError, match="layout must be a sparsekiln.Layout.*static_argnums"):
        jax.jit(lambda mask: skj.linear(x, w, mask, block=BLOCK))(LAYOUT.mask())


def test_a_loss_over_two_layers_falls():
    @jax.jit
    def step(parameters, x, wanted):
        def loss(parameters):
            hidden = linear(x, parameters[0], bias=parameters[1], activation="gelu")
            return jnp.mean((hidden[:, :8] @ parameters[2] - wanted) ** 2)

        value, gradients = jax.value_and_grad(loss)(parameters)
        return value, jax.tree.map(lambda p, g: p - 0.3 * g, parameters, gradients)

    parameters = [weight(), draw(OUT), draw(8, 2)]
    x, wanted = draw(16, IN), draw(16, 2, seed=1)
    values = []
    for _ in range(20):
        value, parameters = step(parameters, x, wanted)
        values.append(float(value))
    assert values[-1] < 0.5 * values[0]


# Which operands are mapped over, and how the layer is called on one of them.
MAPS = [(0, None, None), (1, None, None), (None, 0, None), (0, 0, None), (0, 0, 0), (None, None, 0), (0, None, 0)]


@pytest.mark.parametrize("axes", MAPS, ids=str)
def test_vmap_gives_what_a_loop_gives(axes):
    shapes = [(5, IN), (LAYOUT.blocks, BLOCK, BLOCK), (OUT,)]
    arrays = [
        draw(*shape) if axis is None else jnp.moveaxis(draw(3, *shape), 0, axis) for shape, axis in zip(shapes, axes)
    ]
    layer = lambda x, w, b: linear(x, w, bias=b, activation="relu")  # noqa: E731
    got = jax.vmap(layer, in_axes=axes)(*arrays)
    gradients = jax.vmap(jax.grad(lambda *a: jnp.sum(layer(*a) ** 2), argnums=(0, 1, 2)), in_axes=axes)(*arrays)
    for i in range(3):
        one = [a if axis is None else jnp.take(a, i, axis) for a, axis in zip(arrays, axes)]
        wanted = reference(*one, "relu")
        assert_near(got[i], wanted)
        for gradient, dense_gradient in zip(gradients, reference(*one, "relu", 2 * wanted)):
            assert_near(gradient[i], dense_gradient, 2e-5)


def test_vmaps_nest():
    xs, ws = draw(2, 3, 5, IN), draw(2, LAYOUT.blocks, BLOCK, BLOCK)
    over_tokens = jax.vmap(jax.vmap(linear, in_axes=(0, None)))(xs, ws)  # x by both, w by the outer
    crossed = jax.vmap(jax.vmap(linear, in_axes=(None, 0)), in_axes=(0, None))(xs[:, 0], ws)
    for i in range(2):
        assert_near(over_tokens[i], reference(xs[i], ws[i]))
        for j in range(2):
            assert_near(crossed[i, j], reference(xs[i, 0], ws[j]))


def test_vmap_of_vectors_is_one_product():
    x, w = draw(7, IN), weight()
    assert_near(jax.vmap(lambda row: linear(row, w))(x), reference(x, w))


def test_scan_and_checkpoint_go_through():
    square = sparsekiln.patterns.banded(3, 3, 1)
    w = draw(square.blocks, BLOCK, BLOCK)

    def roll(w, x, wrap):
        cell = wrap(lambda h, _: (skj.linear(h, w, square, activation="relu", block=BLOCK) + x, None))
        return jnp.sum(jax.lax.scan(cell, x, length=4)[0])

    x = draw(2, 3 * BLOCK)
    plain = jax.jit(jax.grad(functools.partial(roll, wrap=lambda cell: cell)))(w, x)
    saved = jax.jit(jax.grad(functools.partial(roll, wrap=jax.checkpoint)))(w, x)
    assert jnp.any(plain != 0)
    assert_near(saved, plain)


def test_threads_share_a_compiled_layer():
    x, w = draw(8, IN), weight()
    layer = jax.jit(linear)
    wanted = np.asarray(layer(x, w))
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for y in threads.map(lambda _: np.asarray(layer(x, w)), range(64)):
            np.testing.assert_array_equal(y, wanted)


def test_devices_share_a_batch_and_sum_its_gradients():
    done = run_python(f"""
        import jax, jax.numpy as jnp, numpy as np, sparsekiln, sparsekiln.jax as skj
        from jax.sharding import Mesh, PartitionSpec as P
        layout = sparsekiln.Layout({LAYOUT.mask().astype(int).tolist()})
        random = np.random.default_rng(0)
        x = jnp.asarray(random.standard_normal((6, layout.cols * 16)), jnp.float32)
        w = jnp.asarray(random.standard_normal((layout.blocks, 16, 16)), jnp.float32)
        loss = lambda x, w: jnp.mean(skj.linear(x, w, layout, activation="gelu", block=16) ** 2)
        mesh = Mesh(np.array(jax.devices()), ("batch",))
        shared = jax.shard_map(lambda x, w: jax.lax.pmean(loss(x, w), "batch"), mesh=mesh,
                               in_specs=(P("batch"), P()), out_specs=P(), check_vma=False)
        for got, wanted in zip(jax.grad(shared, (0, 1))(x, w), jax.grad(loss, (0, 1))(x, w)):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
        print(len(jax.devices()))
    """, XLA_FLAGS="--xla_force_host_platform_device_count=2")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2"]


def test_forward_mode_is_refused():
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(linear, (draw(2, IN), weight()), (draw(2, IN), weight()))


def test_more_rows_than_one_launch_has_are_taken_in_several(monkeypatch):
    monkeypatch.setattr(skj, "_MOST", 8)
    skj._key.cache_clear()
    try:
        x, w = draw(19, IN), weight()
        y, pull = jax.vjp(linear, x, w)
        assert_near(y, reference(x, w))
        dy = draw(19, OUT, seed=1)
        wanted = reference(x, w, dy=dy)
        assert_near(pull(dy)[0], wanted[0])
        assert_near(pull(dy)[1], wanted[1])
        assert_near(jax.vmap(lambda row: linear(row, w))(x), reference(x, w))
    finally:
        skj._key.cache_clear()


def test_operands_that_do_not_fit_are_refused():
    x, w, bias = draw(2, IN), weight(), draw(OUT)
    with pytest.raises(ValueError, match=r"x is \[2, 63\]; its last dimension must be the 64 input features"):
        linear(x[:, 1:], w)
    with pytest.raises(ValueError, match=r"w is \[6, 16, 16\]; this layout takes \[7, 16, 16\]"):
        linear(x, w[1:])
    with pytest.raises(ValueError, match=r"bias is \[47\]; this layout takes \[48\]"):
        linear(x, w, bias=bias[1:])
    with pytest.raises(TypeError, match="w is bfloat16 and x is float32"):
        linear(x, w.astype(jnp.bfloat16))
    with pytest.raises(TypeError, match="x is int32; sparsekiln multiplies"):
        linear(x.astype(jnp.int32), w)
    with pytest.raises(ValueError, match="activation 'cube' is none of 'relu'"):
        linear(x, w, activation="cube")
    with pytest.raises(TypeError, match="a side of the block is 16.0; an integer would work"):
        skj.linear(x, w, LAYOUT, block=16.0)
    with pytest.raises(TypeError, match="dtype is 3; one of float32, .* would work"):
        skj.prepare(LAYOUT, dtype=3)
    with pytest.raises(TypeError, match="bias is 'no'; True or False would work"):
        skj.prepare(LAYOUT, bias="no")


def test_arrays_of_numpy_in_the_other_byte_order_are_read():
    x, w = np.asarray(draw(2, IN)), np.asarray(weight())
    np.testing.assert_array_equal(linear(x.astype(">f4"), w.astype(">f4")), linear(x, w))


def test_a_kernel_that_this_process_does_not_have_is_an_error_with_a_sentence():
    skj.prepare(LAYOUT, block=BLOCK)
    call = jax.ffi.ffi_call("sparsekiln_linear", jax.ShapeDtypeStruct((2, OUT), jnp.float32))
    with pytest.raises(Exception, match="sparsekiln has no kernel 'unknown' in this process.*sparsekiln.jax.prepare"):
        call(draw(2, IN), weight(), key="unknown").block_until_ready()


def test_operands_that_a_compiled_program_hands_over_wrongly_are_refused():
    x, w = draw(2, IN), weight()
    key = skj._key(skj._layer(LAYOUT, BLOCK, x.dtype, None, False, "ieee", "cpu"), "forward", None, 1024)
    call = jax.ffi.ffi_call("sparsekiln_linear", jax.ShapeDtypeStruct((2, OUT), jnp.float32))
    with pytest.raises(Exception, match="1 arguments and 1 results, where the kernel has 2 and 1"):
        call(x, key=key).block_until_ready()
    with pytest.raises(Exception, match="w: kernels take float32, float16, bfloat16 and, on the cpu, float64"):
        call(x, w.astype(jnp.int32), key=key).block_until_ready()
    with pytest.raises(Exception, match="kernel 'layout=.*': w: "):
        call(x, w[:6], key=key).block_until_ready()
    with pytest.raises(Exception, match="x has 4 rows, where others have 2"):
        call(draw(4, IN), w, key=key).block_until_ready()
    with pytest.raises(Exception, match="the leading dimensions of x do not go with those of the result"):
        call(draw(3, 2, IN), w, key=key).block_until_ready()
    with pytest.raises(Exception, match="x has 1 dimensions, not 2"):
        call(x[0], w, key=key).block_until_ready()


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


# One block of four in a row, each of which picks another part of x: the same shapes, and another kernel.
CACHED = """
    import jax, jax.numpy as jnp, numpy as np, sparsekiln, sparsekiln.jax as skj
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    events = []
    jax.monitoring.register_event_listener(lambda name, **_: events.append(name))
    x, w = jnp.repeat(jnp.arange(4.0), 8)[None], jnp.ones((1, 8, 8))
    for column in ORDER:
        layout = sparsekiln.Layout(np.arange(4)[None] == column)
        events.clear()
        y = jax.jit(lambda x, w: skj.linear(x, w, layout, block=8))(x, w)
        print("hit" if "/jax/compilation_cache/cache_hits" in events else "miss")
        assert (y == 8 * column).all(), (column, y)
"""


def test_programs_come_from_the_compilation_cache_of_another_process(tmp_path):
    def run(order):
        done = run_python(textwrap.dedent(CACHED).replace("ORDER", order), JAX_COMPILATION_CACHE_DIR=str(tmp_path))
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert run("[0, 1, 2]") == ["miss"] * 3
    assert run("[2, 3, 0, 1]") == ["hit", "miss", "hit", "hit"]


def test_keys_are_the_same_in_every_process():
    code = f"""
        import numpy as np, sparsekiln, sparsekiln.jax as skj
        layout = sparsekiln.Layout({LAYOUT.mask().astype(int).tolist()})
        layer = skj._layer(layout, 16, np.dtype("float32"), "relu", True, "ieee", "cpu")
        print(*(skj._key(layer, op, "relu", 1024) for op in ("forward", "grad_input", "grad_weight")), sep="\\n")
    """
    there = run_python(code)
    assert there.returncode == 0, there.stderr
    layer = skj._layer(LAYOUT, BLOCK, np.dtype("float32"), "relu", True, "ieee", "cpu")
    here = [skj._key(layer, op, "relu", 1024) for op in ("forward", "grad_input", "grad_weight")]
    assert there.stdout.splitlines() == here
    assert len(set(here)) == 3 and all(LAYOUT.digest in key for key in here)


def test_a_serialised_program_runs_once_its_kernels_are_prepared(tmp_path):
    from jax.experimental import serialize_executable

    x, w = draw(4, IN), weight()
    compiled = jax.jit(lambda x, w: linear(x, w)).lower(x, w).compile()
    with open(tmp_path / "program", "wb") as file:
        pickle.dump((serialize_executable.serialize(compiled), np.asarray(x), np.asarray(w), LAYOUT.mask()), file)
    done = run_python(f"""
        import jax, numpy as np, pickle, sparsekiln, sparsekiln.jax as skj
        from jax.experimental.serialize_executable import deserialize_and_load
        program, x, w, mask = pickle.load(open(r"{tmp_path / 'program'}", "rb"))
        skj.prepare(sparsekiln.Layout(np.ones((1, 1), bool)), block=16, gradients=False)  # another layer
        run = deserialize_and_load(*program)
        try:
            run(x, w).block_until_ready()
            raise SystemExit("it ran without its kernel")
        except Exception as error:
            assert "sparsekiln.jax.prepare" in str(error), error
        skj.prepare(sparsekiln.Layout(mask), block=16, gradients=False)
        np.save(r"{tmp_path / 'y.npy'}", run(x, w))
    """)
    assert done.returncode == 0, done.stderr
    assert_near(np.load(tmp_path / "y.npy"), reference(x, w))
