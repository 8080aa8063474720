"""The tables of README.md's first screen: python3 bench/first_screen.py BUILD_DIR [--write README.md] [--short]

Measures nothing. The first table has the layers for which other libraries were measured, too, on the GPU of the newest file
bench/measured/GPU-DATE.jsonl: what compile() took on that day, the fastest config that was tried, and what the cost model predicts of
what compile() takes now. The second has the medians that torch_linear.py has written into docs/performance.md.
"""

import json
import pathlib

import measured_configs
import predicted
import publish

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_CARDS = {"h100": "an H100 SXM", "h200": "an H200"}
_PYTORCH = ("PyTorch BSR", "PyTorch BSR, feature-major")  # the faster of both orders of activations counts


def newest() -> pathlib.Path:
    return max((_ROOT / "bench/measured").glob("*.jsonl"), key=lambda file: file.stem.partition("-")[2])


def gpu(build: pathlib.Path, file: pathlib.Path, most: int | None) -> list[str]:
    target, _, date = file.stem.partition("-")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    then = {measured_configs.name_of(line): line for line in lines if line["default"]}
    peers = json.loads(file.with_suffix(".peers.json").read_text())
    rows = [row for row in measured_configs.rank(build, file, target) if row["problem"] in peers][:most]
    problems = [{name: one for name, one in then[row["problem"]].items() if name != "config"} for row in rows]
    predictions = [answer["predicted_us"] for answer in predicted.predict(build, target, problems)]

    def cells(row: measured_configs.Row, prediction: float) -> list[str]:
        title = row["problem"]
        bsr = min(peers[title][one] for one in _PYTORCH)
        times = [row["dense_us"], bsr, then[title]["cold_us"], row["best_us"], prediction]
        return [title.removesuffix(" forward"), *(f"{us:.3g}" if us < 1000 else f"{us:.0f}" for us in times)]

    right, unknown = sum(line["right"] for line in lines), sum(row["default_us"] is None for row in rows)
    said = (
        f"Measured on {_CARDS[target]} on {date}, {right} of {len(lines)} results right. The last column is predicted "
        f"by the cost model: no GPU has measured {unknown} of these {len(rows)} defaults yet."
    )
    columns = ["µs", "dense, cuBLAS", "PyTorch BSR", "Sparsekiln, default of that day", "fastest config tried", "default now, predicted"]
    return [said, "", *publish.table(columns, map(cells, rows, predictions))]


def cpu(document: str) -> list[str]:
    """The medians of the contests that torch_linear.py has written into a document, and where they were measured."""
    begin, end = publish.marks("torch_linear.py")
    where, *tables = document.partition(begin)[2].partition(end)[0].strip().split("\n\n")
    rows = []
    for table in tables[:2]:
        head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        ms = {name: float(median) for name, median, *_ in lines}
        bsr = min(time for name, time in ms.items() if name.startswith("BSR"))
        rows.append([head[0], f"{ms['nn.Linear, dense']:.3g}", f"{bsr:.3g}", f"{ms['BlockSparseLinear']:.3g}"])
    columns = ["ms", "dense, `nn.Linear`", "PyTorch BSR", "Sparsekiln"]
    return [f"Measured on a CPU: {where}", "", *publish.table(columns, rows)]


def main() -> None:
    parser = publish.parser(__doc__)
    publish.add_write(parser, __file__)
    options = parser.parse_args()
    table = gpu(options.build.resolve(), newest(), 1 if options.short else None)
    text = "\n".join([*table, "", *cpu((_ROOT / "docs/performance.md").read_text())])
    print(text)
    if options.write:
        publish.write(options.write, text, __file__)


if __name__ == "__main__":
    main()
