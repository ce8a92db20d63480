"""A chaos run from beginning to end: random faults one after another, peace, the last judgement."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import zkplan
from zkplan.stress.history import journal_of
from zkplan.testing.server_process import ServerDidNotStart

from .faults.aim import EVERYBODY
from .faults.fault import Entry, Fault
from .peace import Breath, Peace
from .under_way import Felt, UnderWay
from .validate.evidence import noticed_s
from .validate.measures import Coverage, Effects, Takeover
from .validate.validator import Validator
from .vitals import Vitals, vitals_of
from .world.arena import Arena, Settings

_TICK_S = 0.1
_VITALS_S = 10.0
_WARM_S = 60.0
#: Peace between faults, in session time-outs.
_PEACE = (0.1, 1.0)
#: How many faults at once, with these weights.
_AT_ONCE = ((1, 70), (2, 25), (3, 5))
#: In so many of a hundred rounds no new fault comes until every plan that stands then is done.
_BREATHS_PERCENT = 5
#: Workers that are told to stop at the end do so within their grace, and clear each other's claims
#: nodes.
_LEAVE_S = 45.0
#: A waiter looks whether it is to end after each wait for a plan; at the end none stands.
_WAITERS_S = 30.0
_NO_SERVER = (ServerDidNotStart, zkplan.ZooKeeperUnavailable)


@dataclass
class Outcome:
    """What a run showed; times in seconds of the monotonic clock, `began` is where they start."""

    settings: Settings
    began: float
    ended: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    felt: Counter[str] = field(default_factory=Counter)
    #: Faults that nobody has felt, and will not: they have proved nothing.
    unfelt: Counter[str] = field(default_factory=Counter)
    #: Injections and healings that another fault of the same moment has cut short.
    broke_off: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, str] = field(default_factory=dict)
    marks: list[tuple[float, float, str]] = field(default_factory=list)
    takeovers: list[Takeover] = field(default_factory=list)
    effects: Effects = field(default_factory=Effects)
    coverage: Coverage = field(default_factory=Coverage)
    ended_at: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    #: After which transactions ZooKeeper's members differed, by their own digests.
    mismatches: list[str] = field(default_factory=list)
    shapes: Counter[str] = field(default_factory=Counter)
    plans: int = 0
    tasks: int = 0
    executions: int = 0
    half_defined: int = 0
    drained_s: float = 0.0
    drain_allowed_s: float = 0.0
    breaths: list[Breath] = field(default_factory=list)
    #: By fault: after how many seconds with servers again a task began.
    back_s: list[tuple[str, float]] = field(default_factory=list)
    #: For how long a repeated attempt of any worker was excused.
    excused_s: float = 0.0
    vitals: list[Vitals] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    trouble: list[str] = field(default_factory=list)
    #: When, of which commit and with which versions.
    origin: dict[str, object] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.violations


class Run:
    """Drives an arena: injects, heals, waits, and lets the validator judge."""

    def __init__(
        self,
        arena: Arena,
        validator: Validator,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._back: list[tuple[str, float]] = []
        self.arena, self.validator, self.tell = arena, validator, tell
        self.chance = random.Random(arena.settings.seed)
        self.outcome = Outcome(arena.settings, time.monotonic())
        self._pause = threading.Event()
        self._measure_at = 0.0
        #: Whether a fault of this round makes servers end by themselves.
        self._servers_may_fall = False
        #: When the last author was there.
        self._left_at = self.outcome.began
        #: Faults whose healing broke off; they are healed when all others are.
        self._unhealed: list[Fault] = []
        self.felt = Felt(arena, self.outcome.felt, self.outcome.unfelt)

    def warm_up(self) -> None:
        """Until tasks run: a fault before the first task tests nothing of tasks."""
        deadline = time.monotonic() + _WARM_S
        while not self.validator.history.ended_at:
            self._spend(_TICK_S)
            if time.monotonic() > deadline:
                self.outcome.violations.append(f"no task ran within {_WARM_S:g} s, without faults")
                return

    def rounds(self, entries: Sequence[Entry], minutes: float) -> None:
        """Random combinations of those faults for that long, or until something is violated."""
        until = time.monotonic() + 60 * minutes
        weights = [entry.weight for entry in entries]
        while time.monotonic() < until and not self.broken():
            number = self.chance.choices(
                [count for count, _ in _AT_ONCE], [weight for _, weight in _AT_ONCE]
            )[0]
            chosen = {
                entry.name: entry for entry in self.chance.choices(entries, weights, k=number)
            }
            self.at_once(list(chosen.values()))
            if self.chance.randrange(100) < _BREATHS_PERCENT:
                self.breathe()
            self._spend(self.arena.settings.session_s * self.chance.uniform(*_PEACE))

    def breathe(self) -> None:
        """No new fault until every plan that stands now is done: none may need one to go on."""
        peace = self._peace()
        while peace.standing and not self.broken():
            self._spend(_TICK_S)
            if peace.lasted_s > peace.allowed_s:
                standing = self.validator.give_up(peace.standing)
                self.outcome.violations += standing or [_missed(peace)]
                break
        breath = Breath(len(peace.names), peace.lasted_s, peace.allowed_s)
        self.outcome.breaths.append(breath)
        self.tell(f"no new fault for {breath.lasted_s:.1f} s of {breath.allowed_s:.0f}")

    def _peace(self) -> Peace:
        return Peace(self.validator, self.arena.settings.session_s)

    def rest(self, minutes: float) -> None:
        """No faults at all: what the others are compared with."""
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until and not self.broken():
            self._spend(1.0)

    def at_once(self, entries: Sequence[Entry]) -> None:
        """Inject these, hold each for its time, heal them in the order of their times."""
        under_way: list[UnderWay] = []
        for entry in entries:
            fault = entry.fault()
            why = fault.unable(self.arena)
            if why:
                self.outcome.skipped[entry.name] = why
                continue
            if any(fault.claims & each.fault.claims for each in under_way):
                continue  # they would undo each other
            self._see_servers()
            self._servers_may_fall |= fault.breaks_servers
            hold_s = self.arena.settings.session_s * self.chance.uniform(*fault.lasts)
            whole = self._inject(fault)
            under_way.append(UnderWay(fault, hold_s, time.monotonic(), whole))
        while under_way:
            for each in list(under_way):
                if each.is_over(time.monotonic(), each.look(self.arena)):
                    self._heal(each)
                    under_way.remove(each)
            self._spend(_TICK_S if under_way else 0.0)
        if entries:
            self._mend()

    def broken(self) -> list[str]:
        return [*self.outcome.violations, *self.validator.violations, *self.arena.too_slow]

    def finish(self) -> Outcome:
        """No more faults: everything must come to its end, and nothing may be left."""
        arena, validator = self.arena, self.validator
        self._mend()
        while self.felt.still_waiting() and not self.broken():
            self._spend(_TICK_S)  # before anybody ends who may have to show it
        arena.end_authors()
        self._drain(self._peace())
        if validator.is_idle(self._left_at):
            self.outcome.violations += [*validator.never_checked(), *validator.come_back()]
        arena.end_waiters()
        self._see_off_waiters()
        self._leave_nothing()
        self._see_servers()
        validator.check_history()
        return self._sum_up()

    # ---- pieces

    def _inject(self, fault: Fault) -> bool:
        self.tell(f"{fault.name}")
        begin = time.monotonic()
        if fault.shape:
            self.arena.want(fault.shape)
        # To inject it may take seconds, in which it is felt, and the validator judges: until it is
        # known whom it hits, it may be anybody.
        self.arena.journal.write("fault", name=fault.name, **EVERYBODY.facts())
        whole = self._goes_on(fault, "inject", lambda: fault.inject(self.arena, self.chance))
        if whole:
            self.arena.journal.write("fault aimed", name=fault.name, **fault.aim().facts())
        self.outcome.faults[fault.name] += 1
        self.outcome.marks.append((begin, float("inf"), fault.name))
        return whole

    def _heal(self, each: UnderWay) -> None:
        fault = each.fault
        if fault.shape:
            self.arena.want("")
        # Asked before: what is mended does not show any more that it was broken.
        each.look(self.arena)
        if not self._goes_on(fault, "heal", lambda: fault.heal(self.arena)):
            self._unhealed.append(fault)
        else:
            self._is_healed(fault)
        self.felt.count(each)

    def _is_healed(self, fault: Fault) -> None:
        self.arena.journal.write("healed", name=fault.name)
        now = time.monotonic()
        if fault.is_outage:
            self._back.append((fault.name, now))
        self.outcome.marks = [
            (begin, now, name) if name == fault.name and end == float("inf") else (begin, end, name)
            for begin, end, name in self.outcome.marks
        ]

    def _goes_on(self, fault: Fault, what: str, step: Callable[[], None]) -> bool:
        """Whether that step of a fault came to its end.

        Another fault of the same moment may keep a server from serving. That is no finding, for
        `_mend` demands that all serve once that one is healed too; it is told all the same.
        """
        try:
            step()
        except _NO_SERVER as error:
            self.arena.journal.write("fault broke off", name=fault.name, step=what, why=str(error))
            self.outcome.broke_off[f"{fault.name} ({what})"] += 1
            self.tell(f"{fault.name}: {what} broke off")
            return False
        return True

    def _mend(self) -> None:
        """What faults at the same time have done to each other."""
        try:
            self.arena.heal()
            while self._unhealed:
                self._unhealed[-1].heal(self.arena)
                self._is_healed(self._unhealed.pop())
        except _NO_SERVER as error:
            self.outcome.violations.append(f"a server does not start again: {error}")
        self._see_servers()
        self._servers_may_fall = False

    def _see_servers(self) -> None:
        """A server ends by itself only where a fault of this round makes it."""
        fallen = self.arena.fallen()
        if not self._servers_may_fall:
            self.outcome.violations += fallen

    def _drain(self, peace: Peace) -> None:
        """Until the last plan is done, or its time is over."""
        outcome = self.outcome
        self._left_at = time.monotonic()
        while not self._is_over():
            self._spend(_TICK_S)
            peace.see()
            if peace.lasted_s > peace.allowed_s:
                standing = self.validator.give_up(self.validator.standing)
                outcome.violations += [*standing, *self._still_there()] or [_missed(peace)]
                break
        outcome.drained_s, outcome.drain_allowed_s = peace.lasted_s, peace.allowed_s

    def _still_there(self) -> list[str]:
        authors = [actor for actor in self.arena.of("author") if actor.process is not None]
        return [f"L3 {actor.name} was told to end, and adds all the same" for actor in authors]

    def _see_off_waiters(self) -> None:
        """Until each has ended; that it did so with 0 is for `tend` to see, as of everybody."""
        deadline = time.monotonic() + _WAITERS_S
        while not self.broken():
            self._spend(_TICK_S)
            left = [actor for actor in self.arena.of("waiter") if actor.process is not None]
            if not left:
                return
            if time.monotonic() > deadline:
                self.outcome.violations += [
                    f"{actor.name} was told to end, and is there after {_WAITERS_S:g} s"
                    for actor in left
                ]

    def _is_over(self) -> bool:
        """The last plan is looked for after the last author has ended."""
        if any(actor.process is not None for actor in self.arena.of("author")):
            self._left_at = time.monotonic()
        return bool(self.outcome.violations) or self.validator.is_idle(self._left_at)

    def _leave_nothing(self) -> None:
        """The workers stop cleanly; before the last goes, every claims node must be cleared."""
        if self.broken():
            return
        deadline = time.monotonic() + _LEAVE_S
        *most, last = self.arena.workers
        for actor in most:
            self.arena.stop(actor, "the end")
        living = 1
        while time.monotonic() < deadline and len(self.validator.orphans()) > 2 * living:
            self._pause.wait(_TICK_S)
        self.arena.stop(last, "the end")
        self.outcome.violations += self.validator.orphans()

    def _spend(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self.arena.tend()
            self._see_servers()
            self.felt.still_waiting()
            self._measure()
            left = until - time.monotonic()
            if left <= 0:
                return
            self._pause.wait(min(_TICK_S, left))

    def _measure(self) -> None:
        """How those fare that no fault ends."""
        now = time.monotonic()
        if now < self._measure_at:
            return
        self._measure_at = now + _VITALS_S
        for actor in self.arena.actors:
            if actor.spared and actor.pid:
                journal = journal_of(self.arena.folder, actor.pid)
                self.outcome.vitals.append(vitals_of(actor.name, actor.pid, now, journal))

    def _sum_up(self) -> Outcome:
        outcome, validator = self.outcome, self.validator
        outcome.ended = time.monotonic()
        outcome.violations = self.broken()
        self.felt.give_up()  # something is broken
        outcome.effects, outcome.coverage = validator.effects, validator.coverage
        outcome.takeovers, outcome.shapes = validator.takeovers, validator.shapes
        outcome.plans, outcome.tasks = validator.finished, validator.tasks
        outcome.executions, outcome.half_defined = validator.executions, validator.half_defined
        for name, healed in self._back:
            seconds = validator.history.goes_on_s(healed)
            if seconds is not None:
                outcome.back_s.append((name, seconds))
        outcome.ended_at = list(validator.history.ended_at)
        outcome.excused_s = validator.history.excused_s(
            outcome.began, outcome.ended, noticed_s(outcome.settings.session_s)
        )
        outcome.mismatches = self.arena.mismatches()
        outcome.trouble = [str(line)[:400] for line in validator.history.unplanned]
        for actor in self.arena.actors:
            outcome.lost.update(actor.link.lost)
        return outcome


def _missed(peace: Peace) -> str:
    return (
        f"L3 without new faults it took {peace.lasted_s:.1f} s, and {peace.allowed_s:.1f} s are "
        "allowed; at the second look nothing stood any more"
    )
