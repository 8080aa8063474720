"""The layers that benchmarks of GPU kernels are about: those of workloads.json, each with its layout, block, type, batch and
operation.

A layer's `sizes` are [out features, in features, density]; it stands for every combination of its lists. The other lists are
titles of some of these: `first` are those that are measured first where time is short, `tuned` those that ./dev gpu tune tunes.
"""

import dataclasses
import itertools
import json
import pathlib

_LIST = pathlib.Path(__file__).resolve().parent / "workloads.json"
_MATH = {"tf32": ("f32", "tf32"), "f32": ("f32", "ieee")}


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    out_features: int
    in_features: int
    density: float
    block: int
    type: str  # as published: tf32 is float32 with math tf32
    batch: int
    operation: str
    convolution: str = ""  # its geometry; empty: a linear layer

    @property
    def dtype(self) -> str:
        return _MATH.get(self.type, (self.type, "ieee"))[0]

    @property
    def math(self) -> str:
        return _MATH.get(self.type, (self.type, "ieee"))[1]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of blocks."""
        return self.out_features // self.block, self.in_features // self.block

    @property
    def title(self) -> str:
        shape = f"{self.out_features}x{self.in_features}" if self.out_features != self.in_features else f"{self.out_features}"
        geometry = f"{self.convolution} " if self.convolution else ""
        what = f"{100 * self.density:.3g} % block {self.block} {self.type} n={self.batch} {self.operation}"
        return f"{self.name} {geometry}{shape} {what}"

    def layout_arguments(self) -> list[str]:
        """The layout's pattern, as `sparsekiln layout make` takes it."""
        rows, cols = self.grid
        return ["random", "--rows", str(rows), "--cols", str(cols), "--density", str(self.density), "--seed", "1"]


def workloads() -> list[Workload]:
    """All of them, in the order of the file."""
    found = []
    for layer in json.loads(_LIST.read_text())["layers"]:
        lists = (layer[axis] for axis in ("sizes", "blocks", "types", "batches", "operations"))
        for size, *others in itertools.product(*lists):
            found.append(Workload(layer["name"], *size, *others))
    return found


def chosen(name: str) -> list[Workload]:
    """The workloads of a list of titles, in its order."""
    by_title = {one.title: one for one in workloads()}
    titles = json.loads(_LIST.read_text())[name]
    missing = [title for title in titles if title not in by_title]
    if missing:
        raise SystemExit(f"{_LIST.name}: there is no workload {missing[0]}")
    return [by_title[title] for title in titles]
