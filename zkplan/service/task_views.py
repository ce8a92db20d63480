"""What is shown of one task, read as `zkplan task show` reads it. No value is decoded."""

from __future__ import annotations

from typing import Any

from ..client import Client
from ..errors import InvalidTask, PayloadUndecodable
from ..inspection.task_details import neighbours_of
from ..inspection.task_info import TaskInfo, TaskRead, failures_in, info_of, read_task
from ..inspection.why import why_task
from ..protocol.records import Failure
from ..protocol.requests import Node
from ..protocol.update_parts import FINISHED, read_version
from ..serialization.codec import FAILURE, VALUE
from ..serialization.functions import is_skipped, split_name
from ..store.reference import value_size
from .asked import TaskPlace, no_task
from .task_models import FailureOut, NeighbourOut, OutcomeOut, TaskDetails
from .why_models import why_out

_SHOWN = ("name", "function", "state", "attempts", "attempts_used", "attempt", "worker", "since")
_OPTIONS = ("queue", "priority", "timeout", "retry_delay", "run_if", "pure", "not_before")
_MORE = ("deadline", "due", "failed", "skipped", "last_error", "arrived", "doubt")


def task_details(task: TaskPlace, why: bool) -> TaskDetails:
    """Raises Problem for a task that was never added."""
    client: Client = task.client
    try:
        read = read_task(client, task.plan.path, task.number)
        while read.summary is not None:
            around = neighbours_of(client, task.path, read, people=False)
            if around:
                return _shown(task, read, around, why)
            read = read_task(client, task.plan.path, task.number)  # it has finished meanwhile
        return _shown(task, read, {}, why=False)
    except InvalidTask as error:
        raise no_task(task, error) from None


def _shown(task: TaskPlace, read: TaskRead, around: dict[str, Any], why: bool) -> TaskDetails:
    client: Client = task.client
    info: TaskInfo = info_of(client.codec, task.number, read)
    facts = {name: getattr(info, name) for name in (*_SHOWN, *_OPTIONS, *_MORE)}
    failures = failures_in(client.codec, read.logs)
    version = FINISHED
    if read.summary is not None:
        step = read_version(client.paths, task.plan.number, task.number)
        version = client.transport.run(step)
    cause = why_task(client, task.plan.path, task.number) if why else None
    return TaskDetails(
        **facts,
        plan=int(task.plan.number),
        number=int(task.number),
        path=task.path,
        version=version,
        limits=None if info.limits is None else list(info.limits),
        waits_for_count=around.get("waits_for_count", 0),
        feeds_count=around.get("feeds_count", 0),
        waits_for=[_neighbour(each) for each in around.get("waits_for", ())],
        feeds=[_neighbour(each) for each in around.get("feeds", ())],
        failures=[failure_out(each) for each in failures],
        notes=len(info._notes),
        outcome=None if read.outcome is None else _outcome(client, read.outcome),
        why=None if cause is None else why_out(cause),
    )


def _neighbour(facts: dict[str, Any]) -> NeighbourOut:
    return NeighbourOut(number=int(facts["number"]), name=facts["name"], state=facts["state"])


def failure_out(failure: Failure) -> FailureOut:
    """A failure as it is shown; its exception stays as it is."""
    shown = ("n", "when", "worker", "kind", "traceback")
    facts = {name: getattr(failure, name) for name in shown}
    return FailureOut(message=failure.text, **facts)


def _outcome(client: Client, node: Node) -> OutcomeOut:
    try:
        kind, body = client.codec.open(VALUE + FAILURE, node.data)
        if kind == FAILURE:
            failure = failure_out(Failure.from_bytes(body))
            return OutcomeOut(kind="failure", size=len(body), failure=failure)
    except PayloadUndecodable:
        return OutcomeOut(kind="undecodable", size=len(node.data))
    kept = "skipped" if is_skipped(body) else "result"
    return OutcomeOut(kind=kept, size=value_size(split_name(body)[1]))
