"""Block-sparse recurrent layers, their cells, and the normalised products that cells are made of."""

from .lstm import BlockSparseLSTM, BlockSparseLSTMCell
from .lstm import _Gates, _OfGates  # noqa: F401, layers that were saved when this was a module name them
from .small_world import SmallWorldLSTM

__all__ = ["BlockSparseLSTM", "BlockSparseLSTMCell", "SmallWorldLSTM"]
