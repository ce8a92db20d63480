"""A chaos run: random faults one after another, a recovery without faults, the last judgement."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import zkplan
from zkplan.testing.server_process import ServerDidNotStart

from .cluster.cluster import Cluster, Settings
from .faults.fault import Entry, Fault
from .faults.running import EffectCounts, RunningFault
from .faults.target import EVERYBODY
from .recovery import NOTHING_TAKEN, Recovery, Taken
from .report.usage import Usage, usage_of
from .traffic.controls import end_schedule
from .validate.evidence import noticed_s
from .validate.validator import Validator

_TICK_S = 0.1
_USAGE_S = 10.0
_WARM_S = 60.0
#: Between two rounds of faults, in session time-outs: at least, at most.
_BETWEEN = (0.1, 1.0)
#: How many faults a round has, with their weights.
_AT_ONCE = ((1, 2, 3), (70, 25, 5))
#: After so many of a hundred rounds no new fault comes until every plan that stands is done.
_RECOVERIES_PERCENT = 5
#: At the end workers stop within their grace, and clear each other's claims nodes.
_LEAVE_S = 45.0
#: A waiter ends after its present wait; at the end there is no plan to wait for.
_WAITERS_S = 30.0
_NO_SERVER = (ServerDidNotStart, zkplan.ZooKeeperUnavailable)


@dataclass
class Outcome:
    """What a run showed; `began` and `ended` by the monotonic clock."""

    settings: Settings
    #: Has counted what was judged.
    validator: Validator
    began: float
    ended: float = 0.0
    #: Injected faults; and those that took effect, or did not and so proved nothing.
    faults: Counter[str] = field(default_factory=Counter)
    took_effect: Counter[str] = field(default_factory=Counter)
    without_effect: Counter[str] = field(default_factory=Counter)
    #: Injections and healings that another fault of the round has broken off.
    broke_off: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, str] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    #: Transactions after which ZooKeeper's members differed, by their own digests.
    mismatches: list[str] = field(default_factory=list)
    #: The recovery at the end, and those in between.
    drained: Taken = NOTHING_TAKEN
    recoveries: list[Taken] = field(default_factory=list)
    #: For how long S8 excused a repeated attempt of any worker.
    excused_s: float = 0.0
    usage: list[Usage] = field(default_factory=list)
    #: When, of which commit, and with which versions.
    versions: dict[str, object] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.violations


class Run:
    """Drives a cluster: injects, heals, waits, and lets the validator judge."""

    def __init__(
        self,
        cluster: Cluster,
        validator: Validator,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.cluster, self.validator, self.tell = cluster, validator, tell
        self.chance = random.Random(cluster.settings.seed)
        self.outcome = Outcome(cluster.settings, validator, time.monotonic())
        self._pause = threading.Event()
        self._measure_at = 0.0
        #: Whether a fault of this round makes servers end by themselves.
        self._servers_may_end = False
        #: When the last author was there.
        self._authored_at = self.outcome.began
        #: Faults whose healing broke off; healed again when all others are healed.
        self._unhealed: list[Fault] = []
        self.effects = EffectCounts(cluster)

    def warm_up(self) -> None:
        """Wait until tasks run: before, a fault would test nothing of tasks."""
        deadline = time.monotonic() + _WARM_S
        while not self.validator.history.ended_at:
            self._spend(_TICK_S)
            if time.monotonic() > deadline:
                self.outcome.violations.append(f"no task ran within {_WARM_S:g} s, without faults")
                return

    def rounds(self, entries: Sequence[Entry], minutes: float) -> None:
        """Inject random combinations of those faults for so long; without faults just wait."""
        until = time.monotonic() + 60 * minutes
        weights = [entry.weight for entry in entries]
        while time.monotonic() < until and not self.broken():
            (number,) = self.chance.choices(*_AT_ONCE)
            drawn = self.chance.choices(entries, weights, k=number) if entries else []
            self.at_once(list({entry.name: entry for entry in drawn}.values()))
            if self.chance.randrange(100) < _RECOVERIES_PERCENT:
                self.recover()
            self._spend(self.cluster.settings.session_s * self.chance.uniform(*_BETWEEN))

    def recover(self) -> None:
        """Inject nothing until every plan that stands now is done: none may need a fault for it."""
        recovery = self._recovery()
        while recovery.standing and not self.broken():
            self._spend(_TICK_S)
            if recovery.taken.too_long:
                found = self.validator.give_up(recovery.standing)
                self.outcome.violations += found or [_too_long(recovery.taken)]
                break
        self.outcome.recoveries.append(recovery.taken)
        self.tell(f"no new fault for {recovery.taken}")

    def _recovery(self) -> Recovery:
        return Recovery(self.validator, self.cluster.settings.session_s)

    def at_once(self, entries: Sequence[Entry]) -> None:
        """Inject these, hold each for its time, heal them in the order of their times."""
        running: list[RunningFault] = []
        for entry in entries:
            fault = entry.fault()
            why = fault.unable(self.cluster)
            if why:
                self.outcome.skipped[entry.name] = why
                continue
            if any(fault.conflicts(each.fault) for each in running):
                continue
            self._see_servers()
            self._servers_may_end |= fault.ends_servers
            hold_s = self.cluster.settings.session_s * self.chance.uniform(*fault.lasts)
            injected = self._inject(fault)
            running.append(RunningFault(fault, hold_s, time.monotonic(), injected))
        while running:
            for each in list(running):
                each.look(self.cluster)
                if each.is_over(time.monotonic()):
                    self._heal(each)
                    running.remove(each)
            self._spend(_TICK_S if running else 0.0)
        if entries:
            self._mend()

    def broken(self) -> list[str]:
        return [*self.outcome.violations, *self.validator.violations, *self.cluster.violations]

    def finish(self) -> Outcome:
        """No more faults: every plan has to end, every process too, and nothing may be left."""
        cluster, validator = self.cluster, self.validator
        self._mend()
        while self.effects.still_waiting() and not self.broken():
            self._spend(_TICK_S)  # while the processes that may show an effect still live
        cluster.tell_to_end("author")
        self._drain(self._recovery())
        if validator.is_idle(self._authored_at):
            self.outcome.violations += [*validator.never_checked(), *validator.come_back()]
        cluster.tell_to_end("waiter")
        self._wait_for_waiters()
        self._stop_workers()
        self._see_servers()
        validator.check_history()
        return self._sum_up()

    # ---- pieces

    def _inject(self, fault: Fault) -> bool:
        """Whether it was injected, and not broken off."""
        self.tell(f"{fault.name}")
        if fault.shape:
            self.cluster.want(fault.shape)
        # An injection may take seconds, in which it has effects already and the validator judges.
        # Until it is known whom it hits, it may be anybody.
        self.cluster.journal.write("fault", name=fault.name, **EVERYBODY.facts())
        injected = self._goes_on(fault, "inject", lambda: fault.inject(self.cluster, self.chance))
        if injected:
            self.cluster.journal.write("fault aimed", name=fault.name, **fault.target().facts())
        self.outcome.faults[fault.name] += 1
        return injected

    def _heal(self, each: RunningFault) -> None:
        fault = each.fault
        if fault.shape:
            self.cluster.want("")
        each.look(self.cluster)  # before: the healing may hide the effect
        if not self._goes_on(fault, "heal", lambda: fault.heal(self.cluster)):
            self._unhealed.append(fault)
        else:
            self.cluster.journal.write("healed", name=fault.name)
        self.effects.count(each)

    def _goes_on(self, fault: Fault, what: str, step: Callable[[], None]) -> bool:
        """Whether that step of a fault came to its end.

        Another fault of the round may keep a server from serving. That is no violation, as `_mend`
        demands that all serve once that one is healed too; but it is counted.
        """
        try:
            step()
        except _NO_SERVER as error:
            facts = {"name": fault.name, "step": what, "why": str(error)}
            self.cluster.journal.write("fault broke off", **facts)
            self.outcome.broke_off[f"{fault.name} ({what})"] += 1
            self.tell(f"{fault.name}: {what} broke off")
            return False
        return True

    def _mend(self) -> None:
        """Heal what faults of the same round have done to each other."""
        try:
            self.cluster.heal()
            while self._unhealed:
                self._unhealed[-1].heal(self.cluster)
                self.cluster.journal.write("healed", name=self._unhealed.pop().name)
        except _NO_SERVER as error:
            self.outcome.violations.append(f"a server does not start again: {error}")
        self._see_servers()
        self._servers_may_end = False

    def _see_servers(self) -> None:
        """A server that ended by itself is a violation, unless a fault of the round does that."""
        fallen = self.cluster.fallen()
        if not self._servers_may_end:
            self.outcome.violations += fallen

    def _drain(self, recovery: Recovery) -> None:
        """Until the last plan is done, or its time is over."""
        outcome = self.outcome
        self._authored_at = time.monotonic()
        while not self._is_over():
            self._spend(_TICK_S)
            recovery.see()
            if recovery.taken.too_long:
                found = self.validator.give_up(self.validator.standing)
                authors = [author for author in self.cluster.of("author") if author.running]
                found += [f"L3 {each.name} was told to end, and still adds" for each in authors]
                outcome.violations += found or [_too_long(recovery.taken)]
                break
        outcome.drained = recovery.taken

    def _wait_for_waiters(self) -> None:
        """Until each has ended; `Cluster.tend` judges its exit code."""
        deadline = time.monotonic() + _WAITERS_S
        while not self.broken():
            self._spend(_TICK_S)
            left = [waiter for waiter in self.cluster.of("waiter") if waiter.running]
            if not left:
                return
            if time.monotonic() > deadline:
                self.outcome.violations += [
                    f"{waiter.name} was told to end, and is there after {_WAITERS_S:g} s"
                    for waiter in left
                ]

    def _is_over(self) -> bool:
        """Whether no plan stands at a look after the last author has ended."""
        if any(author.running for author in self.cluster.of("author")):
            self._authored_at = time.monotonic()
        return bool(self.outcome.violations) or self.validator.is_idle(self._authored_at)

    def _stop_workers(self) -> None:
        """The workers stop cleanly; before the last one goes, every claims node must be cleared."""
        if self.broken():
            return
        if self.cluster.settings.controls:
            with self.cluster.connect(connect_timeout=_LEAVE_S) as client:
                end_schedule(client)
        deadline = time.monotonic() + _LEAVE_S
        *most, last = self.cluster.workers
        for worker in most:
            self.cluster.stop(worker, "the end")
        living = 1
        while time.monotonic() < deadline and len(self.validator.orphans()) > 2 * living:
            self._pause.wait(_TICK_S)
        self.cluster.stop(last, "the end")
        self.outcome.violations += [*self.validator.orphans(), *self.validator.left_in_store()]

    def _spend(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self.cluster.tend()
            self._see_servers()
            self.effects.still_waiting()
            self._measure()
            left = until - time.monotonic()
            if left <= 0:
                return
            self._pause.wait(min(_TICK_S, left))

    def _measure(self) -> None:
        """What the long-lived processes use now."""
        now = time.monotonic()
        if now < self._measure_at:
            return
        self._measure_at = now + _USAGE_S
        for process in self.cluster.processes:
            if process.long_lived and process.pid:
                noted = self.validator.history.blocks.get(process.pid, (now, 0))
                self.outcome.usage.append(usage_of(process.name, process.pid, now, noted))

    def _sum_up(self) -> Outcome:
        outcome = self.outcome
        outcome.ended = time.monotonic()
        outcome.violations = self.broken()
        self.effects.give_up()  # there is a violation, and no process to show an effect
        outcome.took_effect = self.effects.took_effect
        outcome.without_effect = self.effects.without_effect
        outcome.excused_s = self.validator.history.excused_s(
            outcome.began, outcome.ended, noticed_s(outcome.settings.session_s)
        )
        outcome.mismatches = self.cluster.mismatches()
        return outcome


def _too_long(taken: Taken) -> str:
    return (
        f"L3 without new faults it took {taken.seconds:.1f} s, and {taken.allowed_s:.1f} s are "
        "allowed; at the second look no plan stood any more"
    )
