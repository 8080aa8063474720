"""Installs a wheel into a fresh virtual environment and uses it with no compiler on the path: try_wheel.py WHEEL"""

import pathlib
import subprocess
import sys
import tempfile
import venv

PROGRAM = """
import os, shutil
import numpy as np
import sparsekiln as sk
assert not any(shutil.which(name) for name in ("gcc", "g++", "cc", "clang", "ld", "llc", "opt", "nvcc")), os.environ["PATH"]
layout = sk.patterns.random(4, 6, 0.4, seed=1)
random = np.random.default_rng(1)
x, w = random.standard_normal((5, 96), np.float32), random.standard_normal((layout.blocks, 16, 16), np.float32)
kernel = sk.compile(layout, 16, 5, target="cpu")
dense = np.zeros((4, 16, 6, 16))
dense[np.repeat(np.arange(4), np.diff(layout.crow)), :, layout.col, :] = w
np.testing.assert_allclose(kernel(x, w), x @ dense.reshape(64, 96).T, rtol=1e-4, atol=1e-4)
print("compiled", kernel.source, kernel.target, "in", sk.__file__)
"""


def main() -> None:
    wheel = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="sparsekiln-wheel-") as folder:
        venv.create(folder, with_pip=True)
        python = pathlib.Path(folder, "bin", "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel], check=True)
        bare = {"PATH": str(python.parent), "HOME": folder, "SPARSEKILN_CACHE_DIR": f"{folder}/cache"}
        subprocess.run([python, "-c", PROGRAM], check=True, cwd=folder, env=bare)
        subprocess.run([python.parent / "sparsekiln", "--version"], check=True, cwd=folder, env=bare)
        subprocess.run([python, "-m", "sparsekiln", "doctor"], check=True, cwd=folder, env=bare, stdout=subprocess.DEVNULL)
    print(f"{wheel.name} installs and works, {wheel.stat().st_size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
