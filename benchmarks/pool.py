"""The worker processes of a measurement, which register before it and report their statistics."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import zkplan
from zkplan.processes import WatchedProcess

START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 10.0
STOP_GRACE_S = 15.0
SETTLE_S = 2.0
_LOG_TAIL_CHARS = 2000


class PoolBroke(RuntimeError):
    """A worker process ended or did not answer; the message shows the end of its log."""


def wait_until(holds: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until a condition holds. Returns whether it did within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Pool:
    """`processes` workers of `threads` threads each, under the root of `client`.

    `environment` is added to the workers' environment, for example to log in.
    """

    def __init__(
        self,
        client: zkplan.Client,
        processes: int,
        threads: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.client = client
        self._environment = {**os.environ, **environment} if environment else None
        self.processes, self.threads = processes, threads
        self._folder = tempfile.TemporaryDirectory(prefix="zkplan-benchmark-")
        self._workers: list[tuple[WatchedProcess, Path]] = []

    def __enter__(self) -> Pool:
        command = [
            sys.executable,
            "-m",
            "benchmarks.worker",
            "--hosts",
            self.client.transport.hosts,
        ]
        command += ["--root", self.client.root, "--threads", str(self.threads)]
        try:
            for number in range(self.processes):
                log = Path(self._folder.name) / f"worker-{number}.log"
                self._workers.append((WatchedProcess(command, log, self._environment), log))
            if not wait_until(self._registered, START_TIMEOUT_S):
                raise self._broke(f"did not register within {START_TIMEOUT_S:g} s")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process, _ in self._workers]

    def statistics(self) -> Counter[str]:
        """The sums of the workers' counts since their start. Raises PoolBroke."""
        before = [len(_told(log)) for _, log in self._workers]
        for process, _ in self._workers:
            process.send(signal.SIGUSR1)
        wanted = [(log, count) for (_, log), count in zip(self._workers, before, strict=True)]
        if not wait_until(
            lambda: all(len(_told(log)) > count for log, count in wanted), ANSWER_TIMEOUT_S
        ):
            raise self._broke(f"did not report its statistics within {ANSWER_TIMEOUT_S:g} s")
        sums: Counter[str] = Counter()
        for _, log in self._workers:
            sums.update(_told(log)[-1])
        return sums

    def statistics_once(self, committed: int) -> Counter[str]:
        """The statistics once `committed` commits are counted, or after SETTLE_S seconds.

        The plan is drained as soon as the server has applied the last commit, but the worker counts
        the answer, which may still be under way.
        """
        found = self.statistics()
        deadline = time.monotonic() + SETTLE_S
        while found["committed"] < committed and time.monotonic() < deadline:
            found = self.statistics()
        return found

    def require_running(self) -> None:
        """Raises PoolBroke if a worker has ended, because a smaller pool would be measured."""
        if not all(process.is_running() for process, _ in self._workers):
            raise self._broke("ended")

    def close(self) -> None:
        """Let the workers drain, and end them."""
        for process, _ in self._workers:
            process.send(signal.SIGTERM)
        for process, _ in self._workers:
            process.wait_ended(STOP_GRACE_S)
            process.end(0)
        self._workers.clear()
        self._folder.cleanup()

    def _registered(self) -> bool:
        self.require_running()
        return {worker.pid for worker in self.client.workers()} >= set(self.pids)

    def _broke(self, what: str) -> PoolBroke:
        logs = [log.read_text(errors="replace")[-_LOG_TAIL_CHARS:] for _, log in self._workers]
        return PoolBroke(f"a worker process {what}; the ends of the logs:\n" + "\n".join(logs))


def _told(log: Path) -> list[dict[str, int]]:
    lines = log.read_text(errors="replace").splitlines(keepends=True)
    # A line without its end is still being written.
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]
