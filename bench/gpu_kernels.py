"""Our kernels of workloads, as programs that run on a GPU server ask the command for them."""

import pathlib
import time

from gpu_contest_process import NotReached
from sparsekiln_command import answer, environment_of, make_layout, request
from workloads import Workload

_SECONDS = 240  # a command


class Sparsekiln:
    """The command, with a store and layouts of its own."""

    def __init__(self, tool: pathlib.Path, folder: pathlib.Path, until: float):
        self._tool, self._folder, self._until = tool, folder, until
        self._environment = environment_of(folder)

    def layout(self, workload: Workload) -> pathlib.Path:
        return self._folder / f"{'-'.join(workload.layout_arguments())}.npy"

    def _call(self, arguments: list[str]) -> dict:
        left = min(_SECONDS, self._until - time.monotonic())
        if left <= 0:
            raise NotReached
        document = answer(self._tool, arguments, self._environment, left)
        if document.get("timed_out") and left < _SECONDS:
            raise NotReached
        return document

    def make(self, workload: Workload) -> dict:
        return self._call(make_layout(workload, self.layout(workload)))

    def compile(self, workload: Workload) -> dict:
        """Into the store."""
        return self._call(["compile", *request(workload, self.layout(workload), "cuda")])

    def prepare(self, workload: Workload) -> dict:
        """Compiles the kernel into the store, and asks the model."""
        compiled = self.compile(workload)
        if not compiled["ok"]:
            return compiled
        modelled = self._call(["tune", *request(workload, self.layout(workload), "cuda"), "--model"])
        if not modelled["ok"]:
            return modelled
        (problem,) = modelled["problems"]
        default = problem["model"]["default"]
        return {
            "ok": True, "config": compiled["config"], "predicted_us": default["predicted_us"], "bound": default["bound"],
            "floor_us": problem["floor_us"],
        }  # fmt: skip

    def run(self, workload: Workload, samples: int) -> dict:
        timed = ["--check", "--time", "--repeat", str(samples)]
        return self._call(["run", *request(workload, self.layout(workload), "cuda"), *timed])

    def run_command(self, workload: Workload) -> tuple[list[str], dict[str, str]]:
        """What launches the kernel, some times, and the environment for it."""
        return [str(self._tool), "run", *request(workload, self.layout(workload), "cuda")], self._environment
