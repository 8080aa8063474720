"""A CUDA file of kernels for small batches that bench/prototype.py compares with: how it is compiled, launched and described.

The file has `template <int KIND, int B, int OB, int NT, int NV, int WARPS, int CL, int D, int MINB, bool PREF, bool PDL> struct C1`: the
type (0 bf16, 1 f16, 2 tf32), the block, outputs and batch rows of a CTA, batch rows that there are, warps, CTAs of a cluster (1 here),
chunks of a warp under way, CTAs of a multiprocessor, and what is compared as it is; and kernels `k1<C1<…>>` with the one parameter
`_Arguments`. Where x is repacked as panels [in / B][n][B], `panel` does that before.
"""

import ctypes
import dataclasses
import pathlib
import re
import struct
import subprocess

import disassembly
from emulated import Counts, Device
from main_loop import Part, main_loop

_OPTIONS = ["-O3", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a"]
_KERNEL = re.compile(r"_Z2k1I2C1I((?:L[ib]\d+E)+)EEv")
_PANEL = re.compile(r"\.entry (_Z5panel\w*)")
_MULTIPROCESSORS = 132
# For each type its name, its bytes, and what 1 is in it.
_TYPES = (("bf16", 2, 0x3F80), ("f16", 2, 0x3C00), ("tf32", 4, 0x3F800000))


class _Arguments(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_void_p), ("x_row", ctypes.c_longlong), ("x_column", ctypes.c_int), ("w", ctypes.c_void_p), ("y", ctypes.c_void_p),
        ("out", ctypes.c_int), ("ranges", ctypes.c_void_p), ("columns", ctypes.c_void_p), ("w_bytes", ctypes.c_uint),
        ("x_bytes", ctypes.c_uint), ("w_piece", ctypes.c_uint), ("x_piece", ctypes.c_uint),
    ]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Variant:
    """A kernel of the file: the arguments of C1."""

    kind: int
    block: int
    out: int
    tile_n: int
    n: int
    warps: int
    cluster: int
    chunks: int
    ctas: int
    prefetches: int = 0
    overlaps: int = 0
    panels: bool = dataclasses.field(default=False, kw_only=True)

    @property
    def template_arguments(self) -> tuple[int, ...]:
        return dataclasses.astuple(self)[:-1]

    @property
    def title(self) -> str:
        return f"C1<{', '.join(map(str, self.template_arguments))}>{' on panels of x' if self.panels else ''}"

    @property
    def element_bytes(self) -> int:
        return _TYPES[self.kind][1]

    def tiles(self, n: int) -> int:
        return -(-n // self.tile_n)

    def grid(self, rows: int, n: int) -> tuple[int, int]:
        """CTAs; `rows` of blocks."""
        return rows * self.block // self.out, self.tiles(n)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What ptxas made of a kernel."""

    name: str
    loop: Part
    registers: int
    shared_bytes: int
    spilled_bytes: int


class Layout:
    """What `sparsekiln layout make` wrote as text."""

    def __init__(self, file: pathlib.Path):
        self.rows = [[column for column, mark in enumerate(line) if mark == "1"] for line in file.read_text().split()]
        self.columns = len(file.read_text().split()[0])

    @property
    def blocks(self) -> int:
        return sum(map(len, self.rows))

    def ranges(self) -> list[tuple[int, int, int, int]]:
        """Block row, first block and number of blocks of each CTA, from long to short rows, every second wave backwards: each
        multiprocessor gets about the same."""
        first, found = 0, []
        for row, columns in enumerate(self.rows):
            found.append((row, first, len(columns), 0))
            first += len(columns)
        found.sort(key=lambda one: -one[2])
        waves = [found[at : at + _MULTIPROCESSORS] for at in range(0, len(found), _MULTIPROCESSORS)]
        return [one for number, wave in enumerate(waves) for one in (reversed(wave) if number % 2 else wave)]


class Prototype:
    """The file, compiled."""

    def __init__(self, nvcc: pathlib.Path, nvdisasm: pathlib.Path, file: pathlib.Path, folder: pathlib.Path):
        self._file = file
        cubin = folder / "prototype.cubin"
        kept = ["--keep", "--keep-dir", folder]  # the PTX
        command = [nvcc, *_OPTIONS, "-Xptxas", "-v", "-cubin", *kept, "-o", cubin, file.resolve()]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{nvcc} {file}: exit status {done.returncode}: {done.stderr.strip()}")
        self._ptx = (folder / f"{file.stem}.ptx").read_text()
        self._log = done.stderr
        self._functions = disassembly.disassemble(nvdisasm, cubin, encodings=True)
        self._names = {tuple(map(int, re.findall(r"\d+", match[1]))): name for name in self._functions if (match := _KERNEL.match(name))}
        self._module = None

    def compiled(self, variant: Variant) -> Compiled:
        name = self._names.get(variant.template_arguments)
        if name is None:
            raise SystemExit(f"{self._file}: no kernel k1<{variant.title.partition('>')[0]}>>")
        said = self._log.partition(f"Compiling entry function '{name}'")[2].partition("Compiling entry function")[0]
        registers, shared, *spilled = (
            sum(map(int, re.findall(pattern, said)))
            for pattern in (r"Used (\d+) registers", r"(\d+) bytes smem", r"(\d+) bytes spill stores", r"(\d+) bytes spill loads")
        )
        return Compiled(name, main_loop(self._functions[name]), registers, shared, sum(spilled))

    def launch(self, device: Device, variant: Variant, layout: Layout, n: int) -> Counts:
        """Multiplies ones on the emulator, and checks the sums."""
        if self._module is None:
            self._module = device.load(self._ptx)
        size, one = _TYPES[variant.kind][1:]
        block, out = variant.block, len(layout.rows) * variant.block
        row_bytes = layout.columns * block * size
        x = device.filled(one, size, n * layout.columns * block)
        w = device.filled(one, size, layout.blocks * block * block)
        y = device.filled(0xFF, 1, n * out * size)
        panels = device.filled(0, 1, n * row_bytes)
        ranges = device.upload(b"".join(struct.pack("4i", *each) for each in layout.ranges()))
        columns = device.upload(b"".join(struct.pack("H", column) for row in layout.rows for column in row))
        grid = variant.grid(len(layout.rows), n)
        w_bytes, x_bytes = layout.blocks * block * block * size, n * row_bytes
        # A CTA may prefetch its share, 32 pieces of 16 bytes or more.
        w_piece, x_piece = (-(-every // (grid[0] * grid[1] * 32 * 16)) * 16 for every in (w_bytes, x_bytes))
        x_row, x_column = (block * size, n * block * size) if variant.panels else (row_bytes, block * size)
        arguments = _Arguments(
            panels if variant.panels else x, x_row, x_column, w, y, out, ranges, columns, w_bytes, x_bytes, w_piece, x_piece
        )  # fmt: skip
        device.reset_counters()
        if variant.panels:
            pieces = row_bytes // 16
            sizes = map(ctypes.c_int, (n, pieces, block * size // 16))
            pointers = map(ctypes.c_void_p, (x, panels))
            device.launch(self._module, _PANEL.search(self._ptx)[1], (-(-n * pieces // 256), 1), 256, [*pointers, *sizes])
        device.launch(self._module, self.compiled(variant).name, grid, 32 * variant.warps, [arguments])
        counted = device.counts()
        self._check(variant, layout, n, device.download(y, n * out * size))
        device.free([x, w, y, panels, ranges, columns])
        return counted

    def _check(self, variant: Variant, layout: Layout, n: int, y: bytes) -> None:
        """Each output is the number of its products, to the precision of the type."""
        size, run = variant.element_bytes, variant.block * variant.element_bytes
        for i in range(n * len(layout.rows)):
            expected = len(layout.rows[i % len(layout.rows)]) * variant.block
            first, whole = y[i * run : i * run + size], y[i * run : (i + 1) * run]
            (value,) = struct.unpack("<e", first) if variant.kind == 1 else struct.unpack("<f", b"\0" * (4 - size) + first)
            if whole != first * variant.block or not abs(value - expected) <= expected / 256:
                raise SystemExit(f"{self._file}: {variant.title}: wrong sums, {value} instead of {expected}, on the emulator")
