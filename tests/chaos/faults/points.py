"""Faults at named points of the code: delays that widen races, and ends and pauses inside steps."""

from __future__ import annotations

import functools
import random
import re
import signal
from functools import partial
from pathlib import Path
from typing import NamedTuple

import zkplan
from zkplan.protocol.failpoints import VARIABLE

from ..actors.tasks import TOLD, Poke, account_in, poke, prepared_poke
from ..world.arena import Actor, Arena, Role
from ..world.proc import is_stopped
from .aim import Aim
from .fault import Entry, Fault, enter, points_of, stops_of
from .processes import PAST_SESSION

_REACHED = re.compile(r"""reach\(\s*"([\w.]+)"\s*\)""")
_ALL = 100
_WAITS_S = 15.0


class Where(NamedTuple):
    """What makes a point be reached soon: a shape of plan, so many workers that are armed.

    `bait` is armed in one worker more: what happens to that one brings the others to the point.
    """

    shape: str = ""
    most: int = 1
    bait: str = ""


#: Where a pause past the session, or an end, is worst.
POINTS = {
    "claim.made": Where(),
    "load.between": Where(),
    "load.read": Where(),
    "task.before": Where(),
    "task.after": Where(),
    "commit.before": Where(),
    "commit.made": Where(),
    "publish.before": Where("diamonds"),
    "wide.between": Where("wide delivery", _ALL),
    "wide.delivered": Where("wide delivery", _ALL),
    "finish.between": Where(most=_ALL),
    "clear.listed": Where(most=_ALL, bait="task.before=stop"),
    "clear.pending": Where("diamonds", _ALL, "publish.before=stop"),
}
AUTHOR_POINTS = {"add.before": Where(), "wide_join.between": Where("huge join")}


@functools.cache
def points_in_the_code() -> frozenset[str]:
    """The names of all points that zkplan reaches."""
    sources = Path(zkplan.__file__).parent.rglob("*.py")
    return frozenset(name for file in sources for name in _REACHED.findall(file.read_text()))


class Armed(NamedTuple):
    """A process, the point that is armed in it and how, and where it tells that it came there."""

    pid: int
    text: str
    told: Path

    def was_there(self, arena: Arena) -> bool:
        """Whether it says so, and stands still or has died since."""
        point, _, action = self.text.partition("=")
        if not any(
            (deed.pid, deed.did) == (self.pid, f"{point} {action}")
            for deed in account_in(self.told)
        ):
            return False
        if action == "stop":
            return is_stopped(self.pid)
        return arena.endings.get(self.pid) == -signal.SIGKILL


class AtPoint(Fault):
    """A point is armed in some processes, each of which it stops or kills once.

    A worker is armed by its next task, without an end of its own; an author is started anew.
    """

    lasts = (0.1, 0.3)
    waits_s = _WAITS_S

    def __init__(self, name: str, point: str, action: str, where: Where) -> None:
        super().__init__(name)
        self.point, self.where, self.shape = point, where, where.shape
        self.armed = f"{point}={action}"
        self.role: Role = "author" if point in AUTHOR_POINTS else "worker"
        # The bait of another point is a stop too.
        self._stops = action == "stop" or bool(where.bait)
        if action == "stop":
            self.lasts = PAST_SESSION
        self._those: dict[Actor, Armed] = {}
        self._pokes: dict[Actor, Poke] = {}
        #: The bait, until it is thrown.
        self._bait: Actor | None = None

    @property
    def claims(self) -> frozenset[str]:
        stops = stops_of(self.role) if self._stops else frozenset()
        return super().claims | points_of(self.role) | stops

    def unable(self, arena: Arena) -> str:
        found = points_in_the_code()
        return "" if self.point in found else f"{self.point} is not reached in the code"

    def inject(self, arena: Arena, chance: random.Random) -> None:
        actors = arena.mortals(self.role)
        chance.shuffle(actors)
        if self.where.bait:
            self._bait = actors.pop()
            self._arm(arena, self._bait, self.where.bait)
        self.victims = actors[: self.where.most]
        for actor in self.victims:
            self._arm(arena, actor, self.armed)
            if actor in self._pokes:
                self._pokes[actor].give()

    def _arm(self, arena: Arena, actor: Actor, text: str) -> None:
        if actor.role == "author":
            arena.kill(actor, self.name)
            told = arena.folder / f"told-{actor.name}-{actor.lives}"
            arena.start(actor, {VARIABLE: text, TOLD: str(told)})
        else:
            if not actor.pid:
                arena.start(actor)  # another fault has killed it
            self._pokes[actor] = prepared_poke(arena.folder, "arm", text, actor.pid)
            told = self._pokes[actor].told
        self._those[actor] = Armed(actor.pid, text, told)

    def aim(self) -> Aim:
        # The bait too. Who is started anew is not armed.
        codes = [-signal.SIGKILL] if self.armed.endswith("=kill") else []
        return Aim(pids=[armed.pid for armed in self._those.values()], codes=codes)

    def felt(self, arena: Arena) -> bool:
        # Who is not armed yet would take the bait, and come through the point unharmed.
        if self._bait is not None and all(map(self._is_armed_or_gone, self.victims)):
            self._pokes[self._bait].give()
            self._bait = None
        return any(self._those[actor].was_there(arena) for actor in self.victims)

    def _is_armed_or_gone(self, actor: Actor) -> bool:
        return actor.pid != self._those[actor].pid or self._pokes[actor].was_taken()

    def heal(self, arena: Arena) -> None:
        # Who stands at the point goes on as if nothing had been; who never came there is armed.
        for actor, armed in self._those.items():
            asked = self._pokes.get(actor)
            if asked is not None:
                asked.take_back()
            is_armed = actor.pid == armed.pid and (asked is None or asked.was_taken())
            if is_armed and not armed.was_there(arena):
                arena.kill(actor, self.name)
            if self._stops:
                arena.resume(actor)
            arena.start(actor)


class Delays(Fault):
    """Any point delays some workers now and then; they are armed, and disarmed, by their tasks."""

    lasts = (1.5, 2.5)
    waits_s = _WAITS_S

    def __init__(self, name: str, armed: str, most: int) -> None:
        super().__init__(name)
        self.armed, self.most = armed, most

    @property
    def claims(self) -> frozenset[str]:
        return points_of("worker")

    def unable(self, arena: Arena) -> str:
        return "" if points_in_the_code() else "no point is reached in the code"

    def inject(self, arena: Arena, chance: random.Random) -> None:
        actors = [actor for actor in arena.mortals("worker") if actor.pid]
        self.victims = chance.sample(actors, min(self.most, len(actors)))
        self._pokes = {
            actor.pid: poke(arena.folder, "arm", self.armed, actor.pid) for actor in self.victims
        }

    def felt(self, arena: Arena) -> bool:
        return bool(self._pokes) and all(each.account() for each in self._pokes.values())

    def heal(self, arena: Arena) -> None:
        for pid, each in self._pokes.items():
            each.take_back()
            if each.was_taken():
                poke(arena.folder, "arm", "", pid)


def _at(point: str, where: Where) -> list[Entry]:
    who = "author" if point in AUTHOR_POINTS else "worker"
    return [
        Entry(
            f"{who} {verb} at point {point}",
            "6",
            f"{sent} inside the step, between two requests of it",
            partial(AtPoint, point=point, action=action, where=where),
            weight=1,
        )
        for verb, action, sent in (("pauses", "stop", "SIGSTOP"), ("dies", "kill", "SIGKILL"))
    ]


for _point, _where in (POINTS | AUTHOR_POINTS).items():
    enter(_at(_point, _where))
enter(
    [
        Entry(
            "delays at all points",
            "33",
            "half a second at one of 20 passes of any point, in all workers but a veteran",
            partial(Delays, armed="*=sleep:0.5:0.05", most=_ALL),
            weight=4,
        ),
        Entry(
            "delays at all points of one worker",
            "33",
            "a quarter of a second at one of 4 passes",
            partial(Delays, armed="*=sleep:0.25:0.25", most=1),
            weight=4,
        ),
    ]
)
