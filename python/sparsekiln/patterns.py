"""Sparsity patterns. Sizes are in blocks.

The same arguments give the same layout on every machine, in C++ and here. Every function raises InvalidArgument for sizes
or probabilities out of range. `mixing` tells how far a stack of layers spreads its inputs.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from sparsekiln import _core
from sparsekiln._arguments import flag, integer, real, unsigned
from sparsekiln.layout import Layout, cores_of


_CHECKS = {"density": real, "rewire": real, "diagonal": flag, "seed": unsigned}


def _pattern(name: str, **arguments: Any) -> Layout:
    checked = {argument: _CHECKS.get(argument, integer)(argument, given) for argument, given in arguments.items()}
    return Layout(_core.Layout.pattern(name, **checked))


def random(rows: int, cols: int, density: float, seed: int = 0) -> Layout:
    """round(density * rows * cols) distinct blocks, uniformly."""
    return _pattern("random", rows=rows, cols=cols, density=density, seed=seed)


def balanced_random(rows: int, cols: int, density: float, seed: int = 0, diagonal: bool = False) -> Layout:
    """Like random, but the numbers of blocks in rows differ by at most one, and so do those in columns; with `diagonal`, the
    diagonal of a square grid is among them."""
    return _pattern("balanced_random", rows=rows, cols=cols, density=density, seed=seed, diagonal=diagonal)


def block_diagonal(rows: int, cols: int, groups: int) -> Layout:
    """`groups` dense rectangles on the diagonal, of sizes that differ by at most one."""
    return _pattern("block_diagonal", rows=rows, cols=cols, groups=groups)


def banded(rows: int, cols: int, half_width: int) -> Layout:
    """The blocks that the (scaled) diagonal crosses, and `half_width` to each side of them in their row."""
    return _pattern("banded", rows=rows, cols=cols, half_width=half_width)


def watts_strogatz(rows: int, cols: int, density: float, rewire: float = 0.1, seed: int = 0, diagonal: bool = False) -> Layout:
    """Small world (Watts & Strogatz 1998; Gray, Radford & Kingma 2017): a ring lattice around the scaled diagonal, of which
    each block is rewired within its row with probability `rewire`; with `diagonal`, those on the diagonal stay."""
    return _pattern("watts_strogatz", rows=rows, cols=cols, density=density, rewire=rewire, seed=seed, diagonal=diagonal)


def balanced_watts_strogatz(
    rows: int, cols: int, density: float, rewire: float = 0.1, seed: int = 0, diagonal: bool = False
) -> Layout:
    """Like watts_strogatz, but the numbers of blocks in columns differ by at most one, too: rewired blocks exchange their
    columns."""
    return _pattern(
        "balanced_watts_strogatz", rows=rows, cols=cols, density=density, rewire=rewire, seed=seed, diagonal=diagonal
    )


def barabasi_albert(size: int, edges: int, diagonal: bool = True, seed: int = 0, extra_edges: int = 0) -> Layout:
    """Preferential attachment over `size` nodes with `edges` edges a new node, as a symmetric grid; then `extra_edges` further
    edges, each from a node with the fewest edges to a random other one. edges**2 of them give every node at least `edges`."""
    return _pattern("barabasi_albert", size=size, edges=edges, diagonal=diagonal, seed=seed, extra_edges=extra_edges)


def butterfly(size: int) -> Layout:
    """Block (i, j) for j = i and for j = i with one of log2(size) bits flipped; `size` is a power of two."""
    return _pattern("butterfly", size=size)


def causal(size: int) -> Layout:
    """The lower triangle, diagonal included."""
    return _pattern("causal", size=size)


def strided(size: int, stride: int) -> Layout:
    """Sparse Transformer, strided form (Child et al. 2019, section 4.3), causal."""
    return _pattern("strided", size=size, stride=stride)


def longformer(size: int, window: int, global_blocks: int) -> Layout:
    """A window to each side, and first blocks that attend everywhere (Beltagy et al. 2020)."""
    return _pattern("longformer", size=size, window=window, global_blocks=global_blocks)


def bigbird(size: int, window: int, global_blocks: int, random_blocks: int, seed: int = 0) -> Layout:
    """Longformer's pattern and random further blocks in each row (Zaheer et al. 2020)."""
    return _pattern("bigbird", size=size, window=window, global_blocks=global_blocks, random_blocks=random_blocks, seed=seed)


class Mixing(NamedTuple):
    """How many output blocks of a stack of layers are reached from an input block; over all input blocks."""

    minimum: int
    median: float
    mean: float
    maximum: int
    share: float  #: reached pairs of input and output block, of all pairs; 1.0 only if all are reached


def mixing(layouts: Iterable[Layout]) -> list[Mixing]:
    """How far layers that follow one another spread their inputs: after the first, after the first two, and so on.

    The rows of each layout are the columns of the next; a layer that is applied five times is `[layout] * 5`. Raises
    InvalidArgument for layouts that do not fit each other.
    """
    return [Mixing(*after) for after in _core.Layout.mixing(cores_of("layouts", layouts))]
