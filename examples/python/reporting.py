"""What the examples share: their options, and their part of a document.

An example prints its result; with --write docs/examples.md it also puts it there, between the marks that carry its name,
and the plot beside that file.
"""

import argparse
import os
import pathlib
import platform

import torch


def parse(description: str, add_options=lambda parser: None) -> argparse.Namespace:
    """The options that all examples have (short, threads, write) and those that `add_options(parser)` adds.

    Keeps this process, PyTorch and kernels alike, to so many cores, and sets the seed.
    """
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a run of seconds, whose figures mean nothing")
    parser.add_argument("--threads", type=int, default=len(cores), help="cores to work on")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="the document that the result goes to, with its plot")
    add_options(parser)
    options = parser.parse_args()
    if options.short and options.write:
        parser.error("--short and --write: what a short run gives is not for a document")
    if not 0 < options.threads <= len(cores):
        parser.error(f"--threads {options.threads}: this process has {len(cores)}")
    os.sched_setaffinity(0, cores[: options.threads])
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    return options


def machine() -> str:
    """Such as "AMD EPYC, 2 threads, PyTorch 2.13.0+cpu"."""
    name = platform.processor()
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        name = names[0] if names else name
    threads = torch.get_num_threads()
    return f"{name}, {threads} thread{'s' if threads > 1 else ''}, PyTorch {torch.__version__}"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown, legible as text too."""
    widths = [max(map(len, column)) for column in zip(header, *rows)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines)


def new_figure(**how):
    """A matplotlib figure and its axes (see pyplot.subplots), drawn without a screen and alike on every run."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update({"axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False,
                                "axes.spines.right": False, "font.size": 9, "legend.frameon": False})  # fmt: skip
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained", **how)


def publish(options: argparse.Namespace, name: str, text: str, figure, described: str) -> None:
    """Prints `text`; with --write also puts it into that file with the plot, NAME.png in a folder examples/ beside it.

    `described` says in words what the plot shows.
    """
    print(text)
    if not options.write:
        return
    plot = options.write.parent / "examples" / f"{name}.png"
    plot.parent.mkdir(exist_ok=True)
    figure.savefig(plot, dpi=144, metadata={"Software": None})
    begin, end = f"<!-- {name}.py writes from here -->", f"<!-- {name}.py: to here -->"
    document = options.write.read_text()
    head, found, rest = document.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{options.write} lacks the line {begin} or {end}")
    options.write.write_text(f"{head}{begin}\n\n{text}\n\n![{described}](examples/{plot.name})\n\n{end}{tail}")
