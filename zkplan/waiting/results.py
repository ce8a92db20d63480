"""The results of many tasks of one plan, read in batches while the plan runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from ..basics.durations import Duration
from ..connection import Connection
from ..errors import ForeignTask, PlanFailed, WaitTimeout
from ..protocol.layout import parse_task
from ..protocol.requests import ReadChildren
from ..store.ahead import Read
from .group import Group, Waited
from .kept import Keeps, refuse_if_nothing_is_kept, refuse_unkept
from .one_result import not_kept, open_outcome
from .outcomes import read_outcomes, with_outcomes, with_reads
from .patience import checked_timeout
from .plan_end import wait_for_plan
from .plan_tasks import Completed


class Asked(Waited, Keeps, Protocol):
    """What `results_of` needs of a task. Task implements it."""

    @property
    def plan(self) -> Any: ...


T = TypeVar("T", bound=Asked)


def results_of(
    client: Connection,
    plan_path: str,
    tasks: Sequence[T],
    timeout: Duration | None,
    raises: bool,
) -> list[Any]:
    """See Plan.results."""
    timeout = checked_timeout(timeout)
    for task in tasks:
        if task.plan.path != plan_path:
            told = f"{task!r} is not of {plan_path}: ask its own plan for its result"
            raise ForeignTask(task.name, told)
    deadline = None if timeout is None else time.monotonic() + timeout
    values: dict[str, Any] = {}
    numbers = [task._waited_for()[2] for task in tasks]
    refuse_unkept(client, plan_path, dict(zip(numbers, tasks, strict=True)), if_any=raises)
    with Group[T]() as group:
        group.add(tasks)
        while group.open:
            found = group.wait(deadline)
            if not found:
                raise WaitTimeout(
                    f"{len(group.open)} of {len(set(numbers))} results of {plan_path} are not "
                    f"there after {timeout:g} s; {group.why()}"
                )
            outcomes = with_reads(with_outcomes(found), lambda _: (client, plan_path))
            for (task, completed), outcome, read in outcomes:
                path = f"{plan_path}/task-{completed.number}"
                value = _value(client, path, task.name, completed, raises, outcome, read)
                values[completed.number] = value
    return [values[number] for number in numbers]


def kept_results(
    client: Connection, plan_path: str, timeout: Duration | None, raises: bool
) -> list[Any]:
    """Wait until the plan has ended. Return all kept results, by task number."""
    timeout = checked_timeout(timeout)
    refuse_if_nothing_is_kept(client, plan_path)
    try:
        wait_for_plan(client, plan_path, timeout)
    except PlanFailed:
        if raises:
            raise
    names = client.transport.ask(ReadChildren(f"{plan_path}/results")) or ()
    numbers = sorted(name for name in names if parse_task(f"task-{name}") is not None)
    outcomes = read_outcomes(client.transport, plan_path, numbers)
    return [
        _value(client, f"{plan_path}/task-{at}", "", Completed(at, True), raises, outcome, read)
        for at, outcome, read in with_reads(outcomes, lambda _: (client, plan_path))
        if outcome is not None  # else its task was retried meanwhile
    ]


def _value(
    client: Connection,
    path: str,
    name: str,
    completed: Completed,
    raises: bool,
    outcome: bytes | None,
    read: Read | None,
) -> Any:
    """The value, or the error in its place unless it `raises`."""
    try:
        if completed.error is not None:
            raise completed.error
        if outcome is None:
            raise not_kept(path, name)
        return open_outcome(client.values, outcome, path, name, read)
    except Exception as error:
        if raises:
            raise
        return error
