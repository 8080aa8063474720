"""The main job: python3 bench/demo.py BUILD_DIR [--json FILE]

The layer of the published headline (Gray, Radford and Kingma 2017): 12288 hidden units, block 32×32, minibatch 32,
Watts–Strogatz small worlds at 97 %, 90 % and 50 % sparsity. Draws a layout, compiles each for sm_80 and sm_90, compiles
and runs each on the best target of this machine, checks the results by the oracles, and times the same layer dense in
the same run. Prints what it measured; exit status 1 if anything is wrong.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

_WIDTH, _BLOCK, _BATCH = 12288, 32, 32
_SPARSITIES = (97, 90, 50)  # %
_REWIRE, _SEED = 0.2, 3
_CUBINS = ("sm_80", "sm_90")
_SAMPLES = 15


class Wrong(Exception):
    """Something that the demo must show did not happen."""


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


def make_layout(tool: Tool, sparsity: int, folder: pathlib.Path) -> dict:
    side = _WIDTH // _BLOCK
    return tool.json(
        "layout", "make", "watts-strogatz", "--rows", side, "--cols", side, "--density", f"{1 - sparsity / 100:.2f}",
        "--rewire", _REWIRE, "--seed", _SEED, "-o", folder / f"sparsity_{sparsity}.npy",
    )  # fmt: skip


def compile_twice(tool: Tool, layout: dict, target: str) -> dict:
    """Cold, then from the store in a second process; the answer of the first with the time of the second."""
    request = ("compile", layout["file"], "--block", _BLOCK, "--batch", _BATCH, "--dtype", "f32", "--target", target)
    cold, warm = tool.json(*request), tool.json(*request)
    if (cold["from"], warm["from"]) != ("compiled", "store"):
        raise Wrong(f"{target}: a fresh store gave '{cold['from']}', then '{warm['from']}', not compiled and store")
    if cold["key"] != warm["key"]:
        raise Wrong(f"{target}: two processes disagree on the key: {cold['key']} and {warm['key']}")
    return {**cold, "store_ms": warm["compile_ms"]}


def dense_on_cpu(build: pathlib.Path, threads: int) -> dict:
    program = build / "bench" / "dense_cpu"
    if not program.exists():
        return {"run_ms": None, "why": "oneDNN (libdnnl-dev) was not there when this was built"}
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    command = [program, str(_WIDTH), str(_WIDTH), str(_BATCH), str(_SAMPLES)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        return {"run_ms": None, "why": done.stderr.strip()}
    return json.loads(done.stdout)


def dense_on_gpu() -> dict:
    from gpu_forward import dense  # cuBLAS through PyTorch or CuPy

    return dense()


def run(tool: Tool, layout: dict, target: str) -> dict:
    answer = tool.json(
        "run", layout["file"], "--block", _BLOCK, "--batch", _BATCH, "--dtype", "f32", "--target", target,
        "--check", "--time", "--repeat", _SAMPLES,
    )  # fmt: skip
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


def show_runs(results: list[dict]) -> None:
    header = ["sparsity", "blocks", "cold ms", "store ms", "run ms", "GFLOP/s", "dense ms", "GFLOP/s", "speed-up"]
    header += ["rel. error", "error / bound"]
    rows = []
    for result in results:
        ran, dense = result["run"], result["dense"]
        dense_ms = dense["run_ms"]
        dense_gflops = 2e-6 * _WIDTH * _WIDTH * _BATCH / dense_ms if dense_ms else None
        rows.append(
            [f"{result['sparsity']} %", str(ran["blocks"]), f"{result['compile']['compile_ms']:.0f}",
             f"{result['compile']['store_ms']:.2f}", f"{ran['run_ms']:.3f}", f"{ran['gflops']:.1f}",
             f"{dense_ms:.3f}" if dense_ms else "-", f"{dense_gflops:.1f}" if dense_ms else "-",
             f"{dense_ms / ran['run_ms']:.1f}x" if dense_ms else "-", f"{ran['rel_error']:.1e}",
             f"{ran['max_error_ratio']:.2f}"]
        )  # fmt: skip
    say(table(header, rows))


def demo(build: pathlib.Path, folder: pathlib.Path) -> dict:
    program = build / "tools" / "sparsekiln"
    if not program.exists():
        raise Wrong(f"{program} is not there: ./dev build makes it")
    tool = Tool(program.resolve(), folder / "cache")
    doctor = tool.json("doctor")
    on_gpu = bool(doctor["cuda_driver"]["devices"])
    target = "cuda" if on_gpu else "cpu"
    device = doctor["cuda_driver"]["devices"][0]["name"] if on_gpu else f"{doctor['cpu']['level']}"
    say(f"{_WIDTH} hidden units, block {_BLOCK}×{_BLOCK}, minibatch {_BATCH}, float32, Watts–Strogatz small worlds")
    say(f"rewired {_REWIRE:.0%}, seed {_SEED}; this machine's best target: {target} ({device})")
    say()
    layouts = {sparsity: make_layout(tool, sparsity, folder) for sparsity in _SPARSITIES}
    say(tool.text("layout", "show", layouts[_SPARSITIES[0]]["file"]).replace(f"{folder}/", ""))

    say("Compiled for GPUs, none needed:")
    cubins = [(s, arch, compile_twice(tool, layouts[s], arch)) for s in _SPARSITIES for arch in _CUBINS]
    show_cubins(cubins)
    say()

    results = []
    for sparsity, layout in layouts.items():
        compiled = compile_twice(tool, layout, target)
        ran = run(tool, layout, target)
        # Beside each run, so that a machine that slows down slows down both.
        dense = dense_on_gpu() if on_gpu else dense_on_cpu(build, doctor["cpu"]["threads"])
        results.append({"sparsity": sparsity, "layout": layout, "compile": compiled, "run": ran, "dense": dense})
    say(f"Compiled and run on {results[0]['run']['device']}, checked by the oracles:")
    show_runs(results)
    reference = results[-1]["dense"]
    say(f"dense: {reference.get('through') or reference['why']}")
    return {
        "doctor": doctor,
        "cubins": [{"sparsity": s, "target": arch, "compile": answer} for s, arch, answer in cubins],
        "layers": results,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, metavar="BUILD_DIR")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="writes every figure")
    given = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sparsekiln-demo-"))
    try:
        results = demo(given.build, folder)
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
