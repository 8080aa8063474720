"""What observes an operator that is called now, beside autograd, and which derivatives are refused."""

import torch
from torch.autograd import forward_ad

from . import operator_library

Tensor = torch.Tensor

_PLAIN = (Tensor, torch.nn.Parameter)
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
_tracing = getattr(torch._C, "_get_tracing_state", None)
#: The innermost transform of torch.func that is open, or None; None itself where PyTorch does not tell.
open_transform = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)


def unobserved(*tensors: Tensor) -> bool:
    """Whether only autograd would observe an operator that is called now on these: no tracing, mode or subclass."""
    if torch.compiler.is_compiling() or None in (_dispatch_modes, open_transform, _tracing):
        return False
    if _dispatch_modes() or open_transform() is not None or _tracing() is not None:
        return False
    for tensor in tensors:  # a loop, for all() takes longer, which the layers of small batches notice
        if type(tensor) not in _PLAIN or tensor.is_meta:
            return False
    return True


_casts = getattr(torch._C, "_is_any_autocast_enabled", None)
_is_wrapped = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", None)
#: Whether a PyTorch is used in which is_ordinary may be asked, and operators are in C++.
has_fast_path = operator_library.functions is not None and None not in (_dispatch_modes, open_transform, _casts, _is_wrapped)


def is_ordinary(x: object) -> bool:
    """Whether a call on this input, outside of compiled code and of traces, is ordinary: a plain tensor, under no mode and no transform,
    with no forward-mode derivative, and nothing is cast."""
    return (
        type(x) in _PLAIN and not _dispatch_modes() and open_transform() is None and forward_ad._current_level < 0 and not _casts()
    )  # fmt: skip


def modes_are_open() -> bool:
    """Whether a mode observes operators."""
    return _dispatch_modes is None or _dispatch_modes() > 0


def has_escaped(x: Tensor) -> bool:
    """Whether it is from a transform that has ended."""
    return _is_wrapped(x)


def refuse_forward_mode() -> None:
    if forward_ad._current_level >= 0 or (open_transform is not None and _jvp_is_open()):
        raise NotImplementedError(
            "block-sparse layers have no forward-mode derivatives (torch.autograd.forward_ad, torch.func.jvp, jacfwd); "
            "backward() and torch.autograd.grad would work, or a dense layer of the same weight: layer.to_dense()"
        )


def refuse_transforms_of_bsr() -> None:
    """Derivatives of torch.func ask a BSR tensor for strides, which it does not have."""
    if _derivative_is_open():
        raise NotImplementedError(
            "torch.func has no derivatives of products with BSR tensors; BlockSparseLinear and batched_linear have them, and so "
            "has torch.autograd.grad"
        )


def refuse_derivatives(layers: str) -> None:
    """Raises NotImplementedError under derivatives of torch.func, for operators that it does not take apart: see custom_operator.py."""
    if _derivative_is_open():
        raise NotImplementedError(f"torch.func has no derivatives of {layers}; backward() and torch.autograd.grad would work")


def _derivative_is_open() -> bool:
    interpreter = open_transform() if open_transform is not None else None
    return interpreter is not None and any(kind in str(interpreter.key()) for kind in ("Grad", "Jvp"))


def _jvp_is_open() -> bool:
    interpreter = open_transform()
    return interpreter is not None and "Jvp" in str(interpreter.key())
