"""How evenly a layer is shared by many threads: python3 bench/cpu_balance.py BUILD_DIR [--write docs/performance.md] [--short]

By the schedules of default configs alone; nothing is compiled or run, so the threads need not be there. A launch has as many
jobs as batch tiles times workers of the schedule, and threads take them one by one. With jobs of equal length, the thread
that has most works ceil(jobs / threads) of them, and a job is at most the schedule's `balance` longer than the mean: the
table has the product of both over an even share, the most that a launch could take over one that is shared perfectly. What
threads wait for each other between packing x and multiplying is not in it. With --write the table goes between the marks of
that document.
"""

import math
import pathlib
import re
import tempfile

import publish
import sparsekiln_command

_THREADS = (1, 2, 16, 32, 64, 128)
_FEATURES = 4096
_BLOCKS = (8, 32, 64)
_DENSITIES = (0.05, 0.25)
_BATCHES = (32, 256, 2048)


def excess(schedule: dict, threads: int) -> float:
    tile_n = int(re.search(r"tile_n=(\d+)", schedule["config"])[1])
    jobs = math.ceil(schedule["n"] / tile_n) * schedule["workers"]
    return math.ceil(jobs / threads) * threads / jobs * schedule["balance"]


def main() -> None:
    parser = publish.parser(__doc__)
    publish.add_write(parser, __file__)
    parser.add_argument("--level", default="x86-64-v4", help="of the cpu target (x86-64-v4)")
    options = parser.parse_args()
    tool = options.build.resolve() / "tools" / "sparsekiln"
    rows = []
    with tempfile.TemporaryDirectory(prefix="sparsekiln-balance-") as name:
        folder = pathlib.Path(name)
        environment = sparsekiln_command.environment_of(folder)

        def ask(*arguments: object) -> dict:
            return sparsekiln_command.must_answer(tool, list(map(str, arguments)), environment)

        for block in _BLOCKS[: 1 if options.short else None]:
            for density in _DENSITIES[: 1 if options.short else None]:
                layout, grid = folder / "L.npy", _FEATURES // block
                ask("layout", "make", "random", "--rows", grid, "--cols", grid, "--density", density, "--seed", 1, "-o", layout)
                for batch in _BATCHES:
                    cells = []
                    for threads in _THREADS:
                        shown = ask(
                            "layout", "show", layout, "--schedule", "--block", block, "--batch", batch,
                            "--target", f"{options.level}:{threads}",
                        )  # fmt: skip
                        cells.append(f"{excess(shown['schedule'], threads):.2f}")
                    rows.append([block, f"{100 * density:.3g} %", batch, *cells])
    text = "\n".join(publish.table(["block", "density", "n", *(f"{threads} threads" for threads in _THREADS)], rows))
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)


if __name__ == "__main__":
    main()
