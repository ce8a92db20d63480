"""Worlds with real loops: alone, or beside the random worker of `worker.py`.

What faults and operators do is that of `World`. Time is the world's: each step takes a
millisecond, and where nothing happens by itself it goes on to the next timer of a loop or the next
end of a function.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from zkplan.errors import ZkplanError
from zkplan.protocol.core.workers import WorkerState, order
from zkplan.protocol.layout import Paths, queue_path
from zkplan.protocol.requests import Step
from zkplan.runtime import idle_queue

from . import leases
from .authors import Plan
from .ending import judge
from .loop_policy import REST_MS, Policies
from .loop_slots import SHORT_MS
from .loop_worker import LoopWorker
from .mix import replaced
from .queues import NAMES
from .sealing import Sealing
from .story import Meant, Violation
from .world import World

#: The share of worlds in which random workers run beside the loops.
MIXED = 0.4
#: How likely something happens each time that nothing else does.
LULL_ENDS = 0.1
#: After the faults everything must drain within so many steps.
DRAIN_STEPS = 30_000
#: While nothing changes, the operator looks each time that so many milliseconds have passed; the
#: world stands still when so many have.
LOOK_MS, STILL_MS = 3000, 60_000


class LoopWorld(World):
    """One run. Its judges of policy are `policies`."""

    has_all = False

    def __init__(self, seed: int, note: Callable[[str], None] | None = None) -> None:
        drawn = random.Random(f"loops {seed}")
        self.is_mixed = drawn.random() < MIXED
        #: How likely a worker cannot run a task, and how many more plans and stops there are.
        self.lacking = drawn.choice((0.0, 0.0, 0.1, 0.5))
        self._more_plans, self.stops = drawn.choice((0, 0, 1, 2)), drawn.choice((0, 0, 1, 3))
        #: Plans that come while loops sleep; then all else happens in such lulls, too.
        self.late_plans, self._for_lulls = drawn.choice((0, 0, 2, 4)), list[Callable[[], None]]()
        self._orders = drawn.choice((0, 0, 1, 3))
        #: How likely a loop does not hear of what it watches.
        self.unheard = drawn.choice((0.0, 0.0, 0.0, 0.1, 0.5))
        #: Where loops fall asleep soon, most plans find some that sleep.
        self._idle_s = drawn.choice((0.02, 0.1, idle_queue.IDLE_S))
        self.policies = Policies(self)
        self._is_ending = self._is_last = False
        self._still_since, self._helped_at, self._seen = 0, 0, 0
        super().__init__(seed, note)

    def run(self) -> None:
        with replaced([(idle_queue, "IDLE_S", self._idle_s)]):
            super().run()

    def _sealing(self, seed: int) -> Sealing | None:
        return None

    def _set_up(self) -> None:
        # Loops have no part in these, or the random worker stands for them (`World`).
        self.limits = self.leases = None
        self.mix = self.mix._replace(faults=self.mix.faults._replace(unheard=self.unheard))
        self.has_store = self.gated = self.by_hand = self.pure = False
        self.merging.merges, self.merging.patches = False, ()
        self.merging.printing.prints = False
        super()._set_up()
        for _ in range(self._more_plans):
            self._new_plan()
        self.pending += [self._stop] * self.stops + [self._order] * self._orders
        self.pending += [self._new_plan] * self.late_plans
        self.rng.shuffle(self.pending)
        if self.late_plans:
            self._for_lulls, self.pending = self.pending, []
        self.network.observer = self.policies

    def _new_worker(self) -> None:
        if self._is_ending:
            return
        client = self._connect("w")
        is_loop = not (self.is_mixed and self.loops) or self.rng.random() < 0.5
        new: Any = LoopWorker if is_loop else leases.new_worker
        self.workers.append(new(self, client.name, client))
        self.all_workers.append(self.workers[-1])

    def _order(self) -> None:
        """An operator pauses a loop, or lets it run on."""
        if self.loops:
            self._give_order(self.rng.choice(self.loops), self.rng.choice(("paused", "running")))

    def _give_order(self, worker: LoopWorker, state: WorkerState) -> None:
        if worker.me is not None:
            self.start("operator", "order", ordering(self.paths, worker.me.worker, state))

    def _help(self) -> bool:
        paused = [each for each in self.loops if each.loop.claims.paused]
        for each in paused:
            self._give_order(each, "running")
        return super()._help() or bool(paused)

    @property
    def loops(self) -> list[LoopWorker]:
        return [each for each in cast("list[Any]", self.workers) if isinstance(each, LoopWorker)]

    # What is drawn for loops and their functions.

    def policy(self, rng: random.Random) -> str:
        return rng.choice(("weighted", "weighted", "balanced", "greedy"))

    def takes_ms(self, task: Meant) -> int:
        """How long the function of that task takes."""
        return self.rng.choice(SHORT_MS[:4] if self.calm else SHORT_MS)

    def lacks(self, worker: str, task: Meant) -> bool:
        """Whether that worker lacks what the task needs."""
        return random.Random(f"{worker} {task.name}").random() < self.lacking

    def cannot_run(self, worker: str, task: Meant) -> bool:
        """Whether that worker cannot run the task now. Without faults, some other can."""
        if not self.lacks(worker, task):
            return False
        queues = next((each.queues for each in self.loops if each.name == worker), ())
        able = [each for each in self.loops if not self.lacks(each.name, task)]
        return not self.calm or (self._is_last and any(each.queues == queues for each in able))

    # Running.

    def _step(self) -> bool:
        return super()._step() or self._let_time_pass()

    def _let_time_pass(self) -> bool:
        """Nothing happens now: go on to what happens next."""
        at = min((each.next_at() for each in self.loops), default=float("inf"))
        if at == float("inf"):
            return False
        if self._for_lulls and not self.calm and self.rng.random() < LULL_ENDS:
            self._for_lulls.pop()()
            return True
        before, self.now = self.now, max(self.now, int(at))
        self.policies.passed(self.now - before)
        return True

    def _drain(self) -> None:
        self._drain_once()
        self._rest()
        asked = [(each, each.transport.asked.copy()) for each in self.loops]
        self._rest()
        for worker, before in asked:
            self.policies.rested(worker, before)
        if self.late_plans:
            self._is_last = True
            self._new_plan()  # the loops have slept for long
            self._drain_once()
        self._end_loops()

    def _drain_once(self) -> None:
        served = {queue for each in self.workers if not each.stopping for queue in each.queues}
        if not served.issuperset(NAMES if self.queues is not None else NAMES[:1]):
            self._new_worker()  # from now on, somebody serves each queue
        self._still_since = self._helped_at = self.now
        for _ in range(DRAIN_STEPS):
            if World._step(self):
                continue
            if self._is_settled() or self._stands_still():
                break
            self._let_time_pass()
        else:
            judge(self)
            raise Violation(f"L3 after {DRAIN_STEPS} steps without faults something still goes on")
        judge(self)
        self.policies.settled()

    def _rest(self) -> None:
        end = self.now + REST_MS
        while self.now < end and (World._step(self) or self._let_time_pass()):
            pass

    def _stands_still(self) -> bool:
        """Whether nothing changes any more. Before, the operator does what is left to people."""
        changes = self.policies.changes
        if changes != self._seen:
            self._seen, self._still_since, self._helped_at = changes, self.now, self.now
        if self.now - self._helped_at >= LOOK_MS:
            self._helped_at = self.now
            self._help()
        return self.now - self._still_since > STILL_MS

    def _is_settled(self) -> bool:
        nodes, paths = self.nodes, self.paths
        for plan in self.plans:
            node = nodes.get(paths.plan(plan.number)) if plan.number else None
            if node is not None and (plan.removed or not self._is_over(plan)):
                return False
        living = nodes[paths.workers].children
        vacant = any(name not in living for name in nodes[paths.claims].children)
        return not (vacant or nodes[paths.delayed].children) and all(map(_is_idle, self.loops))

    def _is_over(self, plan: Plan) -> bool:
        path = self.paths.plan(plan.number)
        if any(task.alive and not _stays(task) for task in plan.tasks):
            return False
        entries = (self.nodes.get(queue_path(path, name)) for name in NAMES)
        if any(node.children for node in entries if node is not None):
            return False
        return "done" in self.nodes[path].children

    def _end_loops(self) -> None:
        """Every loop ends when it is told to, and leaves nothing."""
        self._is_ending = True
        for each in self.loops:
            each.stop(30.0)
        for _ in range(DRAIN_STEPS):
            if not self.loops:
                return
            if not World._step(self):
                self._let_time_pass()
        raise Violation("P1 loops that were told to stop go on")


def ordering(paths: Paths, worker: str, state: WorkerState) -> Step[None]:
    """Order a worker that may be gone, or drain."""
    with suppress(ZkplanError):
        yield from order(paths, worker, state)


def _stays(task: Meant) -> bool:
    return any("/dead/" in place for place in task.places)


def _is_idle(worker: LoopWorker) -> bool:
    claims = worker.loop.claims
    return not (claims.jobs or claims.held or claims.uncommitted or worker.slots.running)
