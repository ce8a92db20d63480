"""The referee: watches every plan from its own thread, checks each that is done, removes it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import zkplan
from tests.sim.world import ROOT
from zkplan.codec import FAILURE, VALUE, load
from zkplan.requests import ReadChildren, ReadData, ReadMany
from zkplan.stress.harness import remains_of

from .arena import Arena
from .checks import Case, Kept, Left, committed_numbers, late_executions, violations
from .ledger import Execution, Ledger, PlanHistory

#: A done plan stands that long before it is removed: waiters should find it.
_SHOWN_S = 1.0
_LOOK_S = 0.3
#: What an author that is gone was defining is given up after that.
_HALF_DEFINED_S = 5.0
_BATCH = 200


class Takeover(NamedTuple):
    """A task went on `seconds` after the process that ran it had ended, for the reason `why`."""

    at: float
    seconds: float
    why: str


class Referee:
    """Reads the histories and judges. `violations` grows; `finished` counts checked plans."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.ledger = Ledger(arena.folder, arena.settings.shape)
        self.violations: list[str] = []
        self.takeovers: list[Takeover] = []
        self.shapes: Counter[str] = Counter()
        self.tasks = self.executions = self.finished = 0
        self.errors: list[str] = []
        #: Names of the plans that stood at the last look.
        self.standing: list[str] = []
        self.progress = time.monotonic()
        self.half_defined = 0
        self._left_since: dict[str, float] = {}
        self._done_since: dict[str, float] = {}
        self._adopted: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="referee", daemon=True)

    def __enter__(self) -> Referee:
        self._client = zkplan.connect(
            self.arena.servers.hosts, ROOT, connect_timeout=60.0, patience=5.0
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        self._client.close()

    def is_idle(self) -> bool:
        """Whether no plan stands any more."""
        return not self.standing

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
            except (zkplan.KeeperUnavailable, zkplan.PlanNotFound) as error:
                self.errors.append(repr(error)[:200])
            except Exception as error:  # A referee that stops silently would find nothing.
                self.violations.append(f"the referee itself failed: {error!r}")
                raise
            self._stop.wait(_LOOK_S)

    def _look(self) -> None:
        self.ledger.read()
        self.violations += late_executions(self.ledger)
        plans = self._client.plans()
        for plan in plans:
            history = self.ledger.plans.get(plan.name)
            if history is not None:
                self._look_at(plan, history)
        self.standing = [plan.name for plan in plans]

    def _look_at(self, plan: zkplan.Plan, history: PlanHistory) -> None:
        if history.committed is not None:
            plan.remove()  # an earlier removal was cut short
            return
        left = self.ledger.has_left(history)
        if left and not history.closed and plan.name not in self._adopted:
            self._adopted.add(plan.name)
            plan.mark_ready()
        status = plan.status()
        if left and status.state == "running" and status.tasks:
            self._remove_half_defined(plan, history)
        if not left or status.state != "done":
            if left and status.state == "running" and not status.tasks:
                plan.is_drained()  # an adopted plan without tasks has no worker that ends it
            return
        since = self._done_since.setdefault(plan.name, time.monotonic())
        if time.monotonic() - since < _SHOWN_S:
            return
        self.ledger.read()
        case = Case(
            history,
            left_of(self._client, plan, status.added),
            self.ledger,
            self.arena.settings.session_s,
            self.arena.settings.soon_s,
        )
        self._judge(case)
        plan.remove()

    def _judge(self, case: Case) -> None:
        self.violations += violations(case)
        history = case.plan
        history.committed = committed_numbers(case)
        self.takeovers += takeovers(self.ledger, history.executions.values())
        self.finished += 1
        self.shapes[history.workload.shape] += 1
        self.tasks += case.left.added
        self.executions += len(case.everything)
        self.progress = time.monotonic()
        # What was judged is not looked at again; a long run must not fill the memory.
        history.executions.clear()
        history.waited.clear()
        history.workload.forget()

    def give_up(self) -> list[str]:
        """What stands though it should be done, and why as far as zkplan itself can tell."""
        found = []
        for plan in self._client.plans():
            status, report = plan.status(), plan.check(repair=False)
            history = self.ledger.plans.get(plan.name)
            found.append(
                f"L3 {plan.name} ({history.workload.shape if history else '?'}) is not done: "
                f"{status}; check says {report.problems[:5]}, waiting {list(report.waiting)[:5]}"
            )
        return found

    def _remove_half_defined(self, plan: zkplan.Plan, history: PlanHistory) -> None:
        """An author that died within the steps of a wide join leaves a task that never runs."""
        since = self._left_since.setdefault(plan.name, time.monotonic())
        is_open = any(batch.state == "begun" for batch in history.batches.values())
        if not is_open or time.monotonic() - since < _HALF_DEFINED_S:
            return
        if any("still being defined" in each for each in plan.check(False).problems):
            self.half_defined += 1
            history.committed = {}
            plan.remove()

    def orphans(self) -> list[str]:
        """What stands below the root though no worker and no plan is left."""
        paths = self._client.paths
        places = [paths.workers, paths.desks, paths.later]
        names = self._client.keeper.ask(ReadMany([ReadChildren(place) for place in places]))
        return [
            f"S6: {place}/{name} is left"
            for place, children in zip(places, names, strict=True)
            for name in children or ()
        ]


def left_of(client: zkplan.Client, plan: zkplan.Plan, added: int) -> Left:
    """What stands of a done plan."""
    remains = remains_of(client, plan)
    kept = []
    for start in range(0, len(remains.outcomes), _BATCH):
        chunk = remains.outcomes[start : start + _BATCH]
        reads = [ReadData(f"{plan.path}/outcomes/{number}") for number in chunk]
        for node in client.keeper.ask(ReadMany(reads)):
            kind, body = client.codec.open(VALUE + FAILURE, node.data)
            if kind == VALUE:
                value = load(body)
                kept.append(Kept(value[0], value[1], value[2]))
    dead = {each.name: each.a for each in plan.dead(100_000).values()}
    return Left(remains, kept, dead, added)


def takeovers(ledger: Ledger, tasks: object) -> list[Takeover]:
    """From the end of a process to the next attempt of what it ran."""
    found = []
    runs: list[Execution]
    for runs in tasks:  # type: ignore[attr-defined]
        for first, second in pairwise(sorted(runs, key=lambda each: each.n)):
            at, why = ledger.ends.get(first.pid, (0.0, ""))
            ran = first.began <= at and (first.ended is None or first.ended >= at)
            if ran and second.began >= at:
                found.append(Takeover(at, second.began - at, why))
    return found
