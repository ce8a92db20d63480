"""Dask runs the graphs on a `distributed.LocalCluster`, in three ways. The fastest counts."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import dask
from distributed import Client, LocalCluster

from .serving import Way, serve

#: Longer than any clean-up after a run takes.
SETTLE_TIMEOUT_S = 30.0


class Peer:
    """A cluster of processes and threads on loopback. `start` sets `client`."""

    def __init__(self, processes: int, threads: int) -> None:
        self._size = processes, threads
        self._runs = itertools.count()
        self.ways: dict[str, Way] = {
            "submit": self._submit,
            "delayed": self._delayed,
            "get": self._get,
        }

    def start(self) -> None:
        processes, threads = self._size
        self._cluster = LocalCluster(
            n_workers=processes,
            threads_per_worker=threads,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
        )
        self.client = Client(self._cluster)

    def close(self) -> None:
        self.client.close()
        self._cluster.close()

    def settle(self) -> None:
        """Wait until the scheduler has forgotten the run, after its last future was deleted."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while self.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
            if time.monotonic() > deadline:
                raise TimeoutError("Dask has not forgotten the tasks of the last run")
            time.sleep(0.05)

    def _submit(self, calls: Any, leaves: list[int]) -> list[Any]:
        futures: list[Any] = []
        for function, needed in calls:
            # With pure=True, two calls of a function without arguments would be one task.
            arguments = [futures[index] for index in needed]
            futures.append(self.client.submit(function, *arguments, pure=False))
        found: list[Any] = self.client.gather([futures[index] for index in leaves])
        return found

    def _delayed(self, calls: Any, leaves: list[int]) -> list[Any]:
        made: list[Any] = []
        delayed = {function: dask.delayed(function, pure=False) for function, _ in calls}
        for function, needed in calls:
            made.append(delayed[function](*[made[index] for index in needed]))
        return list(self.client.gather(self.client.compute([made[index] for index in leaves])))

    def _get(self, calls: Any, leaves: list[int]) -> list[Any]:
        """A graph of Dask's own form, without the layers of `delayed`."""
        run = next(self._runs)
        graph = {
            f"{run}-{at}": (function, *[f"{run}-{index}" for index in needed])
            for at, (function, needed) in enumerate(calls)
        }
        return list(self.client.get(graph, [f"{run}-{index}" for index in leaves]))


if __name__ == "__main__":
    peer = Peer(int(sys.argv[1]), int(sys.argv[2]))
    serve(peer.start, peer.ways, peer.settle)
    peer.close()
