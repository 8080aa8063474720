import inspect
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from dense import assert_close, blocks_of, dense_weight

import sparsekiln as sk

try:
    import ml_dtypes
except ModuleNotFoundError:
    ml_dtypes = None
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes and ml_dtypes.bfloat16}
needs_bfloat16 = pytest.mark.skipif(ml_dtypes is None, reason="NumPy's bfloat16 is of the package ml_dtypes, which is not installed")


def operands(layout, block, n, dtype="f32", seed=0):
    random = np.random.default_rng(seed)
    draw = lambda *shape: random.standard_normal(shape).astype(NUMPY[dtype])
    return draw(n, layout.cols * block[1]), draw(layout.blocks, *block), draw(n, layout.rows * block[0])


@pytest.mark.parametrize("dtype", ["f32", "f16", pytest.param("bf16", marks=needs_bfloat16)])
@pytest.mark.parametrize("block", [8, (32, 16)])
def test_the_three_operations_agree_with_dense_products(dtype, block):
    shape = (block, block) if isinstance(block, int) else block
    layout = sk.patterns.random(5, 7, 0.4, seed=1)
    x, w, dy = operands(layout, shape, 9, dtype)
    dense = dense_weight(layout, w)
    wide = lambda a: a.astype(np.float64)
    of = lambda op: sk.compile(layout, block, 9, dtype, op, target="cpu")
    y = of("forward")(x, w)
    assert y.dtype == x.dtype
    assert_close(y, wide(x) @ dense.T, np.abs(wide(x)) @ np.abs(dense).T, dtype)
    assert_close(of("grad_input")(dy, w), wide(dy) @ dense, np.abs(wide(dy)) @ np.abs(dense), dtype)
    dw = of("grad_weight")(x, dy)
    assert_close(dw, blocks_of(layout, wide(dy).T @ wide(x), shape),
                 blocks_of(layout, np.abs(wide(dy)).T @ np.abs(wide(x)), shape), dtype)  # fmt: skip


def test_outputs_are_written_where_they_are_given():
    layout = sk.patterns.random(3, 3, 0.6, seed=1)
    x, w, _ = operands(layout, (8, 8), 4)
    kernel = sk.compile(layout, 8, 4, target="cpu")
    y = np.full((4, 24), np.nan, np.float32)
    assert kernel(x, w, y) is y
    np.testing.assert_array_equal(y, kernel(x=x, w=w))


def test_rows_may_lie_apart_and_batches_may_be_matrices():
    layout = sk.patterns.random(3, 3, 0.6, seed=1)
    x, w, _ = operands(layout, (8, 8), 12)
    kernel = sk.compile(layout, 8, sk.up_to(12), target="cpu")
    whole = kernel(x, w)
    wide = np.zeros((12, 40), np.float32)
    wide[:, :24] = x
    np.testing.assert_array_equal(kernel(wide[:, :24], w), whole)
    np.testing.assert_array_equal(kernel(x.reshape(3, 4, 24), w), whole.reshape(3, 4, 24))
    assert kernel(x[:0], w).shape == (0, 24)


def test_an_epilogue_is_fused():
    layout = sk.patterns.random(3, 4, 0.6, seed=1)
    x, w, residual = operands(layout, (8, 8), 5)
    bias = np.arange(24, dtype=np.float32)
    kernel = sk.compile(layout, 8, 5, epilogue="bias+relu+residual", target="cpu")
    expected = np.maximum(x.astype(np.float64) @ dense_weight(layout, w).T + bias, 0) + residual
    np.testing.assert_allclose(kernel(x, w, bias=bias, residual=residual), expected, rtol=1e-5, atol=1e-5)


def test_gradients_give_sums_too():
    layout = sk.patterns.random(3, 4, 0.6, seed=1)
    x, _, dy = operands(layout, (8, 8), 5)
    dw, dbias = sk.compile(layout, 8, 5, op="grad_weight", bias_gradient=True, target="cpu")(x, dy)
    np.testing.assert_allclose(dbias, dy.sum(0), rtol=1e-5)
    assert dw.shape == (layout.blocks, 8, 8)


def test_on_the_cpu_launches_that_may_overlap_compute_the_same():
    layout = sk.patterns.random(3, 3, 0.6, seed=1)
    x, w, _ = operands(layout, (8, 8), 4)
    kernel = sk.compile(layout, 8, 4, target="cpu", overlap_launches=True)
    assert kernel.computation["overlap_launches"] == "no"  # where nothing overlaps, it is the same kernel
    np.testing.assert_array_equal(kernel(x, w), sk.compile(layout, 8, 4, target="cpu")(x, w))


def test_block_scales_multiply_blocks_and_have_a_gradient():
    layout = sk.patterns.random(3, 4, 0.6, seed=1)
    x, w, dy = operands(layout, (8, 8), 5)
    block_scales = np.linspace(-1, 2, layout.blocks, dtype=np.float32)
    glu = w * block_scales[:, None, None]
    compiled = lambda op, **how: sk.compile(layout, 8, 5, op=op, block_scales=True, target="cpu", **how)
    dense = dense_weight(layout, glu)
    np.testing.assert_allclose(compiled("forward")(x, w, block_scales=block_scales), x @ dense.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(compiled("grad_input")(dy, w, block_scales=block_scales), dy @ dense, rtol=1e-4, atol=1e-4)
    with pytest.raises(sk.InvalidArgument, match="block_scales"):
        compiled("forward")(x, w)
    dw, dblock_scales = compiled("grad_weight", block_scale_gradient=True)(x, dy, w=w, block_scales=block_scales)
    unscaled = blocks_of(layout, (dy.T @ x).astype(np.float64), (8, 8))
    np.testing.assert_allclose(dw, unscaled * block_scales[:, None, None], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(dblock_scales, (unscaled * w).sum((1, 2)), rtol=1e-4, atol=1e-3)


def test_block_scales_may_be_called_gates():
    layout = sk.patterns.random(3, 4, 0.6, seed=1)
    x, w, dy = operands(layout, (8, 8), 5)
    scales = np.linspace(-1, 2, layout.blocks, dtype=np.float32)
    compiled = lambda **how: sk.compile(layout, 8, 5, op="grad_weight", target="cpu", **how)
    kernel = compiled(block_scales=True, block_scale_gradient=True)
    same = compiled(gates=True, gate_gradient=True)
    assert same.key == kernel.key and compiled(gates=False).key == compiled().key
    assert sk.compile(layout, 8, 5, op="grad_weight", target="cpu", **{"gates": np.bool_(True), "gate_gradient": 1}).key == kernel.key
    expected = kernel(x, dy, w=w, block_scales=scales)
    of_scales = np.empty(layout.blocks, np.float32)
    got = same(x, dy, w=w, gates=scales, dgates=of_scales)
    np.testing.assert_array_equal(got[0], expected[0])
    np.testing.assert_array_equal(of_scales, expected[1])
    with pytest.raises(TypeError, match="given block_scales and gates, which are one argument; block_scales alone would work"):
        compiled(block_scales=True, gates=True)
    with pytest.raises(TypeError, match="gates is 'no'; True or False would work"):
        compiled(gates="no")
    with pytest.raises(TypeError, match="operand block_scales is given twice"):
        kernel(x, dy, w=w, block_scales=scales, gates=scales)
    with pytest.raises(TypeError, match="does not take operand block_scales; it was compiled without"):
        compiled()(x, dy, gates=scales)


def test_alpha_and_beta_scale():
    layout = sk.patterns.random(3, 3, 0.6, seed=1)
    x, w, y = operands(layout, (8, 8), 4)
    plain = sk.compile(layout, 8, 4, target="cpu")(x, w)
    kernel = sk.compile(layout, 8, 4, epilogue="scale", target="cpu")
    np.testing.assert_allclose(kernel(x, w, y.copy(), alpha=2, beta=-1), 2 * plain - y, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="beta"):
        kernel(x, w, beta=1)


def test_errors_name_the_operand_and_say_what_would_work():
    layout = sk.patterns.random(3, 3, 0.6, seed=1)
    x, w, _ = operands(layout, (8, 8), 4)
    kernel = sk.compile(layout, 8, 4, target="cpu")
    for call, says in [
        (lambda: kernel(x[:, :16], w), "x"), (lambda: kernel(x, w[:-1]), "w"), (lambda: kernel(x.astype(np.float64), w), "x"),
        (lambda: kernel(x[:3], w), "4"), (lambda: kernel(x, w, np.zeros((4, 23), np.float32)), "y"),
    ]:  # fmt: skip
        with pytest.raises(sk.InvalidArgument, match=says) as caught:
            call()
        assert caught.value.kind == "invalid argument" and isinstance(caught.value, ValueError)
    for call, says in [
        (lambda: kernel("x", w), "operand x"), (lambda: kernel(x, w, bias=w), "not take operand bias"), (lambda: kernel(x, w, q=1), "'q'"), (lambda: kernel(x, w, x=x), "twice"),
        (lambda: kernel(w=w), "needs operand x"), (lambda: kernel(x, w, x, x), "three operands"),
    ]:  # fmt: skip
        with pytest.raises(TypeError, match=says):
            call()
    read_only = np.zeros((4, 24), np.float32)
    read_only.flags.writeable = False
    with pytest.raises(TypeError, match="written"):
        kernel(x, w, read_only)


@pytest.mark.parametrize("wish, says", [
    ({"block": 12}, "12"), ({"dtype": "f63"}, "f63"), ({"op": "backward"}, "backward"), ({"epilogue": "cube"}, "cube"),
    ({"target": "tpu"}, "tpu"), ({"batch": -1}, "-1"), ({"tuning": "later"}, "later"), ({"require": "luck"}, "luck"),
])  # fmt: skip
def test_options_that_make_no_sense_are_refused(wish, says):
    with pytest.raises(sk.InvalidArgument, match=says):
        sk.compile(np.eye(2) == 1, **({"target": "cpu"} | wish))


def test_dtypes_of_frameworks_are_taken():
    layout = np.eye(2) == 1
    assert sk.compile(layout, 8, 1, np.float32, target="cpu").dtype == "f32"
    assert sk.compile(layout, 8, 1, np.dtype("float16"), target="cpu").dtype == "f16"
    torch = pytest.importorskip("torch")
    assert sk.compile(layout, 8, 1, torch.bfloat16, target="cpu").dtype == "bf16"


def bsr_of_scipy(layout, block):
    sparse = pytest.importorskip("scipy.sparse")
    values = np.random.default_rng(1).standard_normal((layout.blocks, *block)).astype(np.float32)
    shape = (layout.rows * block[0], layout.cols * block[1])
    return sparse.bsr_array((values, layout.col, layout.crow), shape=shape), values


def bsr_of_pytorch(layout, block):
    torch = pytest.importorskip("torch")
    matrix, values = bsr_of_scipy(layout, block)
    indices = torch.from_numpy(matrix.indptr), torch.from_numpy(matrix.indices)
    return torch.sparse_bsr_tensor(*indices, torch.from_numpy(values), size=matrix.shape, check_invariants=True), values


@pytest.mark.parametrize("make", [bsr_of_scipy, bsr_of_pytorch])
@pytest.mark.parametrize("block", [(8, 16), (16, 16)])
def test_a_bsr_matrix_brings_its_block(make, block):
    layout = sk.patterns.random(3, 4, 0.6, seed=1)
    matrix, values = make(layout, block)
    kernel = sk.compile(matrix, batch=5, target="cpu")
    assert kernel.block == block and kernel.layout == layout
    x = np.random.default_rng(2).standard_normal((5, kernel.in_features)).astype(np.float32)
    np.testing.assert_allclose(kernel(x, values), x @ dense_weight(layout, values).T, rtol=1e-4, atol=1e-4)
    assert sk.compile(matrix, 32, 5, target="cpu").block == (32, 32)


def test_without_a_matrix_a_block_is_32_wide():
    assert sk.compile([[1, 0]], batch=4, target="cpu").block == (32, 32)


def test_a_kernel_says_what_it_is(tmp_path):
    layout = sk.patterns.random(3, 4, 0.5, seed=9)
    kernel = sk.compile(layout, 8, 4, target="cpu", cache_dir=tmp_path)
    assert (kernel.op, kernel.in_features, kernel.out_features, kernel.block) == ("forward", 32, 24, (8, 8))
    assert kernel.layout is layout and kernel.source == "compiled" and kernel.tier == "baked"
    assert len(kernel.key) == 32 and kernel.compile_ms > 0 and "tile_n" in kernel.config
    assert sk.compile(layout, 8, 4, target="cpu", cache_dir=tmp_path).source == "memory"


def test_every_field_of_a_computation_is_an_argument_of_compile_with_the_same_default():
    parameters = inspect.signature(sk.compile).parameters
    for field in sk._core.computation_fields():
        usual = parameters[field["argument"]].default
        if field["argument"] == "batch":  # has another default, as it has always had
            continue
        if field["is_flag"]:
            assert usual is (field["usual"] == "yes")
        elif field["usual"] == "":
            assert usual is None
        elif field["argument"] == "block":  # None: that of a BSR matrix, else the field's
            assert usual is None and field["usual"] == "32x32"
        else:
            assert str(usual) == field["usual"]


def test_a_kernel_says_what_decided_its_computation():
    kernel = sk.compile(np.eye(2) == 1, (8, 16), sk.up_to(4), np.float16, "grad_weight", target="cpu", block_scales=True)
    said = kernel.computation
    assert said.keys() == {field["argument"] for field in sk._core.computation_fields()}
    assert {"op": "grad_weight", "block": "8x16", "batch": "up-to:4", "dtype": "f16", "block_scales": "yes"}.items() <= said.items()
    assert said["bias_gradient"] == "no" and said["out_dtype"] == "f16"


def test_torch_tensors_are_taken_as_they_are():
    torch = pytest.importorskip("torch")
    layout = sk.patterns.random(3, 4, 0.5, seed=9)
    x, w, _ = operands(layout, (8, 8), 6)
    kernel = sk.compile(layout, 8, 6, target="cpu")
    y = kernel(torch.from_numpy(x), torch.from_numpy(w))
    assert isinstance(y, torch.Tensor)
    np.testing.assert_array_equal(y.numpy(), kernel(x, w))
    half = sk.compile(layout, 8, 6, "bf16", target="cpu")
    y = half(torch.from_numpy(x).bfloat16(), torch.from_numpy(w).bfloat16())
    assert y.dtype is torch.bfloat16 and y.shape == (6, 24)


def test_lazily_negated_tensors_are_read_with_their_signs():
    torch = pytest.importorskip("torch")
    kernel = sk.compile(np.ones((2, 3), bool), (8, 16), 5, epilogue="bias", target="cpu")
    x, w, bias = torch.randn(5, 48), torch.randn(6, 8, 16), torch.randn(16)
    for _ in range(2):
        assert torch.equal(kernel(torch._neg_view(x), w, bias=bias), kernel(-x, w, bias=bias))
        assert torch.equal(kernel(x, torch._neg_view(w), bias=bias), kernel(x, -w, bias=bias))
        assert torch.equal(kernel(x, w, bias=torch._neg_view(bias)), kernel(x, w, bias=-bias))
    imaginary = torch.view_as_complex(torch.randn(5, 48, 2)).conj().imag  # where such tensors come from
    assert imaginary.is_neg() and torch.equal(kernel(imaginary.contiguous(), w, bias=bias), kernel(imaginary.clone(), w, bias=bias))
    with pytest.raises(TypeError, match="operand y is lazily negated"):
        kernel(x, w, torch._neg_view(torch.zeros(5, 16)), bias=bias)


def test_a_workspace_that_is_too_small_is_refused():
    layout = sk.patterns.random(9, 9, 0.5, seed=1)
    x, w, _ = operands(layout, (32, 32), 64)
    kernel = sk.compile(layout, 32, 64, target="cpu")
    needed = kernel.workspace_bytes(64)
    assert needed > 64
    space = np.zeros(needed // 4 + 64, np.float32)
    start = -space.ctypes.data % 64 // 4
    exact = space[start : start + needed // 4]
    for wrong in (space[:16], space[::2], exact.view(np.uint8)[:-1], exact[:0]):
        with pytest.raises(sk.InvalidArgument, match=str(needed)):
            kernel(x, w, workspace=wrong)
    np.testing.assert_array_equal(kernel(x, w, workspace=exact), kernel(x, w))


class Guarded:
    """A zeroed workspace of some bytes, and 4096 after it that no kernel may write."""

    def __init__(self, size):
        memory = np.full(size + 4096 + 64, 0xA5, np.uint8)
        start = -memory.ctypes.data % 64
        self.space, self.after = memory[start : start + size], memory[start + size :]
        self.space[:] = 0

    def holds(self):
        return (self.after == 0xA5).all()


@pytest.mark.parametrize("batch, matrices, n, needed", [
    (64, 3, 64, 64),  # each a launch of its own, of the only batch that the kernel takes
    (sk.up_to(258), 2, 129, 258),  # one product
    (sk.up_to(258), 3, 129, 129),  # too many rows for one
])  # fmt: skip
def test_a_batch_of_matrices_takes_the_workspace_of_what_is_launched(batch, matrices, n, needed):
    layout = sk.patterns.random(4, 4, 0.7, seed=1)
    _, w, _ = operands(layout, (32, 32), 1)
    x = np.random.default_rng(1).standard_normal((matrices, n, 128)).astype(np.float32)
    kernel = sk.compile(layout, 32, batch, target="cpu")
    workspace = Guarded(kernel.workspace_bytes(needed))
    np.testing.assert_array_equal(kernel(x, w, workspace=workspace.space), kernel(x, w))
    assert workspace.holds()
    with pytest.raises(sk.InvalidArgument, match="workspace"):
        kernel(x, w, workspace=workspace.space[:-1])


def test_matrices_that_lie_apart_take_the_workspace_of_one():
    layout = sk.patterns.random(4, 4, 0.7, seed=1)
    _, w, _ = operands(layout, (32, 32), 1)
    x = np.random.default_rng(1).standard_normal((2, 130, 128)).astype(np.float32)[:, :129]
    kernel = sk.compile(layout, 32, sk.up_to(258), target="cpu")
    for n in (129, 258):  # what serves all rows is never less
        workspace = Guarded(kernel.workspace_bytes(n))
        np.testing.assert_array_equal(kernel(x, w, workspace=workspace.space), kernel(x, w))
        assert workspace.holds()


def test_workspace_bytes_never_falls_as_the_batch_grows():
    for op in ("forward", "grad_input", "grad_weight"):
        kernel = sk.compile(sk.patterns.random(5, 40, 0.5, seed=1), 32, sk.up_to(300), op=op, target="cpu")
        needed = [kernel.workspace_bytes(n) for n in range(301)]
        assert needed == sorted(needed) and needed[-1] > 0
        assert 0 <= kernel.workspace_counter_bytes() <= needed[0]


def test_numbers_and_paths_that_are_none_are_named(tmp_path):
    layout = sk.patterns.random(2, 2, 1.0)
    x, w, _ = operands(layout, (8, 8), 1)
    kernel = sk.compile(layout, np.int64(8), 1, epilogue="scale", target="cpu")
    with pytest.raises(TypeError, match="alpha is None"):
        kernel(x, w, alpha=None)
    with pytest.raises(TypeError, match="stream is 's'"):
        kernel(x, w, stream="s")
    with pytest.raises(ValueError, match="seed is -1"):
        sk.patterns.random(2, 2, 0.5, seed=-1)
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.npy")
    layout.save(odd)
    assert sk.Layout.load(odd) == layout


def test_tensors_that_require_grad_are_refused_where_gradients_are_on():
    torch = pytest.importorskip("torch")
    layout = sk.patterns.random(2, 2, 1.0)
    kernel = sk.compile(layout, 8, 1, target="cpu")
    x, w = torch.ones(1, 16, requires_grad=True), torch.ones(4, 8, 8)
    with pytest.raises(TypeError, match="operand x requires grad"):
        kernel(x, w)
    with torch.no_grad():
        assert kernel(x, w)[0, 0] == 16


def test_autograd_hears_of_tensors_that_are_written():
    torch = pytest.importorskip("torch")
    kernel = sk.compile(sk.patterns.random(2, 2, 1.0), 8, 1, target="cpu")
    y, q = torch.ones(1, 16), torch.ones(1, 16, requires_grad=True)
    product = (q * y).sum()
    kernel(torch.ones(1, 16), torch.ones(4, 8, 8), y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_arrays_that_are_never_written_to_are_refused_as_outputs():
    jax_numpy = pytest.importorskip("jax.numpy")
    layout = sk.patterns.random(2, 2, 1.0)
    x, w, _ = operands(layout, (8, 8), 1)
    kernel = sk.compile(layout, 8, 1, target="cpu")
    with pytest.raises(TypeError, match="never written to"):
        kernel(x, w, jax_numpy.zeros((1, 16)))
    np.testing.assert_array_equal(kernel(jax_numpy.asarray(x), jax_numpy.asarray(w), np.zeros_like(x)), kernel(x, w))


def test_an_attached_kernel_takes_another_layout():
    first, second = sk.patterns.random(5, 5, 0.4, seed=1), sk.patterns.random(5, 5, 0.6, seed=2)
    kernel = sk.compile(first, 16, sk.up_to(8), attached=True, target="cpu")
    assert sk.compile(second, 16, sk.up_to(8), attached=True, target="cpu").key == kernel.key
    x, w, _ = operands(second, (16, 16), 7)
    kernel.relayout(second)
    assert kernel.layout == second and kernel.tier == "attached"
    np.testing.assert_array_equal(kernel(x, w), sk.compile(second, 16, sk.up_to(8), attached=True, target="cpu")(x, w))
    dense = dense_weight(second, w)
    assert_close(kernel(x, w), x.astype(np.float64) @ dense.T, np.abs(x).astype(np.float64) @ np.abs(dense).T)
    with pytest.raises(sk.InvalidArgument, match="4"):
        kernel.relayout(sk.patterns.random(4, 5, 0.4))


class RelayoutWhenTaken:
    """An array that gives a kernel another layout when the kernel asks for its memory."""

    def __init__(self, array, kernel, layout):
        self.array, self.kernel, self.layout = array, kernel, layout

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **wishes):
        self.kernel.relayout(self.layout)
        return self.array.__dlpack__(**wishes)


def test_a_call_keeps_the_layout_that_it_began_with():
    first, second = sk.patterns.random(5, 5, 0.4, seed=1), sk.patterns.random(5, 5, 0.8, seed=2)
    x, _, dy = operands(first, (16, 16), 8)
    kernel = sk.compile(first, 16, 8, op="grad_weight", attached=True, target="cpu")
    expected = kernel(x, dy)
    np.testing.assert_array_equal(kernel(RelayoutWhenTaken(x, kernel, second), dy, dw=np.empty_like(expected)), expected)
    assert kernel.layout == second and kernel(x, dy).shape[0] == second.blocks != first.blocks


def test_nothing_is_written_after_a_workspace_while_threads_lay_the_kernel_out_anew():
    """Two layouts have equally many blocks; that with all of them in one row, which is split, takes more."""
    even, uneven = sk.Layout(np.eye(16) == 1), sk.Layout(np.arange(256).reshape(16, 16) < 16)
    kernel = sk.compile(uneven, 8, 8, attached=True, target="x86-64:7")
    most = kernel.workspace_bytes(8)
    kernel.relayout(even)
    size = kernel.workspace_bytes(8)
    assert size < most
    x, w, _ = operands(even, (8, 8), 8)
    refusals, wrong = [], []

    def work():
        workspace, y = Guarded(size), np.empty_like(x)
        for _ in range(10000):
            try:
                kernel(x, w, y, workspace=workspace.space)
            except ValueError as error:
                refusals.append(str(error))
            if not workspace.holds():
                wrong.append("bytes after the workspace are written")
                return

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for layout in (uneven, even):
            kernel.relayout(layout)
    assert not wrong and all("workspace" in refusal for refusal in refusals)


def test_a_tiered_kernel_of_the_cpu_is_baked_at_once():
    layout = sk.patterns.random(5, 5, 0.4, seed=3)
    x, w, _ = operands(layout, (16, 16), 8)
    kernel = sk.compile(layout, 16, 8, tiered=True, target="cpu")
    assert kernel.tier == "baked"
    kernel.wait()
    np.testing.assert_array_equal(kernel(x, w), sk.compile(layout, 16, 8, target="cpu")(x, w))
    with pytest.raises(sk.InvalidArgument, match="attached"):
        kernel.relayout(layout)


def test_a_tiered_kernel_is_attached_at_first(tmp_path):
    layout = sk.patterns.random(6, 6, 0.4, seed=3)
    try:
        kernel = sk.compile(layout, 16, 8, "f16", tiered=True, target="emulated", cache_dir=tmp_path)
    except sk.Error as error:
        if "NVRTC" not in str(error):
            raise
        pytest.skip("there is no NVRTC")
    assert kernel.tier == "attached"
    kernel.wait()
    assert kernel.tier == "baked"


def test_what_a_pack_holds_needs_no_compiler(tmp_path):
    layout, other = sk.patterns.random(3, 4, 0.5, seed=1), sk.patterns.random(3, 4, 0.5, seed=2)
    layout.save(tmp_path / "layout.npy")
    pack = tmp_path / "kernels.pack"
    options = ["--block", "8", "--batch", "5", "--dtype", "f32", "--arch", "cpu", "-o", str(pack)]
    subprocess.run([sys.executable, "-m", "sparsekiln", "precompile", str(tmp_path / "layout.npy"), *options], check=True)
    wish = dict(block=8, batch=5, target="cpu", packs=[pack], require="prebuilt", cache_dir=tmp_path / "cache")
    kernel = sk.compile(layout, **wish)
    assert kernel.source == "pack"
    x, w, _ = operands(layout, (8, 8), 5)
    np.testing.assert_allclose(kernel(x, w), x @ dense_weight(layout, w).T, rtol=1e-4, atol=1e-4)
    with pytest.raises(sk.Error, match="precompile"):
        sk.compile(other, **wish)


def test_a_config_can_be_pinned(tmp_path):
    layout = sk.patterns.random(3, 4, 0.5, seed=1)
    chosen = sk.compile(layout, 8, 5, target="cpu", cache_dir=tmp_path)
    config = chosen.config.partition(": ")[2]
    pinned = sk.compile(layout, 8, 5, target="cpu", config=config, cache_dir=tmp_path)
    assert pinned.config == chosen.config and pinned.key == chosen.key
    with pytest.raises(sk.InvalidArgument, match="tile_n"):
        sk.compile(layout, 8, 5, target="cpu", config=config.replace("tile_n=", "tile_n=9"), cache_dir=tmp_path)


def test_threads_share_a_kernel():
    layout = sk.patterns.random(16, 16, 0.5, seed=1)
    x, w, _ = operands(layout, (32, 32), 64)
    kernel = sk.compile(layout, 32, 64, target="cpu")
    expected, wrong = kernel(x, w), []

    def work():
        for _ in range(20):
            if not np.array_equal(kernel(x, w), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_tuning_tells_how_far_it_is_and_is_remembered(tmp_path):
    layout = sk.patterns.random(6, 6, 0.3, seed=4)
    told = []
    wish = dict(block=16, batch=16, target="cpu", tuning="now", tuning_seconds=2, cache_dir=tmp_path)
    sk.compile(layout, **wish, progress=lambda *now: told.append(now))
    assert told and all(candidates > 0 for _, candidates, _, _ in told) and told[-1][2] > 0
    told.clear()
    sk.compile(layout, **wish, progress=lambda *now: told.append(now))
    assert not told


def test_what_a_progress_callable_raises_comes_out(tmp_path):
    def broken(*_):
        raise LookupError("seen enough")

    with pytest.raises(LookupError, match="seen enough"):
        sk.compile(np.eye(6) == 1, 16, 16, target="cpu", tuning="now", tuning_seconds=20, cache_dir=tmp_path, progress=broken)


def test_ctrl_c_ends_tuning_and_keeps_what_was_measured(tmp_path):
    program = (
        "import sys, sparsekiln as sk\n"
        "layout = sk.patterns.random(40, 40, 0.2, seed=1)\n"
        "tell = lambda done, *_: print(done, flush=True)\n"
        "sk.compile(layout, 32, 64, target='cpu', tuning='now', tuning_seconds=300, progress=tell)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=os.environ | {"SPARSEKILN_CACHE_DIR": str(tmp_path)})  # fmt: skip
    assert process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and "KeyboardInterrupt" in errors
    exported = tmp_path / "records.jsonl"
    subprocess.run([sys.executable, "-m", "sparsekiln", "records", "export", str(exported)], check=True,
                   env=os.environ | {"SPARSEKILN_CACHE_DIR": str(tmp_path)})  # fmt: skip
    assert '"samples_us":[' in exported.read_text().replace(" ", "")


@pytest.mark.parametrize("stream", ["sys.stderr = None", "sys.stderr.close()", "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)"])
def test_a_bar_that_cannot_be_drawn_ends_no_tuning(tmp_path, stream):
    program = (
        f"import os, sys, sparsekiln as sk\n{stream}\n"
        "for progress in (True, None):\n"
        "    sk.compile([[1]], 8, 4, target='cpu', tuning='now', tuning_seconds=0.1, progress=progress)\n"
        "print('tuned')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                          env=os.environ | {"SPARSEKILN_CACHE_DIR": str(tmp_path)})  # fmt: skip
    assert done.stdout == "tuned\n"


def test_the_command_is_there():
    done = subprocess.run([sys.executable, "-m", "sparsekiln", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split()[1] == sk.__version__
    assert subprocess.run([sys.executable, "-m", "sparsekiln", "no-such-thing"], capture_output=True).returncode == 2
    unread = subprocess.run(["sh", "-c", 'exec "$0" -m sparsekiln no-such-thing 2>&-', sys.executable])
    assert unread.returncode == 2


def test_a_limit_of_file_sizes_ends_no_program(tmp_path):
    program = (
        "import resource, signal, sparsekiln as sk\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as in a program of another language: Python ignores it\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "print(sk.compile([[1]], 8, 4, target='cpu').source)\n"
        "print(signal.getsignal(signal.SIGXFSZ) == signal.SIG_DFL, signal.sigpending(), signal.pthread_sigmask(0, []))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env=os.environ | {"SPARSEKILN_CACHE_DIR": str(tmp_path)})  # fmt: skip
    assert done.stdout == "compiled\nTrue set() set()\n", done.stderr


def test_a_field_that_the_signature_lacks_is_an_argument_too(monkeypatch):
    layout = sk.patterns.random(3, 3, 0.6, seed=1)
    known = [
        dict(field, argument="row_alignment") if field["name"] == "alignment" else field
        for field in sk._core.computation_fields()
    ]
    monkeypatch.setattr(sk._core, "computation_fields", lambda: known)
    assert sk.compile(layout, 8, 4, target="cpu").op == "forward"
    assert sk.compile(layout, 8, 4, target="cpu", row_alignment=8).op == "forward"
    with pytest.raises(sk.InvalidArgument, match="aligned to 3 bytes"):
        sk.compile(layout, 8, 4, target="cpu", row_alignment=3)


def test_an_argument_that_no_field_has_is_refused_with_those_that_there_are():
    layout = sk.patterns.random(3, 3, 0.6, seed=1)
    with pytest.raises(TypeError, match="takes no argument colour; .* op, .*block_scale_gradient"):
        sk.compile(layout, 8, 4, target="cpu", colour="red")


def test_the_repr_of_a_kernel_says_what_it_is():
    layout = sk.patterns.random(3, 4, 0.6, seed=1)
    kernel = sk.compile(layout, (8, 16), 5, target="cpu", epilogue="bias+gelu")
    shown = f"Kernel(forward, 64 -> 24 features, {layout.blocks} blocks of 8x16, f32, bias+gelu, batch 5, on {kernel.target})"
    assert repr(kernel) == shown
    half = sk.compile(layout, 8, sk.up_to(9), "f16", "grad_input", target="cpu", out_dtype="f32")
    assert repr(half).startswith("Kernel(grad_input, 32 -> 24 features, ") and ", f16 to f32, batch up-to:9, on " in repr(half)


def test_a_program_that_ends_in_an_exception_shows_only_its_own():
    program = (
        "import threading, sparsekiln as sk\n"
        "kernel = sk.compile([[1]], 8, 4, target='cpu')\n"
        "threading.Thread(target=lambda kernel: threading.Event().wait(), args=(kernel,), daemon=True).start()\n"
        "raise LookupError('the last line')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == "LookupError: the last line"
