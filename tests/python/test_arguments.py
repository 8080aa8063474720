"""Arguments of a wrong type or value: a sentence that names the argument, what was given and what would work."""

import enum
import fractions
import os
import pathlib
import subprocess
import sys
import warnings

import numpy as np
import pytest

import sparsekiln as sk

LAYOUT = sk.patterns.random(8, 8, 0.4, seed=1)


def compiled(**wishes):
    return sk.compile(LAYOUT, **{"block": 16, "batch": 4, "target": "cpu", **wishes})


def refused(call, *parts, kind=(TypeError, ValueError)):
    with pytest.raises(kind) as caught:
        call()
    said = str(caught.value)
    for part in (*parts, "would work"):
        assert part in said, said
    assert "\n" not in said and "std::" not in said and "incompatible function arguments" not in said
    return said


@pytest.mark.parametrize("name, given, kind", [
    ("in_features", 128.0, TypeError), ("in_features", None, TypeError), ("in_features", "128", TypeError),
    ("in_features", np.float32(128), TypeError), ("out_features", fractions.Fraction(128), TypeError),
    ("out_features", 2**70, ValueError), ("tuning_seconds", "3", TypeError), ("tuning_seconds", None, TypeError),
    ("tuning_seconds", 10**400, ValueError), ("tuning_seconds", 3j, TypeError), ("attached", None, TypeError),
    ("attached", "no", TypeError), ("attached", 2, TypeError), ("tiered", "yes", TypeError), ("block_scales", "no", TypeError),
    ("strict_absent", "", TypeError), ("bias_gradient", np.array([True, False]), TypeError), ("config", 3, TypeError),
    ("target", None, TypeError), ("target", b"cpu", TypeError), ("target", "cpu\0", ValueError), ("op", "\udcff", ValueError),
    ("op", b"forward", TypeError), ("epilogue", ["bias"], TypeError), ("tuning", None, TypeError), ("require", 1, TypeError),
    ("batch", 4.0, TypeError), ("batch", (4,), TypeError), ("alignment", 16.0, TypeError), ("cache_dir", 3, TypeError),
    ("progress", "yes", TypeError), ("dtype", 3, TypeError), ("dtype", float, TypeError), ("dtype", np.zeros(2), TypeError),
    ("dtype", b"f32", TypeError), ("out_dtype", np.dtype(complex), TypeError), ("cache_dir", "a\0b", ValueError), ("packs", 3, TypeError), ("packs", None, TypeError), ("convolution", 3.5, TypeError),
])  # fmt: skip
def test_compile_names_the_argument(name, given, kind):
    said = refused(lambda: compiled(**{name: given}), f"{name} is ", kind=kind)
    assert f"{name} is {given!r};" in said or len(repr(given)) > 90


@pytest.mark.parametrize("block", ["32", 32.0, (16, 16.0), None, np.float64(16)])
def test_a_block_has_sides_of_integers(block):
    if block is None:
        assert compiled(block=None).block == (32, 32)
    else:
        refused(lambda: compiled(block=block), "a side of the block is ", kind=TypeError)


def test_packs_that_are_none_are_named_by_their_place():
    refused(lambda: compiled(packs=["K.pack", 3]), "packs[1] is 3")


def test_one_pack_may_be_given_by_its_path():
    for packs in ("no/such.pack", b"no/such.pack", pathlib.Path("no/such.pack"), ["no/such.pack"]):
        with pytest.raises(sk.Error, match="no/such.pack"):
            compiled(packs=packs)


class Operation(str, enum.Enum):
    forward = "forward"


def test_what_numbers_and_flags_are_in_numpy_is_taken():
    like = compiled(in_features=120, block_scales=False)
    for wishes in ({"in_features": np.int64(120)}, {"in_features": np.uint8(120)}, {"in_features": np.array(120)},
                   {"in_features": 120, "batch": np.int32(4)}, {"in_features": 120, "block": np.int8(16)},
                   {"in_features": 120, "block": (np.int64(16), 16)}, {"in_features": 120, "block_scales": np.bool_(False)},
                   {"in_features": 120, "attached": np.bool_(False)}, {"in_features": 120, "tuning_seconds": np.float32(3)},
                   {"in_features": 120, "tuning_seconds": 3}, {"in_features": 120, "alignment": np.int64(16)},
                   {"in_features": 120, "strict_absent": 0}, {"in_features": 120, "op": Operation.forward},
                   {"in_features": 120, "dtype": np.dtype(">f4")}, {"in_features": 120, "op": np.str_("forward")}):  # fmt: skip
        assert compiled(**wishes).key == like.key, wishes
    attached = compiled(attached=True).key
    assert attached == compiled(attached=np.bool_(True)).key == compiled(attached=1).key != compiled().key
    assert sk.up_to(np.int64(8)).bound == 8
    refused(lambda: sk.up_to(8.5), "8.5", kind=TypeError)
    refused(lambda: sk.up_to("8"), "'8'", kind=TypeError)


def test_what_numbers_and_devices_are_in_pytorch_is_taken():
    torch = pytest.importorskip("torch")
    like = compiled()
    assert compiled(target=torch.device("cpu")).key == compiled(batch=torch.tensor(4)).key == like.key
    assert compiled(attached=torch.tensor(True)).key == compiled(attached=True).key
    with pytest.raises(sk.InvalidArgument, match="meta"):
        compiled(target=torch.device("meta"))
    refused(lambda: compiled(in_features=torch.tensor([1, 2])), "in_features is ", kind=TypeError)
    refused(lambda: compiled(tuning_seconds=torch.ones(2)), "tuning_seconds is ", kind=TypeError)
    refused(lambda: compiled(in_features=torch.tensor(128.5)), "in_features is ", kind=TypeError)


@pytest.mark.parametrize("name, given", [
    ("rows", 8.0), ("rows", "8"), ("rows", np.float32(8.7)), ("cols", None), ("cols", 2**70), ("density", "0.5"), ("density", None),
    ("seed", -1), ("seed", 2**64), ("seed", 1.5), ("diagonal", None), ("diagonal", "no"),
])  # fmt: skip
def test_patterns_name_the_argument(name, given):
    wishes = {"rows": 8, "cols": 8, "density": 0.3, "seed": 0, "diagonal": False, name: given}
    refused(lambda: sk.patterns.balanced_random(**wishes), f"{name} is ")


def test_patterns_take_what_numbers_are_in_numpy():
    like = sk.patterns.balanced_random(8, 8, 0.5, 3, True)
    assert like == sk.patterns.balanced_random(np.int64(8), np.uint8(8), np.float32(0.5), np.uint64(3), np.bool_(True))
    assert sk.patterns.random(8, 8, 0.5, seed=2**64 - 1).blocks == 32


def test_other_functions_name_the_argument():
    refused(lambda: sk.set_threads(2.0), "threads is 2.0", kind=TypeError)
    refused(lambda: sk.set_threads(2**40), "threads is ", kind=ValueError)
    refused(lambda: sk.edge_situations(3), "convolution is 3", kind=TypeError)
    refused(lambda: sk.patterns.mixing([LAYOUT, 3]), "layouts[1] is 3", kind=TypeError)
    refused(lambda: sk.patterns.mixing(LAYOUT), "layouts is Layout(8x8", kind=TypeError)
    refused(lambda: sk.Layout.diagonal([np.eye(2)]), "parts[0] is ", kind=TypeError)


def test_calls_name_the_argument():
    kernel = compiled(epilogue="scale")
    x, w = np.ones((4, 128), np.float32), np.ones((LAYOUT.blocks, 16, 16), np.float32)
    for name, given in (("alpha", "2"), ("beta", None), ("beta", [1]), ("threads", 2.0), ("threads", np.float32(1.5)), ("threads", 2**40),
                        ("stream", "s"), ("stream", -1), ("stream", 1.0)):  # fmt: skip
        refused(lambda: kernel(x, w, **{name: given}), f"{name} is ")
    np.testing.assert_array_equal(kernel(x, w, alpha=np.float32(2), threads=np.int64(1)), kernel(x, w, alpha=2))
    for n in ("4", 4.0, None, 2**70):
        refused(lambda: kernel.workspace_bytes(n), "n is ")
    assert kernel.workspace_bytes(np.int64(4)) == kernel.workspace_bytes(4)
    with pytest.raises(TypeError, match=r"no operand '\\udcff'"):
        kernel(x, w, **{"\udcff": w})
    refused(lambda: compiled(attached=True).relayout(None), "a mask of 0 dimensions")


def test_arrays_in_the_other_byte_order_are_read_and_never_written():
    kernel = compiled(batch=sk.up_to(4), epilogue="bias")
    random = np.random.default_rng(0)
    x, w, bias = (random.standard_normal(shape).astype(np.float32) for shape in ((3, 128), (LAYOUT.blocks, 16, 16), (128,)))
    expected = kernel(x, w, bias=bias)
    swapped = lambda array: array.astype(array.dtype.newbyteorder())
    y = kernel(swapped(x), w, bias=bias)
    assert y.dtype == np.float32 and y.dtype.isnative
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(kernel(x, swapped(w), bias=swapped(bias)), expected)
    refused(lambda: kernel(x, w, swapped(expected), bias=bias), "operand y", "byte order", kind=TypeError)
    assert sk.Layout(swapped(LAYOUT.mask().astype(np.int32))) == LAYOUT
    assert sk.Layout.from_csr(8, 8, swapped(np.array(LAYOUT.crow)), swapped(np.array(LAYOUT.col))) == LAYOUT


def test_a_field_of_a_structured_array_is_read_and_never_written():
    kernel = compiled()
    w = np.ones((LAYOUT.blocks, 16, 16), np.float32)
    records = np.zeros((4, 128), [("a", "f4"), ("b", "i1")])
    records["a"] = np.random.default_rng(0).standard_normal((4, 128))
    np.testing.assert_array_equal(kernel(records["a"], w), kernel(np.ascontiguousarray(records["a"]), w))
    refused(lambda: kernel(np.ones((4, 128), np.float32), w, records["a"]), "operand y", "gaps", kind=TypeError)


@pytest.mark.parametrize("dtype", [object, np.longdouble, "U4", "M8[s]", np.complex64, np.int64, bool])
def test_arrays_of_types_without_kernels_are_named(dtype):
    kernel = compiled()
    w = np.ones((LAYOUT.blocks, 16, 16), np.float32)
    with pytest.raises((TypeError, ValueError), match="operand x") as caught:
        kernel(np.zeros((4, 128), dtype), w)
    assert "is no array" not in str(caught.value)


@pytest.mark.parametrize("form", ["coo", "csr", "csc", "lil", "dok", "dia"])
def test_sparse_arrays_of_scipy_are_masks_unless_they_hold_elements(form):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    mask = LAYOUT.mask()
    for dtype in (bool, np.int32, np.uint8):
        assert sk.Layout(getattr(scipy_sparse, f"{form}_array")(mask.astype(dtype))) == LAYOUT
    elements = getattr(scipy_sparse, f"{form}_array")(np.kron(mask, np.ones((16, 16))))
    refused(lambda: sk.Layout(elements), form, "float64", ".tobsr((32, 32))", ".astype(bool)", kind=ValueError)
    assert sk.Layout(elements.tobsr((16, 16))) == LAYOUT
    assert sk.compile(elements.tobsr((16, 16)), batch=4, target="cpu").key == compiled().key


def test_entries_of_a_sparse_array_that_are_zero_or_given_twice_count_as_in_a_dense_one():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    matrix = scipy_sparse.coo_array(([1, 0, 1, 1], ([0, 1, 2, 2], [1, 1, 0, 0])), shape=(3, 3))
    assert sk.Layout(matrix) == sk.Layout(matrix.toarray())
    assert matrix.nnz == 4


@pytest.mark.parametrize("given, says", [
    ("L.npy", "Layout.load('L.npy')"), (pathlib.Path("L.npy"), "Layout.load("), (b"L.npy", "Layout.load(b'L.npy')"), (None, "2|two"),
    (3, "two"), ([[1], [1, 2]], "array"), (np.ones((2, 2)), "float64"), ({1, 2}, "two"), (np.ones(3, bool), "two"),
])  # fmt: skip
def test_what_is_no_mask_is_refused(given, says):
    said = refused(lambda: sk.Layout(given))
    assert any(one in said for one in says.split("|")), said


def test_tensors_that_are_no_masks_are_refused():
    torch = pytest.importorskip("torch")
    for tensor in (torch.eye(4).bfloat16(), torch.eye(4, requires_grad=True), torch.eye(4).conj(), torch.ones(4, dtype=torch.bool)):
        refused(lambda: sk.Layout(tensor))
    refused(lambda: sk.Layout.from_csr(1, 1, torch.tensor([0.0, 1.0]), [0]), "crow", "integers")
    for rows in (2.0, "2", None):
        refused(lambda: sk.Layout.from_csr(rows, 2, [0, 1, 2], [0, 1]), "rows is ", kind=TypeError)


def test_tensors_without_memory_that_kernels_read_are_refused():
    torch = pytest.importorskip("torch")
    kernel = compiled()
    w = torch.ones(LAYOUT.blocks, 16, 16)
    x = torch.ones(4, 128)
    for other in (x.to_sparse(), x.to_sparse_bsr((4, 16)), x.to("meta"),
                  torch.nested.nested_tensor([torch.ones(128)])):  # fmt: skip
        refused(lambda: kernel(other, w), "operand x is a tensor (", str(other.dtype), "a dense one", kind=TypeError)


def test_paths_need_not_be_utf_8(tmp_path):
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(odd)
    for folder in (odd, os.fsdecode(odd), pathlib.Path(os.fsdecode(odd))):
        assert compiled(cache_dir=folder).key == compiled().key
    assert os.listdir(odd)
    file = os.path.join(os.fsdecode(odd), "L.npy")
    LAYOUT.save(file)
    assert sk.Layout.load(os.fsencode(file)) == sk.Layout.load(pathlib.Path(file)) == LAYOUT
    done = subprocess.run([sys.executable, "-m", "sparsekiln", "layout", "show", os.fsencode(file)], capture_output=True)
    assert done.returncode == 0 and b"caf\\xe9" in done.stdout, done.stderr
    for call in (sk.Layout.load, LAYOUT.save):
        refused(lambda: call(3), "path is 3", kind=TypeError)
        refused(lambda: call("L.npy\0x"), "null", kind=ValueError)


def test_a_layout_is_not_saved_as_text_under_the_name_of_something_else(tmp_path):
    refused(lambda: LAYOUT.save(tmp_path / "x.npz"), "x.npz", ".npy, .mtx, .smtx or .txt", kind=ValueError)
    assert not list(tmp_path.iterdir())


def test_a_cache_that_is_not_used_is_said_once_for_each_folder(tmp_path):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        folder.chmod(0o775)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in (4, 5):
            for folder in folders:
                for cache_dir in (folder, str(folder)):
                    compiled(batch=batch, cache_dir=cache_dir)
    assert [one.category for one in caught] == [RuntimeWarning] * 2
    for one, folder in zip(caught, folders):
        for part in ("sparsekiln: ", f"'{folder}'", "mode 0775", "chmod go-w", "SPARSEKILN_CACHE_DIR"):
            assert part in str(one.message)
        assert one.filename == __file__
        assert not list(folder.iterdir())


def test_a_pack_of_the_environment_that_is_none_is_said_once(tmp_path):
    (tmp_path / "K.pack").write_text("no pack")
    program = """if True:
        import sparsekiln as sk
        for batch in (4, 5):
            sk.compile(sk.patterns.random(8, 8, 0.4, seed=1), block=16, batch=batch, target="cpu")
    """
    environment = os.environ | {"SPARSEKILN_PACKS": str(tmp_path / "K.pack"), "SPARSEKILN_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stderr.count("SPARSEKILN_PACKS: ") == 1, done.stderr
