"""Launches of kernels on tensors, and what they make of values that have room for more blocks than the layout has."""

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import torch

import sparsekiln

from sparsekiln import _core

from .kernels import Weight

Tensor = torch.Tensor


def is_captured(tensor: Tensor) -> bool:
    """Whether a CUDA graph captures launches on it."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


class Rows(NamedTuple):
    """Rows of a tensor."""

    tensor: Hashable  #: its name among those of a call
    first: int = 0
    count: int = -1  #: -1 for all of the tensor


class Launch(NamedTuple):
    """One launch among several on rows of the same tensors."""

    kernel: Hashable  #: its name among those of a call
    n: int  #: rows of the batch
    operands: dict[str, Rows]  #: by their names; first those that a kernel's call takes by their places


class Steps:
    """Launches that follow one another, made by one call of the library. `written`: the tensors that they write to."""

    def __init__(self, launches: Sequence[Launch], written: Sequence[Hashable]) -> None:
        self.launches = tuple(launches)
        self.kernels = list(dict.fromkeys(one.kernel for one in launches))
        self.tensors = list(dict.fromkeys(rows.tensor for one in launches for rows in one.operands.values()))
        number = {tensor: place for place, tensor in enumerate(self.tensors)}
        self.core = _core.Steps(
            [
                (self.kernels.index(one.kernel), [(name, number[at.tensor], at.first, at.count) for name, at in one.operands.items()])
                for one in launches
            ],
            [number[tensor] for tensor in written if tensor in number],
        )


#: Launches of one kind that are kept for later calls.
_MOST_KEPT = 20_000


def kept_steps(make: Callable[..., Steps]) -> Callable[..., Steps]:
    """`make`, whose results are kept by its arguments: those used last, of _MOST_KEPT launches together."""
    kept: OrderedDict[tuple, Steps] = OrderedDict()
    lock = threading.Lock()

    @functools.wraps(make)
    def of(*arguments: Hashable) -> Steps:
        with lock:
            if (steps := kept.get(arguments)) is not None:
                kept.move_to_end(arguments)
                return steps
        steps = make(*arguments)
        with lock:
            kept[arguments] = steps
            while len(kept) > 1 and sum(len(one.launches) for one in kept.values()) > _MOST_KEPT:
                kept.popitem(last=False)
        return steps

    return of


def run_steps(
    steps: Steps, kernels: Mapping[Hashable, "sparsekiln.Kernel"], tensors: Mapping[Hashable, Tensor], epsilon: float = 1e-5
) -> None:
    """Launches all of them, as `run` does."""
    used, given = [kernels[name] for name in steps.kernels], [tensors[name] for name in steps.tensors]
    count = len(steps.launches)
    if not count:
        return
    if not given[0].is_cuda:
        steps.core.run(used, given, 0, count, _core.stated_threads() or torch.get_num_threads(), epsilon)
        return
    with torch.cuda.device(given[0].device):
        if not torch.cuda.is_current_stream_capturing():
            steps.core.run(used, given, 0, count, 0, epsilon)
            return
        for number, one in enumerate(steps.launches):
            workspace = _graph_workspace(kernels[one.kernel], one.n, given[0].device)
            steps.core.run(used, given, number, number + 1, 0, epsilon, workspace)


def _graph_workspace(kernel: "sparsekiln.Kernel", n: int, device: torch.device) -> Tensor | None:
    """The workspace of a launch in a CUDA graph that is being captured, whose counters are zeroed at each replay."""
    size = kernel.workspace_bytes(n)
    if size == 0:
        return None
    workspace = torch.empty(size, dtype=torch.uint8, device=device)
    if counters := kernel.workspace_counter_bytes():
        workspace[:counters].zero_()
    return workspace


def run(kernel, n: int, *operands: Tensor, **named: Tensor | None):
    """Launches on the operands' device, on the cpu with as many threads as PyTorch, if nothing else was said."""
    if not operands[0].is_cuda:
        return kernel(*operands, threads=_core.stated_threads() or torch.get_num_threads(), **named)
    with torch.cuda.device(operands[0].device):
        if torch.cuda.is_current_stream_capturing():
            named["workspace"] = _graph_workspace(kernel, n, operands[0].device)
        return kernel(*operands, **named)


def used(values: Tensor, weight: Weight) -> Tensor:
    """The blocks of the layout: those after them are room for other layouts."""
    return values if values.shape[0] == weight.blocks else values[: weight.blocks]


def with_room(dw: Tensor, room: int) -> Tensor:
    """The gradient of the weight, with zeros for the blocks after those of the layout."""
    return dw if dw.shape[0] == room else torch.cat([dw, dw.new_zeros((room - dw.shape[0], *dw.shape[1:]))])
