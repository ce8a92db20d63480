"""Faults of operators: plans are paused, cancelled, removed, retried while they run."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import zkplan
from tests.sim.world import ROOT

from ..world.arena import Arena
from .aim import NOBODY, Aim
from .fault import Entry, Fault, enter
from .operating import Operator

_PATIENCE_S = 3.0
_CONNECT_S = 10.0
#: Plans that are ended at once; the others go on beside them.
_ENDED_MAX = 2
_RIVALS = 2
_LOOK_S = 0.1


class Operating(Fault):
    """What operators do to plans takes no attempt of a task from its worker.

    Whether a plan is there to which it can be done changes from moment to moment. So operators look
    again, on threads of their own, until one operation was done: that is what makes it felt.
    """

    waits_s = 30.0
    rivals = 1

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._healed = threading.Event()
        self._done = threading.Event()
        self._at_work: list[Future[None]] = []

    def inject(self, arena: Arena, chance: random.Random) -> None:
        pool = ThreadPoolExecutor(self.rivals)
        for _ in range(self.rivals):
            own = random.Random(chance.random())
            self._at_work.append(pool.submit(self._look_for_plans, arena, own))
        pool.shutdown(wait=False)

    def _look_for_plans(self, arena: Arena, chance: random.Random) -> None:
        try:
            with zkplan.connect(arena.servers.hosts, ROOT, patience=_PATIENCE_S) as client:
                operator = Operator(client, arena.journal)
                while not self._done.is_set() and not self._healed.is_set():
                    self.operate(operator, arena, chance)
                    if operator.done:
                        self._done.set()
                    self._healed.wait(_LOOK_S)
        except zkplan.ZooKeeperUnavailable:
            return  # another fault has the servers; what has no answer stays open in the journal

    def operate(self, operator: Operator, arena: Arena, chance: random.Random) -> None:
        """What one look leads to."""
        raise NotImplementedError

    def felt(self, arena: Arena) -> bool:
        return self._done.is_set()

    def heal(self, arena: Arena) -> None:
        """What operators do is done; nobody begins anything more."""
        self._healed.set()
        for each in self._at_work:
            each.result()

    def aim(self) -> Aim:
        return NOBODY


class PlansPaused(Operating):
    """Every plan that is running is paused; those and only those are resumed."""

    lasts = (0.1, 0.6)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._paused: list[str] = []

    def operate(self, operator: Operator, arena: Arena, chance: random.Random) -> None:
        for plan in operator.client.plans():
            try:
                if plan.status().state != "running":
                    continue
                self._paused.append(plan.path)  # first: it may happen without an answer
                operator.pause(plan)
            except zkplan.PlanNotFound:
                continue  # it was done, and removed

    def heal(self, arena: Arena) -> None:
        """No plan may stay paused: where another fault has the servers, it is done again later."""
        super().heal(arena)
        with zkplan.connect(
            arena.servers.hosts, ROOT, connect_timeout=_CONNECT_S, patience=_CONNECT_S
        ) as client:
            operator = Operator(client, arena.journal)
            for path in self._paused:
                try:
                    plan = client.plan(path)
                    if plan.status().state == "paused":
                        operator.resume(plan)
                except zkplan.PlanNotFound:
                    continue  # it came to its end meanwhile, one way or another


class PlansEnded(Operating):
    """One or two plans that are not done, whatever they do just then, are cancelled or removed."""

    lasts = (0.0, 0.3)
    removes = False

    def operate(self, operator: Operator, arena: Arena, chance: random.Random) -> None:
        with arena.gavel:
            plans = operator.client.plans()
            standing = [plan for plan in plans if plan.name.startswith("chaos-")]
            chance.shuffle(standing)
            count = chance.randint(1, _ENDED_MAX)
            for plan in standing:
                try:
                    if plan.status().state not in ("defining", "running", "paused"):
                        continue
                    (operator.remove if self.removes else operator.cancel)(plan)
                except zkplan.PlanNotFound:
                    continue
                count -= 1
                if count == 0:
                    return


class PlansRemoved(PlansEnded):
    removes = True


class DeadTasksRetried(Operating):
    """Every dead task is retried by two operators at once, over connections of their own.

    Only a plan that holds its dead tasks lets them be retried; the validator does it too, later.
    """

    lasts = (0.0, 0.3)
    rivals = _RIVALS
    shape = "held"

    def operate(self, operator: Operator, arena: Arena, chance: random.Random) -> None:
        for plan in operator.client.plans():
            try:
                for number, letter in plan.dead().items():
                    operator.retry(plan, number, letter)
            except zkplan.PlanNotFound:
                continue


enter(
    [
        Entry("plans paused", "35", "every running plan is paused, then resumed", PlansPaused),
        Entry("plans cancelled", "35", "one or two plans are cancelled for good", PlansEnded),
        Entry("plans removed", "35", "one or two plans are removed while they run", PlansRemoved),
        Entry("dead tasks retried", "35", "two operators retry every dead task", DeadTasksRetried),
    ]
)
