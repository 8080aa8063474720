"""Tests neither read nor fill the user's cache: a run has one of its own, or that of `./dev test`, which stays between runs. Threads of PyTorch sleep between operators.
On a GPU server, where nothing else names a package, that of build-portable/ is tested."""

import importlib.util
import os
import pathlib
import sys
import tempfile

import pytest

if importlib.util.find_spec("sparsekiln") is None:
    sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent.parent / "build-portable/python"))

_CACHE = tempfile.TemporaryDirectory(prefix="sparsekiln-tests-")
os.environ["SPARSEKILN_CACHE_DIR"] = os.environ.get("SPARSEKILN_TEST_STORE", _CACHE.name)
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.fixture
def no_layer_seen():
    """As in a process that has made no layer: graphs of torch.compile are for one number of blocks."""
    import torch

    from sparsekiln.torch import graphs

    config, seen, sources = torch.compiler.config, dict(graphs._seen), torch.compiler.config.dynamic_sources
    graphs._seen.clear()
    config.dynamic_sources = ""
    yield
    graphs._seen.clear()
    graphs._seen.update(seen)
    config.dynamic_sources = sources


def _seconds_since_start():
    """How long this process runs."""
    ticks = int(pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    up = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    return up - ticks / os.sysconf("SC_CLK_TCK")


def pytest_collection_finish(session):
    """Until here modules were imported, those of the tests and what these import: see `./dev test --times`."""
    if times := os.environ.get("SPARSEKILN_TIMES"):
        with open(times, "a") as file:
            file.write(f"import {_seconds_since_start():.3f}\n")
