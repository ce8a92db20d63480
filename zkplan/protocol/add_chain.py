"""The chain of one author's adds: each add has an identity and deletes the one before it."""

from __future__ import annotations

import os

from ..errors import PlanDrained, PlanNotFound
from .adding import NewTask, next_number, read_finished
from .foreign import skip_number
from .layout import TASK_KEY, is_gate_entry
from .records import control_from_bytes, was_cancelled
from .requests import Create, Delete, Op, ReadData, ReadMany, Reason, Refused, SetData, Step
from .shared import rejected


class AddChain:
    """What one author knows of one plan. The identity in the tree is the author's last add (ADR
    1)."""

    def __init__(self, plan_path: str, next_task: int | None = None) -> None:
        self.plan_path = plan_path
        self._next = next_task
        self._uid = os.urandom(8).hex()
        self._count = 0
        self.previous = ""
        #: The queues that stand, as far as this author knows.
        self.queues: set[str] = set()

    def learn(self, again: bool = False) -> Step[int]:
        """The number that the next task gets, as far as the author knows."""
        if self._next is None or again:
            plan = yield ReadData(self.plan_path)
            if plan is None:
                raise PlanNotFound(self.plan_path, f"{self.plan_path} does not exist any more")
            self._next = next_number(plan)
        return self._next

    def begin(self, previous: str) -> tuple[str, list[Op]]:
        """A new identity, and the operations that an add starts with.

        Deleting the `previous` identity chains the adds of one author: a batch cannot be applied
        unless the one before it was, so its predicted numbers never point at somebody else's tasks.
        """
        self._count += 1
        identity = f"{self._uid}-{self._count}"
        ops: list[Op] = [Create(f"{self.plan_path}/add-ids/{identity}")]
        if previous:
            ops.append(Delete(f"{self.plan_path}/add-ids/{previous}"))
        return identity, [*ops, SetData(f"{self.plan_path}/add-count")]

    def applied(self, identity: str, count: int) -> None:
        self.previous = identity
        if self._next is not None:
            self._next += count

    def explain(self, answer: Refused, task: NewTask | None) -> Step[None]:
        """Learn from a refusal what to change. Raises if the add can never succeed."""
        is_strange = is_gate_entry(answer.path, self.plan_path)  # `gates` was made before
        if is_strange or answer.reason not in (Reason.NO_NODE, Reason.NODE_EXISTS):
            raise rejected(f"adding to {self.plan_path}", answer)
        if task is not None and f"/add-ids/{TASK_KEY}" in answer.path:
            node = yield ReadData(answer.path)
            if node is not None:  # else its plan is being removed
                task.is_there(node.data)
                return
        if answer.path.endswith(("/add-count", "/add-ids")) or "/add-ids/" in answer.path:
            yield from self.explain_plan()
            if self.previous and answer.path.endswith(self.previous):
                self.previous = ""
        elif answer.path.endswith("/prov-") and task is not None:
            yield from read_finished(self.plan_path, task)
        elif answer.path.endswith("/task-") and answer.reason is Reason.NODE_EXISTS:
            yield from skip_number(self.plan_path)
        yield from self.learn(again=True)

    def explain_plan(self) -> Step[None]:
        """Raise what says why the plan takes no tasks. Returns if it takes them by now."""
        parts = ("", "/done", "/ready", "/add-count", "/add-ids")
        reads = ReadMany([ReadData(f"{self.plan_path}{part}") for part in parts])
        missed: list[bool] = []
        while True:
            plan, done, ready, adds, authors = nodes = yield reads
            # If something is missing, read again until it is missing twice: between the reads of
            # one batch a worker may have ended the plan, or created what a plan of another client
            # lacks.
            missing = [node is None for node in nodes]
            if missing == missed or not any(missing[3:]):
                break
            missed = missing
        if plan is None:
            raise PlanNotFound(self.plan_path, f"{self.plan_path} was removed; create a new plan")
        if done is not None:
            raise PlanDrained(
                self.plan_path,
                f"{self.plan_path} has run all its tasks and is done; create a new plan for more",
            )
        if ready is not None and control_from_bytes(ready.data) == "cancelled":
            raise was_cancelled(self.plan_path, ready.data)
        if authors is None:
            raise PlanNotFound(
                self.plan_path,
                f"{self.plan_path} has no `add-ids`, so no task can be added: it is being removed, "
                "or another client made it; once it is ready, `zkplan plan check` repairs it",
            )
        if adds is None:
            raise PlanNotFound(
                self.plan_path, f"{self.plan_path} is being removed; create a new plan"
            )
