"""What torch.compile must know about layers whose blocks differ in number, or move."""

import sys

import torch
import torch.compiler.config

# PyTorch takes the shapes of parameters and buffers for constants, and would compile a graph for each number of blocks.
# Before 2.13, it knows no dimensions of sources: all of such a tensor are dynamic then.
_DIMENSION = ":0" if torch.__version__ >= "2.13" else ""
_NUMBERS_OF_BLOCKS = (rf".*_parameters\['weight_values'\]{_DIMENSION}", rf".*_buffers\['col_indices'\]{_DIMENSION}")


def make_numbers_of_blocks_dynamic() -> None:
    """One compiled graph then serves all layers of a shape, and a layer before and after a relayout."""
    config = torch.compiler.config
    config.dynamic_sources = ",".join(filter(None, (config.dynamic_sources, *_NUMBERS_OF_BLOCKS)))


def forget_recorded_graphs(device: torch.device) -> None:
    """Drops the CUDA graphs that torch.compile recorded: they would go on with the kernels of the old layout."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if device.type == "cuda" and trees is not None:
        trees.reset_cudagraph_trees()
