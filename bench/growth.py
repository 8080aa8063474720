"""How the cost of a layer grows with its blocks: python3 bench/growth.py BUILD_DIR [--write docs/performance.md] [--short]

Random square layouts of a thousand blocks to ten million, 10 % dense: how long a compile takes in a new process with an empty
store, for the cpu, there for any batch, too, and for sm_90; how long it takes from the store; how long a schedule and its tables take alone, where the
code is there (an attached layout); the most memory that the compile for the cpu has at once; the bytes of code and tables; and a launch on
the cpu with 64 batch rows, where memory holds the weight. Blocks are of 32, and of 8 where those of 32 would need more memory
than the machine has.

What grows linearly has the same figure in each line of the second table, which is for a block.
"""

import dataclasses
import multiprocessing
import os
import pathlib
import resource
import tempfile
from collections.abc import Callable, Iterable

import publish
from sparsekiln_command import environment_of, must_answer

_BLOCKS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_DENSITY, _BATCH, _MOST_BATCH = 0.1, 64, 4096
_FORK = multiprocessing.get_context("fork")
_SHARE_OF_MEMORY = 0.4  # that weight, packed weight and layout may take


@dataclasses.dataclass
class Growth:
    blocks: int
    block: int
    features: int
    cpu_ms: float
    any_ms: float
    stored_ms: float
    tables_ms: float
    gpu_ms: float | None
    megabytes: float
    cpu_bytes: int
    table_bytes: int
    gpu_bytes: int | None
    run_ms: float | None


def machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def block_for(blocks: int) -> int:
    return 32 if 2 * blocks * 32 * 32 * 4 < _SHARE_OF_MEMORY * machine_bytes() else 8


def stored_bytes(answer: dict) -> int:
    return answer["code_bytes"] + sum(answer["data"].values())


def with_memory(call: Callable[[], dict]) -> tuple[dict, float]:
    """What a call that starts a process returns, and the most memory of that process in MiB: in a process of its own, because the system
    keeps the most of all processes that one has started."""
    here, there = multiprocessing.Pipe(duplex=False)
    with there:
        worker = _FORK.Process(target=lambda: there.send((call(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)))
        worker.start()
    try:
        return here.recv()
    except EOFError:
        raise SystemExit(1) from None  # it has said why
    finally:
        worker.join()


def measure(answer: Callable[..., dict], nvrtc: bool, blocks: int, folder: pathlib.Path) -> Growth:
    side, block = round((blocks / _DENSITY) ** 0.5), block_for(blocks)
    file = folder / f"{blocks}.npy"
    answer("layout", "make", "random", "--rows", side, "--cols", side, "--density", _DENSITY, "--seed", 1, "-o", file)
    of_layer = [file, "--block", block, "--dtype", "f32"]
    request = [*of_layer, "--batch", _BATCH]
    cpu, megabytes = with_memory(lambda: answer("compile", *request, "--target", "cpu"))
    stored = answer("compile", *request, "--target", "cpu")
    dynamic = answer("compile", *of_layer, "--batch", f"up-to:{_MOST_BATCH}", "--target", "cpu")
    attached = answer("compile", *request, "--attached", "--target", "cpu")  # after a small layout, whose code it shares
    if attached["from"] != "store":
        raise SystemExit("an attached layout of other blocks has code of its own here, so its tables cannot be measured alone")
    gpu = answer("compile", *request, "--target", "sm_90") if nvrtc else None
    fits = 3 * cpu["blocks"] * block * block * 4 < machine_bytes()
    run = answer("run", *request, "--target", "cpu", "--time") if fits else None
    return Growth(
        cpu["blocks"], block, side * block, cpu["compile_ms"], dynamic["compile_ms"], stored["compile_ms"], attached["compile_ms"],
        gpu and gpu["compile_ms"], megabytes, stored_bytes(cpu), sum(entry["table_bytes"] for entry in attached["resources"]),
        gpu and stored_bytes(gpu), run and run["run_ms"],
    )  # fmt: skip


def cell(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def report(all_of_it: list[Growth]) -> str:
    columns = [
        "blocks", "block", "features", "cpu, ms", "any batch, ms", "from the store, ms", "tables alone, ms", "sm_90, ms", "cpu, MiB",
        "cpu, bytes", "tables, bytes", "sm_90, bytes", "launch, ms",
    ]  # fmt: skip
    rows: Iterable[list[object]] = (
        [one.blocks, one.block, one.features, *(cell(ms, 4) for ms in (one.cpu_ms, one.any_ms, one.stored_ms, one.tables_ms, one.gpu_ms)),
         f"{one.megabytes:.0f}", one.cpu_bytes, one.table_bytes, "-" if one.gpu_bytes is None else one.gpu_bytes, cell(one.run_ms, 4)]
        for one in all_of_it
    )  # fmt: skip

    def of_block(one: Growth) -> list[object]:
        times = (one.cpu_ms, one.any_ms, one.stored_ms, one.tables_ms, one.gpu_ms)
        sizes = (one.megabytes * 2**20, one.cpu_bytes, one.table_bytes, one.gpu_bytes)
        return [
            one.blocks, *(cell(None if ms is None else 1e6 * ms / one.blocks) for ms in times),
            *(cell(None if size is None else size / one.blocks) for size in sizes),
            cell(None if one.run_ms is None else 1e6 * one.run_ms / (one.blocks * one.block**2)),
        ]  # fmt: skip

    of_blocks = [
        "blocks", "cpu, ns a block", "any batch", "from the store", "tables alone", "sm_90", "cpu memory, bytes a block", "cpu", "tables",
        "sm_90", "launch, ns a weight",
    ]  # fmt: skip
    return "\n".join([*publish.table(columns, rows), "", *publish.table(of_blocks, map(of_block, all_of_it))])


def main() -> None:
    parser = publish.parser(__doc__)
    publish.add_write(parser, __file__)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sparsekiln-growth-") as name:
        folder = pathlib.Path(name)
        environment = environment_of(folder)

        def answer(*arguments: object) -> dict:
            return must_answer(options.build / "tools" / "sparsekiln", [str(one) for one in arguments], environment)

        nvrtc = answer("doctor")["nvrtc"]["found"]
        small = folder / "small.npy"
        answer("layout", "make", "random", "--rows", 4, "--cols", 4, "--density", 1, "--seed", 1, "-o", small)
        for block in (8, 32):
            answer("compile", small, "--block", block, "--batch", _BATCH, "--dtype", "f32", "--attached", "--target", "cpu")
        text = report([measure(answer, nvrtc, blocks, folder) for blocks in (_BLOCKS[:1] if options.short else _BLOCKS)])
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)


if __name__ == "__main__":
    main()
