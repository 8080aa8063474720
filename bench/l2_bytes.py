"""What the default kernels read and write beyond L2, over every operand once:

    python3 bench/l2_bytes.py BUILD_DIR [--target h100] [--write docs/tuning-model.md] [--short]

build/bench/l2 passes the schedule's accesses in launch order through a cache of 26.5 MB that evicts what was used least
recently, which reads what an H100 does with its 50 (tests/bench/model_ratchet_test.py), and through one of 50 MB: of the workloads
with 4096 batch rows or more (workloads.json), and of the 3x3 layers of ResNet-50. Partial sums have figures of their own for the
former.
"""

import dataclasses
import itertools
import json
import pathlib
import subprocess
import tempfile

import publish
import sparsekiln_command
import workloads

_LARGE = 4096
_MEGABYTES = (26.5, 50)

_LAYERS = ((64, 56), (128, 28), (256, 14), (512, 7))  # features, side of an image
_DENSITIES = (0.1, 0.5)
_IMAGES = (8, 32, 256)
_OPERATIONS = ("forward", "grad_input", "grad_weight")
_BLOCK = 32


@dataclasses.dataclass(frozen=True)
class Bytes:
    """Over every operand once: what memory gives and takes with each cache, the same with partial sums, and those that L2 is given."""

    ratios: tuple[float, ...]
    with_partial_sums: tuple[float, ...]
    partial_sums: float


class Model:
    def __init__(self, build: pathlib.Path, folder: pathlib.Path, target: str):
        self._build, self._folder, self._target = build.resolve(), folder, target

    def bytes_of(self, load: workloads.Workload, *more: str) -> Bytes:
        environment = sparsekiln_command.environment_of(self._folder)
        layout = self._folder / "L.npy"
        tool = self._build / "tools" / "sparsekiln"
        sparsekiln_command.must_answer(tool, sparsekiln_command.make_layout(load, layout), environment)
        command = [str(self._build / "bench" / "l2"), *sparsekiln_command.request(load, layout, self._target), *more]
        found = [
            json.loads(subprocess.run([*command, "--l2-mb", str(size)], check=True, capture_output=True, text=True).stdout)
            for size in _MEGABYTES
        ]
        sums = [one["with_partial_sums"] for one in found]
        return Bytes(
            tuple(one["ratio"] for one in found),
            tuple(one["ratio"] for one in sums),
            sums[0]["partial_sums_bytes"] / found[0]["once_bytes"],
        )

    def convolution(self, features: int, side: int, density: float, images: int, operation: str) -> Bytes:
        load = workloads.Workload("resnet", features, features, density, _BLOCK, "f16", images, operation)
        return self.bytes_of(load, "--conv", f"kernel=3x3 padding=1 input={side}x{side}")


def convolutions(is_short: bool) -> list[tuple[int, int, float, int]]:
    """Features, side, density and images, of layers that have blocks at that density."""
    every = [(*layer, *others) for layer, *others in itertools.product(_LAYERS, _DENSITIES, _IMAGES)]
    present = [one for one in every if int(one[2] * (one[0] // _BLOCK) ** 2) > 0]
    return present[: 1 if is_short else None]


def main() -> None:
    parser = publish.parser(__doc__)
    publish.add_write(parser, __file__)
    parser.add_argument("--target", default="h100")
    options = parser.parse_args()
    large = [load for load in workloads.workloads() if load.batch >= _LARGE][: 1 if options.short else None]
    with tempfile.TemporaryDirectory(prefix="sparsekiln-l2-") as name:
        model = Model(options.build, pathlib.Path(name), options.target)
        linear = {load: model.bytes_of(load) for load in large}
        convolved = {
            one: {operation: model.convolution(*one, operation) for operation in _OPERATIONS} for one in convolutions(options.short)
        }
    sizes = [f"{size} MB" for size in _MEGABYTES]
    text = publish.table(
        ["workload", *sizes, *(f"{size} with partial sums" for size in sizes)],
        ([load.title, *(f"{ratio:.2f}" for ratio in (*found.ratios, *found.with_partial_sums))] for load, found in linear.items()),
    )
    text += ["", f"The 3×3 layers of ResNet-50 in blocks of {_BLOCK}, f16: the largest of the four figures, and partial sums given to L2:", ""]
    text += publish.table(
        ["features", "side", "density", "images", *(f"{name}{what}" for name in _OPERATIONS for what in ("", ", sums"))],
        (
            [*one, *(f"{figure:.2f}" for found in each.values() for figure in (_largest(found), found.partial_sums))]
            for one, each in convolved.items()
        ),
    )
    print("\n".join(text))
    if options.write:
        publish.write(options.write, "\n".join(text), __file__)


def _largest(found: Bytes) -> float:
    return max(*found.ratios, *found.with_partial_sums)


if __name__ == "__main__":
    main()
