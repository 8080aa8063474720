"""The block-sparse weights of torchao, which has removed them after its release 0.18 (pytorch/ao#4728).

    from sparsekiln.compat.torchao import BlockSparseWeightConfig, sparsify_   # was: from torchao.sparsity import ...

    sparsify_(model, BlockSparseWeightConfig(blocksize=64), filter_fn=lambda module, fqn: "mlp" in fqn)

As there, the model was masked before: its weights hold zeros, and blocks that are all zero become absent. Layers stay nn.Linear
with a frozen weight that is a BlockSparseTensor, so that names in a state_dict stay what they are. Here they run on the cpu, too.
`load` reads files that were saved with torchao, without torchao.

For layers that train, make a BlockSparseLinear of a weight: BlockSparseLinear.from_bsr(layer.weight.to_bsr(), layer.bias).
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from sparsekiln.torch.blocks import parse_block
from sparsekiln.torch.kernels import DTYPES
from sparsekiln.torch.linear.functional import apply

__all__ = ["BlockSparseTensor", "BlockSparseWeightConfig", "block_sparse_weight", "load", "sparsify_"]

Tensor = torch.Tensor
_aten = torch.ops.aten
_NAME_THERE = "torchao.sparsity.blocksparse.BlockSparseTensor"  # in files that were saved with torchao


@dataclass
class BlockSparseWeightConfig:
    """blocksize: side of a block: 8, 16, 32, 64 or 128."""

    blocksize: int = 64


block_sparse_weight = BlockSparseWeightConfig


def sparsify_(
    model: torch.nn.Module,
    config: BlockSparseWeightConfig,
    filter_fn: Callable[[torch.nn.Module, str], bool] | None = None,
) -> torch.nn.Module:
    """Makes the weights of linear layers block-sparse, in place; blocks that are all zero become absent. Returns the model.

    filter_fn  whether a layer is meant, of the module and its name; by default each nn.Linear, except for the output of
               nn.MultiheadAttention. Modules within one that it names are not asked about
    """
    if not isinstance(config, BlockSparseWeightConfig):
        raise TypeError(f"the config is a {type(config).__name__}; of torchao's, BlockSparseWeightConfig alone is here")
    parse_block(config.blocksize)
    _sparsify(model, "", config.blocksize, _is_linear if filter_fn is None else filter_fn)
    return model


def _sparsify(module: torch.nn.Module, name: str, blocksize: int, wanted: Callable[[torch.nn.Module, str], bool]) -> None:
    if not wanted(module, name):
        for key, child in module.named_children():
            _sparsify(child, f"{name}.{key}" if name else key, blocksize, wanted)
        return
    if not isinstance(module, torch.nn.Linear):
        raise TypeError(f"filter_fn chose {name or 'the model'}, a {type(module).__name__}; nn.Linear would work")
    if isinstance(module.weight, BlockSparseTensor):
        return
    try:
        weight = BlockSparseTensor.from_dense(module.weight, blocksize)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name or 'the model'}: {error}") from error
    module.weight = torch.nn.Parameter(weight, requires_grad=False)


def _is_linear(module: torch.nn.Module, name: str) -> bool:
    attention_output = torch.nn.modules.linear.NonDynamicallyQuantizableLinear
    return isinstance(module, torch.nn.Linear) and not isinstance(module, attention_output)


def load(file: Any, map_location: Any = None) -> Any:
    """torch.load, with weights_only, of what was saved with torchao or here: its BlockSparseTensors become those of this module."""
    with torch.serialization.safe_globals([(BlockSparseTensor, _NAME_THERE)]):
        return torch.load(os.fspath(file) if isinstance(file, os.PathLike) else file, map_location, weights_only=True)


class BlockSparseTensor(torch.Tensor):
    """A weight [out, in] with the present blocks alone: bsr_values [blocks, blocksize, blocksize], bsr_crow_indices and
    bsr_col_indices, as in a BSR tensor. torch.nn.functional.linear takes it; it has no gradient."""

    bsr_crow_indices: Tensor
    bsr_col_indices: Tensor
    bsr_values: Tensor
    blocksize: int

    __slots__ = ("bsr_crow_indices", "bsr_col_indices", "bsr_values")

    @staticmethod
    def __new__(
        cls: type["BlockSparseTensor"], shape: Iterable[int], blocksize: int, bsr_crow_indices: Tensor, bsr_col_indices: Tensor,
        bsr_values: Tensor, requires_grad: bool = False,
    ) -> "BlockSparseTensor":  # fmt: skip
        if requires_grad:
            raise ValueError("a BlockSparseTensor has no gradient; BlockSparseLinear.from_bsr(weight.to_bsr()) makes a layer that has")
        made = torch.Tensor._make_wrapper_subclass(cls, torch.Size(shape), dtype=bsr_values.dtype, device=bsr_values.device)
        made.bsr_crow_indices, made.bsr_col_indices, made.bsr_values = bsr_crow_indices, bsr_col_indices, bsr_values
        made.blocksize = blocksize
        return made

    @classmethod
    def from_dense(cls, dense_tensor: Tensor, blocksize: int) -> "BlockSparseTensor":
        """A copy of the blocks that are not all zero."""
        dense = dense_tensor.detach()
        parse_block(blocksize)
        if dense.dtype not in DTYPES:
            raise TypeError(f"a weight of {dense.dtype}; there are kernels for {', '.join(map(str, DTYPES))}")
        if dense.dim() != 2 or any(side % blocksize for side in dense.shape):
            raise ValueError(
                f"a weight of {tuple(dense.shape)} is not made of blocks of {blocksize}x{blocksize}; a blocksize that divides both "
                "would work, or BlockSparseLinear, which takes partial blocks"
            )
        bsr = dense.to_sparse_bsr((blocksize, blocksize))
        return cls(dense.shape, blocksize, bsr.crow_indices(), bsr.col_indices(), bsr.values())

    def to_bsr(self) -> Tensor:
        """The same as a BSR tensor of PyTorch, which shares the values."""
        parts = self.bsr_crow_indices, self.bsr_col_indices, self.bsr_values
        return torch.sparse_bsr_tensor(*parts, size=tuple(self.shape), check_invariants=True)

    def to_dense(self, *arguments: Any, **named: Any) -> Tensor:
        return self.to_bsr().to_dense(*arguments, **named)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"BlockSparseTensor(shape={tuple(self.shape)}, blocksize={self.blocksize}, blocks={self.bsr_values.shape[0]}, {self.dtype})"

    def _with(self, change: Callable[[Tensor], Tensor], change_indices: Callable[[Tensor], Tensor]) -> "BlockSparseTensor":
        indices = change_indices(self.bsr_crow_indices), change_indices(self.bsr_col_indices)
        return type(self)(self.shape, self.blocksize, *indices, change(self.bsr_values))

    # ---- what PyTorch asks of a tensor that is made of others ----

    def __tensor_flatten__(self) -> tuple[list[str], tuple[torch.Size, int]]:
        return list(self.__slots__), (self.shape, self.blocksize)

    @classmethod
    def __tensor_unflatten__(
        cls, inner_tensors: dict[str, Tensor], tensor_meta: tuple[torch.Size, int], outer_size: Any, outer_stride: Any
    ) -> "BlockSparseTensor":
        shape, blocksize = tensor_meta
        crow, col, values = (inner_tensors[name] for name in cls.__slots__)
        return cls(shape, blocksize, crow, col, values)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func is torch.nn.functional.linear:
            return _linear(*args, **named)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **named)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in _PARTS:  # values(), crow_indices() and col_indices(), as there
            return getattr(args[0], _PARTS[func]).detach()
        if func is _aten.copy_.default:
            return _copy(*args)
        if func is _aten._to_copy.default:
            of_indices = {name: value for name, value in named.items() if name in ("device", "non_blocking")}
            return args[0]._with(lambda part: func(part, **named), lambda part: func(part, **of_indices))
        if func in (_aten.detach.default, _aten.alias.default, _aten.clone.default):
            return args[0]._with(func, func)
        raise NotImplementedError(
            f"{func} takes no BlockSparseTensor; torch.nn.functional.linear does, and to_bsr() and to_dense() are tensors of PyTorch"
        )


_PARTS = {
    _aten.values.default: "bsr_values",
    _aten.crow_indices.default: "bsr_crow_indices",
    _aten.col_indices.default: "bsr_col_indices",
}


def _linear(input: Tensor, weight: Any, bias: Tensor | None = None) -> Tensor:
    if not isinstance(weight, BlockSparseTensor):
        raise TypeError("a BlockSparseTensor is a weight; the input and the bias are other tensors")
    out_features, in_features = weight.shape
    indices = weight.bsr_crow_indices, weight.bsr_col_indices
    return apply(input, weight.bsr_values, bias, *indices, in_features, out_features, "none")


def _copy(target: Tensor, source: Tensor, *_: Any) -> Tensor:
    """target.copy_(source), as load_state_dict does it without assign=True."""
    if not isinstance(target, BlockSparseTensor) or not isinstance(source, BlockSparseTensor):
        kinds = type(source).__name__, type(target).__name__
        raise TypeError(f"a {kinds[0]} cannot be copied into a {kinds[1]}; load_state_dict(..., assign=True) takes its place")
    same = target.shape == source.shape and target.bsr_col_indices.shape == source.bsr_col_indices.shape
    for name in ("bsr_crow_indices", "bsr_col_indices"):
        there = getattr(source, name)
        same = same and torch.equal(getattr(target, name), there.to(getattr(target, name)))
    if not same:
        raise ValueError("the two BlockSparseTensors have other blocks; load_state_dict(..., assign=True) would work")
    target.bsr_values.copy_(source.bsr_values)
    return target


torch.serialization.add_safe_globals([BlockSparseTensor])
