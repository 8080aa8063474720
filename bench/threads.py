"""Whether threads of kernels on the cpu get in each other's way: N processes with one thread each against one process with N
threads that does the same work. Prints a line of JSON.

    PYTHONPATH=build/python python3 bench/threads.py [--processes 2] [--rounds 5] [--short]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

_WORK = """
import sys, time
import numpy as np
import sparsekiln as sk
calls = int(sys.argv[1])
layout = sk.patterns.random(64, 64, 0.25, seed=1)
kernel = sk.compile(layout, block=32, batch=256, target="cpu")
x, w = np.ones((256, 2048), np.float32), np.ones((layout.blocks, 32, 32), np.float32)
kernel(x, w)
print("ready", flush=True)
sys.stdin.readline()
begin, process, thread = time.perf_counter(), time.process_time(), time.thread_time()
for _ in range(calls):
    kernel(x, w)
print(time.perf_counter() - begin, (time.thread_time() - thread) / (time.process_time() - process), flush=True)
"""


def run(processes: int, threads: int, calls: int) -> tuple[float, float]:
    """Seconds until all processes have made their calls, and the least share of a calling thread in processor time."""
    environment = dict(os.environ, SPARSEKILN_THREADS=str(threads), OPENBLAS_NUM_THREADS="1")  # those of NumPy spin
    command = [sys.executable, "-c", _WORK, str(calls)]
    workers = [
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    for worker in workers:
        if worker.stdout.readline() != "ready\n":
            raise SystemExit("a process ended before it was ready")
    begin = time.perf_counter()
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    shares = [float(worker.stdout.readline().split()[1]) for worker in workers]
    seconds = time.perf_counter() - begin
    for worker in workers:
        worker.communicate()
    return seconds, min(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", default=2, type=int)
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--calls", default=100, type=int, help="of each process; one process with all threads makes those of all")
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    if options.short:
        options.rounds, options.calls = 1, 3
    ratios, shares = [], []
    for _ in range(options.rounds):
        apart, share = run(options.processes, 1, options.calls)
        together, _ = run(1, options.processes, options.calls * options.processes)
        ratios.append(apart / together)
        shares.append(share)
    print(json.dumps({"processes": options.processes, "apart_over_together": statistics.median(ratios), "ratios": ratios,
                      "share_of_calling_thread": min(shares)}))  # fmt: skip


if __name__ == "__main__":
    main()
