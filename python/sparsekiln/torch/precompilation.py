"""All kernels of a model at once, before it is used."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from sparsekiln._arguments import integer, shown
from sparsekiln._progress import bar

from .kernels import LayoutKernels, known_kernels
from .model_pack import write_pack

Tensor = torch.Tensor

#: Threads that compile at once, where the caller does not say: each has its operands in memory.
_MOST_THREADS = 16


def precompile(
    model: torch.nn.Module, sample: Any, *, backward: bool | None = None, threads: int | None = None,
    progress: bool | Callable[[int, int, float], None] | None = None, pack: str | os.PathLike[str] | None = None,
    archs: str | Sequence[str] = (),
) -> int:  # fmt: skip
    """Has all kernels compiled that `model(*sample)` takes, and its backward pass, so that no call waits for one.

    sample    arguments of the model: a tensor, a tuple, or a dict of named arguments. Their shapes, types and devices count; kernels
              of linear layers serve every batch, those of convolutions batches of up to the next power of two.
    backward  whether gradients are taken, too. Where None: whether the model is in training mode.
    threads   that compile at once; where None: one for each core, 16 at most
    progress  True draws a bar on standard error (None: where that is a terminal); a callable is told (calls done, calls, seconds)
    pack      a file to write the kernels to, for programs elsewhere (SPARSEKILN_PACKS): see docs/packs.md. It has all kernels of the
              layouts of the model that this process has made.
    archs     what the kernels in the pack are for, such as "sm_90" and "x86-64-v3:8"; where none is named, what these here are for

    The model is gone through without computing anything; what it computes by block-sparse kernels is then called once with zeros, on the
    model's own device, in as many threads. Kernels go to the cache, too: another process that calls precompile finds them there.
    Within torch.autocast those of its types are compiled.

    Gives the number of different calls.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"precompile was given a {type(model).__name__}; an nn.Module would work")
    count = min(os.cpu_count() or 1, _MOST_THREADS) if threads is None else integer("threads", threads)
    if count < 1:
        raise ValueError(f"threads is {count}; 1 or more would work")
    calls = _calls_of(model, sample, model.training if backward is None else bool(backward))
    began = time.monotonic()
    with bar(progress, "compiling", lambda done, of, seconds: f"{seconds:.0f} s") as told, _pool(count) as pool:
        waiting = [pool.submit(_call, *one) for one in calls]
        for done, one in enumerate(as_completed(waiting), 1):
            one.result()
            if told is not None:
                told(done, len(calls), time.monotonic() - began)
    if pack is not None:
        write_pack(pack, _layouts_of(calls), (archs,) if isinstance(archs, str) else archs, count)
    return len(calls)


def _layouts_of(calls: list[tuple[Any, tuple]]) -> list[LayoutKernels]:
    """The layouts whose index tensors, one after the other, are among the arguments of calls."""
    found: dict[str, LayoutKernels] = {}
    for _, arguments in calls:
        indices = [one for one in tree_flatten(arguments)[0] if isinstance(one, Tensor) and not one.is_floating_point()]
        for crow, col in zip(indices, indices[1:]):
            kernels = known_kernels(crow, col)
            if kernels is not None:
                found[kernels.layout.digest] = kernels
    return list(found.values())


@contextlib.contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Without its jobs that have not begun, where one fails."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="sparsekiln precompile")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class _Like:
    """Stands for a tensor of which only the form counts."""

    def __init__(self, tensor: Tensor) -> None:
        self.form = tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device

    def zeros(self) -> Tensor:
        shape, strides, dtype, device = self.form
        return torch.empty_strided(shape, strides, dtype=dtype, device=device).zero_()


class _Recorder(TorchDispatchMode):
    """Notes the calls of this package's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.namespace == "sparsekiln":
            self.calls.append((func, args))
        return func(*args, **(kwargs or {}))


def _calls_of(model: torch.nn.Module, sample: Any, backward: bool) -> list[tuple[Any, tuple]]:
    """The different calls of operators in a pass through the model, with the model's own tensors, and _Like for others."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # which takes PyTorch a second to load

    own = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        stand_ins = {name: mode.from_tensor(tensor) for name, tensor in own.items()}
        positional, named = tree_map(lambda one: mode.from_tensor(one) if isinstance(one, Tensor) else one, _arguments(sample))
        with _Recorder() as recorder, torch.set_grad_enabled(backward):
            results = torch.func.functional_call(model, stand_ins, positional, named)
            if backward:
                torch.autograd.backward([one.sum() for one in tree_flatten(results)[0] if isinstance(one, Tensor) and one.requires_grad])
    real = {id(stand_in): own[name] for name, stand_in in stand_ins.items()}
    calls: dict[tuple, tuple[Any, tuple]] = {}
    for operator, arguments in recorder.calls:
        given = tree_map(lambda one: _given(one, real) if isinstance(one, FakeTensor) else one, arguments)
        leaves, structure = tree_flatten(given)
        forms = tuple(one.form if isinstance(one, _Like) else id(one) if isinstance(one, Tensor) else one for one in leaves)
        calls.setdefault((operator, forms, str(structure)), (operator, given))
    return list(calls.values())


def _arguments(sample: Any) -> tuple[tuple, dict[str, Any]]:
    if isinstance(sample, Mapping):
        return (), dict(sample)
    if isinstance(sample, Tensor):
        return (sample,), {}
    if isinstance(sample, (tuple, list)):
        return tuple(sample), {}
    raise TypeError(f"the sample is {shown(sample)}; a tensor, a tuple of arguments, or a dict of named ones would work")


def _given(stand_in: Tensor, real: dict[int, Tensor]) -> "Tensor | _Like":
    own = real.get(id(stand_in))
    return _Like(stand_in) if own is None else own


def _call(operator: Any, arguments: tuple) -> None:
    with torch.no_grad():
        operator(*tree_map(lambda one: one.zeros() if isinstance(one, _Like) else one, arguments))
