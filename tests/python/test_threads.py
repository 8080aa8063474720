"""How many threads kernels use on the cpu. Each case is a process of its own, for variables are read once."""

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
import sparsekiln as sk

_POLICIES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")  # of OpenMP's threads, when they wait
_MEASURE = """
import time
import numpy as np
import sparsekiln as sk
{before}
layout = sk.patterns.random(64, 64, 0.5, seed=1)
{kernel}
run()
process, thread = time.process_time(), time.thread_time()
for _ in range(20):
    run()
print((time.thread_time() - thread) / (time.process_time() - process))
"""
_CORE = """
kernel = sk.compile(layout, block=32, batch=128, target="cpu")
x, w = np.ones((128, 2048), np.float32), np.ones((layout.blocks, 32, 32), np.float32)
run = lambda: kernel(x, w{named})
"""
_TORCH = """
layer = BlockSparseLinear(2048, 2048, layout, block=32)
x = torch.ones(128, 2048)
run = lambda: layer(x)
"""


def share_of_caller(before: str = "", kernel: str = _CORE, named: str = "", **variables: str) -> float:
    """The share of the calling thread in the processor time of 20 calls."""
    names = ("SPARSEKILN_THREADS", "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names} | variables
    environment["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's own threads spin for a while when they have been made
    program = _MEASURE.format(before=before, kernel=kernel.format(named=named))
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def others_take_part(**how: str) -> bool:
    """Whether the calling thread does less than it does alone. Where the processors have other work, the other threads may get none for a
    while, so it is tried again."""
    return any(share_of_caller(**how) < 0.9 for _ in range(4))


several = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the process may run on one processor alone")


@several
def test_all_processors_take_part_if_nothing_is_said():
    assert others_take_part()


@pytest.mark.parametrize("how", [
    {"SPARSEKILN_THREADS": "1"}, {"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "1,4"}, {"before": "sk.set_threads(1)"},
    {"named": ", threads=1"}, {"before": "sk.set_threads(1)", "SPARSEKILN_THREADS": "2"},
    {"SPARSEKILN_THREADS": "1", "OMP_NUM_THREADS": "2"},
])  # fmt: skip
def test_one_thread_is_the_calling_one(how):
    assert share_of_caller(**how) > 0.95


@several
@pytest.mark.parametrize("how", [
    {"before": "sk.set_threads(2)", "SPARSEKILN_THREADS": "1"}, {"SPARSEKILN_THREADS": "2", "OMP_NUM_THREADS": "1"},
    {"named": ", threads=2", "SPARSEKILN_THREADS": "1"}, {"before": "sk.set_threads(1); sk.set_threads(0)"},
    {"SPARSEKILN_THREADS": "many"},
])  # fmt: skip
def test_what_is_said_more_closely_goes_first(how):
    assert others_take_part(**how)


@several
@pytest.mark.parametrize("policy", ["active", "passive"])  # on the threads of PyTorch, and on the library's
def test_layers_take_as_many_threads_as_pytorch(policy):
    pytest.importorskip("torch")
    load = "import torch; from sparsekiln.torch import BlockSparseLinear; torch.set_num_threads({})"
    share = lambda before: share_of_caller(before, _TORCH, OMP_WAIT_POLICY=policy)
    assert share(load.format(1)) > 0.95
    assert others_take_part(before=load.format(2), kernel=_TORCH, OMP_WAIT_POLICY=policy)
    if policy == "passive":  # else another thread of PyTorch, which made the layer, spins
        assert share(load.format(2) + "; sk.set_threads(1)") > 0.95


@pytest.mark.parametrize("blocktime, expected", [(0, 0), (200, 1)])
def test_another_runtime_is_asked_how_long_its_threads_spin(monkeypatch, blocktime, expected):
    pytest.importorskip("torch")
    from sparsekiln.torch import team

    class Library:
        GOMP_parallel = ctypes.CFUNCTYPE(None)(lambda: None)
        kmp_get_blocktime = staticmethod(lambda: blocktime)

    given = []
    monkeypatch.setattr(team.ctypes, "CDLL", lambda path: Library)
    monkeypatch.setattr(team._core, "set_team", given.append)
    team.share_threads()
    assert len(given) == expected


_TEAM = """
import ctypes, os, torch
import sparsekiln._core as core
given = []
core.set_team = given.append
import sparsekiln.torch
library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
print(hasattr(library, "GOMP_parallel") and not hasattr(library, "kmp_get_blocktime"), len(given))
"""


@pytest.mark.parametrize("environment, expected", [
    ({}, 1), ({"OMP_WAIT_POLICY": "ACTIVE"}, 1), ({"OMP_WAIT_POLICY": "PASSIVE"}, 0), ({"GOMP_SPINCOUNT": "0"}, 0),
    ({"GOMP_SPINCOUNT": "100", "OMP_WAIT_POLICY": "passive"}, 1), ({"GOMP_SPINCOUNT": "", "OMP_WAIT_POLICY": "passive"}, 0),
    ({"KMP_BLOCKTIME": "0"}, 1),
])  # fmt: skip
def test_layers_share_the_threads_of_pytorch_where_those_spin(environment, expected):
    pytest.importorskip("torch")
    whole = {name: value for name, value in os.environ.items() if name not in _POLICIES} | environment
    done = subprocess.run([sys.executable, "-c", _TEAM], env=whole, capture_output=True, text=True, check=True)
    of_gnu, teams = done.stdout.split()
    if of_gnu != "True":
        pytest.skip("this PyTorch has another OpenMP runtime than GNU's")
    assert int(teams) == expected


@several
def test_layers_run_on_the_threads_of_pytorch_alone():
    pytest.importorskip("torch")
    program = """
import os
import sparsekiln as sk
import torch
from sparsekiln.torch import BlockSparseLinear
torch.set_num_threads(1)
layer, x = BlockSparseLinear(2048, 2048, sk.patterns.random(64, 64, 0.5, seed=1), 32), torch.ones(128, 2048)
with torch.no_grad():
    layer(x)  # compiles
    torch.set_num_threads(2)
    torch.relu(x)
    before = len(os.listdir("/proc/self/task"))
    for _ in range(3):
        layer(x)
    print(before, len(os.listdir("/proc/self/task")))
"""
    environment = {name: value for name, value in os.environ.items() if name not in _POLICIES}  # its threads then spin
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before == after


def test_any_number_of_threads_gives_the_same_bits():
    layout = sk.patterns.watts_strogatz(16, 16, 0.4, seed=2)
    random = np.random.default_rng(0)
    for op in ("forward", "grad_input", "grad_weight"):
        kernel = sk.compile(layout, block=16, batch=77, op=op, target="cpu")
        first = random.standard_normal((77, 256), dtype=np.float32)
        second = random.standard_normal((77, 256) if op == "grad_weight" else (layout.blocks, 16, 16), dtype=np.float32)
        results = [kernel(first, second, threads=threads) for threads in (1, 2, 3, 64, 0)]
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])


def test_a_forked_child_computes_after_its_parent_did():
    kernel = sk.compile(sk.patterns.random(16, 16, 0.5), block=16, batch=64, target="cpu")
    x, w = np.ones((64, 256), np.float32), np.ones((kernel.layout.blocks, 16, 16), np.float32)
    y = kernel(x, w, threads=4)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(kernel(x, w, threads=4), y) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_numbers_that_are_none_are_refused():
    kernel = sk.compile(sk.patterns.random(2, 2, 0.5), block=8, batch=1, target="cpu")
    with pytest.raises(sk.InvalidArgument, match="1 or more"):
        kernel(np.ones((1, 16), np.float32), np.ones((kernel.layout.blocks, 8, 8), np.float32), threads=-1)
    for wrong in (-1, 1 << 20):
        with pytest.raises(sk.InvalidArgument, match="1 to 1024"):
            sk.set_threads(wrong)


_SMALL_STACK = """
import sys, threading
import numpy as np, sparsekiln as sk
layout = sk.patterns.random(4, 4, 0.4, seed=1)
def compile(target):
    try:
        return sk.compile(layout, 16, 4, target=target, tuning="now" if target == "cpu" else "recorded", tuning_seconds=0.3)
    except sk.Error as error:
        assert "NVRTC" in str(error), error
def work():
    compile("emulated:sm_90")
    print(compile("cpu")(np.ones((4, 64), np.float32), np.ones((layout.blocks, 16, 16), np.float32)).sum())
threading.stack_size(64 << 10)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def test_kernels_are_compiled_on_threads_with_the_smallest_stack(tmp_path):
    done = subprocess.run([sys.executable, "-c", _SMALL_STACK], capture_output=True, text=True,
                          env=os.environ | {"SPARSEKILN_CACHE_DIR": str(tmp_path)})  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert float(done.stdout) == sk.patterns.random(4, 4, 0.4, seed=1).blocks * 16 * 16 * 4
