"""What the main loops of the default kernels consist of: python3 bench/sass.py BUILD_DIR [--write docs/gpu.md] [--target sm_90] [--short]

Compiles the default kernel of each workload of workloads.json for an architecture, which needs no GPU, disassembles it, and
counts the instructions of one iteration of its main loop by kind (disassembly.py): that of the innermost loop with the most
tensor-core instructions (FFMA where there are none), without what branches skip in most iterations, such as storing a result.
Where no loop multiplies, because the kernel is unrolled, it counts the whole kernel. Beside them: registers, spills and shared
memory of the kernel, and the cost model's time of the default with what bounds it, over the roofline bound.

For sm_90 also kernels of wgmma: how many products are queued together, what instructions lie between
them, and what ptxas said of them (C75xx: it waits for products that the kernel wants to be asynchronous).

nvdisasm is needed: of a CUDA toolkit, of PyPI's triton in the Python that runs this, or given with --nvdisasm. Exit status:
0 success, 1 a kernel spills, or instructions lie between the products of wgmma where none should, or ptxas waits for them, 2 nvdisasm is missing.
With --write it puts its tables between the marks of that document.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterable

import disassembly
import publish
import wgmma_products
from disassembly import KINDS
from main_loop import Part, main_loop
from sparsekiln_command import environment_of, make_layout, must_answer, request
from workloads import Workload, workloads

_SHORT = [
    Workload("short", 256, 256, 0.5, 32, "f16", 64, "forward"),
    Workload("short", 256, 256, 0.5, 32, "f32", 32, "forward"),
    Workload("short", 256, 256, 0.5, 32, "bf16", 64, "grad_weight"),
]
_SHORT_WGMMA = [Workload("short", 256, 256, 0.5, 64, "f16", 256, "forward")]


@dataclasses.dataclass(frozen=True)
class Row:
    """The properties of the default kernel of a workload."""

    workload: Workload
    config: str
    counts: dict[str, int]  # of an iteration of the main loop, by kind
    products: int
    whole: bool
    resources: dict
    model: dict  # predicted_us, bound
    floor_us: float
    nvrtc: str

    @property
    def instructions(self) -> int:
        return sum(self.counts.values())

    @property
    def spills(self) -> int:
        return spilled_bytes(self.resources)

    @property
    def shared_bytes(self) -> int:
        return self.resources["shared_bytes"] + self.resources["dynamic_shared_bytes"]


@dataclasses.dataclass(frozen=True)
class Tools:
    """The command and nvdisasm, and an architecture."""

    sparsekiln: pathlib.Path
    nvdisasm: pathlib.Path
    target: str

    def compile(self, what: list[str], folder: pathlib.Path) -> tuple[Part, dict, str]:
        """The main loop, the command's answer, and what ptxas said. Writes folder/kernel."""
        kernel = folder / "kernel"
        answer = must_answer(self.sparsekiln, ["compile", *what, "-o", str(kernel)], environment_of(folder))
        functions = disassembly.disassemble(self.nvdisasm, kernel / "kernel.cubin").values()
        return max(map(main_loop, functions), key=lambda one: one.products), answer, (kernel / "compile.log").read_text()

    def request(self, workload: Workload, folder: pathlib.Path) -> list[str]:
        """Writes folder/layout.npy."""
        layout = folder / "layout.npy"
        must_answer(self.sparsekiln, make_layout(workload, layout), environment_of(folder))
        return request(workload, layout, self.target)


def spilled_bytes(resources: dict) -> int:
    return resources["spill_load_bytes"] + resources["spill_store_bytes"]


def largest(answer: dict) -> dict:
    """The resources of the kernel for the largest batches."""
    return max(answer["resources"], key=lambda one: one["up_to"])


def row_of(tools: Tools, workload: Workload, folder: pathlib.Path) -> Row:
    """`folder` must exist and be empty."""
    what = tools.request(workload, folder)
    part, compiled, _ = tools.compile(what, folder)
    (problem,) = must_answer(tools.sparsekiln, ["tune", *what, "--model"], environment_of(folder))["problems"]
    default = problem["model"]["default"]
    return Row(
        workload, default["config"], part.counts(), part.products, part.whole, largest(compiled), default, problem["floor_us"],
        compiled["compiler"],
    )  # fmt: skip


def wgmma_kernel(tools: Tools, workload: Workload, config: str, folder: pathlib.Path) -> wgmma_products.Kernel:
    """`folder` must exist and be empty."""
    part, compiled, log = tools.compile([*tools.request(workload, folder), "--config", config], folder)
    return wgmma_products.Kernel(workload, config, part.bursts(), spilled_bytes(largest(compiled)), log)


def each(tools: Tools, make: Callable, wanted: Iterable[tuple]) -> list:
    """What `make` gives for each of these arguments, with a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="sparsekiln-sass-") as scratch, concurrent.futures.ThreadPoolExecutor(
        len(os.sched_getaffinity(0))
    ) as pool:
        futures = []
        for number, arguments in enumerate(wanted):
            folder = pathlib.Path(scratch) / str(number)
            folder.mkdir()
            futures.append(pool.submit(make, tools, *arguments, folder))
        return [future.result() for future in futures]


def tables(rows: list[Row], kernels: list[wgmma_products.Kernel], target: str) -> str:
    def of_loop(row: Row) -> list[str]:
        per_product = f"{row.instructions / row.products:.2f}" if row.products else "-"
        note = " (whole kernel)" if row.whole else ""
        return [row.workload.title + note, row.instructions, *(row.counts[kind] for kind in KINDS), per_product]

    def of_kernel(row: Row) -> list[str]:
        us = row.model["predicted_us"]
        resources = [row.resources["registers"], row.spills, row.shared_bytes, row.resources["threads"]]
        times = [f"{us:.4g}", row.model["bound"], f"{row.floor_us:.4g}", f"{us / row.floor_us:.2f}"]
        return [row.workload.title, *resources, *times, row.config]

    taken = ["registers", "spilled bytes", "shared memory of a CTA, bytes", "threads"]
    timed = ["predicted, µs", "bound by", "roofline bound, µs", "predicted / bound"]
    text = [
        f"{target}, {rows[0].nvrtc}: {len(rows)} workloads. One iteration of the main loop:",
        "",
        *publish.table(["workload", "instructions", *KINDS, "per product"], map(of_loop, rows)),
        "",
        "Resources, and the model's time:",
        "",
        *publish.table(["workload", *taken, *timed, "config"], map(of_kernel, rows)),
    ]
    if kernels:
        text += ["", "Kernels of wgmma: products of an iteration that are queued together, and what lies between them:", ""]
        text += wgmma_products.table(kernels)
    return "\n".join(text)


def main() -> int:
    parser = publish.parser(__doc__)
    parser.add_argument("--target", default="sm_90", help="an architecture (sm_90)")
    parser.add_argument("--nvdisasm", help="the program; where not given, of PATH, of a toolkit, or of PyPI's triton")
    parser.add_argument("--only", default="", metavar="WORDS", help="workloads whose titles contain this")
    publish.add_write(parser, __file__)
    options = parser.parse_args()
    nvdisasm = disassembly.find_nvdisasm(options.nvdisasm)
    if nvdisasm is None:
        print(disassembly.ADVICE if not options.nvdisasm else f"--nvdisasm {options.nvdisasm}: no such program", file=sys.stderr)
        return 2
    wanted = [one for one in (_SHORT if options.short else workloads()) if options.only in one.title]
    if not wanted:
        raise SystemExit(f"--only {options.only}: no workload has that in its title")
    tools = Tools(options.build.resolve() / "tools" / "sparsekiln", nvdisasm, options.target)
    rows = each(tools, row_of, [(one,) for one in wanted])
    of_wgmma = []
    if options.target == "sm_90":
        of_wgmma = wgmma_products.wanted(_SHORT_WGMMA if options.short else wanted)
        of_wgmma += [one for one in wgmma_products.CONVOLUTIONS if options.only in one[0].title]
    kernels = each(tools, wgmma_kernel, of_wgmma)
    text = tables(rows, kernels, options.target)
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)
    faults = [f"{row.workload.title}: spills registers" for row in rows if row.spills]
    faults += [fault for kernel in kernels for fault in kernel.faults]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
