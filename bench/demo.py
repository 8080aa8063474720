"""The main use: python3 bench/demo.py BUILD_DIR [--json FILE] [--short]

The layer of the published headline (headline.py) at three sparsities. Draws a layout, compiles each for sm_80 and sm_90,
compiles and runs each on the best target of this machine, checks the results by the oracles, and times the same dense layer
in the same run. Prints what it measured; exit status 1 if anything is wrong.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import headline
import publish
from headline import Headline

_CUBINS = ("sm_80", "sm_90")


class Wrong(Exception):
    """A result that the demo must show is missing."""


class Tool:
    """The `sparsekiln` command with a store of its own."""

    def __init__(self, program: pathlib.Path, cache: pathlib.Path):
        self.program = program
        self.environment = dict(os.environ, SPARSEKILN_CACHE_DIR=str(cache))

    def text(self, *arguments: object) -> str:
        command = [str(self.program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment, timeout=300)
        if done.returncode != 0:
            raise Wrong(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip()}{done.stdout.strip()}")
        return done.stdout

    def json(self, *arguments: object) -> dict:
        return json.loads(self.text(*arguments, "--json"))


def say(text: str = "") -> None:
    print(text, flush=True)


def compile_twice(tool: Tool, layer: Headline, layout: dict, target: str) -> dict:
    """Compiles cold, then from the store in a second process; returns the answer of the first with the time of the second."""
    request = layer.request("compile", layout["file"], target)
    cold, warm = tool.json(*request), tool.json(*request)
    if (cold["from"], warm["from"]) != ("compiled", "store"):
        raise Wrong(f"{target}: a fresh store gave '{cold['from']}', then '{warm['from']}', not compiled and store")
    if cold["key"] != warm["key"]:
        raise Wrong(f"{target}: two processes disagree on the key: {cold['key']} and {warm['key']}")
    return {**cold, "store_ms": warm["compile_ms"]}


def dense_on_cpu(build: pathlib.Path, layer: Headline, threads: int, samples: int) -> dict:
    program = build / "bench" / "dense_cpu"
    if not program.exists():
        return {"run_ms": None, "why": "oneDNN (libdnnl-dev) was not there when this was built"}
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    command = [program, *map(str, (layer.width, layer.width, layer.batch, samples))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        return {"run_ms": None, "why": done.stderr.strip()}
    return json.loads(done.stdout)


def dense_on_gpu(layer: Headline) -> dict:
    from dense_cuda import dense

    return dense(layer)


def run(tool: Tool, layer: Headline, layout: dict, target: str, samples: int) -> dict:
    answer = tool.json(*layer.request("run", layout["file"], target), "--check", "--time", "--repeat", samples)
    if not answer["ok"]:
        raise Wrong(f"{layout['file']} on {target}: the oracles found wrong results: {answer}")
    return answer


def table(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in [header, *rows])


def show_cubins(cubins: list[tuple[int, str, dict]]) -> None:
    header = ["sparsity", "target", "registers", "shared B", "spilled B", "constant B", "cubin B", "cold ms", "store ms"]
    rows = []
    for sparsity, target, answer in cubins:
        used = answer["resources"][0]
        shared = used["shared_bytes"] + used["dynamic_shared_bytes"]
        rows.append(
            [f"{sparsity} %", target, str(used["registers"]), str(shared), str(used["spill_store_bytes"]),
             str(used["constant_bytes"]), str(answer["code_bytes"]), f"{answer['compile_ms']:.0f}",
             f"{answer['store_ms']:.2f}"]
        )  # fmt: skip
    say(table(header, rows))


def show_runs(layer: Headline, results: list[dict]) -> None:
    header = ["sparsity", "blocks", "cold ms", "store ms", "run ms", "GFLOP/s", "dense ms", "GFLOP/s", "speed-up"]
    header += ["rel. error", "error / bound"]
    rows = []
    for result in results:
        ran, dense = result["run"], result["dense"]
        dense_ms = dense["run_ms"]
        rows.append(
            [f"{result['sparsity']} %", str(ran["blocks"]), f"{result['compile']['compile_ms']:.0f}",
             f"{result['compile']['store_ms']:.2f}", f"{ran['run_ms']:.3f}", f"{ran['gflops']:.1f}",
             f"{dense_ms:.3f}" if dense_ms else "-", f"{layer.dense_gflops(dense_ms):.1f}" if dense_ms else "-",
             f"{dense_ms / ran['run_ms']:.1f}x" if dense_ms else "-", f"{ran['rel_error']:.1e}",
             f"{ran['max_error_ratio']:.2f}"]
        )  # fmt: skip
    say(table(header, rows))


def demo(build: pathlib.Path, folder: pathlib.Path, layer: Headline, samples: int) -> dict:
    program = build / "tools" / "sparsekiln"
    if not program.exists():
        raise Wrong(f"{program} is not there: ./dev build makes it")
    tool = Tool(program.resolve(), folder / "cache")
    doctor = tool.json("doctor")
    on_gpu = bool(doctor["cuda_driver"]["devices"])
    target = "cuda" if on_gpu else "cpu"
    device = doctor["cuda_driver"]["devices"][0]["name"] if on_gpu else f"{doctor['cpu']['level']}"
    block = f"{layer.block}×{layer.block}"
    say(f"{layer.width} hidden units, block {block}, minibatch {layer.batch}, float32, Watts–Strogatz small worlds")
    say(f"rewired {headline.REWIRE:.0%}, seed {headline.SEED}; this machine's best target: {target} ({device})")
    say()
    layouts = {s: tool.json(*layer.make(s, folder / f"sparsity_{s}.npy")) for s in layer.sparsities}
    say(tool.text("layout", "show", layouts[layer.sparsities[0]]["file"]).replace(f"{folder}/", ""))

    say("Compiled for GPUs, none needed:")
    apart = Tool(tool.program, folder / "cubins")  # one of them may be what this machine's GPU takes
    cubins = [(s, arch, compile_twice(apart, layer, layouts[s], arch)) for s in layer.sparsities for arch in _CUBINS]
    show_cubins(cubins)
    say()

    results = []
    for sparsity, layout in layouts.items():
        compiled = compile_twice(tool, layer, layout, target)
        ran = run(tool, layer, layout, target, samples)
        # Timed with each run, so that a machine that slows down affects both.
        dense = dense_on_gpu(layer) if on_gpu else dense_on_cpu(build, layer, doctor["cpu"]["threads"], samples)
        results.append({"sparsity": sparsity, "layout": layout, "compile": compiled, "run": ran, "dense": dense})
    say(f"Compiled and run on {results[0]['run']['device']}, checked by the oracles:")
    show_runs(layer, results)
    reference = results[-1]["dense"]
    say(f"dense: {reference.get('through') or reference['why']}")
    return {
        "doctor": doctor,
        "cubins": [{"sparsity": s, "target": arch, "compile": answer} for s, arch, answer in cubins],
        "layers": results,
    }


def main() -> int:
    parser = publish.parser(__doc__)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="writes every figure")
    given = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sparsekiln-demo-"))
    try:
        results = demo(given.build, folder, headline.SHORT if given.short else Headline(), 2 if given.short else 15)
        if given.json:
            given.json.write_text(json.dumps(results, indent=1) + "\n")
    except (Wrong, OSError, subprocess.TimeoutExpired, KeyError, ValueError) as error:
        print(f"demo: {error or type(error).__name__}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
