"""Modules by the paths that they had before they were put into subpackages: whole layers that were saved name them.

A pickle, and so `torch.save` of a whole layer, names each class by its module. `state_dict` does not.
"""

import importlib
import sys
import types
from typing import Any

_PACKAGE = __name__.rpartition(".")[0]

#: The modules whose classes or functions pickles name, and where these are now. `recurrent` and `parallel` are packages that have
#: what the modules of these names had.
_NOW = {
    "convolution_geometry": "convolution.geometry",
    "convolutions": "convolution.convolutions",
    "functional": "linear.functional",
    "inner_modules": "recurrent.inner_modules",
    "layers": "linear.layer",
    "matmul": "linear.matmul",
    "normalised": "recurrent.normalised",
    "parallel_styles": "parallel.styles",
    "partition": "parallel.partition",
    "rank_entries": "parallel.rank_entries",
    "sharded_layer": "parallel.sharded_layer",
    "small_world": "recurrent.small_world",
    "tap_masks": "convolution.tap_masks",
    "transposed_convolutions": "convolution.transposed",
}


class _Former(types.ModuleType):
    """What its module has now, which it imports when it is first asked: `parallel` takes PyTorch a second to load."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of what looks through sys.modules
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        former = self.__name__.rpartition(".")[2]
        return getattr(importlib.import_module(f"{_PACKAGE}.{_NOW[former]}"), name)


def keep_former_paths() -> None:
    """Lets these modules be imported by their former paths."""
    for former in _NOW:
        path = f"{_PACKAGE}.{former}"
        sys.modules.setdefault(path, _Former(path, f"{_PACKAGE}.{_NOW[former]}, by its former path."))
