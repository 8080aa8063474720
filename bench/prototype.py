"""Our default kernels for small batches beside a prototype's: python3 bench/prototype.py BUILD_DIR FILE.cu [--only WORDS] [--config CONFIG]
[--check] [--write docs/gpu.md] [--short]

FILE.cu has kernels as small_batch_prototype.py describes them. nvcc compiles it, and NVRTC of the same release the kernels of
some workloads (workloads.py), the default ones or those of --config. What main loops consist of is read from the disassembled code
and given for each present block of the weight; what a whole launch takes is counted on the emulator, with the same layout. No GPU is needed.

A default should have at most 1.05 times the instructions and sectors a block of a prototype, as many bytes in flight and as many
warps on a multiprocessor, and its main loop no barrier, no spill, no loads but those of 16 bytes, and those of the next step issued before the
products of this one, which do not wait for them. Exit status: 0 success, 1 with --check where a default does less than that beside each of its prototypes, 2 nvcc or nvdisasm
is missing, or nvcc is of another release than NVRTC.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile

import disassembly
import emulated
import publish
import toolkit
from main_loop import Part, main_loop
from occupancy import resident_warps
from scoreboards import Flight, loaded_bytes, loads_in_flight
from small_batch_prototype import Layout, Prototype, Variant
from sparsekiln_command import environment_of, must_answer, request
from workloads import Workload, workloads

_MOST = 1.05  # times a prototype's instructions and sectors
_AT_LEAST = ("bytes in flight", "warps")  # of a multiprocessor: at least as many
_MULTIPROCESSORS = 132
_TARGET, _EMULATED = "h100", "emulated:sm_90"

# Those that were the fastest of theirs on an H100, by the workload's title; what stands first was the fastest.
_VARIANTS = {
    "headline 12288 10 % block 32 bf16 n=32 forward": [Variant(0, 32, 32, 32, 32, 8, 1, 1, 3), Variant(0, 32, 32, 32, 32, 4, 1, 2, 4)],
    "headline 12288 1 % block 32 bf16 n=32 forward": [Variant(0, 32, 32, 32, 32, 4, 1, 1, 4)],
    "headline 12288 10 % block 32 tf32 n=32 forward": [Variant(2, 32, 32, 32, 32, 8, 1, 2, 2)],
    "widening 10240 6.25 % block 16 bf16 n=64 forward": [
        Variant(0, 16, 16, 64, 64, 4, 1, 1, 5, 1, 1, panels=True),
        Variant(0, 16, 16, 64, 64, 4, 1, 1, 5),
    ],
    "widening 10240 6.25 % block 8 bf16 n=64 forward": [Variant(0, 8, 8, 64, 64, 2, 1, 1, 10, 0, 1, panels=True)],
    "llama-8b-ffn 14336x4096 10 % block 64 bf16 n=1 forward": [Variant(0, 64, 16, 16, 1, 4, 1, 2, 7)],
    "llama-8b-ffn 14336x4096 10 % block 64 bf16 n=16 forward": [Variant(0, 64, 16, 16, 16, 4, 1, 2, 6)],
    "pruned 4096 10 % block 32 f16 n=64 forward": [Variant(1, 32, 32, 32, 32, 8, 1, 2, 2)],
}
_SHORT = {Workload("short", 512, 512, 0.5, 32, "f16", 32, "forward"): [Variant(1, 32, 32, 32, 32, 4, 1, 1, 4)]}


@dataclasses.dataclass(frozen=True)
class Kernel:
    """The properties of a kernel and of one launch of it. All figures "a block" are for a present block and the whole batch."""

    title: str
    loop: Part
    blocks_of_iteration: float  # of the main loop, for the whole batch
    registers: int
    spilled_bytes: int
    warps: int  # of a multiprocessor
    flight: Flight
    counts: emulated.Counts
    blocks: int

    def in_loop(self, fits) -> float:
        """Instructions a block."""
        return sum(map(bool, map(fits, self.loop.instructions))) / self.blocks_of_iteration

    @property
    def instructions(self) -> float:
        return self.in_loop(lambda _: True)

    @property
    def barriers(self) -> int:
        return sum(one.base in ("BAR", "UBAR", "UCGABAR_ARV", "UCGABAR_WAIT") for one in self.loop.instructions)

    @property
    def launched_instructions(self) -> float:
        return self.counts.instructions / self.blocks

    @property
    def sectors(self) -> float:
        return self.counts.sectors / self.blocks

    @property
    def kilobytes_of_multiprocessor(self) -> float:
        return self.flight.most * 32 * self.warps / 1024

    @property
    def faults(self) -> list[str]:
        """What it should not do, whatever the prototype does."""
        found = {"no loop": self.loop.whole, "barriers": self.barriers, "spills": self.spilled_bytes}
        return [what for what, is_so in found.items() if is_so]

    def cells(self) -> list[object]:
        of_loop = [self.instructions, self.in_loop(lambda one: one.kind == "tensor core"), self.in_loop(loaded_bytes)]
        kilobytes = f"{self.kilobytes_of_multiprocessor:.3g}"
        flight = [self.flight.most, self.flight.ahead, self.flight.at_products, self.registers, self.warps, kilobytes]
        counted = [f"{self.launched_instructions:.1f}", f"{self.sectors:.1f}"]
        return [self.title, *(f"{one:.1f}" for one in of_loop), *flight, self.barriers, self.spilled_bytes, *counted]


_COLUMNS = [
    "workload", "kernel", "instructions", "products", "loads", "bytes in flight of a lane", "issued ahead", "in flight at products",
    "registers", "warps of a multiprocessor", "kilobytes in flight of a multiprocessor", "barriers", "spilled bytes",
    "emulated instructions", "emulated sectors",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Beside:
    """A default and a prototype."""

    ours: Kernel
    prototype: Kernel

    def ratios(self) -> dict[str, tuple[float, bool]]:
        """Ours over the prototype's, and whether that is as it should be."""
        figures = {
            "instructions": lambda one: one.instructions, "emulated instructions": lambda one: one.launched_instructions,
            "emulated sectors": lambda one: one.sectors,
            "bytes in flight": lambda one: one.kilobytes_of_multiprocessor, "warps": lambda one: one.warps,
        }  # fmt: skip
        found = {}
        for name, of in figures.items():
            ratio = of(self.ours) / of(self.prototype)
            found[name] = ratio, ratio >= 1 if name in _AT_LEAST else ratio <= _MOST
        return found

    @property
    def short_of(self) -> list[str]:
        return [name for name, (_, holds) in self.ratios().items() if not holds] + self.ours.faults


def multiply_adds(loop: Part) -> int:
    """Multiplications with an addition in an iteration, by all lanes of a warp."""
    found = 0
    for one in loop.instructions:
        if match := re.match(r"HMMA\.(16)(8)(\d+)", one.opcode):
            found += int(match[1]) * int(match[2]) * int(match[3])
        elif one.kind == "products":
            found += 32
    return found


def blocks_of_iteration(loop: Part, workload: Workload, tile_n: int) -> float:
    """Its products over those of a block and all batch tiles. Tiles are multiplied whole, where there are fewer batch rows as well."""
    if loop.whole:
        raise SystemExit(f"{workload.title}: the kernel has no loop that multiplies")
    return multiply_adds(loop) / (workload.block * workload.block * -(-workload.batch // tile_n) * tile_n)


class Comparison:
    def __init__(self, build: pathlib.Path, nvdisasm: pathlib.Path, prototype: Prototype, folder: pathlib.Path, config: str | None):
        self._tool = build / "tools" / "sparsekiln"
        self._nvdisasm, self._prototype, self._folder = nvdisasm, prototype, folder
        self._config = ["--config", config] if config else []
        self._device = emulated.Device(build / "emulator" / "driver" / "libsparsekiln_emulator.so")

    def layout(self, workload: Workload) -> pathlib.Path:
        file = self._folder / "layout.txt"
        must_answer(self._tool, ["layout", "make", *workload.layout_arguments(), "-o", str(file)], environment_of(self._folder))
        return file

    def ours(self, workload: Workload, layout: pathlib.Path) -> Kernel:
        kernel, environment = self._folder / "kernel", environment_of(self._folder)
        what = [*request(workload, layout, _TARGET), *self._config]
        compiled = must_answer(self._tool, ["compile", *what, "-o", str(kernel)], environment)
        ran = must_answer(self._tool, ["run", *request(workload, layout, _EMULATED), *self._config, "--counters"], environment)
        if ran["key"] != compiled["key"]:
            raise SystemExit(f"{workload.title}: the emulator runs another kernel than was compiled for {_TARGET}")
        functions = disassembly.disassemble(self._nvdisasm, kernel / "kernel.cubin", encodings=True).values()
        loop = max(map(main_loop, functions), key=lambda part: part.products)
        resources = max(compiled["resources"], key=lambda one: one["up_to"])
        shared = resources["shared_bytes"] + resources["dynamic_shared_bytes"]
        ctas = resources["workers"] * -(-workload.batch // resources["tile_n"])
        return Kernel(
            compiled["config"].partition(": ")[2], loop, blocks_of_iteration(loop, workload, resources["tile_n"]), resources["registers"],
            resources["spill_load_bytes"] + resources["spill_store_bytes"],
            resident_warps(resources["registers"], resources["threads"], shared, ctas, _MULTIPROCESSORS),
            loads_in_flight(loop.instructions), emulated.counts_of(ran), compiled["blocks"],
        )  # fmt: skip

    def theirs(self, workload: Workload, variant: Variant, layout: Layout) -> Kernel:
        compiled = self._prototype.compiled(variant)
        columns, rows = variant.grid(len(layout.rows), workload.batch)
        return Kernel(
            variant.title, compiled.loop, blocks_of_iteration(compiled.loop, workload, variant.tile_n), compiled.registers,
            compiled.spilled_bytes,
            resident_warps(compiled.registers, 32 * variant.warps, compiled.shared_bytes, columns * rows, _MULTIPROCESSORS),
            loads_in_flight(compiled.loop.instructions),
            self._prototype.launch(self._device, variant, layout, workload.batch), layout.blocks,
        )  # fmt: skip

    def of(self, workload: Workload, variants: list[Variant]) -> list[Beside]:
        layout = self.layout(workload)
        ours = self.ours(workload, layout)
        return [Beside(ours, self.theirs(workload, variant, Layout(layout))) for variant in variants]


def text_of(found: dict[Workload, list[Beside]], releases: str) -> str:
    kernels = [
        [workload.title, *kernel.cells()]
        for workload, pairs in found.items()
        for kernel in (pairs[0].ours, *(one.prototype for one in pairs))
    ]

    def cells(workload: Workload, pair: Beside) -> list[str]:
        ratios = [f"{ratio:.2f}" for ratio, _ in pair.ratios().values()]
        return [workload.title, pair.prototype.title, *ratios, ", ".join(pair.short_of) or "-"]

    pairs = [cells(workload, pair) for workload, pairs in found.items() for pair in pairs]
    names = list(next(iter(found.values()))[0].ratios())
    return "\n".join(
        [
            f"{releases}. The main loop, for each present block of the weight, and a launch on the emulator:", "",
            *publish.table(_COLUMNS, kernels), "",
            f"Ours over the prototype's. Instructions and sectors should be at most {_MOST}, bytes in flight and warps at least 1:", "",
            *publish.table(["workload", "prototype", *names, "short of"], pairs),
        ]
    )  # fmt: skip


def release_of(nvcc: pathlib.Path) -> str:
    said = subprocess.run([nvcc, "--version"], check=True, capture_output=True, text=True).stdout
    match = re.search(r"release (\d+\.\d+)", said)
    return match[1] if match else said.strip()


def release_of_nvrtc(build: pathlib.Path, folder: pathlib.Path) -> str:
    layout, tool = folder / "one.txt", build / "tools" / "sparsekiln"
    layout.write_text("1\n")
    said = must_answer(tool, ["compile", str(layout), "--dtype", "f16", "--target", _TARGET], environment_of(folder))
    return said["compiler"].removeprefix("NVRTC ")


def main() -> int:
    parser = publish.parser(__doc__)
    parser.add_argument("prototype", type=pathlib.Path, metavar="FILE.cu")
    parser.add_argument("--nvcc", help="the program; where not given, of PATH or a toolkit")
    parser.add_argument("--nvdisasm", help="the program; where not given, of PATH, of a toolkit, or of PyPI's triton")
    parser.add_argument("--only", default="", metavar="WORDS", help="workloads whose titles contain this")
    parser.add_argument("--config", help="ours, instead of the default")
    parser.add_argument("--check", action="store_true", help="exit status 1 where a default does less than it should")
    publish.add_write(parser, __file__)
    options = parser.parse_args()
    nvcc, nvdisasm = toolkit.find("nvcc", options.nvcc), disassembly.find_nvdisasm(options.nvdisasm)
    if nvcc is None or nvdisasm is None:
        print(disassembly.ADVICE if nvcc else "nvcc is missing. It comes with a CUDA toolkit; --nvcc names it", file=sys.stderr)
        return 2
    by_title = {one.title: one for one in workloads()}
    wanted = _SHORT if options.short else {by_title[title]: variants for title, variants in _VARIANTS.items()}
    wanted = {workload: variants for workload, variants in wanted.items() if options.only in workload.title}
    if not wanted:
        raise SystemExit(f"--only {options.only}: no workload has that in its title")
    build = options.build.resolve()
    with tempfile.TemporaryDirectory(prefix="sparsekiln-prototype-") as name:
        folder = pathlib.Path(name)
        releases = release_of(nvcc), release_of_nvrtc(build, folder)
        if releases[0] != releases[1]:
            print(f"nvcc is of release {releases[0]}, NVRTC of release {releases[1]}: their code is not compared", file=sys.stderr)
            return 2
        prototype = Prototype(nvcc, nvdisasm, options.prototype, folder)
        comparison = Comparison(build, nvdisasm, prototype, folder, options.config)
        found = {workload: comparison.of(workload, variants) for workload, variants in wanted.items()}
    text = text_of(found, f"nvcc {releases[0]}, NVRTC {releases[1]}")
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)
    failed = [workload.title for workload, pairs in found.items() if all(pair.short_of for pair in pairs)]
    if options.check:
        for title in failed:
            print(f"{title}: falls short of each prototype", file=sys.stderr)
    return 1 if options.check and failed else 0


if __name__ == "__main__":
    sys.exit(main())
