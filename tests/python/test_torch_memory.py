"""Memory of large results on the cpu, which is used again."""

import gc
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from sparsekiln.torch import memory  # noqa: E402

SHAPE = (3, 1024, 1024)
LIKE = torch.empty(0)


@pytest.fixture(autouse=True)
def nothing_is_free():
    memory.release()
    yield
    memory.release()


def test_it_is_used_again_when_no_tensor_is_in_it():
    first = memory.large_empty(LIKE, SHAPE).fill_(1)
    place, part = first.data_ptr(), first[1:]
    del first
    gc.collect()
    other = memory.large_empty(LIKE, SHAPE).fill_(2)
    assert other.data_ptr() != place and part.eq(1).all()
    del part
    assert memory.large_empty(LIKE, SHAPE).data_ptr() == place


def test_it_is_held_by_a_graph_that_needs_it():
    x = memory.large_empty(LIKE, SHAPE).fill_(3).requires_grad_()
    place, y = x.data_ptr(), (x * x).sum()
    del x
    assert memory.large_empty(LIKE, SHAPE).data_ptr() != place
    memory.release()
    del y
    gc.collect()
    assert memory.large_empty(LIKE, SHAPE).data_ptr() == place


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_tensors_in_it_are_like_others(dtype):
    made = memory.large_empty(LIKE.to(dtype), (7, 1024, 1024))
    assert made.dtype == dtype and made.shape == (7, 1024, 1024) and made.is_contiguous() and not made._is_view()
    assert made.data_ptr() % 64 == 0
    made.copy_(torch.arange(7, dtype=dtype)[:, None, None])
    assert torch.equal(made[:, 5, 5], torch.arange(7, dtype=dtype)) and torch.equal(made.clone(), made)


def test_small_ones_are_pytorch_s_own_and_few_are_kept():
    small = memory.large_empty(LIKE, (4, 4))
    assert small.shape == (4, 4) and not memory._free
    many = [memory.large_empty(LIKE, SHAPE) for _ in range(memory._MOST_FREE + 3)]
    assert len({one.data_ptr() for one in many}) == len(many)
    del many
    memory.large_empty(LIKE, SHAPE)
    assert len(memory._free) <= memory._MOST_FREE


def test_threads_never_share_it():
    def use(value):
        for _ in range(20):
            one = memory.large_empty(LIKE, SHAPE)
            one[:, 0].fill_(value)
            if not one[:, 0].eq(value).all():
                wrong.append(value)

    wrong: list[int] = []
    threads = [threading.Thread(target=use, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
