"""The referee: watches every plan from its own thread, checks each that is done, removes it."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import zkplan
from tests.sim.world import ROOT
from zkplan.codec import FAILURE, VALUE, load
from zkplan.requests import ReadChildren, ReadData, ReadMany
from zkplan.stress.checks import Remains
from zkplan.stress.harness import remains_of

from ..faults.operating import Operator
from ..world.arena import Arena
from .case import Case, Kept, Left, Letter
from .checks import (
    committed_numbers,
    late_executions,
    violations,
    wrong_deaths,
    wrong_refusals,
)
from .checks_operators import Stopped, violations_of_operations, violations_of_stopped
from .effects import Effects
from .ledger import Execution, Ledger, PlanHistory
from .rest import Rest, is_quiet, look_at, traces_of
from .scope import Scope

SHOWN_S = 1.0
_LOOK_S = 0.3
#: What an author that is gone was defining is given up after that.
HALF_DEFINED_S = 5.0
_BATCH = 200


class Takeover(NamedTuple):
    """A task went on `seconds` after the process that ran it had ended, for the reason `why`."""

    at: float
    seconds: float
    why: str


class Referee:
    """Reads the histories and judges. `violations` grows; `finished` counts checked plans."""

    def __init__(self, arena: Arena, shown_s: float = SHOWN_S) -> None:
        """A done plan stands for `shown_s` before it is removed: waiters should find it."""
        self.arena, self._shown_s = arena, shown_s
        self.ledger = Ledger(arena.folder, arena.settings.shape)
        self.violations: list[str] = []
        self._judging = threading.Lock()
        self.takeovers: list[Takeover] = []
        self.effects, self.scope = Effects(), Scope()
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
        self._dead_since: dict[str, float] = {}
        self._rests: dict[str, Rest] = {}
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

    def judge_histories(self) -> None:
        """What shows in histories alone, of whatever plan: to be asked again at the very end."""
        with self._judging:
            self.ledger.read()
            self.violations += late_executions(self.ledger)
            found = [*wrong_deaths(self.ledger), *wrong_refusals(self.ledger)]
            self.violations += [text for text in found if text not in self.violations]

    def _look(self) -> None:
        self.judge_histories()
        plans = self._client.plans()
        for plan in plans:
            history = self.ledger.plans.get(plan.name)
            if history is not None:
                self._look_at(plan, history)
        removed = self._look_at_removed()
        self.standing = [plan.name for plan in plans] + removed

    def _look_at(self, plan: zkplan.Plan, history: PlanHistory) -> None:
        if history.committed is not None:
            plan.remove()  # an earlier removal was cut short
            return
        if self.ledger.operations.ending(plan.name) == "removed":
            with self.arena.gavel:
                plan.remove()  # nobody knows how far an operator came
            return
        left = self.ledger.has_left(history)
        if left and not history.closed and plan.name not in self._adopted:
            self._adopted.add(plan.name)
            with suppress(zkplan.PlanCancelled):
                plan.mark_ready()
        status = plan.status()
        if status.state == "cancelled" and left:
            self._look_at_cancelled(plan, history, status.added)
            return
        if status.dead and status.state == "running" and history.workload.shape == "held":
            self._retry(plan)
        if left and status.state == "running" and status.tasks:
            self._end_half_defined(plan, history)
        if not left or status.state != "done":
            if left and status.state == "running" and not status.tasks:
                plan.is_drained()  # an adopted plan without tasks has no worker that ends it
            return
        since = self._done_since.setdefault(plan.name, time.monotonic())
        if time.monotonic() - since < self._shown_s:
            return
        with self.arena.gavel:
            self.ledger.read()
            if self.ledger.operations.ending(plan.name) == "removed":
                return  # meanwhile
            case = self._case(history, left_of(self._client, plan, status.added))
            self.violations += violations(case)
            self._judged(case)
            plan.remove()

    def _case(self, history: PlanHistory, left: Left) -> Case:
        settings = self.arena.settings
        return Case(history, left, self.ledger, settings.session_s, settings.soon_s)

    def _retry(self, plan: zkplan.Plan) -> None:
        """Go on with a held plan, where no other operator does."""
        since = self._dead_since.setdefault(plan.name, time.monotonic())
        if time.monotonic() - since < SHOWN_S:
            return
        del self._dead_since[plan.name]
        operator = Operator(self._client, self.arena.journal)
        for number, letter in plan.dead(100_000).items():
            operator.retry(plan, number, letter)

    def _look_at_cancelled(self, plan: zkplan.Plan, history: PlanHistory, added: int) -> None:
        """Judge it when nobody works on it any more: two looks show the same, and no claim."""
        rest = look_at(self._client, plan)
        before, self._rests[plan.name] = self._rests.get(plan.name), rest
        since = self._done_since.setdefault(plan.name, time.monotonic())
        quiet = rest == before and is_quiet(rest)
        if not quiet or time.monotonic() - since < SHOWN_S:
            return
        with self.arena.gavel:
            self.ledger.read()
            if self.ledger.operations.ending(plan.name) == "removed":
                return  # meanwhile
            if self.ledger.operations.ending(plan.name) is None:
                self.violations.append(f"S9: {plan.name} is cancelled, and nobody cancelled it")
            tasks = plan.tasks(sys.maxsize)
            standing = {task.name for task in tasks}
            unready = {task.name for task in tasks if rest.waits(task.number)}
            case = self._case(history, left_of(self._client, plan, added))
            operations = self.ledger.operations.of_plan[plan.name]
            self._judge_stopped(Stopped(case, "cancelled", operations, standing, unready, rest))
            plan.remove()
        del self._rests[plan.name]

    def _look_at_removed(self) -> list[str]:
        """Judge what operators have removed; gives those of which something is left as yet."""
        waiting = []
        for name in self.ledger.operations.removals():
            history = self.ledger.plans.get(name)
            if history is None or history.committed is not None:
                continue
            operations = self.ledger.operations.of_plan[name]
            with self.arena.gavel:
                self.ledger.read()
                traces = traces_of(self._client, operations[0].path)
                if traces or not self.ledger.has_left(history):
                    waiting.append(name)
                    continue
                case = self._case(history, Left(Remains(), [], {}, 0))
                self._judge_stopped(Stopped(case, "removed", operations))
        return waiting

    def _judge_stopped(self, stopped: Stopped) -> None:
        self.violations += violations_of_stopped(stopped)
        self._judged(stopped.case, f", {stopped.ending}")

    def _judged(self, case: Case, how: str = "") -> None:
        history = case.plan
        name = history.workload.name
        operations = self.ledger.operations.of_plan.get(name, [])
        self.violations += violations_of_operations(case, operations)
        self.ledger.operations.forget(name)
        history.committed = committed_numbers(case)
        self.effects.add(case)
        self.scope.add(case)
        self.takeovers += takeovers(self.ledger, history.executions.values())
        self.finished += 1
        self.shapes[history.workload.shape + how] += 1
        self.tasks += case.left.added
        self.executions += len(case.everything)
        self.progress = time.monotonic()
        # What was judged is not looked at again; a long run must not fill the memory.
        history.executions.clear()
        history.waited.clear()
        history.workload.forget()

    def give_up(self, names: Collection[str]) -> list[str]:
        """Which of those plans stand though they should be done, and why as far as can be told."""
        found = []
        for plan in self._client.plans():
            if plan.name not in names:
                continue
            status, report = plan.status(), plan.check(repair=False)
            history = self.ledger.plans.get(plan.name)
            found.append(
                f"L3 {plan.name} ({history.workload.shape if history else '?'}) is not done: "
                f"{status}; check says {report.problems[:5]}, waiting {list(report.waiting)[:5]}"
            )
        for name in set(self._look_at_removed()) & set(names):
            traces = traces_of(self._client, self.ledger.operations.of_plan[name][0].path)
            found.append(f"S6 {name} was removed, and this is left: {traces}")
        return found

    def _end_half_defined(self, plan: zkplan.Plan, history: PlanHistory) -> None:
        """An author that died within the steps of a wide join leaves a task that never runs.

        An operator would cancel the plan: then it is judged as every cancelled one.
        """
        since = self._left_since.setdefault(plan.name, time.monotonic())
        is_open = any(batch.state == "begun" for batch in history.batches.values())
        if not is_open or time.monotonic() - since < HALF_DEFINED_S:
            return
        if any("still being defined" in each for each in plan.check(False).problems):
            with self.arena.gavel:
                Operator(self._client, self.arena.journal).cancel(plan)
            self.half_defined += 1

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
    kept, failed = [], []
    for start in range(0, len(remains.outcomes), _BATCH):
        chunk = remains.outcomes[start : start + _BATCH]
        reads = [ReadData(f"{plan.path}/outcomes/{number}") for number in chunk]
        for number, node in zip(chunk, client.keeper.ask(ReadMany(reads)), strict=True):
            kind, body = client.codec.open(VALUE + FAILURE, node.data)
            if kind == VALUE:
                value = load(body)
                kept.append(Kept(value[0], value[1], value[2]))
            else:
                failed.append(number)
    letters = plan.dead(100_000)
    dead = {each.name: Letter(each.n, each.a) for each in letters.values()}
    names = [letters[number].name if number in letters else f"?{number}" for number in failed]
    return Left(remains, kept, dead, added, names)


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
