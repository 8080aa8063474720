"""cuSPARSE's products of a BSR matrix, called through its C interface: BSR in cusparseSpMM, and cusparseSbsrmm.

Both compute C = A · B with A in BSR and B, C dense and column-major: activations x[n, features], row-major, are such a matrix
[features, n]. Numbers are those of cusparse.h and library_types.h.
"""

import ctypes

import torch

_LIBRARIES = ("libcusparse.so.12", "libcusparse.so.11", "libcusparse.so")
_TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}  # cudaDataType
_FLOAT32, _INDEX_32, _BASE_0, _AS_IT_IS = 0, 2, 0, 0
_BY_COLUMNS, _BY_ROWS = 1, 2  # cusparseOrder_t
_BLOCKS_BY_ROWS = 0  # cusparseDirection_t
_BSR_ALGORITHM = 14  # CUSPARSE_SPMM_BSR_ALG1

_long, _int, _pointer = ctypes.c_int64, ctypes.c_int, ctypes.c_void_p


class CusparseError(Exception):
    pass


def _load() -> ctypes.CDLL:
    """The one that PyTorch has loaded, if it has."""
    why = []
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            why.append(str(error))
    raise CusparseError("; ".join(why))


class Cusparse:
    def __init__(self) -> None:
        torch.cuda.current_stream()
        self._library = _load()
        self._handle = _pointer()
        self.call("cusparseCreate", ctypes.byref(self._handle))

    def call(self, name: str, *arguments: object) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise CusparseError(f"this cuSPARSE has no {name}") from None
        if status := function(*arguments):
            text = self._library.cusparseGetErrorString
            text.restype = ctypes.c_char_p
            raise CusparseError(f"{name}: {text(status).decode()}")

    def use_current_stream(self) -> _pointer:
        self.call("cusparseSetStream", self._handle, _pointer(torch.cuda.current_stream().cuda_stream))
        return self._handle


class SpMM:
    """cusparseSpMM of one set of operands: its descriptors and its buffer."""

    def __init__(
        self, library: Cusparse, crow: torch.Tensor, col: torch.Tensor, values: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ):
        self._library, self._kept = library, (crow, col, values, x, y)
        side, kind = values.shape[-1], _TYPES[values.dtype]
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)
        self._a, self._b, self._c = _pointer(), _pointer(), _pointer()
        library.call(
            "cusparseCreateBsr", ctypes.byref(self._a), _long(crow.numel() - 1), _long(x.shape[1] // side), _long(col.numel()),
            _long(side), _long(side), _pointer(crow.data_ptr()), _pointer(col.data_ptr()), _pointer(values.data_ptr()),
            _int(_INDEX_32), _int(_INDEX_32), _int(_BASE_0), _int(kind), _int(_BY_ROWS),
        )  # fmt: skip
        for made, dense in ((self._b, x), (self._c, y)):
            library.call(
                "cusparseCreateDnMat", ctypes.byref(made), _long(dense.shape[1]), _long(dense.shape[0]), _long(dense.stride(0)),
                _pointer(dense.data_ptr()), _int(kind), _int(_BY_COLUMNS),
            )  # fmt: skip
        size = ctypes.c_size_t()
        library.call("cusparseSpMM_bufferSize", *self._arguments(), ctypes.byref(size))
        self._buffer = torch.empty(max(1, size.value), dtype=torch.uint8, device=x.device)

    def _arguments(self) -> tuple:
        return (
            self._library.use_current_stream(), _int(_AS_IT_IS), _int(_AS_IT_IS), ctypes.byref(self._one), self._a, self._b,
            ctypes.byref(self._zero), self._c, _int(_FLOAT32), _int(_BSR_ALGORITHM),
        )  # fmt: skip

    def launch(self) -> None:
        self._library.call("cusparseSpMM", *self._arguments(), _pointer(self._buffer.data_ptr()))


class Sbsrmm:
    """cusparseSbsrmm, of float32."""

    def __init__(
        self, library: Cusparse, crow: torch.Tensor, col: torch.Tensor, values: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ):
        self._library, self._kept = library, (crow, col, values, x, y)
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)
        self._description = _pointer()
        library.call("cusparseCreateMatDescr", ctypes.byref(self._description))

    def launch(self) -> None:
        crow, col, values, x, y = self._kept
        side = values.shape[-1]
        self._library.call(
            "cusparseSbsrmm", self._library.use_current_stream(), _int(_BLOCKS_BY_ROWS), _int(_AS_IT_IS), _int(_AS_IT_IS),
            _int(crow.numel() - 1), _int(len(x)), _int(x.shape[1] // side), _int(col.numel()), ctypes.byref(self._one),
            self._description, _pointer(values.data_ptr()), _pointer(crow.data_ptr()), _pointer(col.data_ptr()), _int(side),
            _pointer(x.data_ptr()), _int(x.stride(0)), ctypes.byref(self._zero), _pointer(y.data_ptr()), _int(y.stride(0)),
        )  # fmt: skip
