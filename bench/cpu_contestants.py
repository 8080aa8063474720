"""Who computes a block-sparse linear layer in against.py: this library, and what else a user of a cpu has.

Each takes a Case, prepares what depends on the weight alone, and returns a call that computes y[n, out] from the start each time. A
contestant that is not installed, or that refuses the layer, raises Refusal with the reason.
"""

import ctypes
import dataclasses
import functools
import glob
import os
import pathlib
import sys
from collections.abc import Callable

import numpy as np
import torch
import xsmm_product

import sparsekiln
from sparsekiln.torch import BlockSparseLinear

Call = Callable[[], object]
_CORES = len(os.sched_getaffinity(0))


class Refusal(Exception):
    """Why a contestant does not compute this layer."""


@dataclasses.dataclass
class Case:
    layout: sparsekiln.Layout
    block: int
    batch: int
    threads: int

    def __post_init__(self) -> None:
        self.out_features, self.in_features = self.layout.rows * self.block, self.layout.cols * self.block
        self.layer = BlockSparseLinear(self.in_features, self.out_features, self.layout, self.block, bias=False)
        self.x = torch.randn(self.batch, self.in_features)
        self.crow = self.layer.crow_indices.int().numpy()
        self.col = self.layer.col_indices[: self.layout.blocks].int().numpy()
        self.values = self.layer.weight_values.detach().numpy()
        self.dense = self.layer.to_dense().detach().contiguous()


def ours(case: Case) -> Call:
    return lambda: case.layer(case.x)


def kernel_alone(case: Case) -> Call:
    """Ours as a kernel for this batch, into memory that is there, as the libraries below are called."""
    kernel = sparsekiln.compile(case.layout, case.block, case.batch, target="cpu")
    x, y = case.x.numpy(), np.empty((case.batch, case.out_features), np.float32)

    def call():
        kernel(x, case.values, y=y, threads=case.threads)
        return y

    return call


def torch_bsr(case: Case) -> Call:
    weight = case.layer.to_bsr().detach()
    zero = torch.zeros(case.out_features, 1)
    return lambda: torch.addmm(zero, weight, case.x.T).T


def torch_dense(case: Case) -> Call:
    return lambda: torch.nn.functional.linear(case.x, case.dense)


def onednn_prepacked(case: Case) -> Call:
    if not torch.backends.mkldnn.is_available():
        raise Refusal("this PyTorch has no oneDNN")
    weight = torch.ops.mkldnn._reorder_linear_weight(case.dense, case.batch)
    return lambda: torch.ops.mkldnn._linear_pointwise(case.x, weight, None, "none", [], "")


def onednn_plain(case: Case) -> Call:
    if not torch.backends.mkldnn.is_available():
        raise Refusal("this PyTorch has no oneDNN")
    return lambda: torch.ops.mkldnn._linear_pointwise(case.x, case.dense, None, "none", [], "")


def openblas_dense(case: Case) -> Call:
    if "openblas" not in str(np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]).lower():
        raise Refusal("this NumPy has another BLAS")
    if case.threads != _CORES:
        raise Refusal("OpenBLAS has as many threads as there were cores when it was loaded")
    x, transposed, y = case.x.numpy(), case.dense.numpy().T, np.empty((case.batch, case.out_features), np.float32)
    return lambda: np.matmul(x, transposed, out=y)


def scipy_bsr(case: Case) -> Call:
    try:
        import scipy.sparse
    except ModuleNotFoundError as error:
        raise Refusal("no SciPy") from error
    weight = scipy.sparse.bsr_array((case.values, case.col, case.crow), shape=(case.out_features, case.in_features))
    transposed = np.ascontiguousarray(case.x.numpy().T)  # uncounted: it takes activations as columns
    return lambda: (weight @ transposed).T


@functools.cache
def _mkl() -> ctypes.CDLL:
    for file in [*glob.glob(f"{sys.prefix}/lib/libmkl_rt.so*"), "libmkl_rt.so.3", "libmkl_rt.so.2"]:
        try:
            return ctypes.CDLL(file)
        except OSError:
            continue
    raise Refusal("no MKL (PyPI's mkl)")


def mkl_bsr(case: Case) -> Call:
    library = _mkl()
    library.MKL_Set_Num_Threads(case.threads)
    pointer = lambda array: array.ctypes.data_as(ctypes.c_void_p)  # noqa: E731
    handle = ctypes.c_void_p()
    values = np.ascontiguousarray(case.values)
    side, zero_based, row_major = ctypes.c_int(case.block), 0, 101
    status = library.mkl_sparse_s_create_bsr(
        ctypes.byref(handle), zero_based, row_major, case.layout.rows, case.layout.cols, side,
        pointer(case.crow), pointer(case.crow[1:]), pointer(case.col), pointer(values),
    )  # fmt: skip
    if status != 0:
        raise Refusal(f"mkl_sparse_s_create_bsr gives {status}")

    class Description(ctypes.Structure):
        _fields_ = [("type", ctypes.c_int), ("mode", ctypes.c_int), ("diag", ctypes.c_int)]

    general = Description(20, 0, 0)
    library.mkl_sparse_set_mm_hint(handle, 10, general, row_major, case.batch, 1000)
    library.mkl_sparse_optimize(handle)
    transposed = np.ascontiguousarray(case.x.numpy().T)  # as for SciPy
    y = np.empty((case.out_features, case.batch), np.float32)

    def call():
        _ = values, case.col  # that MKL reads
        library.mkl_sparse_s_mm(
            10, ctypes.c_float(1), handle, general, row_major, pointer(transposed), case.batch, case.batch, ctypes.c_float(0),
            pointer(y), case.batch,
        )  # fmt: skip
        return y.T

    return call


def libxsmm(form: Callable[..., Call], installation: pathlib.Path | None, case: Case) -> Call:
    if np.diff(case.crow).max(initial=0) > xsmm_product.MOST_BLOCKS:
        raise Refusal(f"a block row has more than {xsmm_product.MOST_BLOCKS} blocks")
    try:
        return form(case, installation)
    except xsmm_product.Missing as error:
        raise Refusal(str(error)) from None


def of_libxsmm(installation: pathlib.Path | None) -> dict[str, Callable[[Case], Call]]:
    """The contestants that an installation of LIBXSMM is; None: the system's."""
    forms = {"LIBXSMM": xsmm_product.plain, "LIBXSMM, tuned": xsmm_product.tuned}
    return {name: functools.partial(libxsmm, form, installation) for name, form in forms.items()}


OURS, KERNEL = "BlockSparseLinear", "kernel alone"
CONTESTANTS: dict[str, Callable[[Case], Call]] = {
    OURS: ours, KERNEL: kernel_alone, "PyTorch BSR (MKL)": torch_bsr, "MKL BSR": mkl_bsr, "SciPy BSR": scipy_bsr,
    **of_libxsmm(None), "PyTorch dense": torch_dense, "oneDNN dense": onednn_plain, "oneDNN dense, prepacked": onednn_prepacked,
    "OpenBLAS dense": openblas_dense,
}  # fmt: skip
DENSE = ("PyTorch dense", "oneDNN dense", "oneDNN dense, prepacked", "OpenBLAS dense")
