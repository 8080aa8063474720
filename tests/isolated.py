"""Runs a test in surroundings of its own: tests/isolated.py COMMAND…, as Meson's --wrapper.

It has an empty folder for temporary files and an empty cache, which are removed afterwards, and no process that it starts
outlives it. Where SPARSEKILN_TIMES_DIR names a folder, the parts that took long are in its file times_file(COMMAND).
"""

import hashlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile


def times_file(folder: str, command: list[str]) -> pathlib.Path:
    return pathlib.Path(folder) / hashlib.sha256("\0".join(command).encode()).hexdigest()


def kill_group(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(command: list[str]) -> int:
    """The command's exit status; that of a signal as shells have it."""
    with tempfile.TemporaryDirectory(prefix="sparsekiln-test-", ignore_cleanup_errors=True) as scratch:
        os.chmod(scratch, 0o711)  # a test may give up being root, and must still reach its files
        environment = {"SPARSEKILN_CACHE_DIR": os.path.join(scratch, "cache"), **os.environ, "TMPDIR": scratch}
        if folder := os.environ.get("SPARSEKILN_TIMES_DIR"):
            environment["SPARSEKILN_TIMES"] = str(times_file(folder, command))
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait()
        finally:  # Meson ends with SIGTERM what takes too long
            kill_group(process)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(run(sys.argv[1:]))
