"""The table of `./dev test --times`."""

import datetime
import os
import pathlib

from gates import processor
from isolated import times_file

_SHOWN = 30
_PARTS = {"nvrtc": "NVRTC", "llvm": "LLVM", "import": "import"}
_BEGIN, _END = "<!-- ./dev test --times writes from here -->", "<!-- ./dev test --times: to here -->"


def parts_of(file: pathlib.Path) -> dict[str, float]:
    """Seconds by what took them, and how often ("WHAT count"): lines "WHAT SECONDS"."""
    total: dict[str, float] = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        what, seconds = line.split()
        total[what] = total.get(what, 0) + float(seconds)
        total[f"{what} count"] = total.get(f"{what} count", 0) + 1
    return total


def table(times: list[tuple[str, float, list[str]]], folder: str, wall: float) -> str:
    """What (name, seconds, command) of each program and the files of their parts in `folder` say."""
    rows = sorted(((seconds, name, parts_of(times_file(folder, command))) for name, seconds, command in times), reverse=True)
    header = ["program", "s", *_PARTS.values()]

    def line(name: str, seconds: float, parts: dict[str, float]) -> list[str]:
        return [name, f"{seconds:.1f}", *(f"{parts[what]:.1f}" if what in parts else "" for what in _PARTS)]

    total: dict[str, float] = {}
    for _, _, parts in rows:
        for what, seconds in parts.items():
            total[what] = total.get(what, 0) + seconds
    cells = [header, *(line(name, seconds, parts) for seconds, name, parts in rows[:_SHOWN])]
    cells.append(line(f"all {len(rows)}", sum(seconds for seconds, _, _ in rows), total))
    widths = [max(map(len, column)) for column in zip(*cells)]
    cells.insert(1, ["-" * width for width in widths])
    text = "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells)
    return (
        f"{datetime.date.today()}, {processor('model name')}, {os.cpu_count()} cores: {wall / 60:.1f} minutes. Seconds of compiling are summed "
        f"over a program's threads and processes. NVRTC compiled {_count(rows, 'nvrtc') - _count(rows, 'remembered')} sources, and "
        f"{_count(rows, 'remembered')} were remembered.\n\n{text}"
    )


def _count(rows: list, what: str) -> int:
    return sum(parts.get(f"{what} count", 0) for _, _, parts in rows)


def tell(text: str, file: pathlib.Path | None) -> None:
    """Prints it; with a file, also puts it between the marks there."""
    print(text)
    if file is None:
        return
    head, begin, rest = file.read_text().partition(_BEGIN)
    _, end, tail = rest.partition(_END)
    if not begin or not end:
        raise SystemExit(f"{file} lacks the line {_BEGIN} or {_END}")
    file.write_text(f"{head}{begin}\n\n{text}\n\n{end}{tail}")
