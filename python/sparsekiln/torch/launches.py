"""A launch of a kernel on tensors, and what it makes of values that have room for more blocks than the layout has."""

import torch

from sparsekiln import _core

from .kernels import Weight

Tensor = torch.Tensor


def run(kernel, n: int, *operands: Tensor, **named: Tensor | None):
    """Launches on the operands' device, on the cpu with as many threads as PyTorch, if nothing else was said. A CUDA graph that is being captured gets a workspace of its own, whose counters are zeroed at each replay."""
    if not operands[0].is_cuda:
        return kernel(*operands, threads=_core.stated_threads() or torch.get_num_threads(), **named)
    with torch.cuda.device(operands[0].device):
        if torch.cuda.is_current_stream_capturing() and (size := kernel.workspace_bytes(n)):
            named["workspace"] = torch.empty(size, dtype=torch.uint8, device=operands[0].device)
            if counters := kernel.workspace_counter_bytes():
                named["workspace"][:counters].zero_()
        return kernel(*operands, **named)


def used(values: Tensor, weight: Weight) -> Tensor:
    """The blocks of the layout: those after them are room for other layouts."""
    return values if values.shape[0] == weight.blocks else values[: weight.blocks]


def with_room(dw: Tensor, room: int) -> Tensor:
    """The gradient of the weight, with zeros for the blocks after those of the layout."""
    return dw if dw.shape[0] == room else torch.cat([dw, dw.new_zeros((room - dw.shape[0], *dw.shape[1:]))])
