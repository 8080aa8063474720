"""Launches that follow one another, made by one call of the library."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from emulated_device import one_by_one  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln import _core  # noqa: E402
from sparsekiln.torch import BlockSparseLSTM, launches  # noqa: E402
from sparsekiln.torch.launches import Launch, Rows, Steps, run, run_steps  # noqa: E402
from sparsekiln.torch.recurrent import lstm_steps  # noqa: E402


@pytest.fixture
def kernel():
    return sparsekiln.compile([[1, 0], [1, 1]], 16, sparsekiln.up_to(8), target="cpu")


def tensors():
    torch.manual_seed(0)
    return {"x": torch.randn(7, 32), "w": torch.randn(3, 16, 16), "y": torch.zeros(9, 32)}


def test_each_launch_has_rows_of_its_own(kernel):
    given = tensors()
    of = lambda x, y, n: Launch("k", n, {"x": Rows("x", x, n), "w": Rows("w"), "y": Rows("y", y, n)})  # noqa: E731
    chained = Launch("k", 2, {"x": Rows("y", 0, 2), "w": Rows("w"), "y": Rows("y", 7, 2)})  # reads what the first one wrote
    run_steps(Steps([of(5, 0, 2), of(0, 3, 3), chained], ["y"]), {"k": kernel}, given)
    x, w, y = given.values()
    wanted = torch.zeros(9, 32)
    wanted[0:2], wanted[3:6] = kernel(x[5:], w), kernel(x[:3], w)
    wanted[7:9] = kernel(wanted[0:2].clone(), w)
    assert torch.equal(y, wanted)


def test_no_launches_are_none(kernel):
    run_steps(Steps([], ["y"]), {"k": kernel}, tensors())


def test_writes_are_counted(kernel):
    given = tensors()
    before = given["y"]._version, given["x"]._version
    run_steps(Steps([Launch("k", 2, {"x": Rows("x", 0, 2), "w": Rows("w"), "y": Rows("y", 0, 2)})], ["y"]), {"k": kernel}, given)
    assert (given["y"]._version > before[0], given["x"]._version) == (True, before[1])


@pytest.mark.parametrize("first, count", [(6, 2), (-1, 2), (8, 0)])
def test_rows_that_are_not_there_are_refused_before_anything_is_launched(kernel, first, count):
    given = tensors()
    good = Launch("k", 2, {"x": Rows("x", 0, 2), "w": Rows("w"), "y": Rows("y", 0, 2)})
    bad = Launch("k", 2, {"x": Rows("x", first, count), "w": Rows("w"), "y": Rows("y", 0, 2)})
    with pytest.raises(ValueError, match="rows that a tensor does not have"):
        run_steps(Steps([good, bad], ["y"]), {"k": kernel}, given)
    assert not given["y"].any()


def test_what_a_kernel_refuses_ends_the_launches(kernel):
    given = tensors()
    good = Launch("k", 2, {"x": Rows("x", 0, 2), "w": Rows("w"), "y": Rows("y", 0, 2)})
    bad = Launch("k", 3, {"x": Rows("x", 0, 3), "w": Rows("w"), "y": Rows("y", 2, 2)})
    with pytest.raises(sparsekiln.InvalidArgument, match="y"):
        run_steps(Steps([good, bad, good._replace(operands={**good.operands, "y": Rows("y", 6, 2)})], ["y"]), {"k": kernel}, given)
    assert given["y"][:2].all() and not given["y"][6:].any()


@pytest.mark.parametrize("kernels, tensors, begin, end", [([], ["x", "w", "y"], 0, 1), (["k"], ["x"], 0, 1), (["k"], ["x", "w", "y"], 0, 2),
                                                          (["k"], ["x", "w", "y"], 1, 0)])  # fmt: skip
def test_numbers_that_are_not_there_are_refused(kernel, kernels, tensors, begin, end):
    given = {"x": torch.zeros(2, 32), "w": torch.zeros(3, 16, 16), "y": torch.zeros(2, 32)}
    core = _core.Steps([(0, [("x", 0, 0, 2), ("w", 1, 0, -1), ("y", 2, 0, 2)])], [2])
    assert len(core) == 1
    with pytest.raises(ValueError, match="not there"):
        core.run([kernel for _ in kernels], [given[name] for name in tensors], begin, end)


_RELAYOUTS = """
import threading, numpy as np, sparsekiln
from sparsekiln import _core
layouts = [sparsekiln.Layout(np.array(one, bool)) for one in ([[1, 0], [1, 1]], [[1, 1], [0, 1]])]
kernel = sparsekiln.compile(layouts[0], 16, sparsekiln.up_to(512), target="cpu", attached=True)
x, w, y = np.ones((512, 32), np.float32), np.ones((3, 16, 16), np.float32), np.zeros((512, 32), np.float32)
steps = _core.Steps([(0, [("x", 0, 0, 512), ("w", 1, 0, -1), ("y", 2, 0, 512)])] * 50, [2])
ended = threading.Event()
def move():
    while not ended.is_set():
        for layout in layouts:
            kernel.relayout(layout)
mover = threading.Thread(target=move)
mover.start()
for _ in range(60):
    steps.run([kernel], [x, w, y], 0, 50, threads=1)
    assert {float(y[0, 0]), float(y[0, 16])} == {16.0, 32.0}
ended.set()
mover.join()
"""


def test_a_kernel_that_gets_another_layout_ends_with_the_one_it_began_with():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", _RELAYOUTS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_steps_that_are_kept_are_bounded(monkeypatch):
    made = []

    @launches.kept_steps
    def of(count):
        made.append(count)
        return Steps([Launch("k", 1, {"x": Rows("x"), "w": Rows("w"), "y": Rows("y")})] * count, ["y"])

    monkeypatch.setattr(launches, "_MOST_KEPT", 10)
    assert len(of(4).launches) == 4 and of(4) is of(4) and made == [4]
    of(5)
    assert of(4) is of(4) and made == [4, 5]
    of(6)  # so that 5, used before 4, goes
    of(4)
    of(5)
    assert made == [4, 5, 6, 5]
    of(100)
    of(100)
    assert made[-1] == 100 and made.count(100) == 1


@pytest.mark.parametrize("lengths", [[5, 5, 5], [5, 3, 1], [4, 4, 2, 1, 1]])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_lstm_computes_the_bits_that_one_call_for_each_launch_computes(lengths, bidirectional, monkeypatch):
    torch.manual_seed(1)
    layer = BlockSparseLSTM(24, 48, bidirectional=bidirectional, layout=sparsekiln.patterns.random(3, 3, 0.6, seed=2), block=16)
    x = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(max(lengths), len(lengths), 24), lengths)

    def results():
        layer.zero_grad()
        y, (h, c) = layer(x)
        (y.data.square().sum() + h.sum() + c.square().sum()).backward()
        with torch.no_grad():
            inference = layer(x)[0].data
        return [y.data, h, c, inference, *(one.grad for one in layer.parameters())]

    assert lstm_steps.run_steps is launches.run_steps
    found = results()
    monkeypatch.setattr(lstm_steps, "run_steps", one_by_one(run))
    for mine, other in zip(found, results(), strict=True):
        assert torch.equal(mine, other)
    assert torch.equal(found[0], found[3])
