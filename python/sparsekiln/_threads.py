"""How many threads kernels use on the cpu."""

from sparsekiln import _core
from sparsekiln._arguments import int32


def threads() -> int:
    """How many threads a call uses at most, the calling one included, unless it says so itself (kernel(…, threads=2)):
    what set_threads was given, else SPARSEKILN_THREADS, else OMP_NUM_THREADS, else as many as the process may run on at once.
    Layers of sparsekiln.torch take torch.get_num_threads() where neither of the first two says anything. Results have the
    same bits for any number."""
    return _core.threads()


def set_threads(threads: int) -> None:
    """For all later calls of the process; 0: as if it had never been set."""
    _core.set_threads(int32("threads", threads))
