"""The referee: watches every plan from its own thread, checks each that is done, removes it."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress

import zkplan
from tests.sim.world import ROOT
from zkplan.protocol.requests import ReadChildren, ReadData, ReadMany
from zkplan.serialization.codec import FAILURE, VALUE, load
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
from .histories import PlanHistory
from .ledger import Ledger
from .members import Silence, children_at, shown_by
from .removals import Removals
from .rest import Rest, is_quiet, look_at, sync, traces_of
from .scope import Scope
from .takeovers import Takeover, takeovers
from .trouble import standing_still, unplanned

SHOWN_S = 1.0
_LOOK_S = 0.3
#: What an author that is gone was defining is given up after that.
HALF_DEFINED_S = 5.0
_BATCH = 200


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
        #: Names of the plans that stood at the last look, and when that began.
        self.standing: list[str] = []
        self._looked_at = 0.0
        #: By the names of plans: why the last look at each came to no end.
        self._troubles: dict[str, str] = {}
        self._removals = Removals(
            self.violations.append, lambda path: shown_by(arena.servers.members, path)
        )
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

    def is_idle(self, since: float = 0.0) -> bool:
        """Whether no plan stands any more, at a look that began later than that."""
        return self._looked_at >= since and not self.standing

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
            except zkplan.ZooKeeperUnavailable:
                self._removals.no_answer()  # as in every outage: one that lasts fails the peace
            except Exception as error:  # A referee that stops silently would find nothing.
                self.violations.append(f"the referee itself failed: {error!r}")
                raise
            self._stop.wait(_LOOK_S)

    def judge_histories(self) -> None:
        """What shows in histories alone, of whatever plan: to be asked again at the very end."""
        with self._judging:
            self.ledger.read()
            self.violations += late_executions(self.ledger)
            found = [
                *wrong_deaths(self.ledger),
                *wrong_refusals(self.ledger),
                *unplanned(self.ledger),
            ]
            self.violations += [text for text in found if text not in self.violations]

    def _look(self) -> None:
        began = time.monotonic()
        self.judge_histories()
        if not self.violations:  # once: it is the same, and some seconds more, at each look
            for pid, text in standing_still(self.ledger).items():
                self.violations.append(text)
                self.arena.ask_where(pid)
        sync(self._client, self._client.paths.root)
        plans = self._client.plans()
        self._removals.listed({plan.path for plan in plans})
        for plan in plans:
            history = self.ledger.plans.get(plan.name)
            if history is not None:
                self._try(plan, history, began)
            if self._stop.is_set():
                return
        removed = self._look_at_removed()
        told = {plan.name for plan in plans if self._removals.is_told(plan.path)}
        self.standing = [name for name in [*(p.name for p in plans), *removed] if name not in told]
        self._looked_at = began

    def _try(self, plan: zkplan.Plan, history: PlanHistory, began: float) -> None:
        """Look at it; what goes wrong there keeps nobody from the others.

        A plan that is gone in the middle of it was removed by an operator, or is found at the end
        as one that was never judged.
        """
        try:
            self._look_at(plan, history, began)
        except (zkplan.ZooKeeperUnavailable, zkplan.PlanNotFound) as error:
            self._troubles[plan.name] = repr(error)[:200]
            if isinstance(error, zkplan.ZooKeeperUnavailable):
                self._removals.no_answer()
        else:
            self._troubles.pop(plan.name, None)

    def _look_at(self, plan: zkplan.Plan, history: PlanHistory, began: float) -> None:
        if history.committed is not None:
            if not self._removals.is_told(plan.path):
                self._removals.stands(plan.name, plan.path, "was judged", began)
                self._removals.remove(plan)  # an earlier removal was cut short
            return
        if self.ledger.operations.ending(plan.name) == "removed":
            self._look_at_half_removed(plan, began)
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
            self._removals.remove(plan)

    def _look_at_half_removed(self, plan: zkplan.Plan, began: float) -> None:
        """Nobody knows how far an operator came; only who was told that it is gone is owed that."""
        operations = self.ledger.operations
        if operations.was_removed(plan.name, began):
            how = "was removed by an operator, who was told so"
            self._removals.stands(plan.name, plan.path, how, began)
        with self.arena.gavel:
            self.ledger.read()
            known = operations.was_removed(plan.name, float("inf"))
            if not known or self._removals.is_told(plan.path):
                self._removals.remove(plan)

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
            standing = {str(task.name) for task in tasks}
            unready = {str(task.name) for task in tasks if rest.waits(task.number)}
            case = self._case(history, left_of(self._client, plan, added))
            operations = self.ledger.operations.of_plan[plan.name]
            self._judge_stopped(Stopped(case, "cancelled", operations, standing, unready, rest))
            self._removals.remove(plan)
        del self._rests[plan.name]

    def _look_at_removed(self) -> list[str]:
        """Judge what operators have removed; gives those of which something is left as yet."""
        waiting = []
        for name in self.ledger.operations.removals():
            history = self.ledger.plans.get(name)
            if history is None or history.committed is not None:
                continue
            with self.arena.gavel:
                try:
                    is_gone = self._judge_removed(name, history)
                except zkplan.ZooKeeperUnavailable as error:
                    self._troubles[name], is_gone = repr(error)[:200], False
            if not is_gone:
                waiting.append(name)
        return waiting

    def _judge_removed(self, name: str, history: PlanHistory) -> bool:
        """Judge it if nothing is left of it; whether that was done."""
        operations = self.ledger.operations.of_plan[name]
        self.ledger.read()
        if history.committed is not None:
            return True  # meanwhile, by another thread
        path = operations[0].path
        if traces_of(self._client, path) or not self.ledger.has_left(history):
            return False
        self._removals.is_gone(name, path)
        case = self._case(history, Left(Remains(), [], {}, 0))
        self._judge_stopped(Stopped(case, "removed", operations))
        return True

    def _judge_stopped(self, stopped: Stopped) -> None:
        self.violations += violations_of_stopped(stopped)
        self.scope.at_rest += stopped.rest is not None
        self._judged(stopped.case, f", {stopped.ending}")

    def _judged(self, case: Case, how: str = "") -> None:
        history = case.plan
        name = history.workload.name
        operations = self.ledger.operations.of_plan.get(name, [])
        self.violations += violations_of_operations(case, operations)
        self.ledger.operations.forget(name)
        history.committed = committed_numbers(case)
        history.buried = {key: letter.n for key, letter in case.left.dead.items()}
        self.effects.add(case)
        self.scope.add(case)
        self.takeovers += takeovers(self.ledger, history.executions.values())
        self.finished += 1
        self.shapes[history.workload.shape + how] += 1
        self.tasks += case.left.added
        self.executions += len(case.everything)
        # What was judged is not looked at again; a long run must not fill the memory.
        history.executions.clear()
        history.waited.clear()
        history.workload.forget()

    def give_up(self, names: Collection[str]) -> list[str]:
        """Which of those plans stand though they should be done, and why as far as can be told."""
        found: list[str] = []
        try:
            for plan in self._client.plans():
                if plan.name in names and not self._removals.is_told(plan.path):
                    found += self._why_it_stands(plan)
            for name in set(self._look_at_removed()) & set(names):
                traces = traces_of(self._client, self.ledger.operations.of_plan[name][0].path)
                if traces:
                    found.append(f"S6 {name} was removed, and this is left: {traces}")
        except zkplan.ZooKeeperUnavailable as error:
            found.append(f"L3 nobody says what stands of {sorted(names)}: {error!r}")
        return found

    def _why_it_stands(self, plan: zkplan.Plan) -> Iterator[str]:
        history = self.ledger.plans.get(plan.name)
        if history is not None and history.committed is not None:
            yield self._removals.sentence(plan.name, plan.path, "was judged, and still stands")
            return
        try:
            status, report = plan.status(), plan.check(repair=False)
        except zkplan.PlanNotFound:
            return  # it was done in this moment, or an operator removes it
        trouble = self._troubles.get(plan.name)
        yield (
            f"L3 {plan.name} ({history.workload.shape if history else '?'}) is not done: "
            f"{status}; check says {report.problems[:5]}, waiting {list(report.waiting)[:5]}"
            + (f"; the referee's last look at it: {trouble}" if trouble else "")
        )

    def never_judged(self) -> Iterator[str]:
        """The plans that are gone, and nobody knows why; to be asked once none stands any more."""
        for name, history in list(self.ledger.plans.items()):
            if history.path and history.committed is None:
                trouble = self._troubles.get(name)
                acknowledged = sum(len(batch.certain) for batch in history.batches.values())
                yield (
                    f"L3 {name} ({history.path}) was made and never judged; {acknowledged} of its "
                    "tasks were acknowledged, and no operator removed it"
                    + (f"; the referee's last look at it: {trouble}" if trouble else "")
                )

    def come_back(self) -> Iterator[str]:
        """The plans that were removed, and that a member shows all the same; once all serve."""
        root = self._client.paths.root
        for number, names in children_at(self.arena.servers.members, root).items():
            if isinstance(names, Silence):
                yield f"member {number} gives no answer at the end: {names.why}"
                continue
            for path in sorted({f"{root}/{name}" for name in names} & self._removals.done.keys()):
                if not self._removals.is_told(path):
                    name = self._removals.done[path].name
                    yield self._removals.sentence(name, path, "was judged and removed, and stands")

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
        # The last worker has left by another server, maybe: ours may not have heard of it.
        sync(self._client, paths.root)
        places = [paths.workers, paths.claims, paths.delayed]
        names = self._client.transport.ask(ReadMany([ReadChildren(place) for place in places]))
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
        reads = [ReadData(f"{plan.path}/results/{number}") for number in chunk]
        for number, node in zip(chunk, client.transport.ask(ReadMany(reads)), strict=True):
            kind, body = client.codec.open(VALUE + FAILURE, node.data)
            if kind == VALUE:
                value = load(body)
                kept.append(Kept(value[0], value[1], value[2], number))
            else:
                failed.append(number)
    letters = plan.dead(100_000)
    dead = {each.name: Letter(each.n, each.a) for each in letters.values()}
    names = [letters[number].name if number in letters else f"?{number}" for number in failed]
    return Left(remains, kept, dead, added, names)
