"""Run a task again in this process, with its recorded arguments, and commit nothing."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any

from ..errors import TaskError
from ..plan import Plan
from ..protocol.core.edges import outcome_in
from ..protocol.core.load import Reading, read_names
from ..protocol.features.task_place import find_place
from ..protocol.records import Failure
from ..protocol.requests import ReadChildren, ReadData, ReadMany
from ..protocol.transactions import Claim
from ..tasks import Task
from ..values.codec import FAILURE, VALUE, dump_failure, task_options
from ..values.connection import Connection
from ..values.functions_by_name import AllowList
from ..values.plan_values import Values
from ..values.shared import constants_of
from .context import Context, PlanWithin, running
from .job import Job

#: Takes the function and its arguments, and calls the function, for example in a debugger.
Call = Callable[..., Any]


class Replayed(Context):
    """The context of a replayed task: its log entries and added tasks are not stored."""

    #: Called with each value that the function logs.
    told: Callable[[Any], object] = print

    def log(self, value: Any) -> Awaitable[None]:
        """See Context. Shows `value` instead of storing it."""
        self._refuse_if_pure("logs")
        self.told(value)
        return _Told()


class _Told:
    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


def replay(
    plan: Plan,
    task: Task,
    told: Callable[[Any], object] = print,
    call: Call | None = None,
    allowed: AllowList | None = None,
) -> tuple[Any, int]:
    """Call the function of a task with the arguments that were delivered to the task.

    Calls `told` with each value that the function logs. `call(function, *args, **kwargs)`, if
    given, replaces the plain call. With serializer json, only the `allowed` functions run, and
    kinds that are registered here. Returns the result, and how many tasks the function would have
    added. Raises the function's error, TaskError if the task has finished or waits for results,
    and FunctionNotAllowed. Writes nothing to ZooKeeper; but whatever the function does elsewhere
    happens.
    """
    client = plan._client
    job = _read(client, plan, task)
    record = client.codec.open_definition(job.loaded.record)
    job.options, job.function = task_options(record), record.function
    if client.codec.is_json_only and allowed is None:
        allowed = AllowList((), may_be_empty=True)
    codec = client.codec.for_worker(allowed)
    values = Values(client.transport, codec, client.values.store)
    bodies = [_opened(client, job, outcome_in(each)) for each in job.loaded.arguments]
    bodies += constants_of(job.options)
    function = codec.function(record.function, partial(values.load_function, plan.path))
    args, kwargs = values.load_call(plan.path, record.arguments, values.load_all(plan.path, bodies))
    context = Replayed(job, client.transport, codec, partial(_plan_within, client, plan))
    context.told = told
    token = running.set(context)
    try:
        result = function(*args, **kwargs) if call is None else call(function, *args, **kwargs)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
    finally:
        running.reset(token)
    return result, len(job.adds)


def _read(client: Connection, plan: Plan, task: Task) -> Job:
    run, path = client.transport.run, task.path
    node, names = client.transport.ask(ReadMany([ReadData(path), ReadChildren(path)], strict=True))
    if node is None or names is None:
        raise TaskError(
            task.number,
            f"{path} has finished, and its definition and arguments are deleted: only a task that "
            "has not finished, such as a dead one, can be replayed",
        )
    reading = Reading(path, node.data, names)
    run(read_names([reading], []))
    place = run(find_place(client.paths, plan.number, task.number))
    n, a = (place.n, place.a) if place is not None else (0, 0)
    fence = f"{client.paths.claims}/replay/{plan.number}-{task.number}.{max(0, n)}.0"
    claim = Claim(plan.number, task.number, "5000", max(0, n), a, fence, plan.path, path)
    reading.result = None  # run the function, even if an outcome is stored
    loaded = reading.loaded(claim)
    record = client.codec.open_definition(loaded.record)
    if loaded.damage or len(loaded.arguments) != record.positions:
        what = loaded.damage or "it has fewer or more arguments than its definition says"
        raise TaskError(task.number, f"{path} cannot be replayed: {what}")
    if loaded.refused is not None:
        raise loaded.refused
    return Job(loaded, plan=plan.record)


def _opened(client: Connection, job: Job, sealed: bytes) -> bytes:
    kind, body = client.codec.open(VALUE + FAILURE, sealed)
    if kind != FAILURE:
        return body
    failure = Failure.from_bytes(body)
    if job.options.run_if == "all_succeeded":
        raise TaskError(
            job.claim.task,
            f"{job.name} was not called: a task it depends on failed: {failure.summary}",
        )
    return dump_failure(failure)


def _plan_within(client: Connection, plan: Plan, job: Job) -> Plan:
    return PlanWithin(client, plan.path, job.plan, job.claim.task, job.adds)
