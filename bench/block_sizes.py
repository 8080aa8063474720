"""What the cost model predicts of large batches by blocks of 64, 32 and 16: python3 bench/block_sizes.py BUILD_DIR [--write docs/gpu.md] [--short]

A feed-forward layer with a tenth of its blocks at random, of each size, and layouts with structure, in which blocks of 16 and 32 make up
those of 64: then the smaller blocks could be as fast. Predictions, not measurements, of the kernels that compile() takes: times, rates beside
those of blocks of 64, and how much of what the tensor cores multiply are present blocks. Needs no GPU.
"""

import pathlib
import tempfile

import predicted
import publish
from sparsekiln_command import environment_of, must_answer

_SIDE = 64
_SIDES = (64, 32, 16)
_BATCHES = (2048, 8192)
_LAYER = {"rows": 14336, "cols": 4096, "density": 0.1, "type": "bf16", "op": "forward", "layout_seed": 7}
# 8192 x 8192 features in blocks of 64, about a tenth of which are present.
_PATTERNS = {
    "banded": ("--size", "128", "--half-width", "6"),
    "block-diagonal": ("--size", "128", "--groups", "10"),
    "butterfly": ("--size", "128"),
}


def divided(layout: str, parts: int) -> str:
    """A layout as text, each of whose blocks becomes parts x parts."""
    rows = ("".join(mark * parts for mark in line if mark in "01") for line in layout.splitlines())
    return "".join(f"{' '.join(row)}\n" * parts for row in rows if row)


def problems_of(build: pathlib.Path, folder: pathlib.Path, batches: tuple[int, ...]) -> dict[tuple, dict]:
    problems = {("random, 10 %", n, side): _LAYER | {"block": side, "n": n} for n in batches for side in _SIDES}
    for pattern, numbers in _PATTERNS.items():
        whole = folder / f"{pattern}.txt"
        must_answer(build / "tools" / "sparsekiln", ["layout", "make", pattern, *numbers, "-o", str(whole)], environment_of(folder))
        for side in _SIDES:
            file = folder / f"{pattern}-{side}.txt"
            file.write_text(divided(whole.read_text(), _SIDE // side))
            for n in batches:
                problems[pattern, n, side] = {"layout": str(file), "block": side, "n": n, "type": "bf16", "op": "forward"}
    return problems


def main() -> None:
    parser = publish.parser(__doc__)
    publish.add_write(parser, __file__)
    options = parser.parse_args()
    batches = _BATCHES[:: 2 if options.short else 1]
    with tempfile.TemporaryDirectory(prefix="sparsekiln-block-sizes-") as folder:
        problems = problems_of(options.build.resolve(), pathlib.Path(folder), batches)
        answers = dict(zip(problems, predicted.predict(options.build.resolve(), "h100", list(problems.values()))))
    rows = []
    for (pattern, n, side), said in answers.items():
        of_whole = answers[pattern, n, _SIDE]
        rate = said["flops"] / said["predicted_us"] / (of_whole["flops"] / of_whole["predicted_us"])
        to_merge = " ".join(word for word in said["config"].split() if word.split("=")[0] not in ("tile_out", "split", "split_saves", "packed", "operand_a"))
        multiplied = f"{100 * said['flops'] / said['multiplied']:.0f} %"
        rows.append([pattern, str(n), str(side), f"{said['predicted_us']:.4g}", f"{rate:.2f}", multiplied, said["bound"], to_merge])
    columns = ["layout", "n", "block", "predicted, µs", "rate beside blocks of 64", "present of what is multiplied", "bound by", "config"]
    text = "\n".join(["h100. Predicted, not measured.", "", *publish.table(columns, rows)])
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)


if __name__ == "__main__":
    main()
