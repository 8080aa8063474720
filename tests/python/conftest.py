"""Every run has a cache folder of its own: tests neither read nor fill the user's. Threads of PyTorch sleep between operators."""

import os
import tempfile

_CACHE = tempfile.TemporaryDirectory(prefix="sparsekiln-tests-")
os.environ["SPARSEKILN_CACHE_DIR"] = os.environ.get("SPARSEKILN_TEST_CACHE_DIR", _CACHE.name)
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
