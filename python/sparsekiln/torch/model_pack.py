"""The kernels of layers as a pack, which a program elsewhere takes them from."""

import json
import os
import pathlib
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import sparsekiln
from sparsekiln import _core

from .kernels import DTYPES, LayoutKernels, Use, is_attached, named_features


def write_pack(path: str | os.PathLike[str], layouts: Iterable[LayoutKernels], archs: Sequence[str], threads: int) -> None:
    """Writes all kernels that these have made to a pack, as `sparsekiln precompile` does, for the architectures given; where none is,
    for those that they are of. sparsekiln.Error where one cannot be compiled."""
    with tempfile.TemporaryDirectory(prefix="sparsekiln-") as name:
        folder = pathlib.Path(name)
        jobs: dict[str, dict[str, Any]] = {}
        for kernels in layouts:
            for use, bound, target in kernels.made():
                job = _job(kernels.layout, use, bound) | {"archs": list(archs) or [target]}
                key = json.dumps(job)
                if is_attached(use) and job.keys().isdisjoint(("in_features", "out_features")):
                    key = json.dumps(job | {"layouts": []})  # code that serves all layouts
                if key not in jobs:
                    kernels.layout.save(folder / job["layouts"][0])
                    jobs[key] = job
        (folder / "jobs.json").write_text(json.dumps({"jobs": list(jobs.values())}))
        command = ["sparsekiln", "precompile", folder / "jobs.json", "--jobs", str(threads), "--output", path]
        if _core.run_command_line([os.fsencode(word) for word in command]) != 0:
            raise sparsekiln.Error(f"{os.fspath(path)} was not written; what failed stands on standard error")


def _job(layout: "sparsekiln.Layout", use: Use, bound: int) -> dict[str, Any]:
    """An entry of a jobs file, docs/packs.md."""
    job: dict[str, Any] = {
        "layouts": [f"{layout.digest}.npy"],
        "operations": [use.operation],
        "blocks": ["x".join(map(str, use.block))],
        "batches": [f"up-to:{bound}"],
        "dtypes": [DTYPES[use.dtype]],
        "epilogues": [use.epilogue],
        "derivative": use.derivative,
        "bias_gradient": use.bias_gradient,
        "alignment": use.alignment,
        "activation_order": use.order,
        "overlap_launches": use.overlap,
        "attached": is_attached(use),
    }
    if use.convolution != "none":
        job["conv"] = use.convolution
    return job | {name: features for name, features in named_features(layout, use).items() if features != 0}
