"""The layer that demo.py measures: that of the published headline (Gray, Radford and Kingma 2017), 12288
hidden units in blocks of 32×32, minibatch 32, float32, Watts–Strogatz small worlds at 97 %, 90 % and 50 % sparsity."""

import dataclasses
import pathlib

REWIRE, SEED = 0.2, 3


@dataclasses.dataclass(frozen=True)
class Headline:
    width: int = 12288
    block: int = 32
    batch: int = 32
    sparsities: tuple[int, ...] = (97, 90, 50)  # %

    def make(self, sparsity: int, file: pathlib.Path) -> list[str]:
        """Arguments of `sparsekiln` that write the layout."""
        side, density = str(self.width // self.block), f"{1 - sparsity / 100:.2f}"
        grid = ["--rows", side, "--cols", side, "--density", density, "--rewire", str(REWIRE), "--seed", str(SEED)]
        return ["layout", "make", "watts-strogatz", *grid, "-o", str(file)]

    def request(self, verb: str, file: pathlib.Path, target: str) -> list[str]:
        """Arguments of `sparsekiln` that compile or run it."""
        what = ["--block", str(self.block), "--batch", str(self.batch), "--dtype", "f32", "--target", target]
        return [verb, str(file), *what]

    def dense_gflops(self, ms: float) -> float:
        return 2e-6 * self.width * self.width * self.batch / ms


SHORT = Headline(width=256, batch=8)
