"""Faults of wall clocks: those of a worker, the author or a server step by an hour and back."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from zkplan.wording import article

from ..world import false_time
from ..world.arena import Arena, Role
from ..world.servers import Kind
from .fault import Entry, Fault, enter

HOUR_S = 3600.0
_READY_S = 10.0


def _wait(ready: Callable[[], bool]) -> None:
    """A clock that is wrong from the start is not one that steps.

    Not for ever: another fault may keep the process from being ready.
    """
    until, pause = time.monotonic() + _READY_S, threading.Event()
    while not ready() and time.monotonic() < until:
        pause.wait(0.05)


class ClockSteps(Fault):
    """A process with a clock of its own, which steps by `seconds`, and back at the end."""

    lasts = (1.0, 2.5)

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name)
        self.seconds = seconds
        self._stamp = Path()

    def unable(self, arena: Arena) -> str:
        if false_time.preloaded() is not None:
            return ""
        why = "libfaketime is missing (Debian, Ubuntu: apt-get install libfaketime)"
        if os.environ.get("CI"):
            # A skip would say in CI that all is well.
            pytest.fail(f"{why} (a failure, not a skip, because CI is set)", pytrace=False)
        return why

    def felt(self, arena: Arena) -> bool:
        return True  # not shown yet

    def heal(self, arena: Arena) -> None:
        false_time.step(self._stamp, 0)


class ActorsClock(ClockSteps):
    """The process is started anew where it has the real clock; later steps need no start."""

    def __init__(self, name: str, seconds: float, whose: Role) -> None:
        super().__init__(name, seconds)
        self.whose = whose

    def inject(self, arena: Arena, chance: random.Random) -> None:
        actor = chance.choice(arena.mortals(self.whose))
        stamp = false_time.stamp_of(actor.pid) if actor.pid else None
        if stamp is None:
            stamp = arena.folder / f"clock-{actor.name}"
            arena.kill(actor, self.name)
            arena.start(actor, false_time.environment(stamp))
            _wait(lambda: actor.role != "worker" or " ready" in arena.log_of(actor))
        self._stamp = stamp
        self.victims = [actor]
        false_time.step(stamp, self.seconds)


class ServersClock(ClockSteps):
    """A server is started anew where it has the real clock."""

    def inject(self, arena: Arena, chance: random.Random) -> None:
        server = chance.choice(list(arena.servers.members))
        stamp = false_time.stamp_of(server.pid) if server.pid else None
        if stamp is None:
            stamp = arena.folder / f"clock-{server.port}"
            server.environment = {**os.environ, **false_time.environment(stamp)}
            server.stop()
            server.start(wait=False)
            _wait(lambda: server.mode is not None)
        self._stamp = stamp
        false_time.step(stamp, self.seconds)

    def heal(self, arena: Arena) -> None:
        super().heal(arena)
        arena.servers.make_serve()


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
                f"the wall clock of a server steps {way} by an hour, then back again",
                partial(ServersClock, seconds=seconds),
                weight=1,
            )
            for way, seconds in (("forward", HOUR_S), ("back", -HOUR_S))
        ),
    ]
)
