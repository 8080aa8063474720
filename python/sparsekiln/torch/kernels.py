"""The kernels of a layout: made when they are first needed, and shared by everything that uses the layout."""

import atexit
import contextlib
import functools
import itertools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch

import sparsekiln
from sparsekiln._dtypes import TRAINED

from . import background, baking, operator_library
from .layouts import four_times, layout_from_indices

#: From PyTorch's element types to the core's names. Sums are float32, of float64 they are float64.
DTYPES = {getattr(torch, array_name): name for array_name, name in TRAINED.items() if hasattr(torch, array_name)}

#: Sides of blocks with kernels.
BLOCK_SIDES = (8, 16, 32, 64, 128)

#: Kernels of convolutions that a layout keeps: without a largest input each is for one size of the images, of which a program
#: may meet any number.
MOST_CONVOLUTIONS = 256

# A dynamic kernel has code for ranges of the batch, and the last of them is open: one for 2^20 compiles as fast as
# one for 2^16. A larger batch, up to the core's limit, takes a kernel of its own.
_BOUNDS = (1 << 20, 1 << 30)


# Guards all that is known of kernels. It is held while one is shared with C++ and while those that were are forgotten, by the same thread,
# too, where Python collects a Weight. Nothing is compiled under it, and a process is forked between such moments.
_lock = threading.RLock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class Use(NamedTuple):
    """One way of using a layout: everything that a kernel is compiled for except the layout and the batch."""

    operation: str
    block: tuple[int, int]
    in_features: int
    out_features: int
    dtype: torch.dtype
    device: torch.device
    epilogue: str = "none"
    derivative: str = "none"
    bias_gradient: bool = False
    convolution: str = "none"  #: as sparsekiln.compile takes it
    transposed: bool = False  #: a convolution whose rows of blocks are of inputs
    order: str = "batch-major"  #: as sparsekiln.compile takes it
    positions: int = 1  #: of an image of a convolution, of its input or its output: of the larger one
    masks_blocks: bool = False  #: each block has taps of its own, so that no other layout can be meant
    overlap: bool = False  #: a launch may begin early: see launch_overlap.py

    def bound(self, n: int) -> int:
        """The largest batch of the kernel that serves a batch of `n`."""
        if self.keeps_images:
            return min(1 << max(n - 1, 0).bit_length(), _BOUNDS[1] // self.positions)
        small, all_of_them = (min(one, _BOUNDS[1] // self.positions) for one in _BOUNDS)
        return small if n <= small else all_of_them

    @property
    def keeps_images(self) -> bool:
        """Whether the kernel's workspace has a part for each image that it may be given; kernels of float64 have none."""
        gradient = self.convolution != "none" and self.operation == "grad_weight"
        return gradient and self.device.type == "cpu" and self.dtype != torch.float64

    @property
    def alignment(self) -> int:
        """Bytes that the rows of contiguous activations are multiples of: at most 16."""
        step, element = 16, self.dtype.itemsize
        while self.in_features * element % step or self.out_features * element % step:
            step //= 2
        return step


class LayoutKernels:
    """A layout and the kernels made for it. Copies and pickles of it are the same object, in the process they are in."""

    __slots__ = (
        "__weakref__", "_asked_to_bake", "_begun", "_calls", "_compiles", "_gate", "_kernels", "_replaced", "_weights", "layout",
    )  # fmt: skip

    def __init__(self, layout: "sparsekiln.Layout"):
        self.layout = layout
        self._gate: LayoutKernels | None = None
        self._kernels: dict[tuple[Use, int], Any] = {}
        self._compiles: dict[tuple[Use, int], background.Job] = {}  # that were begun before a call waits for them
        self._begun = time.monotonic()
        self._calls: dict[tuple[Use, int], int] = {}  # of each kernel
        self._asked_to_bake: set[tuple[Use, int]] = set()
        self._replaced: dict[tuple[Use, int], Any] = {}  # kernels that CUDA graphs may have captured
        self._weights: list[weakref.ref[Weight]] = []

    def kernel(self, use: Use, n: int) -> "sparsekiln.Kernel":
        """The kernel for a batch of `n`, and for all others of its range."""
        key = use, use.bound(n)
        kernel = self._kernels.get(key)
        if kernel is None:
            made.kernel = weakref.ref(self), use, n
            return self._compile(*key)
        self.count_call(key)
        return kernel

    def prepare(self, use: Use, n: int) -> None:
        """Has that kernel compiled, which no call takes yet."""
        key = use, use.bound(n)
        if key not in self._kernels:
            self._compile(*key)

    def begin(self, use: Use, n: int) -> background.Job:
        """Has that kernel compiled by another thread, unless it was begun before."""
        key = use, use.bound(n)
        with _lock:
            job = self._compiles.get(key)
            if job is None or job.is_lost():
                job = self._compiles[key] = background.Job(functools.partial(_compile_if_used, weakref.ref(self), key))
                background.worker.do(job.run)
        return job

    def has(self, use: Use, n: int) -> bool:
        """Whether that kernel is there, or is in a pack or in the cache: it is used without a compile."""
        key = use, use.bound(n)
        if key in self._kernels:
            return True
        if key in self._compiles:  # it was in neither when that was begun
            return False
        try:
            self._keep(key, compile_kernel(self.layout, *key, require="built"))
        except sparsekiln.Error:
            return False
        made.kernel = weakref.ref(self), use, n
        return True

    def count_call(self, key: tuple[Use, int], count: int = 1) -> None:
        """Notes calls of a kernel that is there: after some it is baked, if it has tables."""
        before = self._calls.get(key, 0)
        calls = self._calls[key] = before + count
        if calls // baking.CALLS > before // baking.CALLS and baking.is_on() and time.monotonic() - self._begun >= baking.SECONDS:
            self._bake(key)

    def _bake(self, key: tuple[Use, int]) -> None:
        with _lock:
            if key in self._asked_to_bake or key not in self._kernels or not is_baked_later(key[0]):
                return
            self._asked_to_bake.add(key)
        me = weakref.ref(self)  # what no layer uses any more need not be compiled
        baking.worker.do(functools.partial(_bake_if_used, me, key))

    def take_baked(self, key: tuple[Use, int], kernel: "sparsekiln.Kernel | None") -> None:
        """Instead of the one with tables, from the next call on. None: there is none now, and it may be asked for again."""
        with _lock:
            before = self._kernels.get(key)
            if kernel is None or before is None:  # there was no room for it
                self._asked_to_bake.discard(key)
                return
            self._replaced[key] = before
            self._kernels[key] = kernel
            weights = [weight for one in self._weights if (weight := one()) is not None]
        for weight in weights:
            weight.forget_kernels()

    def add_user(self, weight: "Weight") -> None:
        """That keeps kernels, and has to forget those that are replaced."""
        with _lock:
            self._weights = [one for one in self._weights if one() is not None]
            self._weights.append(weakref.ref(weight))

    def of_gate(self) -> "LayoutKernels":
        """The kernels of the layout of one gate, where this is the layout of the four gates of an LSTM, whose rows follow one another.
        ValueError if the gates have other blocks."""
        if self._gate is None:
            layout = self.layout
            rows, blocks = layout.rows // 4, layout.blocks // 4
            crow, col = layout.crow, layout.col
            gate = sparsekiln.Layout.from_csr(rows, layout.cols, crow[: rows + 1], col[: crow[rows]])
            if four_times(gate) != layout:
                raise ValueError(
                    f"a layout of {layout.rows} x {layout.cols} blocks for the four gates of an LSTM, which are not alike: "
                    f"four times the rows of one layout, of {blocks} blocks each, would work"
                )
            self._gate = kernels_of(gate)
        return self._gate

    def share(self, weight: "Weight", key: tuple[Use, int], kernel: "sparsekiln.Kernel") -> None:
        """Tells the operators in C++ which kernel serves calls like the one that they have asked for, as long as it does."""
        functions = operator_library.functions
        if functions is None or weight.crow is None or weight.owner is None or key[0].overlap:
            return  # of tensors that no layer owns, others may have the memory and counts of writes of their own
        if launches := functions.sparsekiln_torch_launches():
            self.count_call(key, launches)
        use, bound = key
        small = use.bound(0)
        asks_after = baking.CALLS if is_baked_later(use) and key not in self._replaced else 0
        with _lock:
            if self._kernels.get(key) is kernel:
                functions.sparsekiln_torch_add(
                    weight.number, kernel.handle, weight.blocks, 0 if bound == small else small + 1, bound, asks_after, *weight.versions
                )  # fmt: skip

    def kernels(self) -> list["sparsekiln.Kernel"]:
        """All kernels made so far."""
        with _lock:
            return list(self._kernels.values())

    def made(self) -> list[tuple[Use, int, str]]:
        """The use, the largest batch and the architecture of all kernels made so far, of the layout of one gate, too."""
        with _lock:
            own = [(use, bound, kernel.target) for (use, bound), kernel in self._kernels.items()]
        return own if self._gate is None else own + self._gate.made()

    def _compile(self, use: Use, bound: int) -> "sparsekiln.Kernel":
        """Several threads may compile kernels of one layout; what they ask for alike is one compile."""
        key = use, bound
        job = self._compiles.get(key)
        if job is not None and job.has_ended() and (there := self._kernels.get(key)) is not None:
            return there
        return self._keep(key, compile_kernel(self.layout, use, bound))

    def _keep(self, key: tuple[Use, int], kernel: "sparsekiln.Kernel") -> "sparsekiln.Kernel":
        with _lock:
            there = self._kernels.get(key)
            if there is not None:
                return there
            if key[0].convolution != "none":
                self._make_room_for_a_convolution()
            self._kernels[key] = kernel
            return kernel

    def _make_room_for_a_convolution(self) -> None:
        old = [key for key in self._kernels if key[0].convolution != "none"]
        for key in old[: max(0, len(old) + 1 - MOST_CONVOLUTIONS)]:
            del self._kernels[key]
            for kept in (self._calls, self._replaced, self._compiles):
                kept.pop(key, None)
            self._asked_to_bake.discard(key)

    def __copy__(self) -> "LayoutKernels":
        return self

    def __deepcopy__(self, memo: dict) -> "LayoutKernels":
        return self

    def __reduce__(self) -> tuple:
        return kernels_of, (self.layout,)


class _Made(threading.local):
    kernel: tuple[weakref.ref[LayoutKernels], Use, int] | None = None


#: The last kernel that a call of this thread was the first one to need, and the batch of the call.
made = _Made()


def begin_gradients(
    crow: torch.Tensor, col: torch.Tensor, values: torch.Tensor, derivative: str, of_x: bool, of_weight: bool, of_bias: bool
) -> None:
    """After a forward pass of these index tensors and values for which made.kernel is not None: has the kernels of its backward pass
    compiled meanwhile. `derivative`: the activation, whose derivative they compute."""
    assert made.kernel is not None
    (reference, use, n), made.kernel = made.kernel, None
    kernels = reference()
    is_of_call = kernels is not None and known_kernels(crow, col) is kernels and (use.block, use.dtype) == (tuple(values.shape[-2:]), values.dtype)
    if kernels is None or not is_of_call or use.operation != "forward":  # that of another call, which recorded nothing
        return
    gradient = use._replace(epilogue="none", derivative=derivative, overlap=False)
    if of_x:
        kernels.begin(gradient._replace(operation="grad_input"), n)
    of_weights = gradient._replace(operation="grad_weight", bias_gradient=of_bias)
    if of_weight and not of_weights.keeps_images:  # else launches may take fewer images at a time
        kernels.begin(of_weights, n)


def _compile_if_used(kernels: "weakref.ref[LayoutKernels]", key: tuple[Use, int]) -> None:
    """A compile that was begun."""
    if (there := kernels()) is not None and key not in there._kernels:
        layout = there.layout
        del there
        kernel = compile_kernel(layout, *key)
        if (there := kernels()) is not None:
            there._keep(key, kernel)


def _bake_if_used(kernels: "weakref.ref[LayoutKernels]", key: tuple[Use, int]) -> None:
    """A job of the thread that bakes."""
    there = kernels()
    layout = None if there is None else there.layout
    del there  # so that the layout may go while this compiles
    kernel = None
    if layout is not None and baking.is_on():
        try:
            kernel = compile_kernel(layout, *key, baked=True)
        except Exception as error:  # whatever it is, there is a kernel, and it would fail again
            background.say_once("a kernel was not compiled with its layout, and goes on without", error)
            return
    there = kernels()
    if there is not None:
        there.take_baked(key, kernel if baking.is_on() else None)


def is_baked_later(use: Use) -> bool:
    """Whether a kernel's layout comes as tables at first, and code with it would be faster. On the cpu it is data in either form."""
    return use.device.type != "cpu" and is_attached(use)


def is_attached(use: Use) -> bool:
    return not use.masks_blocks  # which belong to the blocks of one layout


def named_features(layout: "sparsekiln.Layout", use: Use) -> dict[str, int]:
    """in_features and out_features as sparsekiln.compile takes them: 0 where no block is partial."""
    block_out, block_in = use.block
    inputs, outputs = layout.cols * block_in, layout.rows * block_out
    if use.transposed:
        inputs, outputs = outputs, inputs
    return {
        "in_features": 0 if use.in_features == inputs else use.in_features,
        "out_features": 0 if use.out_features == outputs else use.out_features,
    }


def compile_kernel(
    layout: "sparsekiln.Layout", use: Use, bound: int, baked: bool = False, require: str = "anything"
) -> "sparsekiln.Kernel":
    """A kernel for any batch up to `bound`, with the layout as tables where it can be; `baked`: in its code. `require`: as
    sparsekiln.compile takes it."""
    return sparsekiln.compile(
        layout, block=use.block, batch=sparsekiln.up_to(bound), dtype=DTYPES[use.dtype], op=use.operation,
        epilogue=use.epilogue, target=_target(use.device), derivative=use.derivative, bias_gradient=use.bias_gradient,
        **named_features(layout, use), alignment=use.alignment, attached=not baked and is_attached(use), convolution=use.convolution, order=use.order,
        overlap_launches=use.overlap, require=require,
    )  # fmt: skip


def _target(device: torch.device) -> str:
    if device.type == "cuda":
        return f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"
    if device.type == "cpu":
        return "cpu"
    raise ValueError(f"sparsekiln has kernels for cpu and cuda tensors, not for those on {device}; move them there with .to()")


# Layers hold the LayoutKernels that they use, and so do index tensors that were used (see find). For index tensors in
# which PyTorch does not count writes, the last ones found are kept.
_by_digest: "weakref.WeakValueDictionary[str, LayoutKernels]" = weakref.WeakValueDictionary()
_recent: deque[LayoutKernels] = deque(maxlen=256)
atexit.register(_recent.clear)  # before the extension is unloaded


@functools.lru_cache(maxsize=256)
def kernels_without_blocks(columns: int) -> LayoutKernels:
    """The kernels of a layout of one row of so many columns without a block, kept: nothing else has it."""
    return kernels_of(sparsekiln.Layout.from_csr(1, columns, [0, 0], []))


atexit.register(kernels_without_blocks.cache_clear)


def kernels_of(layout: "sparsekiln.Layout") -> LayoutKernels:
    """The LayoutKernels shared by all equal layouts of this process."""
    with _lock:
        kernels = _by_digest.get(layout.digest)
        if kernels is None:
            kernels = _by_digest[layout.digest] = LayoutKernels(layout)
        return kernels


class Owner(Protocol):
    """A layer whose index tensors change only together with its values."""

    def settle_indices(self) -> None:
        """Has them hold its layout again, after others wrote to them; ValueError if they hold another one."""


class _Launches(threading.local):
    kernels: list[tuple["Weight", tuple[Use, int], Any]] | None = None  #: those used, where C++ asks; else None


_launches = _Launches()


@contextlib.contextmanager
def _kernels_noted(where: list | None) -> Iterator[None]:
    before, _launches.kernels = _launches.kernels, where
    try:
        yield
    finally:
        _launches.kernels = before


@contextlib.contextmanager
def share_kernels() -> Iterator[None]:
    """Shares the kernels that are used meanwhile with the operators in C++, which have asked for them."""
    used: list[tuple[Weight, tuple[Use, int], Any]] = []
    with _kernels_noted(used):
        yield
    for weight, key, kernel in used:
        weight.kernels.share(weight, key, kernel)


def unshared() -> contextlib.AbstractContextManager[None]:
    """Within it, kernels that are used are not those that C++ has asked for."""
    return _kernels_noted(None)


class Weight:
    """Index tensors, the layout that they are known to hold, and its kernels that were used with them."""

    __slots__ = ("__weakref__", "_ready", "blocks", "col", "cols", "crow", "kernels", "number", "owner", "versions")
    _numbers = itertools.count(1)

    def __init__(
        self, crow: weakref.ref | None, col: weakref.ref | None, versions: tuple, kernels: LayoutKernels, owner: weakref.ref | None = None
    ):  # fmt: skip
        self.crow, self.col, self.versions, self.kernels = crow, col, versions, kernels
        self.cols, self.blocks = kernels.layout.cols, kernels.layout.blocks
        self.owner = owner
        self.number = next(self._numbers)  #: by which the operators in C++ know it
        self._ready: dict[tuple, tuple[Any, tuple[Use, int]]] = {}
        kernels.add_user(self)

    def ready(self, operation: str, n: int, *form: Any) -> Any:
        """The kernel of an earlier call like this one, or None."""
        found = self._ready.get((operation, n > _BOUNDS[0], *form))
        if found is None:
            return None
        kernel, key = found
        self.kernels.count_call(key)
        self._note(key, kernel)
        return kernel

    def make(self, use: Use, n: int, *form: Any) -> "sparsekiln.Kernel":
        """Finds the kernel for `use`; `form` distinguishes it from the others of these index tensors."""
        kernel = None
        while kernel is not (found := self.kernels.kernel(use, n)):  # another may have been baked in between
            self._ready[(use.operation, n > _BOUNDS[0], *form)] = found, (use, use.bound(n))
            kernel = found
        self._note((use, use.bound(n)), kernel)
        return kernel

    def _note(self, key: tuple[Use, int], kernel: Any) -> None:
        if _launches.kernels is not None:
            _launches.kernels.append((self, key, kernel))

    def forget_kernels(self) -> None:
        """Has the next calls look for theirs: there are others now."""
        with _lock:
            self._ready.clear()
            self._forget_in_cpp()

    def __del__(self) -> None:
        self._forget_in_cpp()

    def _forget_in_cpp(self) -> None:
        if operator_library.functions is not None:
            operator_library.functions.sparsekiln_torch_forget(self.number)


# By id() of the two index tensors; an entry is removed with either of them.
_checked: dict[tuple[int, int], Weight] = {}


def find(crow: torch.Tensor, col: torch.Tensor, cols: int) -> Weight:
    """The Weight of these index tensors (BSR, of `cols` block columns).

    They are read when they first occur, which waits for a GPU, and again after they have been written to. ValueError if they
    hold no layout, or if they belong to a layer (see know) and hold another one than before.
    """
    entry = _entry_of(crow, col)
    if entry is not None and entry.versions != (crow._version, col._version):
        owner = None if entry.owner is None else entry.owner()
        if owner is not None:
            owner.settle_indices()
            entry = _entry_of(crow, col)
        if entry is None or entry.versions != (crow._version, col._version):
            entry = None
    if entry is None:
        return _remember(crow, col, kernels_of(layout_from_indices(crow, col, cols)))
    if entry.cols != cols:
        raise ValueError(f"the index tensors hold a layout of {entry.cols} block columns, and the features of this call are {cols}")
    return entry


def _entry_of(crow: torch.Tensor, col: torch.Tensor) -> Weight | None:
    entry = _checked.get((id(crow), id(col)))
    return entry if entry is not None and entry.crow() is crow and entry.col() is col else None


def know(crow: torch.Tensor, col: torch.Tensor, kernels: LayoutKernels, owner: Owner | None = None, settled: bool = True) -> None:
    """Says what index tensors hold, so that find does not read them. After later writes, or before the first use if they are not
    settled, `owner` is asked."""
    entry = _remember(crow, col, kernels, None if owner is None else weakref.ref(owner))
    if not settled:
        entry.versions = ()


def is_known(crow: torch.Tensor, col: torch.Tensor) -> bool:
    """Whether find would not read these."""
    entry = _entry_of(crow, col)
    return entry is not None and entry.versions == (crow._version, col._version)


def known_kernels(crow: torch.Tensor, col: torch.Tensor) -> LayoutKernels | None:
    """The kernels of the layout that these are known to hold."""
    entry = _entry_of(crow, col)
    return None if entry is None else entry.kernels


def known_blocks(crow: torch.Tensor, col: torch.Tensor) -> int:
    """Blocks of the layout, without reading it: those that there is room for if these index tensors are not known."""
    return _checked[id(crow), id(col)].blocks if is_known(crow, col) else col.shape[0]


def _remember(crow: torch.Tensor, col: torch.Tensor, kernels: LayoutKernels, owner: weakref.ref | None = None) -> Weight:
    if crow.is_inference() or col.is_inference():  # PyTorch does not count writes to them
        if kernels not in _recent:
            _recent.append(kernels)
        return Weight(None, None, (), kernels)
    key = (id(crow), id(col))

    def forget(dead: weakref.ref) -> None:
        entry = _checked.get(key)
        if entry is not None and (entry.crow is dead or entry.col is dead):
            _checked.pop(key, None)

    versions = (crow._version, col._version)
    entry = _checked[key] = Weight(weakref.ref(crow, forget), weakref.ref(col, forget), versions, kernels, owner)
    return entry
