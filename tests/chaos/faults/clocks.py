"""Faults of wall clocks: those of a worker, the author or a server step by an hour and back."""

from __future__ import annotations

import os
import random
import time
from functools import partial
from pathlib import Path

import pytest

from zkplan.stress.history import journal_of, read_lines
from zkplan.text import article

from ..world import false_time
from ..world.arena import Actor, Arena, Role
from ..world.servers import Kind
from .fault import SERVERS, Entry, Fault, enter
from .patience import wait_a_while

HOUR_S = 3600.0
#: A clock that is off by its step is so within this.
_EXACT_S = 60.0


class ClockSteps(Fault):
    """A process with a clock of its own, which steps by `seconds`, and back at the end."""

    lasts = (1.0, 2.5)
    # A step is seen after a second, and told with the next thing that the process dates.
    waits_s = 10.0

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name)
        self.seconds = seconds
        #: What steps the clock, once it was stepped.
        self._stamp: Path | None = None

    def unable(self, arena: Arena) -> str:
        if false_time.preloaded() is not None:
            return ""
        why = "libfaketime is missing (Debian, Ubuntu: apt-get install libfaketime)"
        if os.environ.get("CI"):
            # A skip would say in CI that all is well.
            pytest.fail(f"{why} (a failure, not a skip, because CI is set)", pytrace=False)
        return why

    def felt(self, arena: Arena) -> bool:
        """Whether the process has dated something by a clock that is off by the step."""
        return any(abs(off - self.seconds) < _EXACT_S for off in self.offsets(arena))

    def heal(self, arena: Arena) -> None:
        if self._stamp is not None:
            false_time.step(self._stamp, 0)

    def offsets(self, arena: Arena) -> list[float]:
        """By how much what it has dated was off."""
        raise NotImplementedError


class ActorsClock(ClockSteps):
    """The process is started anew where it has the real clock; later steps need no start."""

    def __init__(self, name: str, seconds: float, whose: Role) -> None:
        super().__init__(name, seconds)
        self.whose = whose
        self._pid = 0
        self._stepped = 0.0

    def inject(self, arena: Arena, chance: random.Random) -> None:
        actor = chance.choice(arena.mortals(self.whose))
        stamp = false_time.stamp_of(actor.pid) if actor.pid else None
        if stamp is None:
            stamp = arena.folder / f"clock-{actor.name}"
            arena.kill(actor, self.name)
            arena.start(actor, false_time.environment(stamp))
            # A clock that is wrong from the start is not one that steps.
            wait_a_while(lambda: self._is_up(arena, actor))
        self._stamp, self._pid, self._stepped = stamp, actor.pid, time.monotonic()
        self.victims = [actor]
        false_time.step(stamp, self.seconds)

    def _is_up(self, arena: Arena, actor: Actor) -> bool:
        if actor.role == "worker":
            return " ready" in arena.log_of(actor)
        return journal_of(arena.folder, actor.pid).exists()

    def offsets(self, arena: Arena) -> list[float]:
        """Each line of its journal has both of its clocks, and the monotonic one is everybody's."""
        journal = journal_of(arena.folder, self._pid)
        if not journal.exists():
            return []
        real = time.time() - time.monotonic()
        lines = [line for line in read_lines(journal) if line["at"] > self._stepped]
        return [line["wall"] - line["at"] - real for line in lines]


class ServersClock(ClockSteps):
    """The clock of the server that dates all writes: the only one, or the leader.

    It is started anew where it has the real clock; of an ensemble another one leads then, which is
    started anew in its turn.
    """

    claims = frozenset({SERVERS})

    def inject(self, arena: Arena, chance: random.Random) -> None:
        for _ in arena.servers.members:
            server = arena.servers.leader()
            if server.pid and false_time.stamp_of(server.pid):
                break
            stamp = arena.folder / f"clock-{server.port}"
            server.environment = {**os.environ, **false_time.environment(stamp)}
            server.stop()
            server.start(wait=False)
            wait_a_while(arena.servers.serving)
        server = arena.servers.leader()
        self._stamp = arena.folder / f"clock-{server.port}"
        false_time.step(self._stamp, self.seconds)

    def heal(self, arena: Arena) -> None:
        super().heal(arena)
        arena.servers.make_serve()

    def offsets(self, arena: Arena) -> list[float]:
        told = arena.servers.wall_clock()
        return [] if told is None else [told - time.time()]


_ALL: tuple[Kind, ...] = ("embedded", "zookeeper", "ensemble")
enter(
    [
        *(
            Entry(
                f"{role} clock steps {way}",
                "30",
                f"the wall clock of {article(role)} steps {way} by an hour, then back again",
                partial(ActorsClock, seconds=seconds, whose=role),
                weight=1,
            )
            for role in ("worker", "author")
            for way, seconds in (("forward", HOUR_S), ("back", -HOUR_S))
        ),
        *(
            Entry(
                f"server clock steps {way}",
                "30",
                f"the wall clock that dates all writes steps {way} by an hour, then back again",
                partial(ServersClock, seconds=seconds),
                weight=1,
            )
            for way, seconds in (("forward", HOUR_S), ("back", -HOUR_S))
        ),
    ]
)
