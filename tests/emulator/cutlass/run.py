#!/usr/bin/env python3
"""Runs GEMMs by CUTLASS's collectives for sm_90 on the emulator, and checks their results.

    run.py EMULATOR_LIBRARY [--cutlass FOLDER] [--seeds N]

FOLDER has CUTLASS's `include`, such as that of the wheel nvidia-cutlass (cutlass_library/source/include); without it,
the wheel is looked for among Python's packages. Needs nvcc and g++; compiling takes about a minute a kernel. Not part
of the tests: kernels that are known to be right on hardware examine the emulator here, and what one does wrong is the
emulator's fault.
"""

import argparse
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

_HERE = pathlib.Path(__file__).resolve().parent

# Name, schedule of the main loop, schedule of the epilogue, rows of a tile, blocks of a cluster.
KERNELS = [
    ("cooperative", "KernelTmaWarpSpecializedCooperative", "TmaWarpSpecializedCooperative", 128, 1),
    ("ping-pong", "KernelTmaWarpSpecializedPingpong", "TmaWarpSpecialized", 64, 1),
    ("cooperative, clusters of two with multicast", "KernelTmaWarpSpecializedCooperative",
     "TmaWarpSpecializedCooperative", 128, 2),
]
SIZES = [(128, 128, 64), (300, 200, 328), (512, 256, 192)]


def cutlass_include(folder):
    if folder is not None:
        return folder
    package = importlib.util.find_spec("cutlass_library")
    if package is None or not package.submodule_search_locations:
        sys.exit("CUTLASS's headers are not there: install the wheel nvidia-cutlass, or name their folder with --cutlass")
    return pathlib.Path(package.submodule_search_locations[0]) / "source" / "include"


def build(kernel, include, library, folder):
    """The program and the PTX of a kernel."""
    _, schedule, epilogue, rows, cluster = kernel
    options = ["nvcc", "-std=c++17", "--expt-relaxed-constexpr", "-DNDEBUG", f"-I{include}", f"-DSCHEDULE={schedule}",
               f"-DEPILOGUE={epilogue}", f"-DTILE_M={rows}", f"-DCLUSTER={cluster}", _HERE / "gemm.cu"]
    ptx, code, program = folder / "gemm.ptx", folder / "gemm.o", folder / "gemm"
    subprocess.run(options + ["-arch=sm_90a", "-ptx", "-o", ptx], check=True)
    host = ["-DHOST", "-DCUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL=1", "--cudart=none", "-gencode",
            "arch=compute_90a,code=sm_90a", "-c", "-o", code]
    subprocess.run(options + host, check=True)
    subprocess.run(["g++", code, _HERE / "runtime.cpp", library, f"-Wl,-rpath,{library.parent}", "-ldl", "-o", program],
                   check=True)
    return program, ptx


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--cutlass", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    include = cutlass_include(options.cutlass)
    failed = 0
    for kernel in KERNELS:
        with tempfile.TemporaryDirectory() as folder:
            program, ptx = build(kernel, include, options.library.resolve(), pathlib.Path(folder))
            for sizes in SIZES:
                for seed in range(options.seeds):
                    environment = dict(os.environ, SPARSEKILN_EMULATOR_SEED=str(seed))
                    run = subprocess.run([program, ptx, *map(str, sizes)], env=environment, capture_output=True, text=True)
                    print(f"{kernel[0]}, {' x '.join(map(str, sizes))}, seed {seed}: {run.stdout.strip()}", flush=True)
                    failed += run.returncode != 0
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
