"""Faults of operators: plans are paused, cancelled, removed, retried while they run."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import zkplan
from tests.sim.world import ROOT

from ..world.arena import Arena
from .aim import NOBODY, Aim
from .fault import Entry, Fault, enter
from .operating import Operator

_PATIENCE_S = 3.0
_CONNECT_S = 30.0
#: Plans that are ended at once; the others go on beside them.
_ENDED_MAX = 2
_RIVALS = 2
_SILENT = (zkplan.KeeperUnavailable, zkplan.PlanNotFound)


class Operating(Fault):
    """What operators do to plans takes no attempt of a task from its worker."""

    def aim(self) -> Aim:
        return NOBODY


class PlansPaused(Operating):
    """Every plan that is running is paused; those and only those are resumed."""

    lasts = (0.1, 0.6)

    def inject(self, arena: Arena, chance: random.Random) -> None:
        self._paused: list[str] = []
        try:
            with zkplan.connect(arena.servers.hosts, ROOT, patience=_PATIENCE_S) as client:
                operator = Operator(client, arena.journal)
                for plan in client.plans():
                    if plan.status().state == "running":
                        self._paused.append(plan.path)  # first: it may happen without an answer
                        operator.pause(plan)
        except _SILENT:
            return  # another fault has the servers; what was paused is known

    def heal(self, arena: Arena) -> None:
        # Whatever another fault has done to the servers: no plan may stay paused.
        arena.servers.make_serve()
        with zkplan.connect(arena.servers.hosts, ROOT, connect_timeout=_CONNECT_S) as client:
            for path in self._paused:
                try:
                    plan = client.plan(path)
                    if plan.status().state == "paused":
                        plan.resume()
                except (zkplan.PlanNotFound, zkplan.PlanCancelled, zkplan.PlanDrained):
                    continue  # it came to its end meanwhile, one way or another


class PlansEnded(Operating):
    """One or two plans that are not done, whatever they do just then, are cancelled or removed."""

    lasts = (0.0, 0.3)
    removes = False

    def inject(self, arena: Arena, chance: random.Random) -> None:
        with arena.gavel:
            try:
                with zkplan.connect(arena.servers.hosts, ROOT, patience=_PATIENCE_S) as client:
                    self._end_some(client, arena, chance)
            except zkplan.KeeperUnavailable:
                return  # what has no answer stays open in the journal

    def _end_some(self, client: zkplan.Client, arena: Arena, chance: random.Random) -> None:
        operator = Operator(client, arena.journal)
        standing = [plan for plan in client.plans() if plan.name.startswith("chaos-")]
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

    def heal(self, arena: Arena) -> None:
        """What operators do is done."""


class PlansRemoved(PlansEnded):
    removes = True


class DeadTasksRetried(Operating):
    """Every dead task is retried by two operators at once, over connections of their own."""

    lasts = (0.0, 0.3)

    def inject(self, arena: Arena, chance: random.Random) -> None:
        def retry_all(_: int) -> None:
            try:
                with zkplan.connect(arena.servers.hosts, ROOT, patience=_PATIENCE_S) as client:
                    operator = Operator(client, arena.journal)
                    for plan in client.plans():
                        for number, letter in plan.dead().items():
                            operator.retry(plan, number, letter)
            except _SILENT:
                return  # what has no answer stays open in the journal

        with ThreadPoolExecutor(_RIVALS) as pool:
            list(pool.map(retry_all, range(_RIVALS)))

    def heal(self, arena: Arena) -> None:
        """What operators do is done."""


enter(
    [
        Entry("plans paused", "35", "every running plan is paused, then resumed", PlansPaused),
        Entry("plans cancelled", "35", "one or two plans are cancelled for good", PlansEnded),
        Entry("plans removed", "35", "one or two plans are removed while they run", PlansRemoved),
        Entry("dead tasks retried", "35", "two operators retry every dead task", DeadTasksRetried),
    ]
)
