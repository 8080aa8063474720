"""The workloads on this machine's GPU, ours and others': bench/gpu_workloads.py --build BUILD --out DIR [--minutes N] [--short]

For each workload of workloads.json, the important ones first: our kernel, cuBLAS dense, cuSPARSE and PyTorch on BSR, a plain
Triton kernel, and as the floor one that only reads the weight (contestants.py), all checked against the dense product in float32, with cold and warm L2, from CUDA graphs and one by one, in
rounds in which all take turns (gpu_contest.py); beside them the cost model's time. That needs PyTorch and, for our kernel, the
Python package, of a wheel or of BUILD. A contestant that is missing or refuses is named with its reason; without a contest, our kernel
is measured by `sparsekiln run --check --time`.

Kernels are compiled ahead, all at once. Writes DIR/bench.json as it goes; what --minutes do not allow is left to the next call,
and so is a workload that failed. Everything of DIR is also in DIR/gpu-DEVICE-COMMIT.tar.gz. Exit status: 0 success, 1 a
workload failed, 3 some were not reached.

--from RESULTS --write docs/gpu.md measures nothing, and puts the table of earlier results between its marks there.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import sys
import tempfile
import time

import gpu_tables
import publish
from gpu_contest_process import ContestProcess, NotReached, Unavailable
from gpu_kernels import Sparsekiln
from gpu_results import Results, add_arguments
from sparsekiln_command import environment_of
from workloads import Workload, chosen, workloads

_SAMPLES, _ROUNDS = 30, 10
_BEGIN, _END = 0.8, 0.95  # of the minutes: after _BEGIN nothing more is started, at _END what runs is stopped
_SHORT = [Workload("short", 256, 256, 0.25, 32, "f16", 16, "forward"), Workload("short", 256, 256, 0.25, 32, "f32", 8, "grad_weight")]


def spread_out(wanted: list[Workload]) -> list[Workload]:
    """One of each layer first, then the second ones …: so that a part of the list is of all layers."""
    seen: dict[str, int] = {}
    turns = []
    for workload in wanted:
        seen[workload.name] = seen.get(workload.name, 0) + 1
        turns.append(seen[workload.name])
    return [workload for _, workload in sorted(zip(turns, wanted), key=lambda pair: pair[0])]


def ordered() -> list[Workload]:
    """All of them, those first that are to be known first."""
    first = chosen("first")
    return first + spread_out([one for one in workloads() if one not in first])


def measure(workload: Workload, kiln: Sparsekiln, prepared: dict, contest: ContestProcess, samples: int, until: float) -> dict:
    """A part of the results. It is ok if our kernel was right; peers only have reasons."""
    if not prepared["ok"]:
        return prepared
    part = dict(prepared)
    try:
        part["contestants"] = contest.measure(workload, kiln.layout(workload), until)
        part["contest"] = contest.about
    except Unavailable as why:
        part["no_contest"] = str(why)
    own = part.get("contestants", {}).get(gpu_tables.OURS, {})
    if own.get("check") and not own["ok"]:
        return {**part, "ok": False, "why": own["why"]}
    if not own.get("ok"):
        part["command"] = kiln.run(workload, samples)
        if not part["command"]["ok"]:
            return {**part, "ok": False, "why": part["command"]["why"]}
    return part


def arguments() -> argparse.Namespace:
    if "--from" in sys.argv:
        parser = publish.parser(__doc__, build=False)
        parser.add_argument("--from", dest="results", type=pathlib.Path, required=True, metavar="RESULTS")
    else:
        parser = publish.parser(__doc__, build=False)
        add_arguments(parser)
        parser.add_argument("--only", default="", metavar="WORDS", help="workloads whose titles contain this")
    publish.add_write(parser, __file__)
    return parser.parse_args()


def run_all(given: argparse.Namespace, wanted: list[Workload], results: Results, tool: pathlib.Path, until: float) -> None:
    begin_until = until - (_END - _BEGIN) * 60 * given.minutes
    rounds, samples = (2, 2) if given.short else (_ROUNDS, _SAMPLES)
    left = [one for one in wanted if not (results.has(one.title) and results[one.title]["ok"])]
    left.sort(key=lambda one: results.has(one.title))  # what was never reached comes before what failed
    with tempfile.TemporaryDirectory(prefix="sparsekiln-gpu-") as scratch:
        kiln = Sparsekiln(tool, pathlib.Path(scratch), until)
        contest = ContestProcess([str(given.build.resolve() / "python")], rounds, environment_of(pathlib.Path(scratch)))
        if "emulator" in results.document["device"]["name"]:
            contest.refuse("the driver is the emulator, which PyTorch does not use")
        pool = concurrent.futures.ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) - 1))
        try:
            layouts: dict[pathlib.Path, concurrent.futures.Future] = {}
            for one in left:
                if kiln.layout(one) not in layouts:  # which many workloads share
                    layouts[kiln.layout(one)] = pool.submit(kiln.make, one)

            def prepare(workload: Workload) -> dict:
                made = layouts[kiln.layout(workload)].result()
                return kiln.prepare(workload) if made["ok"] else made

            prepared = {one: pool.submit(prepare, one) for one in left}
            for workload in left:
                if time.monotonic() >= begin_until:
                    break
                try:
                    part = measure(workload, kiln, prepared[workload].result(), contest, samples, until)
                except NotReached:
                    continue
                results.record(workload.title, {**part, "clocks": results.clocks()})
                cold = gpu_tables.ours(part, "cold") if part["ok"] else None
                results.say(f"{workload.title}: {f'{cold:.4g} us' if cold else part.get('why', 'no time')}")
        finally:
            pool.shutdown(cancel_futures=True)
            contest.stop()


def main() -> int:
    given = arguments()
    if "results" in given:
        text = gpu_tables.markdown(json.loads(given.results.read_text()))
        print(text)
        if given.write:
            publish.write(given.write, text, __file__)
        return 0
    until = time.monotonic() + _END * 60 * given.minutes
    tool = (given.build / "tools" / "sparsekiln").resolve()
    every = _SHORT if given.short else ordered()
    wanted = [one for one in every if given.only in one.title]
    results = Results(given.out / "bench.json", tool, given.build, asked={"workloads": [one.title for one in every]})
    run_all(given, wanted, results, tool, until)
    titles = [one.title for one in wanted]
    results.say(gpu_tables.text_table(titles, results.document["parts"]))
    status = results.conclude(titles)
    if given.write:
        publish.write(given.write, gpu_tables.markdown(results.document), __file__)
    return status


if __name__ == "__main__":
    sys.exit(main())
