"""The extension module that this package is built on. Kernel is public."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

version: str
#: For each element type: its name, NumPy's name of it and of the type in which it is summed, its bits, and whether CUDA
#: targets compute with it.
element_types: tuple[tuple[str, str, str, int, bool, bool], ...]
activations: dict[str, bool]
"""By name: whether the derivative may be taken at the result, so that y may be given for z."""

def threads() -> int: ...
def stated_threads() -> int:
    """What set_threads was given, else SPARSEKILN_THREADS; 0: neither says."""
def set_threads(threads: int) -> None: ...
def take_warning() -> str | None:
    """See sk_take_warning of c.h."""
def interface() -> int:
    """The address of the functions of the C interface that other libraries of the package call: python/core/interface.h."""
def set_team(team: int) -> None:
    """The address of GOMP_parallel, or of what does the same; 0: none. See set_team of threads.h."""

class Layout:
    @staticmethod
    def from_csr(rows: int, cols: int, crow: np.ndarray, col: np.ndarray) -> Layout: ...
    @staticmethod
    def from_mask(mask: np.ndarray) -> Layout: ...
    @staticmethod
    def diagonal(parts: list[Layout]) -> Layout: ...
    @staticmethod
    def load(file: bytes) -> Layout: ...
    @staticmethod
    def mixing(layers: list[Layout]) -> list[tuple[int, float, float, int, float]]:
        """The fields of sparsekiln.patterns.Mixing, after each layer."""
    @staticmethod
    def pattern(name: str, **arguments: Any) -> Layout: ...
    def save(self, file: bytes) -> None: ...
    def transposed(self) -> Layout: ...
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    @property
    def density(self) -> float: ...
    @property
    def digest(self) -> str: ...
    @property
    def crow(self) -> np.ndarray: ...
    @property
    def col(self) -> np.ndarray: ...

class Kernel:
    """A compiled layer on a device, as sparsekiln.compile returns it. Thread-safe.

    forward     y[n, out] = x[n, in] W^T             kernel(x, w, y=None)
    grad_input  dx[n, in] = dy[n, out] W             kernel(dy, w, dx=None)
    grad_weight dw[blocks, block_out, block_in]      kernel(x, dy, dw=None)

    Operands are arrays of NumPy, PyTorch, JAX, CuPy, or another framework with DLPack, on the kernel's device, of its dtype;
    rows are contiguous, at any distance. With three dimensions, activations are batches of matrices; those of a convolution are
    images, channels-last, [n, (depth,) (height,) width, features], or their rows, with order="feature-major" channels-first,
    [n, features, (depth,) (height,) width], and weights [blocks, taps, block_out, block_in]. Where a convolution takes images of
    several sizes (input=up-to:64x48), x and dx must have axes of their own for their extents, and grad_input needs dx.

    Outputs that are not given are made in the first operand's framework. These are given by name: bias[out], v (of glu),
    v_bias, residual, z, edge_gain and edge_bias[situations, out] (of edge_bias, of the sums' type), row_scale and with glu
    v_row_scale[block rows] (of row_scale, float32), block_scales[blocks of the layout], the outputs dbias[out] and
    dblock_scales, as block_scales (float32, for float64 operands float64; gates and dgates are other names of both), alpha and
    beta (of scale), workspace, stream, a number, by default the framework's current one, and on the cpu threads: at most so
    many, 0 for sparsekiln.threads(). A workspace is a dense array of any type, on the same device, of at least
    workspace_bytes(n) bytes, of which the first workspace_counter_bytes() are zeroed before its first use; n is the number of
    batch rows, of all matrices if they can be read as one that the kernel takes.

    With the epilogue lstm, w and dw are four weights, [4, blocks, block_out, block_in] or [4 blocks, block_out, block_in], in the
    order i, f, g, o, and dy and dx of gradients are [n, 4 features]. forward takes projection[n, 4 out] and c_before[n, out], and
    computes (y, c), with lstm+keep (y, c, activations[n, 4 out]); c may be c_before. grad_input takes activations[n, 4 in],
    c_before, c and dc[n, in], with lstm+residual residual[n, in], and computes (dx, dc_before); dc_before may be dc. The states
    c, c_before and their gradients are of the sums' type.

    With layer_norm, forward takes gain[out] and bias[out], with multiply multiplier[n, out], with add addend[n, out], and epsilon,
    and computes (y, sums[n, out], statistics[n, 2]), with layer_norm+lstm (y[n, out / 4], c[n, out / 4], sums, statistics[n, 8])
    from c_before. grad_input takes the same of the layer whose y was its x, with `in` features, with lstm 4 in, and adds the
    gradients of gain and bias to dnorm[parts, 2 in], of as many parts as you like; it computes dx, and with multiply and add
    dmultiplier and daddend, with lstm dc_before. statistics and dnorm are of the sums' type.

    The result is the main output, or a tuple of it and the sums that were asked for. On a GPU it is complete when the stream
    has reached it. Raises InvalidArgument that names the operand.
    """

    def __call__(self, *operands: Any, alpha: float = 1, beta: float = 0, epsilon: float = 1e-5, workspace: Any = None,
                 stream: int | None = None, threads: int = 0, **named: Any) -> Any: ...
    def relayout(self, layout: Any) -> None:
        """For an attached kernel: from now on it computes with another layout of the same grid; nothing is compiled. Calls
        that have begun, on other threads, end with the layout that they began with."""
    def workspace_bytes(self, n: int) -> int:
        """Scratch bytes that serve every launch with a batch of at most n; never less for a larger n."""
    def workspace_counter_bytes(self) -> int:
        """How many bytes at the front of a workspace must be zero before its first use, whatever its size. Each launch leaves
        them at zero; what follows them may hold anything."""
    def wait(self) -> None:
        """For a tiered kernel: returns when the baked one is in use."""
    @property
    def handle(self) -> int:
        """The address of its sk_kernel, for other libraries of the package, as long as the kernel lives and has no other layout."""
    @property
    def layout(self) -> Any: ...
    @property
    def computation(self) -> dict[str, str]:
        """What was compiled, as text: {"op": "forward", "block": "32x32", ...}, by the arguments of sparsekiln.compile that
        decide the numbers of the result."""
    @property
    def op(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def out_dtype(self) -> str: ...
    @property
    def in_features(self) -> int: ...
    @property
    def out_features(self) -> int: ...
    @property
    def block(self) -> tuple[int, int]: ...
    @property
    def batch_bound(self) -> int: ...
    @property
    def target(self) -> str: ...
    @property
    def config(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def tier(self) -> str: ...
    @property
    def compile_ms(self) -> float: ...

class Steps:
    """Launches that follow one another on rows of the same matrices, such as the steps of a recurrent layer, made by one call.

    launches  for each the number of its kernel, and its operands: name, number of the tensor, first row, and rows, -1 for all of the tensor
    written   the numbers of the tensors that launches write to
    """

    def __init__(self, launches: Sequence[tuple[int, Sequence[tuple[str, int, int, int]]]], written: Sequence[int]) -> None: ...
    def __len__(self) -> int: ...
    def run(self, kernels: Sequence[Kernel], tensors: Sequence[Any], begin: int, end: int, threads: int = 0,
            epsilon: float = 1e-5, workspace: Any = None) -> None:
        """Launches those from `begin` up to `end`, in the current stream of the tensors' framework."""

def compile(layout: Layout, shown: Any, fields: dict[str, str], options: dict[str, Any],
            progress: Callable[[int, int, float, float], None] | None) -> Kernel: ...
def edge_situations(convolution: str) -> tuple[int, np.ndarray]: ...
def computation_fields() -> list[dict[str, Any]]:
    """What decides a computation: for each field its name, the argument of sparsekiln.compile, the text of the default
    ("" where it is that of another field), a line of help, and whether its texts are "yes" and "no"."""
def register_xla_kernel(key: str, kernel: Kernel, arguments: list[str], results: list[str]) -> None: ...
def has_xla_kernel(key: str) -> bool: ...
def xla_handlers() -> dict[str, object]:
    """Whether the package was built with jaxlib's headers."""
def run_command_line(arguments: list[bytes]) -> int: ...
