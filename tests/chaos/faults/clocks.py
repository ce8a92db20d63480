"""Faults of wall clocks: that of a worker, the author or a server steps by an hour and back.

Nothing in zkplan relies on a clock for safety; delays do depend on clocks. Needs libfaketime, which
a process is started with; its monotonic clock stays real.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.tools import clock
from zkplan.testing.stress_tasks import journal_of, read_lines

from ..cluster.cluster import Cluster, Process, Role
from .fault import SERVERS, Fault, article, enter, wait_a_while

HOUR_S = 3600.0
#: How exactly a clock has to be off by its step.
_EXACT_S = 60.0


class ClockSteps(Fault):
    """A wall clock steps by `seconds`, and back at the end."""

    lasts = (1.0, 2.5)
    # A step is seen after a second, and shows with the next thing that the process dates.
    waits_s = 10.0

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name)
        self.seconds = seconds
        #: The file that steps the clock, once it was stepped.
        self._stamp: Path | None = None

    def unable(self, cluster: Cluster) -> str:
        if clock.preloaded() is not None:
            return ""
        why = "libfaketime is missing (Debian, Ubuntu: apt-get install libfaketime)"
        if os.environ.get("CI"):
            # A skip would say in CI that all is well.
            pytest.fail(f"{why} (a failure, not a skip, because CI is set)", pytrace=False)
        return why

    def took_effect(self, cluster: Cluster) -> bool:
        """Whether something was dated by a clock that is off by the step."""
        return any(abs(off - self.seconds) < _EXACT_S for off in self.offsets(cluster))

    def heal(self, cluster: Cluster) -> None:
        if self._stamp is not None:
            clock.step(self._stamp, 0)

    def offsets(self, cluster: Cluster) -> list[float]:
        """By how much the dates since the step are off."""
        raise NotImplementedError


class ProcessClock(ClockSteps):
    """The clock of a worker or the author, which is started anew unless it has a false clock."""

    def __init__(self, name: str, seconds: float, whose: Role) -> None:
        super().__init__(name, seconds)
        self.whose = whose
        self._pid = 0
        self._stepped = 0.0

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        process = chance.choice(cluster.endable(self.whose))
        stamp = clock.stamp_of(process.pid) if process.pid else None
        if stamp is None:
            stamp = cluster.folder / f"clock-{process.name}"
            cluster.kill(process, self.name)
            cluster.start(process, clock.environment(stamp))
            # A clock that is wrong from the start is not one that steps.
            wait_a_while(lambda: self._is_up(cluster, process))
        self._stamp, self._pid, self._stepped = stamp, process.pid, time.monotonic()
        self.victims = [process]
        clock.step(stamp, self.seconds)

    def _is_up(self, cluster: Cluster, process: Process) -> bool:
        if process.role == "worker":
            return " ready" in cluster.log_of(process)
        return journal_of(cluster.folder, process.pid).exists()

    def offsets(self, cluster: Cluster) -> list[float]:
        """Lines of its journal have the time of both clocks; all share the monotonic one."""
        journal = journal_of(cluster.folder, self._pid)
        if not journal.exists():
            return []
        real = time.time() - time.monotonic()
        lines = [line for line in read_lines(journal) if line["at"] > self._stepped]
        return [line["wall"] - line["at"] - real for line in lines]


class ServerClock(ClockSteps):
    """The clock of the server that dates all writes: the only one, or the leader.

    A server with the real clock is started anew. In an ensemble another one leads then, and is
    started anew in its turn.
    """

    locks = SERVERS

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        for _ in cluster.servers.members:
            server = cluster.servers.leader()
            if server.pid and clock.stamp_of(server.pid):
                break
            stamp = cluster.folder / f"clock-{server.port}"
            server.environment = {**os.environ, **clock.environment(stamp)}
            server.stop()
            server.start(wait=False)
            wait_a_while(cluster.servers.serving)
        server = cluster.servers.leader()
        self._stamp = cluster.folder / f"clock-{server.port}"
        clock.step(self._stamp, self.seconds)

    def heal(self, cluster: Cluster) -> None:
        super().heal(cluster)
        cluster.servers.make_serve()

    def offsets(self, cluster: Cluster) -> list[float]:
        told = cluster.servers.wall_clock()
        return [] if told is None else [told - time.time()]


for _way, _seconds in (("forward", HOUR_S), ("back", -HOUR_S)):
    for _whose in ("worker", "author"):
        _does = f"the wall clock of {article(_whose)} steps {_way} by an hour, then back again"
        _name = f"{_whose} clock steps {_way}"
        enter(_name, _does, ProcessClock, _seconds, _whose, weight=1)
    _does = f"the wall clock that dates all writes steps {_way} by an hour, then back again"
    enter(f"server clock steps {_way}", _does, ServerClock, _seconds, weight=1)
