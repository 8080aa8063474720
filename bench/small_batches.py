"""What the default kernels for small batches execute, beside what was best before their variant `direct` was there:

    python3 bench/small_batches.py BUILD_DIR [--only WORDS] [--write docs/gpu.md] [--short]

For each forward workload (workloads.json) whose default is of `direct`: the default, and of all configs of the other variants the one
that the cost model gives the least time. Both are run on the emulator, which counts the PTX instructions of warps and the sectors in
global memory of a launch; both figures are over the present blocks of the weight, for the whole batch. Needs no GPU.
"""

import dataclasses
import pathlib
import tempfile

import emulated
import predicted
import publish
from sparsekiln_command import environment_of, make_layout, must_answer, request
from workloads import Workload, workloads

_VARIANT = "direct"
_TARGET, _EMULATED = "h100", "emulated:sm_90"
_SEED = 1  # of Workload.layout_arguments
_SHORT = [Workload("short", 512, 512, 0.5, 32, "f16", 32, "forward")]


@dataclasses.dataclass(frozen=True)
class Launch:
    """A config, and what its launch takes for each present block."""

    config: str
    instructions: float
    sectors: float

    def cells(self) -> list[str]:
        to_split = " ".join(self.config.split()[:6])  # of all that a config says
        return [to_split, f"{self.instructions:.1f}", f"{self.sectors:.1f}"]


class Runs:
    def __init__(self, build: pathlib.Path, folder: pathlib.Path):
        self._build, self._folder = build, folder
        self._tool = build / "tools" / "sparsekiln"

    def _answer(self, *arguments: str) -> dict:
        return must_answer(self._tool, list(arguments), environment_of(self._folder))

    def predictions(self, problems: list[dict]) -> list[dict]:
        return predicted.predict(self._build, _TARGET, problems)

    def of_small_batches(self, loads: list[Workload]) -> list[Workload]:
        """Those whose default is of the variant."""
        forward = [load for load in loads if load.operation == "forward"]
        defaults = self.predictions([problem_of(load) for load in forward])
        return [load for load, default in zip(forward, defaults) if default["config"].startswith(f"{_VARIANT} ")]

    def layout(self, load: Workload) -> pathlib.Path:
        file = self._folder / "layout.npy"
        self._answer(*make_layout(load, file))
        return file

    def best_of_others(self, load: Workload, layout: pathlib.Path) -> str:
        (space,) = self._answer("tune", *request(load, layout, _TARGET), "--space")["problems"]
        configs = [config for config in space["configs"] if not config.startswith(f"{_VARIANT} ")]
        said = self.predictions([problem_of(load) | {"config": config} for config in configs])
        return min(zip(configs, said), key=lambda one: one[1]["predicted_us"])[0]

    def launch(self, load: Workload, layout: pathlib.Path, config: str | None) -> Launch:
        pinned = ["--config", config] if config else []
        ran = self._answer("run", *request(load, layout, _EMULATED), *pinned, "--counters")
        counted = emulated.counts_of(ran)
        return Launch(
            ran["config"].partition(": ")[2], counted.instructions / ran["blocks"], counted.sectors / ran["blocks"]
        )  # fmt: skip

    def of(self, load: Workload) -> tuple[Launch, Launch]:
        """Before, and the default."""
        layout = self.layout(load)
        return self.launch(load, layout, self.best_of_others(load, layout)), self.launch(load, layout, None)


def problem_of(load: Workload) -> dict:
    return predicted.of_workload(load) | {"layout_seed": _SEED}


def main() -> None:
    parser = publish.parser(__doc__)
    parser.add_argument("--only", default="", metavar="WORDS", help="workloads whose titles contain this")
    publish.add_write(parser, __file__)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="sparsekiln-small-batches-") as name:
        runs = Runs(options.build.resolve(), pathlib.Path(name))
        wanted = [load for load in (_SHORT if options.short else workloads()) if options.only in load.title]
        for load in runs.of_small_batches(wanted):
            before, default = runs.of(load)
            ratios = [f"{default.instructions / before.instructions:.2f}", f"{default.sectors / before.sectors:.2f}"]
            rows.append([load.title, *before.cells(), *default.cells(), *ratios])
    columns = [
        "workload", "before", "instructions a block", "sectors a block", "default", "instructions", "sectors", "ratio of instructions",
        "ratio of sectors",
    ]  # fmt: skip
    text = "\n".join(publish.table(columns, rows))
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)


if __name__ == "__main__":
    main()
