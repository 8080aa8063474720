"""LIBXSMM's product of a layer, by batch_reduce.c, which is compiled here: as one writes it, and the fastest of several forms.

The weight is stored as LIBXSMM wants it beforehand, uncounted.
"""

import ctypes
import functools
import itertools
import pathlib
import subprocess
import tempfile
import timeit
from collections.abc import Callable

import numpy as np

MOST_BLOCKS = 4096  # of a block row

_TILES = (8, 16, 32, 64)  # batch rows
_SYSTEM = pathlib.Path("/usr")


class Missing(Exception):
    """Why there is no LIBXSMM."""


@functools.cache
def _library(installation: pathlib.Path | None) -> ctypes.CDLL | str:
    """Or why it is not there."""
    where = installation or _SYSTEM
    header = next((folder for folder in (where / "include" / "libxsmm", where / "include") if (folder / "libxsmm.h").exists()), None)
    if header is None:
        return f"no libxsmm.h in {installation}/include" if installation else "no LIBXSMM (Debian's libxsmm-dev, or --libxsmm)"
    with tempfile.TemporaryDirectory(prefix="sparsekiln-xsmm-") as folder:
        places = [f"-L{where}/lib", f"-Wl,-rpath,{where}/lib"] if installation else []
        source = pathlib.Path(__file__).with_name("batch_reduce.c")
        command = ["gcc", "-O2", "-shared", "-fPIC", "-fopenmp", f"-DMOST_BLOCKS={MOST_BLOCKS}", f"-I{header}", str(source), "-o", f"{folder}/product.so", *places, "-lxsmm"]
        # 1.17 wants a BLAS, which is not called.
        stand_in = ["-lxsmmnoblas"] if installation is None or (where / "lib" / "libxsmmnoblas.so").exists() else []
        done = subprocess.run([*command, *stand_in, "-ldl", "-lm", "-lpthread"], capture_output=True, text=True)
        if done.returncode != 0:
            return f"LIBXSMM does not compile: {done.stderr.strip()}"
        library = ctypes.CDLL(f"{folder}/product.so")
    library.make_product.restype = ctypes.c_void_p
    library.version.restype = ctypes.c_char_p
    return library


def _loaded(installation: pathlib.Path | None) -> ctypes.CDLL:
    found = _library(installation)
    if isinstance(found, str):
        raise Missing(found)
    return found


def version(installation: pathlib.Path | None) -> str:
    return _loaded(installation).version().decode()


class _Product:
    """One form. Call it for y[n, out]."""

    def __init__(self, library: ctypes.CDLL, case, values: np.ndarray, tile: int, packs: bool, evenly: bool):
        self._library, self._values, self._crow, self._col = library, values, case.crow, case.col  # which it reads
        self._x, self._y = case.x.numpy(), np.empty((case.batch, case.out_features), np.float32)
        self._arguments = _pointer(self._x), _pointer(self._y), case.batch, case.threads, int(evenly)
        made = library.make_product(
            case.block, tile, int(packs), case.batch, case.in_features, case.out_features, _pointer(case.crow), _pointer(case.col),
            _pointer(values),
        )  # fmt: skip
        self._product = ctypes.c_void_p(made)
        if not made:
            raise Missing("LIBXSMM has no kernel of this size")

    def __call__(self) -> np.ndarray:
        self._library.run_product(self._product, *self._arguments)
        return self._y

    def __del__(self):
        self._library.free_product(self._product)


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def plain(case, installation: pathlib.Path | None) -> Callable[[], np.ndarray]:
    """A batch-reduce GEMM for each block row and 64 batch rows, x in place, block rows dealt one by one. `case` as of cpu_contestants."""
    return _Product(_loaded(installation), case, _stored(case), _TILES[-1], packs=False, evenly=False)


def tuned(case, installation: pathlib.Path | None) -> Callable[[], np.ndarray]:
    """The fastest of four tiles, with x in place or packed in each call, and with block rows dealt evenly or one by one."""
    library, values = _loaded(installation), _stored(case)
    forms = itertools.product(_TILES, (False, True), (False, True))
    return min((_Product(library, case, values, *form) for form in forms), key=_seconds)


def _stored(case) -> np.ndarray:
    """[blocks, in, out]"""
    return np.ascontiguousarray(case.values.transpose(0, 2, 1))


def _seconds(call: Callable[[], object]) -> float:
    call()
    return min(timeit.repeat(call, number=3, repeat=5))
