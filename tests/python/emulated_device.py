"""A CUDA device for tests without one: kernels run on the emulator, on copies of cpu tensors."""

import ctypes
import math
import os
import types
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

import sparsekiln
from sparsekiln.torch import kernels
from sparsekiln.torch.convolution import products as convolution_products
from sparsekiln.torch.linear import products
from sparsekiln.torch.recurrent import lstm_steps

FAR = torch.device("cuda:0")


def _emulates() -> bool:
    try:
        sparsekiln.compile([[1]], 16, target="emulated:sm_80")
    except sparsekiln.Error:
        return False
    return "SPARSEKILN_EMULATOR" in os.environ


needs_emulator = pytest.mark.skipif(not _emulates(), reason="no emulator, or no NVRTC")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

_CUDA = 2  # kDLCUDA
_CODES = {torch.float32: (2, 32), torch.float16: (2, 16), torch.bfloat16: (4, 16), torch.uint8: (1, 8)}


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("number", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", _Device), ("rank", ctypes.c_int32), ("type", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    """DLManagedTensor, without a deleter: the array outlives the call that it is an operand of."""

    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Array:
    """What speaks DLPack and lies at an address of a device."""

    def __init__(self, tensor: torch.Tensor, address: int, device: int):
        self._shape = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
        self._strides = (ctypes.c_int64 * tensor.dim())(*tensor.stride())
        code, bits = _CODES[tensor.dtype]
        self._managed = _Managed(
            _Tensor(address, _Device(_CUDA, device), tensor.dim(), _Type(code, bits, 1), self._shape, self._strides, 0), None, None
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self._managed.tensor.device.number

    def __dlpack__(self, **_) -> object:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self._managed), b"dltensor", None)


class EmulatedDevice:
    """The emulated device of an architecture, such as "sm_80"."""

    def __init__(self, architecture: str):
        self.target = f"emulated:{architecture}"
        self.launches: list[str] = []  #: the operations of the kernels that ran
        self.overlaps: list[str] = []  #: whether each of them could begin early: yes or no
        self._driver = ctypes.CDLL(os.environ["SPARSEKILN_EMULATOR"])
        self._number = self._open(int(architecture.removeprefix("sm_")))

    def _ask(self, function: str, *arguments) -> None:
        status = getattr(self._driver, function)(*arguments)
        assert status == 0, f"{function} returned {status}"

    def _open(self, capability: int) -> int:
        self._ask("cuInit", 0)
        count, digit = ctypes.c_int(), ctypes.c_int()
        self._ask("cuDeviceGetCount", ctypes.byref(count))
        for number in range(count.value):
            digits = []
            for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
                self._ask("cuDeviceGetAttribute", ctypes.byref(digit), attribute, number)
                digits.append(digit.value)
            if digits[0] * 10 + digits[1] == capability:
                self._context = ctypes.c_void_p()
                self._ask("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), number)
                return number
        raise AssertionError(f"the emulator has no sm_{capability}")

    def run(self, kernel, n: int, *operands: torch.Tensor, **named: torch.Tensor | None):
        """Stands in for products.run: launches with a workspace of just the size that the kernel says, as in a CUDA graph."""
        result = operands[2]
        self.launches.append(kernel.op)
        self.overlaps.append(kernel.computation["overlap_launches"])
        if kernel.computation["bias_gradient"] == "yes":
            named["dbias"] = torch.full((operands[1].shape[-1],), torch.nan)
        if size := kernel.workspace_bytes(n):
            named["workspace"] = torch.full((size,), 255, dtype=torch.uint8)
            named["workspace"][: kernel.workspace_counter_bytes()] = 0
        given = [one for one in (*operands, *named.values()) if isinstance(one, torch.Tensor)]
        with self._copies(given) as copies:
            there = dict(zip(map(id, given), copies))
            more = {name: there[id(one)] if isinstance(one, torch.Tensor) else one for name, one in named.items()}
            kernel(*(there[id(one)] for one in operands), stream=0, **more)
            # What the cell of an LSTM and layer normalisation compute besides, and their gradients.
            forward, backward = ("c", "activations", "sums", "statistics"), ("dc_before", "dmultiplier", "daddend", "dnorm")
            for one in (result, *map(named.get, ("dbias", *(forward if kernel.op == "forward" else backward)))):
                if one is not None:
                    self._copy_back(one, there[id(one)])
        return (result, named["dbias"]) if "dbias" in named else result

    @contextmanager
    def _copies(self, tensors: list[torch.Tensor]) -> Iterator[list[_Array]]:
        """Each with the strides that it has, at an address of the same alignment."""
        self._ask("cuCtxPushCurrent_v2", self._context)
        places = []
        try:
            arrays = []
            for tensor in tensors:
                place, skipped = ctypes.c_uint64(), tensor.data_ptr() % 256
                self._ask("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(_span(tensor) + skipped + 1))
                places.append(place)
                address = ctypes.c_uint64(place.value + skipped)
                self._ask("cuMemcpyHtoD_v2", address, ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(_span(tensor)))
                arrays.append(_Array(tensor, address.value, self._number))
            yield arrays
        finally:
            for place in places:
                self._ask("cuMemFree_v2", place)
            self._ask("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _copy_back(self, tensor: torch.Tensor, array: _Array) -> None:
        address = ctypes.c_uint64(array._managed.tensor.data)
        self._ask("cuMemcpyDtoH_v2", ctypes.c_void_p(tensor.data_ptr()), address, ctypes.c_size_t(_span(tensor)))


def one_by_one(run):
    """Stands in for launches.run_steps: each launch is a call of `run`."""

    def run_steps(steps, kernels, tensors, epsilon=None) -> None:
        more = {} if epsilon is None else {"epsilon": epsilon}
        for one in steps.launches:
            operands = {
                name: tensors[at.tensor] if at.count < 0 else tensors[at.tensor][at.first : at.first + at.count]
                for name, at in one.operands.items()
            }
            positional = [operands.pop(name) for name in list(operands)[:3]]
            run(kernels[one.kernel], one.n, *positional, **operands, **more)

    return run_steps


def emulate_convolutions(monkeypatch: pytest.MonkeyPatch, architecture: str = "sm_80") -> EmulatedDevice:
    """Convolutions of cpu tensors are computed as those of CUDA tensors are, except that a kernel is launched on copies."""
    use = convolution_products._use
    monkeypatch.setattr(convolution_products, "_use", lambda *given, **more: use(*given, **more)._replace(device=FAR))
    return _emulate(monkeypatch, convolution_products, architecture)


def emulate_lstm_steps(monkeypatch: pytest.MonkeyPatch, architecture: str = "sm_80") -> EmulatedDevice:
    """Steps of an LSTM on cpu tensors are computed as those on CUDA tensors are, except that a kernel is launched on copies."""
    monkeypatch.setattr(lstm_steps, "Use", lambda *given, **more: kernels.Use(*given, **more)._replace(device=FAR))
    emulated = _emulate(monkeypatch, lstm_steps, architecture)
    monkeypatch.setattr(lstm_steps, "run_steps", one_by_one(emulated.run))
    return emulated


def emulate_linear(monkeypatch: pytest.MonkeyPatch, architecture: str = "sm_80", bound: int = 16) -> EmulatedDevice:
    """Linear layers of cpu tensors are computed as those of CUDA tensors are, except that a kernel is launched on copies. `bound`: the
    largest batch of the kernels for small ones."""
    monkeypatch.setattr(products, "Use", lambda *given, **more: kernels.Use(*given, **more)._replace(device=FAR))
    emulated = _emulate(monkeypatch, products, architecture, bound)

    def run(kernel, n: int, *operands: torch.Tensor, **named: torch.Tensor | None):
        shapes = {"forward": (n, kernel.out_features), "grad_input": (n, kernel.in_features)}
        shape = shapes.get(kernel.op, (kernel.layout.blocks, *kernel.block))
        return emulated.run(kernel, n, *operands, operands[0].new_full(shape, torch.nan), **named)

    monkeypatch.setattr(products, "run", run)
    return emulated


def _emulate(monkeypatch: pytest.MonkeyPatch, launching: types.ModuleType, architecture: str, bound: int = 16) -> EmulatedDevice:
    emulated = EmulatedDevice(architecture)
    monkeypatch.setattr(launching, "run", emulated.run)
    monkeypatch.setattr(kernels, "_target", lambda device: emulated.target if device == FAR else "cpu")
    monkeypatch.setattr(kernels, "_BOUNDS", (bound, 1 << 30))  # fewer ranges compile faster
    return emulated


def _span(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the last."""
    if math.prod(tensor.shape) == 0:
        return 0
    return (sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1) * tensor.element_size()
