"""Layouts: which blocks of a weight are present."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from sparsekiln import _core
from sparsekiln._arguments import integer, path as path_of, shown


class Layout:
    """An immutable grid of block rows (output features) x block columns (input features), each block present or absent.

    Layout(mask) takes a 2-D array-like of bool or integers, one entry a BLOCK (not an element): NumPy, PyTorch, nested
    lists, and sparse arrays of SciPy. Layout(matrix) takes the blocks of a scipy.sparse.bsr_array (or bsr_matrix), or of a
    PyTorch BSR tensor.
    Present blocks are numbered row-major: the order of a weight's values. Equal grids are equal, and have equal digests,
    on every machine.
    """

    __slots__ = ("_core",)

    def __init__(self, blocks: Any) -> None:
        if isinstance(blocks, _core.Layout):
            self._core = blocks
        elif isinstance(blocks, Layout):
            self._core = blocks._core
        else:
            self._core = _layout_of(blocks)

    @staticmethod
    def from_csr(rows: int, cols: int, crow: Any, col: Any) -> "Layout":
        """BSR index arrays, crow[rows + 1] and col[blocks]. Raises ValueError that names the row if they are unsorted, duplicate
        or out of range."""
        rows, cols = integer("rows", rows, 0), integer("cols", cols, 0)
        return Layout(_core.Layout.from_csr(rows, cols, _indices("crow", crow), _indices("col", col)))

    @staticmethod
    def diagonal(parts: "Iterable[Layout]") -> "Layout":
        """The parts one after the other along the diagonal: a layer with this layout computes the products of all parts at
        once, each with its own features. Its blocks are those of the first part, then those of the second …"""
        return Layout(_core.Layout.diagonal(cores_of("parts", parts)))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Layout":
        """Reads .npy (2-D bool or integer), .mtx (Matrix Market), .smtx, or text of 0 and 1."""
        return Layout(_core.Layout.load(path_of("path", path)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the format that the file's extension names, .npy, .mtx, .smtx or .txt; all or nothing."""
        self._core.save(path_of("path", path))

    @property
    def rows(self) -> int:
        """Block rows."""
        return self._core.rows

    @property
    def cols(self) -> int:
        """Block columns."""
        return self._core.cols

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols), in blocks."""
        return self.rows, self.cols

    @property
    def blocks(self) -> int:
        """The number of present blocks."""
        return self._core.blocks

    @property
    def density(self) -> float:
        """blocks / (rows * cols)."""
        return self._core.density

    @property
    def digest(self) -> str:
        """The digest of the content: 32 hexadecimal digits."""
        return self._core.digest

    @property
    def crow(self) -> np.ndarray:
        """int32[rows + 1], read-only: the start of each row in col."""
        return self._core.crow

    @property
    def col(self) -> np.ndarray:
        """int32[blocks], read-only: the block columns, ascending within each row."""
        return self._core.col

    def mask(self) -> np.ndarray:
        """bool[rows, cols]."""
        mask = np.zeros(self.shape, bool)
        mask[np.repeat(np.arange(self.rows), np.diff(self.crow)), self.col] = True
        return mask

    def transposed(self) -> "Layout":
        return Layout(self._core.transposed())

    def __len__(self) -> int:
        return self.blocks

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Layout) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout.from_csr, (self.rows, self.cols, np.array(self.crow), np.array(self.col))

    def __copy__(self) -> "Layout":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Layout":
        return self

    def __repr__(self) -> str:
        return f"Layout({self.rows}x{self.cols} blocks, {self.blocks} present, {100 * self.density:.4g} %)"


def cores_of(name: str, layouts: Any) -> list[_core.Layout]:
    """What the core knows of several layouts."""
    if not isinstance(layouts, Iterable):
        raise TypeError(f"{name} is {shown(layouts)}; a list of Layouts would work")
    cores = []
    for position, one in enumerate(layouts):
        if not isinstance(one, Layout):
            raise TypeError(f"{name}[{position}] is {shown(one)}; a Layout would work")
        cores.append(one._core)
    return cores


def _array(name: str, values: Any) -> np.ndarray:
    """On the cpu; raises TypeError for what NumPy makes no array of."""
    try:
        return np.asarray(values.numpy(force=True) if hasattr(values, "resolve_neg") else values)  # PyTorch has that
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is {shown(values)}: {error}; an array of bool or integers would work") from None


def _indices(name: str, values: Any) -> np.ndarray:
    """int32, contiguous; raises ValueError for values that do not fit."""
    array = _array(name, values)
    if array.ndim != 1 or not (array.dtype.kind in "iu" or array.size == 0):
        raise ValueError(f"{name} has {array.ndim} dimensions of {array.dtype}; one dimension of integers would work")
    if array.size and (array.min() < 0 or array.max() > np.iinfo(np.int32).max):
        raise ValueError(f"{name} has entries from {array.min()} to {array.max()}; 0 to {np.iinfo(np.int32).max} would work")
    return np.ascontiguousarray(array, np.int32)


def block_of(matrix: Any) -> tuple[int, int]:
    """(block_out, block_in) of a BSR matrix of PyTorch or SciPy; (32, 32) for all else."""
    if str(getattr(matrix, "layout", "")) == "torch.sparse_bsr":
        block_out, block_in = matrix.values().shape[-2:]
    elif getattr(matrix, "format", "") == "bsr":
        block_out, block_in = matrix.blocksize
    else:
        block_out = block_in = 32
    return int(block_out), int(block_in)


def _layout_of(blocks: Any) -> _core.Layout:
    if str(getattr(blocks, "layout", "")).startswith("torch.sparse"):
        if str(blocks.layout) != "torch.sparse_bsr" or blocks.ndim != 2:
            raise ValueError(f"a tensor of {blocks.ndim} dimensions in {blocks.layout}; a BSR tensor of two would work")
        values = blocks.values()
        _, block_out, block_in = values.shape
        out_features, in_features = blocks.shape
        return _core.Layout.from_csr(
            out_features // block_out, in_features // block_in,
            _indices("crow", blocks.crow_indices()), _indices("col", blocks.col_indices()))  # fmt: skip
    if hasattr(blocks, "tocsr"):  # SciPy
        return _of_scipy(blocks)
    if isinstance(blocks, (str, bytes, os.PathLike)):
        raise TypeError(f"a layout of {shown(blocks)}, which is no mask; sparsekiln.Layout.load({shown(blocks)}) would work for a file")
    mask = _array("the mask", blocks)
    if mask.ndim != 2 or mask.dtype.kind not in "biu":
        raise ValueError(f"a mask of {mask.ndim} dimensions of {mask.dtype}; two, of bool or integers, one entry a block, would work")
    return _core.Layout.from_mask(np.ascontiguousarray(mask != 0).view(np.uint8))


def _of_scipy(matrix: Any) -> _core.Layout:
    """The blocks of a matrix that has blocks; of any other the entries that are not zero, as of a dense mask."""
    if matrix.ndim != 2:
        raise ValueError(f"a sparse array of {matrix.ndim} dimensions; one of two would work")
    if matrix.format == "bsr":
        sides = matrix.blocksize
    elif matrix.dtype.kind in "biu":
        sides = (1, 1)
        matrix = matrix.tocsr(copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    else:
        raise ValueError(
            f"a sparse matrix of format '{matrix.format}' of {matrix.dtype}, whose entries may be elements or blocks: if they are "
            "elements of a weight, .tobsr((32, 32)) would work, and if each stands for a block, .astype(bool)"
        )
    return _core.Layout.from_csr(
        matrix.shape[0] // sides[0], matrix.shape[1] // sides[1], _indices("indptr", matrix.indptr), _indices("indices", matrix.indices)
    )
