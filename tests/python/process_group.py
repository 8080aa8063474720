"""Processes of a gloo group that stay for several tests, and run what they are sent."""

import contextlib
import os
import tempfile
import time
import traceback

import pytest
import torch


def serve(rank, world, file, connection):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
    connection.send("ready")
    while (call := connection.recv()) is not None:
        function, arguments = call
        try:
            torch.manual_seed(0)
            connection.send((True, function(*arguments)))
        except BaseException:
            connection.send((False, traceback.format_exc()))
    torch.distributed.destroy_process_group()


class Processes:
    """`run` calls a function in each of `world` processes. After a failure they are ended, and the next call has others."""

    def __init__(self, world):
        self.world, self._running = world, []
        self._start()

    def run(self, function, *arguments, timeout=200):
        """What each rank returns; AssertionError with the traceback if one raises, or does not answer in time."""
        if not self._running:
            self._start()
        for _, connection in self._running:
            connection.send((function, arguments))
        end, results = time.monotonic() + timeout, {}
        while len(results) < self.world:
            for rank, (process, connection) in enumerate(self._running):
                if rank not in results and connection.poll(0.01):
                    passed, results[rank] = connection.recv()
                    if not passed:
                        self.stop()
                        raise AssertionError(f"rank {rank} of {self.world}:\n{results[rank]}")
                if time.monotonic() > end or (rank not in results and not process.is_alive()):
                    self.stop()
                    raise AssertionError(f"rank {rank} of {self.world} does not answer; there are answers of {sorted(results)}")
        return [results[rank] for rank in range(self.world)]

    def _start(self):
        context = torch.multiprocessing.get_context("spawn")
        file = os.path.join(tempfile.mkdtemp(), "rendezvous")
        for rank in range(self.world):
            mine, theirs = context.Pipe()
            process = context.Process(target=serve, args=(rank, self.world, file, theirs), daemon=True)
            process.start()
            self._running.append((process, mine))
        for rank, (_, connection) in enumerate(self._running):
            assert connection.poll(300) and connection.recv() == "ready", f"rank {rank} of {self.world} does not start"

    def stop(self, kindly=False):
        for process, connection in self._running:
            if kindly:
                with contextlib.suppress(OSError):
                    connection.send(None)
                process.join(5)
            if process.is_alive():
                process.kill()
            connection.close()
        self._running = []


@pytest.fixture(scope="module")
def two():
    processes = Processes(2)
    yield processes
    processes.stop(kindly=True)


@pytest.fixture(scope="module")
def four():
    processes = Processes(4)
    yield processes
    processes.stop(kindly=True)
