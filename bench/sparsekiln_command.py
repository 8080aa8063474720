"""The command `sparsekiln` as scripts of this folder call it: requests for a workload, and answers as documents."""

import json
import os
import pathlib
import subprocess

from workloads import Workload


def request(workload: Workload, layout: pathlib.Path, target: str) -> list[str]:
    """The arguments of compile, run and tune that say what is computed."""
    what = ["--op", workload.operation, "--block", str(workload.block), "--batch", str(workload.batch)]
    if workload.convolution:
        what += ["--conv", workload.convolution]
    return [str(layout), *what, "--dtype", workload.dtype, "--math", workload.math, "--target", target]


def make_layout(workload: Workload, layout: pathlib.Path) -> list[str]:
    return ["layout", "make", *workload.layout_arguments(), "-o", str(layout)]


def environment_of(folder: pathlib.Path) -> dict[str, str]:
    """With a store of its own in this folder."""
    return dict(os.environ, SPARSEKILN_CACHE_DIR=str(folder / "cache"))


def answer(tool: pathlib.Path, arguments: list[str], environment: dict[str, str], seconds: float | None = None) -> dict:
    """The document of a command with --json; {"ok": False, "why": …, "timed_out": …} if it leaves none."""
    command = f"sparsekiln {' '.join(arguments)}"
    try:
        done = subprocess.run(
            [tool, *arguments, "--json"], capture_output=True, text=True, env=environment, timeout=seconds
        )  # fmt: skip
    except OSError as error:
        return {"ok": False, "why": str(error)}
    except subprocess.TimeoutExpired:
        return {"ok": False, "why": f"{command}: ran longer than {seconds:.0f} s", "timed_out": True}
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return {"ok": False, "why": f"{command}: exit status {done.returncode}: {done.stderr.strip()}"}
    if done.returncode == 0 and document["ok"]:
        return document
    # A wrong result is a whole document, with check results and times; an Error says why.
    failures = [document.get(oracle, {}).get("first_failure") for oracle in ("exact", "random")]
    failures += [document.get("error", {}).get("message"), done.stderr.strip()]
    why = next((failure for failure in failures if failure), f"exit status {done.returncode}")
    return {**document, "ok": False, "why": why}


def must_answer(tool: pathlib.Path, arguments: list[str], environment: dict[str, str]) -> dict:
    """The document; SystemExit if the command fails."""
    document = answer(tool, arguments, environment)
    if not document["ok"]:
        raise SystemExit(f"sparsekiln {' '.join(arguments)}: {document['why']}")
    return document
