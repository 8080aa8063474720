"""Layers of PyTorch on this machine's GPU against dense ones: bench/gpu_layers.py --build BUILD --out DIR [--minutes N] [--short]

Linear layers against nn.Linear, convolutions against cuDNN, an LSTM against cuDNN's (layer_cases.py), the important ones first:
inference from a CUDA graph, also of launches that overlap, and call by call, a training step, the host's time of a call, and the seconds of a first call. Ours twice: as
a layer is at first, with the layout attached, and once its kernels are baked. What counts as right, and how times are taken,
gpu_layer_contest.py says.

Needs PyTorch with a GPU and the Python package, of a wheel or of BUILD; without them it says what is missing. Writes DIR/layers.json as
it goes, and keeps kernels in DIR/layers-store; what --minutes do not allow is left to the next call, and so is a layer that failed. Everything of DIR is also in
DIR/gpu-DEVICE-COMMIT.tar.gz. Exit status: 0 success, 1 a layer failed, 3 some were not reached.

--from RESULTS --write docs/gpu.md measures nothing, and puts the table of earlier results between its marks there.
"""

import argparse
import json
import pathlib
import sys
import time

import gpu_layer_contest
import layer_cases
import publish
from gpu_contest_process import ContestProcess, NotReached, Unavailable
from gpu_layer_contest import ATTACHED, BAKED
from gpu_results import Results, add_arguments
from sparsekiln_command import environment_of

_ROUNDS = 7
_END = 0.95  # of the minutes
_WAYS = {"graph": "graph", "overlap": "overlapping", "events": "one by one", "training": "training", "host": "host"}


def measured(contestant: dict | None, way: str) -> float | None:
    times = (contestant or {}).get(way)
    return times["us"] if times else None


def dense_us(part: dict, way: str) -> float | None:
    """The fastest dense form's."""
    found = [measured(one, way) for name, one in part.get("contestants", {}).items() if name not in (ATTACHED, BAKED)]
    return min((us for us in found if us is not None), default=None)


def cells(part: dict) -> list[str]:
    """For each way: ours attached, ours baked, and how many times as long as that the dense layer takes; then the first call's and
    the first step's seconds."""
    contestants, row = part.get("contestants", {}), []
    for way in _WAYS:
        attached, baked = (measured(contestants.get(name), way) for name in (ATTACHED, BAKED))
        dense = dense_us(part, "graph" if way == "overlap" else way)
        row += ["-" if us is None else f"{us:.4g}" for us in (attached, baked)]
        row.append("-" if dense is None or baked is None else f"{dense / baked:.2f}")
    first = contestants.get(ATTACHED, {}).get("first_s")
    return [*row, " + ".join(f"{seconds:.1f}" for seconds in first) if first else "-"]


def head() -> list[str]:
    return [*(f"{way}{column}" for way in _WAYS.values() for column in (", attached, µs", ", baked, µs", ", dense, ×")), "first, s"]


def reasons(parts: dict[str, dict]) -> list[str]:
    """Who has no time, and why."""
    lines = []
    for title, part in parts.items():
        if part.get("no_contest"):
            lines.append(f"{title}: {part['no_contest']}")
        for name, one in part.get("contestants", {}).items():
            if not one["ok"]:
                lines.append(f"{title}, {name}: {one['why']}")
            lines += [f"{title}, {name}, {_WAYS[way]}: {why}" for way, why in one.get("refused", {}).items()]
    return lines


def markdown(document: dict) -> str:
    """For docs/gpu.md, from the JSON document of a run."""
    device, parts = document["device"], document["parts"]
    rows = ([title, *cells(part)] for title, part in parts.items() if "contestants" in part)
    lines = [
        f"{device['name']}, driver {device['driver_version']}, commit {document['commit'][:12]}. Dense: how many times as long as ours, "
        "baked, the dense layer takes, in its fastest memory format.", "", *publish.table(["layer", *head()], rows),
    ]  # fmt: skip
    missing = reasons(parts)
    return "\n".join(lines + (["", "Without a time:", "", *(f"- {line}" for line in missing)] if missing else []))


def text_table(titles: list[str], parts: dict[str, dict]) -> str:
    lines = []
    for title in titles:
        lines.append(title if title in parts else f"{title}: not reached: call it again")
        if "contestants" in parts.get(title, {}):
            lines += [f"    {name}: {cell}" for name, cell in zip(head(), cells(parts[title])) if cell != "-"]
    return "\n".join([*lines, *reasons(parts)])


def part_of(contest: ContestProcess, case, until: float) -> dict:
    try:
        contestants = contest.measure(case, pathlib.Path(), until)
    except Unavailable as why:
        return {"ok": True, "no_contest": str(why)}
    ours = {ATTACHED, BAKED} & contestants.keys()  # none: the process broke before the first contestant
    wrong = [f"{name}: {one['why']}" for name, one in contestants.items() if not one["ok"] and (name in ours or not ours)]
    return {"ok": not wrong, "why": "; ".join(wrong), "contestants": contestants, "contest": contest.about}


def run_all(given: argparse.Namespace, cases: list, results: Results) -> None:
    until = time.monotonic() + _END * 60 * given.minutes
    left = [one for one in cases if not (results.has(one.title) and results[one.title]["ok"])]
    left.sort(key=lambda one: results.has(one.title))  # what was never reached comes before what failed
    # The store stays: what was compiled before time was up is not compiled again.
    environment = environment_of(given.out.resolve()) | {"SPARSEKILN_CACHE_DIR": str(given.out.resolve() / "layers-store")}
    rounds = 2 if given.short else _ROUNDS
    contest = ContestProcess([str(given.build.resolve() / "python")], rounds, environment, gpu_layer_contest.worker)
    if "emulator" in results.document["device"]["name"]:
        contest.refuse("the driver is the emulator, which PyTorch does not use")
    try:
        for case in left:
            part = part_of(contest, case, until)
            results.record(case.title, {**part, "clocks": results.clocks()})
            graphs = [measured(part.get("contestants", {}).get(name), "graph") for name in (ATTACHED, BAKED)]
            said = f"{graphs[0]:.4g} us attached, {graphs[1]:.4g} us baked" if all(graphs) else part.get("why") or part.get("no_contest", "")
            results.say(f"{case.title}: {said}")
    except NotReached:
        pass
    finally:
        contest.stop()


def arguments() -> argparse.Namespace:
    parser = publish.parser(__doc__, build=False)
    if "--from" in sys.argv:
        parser.add_argument("--from", dest="results", type=pathlib.Path, required=True, metavar="RESULTS")
    else:
        add_arguments(parser)
    publish.add_write(parser, __file__)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    if "results" in given:
        text = markdown(json.loads(given.results.read_text()))
        print(text)
    else:
        cases = layer_cases.SHORT if given.short else layer_cases.FIRST
        tool = (given.build / "tools" / "sparsekiln").resolve()
        titles = [one.title for one in cases]
        results = Results(given.out / "layers.json", tool, given.build, asked={"layers": titles})
        run_all(given, cases, results)
        results.say(text_table(titles, results.document["parts"]))
        status = results.conclude(titles)
        text = markdown(results.document)
    if given.write:
        publish.write(given.write, text, __file__)
    return 0 if "results" in given else status


if __name__ == "__main__":
    sys.exit(main())
