"""An operator: pauses, ends, retries and moves, and records the answers and what it saw."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from kazoo.exceptions import KazooException

import zkplan
from zkplan.protocol.layout import parse_delayed, parse_entry
from zkplan.protocol.records import Dead
from zkplan.testing.stress_run import remains_of
from zkplan.testing.stress_tasks import Recorder

from ..validate.operations import What
from ..validate.snapshot import claims_in
from .workloads import HELD_FAILS, Item, Workload, pad_of

#: What an operator sees of a plan that is marked ready, and neither stopped nor done.
GOING = ("running", "failed")
_HEAR_S = 20.0
_READ_S = 3.0
#: Refusals that say why the operation did not happen.
_REFUSED = {
    zkplan.PlanDrained: "drained",
    zkplan.PlanCancelled: "cancelled",
    zkplan.PlanNotFound: "gone",
    zkplan.TaskError: "undefined",
    zkplan.PlanError: "not ended",
}


class Operator:
    """An operator over one connection. An operation without an answer stays open in the journal.

    `done` counts the operations that were answered and not refused.
    """

    def __init__(self, client: zkplan.Client, journal: Recorder) -> None:
        self.client, self.journal = client, journal
        self.done = 0

    def pause(self, plan: zkplan.Plan) -> None:
        uid = self._begin("pause", plan)
        if self._answer(uid, plan.pause) == "done":
            self._saw(uid, late=_late_claims(self.client, plan))

    def resume(self, plan: zkplan.Plan) -> None:
        """Record what is claimed at the end of the pause, if servers answer, and resume."""
        uid = self._begin("resume", plan)
        with suppress(zkplan.ZooKeeperUnavailable):
            self._saw(uid, late=_late_claims(self.client, plan))
        self._answer(uid, plan.resume)

    def cancel(self, plan: zkplan.Plan) -> None:
        """Cancel, try to resume, record what is claimed; somebody waits for the plan meanwhile."""
        uid = self._begin("cancel", plan)
        with self._somebody_waits(uid, plan):
            if self._answer(uid, plan.cancel) != "done":
                return
            late = _late_claims(self.client, plan)
            self._saw(uid, late=late, resumed=_resumes(plan), **_standing(self.client, plan))

    def remove(self, plan: zkplan.Plan) -> None:
        uid = self._begin("remove", plan)
        with self._somebody_waits(uid, plan):
            if self._answer(uid, plan.remove) == "done":
                claims = _claims(self.client, plan)
                self._saw(uid, numbers=sorted(claims.items()), late=[], resumed=False)

    def retry(self, plan: zkplan.Plan, number: str, letter: Dead) -> None:
        uid = self._begin("retry", plan, key=letter.name, n=letter.n, a=letter.a)
        self._answer(uid, lambda: plan.retry_task(number))

    def retry_plan(self, plan: zkplan.Plan, workload: Workload) -> None:
        """Retry what has failed in a plan that has ended, also what has failed by that."""
        letters = [letter for _, letter in plan.dead()]
        died = [(x.name, x.n, x.a) for x in letters if workload.items[x.name].fails >= HELD_FAILS]
        if died:
            uid = self._begin("reopen", plan, died=died)
            self._answer(uid, lambda: plan.retry() > 0)

    def share(self, plan: zkplan.Plan, weight: int, priority: int) -> None:
        uid = self._begin("share", plan)
        self._answer(uid, lambda: plan.set(weight=weight, priority=priority))

    def move(self, plan: zkplan.Plan, task: zkplan.Task, priority: int) -> None:
        uid = self._begin("move", plan)
        self._answer(uid, lambda: task.set_priority(priority))

    def skip(self, plan: zkplan.Plan, task: zkplan.Task, item: Item, digest: str) -> None:
        """Its dependents get what the task would have returned, but by this operation."""
        uid = self._begin("skip", plan, key=item.key)
        value = (item.key, digest, uid, 0, pad_of(item.key, item.pad))
        self._answer(uid, lambda: task.skip(value))

    def _begin(self, what: What, plan: zkplan.Plan, **facts: object) -> str:
        uid = uuid.uuid4().hex
        name = {"plan": plan.name, "path": plan.path}
        self.journal.write("operator begun", uid=uid, what=what, **name, **facts)
        return uid

    def _answer(self, uid: str, call: object) -> str:
        """The outcome of the call; raises ZooKeeperUnavailable where no answer came."""
        outcome = "done"
        try:
            if call() is False:  # type: ignore[operator]
                outcome = "refused"
        except tuple(_REFUSED) as error:
            outcome = _REFUSED[type(error)]
        self.journal.write("operator answered", uid=uid, outcome=outcome)
        self.done += outcome == "done"
        return outcome

    def _saw(self, uid: str, **seen: object) -> None:
        self.journal.write("operator saw", uid=uid, **seen)

    @contextmanager
    def _somebody_waits(self, uid: str, plan: zkplan.Plan) -> Iterator[None]:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(_hear, plan)
            try:
                yield
            finally:
                self.journal.write("operator heard", uid=uid, heard=waiting.result())


def _hear(plan: zkplan.Plan) -> str:
    """How a wait for the plan ended."""
    try:
        return plan.wait(_HEAR_S).state
    except zkplan.ZkplanError as error:
        return type(error).__name__


def _resumes(plan: zkplan.Plan) -> bool:
    """Whether a cancelled plan can be resumed."""
    try:
        plan.resume()
    except (zkplan.PlanCancelled, zkplan.PlanNotFound):
        return False
    return True


def _claims(client: zkplan.Client, plan: zkplan.Plan) -> dict[str, int]:
    """Task number to the number of its claim."""
    return {claim.task: claim.n for claim in claims_in(remains_of(client, plan.path))}


def _standing(client: zkplan.Client, plan: zkplan.Plan) -> dict[str, object]:
    """The claims of a plan, its entries, and its tasks by key, read in this order.

    A claim that is handed back in between has an entry with a larger number, and one that is
    committed in between has no task.
    """
    claims = _claims(client, plan)
    left = remains_of(client, plan.path)
    entries = {entry.task: entry.n for entry in map(parse_entry, left.runnable) if entry}
    for delayed in filter(None, map(parse_delayed, left.delayed)):
        entries[delayed.entry.task] = delayed.entry.n
    try:
        keys = {task.number: str(task.name) for task in plan.tasks()}
    except zkplan.PlanNotFound:
        keys = {}
    return {
        "claims": {keys[number]: n for number, n in claims.items() if number in keys},
        "entries": {keys[number]: n for number, n in entries.items() if number in keys},
        "standing": sorted(keys.values()),
    }


def _late_claims(client: zkplan.Client, plan: zkplan.Plan) -> list[str]:
    """Claims that were made after the last change of the plan's state, by their zxids.

    Nobody but the caller resumes the plan.
    """
    raw, found = client.transport.client, []
    try:
        changed = raw.exists_async(f"{plan.path}/ready").get(timeout=_READ_S)
        if changed is None:
            return []
        for claim in remains_of(client, plan.path).claims:
            path = f"{client.paths.claims}/{claim}"
            made = raw.exists_async(path).get(timeout=_READ_S)
            if made is not None and made.czxid > changed.mzxid:
                found.append(claim)
        again = raw.exists_async(f"{plan.path}/ready").get(timeout=_READ_S)
    except (KazooException, raw.handler.timeout_exception) as error:
        raise zkplan.ZooKeeperUnavailable(f"no answer to an operator: {error!r}") from error
    return found if again is not None and again.mzxid == changed.mzxid else []
