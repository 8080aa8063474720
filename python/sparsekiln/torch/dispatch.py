"""What observes an operator that is called now, beside autograd, and which derivatives are refused."""

import torch
from torch.autograd import forward_ad

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


def refuse_derivatives(layers: str, dense: bool = True) -> None:
    """torch.func takes no custom operators apart: see linear/transforms.py. `dense`: the layers have to_dense."""
    if _derivative_is_open():
        instead = ", or a dense layer of the same weight: layer.to_dense()" if dense else ""
        raise NotImplementedError(
            f"torch.func has no derivatives of block-sparse {layers}; backward() and torch.autograd.grad would work{instead}"
        )


def _derivative_is_open() -> bool:
    interpreter = open_transform() if open_transform is not None else None
    return interpreter is not None and any(kind in str(interpreter.key()) for kind in ("Grad", "Jvp"))


def _jvp_is_open() -> bool:
    interpreter = open_transform()
    return interpreter is not None and "Jvp" in str(interpreter.key())
