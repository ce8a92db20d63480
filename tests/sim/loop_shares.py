"""Worlds in which plans of different weights compete for the slots of one loop, and P5.

No faults, and enough tasks in each plan: so only the policy decides which plan has how much.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from zkplan.protocol.core.add import NewTask
from zkplan.protocol.features import author as authoring
from zkplan.protocol.records import PlanRecord
from zkplan.protocol.requests import ReadData
from zkplan.runtime.job import Job
from zkplan.runtime.plan_shares import QUANTUM_S

from . import authors
from .authors import Plan
from .loop_worker import LoopWorker
from .loop_world import LoopWorld
from .mix import draw_mix
from .network import CALM
from .story import Meant, Violation

#: How many tasks each of the plans has, and how long they take, in milliseconds.
TASKS, TAKE_MS = 60, (10, 20, 40)
WEIGHTS = (1, 2, 4)


class ShareWorld(LoopWorld):
    """One run."""

    def _set_up(self) -> None:
        rng = self.rng
        self.mix = draw_mix(rng)._replace(
            faults=CALM, expiries=0, crashes=0, author_crashes=0, leaves=0, failing=0.0, adds=0.0
        )
        self.mix = self.mix._replace(pauses=0, retries=0, removes=0, more=0, decisions=0, slow=0.0)
        self.is_mixed, self.calm, self.queues = False, True, None
        self._ms = {f"s{index}": rng.choice(TAKE_MS) for index in range(rng.choice((2, 3)))}
        self._weights = {name: rng.choice(WEIGHTS) for name in self._ms}
        #: The slot-seconds of each plan, while all of them have tasks that have not started.
        self._had = dict.fromkeys(self._ms, 0.0)
        self._left = dict.fromkeys(self._ms, TASKS)
        #: How many plans have all their tasks: then all of them start.
        self._made = 0
        super()._set_up()

    def _new_plan(self) -> None:
        if self.plans:
            return
        for name in self._ms:
            plan = Plan(name, "hold")
            self.plans.append(plan)
            plan.tasks = [Meant(f"{name}.{index}", []) for index in range(TASKS)]
            for task in plan.tasks:
                self.expect(task)
            self.write(plan, self._create(plan))

    def _create(self, plan: Plan) -> authors.Script:
        record = PlanRecord(plan.name, plan.name, 0.0, weight=self._weights[plan.name])
        number = yield from authoring.create_plan(self.paths, record)
        self.created(plan, number)
        author = authors.new_author(self, self.paths.plan(number), plan)
        yield from author.add([NewTask(task.name, "5000", task.record, []) for task in plan.tasks])
        for task in plan.tasks:
            task.acknowledged = True
        self._made += 1
        while self._made < len(self._ms):
            yield ReadData(self.paths.plan(number))
        yield from authors.mark_ready(self, plan)

    def _new_worker(self) -> None:
        if not self.loops and not self._is_ending:
            super()._new_worker()
            worker = self.loops[0]
            worker.slots.count = min(worker.slots.count, 2)
            worker.slots.measured = lambda job, seconds: self._ended(worker, job, seconds)

    def policy(self, rng: random.Random) -> str:
        return "weighted"

    def takes_ms(self, task: Meant) -> int:
        return self._ms.get(task.name.partition(".")[0], 1)

    def _ended(self, worker: LoopWorker, job: Job, seconds: float) -> None:
        """A function has had its slot: P5, while each plan has tasks left to start."""
        name, slots = job.options.name.partition(".")[0], worker.slots.count
        if name not in self._ms:
            return
        self._left[name] -= 1
        if max(self._left.values()) > TASKS - 2 * slots or min(self._left.values()) < 4 * slots:
            return  # not all have begun, or one has nothing left to claim
        self._had[name] += seconds
        passed = {each: had / self._weights[each] for each, had in self._had.items()}
        # What one plan may be ahead of another: a quantum, and what both have on the slots.
        longest_s = max(self._ms.values()) / 1000
        bound = (QUANTUM_S + 3 * longest_s) * slots
        if max(passed.values()) - min(passed.values()) > bound:
            raise Violation(f"P5 by weight {self._weights} the plans have had {self._had}")


#: One world in so many is one of shares.
SHARES_EACH = 20


def loop_world(seed: int, note: Callable[[str], None] | None = None) -> LoopWorld:
    """The world with real loops of that seed."""
    made = ShareWorld if seed % SHARES_EACH == SHARES_EACH - 1 else LoopWorld
    return made(seed, note)
