"""Faults at named points of the code: delays that widen races, and ends and pauses inside steps."""

from __future__ import annotations

import functools
import random
import re
from functools import partial
from pathlib import Path

import zkplan
from zkplan.failpoints import VARIABLE

from .arena import Arena
from .fault import Entry, Fault, enter

_REACHED = re.compile(r"""reach\(\s*"([\w.]+)"\s*\)""")
#: Where a pause past the session, or an end, is worst.
POINTS = (
    "claim.made",
    "load.between",
    "load.read",
    "task.before",
    "task.after",
    "commit.before",
    "commit.made",
    "publish.before",
    "wide.between",
    "finish.between",
    "clear.listed",
    "clear.wake",
)
AUTHOR_POINTS = ("add.before", "hold.between")


@functools.cache
def points_in_the_code() -> frozenset[str]:
    """The names of all points that zkplan reaches."""
    sources = Path(zkplan.__file__).parent.rglob("*.py")
    return frozenset(name for file in sources for name in _REACHED.findall(file.read_text()))


class AtPoint(Fault):
    """Some workers are started anew with points armed. A pause ends when it heals."""

    lasts = (1.5, 2.5)
    kills = True

    def __init__(self, name: str, armed: str, points: tuple[str, ...], most: int = 1) -> None:
        super().__init__(name)
        self.armed, self.points, self.most = armed, points, most
        self._pids: dict[str, int] = {}
        self.role = "author" if points and points[0] in AUTHOR_POINTS else "worker"

    def unable(self, arena: Arena) -> str:
        found = points_in_the_code()
        if not found:
            return "no point is reached in the code"
        missing = set(self.points) - found
        return f"{', '.join(sorted(missing))} is not reached in the code" if missing else ""

    def inject(self, arena: Arena, chance: random.Random) -> None:
        actors = arena.mortals("author" if self.role == "author" else "worker")
        self.victims = chance.sample(actors, min(self.most, len(actors)))
        for actor in self.victims:
            arena.kill(actor, self.name)
            arena.excuse(60)
            arena.start(actor, {VARIABLE: self.armed})
            self._pids[actor.name] = actor.pid

    def heal(self, arena: Arena) -> None:
        # Who stands at the point goes on as if nothing had been; who never came there is armed.
        for actor in self.victims:
            if actor.pid == self._pids.get(actor.name) and not _is_stopped(actor.pid):
                arena.kill(actor, self.name)
            arena.start(actor)
        arena.excuse(5)


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


class Disarmed(AtPoint):
    """Delays end with the process that has them."""

    def heal(self, arena: Arena) -> None:
        for actor in self.victims:
            arena.kill(actor, self.name)
            arena.start(actor)


def _at(point: str) -> list[Entry]:
    who = "author" if point in AUTHOR_POINTS else "worker"
    return [
        Entry(
            f"{who} {verb} at point {point}",
            "6",
            f"{signal} inside the step, between two requests of it",
            partial(AtPoint, armed=f"{point}={action}:0.3", points=(point,)),
            weight=1,
        )
        for verb, action, signal in (("pauses", "stop", "SIGSTOP"), ("dies", "kill", "SIGKILL"))
    ]


enter([entry for point in (*POINTS, *AUTHOR_POINTS) for entry in _at(point)])
enter(
    [
        Entry(
            "delays at all points",
            "33",
            "half a second at one of 20 passes of any point, in all workers",
            partial(Disarmed, armed="*=sleep:0.5:0.05", points=(), most=100),
            weight=4,
        ),
        Entry(
            "delays at all points of one worker",
            "33",
            "a quarter of a second at one of 4 passes",
            partial(Disarmed, armed="*=sleep:0.25:0.25", points=()),
            weight=4,
        ),
    ]
)
