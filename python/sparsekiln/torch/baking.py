"""Kernels with the layout compiled in, for layouts that stay: made in the background, and taken when they are there.

A layer's first kernels take the layout as tables, so that all layouts share a compile and a relayout is quick. They are priced for
a layout as any; code that was compiled for a layout has the config that suits it, and its tables beside it.
"""

import os
import warnings

import torch

from .background import Worker

#: Calls of a kernel, and seconds since its layout was first used, after which the layout is taken to stay.
CALLS = 64
SECONDS = 10.0

_SWITCHES = {"": True, "1": True, "on": True, "0": False, "off": False}


def _stated() -> bool:
    said = os.environ.get("SPARSEKILN_BAKING", "")
    if said.lower() not in _SWITCHES:
        warnings.warn(f"SPARSEKILN_BAKING is '{said}'; on and off would work. It counts as on", stacklevel=2)
    return _SWITCHES.get(said.lower(), True)


_on = _stated()


def set_baking(on: bool) -> None:
    """Whether kernels of layouts that stay are compiled again in the background, with the layout in their code.

    They are taken as soon as they are there, for each call from then on; their results may differ from those before in how they
    are rounded. CUDA graphs that were captured before keep the kernels that they have. It is on, unless the environment has
    SPARSEKILN_BAKING=off; under torch.use_deterministic_algorithms nothing is baked. A kernel that is being compiled when this is
    switched off is not taken.
    """
    global _on
    _on = bool(on)


def is_on() -> bool:
    """Whether anything is baked now."""
    return _on and not torch.are_deterministic_algorithms_enabled()


worker = Worker("sparsekiln baking", niceness=10)
