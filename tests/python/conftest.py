"""Every run has a cache folder of its own: tests neither read nor fill the user's. Threads of PyTorch sleep between operators.
On a GPU server, where nothing else names a package, that of build-portable/ is tested."""

import importlib.util
import os
import pathlib
import sys
import tempfile

if importlib.util.find_spec("sparsekiln") is None:
    sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent.parent / "build-portable/python"))

_CACHE = tempfile.TemporaryDirectory(prefix="sparsekiln-tests-")
os.environ["SPARSEKILN_CACHE_DIR"] = os.environ.get("SPARSEKILN_TEST_CACHE_DIR", _CACHE.name)
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
