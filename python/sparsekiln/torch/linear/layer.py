"""BlockSparseLinear: nn.Linear whose weight has only the blocks that its layout names."""

from typing import Any

import torch
from torch import is_autocast_enabled
from torch._C import _get_tracing_state as get_tracing_state
from torch.compiler import is_compiling, is_exporting

import sparsekiln
from sparsekiln._arguments import flag, integer, shown

from .. import init
from ..block_sparse_layer import BlockSparseLayer
from ..blocks import in_blocks, parse_block, places_of, strongest
from ..dispatch import has_fast_path, is_ordinary
from ..weight_tools import computed_weight, refuse_tools_of_weight
from .functional import apply, check_bsr, parse_activation
from .operators import call_in_graph, launch
from .products import ACTIVATIONS

Tensor = torch.Tensor
_TENSORS = frozenset(("weight_values", "bias", "crow_indices", "col_indices"))


class BlockSparseLinear(BlockSparseLayer):
    """y = act(x · Wᵀ + bias), W[out, in] block-sparse.

    Takes x[..., in_features], gives [..., out_features], and is used like nn.Linear: in training, torch.compile,
    torch.export, autocast, DDP, on cpu and CUDA tensors. Kernels are compiled when they are first needed, for all batches.

    in_features, out_features  need not be multiples of the block: the last blocks are then partial
    layout      sparsekiln.Layout, or what makes one: [rows, cols] of blocks, rows of output features
    block       side of a block: 8, 16, 32, 64 or 128; or (out, in)
    activation  None or one of sparsekiln.activations, such as "gelu": computed with the product
    dtype       float32, bfloat16 or float16, accumulated in float32, or on the cpu float64
    max_blocks  room for layouts of up to so many blocks, so that relayout changes no shape; None for the layout's own
    overlap     in inference, launches may begin before the one before them in their stream has ended: see overlapping_launches

    Parameters: `weight_values` [blocks, block_out, block_in], row-major over the layout, and `bias` [out_features]. Buffers:
    `crow_indices` and `col_indices`, as in a BSR tensor of PyTorch. With max_blocks, `weight_values` and `col_indices` have
    that length, and `slot_blocks` says which block each slot of `weight_values` has: see relayout. A slot without a block of the
    layout has no effect, and a gradient of zeros. The state holds all of them: load_state_dict adopts the layout that was saved.
    What `weight_values` holds beyond the last feature has no effect.
    """

    def __init__(
        self, in_features: int, out_features: int, layout: Any, block: int | tuple[int, int] = 32, bias: bool = True,
        activation: str | None = None, device: Any = None, dtype: torch.dtype | None = None, max_blocks: int | None = None,
        overlap: bool = False,
    ):  # fmt: skip
        super().__init__()
        self.overlap = overlap
        self.in_features, self.out_features = integer("in_features", in_features, 1), integer("out_features", out_features, 1)
        self.block = parse_block(block)
        self.activation = parse_activation(activation)
        self.max_blocks = None if max_blocks is None else integer("max_blocks", max_blocks, 0)
        self._make_weight(layout, self.out_features if bias is not None and flag("bias", bias) else None, device, dtype)

    # ---- where weights come from ----

    @classmethod
    def from_linear(
        cls, linear: torch.nn.Linear, density: float = 0.1, block: int | tuple[int, int] = 32, layout: Any = None,
        activation: str | None = None, max_blocks: int | None = None, overlap: bool = False,
    ) -> "BlockSparseLinear":  # fmt: skip
        """The blocks of largest Frobenius norm of a dense layer, `density` × all of them; or those of `layout`."""
        if getattr(getattr(linear, "weight", None), "ndim", 0) != 2:
            raise TypeError(f"from_linear was given a {type(linear).__name__}; an nn.Linear would work")
        weight, sides = linear.weight.detach(), parse_block(block)
        if layout is None:
            layout = strongest(weight, density, sides)
        layer = cls(
            linear.in_features, linear.out_features, layout, sides, linear.bias is not None, activation, weight.device, weight.dtype,
            max_blocks, overlap,
        )  # fmt: skip
        return layer._adopt(linear)

    @classmethod
    def from_bsr(
        cls, tensor: Tensor, bias: Tensor | None = None, activation: str | None = None, max_blocks: int | None = None,
        overlap: bool = False,
    ) -> "BlockSparseLinear":  # fmt: skip
        """A copy of a BSR tensor [out, in] of PyTorch, and of the bias [out]."""
        check_bsr(tensor)
        tensor = tensor.detach()
        out_features, in_features = tensor.shape
        values = tensor.values()
        if bias is not None:
            if not isinstance(bias, Tensor) or tuple(bias.shape) != (out_features,):
                given = f"of the shape {list(bias.shape)}" if isinstance(bias, Tensor) else shown(bias)
                raise ValueError(f"the bias is {given}; a tensor [{out_features}] would work")
        layer = cls(
            in_features, out_features, sparsekiln.Layout(tensor), tuple(values.shape[1:]), bias is not None, activation,
            values.device, values.dtype, max_blocks, overlap,
        )  # fmt: skip
        with torch.no_grad():
            layer._write_values(values)
            if bias is not None:
                layer.bias.copy_(bias)
        return layer

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Like nn.Linear, uniform in ±1/√fan_in, with the fan-in of each row of blocks: its present features.

        sparsekiln.torch.init has other initialisers.
        """
        self._write_indices()
        if not self.weight_values.is_meta:
            init.reset(self)

    @property
    def weight_shape(self) -> tuple[int, int]:
        return self.out_features, self.in_features

    def blocks_of(self, dense: Tensor) -> Tensor:
        """[blocks, block_out, block_in] of dense [out, in]."""
        self._check_dense(dense)
        self._check_for_use()
        rows, columns = (places.to(dense.device) for places in places_of(self.layout))
        return in_blocks(dense, self.block)[rows, columns].contiguous()

    # ---- use ----

    def forward(self, x: Tensor) -> Tensor:
        if is_compiling() and not is_exporting():
            (values, crow, col), bias = self._operands(), self.bias
            # In little Python, since a graph has guards for all of it.
            if has_fast_path and type(x) is Tensor and x.dim() > 0 and not is_autocast_enabled("cpu") and not is_autocast_enabled("cuda"):
                overlap = self._ask_to_overlap()
                return call_in_graph(x, values, bias, crow, col, self.in_features, self.out_features, self.activation, overlap)
        elif is_compiling() or get_tracing_state() is not None:
            if torch.onnx.is_in_onnx_export():
                return self._of_standard_operators(x)
            (values, crow, col), bias = self._operands(), self.bias
        else:
            values, bias, crow, col = self._tensors()
            known = self._known
            if not known or crow is not known[0] or col is not known[1]:
                self.settle_indices()
            if has_fast_path and is_ordinary(x):
                overlap = self._ask_to_overlap()
                return launch(x, values, bias, crow, col, self.in_features, self.out_features, self.activation, overlap)
        return apply(x, values, bias, crow, col, self.in_features, self.out_features, self.activation, self._ask_to_overlap())

    def _tensors(self) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """`weight_values`, `bias`, `crow_indices` and `col_indices`. Modules look up each attribute in Python, which takes a small layer
        longer than its kernel; they are where nn.Module keeps them, unless something gives the names another meaning."""
        if type(self) is BlockSparseLinear and self._gathered is None and self.__dict__.keys().isdisjoint(_TENSORS):
            parameters, buffers = self._parameters, self._buffers
            try:
                return parameters["weight_values"], parameters["bias"], buffers["crow_indices"], buffers["col_indices"]
            except KeyError:
                pass
        values, crow, col = self._operands()
        return values, self.bias, crow, col

    def _of_standard_operators(self, x: Tensor) -> Tensor:
        """The same, for formats that have no others: a dense product. The file holds the present blocks alone."""
        y = torch.nn.functional.linear(x, self.to_dense(), self.bias)
        return y if self.activation == "none" else ACTIVATIONS[self.activation](y)

    def to_dense(self) -> Tensor:
        """W [out_features, in_features], differentiable."""
        self._check_for_use()
        values, rows, columns, (count, width) = self._present_blocks()
        blocks = values.new_zeros((count, width, *self.block)).index_put((rows, columns), values)
        whole = blocks.transpose(1, 2).reshape(count * self.block[0], width * self.block[1])
        return whole[: self.out_features, : self.in_features]

    def to_bsr(self) -> Tensor:
        """W as a BSR tensor of PyTorch that shares `weight_values`, except where blocks have been taken away from a layer with
        max_blocks. ValueError if features are not a multiple of the block."""
        self._check_for_use()
        if not self._is_whole:
            raise ValueError(
                f"{self.out_features} × {self.in_features} features are no multiple of blocks of {self.block[0]}x{self.block[1]}, "
                "as BSR tensors need; take to_dense()"
            )
        columns = self.col_indices[: self.layout.blocks]
        return torch.sparse_bsr_tensor(
            self.crow_indices, columns, self._used_values(), size=self.weight_shape, check_invariants=False
        )  # fmt: skip

    @property
    def _is_whole(self) -> bool:
        """Whether features are a multiple of the block."""
        return not (self.out_features % self.block[0] or self.in_features % self.block[1])

    @property
    def weight(self) -> Tensor:
        """W for code that reads nn.Linear's: to_bsr(), or to_dense() where features are not a multiple of the block, and where
        PyTorch traces or transforms. See ComputedWeight."""
        refuse_tools_of_weight(self)
        return computed_weight(self, self.to_dense, self.to_bsr if self._is_whole else None)

    def extra_repr(self) -> str:
        block = self.block[0] if self.block[0] == self.block[1] else self.block
        text = f"in_features={self.in_features}, out_features={self.out_features}, block={block}, blocks={self.layout.blocks}"
        text += f", density={self.layout.density:.4g}, bias={self.bias is not None}"
        text += "" if self.max_blocks is None else f", max_blocks={self.max_blocks}"
        text += ", overlap=True" if self.overlap else ""
        return text if self.activation == "none" else f"{text}, activation={self.activation}"

    # ---- saved state ----

    def _load_from_state_dict(self, state_dict, prefix, *others) -> None:
        if prefix + "values" in state_dict:  # what the parameter was called before
            state_dict.setdefault(prefix + "weight_values", state_dict.pop(prefix + "values"))
        super()._load_from_state_dict(state_dict, prefix, *others)
