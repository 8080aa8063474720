"""Which launches may begin before the launch before them in their stream has ended, as kernels with overlap_launches do.

Such a kernel treats weight, bias and edge bias as constants. It is taken where nothing can be writing them: after an ordinary launch
that read the same tensors, in the same stream, since PyTorch last counted a write to them. What a call has cast, copied or computed is a
new tensor, so that it is read by an ordinary kernel; so are inference tensors, to which PyTorch counts no writes. A call that autograd
records, and its backward pass, forget what is known: a step of a fused optimizer may follow, which is not counted.
"""

import contextlib
import functools
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from . import operator_library
from .kernels import LayoutKernels, Use

Tensor = torch.Tensor

#: As operators take it: False for an ordinary launch, True for one that may begin early, None for such a one within
#: overlapping_launches alone.
Asked = bool | None


class _Context(threading.local):
    depth = 0

    def enter(self, change: int) -> None:
        self.depth += change
        if operator_library.functions is not None:
            operator_library.functions.sparsekiln_torch_set_overlapping(self.depth > 0)


_context = _Context()


@contextlib.contextmanager
def overlapping_launches() -> Iterator[None]:
    """Within it, layers compute as with `overlap=True`: on CUDA devices from sm_90 on, a launch may begin before the launch before it
    in its stream has ended. It is for inference: calls that autograd records are as without.

    You promise that nothing writes weights and biases meanwhile in a way that PyTorch does not count: through `.data`, by a replay of a
    CUDA graph, by a step of a fused optimizer between calls of inference, or by another library. The first call after a write that is
    counted is an ordinary one. It holds for this thread; code that torch.compile compiles is called within it, and does not enter it.
    """
    if torch.compiler.is_compiling():
        raise RuntimeError("overlapping_launches is entered in compiled code; that follows the context that it is called in")
    _context.enter(1)
    try:
        yield
    finally:
        _context.enter(-1)


def asked_of(overlap: Asked, *operands: Tensor | None) -> Asked:
    """What an operator is asked by a call with these operands that autograd does not record. False for parts of DTensors and the like, to
    which PyTorch counts no writes, and in traces of torch.jit, which stand for calls with and without gradients."""
    if not torch.compiler.is_compiling() and torch._C._get_tracing_state() is not None:
        return False
    return not any(one is not None and is_traceable_wrapper_subclass(one) for one in operands) and overlap


class Place(NamedTuple):
    """Where a launch goes."""

    stream: int
    captured: bool  #: by a CUDA graph


class _Read(NamedTuple):
    """A tensor, and where ordinary launches have read it since it was written."""

    storage: weakref.ref
    tensor: weakref.ref
    version: int
    places: frozenset[Place]


_read: dict[int, list[_Read]] = {}  #: by id() of the storage, with which they are removed


class Start:
    """How a launch begins."""

    __slots__ = ("_place", "_tensors", "early", "settles")

    def __init__(self, place: Place | None, tensors: list[Tensor], early: bool):
        self._place = place
        self._tensors = [(one, one._version) for one in tensors]
        self.early = early  #: the launch may begin early
        self.settles = bool(self._tensors) and not early  #: so may those of later calls: see launched

    def launched(self, kernels: LayoutKernels, use: Use, n: int) -> None:
        """After the launch, of the kernel of this use for a batch of `n`. The kernel of later launches is compiled, too, so that a
        CUDA graph may be captured after one call."""
        if self._place is None or not self.settles or n == 0:  # of no rows nothing is launched
            return
        for tensor, version in self._tensors:
            _remember(tensor, version, self._place)
        if not self._place.captured:
            kernels.prepare(use._replace(overlap=True), n)


_ORDINARY = Start(None, [], False)


def start(asked: Asked, given: Sequence[Tensor | None], launched: Sequence[Tensor | None]) -> Start:
    """How a launch begins.

    given     what it reads as constants, as the operator was given it: PyTorch counts writes to these
    launched  the same in the form in which the kernel is given it: copies, or the same memory
    """
    if asked is None and not _context.depth:
        return _ORDINARY
    if asked is False:
        if _read:
            _forget(given)
        return _ORDINARY
    pairs = [(one, other) for one, other in zip(given, launched, strict=True) if one is not None and other is not None]
    place = place_of(pairs[0][0].device)
    if place is None:
        return _ORDINARY
    if any(one.is_inference() or one.untyped_storage() is not other.untyped_storage() for one, other in pairs):
        return Start(place, [], False)
    tensors = [_written_as(one) for one, _ in pairs]
    return Start(place, tensors, all(_is_settled(one, place) for one in tensors))


def may_follow_early(device: torch.device) -> bool:
    """Whether a launch may begin before the one before it in the same call has ended, which both read the same constants."""
    return place_of(device) is not None


def place_of(device: torch.device) -> Place | None:
    """The place of a launch now; None where launches follow one another."""
    if device.type != "cuda" or not _can_overlap(device):
        return None
    with torch.cuda.device(device):
        return Place(torch.cuda.current_stream().cuda_stream, torch.cuda.is_current_stream_capturing())


@functools.lru_cache(maxsize=64)
def _can_overlap(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (9, 0)


def _written_as(tensor: Tensor) -> Tensor:
    """What it is a view of, or itself. Compiled code makes tensors of the same memory that are no views, and that count no writes to
    it: those are new at each call, and never settled."""
    base = tensor._base if tensor._is_view() else None
    return tensor if base is None else base


def _is_settled(tensor: Tensor, place: Place) -> bool:
    known = _entry_of(tensor)
    if known is None or known.version != tensor._version:
        return False
    # A graph begins after what was launched before its capture, in whatever stream.
    return place in known.places or place.captured and any(not one.captured for one in known.places)


def _entry_of(tensor: Tensor) -> _Read | None:
    storage = tensor.untyped_storage()
    for known in _read.get(id(storage), ()):
        if known.tensor() is tensor and known.storage() is storage:
            return known
    return None


def _remember(tensor: Tensor, version: int, place: Place) -> None:
    known = _entry_of(tensor)
    if known is not None and known.version == version:
        if place in known.places:
            return
        places = known.places | {place}
    else:
        places = frozenset({place})
    storage = tensor.untyped_storage()
    key = id(storage)
    others = [one for one in _read.get(key, ()) if one is not known and one.storage() is storage and one.tensor() is not None]
    entry = _Read(weakref.ref(storage, functools.partial(_remove, key)), weakref.ref(tensor), version, places)
    _read[key] = [*others, entry]
    _tell_operators()


def _forget(given: Sequence[Tensor | None]) -> None:
    for one in given:
        if one is not None:
            _read.pop(id(one.untyped_storage()), None)
    _tell_operators()


def _remove(key: int, dead: weakref.ref) -> None:
    if any(one.storage is dead for one in _read.get(key, ())):
        _read.pop(key, None)
        _tell_operators()


def _tell_operators() -> None:
    """Whether those in C++ must ask how a launch of overlap=False begins, which forgets what is known."""
    if operator_library.functions is not None:
        operator_library.functions.sparsekiln_torch_set_remembering(bool(_read))
