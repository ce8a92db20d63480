"""Faults of processes: killed, stopped past their session, told to stop, expired; and in tasks."""

from __future__ import annotations

import random
import signal
import threading
from functools import partial

from zkplan.cli import EXIT_UNREACHABLE
from zkplan.runtime.shutdown import DELIVER_S

from ..actors.tasks import EXIT_CODE, poke
from ..world.arena import GRACE_S, Actor, Arena, Role
from ..world.link import Weather
from ..world.proc import is_gone, is_stopped
from .aim import Aim
from .fault import Entry, Fault, Sessions, enter, links_of, stops_of

#: How the process ends whose task does that. One that does anything else outlives it. Without
#: memory the interpreter aborts or crashes, or the MemoryError meets its main thread, or that of
#: the connection: then the worker ends when it has been silent for two thirds of its session. What
#: holds it up in its end is ended by its alarm.
_ENDS = {
    "exit": [EXIT_CODE],
    "segfault": [-signal.SIGSEGV],
    "memory": [-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGALRM, 1, EXIT_UNREACHABLE],
}
#: How long after it has given up waiting for answers a worker that is told to stop has ended.
_GIVEN_UP_S = 7.0
#: A process that is paused for so many sessions has lost its own.
PAST_SESSION = (1.4, 2.0)


def stops_within_s(session_s: float) -> float:
    """How long a worker takes at most that is told to stop, whatever other faults do meanwhile."""
    return GRACE_S + max(DELIVER_S, session_s) + _GIVEN_UP_S


class Killed(Fault):
    """SIGKILL to one, or to all, of a role; started again when it heals."""

    lasts = (0.0, 0.3)
    #: How its process ends by it: a code, or the number of a signal, negative.
    code: int = -signal.SIGKILL

    def __init__(self, name: str, role: Role, everyone: bool = False) -> None:
        super().__init__(name)
        self.role, self.everyone = role, everyone
        self._pids: list[int] = []

    def inject(self, arena: Arena, chance: random.Random) -> None:
        actors = arena.mortals(self.role)
        self.victims = actors if self.everyone else [chance.choice(actors)]
        # Another fault may have ended some of them.
        self._pids = [actor.pid for actor in self.victims if actor.pid]
        for actor in self.victims:
            self._end(arena, actor)

    def _end(self, arena: Arena, actor: Actor) -> None:
        arena.kill(actor, self.name)

    def felt(self, arena: Arena) -> bool:
        ended = [arena.endings.get(pid) for pid in self._pids]
        return bool(ended) and all(code == self.code for code in ended)

    def heal(self, arena: Arena) -> None:
        for actor in self.victims:
            arena.start(actor)


class Drained(Killed):
    """SIGTERM to one; whatever it does not end within its grace is handed back."""

    code = 0

    def __init__(self, name: str) -> None:
        super().__init__(name, "worker")

    @property
    def claims(self) -> frozenset[str]:
        """Who is told to stop is told to go on, once: stopped after that, it does not end."""
        return stops_of("worker")

    def _end(self, arena: Arena, actor: Actor) -> None:
        arena.stop(actor, self.name, stops_within_s(arena.settings.session_s))

    def aim(self) -> Aim:
        return Aim(names=[actor.name for actor in self.victims], hands_back=True)


class Paused(Fault):
    """SIGSTOP to one, or to all, of a role, until it heals."""

    lasts = PAST_SESSION
    shows_late = True

    def __init__(self, name: str, role: Role, everyone: bool = False) -> None:
        super().__init__(name)
        self.role, self.everyone = role, everyone

    @property
    def claims(self) -> frozenset[str]:
        return stops_of(self.role)

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
    shows_late = False

    def felt(self, arena: Arena) -> bool:
        return all(actor.paused and is_stopped(actor.pid) for actor in self.victims)


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
        # Later its session may end by something else.
        done = [arena.expire(actor) for actor in self.victims]
        self._is_done = all(done)

    def felt(self, arena: Arena) -> bool:
        return self._is_done and self._sessions.are_over()

    def heal(self, arena: Arena) -> None:
        """Nothing to mend: the client itself has to."""


#: The plans in which a step is sure to be sent.
_SHAPES = {"publish": "diamonds"}


class AtStep(Fault):
    """Something happens to a process between the sending of a step and its answer."""

    lasts = (0.1, 0.5)
    waits_s = 15.0

    def __init__(self, name: str, role: Role, step: str, what: str) -> None:
        super().__init__(name)
        self.role, self.step, self.what = role, step, what
        self.shape = _SHAPES.get(step, "")
        if what == "pause":
            self.lasts = PAST_SESSION
        self.shows_late = what == "expire"
        #: Taken by the first such step that comes, and by the first that was sent.
        self._once, self._hit_once = threading.Lock(), threading.Lock()
        self._is_over = threading.Event()
        self._is_hit = False
        self._sessions: Sessions | None = None

    @property
    def claims(self) -> frozenset[str]:
        stops = stops_of(self.role) if self.what == "pause" else frozenset()
        return super().claims | links_of(self.role) | stops

    def inject(self, arena: Arena, chance: random.Random) -> None:
        actor = chance.choice(arena.mortals(self.role))
        self.victims = [actor]
        weather = Weather()
        weather.lose = partial(self._comes, weather)
        weather.seen = partial(self._seen, arena, actor, weather)
        actor.link.change(weather)

    def _comes(self, weather: Weather, step: str, number: int) -> None:
        """Its answer is held back, so that the process cannot act on it before it is hit.

        Until it is: an expired one gets no answer before its session is over. Only this one: whom
        each answer reaches late gets no work where others are faster.
        """
        if step == self.step and self._once.acquire(blocking=False):
            weather.hold_answers = True

    def _seen(self, arena: Arena, actor: Actor, weather: Weather, step: str) -> None:
        # More of that step may be sent while the answers are held.
        if step != self.step or not weather.hold_answers or not self._hit_once.acquire(False):
            return
        if self.what == "expire":
            # On a thread of its own: what its client sends meanwhile goes on.
            threading.Thread(target=self._hit, args=(arena, actor, weather), daemon=True).start()
        else:
            self._hit(arena, actor, weather)

    def _hit(self, arena: Arena, actor: Actor, weather: Weather) -> None:
        try:
            self._do(arena, actor)
        finally:
            weather.hold_answers = False
            self._is_over.set()

    def _do(self, arena: Arena, actor: Actor) -> None:
        match self.what:
            case "kill":
                pid = actor.pid
                arena.kill(actor, self.name)
                self._is_hit = arena.endings.get(pid) == -signal.SIGKILL
            case "pause":
                arena.pause(actor)
                self._is_hit = is_stopped(actor.pid)
            case _:
                self._sessions = Sessions([actor])
                self._is_hit = arena.expire(actor)

    def felt(self, arena: Arena) -> bool:
        return self._is_hit and (self._sessions is None or self._sessions.are_over())

    def heal(self, arena: Arena) -> None:
        self._once.acquire(blocking=False)
        if self._hit_once.acquire(blocking=False):
            self._is_over.set()  # nobody is hit any more; one that is healed again does not wait
        self._is_over.wait()  # who is being hit is not mended before
        for actor in self.victims:
            actor.link.heal()
            if self.what == "pause":
                arena.resume(actor)
            arena.start(actor)


class Poked(Fault):
    """The next task that begins does it to the worker that runs it."""

    lasts = (0.1, 0.5)
    waits_s = 15.0

    def __init__(self, name: str, what: str, sessions: float = 0.0) -> None:
        super().__init__(name)
        self.what, self.sessions = what, sessions
        if what == "memory":
            # Whose loop has ended may live on without memory until SIGALRM ends it.
            self.waits_s = 45.0
        if what == "stop":
            self.lasts = PAST_SESSION
        elif sessions:
            self.lasts = (sessions, sessions + 0.3)

    @property
    def claims(self) -> frozenset[str]:
        return stops_of("worker") if self.what == "stop" else frozenset()

    def inject(self, arena: Arena, chance: random.Random) -> None:
        seconds = self.sessions * arena.settings.session_s
        self._poke = poke(arena.folder, self.what, str(seconds))

    def aim(self) -> Aim:
        return Aim(poke=self.what, codes=_ENDS.get(self.what, ()))

    def felt(self, arena: Arena) -> bool:
        for pid, did, number in self._poke.account():
            match did:
                case "exits":
                    return arena.endings.get(pid) == EXIT_CODE
                case "segfaults":
                    return arena.endings.get(pid) == -signal.SIGSEGV
                case "stops":
                    return is_stopped(pid)
                case "held the interpreter":
                    return number >= arena.settings.session_s
                case "forked":
                    return not is_gone(int(number))
                case "refused":
                    # Who lives on has lost a thread, or nothing: that is not what it aims at.
                    return number > 0 and arena.endings.get(pid) in _ENDS["memory"]
        return False

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
            "SIGKILL to all but a veteran at once",
            partial(Killed, role="worker", everyone=True),
            weight=1,
        ),
        Entry(
            "all workers paused",
            "5",
            "all past their sessions: nobody clears their claims nodes",
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
