"""Routes of tasks: list, add, show, and what is decided about one: retry, skip, cancel, set."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from ..controls.decisions import Decisions
from ..inspection.across import STATES, Filter, FoundTask, find_tasks
from .adding import specs_of
from .asked import ClientOf, PlanOf, TaskOf, TaskPlace, existing, idempotency_key_header, needs
from .etags import NotModified, Tagged
from .paging import Cursor, Limit, Page, cursor_of, page_of, parts_of
from .problems import documented
from .task_models import (
    AddedTask,
    AddedTasks,
    SkipIn,
    TaskChanged,
    TaskDetails,
    TaskOut,
    TaskSetIn,
    TasksIn,
)
from .task_views import task_details

router = APIRouter(tags=["tasks"], responses=documented(404, 409, 422))
TaskState = Literal[STATES]  # type: ignore[valid-type]
Pattern = Annotated[str | None, Query(max_length=200, description="A pattern, as load-*.")]


def task_out(found: FoundTask) -> TaskOut:
    """An unfinished task as it is shown in lists."""
    facts = found._asdict() | {"plan": int(found.plan), "number": int(found.number)}
    return TaskOut(**facts)


def _cursor(found: FoundTask) -> str:
    return cursor_of(found.plan, found.number)


def after_of(cursor: str | None) -> tuple[str, str]:
    """Behind which task of which plan a page begins."""
    if cursor is None:
        return "", ""
    plan, task = parts_of(cursor, str, str)
    return str(plan), str(task)


@router.get("/plans/{plan}/tasks", dependencies=[needs("read")])
def list_tasks(
    plan: PlanOf,
    limit: Limit = 100,
    cursor: Cursor = None,
    state: TaskState | None = None,
    queue: Annotated[str | None, Query(max_length=40)] = None,
    name: Pattern = None,
    error: Pattern = None,
    worker: Annotated[str | None, Query(max_length=200)] = None,
) -> Page[TaskOut]:
    """The unfinished tasks of a plan, the oldest first. Finished ones are under its results."""
    wanted = Filter(state, worker, name, error)
    found = find_tasks(plan.client, wanted, [plan.number], after_of(cursor))
    chosen = (each for each in found if queue in (None, each.queue))
    return page_of(chosen, limit, task_out, _cursor)


@router.get("/dead-letters", dependencies=[needs("read")], tags=["root"])
def list_dead_letters(
    client: ClientOf,
    limit: Limit = 100,
    cursor: Cursor = None,
    name: Pattern = None,
    error: Pattern = None,
) -> Page[TaskOut]:
    """The tasks of all plans that are out of attempts, by plan and number."""
    found = find_tasks(client, Filter("dead", None, name, error), None, after_of(cursor))
    return page_of(found, limit, task_out, _cursor)


@router.post("/plans/{plan}/tasks", status_code=201, dependencies=[needs("author")])
def add_tasks(
    plan: PlanOf,
    wanted: TasksIn,
    idempotency_key: Annotated[
        str | None,
        idempotency_key_header("Gives each task a key: a repeat of the request adds nothing."),
    ] = None,
) -> AddedTasks:
    """Add tasks, all checked before the first is written. The plan takes JSON alone.

    If only some could be written, the problem has `added`: that many, from the first on, are in the
    plan.
    """
    added = plan.add_tasks(specs_of(plan, wanted.tasks, idempotency_key))
    return AddedTasks(
        tasks=[
            AddedTask(number=int(each.number), name=each.name, id=sent.id, existed=not each.is_new)
            for each, sent in zip(added, wanted.tasks, strict=True)
        ]
    )


@router.get("/plans/{plan}/tasks/{task}", dependencies=[needs("read")], responses=NotModified)
def show_task(task: TaskOf, tagged: Tagged, why: bool = True) -> TaskDetails:
    """One task: state, attempts with their errors, neighbours, outcome, and why it does not run."""
    return tagged(task_details(task, why))


@router.post("/plans/{plan}/tasks/{task}/retry", dependencies=[needs("operate")])
def retry_task(task: TaskOf) -> TaskChanged:
    """Make a dead task runnable again, with all its attempts; a delayed one runs now."""
    return _changed(task, Decisions(existing(task).plan).retry(task.number))


@router.post("/plans/{plan}/tasks/{task}/skip", dependencies=[needs("operate")])
def skip_task(task: TaskOf, wanted: SkipIn | None = None) -> TaskChanged:
    """Let the task not run: those that take its result get the value, null by default."""
    value = wanted.value if wanted is not None else None
    return _changed(task, Decisions(existing(task).plan).skip(task.number, value))


@router.post("/plans/{plan}/tasks/{task}/cancel", dependencies=[needs("operate")])
def cancel_task(task: TaskOf) -> TaskChanged:
    """Let the task fail for good, whether it runs, waits, or has failed."""
    return _changed(task, Decisions(existing(task).plan).cancel(task.number))


@router.post("/plans/{plan}/tasks/{task}/set", dependencies=[needs("operate")])
def set_task(task: TaskOf, wanted: TaskSetIn) -> TaskChanged:
    """Change the priority of a task that no worker has claimed."""
    stood = Decisions(existing(task).plan).set_priority(task.number, wanted.priority)
    return _changed(task, stood)


def _changed(task: TaskPlace, stood: str) -> TaskChanged:
    return TaskChanged(plan=int(task.plan.number), number=int(task.number), changed=bool(stood))
