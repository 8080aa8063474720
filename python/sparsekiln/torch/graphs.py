"""What torch.compile must know about layers whose blocks differ in number, or move."""

import sys
from collections.abc import Hashable

import torch
import torch.compiler.config

# PyTorch takes the shapes of parameters and buffers for constants, and would compile a graph for each number of blocks. Graphs for all
# numbers have guards in Python, which each call evaluates: as with PyTorch's own automatic dynamic shapes, they begin with the second number.
# Before 2.13, it knows no dimensions of sources: all of such a tensor are dynamic then.
_DIMENSION = ":0" if torch.__version__ >= "2.13" else ""
_NUMBERS_OF_BLOCKS = (rf".*_parameters\['weight_values'\]{_DIMENSION}", rf".*_buffers\['col_indices'\]{_DIMENSION}")


_seen: dict[Hashable, int] = {}


def see_number_of_blocks(kind: Hashable, number: int) -> None:
    """Notes that a layer has so many blocks. `kind`: what layers have in common whose graphs differ in this alone."""
    if _seen.setdefault(kind, number) != number:
        make_numbers_of_blocks_dynamic()


def make_numbers_of_blocks_dynamic() -> None:
    """Graphs that are compiled from now on serve all layers of a shape, and a layer before and after a relayout."""
    config = torch.compiler.config
    sources = config.dynamic_sources.split(",") if config.dynamic_sources else []
    config.dynamic_sources = ",".join([*sources, *(one for one in _NUMBERS_OF_BLOCKS if one not in sources)])


def forget_recorded_graphs(device: torch.device) -> None:
    """Drops the CUDA graphs that torch.compile recorded: they would go on with the kernels of the old layout."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if device.type == "cuda" and trees is not None:
        trees.reset_cudagraph_trees()
