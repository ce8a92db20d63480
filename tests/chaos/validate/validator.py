"""The validator: looks at all plans from its own thread, checks each that has ended, removes it."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import zkplan
from zkplan.protocol.requests import ReadChildren, ReadMany

from ..cluster.cluster import Cluster
from ..traffic.controls import swing
from ..traffic.operator import GOING, Operator
from ..traffic.workloads import workloads_in
from .blobs import Blobs, told_by_workers
from .checks import committed_numbers, violations
from .evidence import PlanEvidence
from .history import RunHistory
from .limits import left, too_many
from .measures import Coverage, Effects, Takeover, takeovers
from .members import shown_by
from .plans import PlanHistory
from .removals import Removals
from .run_checks import mended_by_workers, standing_still, violations_of_run
from .snapshot import (
    PlanRemains,
    PlanSnapshot,
    is_quiet,
    remains_at_end,
    snapshot_of,
    sync,
    traces_of,
)

SHOWN_S = 1.0
_LOOK_S = 0.3
#: What an author that is gone was defining is given up after that.
HALF_DEFINED_S = 5.0


class Validator:
    """Reads the history and checks. `violations` grows; `finished` counts checked plans."""

    def __init__(self, cluster: Cluster, shown_s: float = SHOWN_S) -> None:
        """A done plan stands for `shown_s` before it is removed: waiters should find it."""
        self.cluster, self._shown_s = cluster, shown_s
        self.history = RunHistory(cluster.folder, cluster.settings.shape)
        self.violations: list[str] = []
        self._checking = threading.Lock()
        self.takeovers: list[Takeover] = []
        self.effects, self.coverage = Effects(), Coverage()
        self.blobs = Blobs(cluster.store)
        self.shapes: Counter[str] = Counter()
        self.tasks = self.executions = self.finished = self.half_defined = 0
        #: Names of the plans that stood at the last look, and when that began.
        self.standing: list[str] = []
        self._looked_at = 0.0
        #: By the names of plans: why the last look at each came to no end.
        self._errors: dict[str, str] = {}
        self._removals = Removals(
            self.violations.append, lambda path: shown_by(cluster.servers.members, path)
        )
        self._since: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._adopted: set[str] = set()
        self._snapshots: dict[str, PlanSnapshot] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="validator", daemon=True)

    def __enter__(self) -> Validator:
        self._client = self.cluster.connect(connect_timeout=60.0, patience=5.0)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        self._client.close()

    def is_idle(self, since: float = 0.0) -> bool:
        """Whether no plan stands any more, at a look that began later than that."""
        return self._looked_at >= since and not self.standing

    def check_history(self) -> None:
        """What shows in histories alone, of whatever plan: to be asked again at the very end."""
        with self._checking:
            self.history.read()
            found = [*violations_of_run(self.history), *mended_by_workers(self.cluster.folder)]
            self.violations += [text for text in found if text not in self.violations]

    # ---- one look

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
            except zkplan.ZooKeeperUnavailable:
                self._removals.no_answer()  # as in every outage: one that lasts fails the peace
            except Exception as error:  # A validator that stops silently would find nothing.
                self.violations.append(f"the validator itself failed: {error!r}")
                raise
            self._stop.wait(_LOOK_S)

    def _look(self) -> None:
        began = time.monotonic()
        self.check_history()
        if not self.violations:  # once: it is the same, and some seconds more, at each look
            for pid, text in standing_still(self.history).items():
                self.violations.append(text)
                self.cluster.ask_where(pid)
        sync(self._client, self._client.paths.root)
        plans = workloads_in(self._client)
        self.violations += too_many(self._client)
        if self.cluster.settings.controls:
            swing(self._client, self.cluster.journal)
        self._removals.listed({plan.path for plan in plans})
        for plan in plans:
            history = self.history.plans.get(plan.name)
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
        as one that was never checked.
        """
        try:
            self._look_at(plan, history, began)
        except zkplan.StoredValueLost as error:
            self.violations.append(f"S10 {plan.name}: {error}")
        except (
            zkplan.ZooKeeperUnavailable,
            zkplan.StoreUnavailable,
            zkplan.PlanNotFound,
        ) as error:
            self._errors[plan.name] = repr(error)[:200]
            if isinstance(error, zkplan.ZooKeeperUnavailable):
                self._removals.no_answer()
        else:
            self._errors.pop(plan.name, None)

    def _look_at(self, plan: zkplan.Plan, history: PlanHistory, began: float) -> None:
        if history.committed is not None:
            if not self._removals.is_told(plan.path):
                self._removals.stands(plan.name, plan.path, "was checked", began)
                self._removals.remove(plan)  # an earlier removal was cut short
            return
        if self.history.operations.ending(plan.name) == "removed":
            self._look_at_half_removed(plan, began)
            return
        left = self.history.has_left(history)
        if left and not history.closed and plan.name not in self._adopted:
            self._adopted.add(plan.name)
            with suppress(zkplan.PlanCancelled):
                plan.mark_ready()
        status = plan.status()
        goes_on = status.state in GOING and status.ended is None
        if goes_on and status.dead and history.workload.shape == "held":
            self._retry(plan)
        if not left:
            return
        if status.state == "cancelled":
            self._look_at_cancelled(plan, history, status.added)
        elif status.ended is not None and status.dead and history.workload.reopened:
            if self._has_been("dead", plan.name) >= self._shown_s:
                Operator(self._client, self.cluster.journal).retry_plan(plan, history.workload)
        elif status.ended is not None:
            if self._has_been("done", plan.name) >= self._shown_s:
                self._check_what_stands(plan, history, status.added)
        elif goes_on and status.tasks:
            self._end_half_defined(plan, history)
        elif goes_on:
            plan.is_drained()  # an adopted plan without tasks has no worker that ends it

    def _has_been(self, what: str, name: str) -> float:
        """For how long that has been so of the plan, since the first look that found it so."""
        now = time.monotonic()
        return now - self._since[name].setdefault(what, now)

    # ---- what a plan in each state needs

    def _look_at_cancelled(self, plan: zkplan.Plan, history: PlanHistory, added: int) -> None:
        """Check it when nobody works on it any more: two looks show the same, and no claim."""
        snapshot = snapshot_of(self._client, plan)
        before, self._snapshots[plan.name] = self._snapshots.get(plan.name), snapshot
        lasted_s = self._has_been("cancelled", plan.name)
        if snapshot == before and is_quiet(snapshot) and lasted_s >= SHOWN_S:
            self._check_what_stands(plan, history, added, snapshot)
            del self._snapshots[plan.name]

    def _look_at_half_removed(self, plan: zkplan.Plan, began: float) -> None:
        """Nobody knows how far an operator came; only who was told that it is gone is owed that."""
        operations = self.history.operations
        if operations.was_removed(plan.name, began):
            how = "was removed by an operator, who was told so"
            self._removals.stands(plan.name, plan.path, how, began)
        with self.cluster.gavel:
            self.history.read()
            known = operations.was_removed(plan.name, float("inf"))
            if not known or self._removals.is_told(plan.path):
                self._removals.remove(plan)

    def _look_at_removed(self) -> list[str]:
        """Check what operators have removed; gives those of which something is left as yet."""
        waiting = []
        for name in self.history.operations.removals():
            history = self.history.plans.get(name)
            if history is None or history.committed is not None:
                continue
            with self.cluster.gavel:
                try:
                    is_gone = self._check_removed(name, history)
                except zkplan.ZooKeeperUnavailable as error:
                    self._errors[name], is_gone = repr(error)[:200], False
            if not is_gone:
                waiting.append(name)
        return waiting

    def _retry(self, plan: zkplan.Plan) -> None:
        """Go on with a held plan, where no other operator does."""
        if self._has_been("dead", plan.name) < SHOWN_S:
            return
        del self._since[plan.name]["dead"]
        operator = Operator(self._client, self.cluster.journal)
        for number, letter in plan.dead():
            operator.retry(plan, number, letter)

    def _end_half_defined(self, plan: zkplan.Plan, history: PlanHistory) -> None:
        """An author that died within the steps of a wide join leaves a task that never runs.

        An operator would cancel the plan: then it is checked as every cancelled one.
        """
        lasted_s = self._has_been("left", plan.name)
        if not history.has_open_add or lasted_s < HALF_DEFINED_S:
            return
        if any("still being defined" in each for each in plan.check(False).problems):
            with self.cluster.gavel:
                Operator(self._client, self.cluster.journal).cancel(plan)
            self.half_defined += 1

    # ---- the checks

    def _check_what_stands(
        self,
        plan: zkplan.Plan,
        history: PlanHistory,
        added: int,
        snapshot: PlanSnapshot | None = None,
    ) -> None:
        """Check it and remove it, unless an operator does so meanwhile. A snapshot: it rests."""
        with self.cluster.gavel:
            self.history.read()
            ending = self.history.operations.ending(plan.name)
            if ending == "removed":
                return
            remains, stopped = remains_at_end(self._client, plan, added), {}
            self.violations += self.blobs.judge(plan)
            if snapshot is not None:
                if ending is None:
                    self.violations.append(f"S9: {plan.name} is cancelled, and nobody cancelled it")
                tasks = list(plan.tasks())
                stopped = {
                    "ending": "cancelled",
                    "standing": {str(task.name) for task in tasks},
                    "unready": {str(task.name) for task in tasks if snapshot.waits(task.number)},
                    "snapshot": snapshot,
                }
            self._check(history, remains, **stopped)
            self._removals.remove(plan)

    def _check_removed(self, name: str, history: PlanHistory) -> bool:
        """Check it if nothing is left of it; whether that was done."""
        self.history.read()
        if history.committed is not None:
            return True  # meanwhile, by another thread
        path = self.history.operations.of_plan[name][0].path
        if traces_of(self._client, path) or not self.history.has_left(history):
            return False
        self._removals.is_gone(name, path, self.history.operations.removal_begun(name))
        self._check(history, PlanRemains(), ending="removed")
        return True

    def _check(self, history: PlanHistory, remains: PlanRemains, **ending: Any) -> None:
        settings = self.cluster.settings
        evidence = PlanEvidence(
            history, remains, self.history, settings.session_s, settings.soon_s, **ending
        )
        self.violations += violations(evidence)
        self.history.operations.forget(history.workload.name)
        history.committed, history.checked_at = committed_numbers(evidence), time.monotonic()
        history.died = {key: letter.n for key, letter in evidence.remains.letters.items()}
        self.effects.add(evidence)
        self.coverage.add(evidence)
        self.takeovers += takeovers(self.history, history.executions.values())
        self.finished += 1
        how = "" if evidence.ending == "done" else f", {evidence.ending}"
        self.shapes[history.workload.shape + how] += 1
        self.tasks += evidence.remains.added
        self.executions += len(evidence.everything)
        # What was checked is not looked at again; a long run must not fill the memory.
        history.executions.clear()
        history.waited.clear()
        history.workload.forget()
        self._since.pop(history.workload.name, None)

    # ---- what must not be there at the end

    def give_up(self, names: Collection[str]) -> list[str]:
        """Which of those plans stand though they should be done, and why as far as can be told."""
        found: list[str] = []
        try:
            for plan in self._client.plans():
                if plan.name in names and not self._removals.is_told(plan.path):
                    found += self._why_it_stands(plan)
            for name in set(self._look_at_removed()) & set(names):
                path = self.history.operations.of_plan[name][0].path
                traces = traces_of(self._client, path)
                if traces:
                    found.append(f"S6 {name} was removed, and this is left: {traces}")
        except zkplan.ZooKeeperUnavailable as error:
            found.append(f"L3 nobody says what stands of {sorted(names)}: {error!r}")
        return found

    def _why_it_stands(self, plan: zkplan.Plan) -> Iterator[str]:
        history = self.history.plans.get(plan.name)
        if history is not None and history.committed is not None:
            yield self._removals.sentence(plan.name, plan.path, "was checked, and still stands")
            return
        try:
            status, report = plan.status(), plan.check(repair=False)
        except zkplan.PlanNotFound:
            return  # it was done in this moment, or an operator removes it
        yield (
            f"L3 {plan.name} ({history.workload.shape if history else '?'}) is not done: "
            f"{status}; check says {report.problems[:5]}, waiting {list(report.waiting)[:5]}"
            + self._last_error(plan.name)
        )

    def _last_error(self, name: str) -> str:
        error = self._errors.get(name)
        return f"; the validator's last look at it: {error}" if error else ""

    def never_checked(self) -> Iterator[str]:
        """The plans that are gone, and nobody knows why; to be asked once none stands any more."""
        for name, history in list(self.history.plans.items()):
            if history.path and history.committed is None:
                acknowledged = sum(len(batch.certain) for batch in history.batches.values())
                yield (
                    f"L3 {name} ({history.path}) was made and never checked; {acknowledged} of its "
                    "tasks were acknowledged, and no operator removed it" + self._last_error(name)
                )

    def come_back(self) -> Iterator[str]:
        """The plans that were removed, and that a member shows all the same; once all serve."""
        root = self._client.paths.root
        done = self._removals.done
        for number, names in shown_by(self.cluster.servers.members, root).answers.items():
            if not isinstance(names, list):
                yield f"member {number} does not list the root at the end: {names!r}"
                continue
            for path in sorted({f"{root}/{name}" for name in names} & done.keys()):
                if not self._removals.is_told(path):
                    what = "was checked and removed, and stands"
                    yield self._removals.sentence(done[path].name, path, what)

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
        ] + left(self._client)

    def left_in_store(self) -> list[str]:
        """What removals have left there; asked once nobody is left who may write."""
        if self.cluster.store is None:
            return []
        removed = {**told_by_workers(self.cluster.folder), **self._removals.done}
        return [*self.blobs.left(self._client, removed, self.history)]
