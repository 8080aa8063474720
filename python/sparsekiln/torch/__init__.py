"""Block-sparse layers for PyTorch.

    from sparsekiln.torch import BlockSparseLinear, sparsify_

    layer = BlockSparseLinear.from_linear(dense, density=0.1, block=32)
    print(sparsify_(model, density=0.1, block=32, where="encoder.*"))
"""

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("sparsekiln.torch needs PyTorch: pip install torch", name="torch") from error

if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    raise ImportError(
        f"sparsekiln.torch needs a PyTorch whose tensors have DLPack's C exchange interface, which {torch.__version__} lacks; "
        "2.13 has it"
    )

from . import flops as _flops
from . import init
from .functional import linear
from .layers import BlockSparseLinear
from .surgery import Replaced, Report, sparsify_

__all__ = ["BlockSparseLinear", "Replaced", "Report", "init", "linear", "sparsify_"]
