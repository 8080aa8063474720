"""How many warps of a kernel a multiprocessor of compute capability 9.0 holds (CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability"; cuda_occupancy.h)."""

_WARPS = 64
_CTAS = 32
_REGISTERS = 65536
_REGISTERS_OF_A_WARP = 256  # are allocated in multiples of this
_PARTS = 4  # of the register file; a warp has its registers in one
_SHARED_BYTES = 228 * 1024
_SHARED_OF_A_CTA = 1024  # taken by the system
_SHARED_UNIT = 128


def _rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def resident_warps(registers: int, threads: int, shared_bytes: int, ctas: int, multiprocessors: int) -> int:
    """The most warps of one multiprocessor, for a grid of so many CTAs; `shared_bytes` of a CTA, static and dynamic."""
    warps = -(-threads // 32)
    of_a_warp = _rounded_up(registers * 32, _REGISTERS_OF_A_WARP)
    most = (
        _CTAS,
        _WARPS // warps,
        _REGISTERS // _PARTS // of_a_warp * _PARTS // warps,
        _SHARED_BYTES // _rounded_up(shared_bytes + _SHARED_OF_A_CTA, _SHARED_UNIT),
        -(-ctas // multiprocessors),
    )
    return min(most) * warps
