"""The policy of loops, judged in every run with them: P1 to P8.

P1: a loop that has to stop runs no function after its shortest grace, and ends within that and
the time for its last answers.
P2: no runnable task waits long while a loop that serves its queue has free slots.
P3: a loop that drains starts and claims nothing more, and keeps no claim.
P4: of the plans that a loop knows to have runnable tasks, it claims from one of the highest rank.
P5: plans of the same rank get slot-seconds by their weights (`loop_shares.py`).
P6: no slot is lost: once nothing is left to do, a loop counts no claim as held.
P7: a loop that has had nothing to do for some time asks nearly nothing.
P8: a loop soon follows an order that an operator writes into its registration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zkplan.protocol.core.workers import worker_state
from zkplan.protocol.layout import queue_path
from zkplan.protocol.records import control_from_bytes
from zkplan.protocol.requests import Op
from zkplan.runtime.plan_entries import rank_in
from zkplan.runtime.shutdown import DELIVER_S

from .network import Fiber
from .story import Violation

if TYPE_CHECKING:
    from .loop_worker import LoopWorker
    from .loop_world import LoopWorld

#: How long a stop may take beyond the grace and the last answers, in milliseconds.
SLACK_MS = 1000
#: How long a task or an order may wait while somebody could follow it, in milliseconds; the second
#: where events of watches are lost.
WAIT_MS, UNHEARD_WAIT_MS = 3500, 60_000
#: The most requests that a loop at rest may send in REST_MS milliseconds, after as long a rest. The
#: checks of plans that cannot go on are not counted.
REST_MS, RESTING_REQUESTS_MAX = 300_000, 60
CHECKS = "_check_still"


class Policies:
    """The judges of one run. As the observer of its network they hear of every transaction."""

    def __init__(self, world: LoopWorld) -> None:
        self._world = world
        #: How many transactions have been accepted.
        self.changes = 0
        #: For how long each runnable entry has waited while somebody could run it.
        self._waited: dict[str, int] = {}
        #: For how long each loop has not followed its order while nothing happened.
        self._unheard: dict[str, int] = {}

    @property
    def _most_ms(self) -> int:
        return UNHEARD_WAIT_MS if self._world.unheard else WAIT_MS

    # As the observer of the network.

    def applied(self, fiber: Fiber, ops: Sequence[Op], results: list[Any]) -> None:
        self.changes += 1
        self._world.auditor.applied(fiber, ops, results)

    def expired(self, paths: list[str]) -> None:
        self._world.auditor.expired(paths)

    # P1 and P3.

    def ordered_to_stop(self, worker: LoopWorker, grace_s: float) -> None:
        answers_s = max(DELIVER_S, worker.transport.session_timeout_s)
        end = self._world.now + int(1000 * (grace_s + answers_s)) + SLACK_MS
        worker.must_end_at = min(worker.must_end_at, end)
        grace_end = self._world.now + int(1000 * grace_s) + SLACK_MS
        worker.runs_nothing_at = min(worker.runs_nothing_at, grace_end)

    def turned(self, worker: LoopWorker) -> None:
        if self._world.now > worker.must_end_at:
            raise Violation(f"P1 {worker.name} was told to stop, and goes on")
        if worker.slots.running and self._world.now > worker.runs_nothing_at:
            raise Violation(f"P1 {worker.name} runs functions after its grace")

    def ended(self, worker: LoopWorker) -> None:
        """It has ended by itself: P3."""
        left = worker.loop.claims.jobs
        # A full server may keep results back for longer than a worker waits.
        if left and (self._world.calm or not self._world.network.faults.full):
            raise Violation(f"P3 {worker.name} has ended, and keeps {sorted(left)}")

    def begins(self, worker: LoopWorker, kind: str, step: Any) -> None:
        """A step begins. P3, and P4 for a claim."""
        if kind != "claim":
            return
        if worker.loop.claims.draining or worker.loop.claims.paused:
            raise Violation(f"P3 {worker.name} claims although it has to stop")
        while "names" not in step.gi_frame.f_locals:
            step = step.gi_frame.f_locals["step"]
        given = step.gi_frame.f_locals
        self._judge_rank(worker, given["plan"], given["names"])

    def _judge_rank(self, worker: LoopWorker, plan: str, names: Sequence[str]) -> None:
        now = worker.clock.monotonic()
        views = worker.loop.candidates.views
        rank = rank_in(names[0]) - views[plan].lift
        for other in views.values():
            waits = other.number != plan and other.running and other.own
            if waits and now >= other.avoid_until and rank_in(other.own[0]) - other.lift < rank:
                raise Violation(
                    f"P4 {worker.name} claims {names[0]} of {plan} before {other.own[0]}"
                )

    # P2: time passes while nothing happens.

    def passed(self, ms: int) -> None:
        """So many milliseconds have passed in which nothing happened."""
        self._judge_orders(ms)
        if self._world.network.faults.full:
            self._waited = {}  # a plan rests each time that there is no room for its claims
            return
        if self._is_a_first_dead():
            self._waited = {}  # others take over when its session ends
            return
        idle = [each for each in self._world.loops if self._could_claim(each)]
        served = {queue for each in idle for queue in each.queues}
        waiting: dict[str, int] = {}
        for path, queue in self._runnable(served) if idle else ():
            able = next((each for each in idle if self._can_run(each, queue, path)), None)
            if able is None:
                continue
            waiting[path] = self._waited.get(path, 0) + ms
            if waiting[path] > self._most_ms:
                raise Violation(f"P2 {path} waits while {able.name} has free slots")
        self._waited = waiting

    def _could_claim(self, worker: LoopWorker) -> bool:
        claims = worker.loop.claims
        may = worker.me is not None and not claims.starts_nothing
        return may and worker.loop.membership.answers and claims.held < worker.slots.slots

    def _is_a_first_dead(self) -> bool:
        """Whether a place in the queue of idle workers is of none that lives."""
        folder = self._world.nodes.get(self._world.paths.idle)
        living = {each.me.worker for each in self._world.loops if each.me is not None}
        return folder is not None and any(
            name.partition("-")[2] not in living for name in folder.children
        )

    def _runnable(self, queues: set[str]) -> list[tuple[str, str]]:
        """The paths of the runnable entries in these queues, each with its queue."""
        nodes, found = self._world.nodes, list[tuple[str, str]]()
        for plan in self._world.plans:
            path = self._world.paths.plan(plan.number) if plan.number else ""
            node = nodes.get(path)
            if node is None or "ready" not in node.children:
                continue
            if control_from_bytes(self._world.opened(f"{path}/ready") or b"") != "running":
                continue
            for queue in sorted(queues):
                entries = nodes.get(queue_path(path, queue))
                names = entries.children if entries is not None else ()
                found += [(f"{queue_path(path, queue)}/{name}", queue) for name in names]
        return found

    def _can_run(self, worker: LoopWorker, queue: str, path: str) -> bool:
        """Whether that loop has always been able to run the task of the entry."""
        number = path.rpartition("/")[2][5:15]
        tasks = [each for each in self._world.auditor.tasks.values() if each.number == number]
        return queue in worker.queues and not any(
            self._world.lacks(worker.name, task) for task in tasks
        )

    # P8.

    def _judge_orders(self, ms: int) -> None:
        unheard: dict[str, int] = {}
        for worker in self._world.loops:
            node = self._world.nodes.get(worker.me.worker_path) if worker.me is not None else None
            if node is None or worker.stopping:
                continue
            if worker_state(node.data) != worker.loop.membership.state:
                unheard[worker.name] = self._unheard.get(worker.name, 0) + ms
                if unheard[worker.name] > self._most_ms:
                    raise Violation(f"P8 {worker.name} does not follow its order")
        self._unheard = unheard

    # P6.

    def settled(self) -> None:
        """Everything is done: no loop counts anything as held."""
        for worker in self._world.loops:
            claims = worker.loop.claims
            counts = claims.claiming, claims.loading, claims.allowed, claims.uncommitted_bytes
            if any(counts) or claims.held or claims.jobs or worker.slots.running:
                raise Violation(f"P6 {worker.name} has nothing left to do, and holds {counts}")
            if worker.slots.slots != worker.slots.count and not worker.slots.abandoned:
                raise Violation(f"P6 {worker.name} has lost a slot")

    # P7.

    def rested(self, worker: LoopWorker, before: Counter[str]) -> None:
        """A loop has rested for REST_MS. `before`: what it had asked at the beginning."""
        asked = worker.transport.asked - before
        del asked[CHECKS]
        if asked.total() > RESTING_REQUESTS_MAX:
            raise Violation(f"P7 {worker.name} rests, and asks {dict(asked)}")
