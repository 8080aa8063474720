"""Which outputs of a convolution meet its padding, and how."""

from typing import NamedTuple

import numpy as np

from sparsekiln import _core
from sparsekiln._arguments import text


class EdgeSituations(NamedTuple):
    count: int
    of_position: np.ndarray  #: of the extents of an image of y, int32, from 0 on


def edge_situations(convolution: str) -> EdgeSituations:
    """The situations in which outputs of a convolution are: which taps they find outside of x.

    Outputs with the same set of such taps share a situation; taps that no block has are left out. Situations are numbered in
    the order in which they first appear, and are the rows of the operands edge_gain and edge_bias of a kernel with the
    epilogue edge_bias. `convolution` is a text as sparsekiln.compile takes it.

    Raises InvalidArgument for what is no convolution, and where there may be more than 4096 situations.
    """
    return EdgeSituations(*_core.edge_situations(text("convolution", convolution)))
