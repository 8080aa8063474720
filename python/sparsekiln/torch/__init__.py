"""Block-sparse layers for PyTorch.

    from sparsekiln.torch import BlockSparseLinear, sparsify_

    layer = BlockSparseLinear.from_linear(dense, density=0.1, block=32)
    print(sparsify_(model, density=0.1, block=32, where="encoder.*"))
"""

from typing import TYPE_CHECKING, Any

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("sparsekiln.torch needs PyTorch: pip install torch", name="torch") from error

#: The lowest PyTorch that has what is used (tests/python/lowest_pytorch_test.py); pyproject.toml asks for it too.
LOWEST_PYTORCH = "2.10"

if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    raise ImportError(
        f"sparsekiln.torch needs a PyTorch whose tensors have DLPack's C exchange interface, which {torch.__version__} lacks; "
        f"{LOWEST_PYTORCH} and later have it: pip install 'torch>={LOWEST_PYTORCH}'"
    )

from . import init
from .baking import set_baking
from .convolution.convolutions import BlockSparseConv1d, BlockSparseConv2d, BlockSparseConv3d
from .convolution.transposed import BlockSparseConvTranspose1d, BlockSparseConvTranspose2d, BlockSparseConvTranspose3d
from .former_paths import keep_former_paths as _keep_former_paths
from .fusion import fuse_conv_bn, fuse_conv_bn_
from .launch_overlap import overlapping_launches
from .linear.functional import linear  # as an attribute, it hides the subpackage, which import statements still find
from .linear.layer import BlockSparseLinear
from .linear.matmul import batched_linear, dds, dsd, matmul, sdd
from .normalisation import normalize_filters, weight_norm
from .precompilation import precompile
from .recurrent.lstm import BlockSparseLSTM, BlockSparseLSTMCell
from .recurrent.normalised import lstm_cell, normalised_linear, normalised_lstm_cell
from .recurrent.small_world import SmallWorldLSTM
from .report import Replaced, Report
from .sparsifier import Sparsifier
from .surgery import sparsify_
from .team import share_threads as _share_threads

if TYPE_CHECKING:
    from .parallel import ColwiseSparseParallel as ColwiseSparseParallel
    from .parallel import Partition as Partition
    from .parallel import RowwiseSparseParallel as RowwiseSparseParallel
    from .parallel import parallelize as parallelize

__all__ = [
    "BlockSparseConv1d", "BlockSparseConv2d", "BlockSparseConv3d", "BlockSparseConvTranspose1d", "BlockSparseConvTranspose2d",
    "BlockSparseConvTranspose3d", "BlockSparseLSTM", "BlockSparseLSTMCell", "BlockSparseLinear", "Replaced", "Report", "SmallWorldLSTM", "Sparsifier", "batched_linear", "dds", "dsd",
    "fuse_conv_bn", "fuse_conv_bn_", "init", "linear", "lstm_cell", "matmul", "normalised_linear", "normalised_lstm_cell",
    "normalize_filters", "overlapping_launches", "precompile", "sdd", "set_baking", "sparsify_", "weight_norm",
]  # fmt: skip

_share_threads()
_keep_former_paths()


def __getattr__(name: str) -> Any:
    """What needs torch.distributed.tensor, which takes PyTorch a second to load."""
    if name in ("ColwiseSparseParallel", "Partition", "RowwiseSparseParallel", "parallelize"):
        from . import parallel

        return getattr(parallel, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
