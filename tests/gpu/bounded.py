"""Runs a program for a limited time."""

import os
import signal
import subprocess
import tempfile


def run_bounded(command: list[str], environment: dict, folder: str | None, seconds: float) -> tuple[int, str]:
    """Exit status (a negative signal number, or None after `seconds`) and the output. No process outlives it."""
    with tempfile.TemporaryFile() as sink:
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return 127, str(error)
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # and the processes that it may have left
            except ProcessLookupError:
                pass
            process.wait()
        sink.seek(0)
        return status, sink.read().decode(errors="replace")
