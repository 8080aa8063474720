"""Kernels on the emulator (docs/emulator.md), through its C interface: warp instructions and sectors that they take."""

import ctypes
import dataclasses
import pathlib
from collections.abc import Sequence

_COUNTERS = 4  # EMULATOR_CHECK_COUNTERS of emulator/control.h: count, and check bounds alone
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


@dataclasses.dataclass(frozen=True)
class Counts:
    """PTX instructions of warps, and sectors of 32 bytes in global memory, of all that was launched."""

    instructions: int
    sectors: int


class _Line(ctypes.Structure):  # EmulatorLine of emulator/control.h
    _fields_ = [
        ("kernel", ctypes.c_char_p), ("ptx_line", ctypes.c_uint), ("instruction", ctypes.c_char_p), ("source_file", ctypes.c_char_p),
        ("source_line", ctypes.c_uint), ("kind", ctypes.c_char_p),
        *((name, ctypes.c_uint64) for name in ("executed", "global_requests", "global_sectors", "global_bytes", "shared_wavefronts",
                                               "shared_ideal", "tensor_operations", "divergent")),
    ]  # fmt: skip


_Use = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Line), ctypes.c_void_p)


class Device:
    """The emulated sm_90 of this process. What it allocates lives as long as the process."""

    def __init__(self, library: pathlib.Path):
        self._driver = ctypes.CDLL(str(library))
        self._driver.emulatorLastReport.restype = ctypes.c_char_p
        self._call("cuInit", 0)
        context = ctypes.c_void_p()
        self._call("cuCtxCreate_v2", ctypes.byref(context), 0, self._sm_90())
        self._driver.emulatorSetChecks(_COUNTERS)

    def _call(self, name: str, *arguments: object) -> None:
        if status := getattr(self._driver, name)(*arguments):
            raise SystemExit(f"emulator: {name}: error {status} {self._driver.emulatorLastReport().decode()}")

    def _sm_90(self) -> int:
        count, number = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        for device in range(count.value):
            found = []
            for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
                self._call("cuDeviceGetAttribute", ctypes.byref(number), attribute, device)
                found.append(number.value)
            if found == [9, 0]:
                return device
        raise SystemExit("the emulator has no device of compute capability 9.0")

    def load(self, ptx: str) -> ctypes.c_void_p:
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx.encode()))
        return module

    def filled(self, value: int, width: int, count: int) -> int:
        """The address of so many values of 1, 2 or 4 bytes."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(width * count, 1)))
        self._call(f"cuMemsetD{8 * width}_v2", address, value, ctypes.c_size_t(count))
        return address.value

    def upload(self, data: bytes) -> int:
        address = self.filled(0, 1, len(data))
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))
        return address

    def download(self, address: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self._call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data.raw

    def free(self, addresses: Sequence[int]) -> None:
        for address in addresses:
            self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def launch(self, module: ctypes.c_void_p, name: str, grid: tuple[int, int], threads: int, arguments: Sequence) -> None:
        """`arguments` are values of ctypes. Waits for the end."""
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(one) for one in arguments))
        self._call("cuLaunchKernel", function, *grid, 1, threads, 1, 1, 0, None, pointers, None)
        self._call("cuCtxSynchronize")

    def reset_counters(self) -> None:
        self._driver.emulatorResetCounters()

    def counts(self) -> Counts:
        instructions = sectors = 0

        def add(line, _):
            nonlocal instructions, sectors
            instructions += line.contents.executed
            sectors += line.contents.global_sectors

        self._driver.emulatorCounters(_Use(add), None)
        return Counts(instructions, sectors)


def counts_of(answer: dict) -> Counts:
    """What `sparsekiln run --counters` has counted."""
    kernels = answer["counters"]
    return Counts(sum(one["warp_instructions"] for one in kernels), sum(one["global"]["sectors"] for one in kernels))
