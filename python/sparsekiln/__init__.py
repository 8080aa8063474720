"""Sparsekiln: a compiler for block-sparse linear layers and convolutions.

    import sparsekiln as sk
    layout = sk.patterns.watts_strogatz(rows=128, cols=128, density=0.1)   # in blocks
    linear = sk.compile(layout, block=32, batch=64, dtype="f32")
    y = linear(x, w)      # x[64, 4096], w[blocks, 32, 32]; NumPy, PyTorch, JAX, CuPy: every framework with DLPack

The weight is W[out, in], as in torch.nn.Linear, and is stored as the blocks of its layout, row-major: byte for byte the
`values()` of a PyTorch BSR tensor and the `data` of a scipy.sparse.bsr_array. Layers of PyTorch are in sparsekiln.torch,
those of JAX in sparsekiln.jax, the interface of 2017 in sparsekiln.compat, and torchao's in sparsekiln.compat.torchao.
"""

from sparsekiln import _places, patterns  # _places first: it checks the extension, and names the places of what that asks for
from sparsekiln._core import Kernel, activations as _activations, version as __version__
from sparsekiln._errors import Error, InvalidArgument
from sparsekiln._places import get_include
from sparsekiln._threads import set_threads, threads
from sparsekiln.compilation import compile, up_to
from sparsekiln.edges import edge_situations
from sparsekiln.layout import Layout

__all__ = [
    "Error", "InvalidArgument", "Kernel", "Layout", "activations", "compile", "edge_situations", "get_include", "patterns", "set_threads", "threads",
    "up_to", "__version__",
]  # fmt: skip

#: The names of the activation functions.
activations: tuple[str, ...] = tuple(_activations)
