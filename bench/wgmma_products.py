"""What bench/sass.py says of kernels of wgmma, which is never a default: how many products are queued together, what instructions
lie between them, and what ptxas says where it waits for products that the kernel wants to be asynchronous (C75xx).
"""

import collections
import dataclasses
import re

import publish
from disassembly import Instruction
from main_loop import Burst
from workloads import Workload

CONFIGS = (
    "wgmma tile_n=128 stages=4 warps=12 cluster=2",
    "wgmma tile_n=128 stages=3 warps=12 rows=2 cluster=2",
    "wgmma tile_n=256 stages=3 warps=12",
    "wgmma tile_n=256 stages=3 warps=12 cluster=2 cluster_rows=2",
    "wgmma tile_n=128 stages=3 warps=12 rows=2 cluster_rows=2",
)
CONFIGS_OF_GRAD_WEIGHT = (
    "wgmma tile_n=64 stages=3 warps=12 rows=2",
    "wgmma tile_n=128 stages=2 warps=12 rows=2",
    "grouped tile_n=32 stages=5 warps=16 rows=12 table=global",
)
CONFIGS_OF_ROWS = (  # of 64 outputs, a warpgroup's
    "wgmma_rows tile_n=256 stages=5 warps=12 rows=2 operand_a=w",
    "wgmma_rows tile_n=256 stages=5 warps=16 rows=3 cluster=2 operand_a=w",
)
_STRIDE = "kernel=3x3 stride=2 padding=1 input=56x56"
CONVOLUTIONS = (
    (
        Workload("convolution", 256, 256, 0.1, 32, "bf16", 32, "forward", "kernel=3x3 padding=1 input=56x56"),
        "halo tile_n=224 stages=3 warps=12 rows=2 merge=2 table=global",
    ),
    (
        Workload("convolution", 256, 256, 0.1, 32, "bf16", 32, "forward", _STRIDE),
        "halo tile_n=112 stages=3 warps=12 rows=2 merge=2 table=global",
    ),
    (
        Workload("convolution", 256, 256, 0.1, 32, "bf16", 32, "grad_input", _STRIDE),
        "halo tile_n=224 stages=3 warps=12 rows=2 merge=2 table=global",
    ),
    (
        Workload("convolution", 256, 256, 0.1, 32, "bf16", 32, "grad_weight", "kernel=3x3 padding=1 input=56x56"),
        "halo tile_n=64 stages=3 warps=16 rows=42 table=global",
    ),
)
# Where descriptors do not all fit uniform registers: the instructions that a product may have in front of it, on average. Shared
# memory takes at least as long for a product as a scheduler does for these of its three warps (docs/hopper.md).
_MOST_BETWEEN = {("halo", "grad_weight"): 8}
_LEAST_BLOCK = 64
_LEAST_BATCH = 256


def instructions_between(burst: Burst) -> list[Instruction]:
    """NOPs are left out: ptxas puts one between products of 256 columns."""
    return [one for one in burst.between if one.base != "NOP"]


@dataclasses.dataclass(frozen=True)
class Kernel:
    workload: Workload
    config: str
    bursts: list[Burst]  # of an iteration of the main loop
    spilled_bytes: int
    log: str  # of ptxas

    @property
    def between(self) -> str:
        """The opcodes between the products of a burst."""
        found = collections.Counter(one.opcode for burst in self.bursts for one in instructions_between(burst))
        return ", ".join(f"{count} {opcode}" for opcode, count in sorted(found.items()))

    @property
    def has_much_between(self) -> bool:
        most = _MOST_BETWEEN.get((self.config.split()[0], self.workload.operation), 0)
        return any(len(instructions_between(burst)) > most * (burst.products - 1) for burst in self.bursts)

    @property
    def complaints(self) -> str:
        return ", ".join(sorted(set(re.findall(r"\bC75\d\d\b", self.log))))

    @property
    def faults(self) -> list[str]:
        """What should not be, in words."""
        title = f"{self.workload.title}, {self.config}"
        return [
            f"{title}: {what}"
            for what, found in (
                ("spills registers", self.spilled_bytes),
                (f"between products: {self.between}", self.has_much_between),
                (f"ptxas says {self.complaints}", self.complaints),
                ("no products of wgmma were found", not self.bursts),
            )
            if found
        ]


def wanted(workloads: list[Workload]) -> list[tuple[Workload, str]]:
    """Workloads that wgmma serves, each with each config."""

    def configs_of(one: Workload) -> tuple[str, ...]:
        if one.operation == "grad_weight":
            return CONFIGS_OF_GRAD_WEIGHT
        return CONFIGS + (CONFIGS_OF_ROWS if one.block == _LEAST_BLOCK else ())

    served = [one for one in workloads if one.block >= _LEAST_BLOCK and one.batch >= _LEAST_BATCH]
    return [(one, config) for one in served for config in configs_of(one)]


def table(kernels: list[Kernel]) -> list[str]:
    columns = ["workload", "products", "between them", "spilled bytes", "C75xx", "config"]

    def cells(one: Kernel) -> list[object]:
        products = " + ".join(str(burst.products) for burst in one.bursts)
        return [one.workload.title, products, one.between or "-", one.spilled_bytes, one.complaints or "-", one.config]

    return publish.table(columns, map(cells, kernels))
