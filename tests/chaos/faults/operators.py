"""Faults of operators: plans are paused, cancelled, removed, retried while they run."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress

import zkplan

from ..cluster.cluster import Cluster
from ..traffic.operator import GOING, Operator
from ..traffic.workloads import REOPENED, Workload, workloads_in
from .fault import Fault, enter
from .target import NOBODY, Target

_PATIENCE_S = 3.0
_CONNECT_S = 10.0
_LOOK_S = 0.1
_ALL = 1_000_000


class Operating(Fault):
    """Operators do something to plans, which costs no task an attempt.

    At some moments no plan allows it. So they look again and again, on threads of their own, until
    an operation was done.
    """

    waits_s = 30.0
    #: How many operators there are, and how many plans they do it to in one look.
    rivals = 1
    most = (_ALL, _ALL)
    #: Whether no plan is judged while an operator looks.
    judges_wait = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._healed = threading.Event()
        self._done = threading.Event()
        self._at_work: list[Future[None]] = []

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        self._shape = cluster.settings.shape
        pool = ThreadPoolExecutor(self.rivals)
        for _ in range(self.rivals):
            own = random.Random(chance.random())
            self._at_work.append(pool.submit(self._look_for_plans, cluster, own))
        pool.shutdown(wait=False)

    def _look_for_plans(self, cluster: Cluster, chance: random.Random) -> None:
        try:
            with cluster.connect(patience=_PATIENCE_S) as client:
                operator = Operator(client, cluster.journal)
                while not self._done.is_set() and not self._healed.is_set():
                    with cluster.gavel if self.judges_wait else nullcontext():
                        self._look(operator, chance)
                    if operator.done:
                        self._done.set()
                    self._healed.wait(_LOOK_S)
        except zkplan.ZooKeeperUnavailable:
            return  # an operation without an answer stays open in the journal

    def _look(self, operator: Operator, chance: random.Random) -> None:
        plans = workloads_in(operator.client)
        if self.rivals == 1:  # rivals meet at the same plans
            chance.shuffle(plans)
        most = chance.randint(*self.most)
        for plan in plans:
            with suppress(zkplan.PlanNotFound):  # it was done, and removed
                most -= self.operate(operator, plan)
            if most == 0:
                return

    def workload_of(self, plan: zkplan.Plan) -> Workload:
        return Workload.make(int(plan.name.rpartition("-")[2]), self._shape)

    def operate(self, operator: Operator, plan: zkplan.Plan) -> bool:
        """Do it to that plan, if possible; whether it was tried."""
        raise NotImplementedError

    def took_effect(self, cluster: Cluster) -> bool:
        return self._done.is_set()

    def heal(self, cluster: Cluster) -> None:
        """Wait until the operators have ended."""
        self._healed.set()
        for each in self._at_work:
            each.result()

    def target(self) -> Target:
        return NOBODY


class PlansPaused(Operating):
    """Every running plan is paused; those plans are resumed, and no others."""

    lasts = (0.1, 0.6)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._paused: list[str] = []

    def operate(self, operator: Operator, plan: zkplan.Plan) -> bool:
        if plan.status().state not in GOING:
            return False
        self._paused.append(plan.path)  # before: a pause may happen without an answer
        operator.pause(plan)
        return True

    def heal(self, cluster: Cluster) -> None:
        """Resume the plans. Raises ZooKeeperUnavailable without servers; then it is called
        again."""
        super().heal(cluster)
        with cluster.connect(connect_timeout=_CONNECT_S, patience=_CONNECT_S) as client:
            operator = Operator(client, cluster.journal)
            for path in self._paused:
                with suppress(zkplan.PlanNotFound):  # it came to its end meanwhile
                    plan = client.plan(path)
                    if plan.status().state == "paused":
                        operator.resume(plan)


class PlansEnded(Operating):
    """One or two plans that are not done are cancelled or removed, in whatever state they are."""

    lasts = (0.0, 0.3)
    most = (1, 2)
    judges_wait = True
    removes = False

    def operate(self, operator: Operator, plan: zkplan.Plan) -> bool:
        if plan.status().state not in ("defining", *GOING, "paused"):
            return False
        (operator.remove if self.removes else operator.cancel)(plan)
        return True


class PlansRemoved(PlansEnded):
    removes = True


class DeadTasksRetried(Operating):
    """Two operators retry every dead task at once, each over its own connection.

    Only plans of the shape `held` keep dead tasks that can be retried.
    """

    lasts = (0.0, 0.3)
    rivals = 2
    shape = "held"

    def operate(self, operator: Operator, plan: zkplan.Plan) -> bool:
        for number, letter in plan.dead():
            operator.retry(plan, number, letter)
        return True


class FailedPlansRetried(Operating):
    """Two operators retry every plan that has ended as failed, in the middle of other faults."""

    lasts = (0.0, 0.3)
    rivals = 2
    shape = REOPENED

    def operate(self, operator: Operator, plan: zkplan.Plan) -> bool:
        workload = self.workload_of(plan)
        if plan.status().state != "failed" or not workload.reopened:
            return False
        operator.retry_plan(plan, workload)
        return True


class SharesChanged(Operating):
    """Every plan that goes on or is paused gets another weight and priority."""

    lasts = (0.0, 0.3)

    def operate(self, operator: Operator, plan: zkplan.Plan) -> bool:
        if plan.status().state not in (*GOING, "paused"):
            return False
        operator.share(plan, 1 + operator.done % 5, operator.done % 7 - 3)
        return True


class TasksMoved(Operating):
    """Up to fifty tasks of each plan get another priority, wherever they stand."""

    lasts = (0.0, 0.3)
    rivals = 2

    def operate(self, operator: Operator, plan: zkplan.Plan) -> bool:
        if plan.status().state not in (*GOING, "paused"):
            return False
        for number, task in enumerate(plan.select()[:50]):
            operator.move(plan, task, number % 9 - 4)
        return True


class TasksSkipped(Operating):
    """Some tasks of one or two plans are skipped, wherever they stand.

    Each dependent would get the same from the task, so all that is known of the plan stays true.
    """

    lasts = (0.0, 0.3)
    rivals = 2
    most = (1, 2)

    def operate(self, operator: Operator, plan: zkplan.Plan) -> bool:
        workload = self.workload_of(plan)
        if plan.status().state not in (*GOING, "paused") or workload.has_pure:
            return False
        able = {key for key, item in workload.items.items() if not item.adds}
        able &= {key for key, fate in workload.fates.items() if fate == "finished"}
        tasks = [task for task in plan.select() if task.name in able]
        for task in tasks[:: max(1, len(tasks) // 3)]:
            item = workload.items[str(task.name)]
            operator.skip(plan, task, item, workload.digests[item.key])
        return bool(tasks)


enter("plans paused", "every running plan is paused, then resumed", PlansPaused)
enter("plans cancelled", "one or two plans are cancelled for good", PlansEnded)
enter("plans removed", "one or two plans are removed while they run", PlansRemoved)
enter("dead tasks retried", "two operators retry every dead task", DeadTasksRetried)
_does = "two operators retry every plan that has failed"
enter("failed plans retried", _does, FailedPlansRetried)
enter("shares changed", "plans get other weights and priorities", SharesChanged)
enter("tasks moved", "two operators give tasks other priorities", TasksMoved)
enter("tasks skipped", "two operators skip some tasks, wherever they stand", TasksSkipped)
