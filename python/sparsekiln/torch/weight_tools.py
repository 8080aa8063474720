"""What `weight` of a block-sparse layer is, which has no parameter of that name: it is computed.

Models read the type, the device or the shape of the weights of their layers, which costs nothing here. Tools of torch.nn.utils
(pruning, parametrizations, norms) that are told to work on `weight` would end in errors about dictionaries or sparse tensors. They
have no hook for that, so the places where they look are where it is said what to do instead.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

Tensor = torch.Tensor

_REFUSAL = (
    "torch.nn.utils cannot work on 'weight' of a {kind}, which is computed from its parameter; give it 'weight_values' "
    "[blocks, …], or for pruning of whole blocks, call relayout"
)


def refuse_tools_of_weight(module: torch.nn.Module) -> None:
    """Raises TypeError if the property `weight`, which calls this, is read by a tool of torch.nn.utils."""
    if not torch.compiler.is_compiling() and sys._getframe(2).f_globals.get("__name__", "").startswith("torch.nn.utils."):
        raise TypeError(_REFUSAL.format(kind=type(module).__name__))


class Parametrizations:
    """The property `parametrizations`, where torch.nn.utils.parametrize first looks; else the attribute of that name."""

    def __get__(self, module, owner=None):
        if module is None:
            return self
        found = module._modules.get("parametrizations")
        if found is None:
            asking = None if torch.compiler.is_compiling() else sys._getframe(2)
            if asking is not None and asking.f_code.co_name == "register_parametrization":
                if asking.f_locals.get("tensor_name") == "weight":
                    raise TypeError(_REFUSAL.format(kind=type(module).__name__))
            raise AttributeError(f"'{type(module).__name__}' object has no attribute 'parametrizations'")
        return found


def computed_weight(layer: Any, dense: Callable[[], Tensor], bsr: Callable[[], Tensor] | None = None) -> Tensor:
    """The weight of a layer, from functions that compute it: a ComputedWeight, or the dense tensor where PyTorch traces or transforms,
    which leaves out what nothing reads."""
    observed = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    if observed or torch._C._functorch.peek_interpreter_stack() is not None or not _is_ordinary(layer.weight_values):
        return dense()
    return ComputedWeight(layer.dense_shape, layer.weight_values, layer.weight_values.requires_grad, bsr or dense, bsr is not None)


def _is_ordinary(tensor: Tensor) -> bool:
    """Whether it has elements, of this process or, as a DTensor, of several."""
    return type(tensor) in (Tensor, torch.nn.Parameter) or type(tensor).__name__ == "DTensor"


class ComputedWeight(Tensor):
    """A weight that is computed when its elements are first used. What it is like (shape, type, device, layout) costs nothing.

    Writing to it is refused, where it would change a copy alone.
    """

    __dlpack_c_exchange_api__ = None  # which would look for memory: __dlpack__ computes it
    _compute: Callable[[], Tensor]
    _is_bsr: bool
    _whole: Tensor | None = None

    @staticmethod
    def __new__(
        cls, shape: Sequence[int], like: Tensor, requires_grad: bool, compute: Callable[[], Tensor], is_bsr: bool
    ) -> "ComputedWeight":  # fmt: skip
        """A weight of this shape, with the type and device of `like`."""
        weight = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=like.dtype, device=like.device, requires_grad=requires_grad)
        weight._compute, weight._is_bsr = compute, is_bsr
        return weight

    def __init__(self, *arguments: Any) -> None:
        pass

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if function in _LIKE:
                return function(*args, **(kwargs or {}))
            if function == Tensor.layout.__get__:
                return torch.sparse_bsr if args[0]._is_bsr else torch.strided
            if function == Tensor.data.__get__ and not args[0]._is_bsr:  # of which a write would be lost as well
                return ComputedWeight(args[0].shape, args[0], False, lambda: _computed(args[0]).detach(), False)
            written = args[0] if args else (kwargs or {}).get("tensor")  # torch.nn.init has names
            if _writes(function) and isinstance(written, ComputedWeight) and not written._is_bsr:
                raise TypeError(
                    "the weight of a block-sparse layer is computed from its parameter, and this would write to a copy; "
                    "write to `weight_values` [blocks, …], or to blocks of a dense weight by layer.blocks_of"
                )
            args, kwargs = tree_map(_computed, (args, kwargs or {}))
        return function(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(
            f"{function} of the weight of a block-sparse layer, without its __torch_function__, and so without a gradient; "
            "layer.to_dense() would work"
        )


def _computed(one: Any) -> Any:
    if not isinstance(one, ComputedWeight):
        return one
    if one._whole is None:
        with torch.enable_grad():
            one._whole = one._compute()
    return one._whole


def _writes(function: Any) -> bool:
    name = getattr(function, "__name__", "")
    return name in ("__setitem__", "__set__") or (name.endswith("_") and not name.endswith("__"))


# Questions about a tensor that need not its elements.
_LIKE = frozenset((
    Tensor.shape.__get__, Tensor.dtype.__get__, Tensor.device.__get__, Tensor.requires_grad.__get__, Tensor.ndim.__get__,
    Tensor.is_cuda.__get__, Tensor.is_meta.__get__, Tensor.itemsize.__get__, Tensor.dim, Tensor.size, Tensor.numel, Tensor.nelement,
    Tensor.element_size, Tensor.is_floating_point, Tensor.is_complex, Tensor.ndimension, Tensor.__len__, Tensor.get_device,
    torch.is_floating_point, torch.is_complex, torch.numel,
))  # fmt: skip
