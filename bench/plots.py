"""The plots of the benchmarks: PNG files that are the same bytes for the same figures."""

import contextlib
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def figure(file: pathlib.Path, columns: int = 1) -> Iterator[list]:
    """Axes side by side to draw on, which are then saved."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update({"axes.grid": True, "grid.alpha": 0.3, "font.size": 9, "axes.titlesize": 9})
    from matplotlib import pyplot

    made, all_axes = pyplot.subplots(1, columns, layout="constrained", figsize=(6 if columns == 1 else 3.6 * columns, 3.6), squeeze=False)
    yield list(all_axes[0])
    made.savefig(file, dpi=144, metadata={"Software": None})
    pyplot.close(made)
