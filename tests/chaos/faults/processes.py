"""Faults of processes: killed, stopped past their session, told to stop, expired; and in tasks."""

from __future__ import annotations

import random
import signal
import threading
from functools import partial

from ..actors.tasks import EXIT_CODE, poke
from ..world.arena import Actor, Arena, Role
from ..world.link import Weather
from .aim import Aim
from .fault import Entry, Fault, Sessions, enter

#: How the process ends whose task does that. One that does anything else outlives it.
_ENDS = {"exit": [EXIT_CODE], "segfault": [-signal.SIGSEGV]}
#: A process that is paused for so many sessions has lost its own.
PAST_SESSION = (1.4, 2.0)


class Killed(Fault):
    """SIGKILL to one, or to all, of a role; started again when it heals."""

    lasts = (0.0, 0.3)

    def __init__(self, name: str, role: Role, everyone: bool = False) -> None:
        super().__init__(name)
        self.role, self.everyone = role, everyone

    def inject(self, arena: Arena, chance: random.Random) -> None:
        actors = arena.mortals(self.role)
        self.victims = actors if self.everyone else [chance.choice(actors)]
        for actor in self.victims:
            arena.kill(actor, self.name)

    def heal(self, arena: Arena) -> None:
        for actor in self.victims:
            arena.start(actor)


class Drained(Killed):
    """SIGTERM to one; whatever it does not end within its grace is handed back."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "worker")

    def inject(self, arena: Arena, chance: random.Random) -> None:
        self.victims = [chance.choice(arena.mortals(self.role))]
        if not arena.stop(self.victims[0], self.name, 15):
            arena.too_slow.append(f"{self.victims[0].name} did not stop within 15 s of SIGTERM")

    def aim(self) -> Aim:
        return Aim(names=[actor.name for actor in self.victims], hands_back=True)


class Paused(Fault):
    """SIGSTOP to one, or to all, of a role, until it heals."""

    lasts = PAST_SESSION
    shows_late = True

    def __init__(self, name: str, role: Role, everyone: bool = False) -> None:
        super().__init__(name)
        self.role, self.everyone = role, everyone

    def inject(self, arena: Arena, chance: random.Random) -> None:
        actors = arena.of(self.role)
        self.victims = actors if self.everyone else [chance.choice(actors)]
        self._sessions = Sessions(self.victims)
        for actor in self.victims:
            arena.pause(actor)

    def felt(self, arena: Arena) -> bool:
        return self._sessions.are_over()

    def heal(self, arena: Arena) -> None:
        for actor in self.victims:
            arena.resume(actor)


class PausedShortly(Paused):
    """SIGSTOP for less than the session."""

    lasts = (0.1, 0.5)

    def felt(self, arena: Arena) -> bool:
        return True


class Expired(Fault):
    """A second client with the same id and password closes the session, for real."""

    lasts = (0.0, 0.2)
    shows_late = True

    def __init__(self, name: str, role: Role, everyone: bool = False) -> None:
        super().__init__(name)
        self.role, self.everyone = role, everyone

    def inject(self, arena: Arena, chance: random.Random) -> None:
        actors = arena.of(self.role)
        self.victims = actors if self.everyone else [chance.choice(actors)]
        self._sessions = Sessions(self.victims)
        for actor in self.victims:
            arena.expire(actor)

    def felt(self, arena: Arena) -> bool:
        return self._sessions.are_over()

    def heal(self, arena: Arena) -> None:
        """Nothing to mend: the client itself has to."""


class AtStep(Fault):
    """Something happens to a process between the sending of a step and its answer."""

    lasts = (0.1, 0.5)
    waits_s = 15.0

    def __init__(self, name: str, role: Role, step: str, what: str) -> None:
        super().__init__(name)
        self.role, self.step, self.what = role, step, what
        if what == "pause":
            self.lasts = PAST_SESSION
        self._once = threading.Lock()
        self._hit = False

    def inject(self, arena: Arena, chance: random.Random) -> None:
        actor = chance.choice(arena.mortals(self.role))
        self.victims = [actor]
        # The answer is held back, so that the process cannot act on it before it is hit.
        weather = Weather(answer_delay_s=0.02, seen=partial(self._seen, arena, actor))
        actor.link.change(weather)

    def _seen(self, arena: Arena, actor: Actor, step: str) -> None:
        if step != self.step or not self._once.acquire(blocking=False):
            return
        self._hit = True
        match self.what:
            case "kill":
                arena.kill(actor, self.name)
            case "pause":
                arena.pause(actor)
            case _:
                threading.Thread(target=arena.expire, args=(actor,), daemon=True).start()

    def felt(self, arena: Arena) -> bool:
        return self._hit

    def heal(self, arena: Arena) -> None:
        self._once.acquire(blocking=False)
        for actor in self.victims:
            actor.link.heal()
            arena.start(actor)


class Poked(Fault):
    """The next task that begins does it to the worker that runs it."""

    lasts = (0.1, 0.5)
    waits_s = 15.0

    def __init__(self, name: str, what: str, sessions: float = 0.0) -> None:
        super().__init__(name)
        self.what, self.sessions = what, sessions
        self.stops_from_inside = what == "stop"
        if self.stops_from_inside:
            self.lasts = PAST_SESSION
        elif sessions:
            self.lasts = (sessions, sessions + 0.3)

    def inject(self, arena: Arena, chance: random.Random) -> None:
        seconds = self.sessions * arena.settings.session_s
        self._poke = poke(arena.folder, self.what, str(seconds))

    def aim(self) -> Aim:
        return Aim(poke=self.what, codes=_ENDS.get(self.what, ()))

    def felt(self, arena: Arena) -> bool:
        return self._poke.was_taken()

    def heal(self, arena: Arena) -> None:
        self._poke.take_back()
        if self.what == "stop":
            for actor in arena.workers:
                arena.resume(actor)


def _entries() -> list[Entry]:
    roles: tuple[Role, ...] = ("worker", "author", "waiter")
    found = [
        Entry(f"{role} {verb}", case, f"{does}, {role}", partial(fault, role=role))
        for verb, case, does, fault in (
            ("killed", "1", "SIGKILL", Killed),
            ("paused", "4", "SIGSTOP past its session", Paused),
            ("expired", "10", "a second client closes its session", Expired),
        )
        for role in roles
    ]
    steps: tuple[tuple[Role, str, str], ...] = (
        ("worker", "claim", "2"),
        ("worker", "commit", "8"),
        ("worker", "publish", "3"),
        ("author", "add", "32"),
    )
    for role, step, case in steps:
        for what, verb in (("kill", "killed"), ("pause", "paused"), ("expire", "expired")):
            found.append(
                Entry(
                    f"{role} {verb} at {step}",
                    case if what != "expire" else "10",
                    f"between the sending of the {step} and its answer",
                    partial(AtStep, role=role, step=step, what=what),
                    weight=1,
                )
            )
    return found


enter(_entries())
enter(
    [
        Entry(
            "all workers killed",
            "1",
            "SIGKILL to all at once",
            partial(Killed, role="worker", everyone=True),
            weight=1,
        ),
        Entry(
            "all workers paused",
            "5",
            "all past their sessions: nobody clears their desks",
            partial(Paused, role="worker", everyone=True),
            weight=1,
        ),
        Entry(
            "all workers expired",
            "10",
            "every session at once",
            partial(Expired, role="worker", everyone=True),
            weight=1,
        ),
        Entry(
            "worker paused shortly",
            "4",
            "SIGSTOP for less than its session",
            partial(PausedShortly, role="worker"),
        ),
        Entry("worker told to stop", "36", "SIGTERM: drained or handed back", Drained),
        Entry("task exits", "27", "a task calls os._exit", partial(Poked, what="exit")),
        Entry("task segfaults", "27", "a task reads address 0", partial(Poked, what="segfault")),
        Entry(
            "task holds the interpreter",
            "27",
            "a task keeps the interpreter lock past the session",
            partial(Poked, what="hold interpreter", sessions=1.5),
        ),
        Entry(
            "task forks",
            "27",
            "a task leaves a child that holds the sockets",
            partial(Poked, what="fork", sessions=2.0),
        ),
        Entry(
            "task eats memory",
            "27",
            "a task uses up what RLIMIT_AS allows its process",
            partial(Poked, what="memory"),
        ),
        Entry(
            "worker paused in a task",
            "6",
            "SIGSTOP past the session between load and commit",
            partial(Poked, what="stop"),
        ),
    ]
)
