"""What a task looks like from outside: read from its znodes, without decoding user code."""

from __future__ import annotations

from typing import Any

from .codec import FAILURE, LOG, TASK, VALUE, Codec, describe_function
from .errors import InvalidTask, PayloadUndecodable
from .layout import parse_later
from .records import Failure, TaskOptions, TaskRecord
from .requests import Node, ReadChildren, ReadData, ReadMany
from .task import Task
from .wording import date_time


def describe_task(task: Task, people: bool = True) -> dict[str, Any]:
    """State, options, edges, attempts, outcome of a task. Raises InvalidTask if it never existed.

    `people` joins lists into lines of text.
    """
    keeper, codec = task.plan.client.keeper, task.plan.client.codec
    node, names, outcome = keeper.ask(
        ReadMany(
            [
                ReadData(task.path),
                ReadChildren(task.path),
                ReadData(f"{task.plan.path}/outcomes/{task.number}"),
            ]
        )
    )
    if node is None and outcome is None:
        raise InvalidTask(
            task.number,
            f"{task.path} does not exist: finished without a kept result, or never added",
        )
    facts: dict[str, Any] = {"path": task.path}
    if node is not None and names is not None:
        facts |= _definition(codec, node.data)
        facts["state"] = _state(task, names)
        if facts["state"] == "claimed":
            facts |= _owner(task)
        facts["waits_for"] = sorted(name for name in names if name.startswith("dep-"))
        facts["arrived"] = sorted(name for name in names if name.startswith("arg-"))
        facts["feeds"] = sum(name.startswith("prov-") for name in names)
        logs = sorted(name for name in names if name.startswith("log-"))
        nodes = (
            keeper.ask(ReadMany([ReadData(f"{task.path}/{name}") for name in logs])) if logs else []
        )
        facts["log"] = [_entry(codec, found, people) for found in nodes if found is not None]
    else:
        facts["state"] = "finished"
    if outcome is not None:
        facts["outcome"] = _outcome(codec, outcome.data)
    if people:
        for name in ("waits_for", "arrived", "log"):
            if name in facts:
                facts[name] = "\n".join(facts[name])
    return facts


def _definition(codec: Codec, sealed: bytes) -> dict[str, Any]:
    try:
        record = TaskRecord.from_bytes(codec.open(TASK, sealed)[1])
        options = TaskOptions.from_json(record.options)
    except PayloadUndecodable as error:
        return {"function": f"(undecodable: {error})"}
    return {
        "name": options.name,
        "function": describe_function(record.function),
        "attempts": options.attempts,
        "retry_delay": options.retry_delay,
        "timeout": options.timeout,
        "priority": options.priority,
    }


def _state(task: Task, names: list[str]) -> str:
    plan = task.plan
    dead, ready, later = plan.client.keeper.ask(
        ReadMany(
            [
                ReadData(f"{plan.path}/dead/{task.number}"),
                ReadData(f"{task.path}/ready"),
                ReadChildren(plan.client.paths.later),
            ]
        )
    )
    if dead is not None:
        return "dead"
    if "hold" in names or ready is None:
        return "being defined"
    if "owner" in names:
        return "claimed"
    if any(name.startswith("dep-") for name in names):
        return "waiting"
    place = (plan.number, task.number)
    delayed = (found for name in later or () if (found := parse_later(name)) is not None)
    return "later" if any((d.plan, d.entry.task) == place for d in delayed) else "runnable"


def _owner(task: Task) -> dict[str, Any]:
    """Who works on it, under which fencing number; both unknown where it has ended meanwhile."""
    node = task.plan.client.keeper.ask(ReadData(f"{task.path}/owner"))
    worker, _, attempt = (
        (node.data if node is not None else b"").decode(errors="replace").partition(" ")
    )
    return {"worker": worker, "attempt": attempt}


def _entry(codec: Codec, node: Node, people: bool = True) -> str:
    # A progress note holds nothing but its value: the time is that of its znode.
    noted = date_time(node.created_ms / 1000, people)
    try:
        kind, body = codec.open(FAILURE + LOG, node.data)
        if kind == LOG:
            return f"{noted} progress note of {len(body)} bytes"
        failure = Failure.from_bytes(body)
    except PayloadUndecodable as error:
        return f"{noted} (undecodable: {error})"
    where = f" on {failure.worker}" if failure.worker else ""
    when = date_time(failure.when, people)
    return f"{when} attempt {failure.n}{where}: {failure.summary}"


def _outcome(codec: Codec, sealed: bytes) -> str:
    try:
        kind, body = codec.open(VALUE + FAILURE, sealed)
        if kind == VALUE:
            return f"a result of {len(body)} bytes (Task.result() reads it)"
        failure = Failure.from_bytes(body)
    except PayloadUndecodable as error:
        return f"(undecodable: {error})"
    return f"failed: {failure.summary}\n{failure.traceback}".rstrip()
