"""Collect the facts about one task, as data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..errors import PayloadUndecodable, PlanNotFound
from ..protocol.core.load import read_all
from ..protocol.features.task_place import never_was
from ..protocol.layout import DEFAULT_QUEUE, limits_in
from ..protocol.records import Failure
from ..protocol.requests import Node, ReadChildren, ReadData, ReadMany
from ..values.codec import FAILURE, LOG, Codec, load, task_options
from ..values.connection import Connection
from ..values.function_codec import describe_function, sends_code, split_name
from ..values.json_values import load_json
from .history_search import Past, past_of
from .outcomes import open_kept
from .unfinished import TaskSummary, summaries

_OPTIONS = (
    *("attempts", "retry_delay", "timeout", "priority", "pure", "queue"),
    *("isolation", "memory_limit", "not_before", "deadline", "limits", "run_if"),
)


@dataclass(frozen=True)
class TaskInfo:
    """A task at one moment. Times are in wall-clock seconds since 1970.

    `state` is `finished` or one of the states of `Plan.tasks`. `name` is None if it cannot be read
    here. `attempts` is how many attempts the task may have, `attempts_used` how many are used up.
    Of a claimed task, `worker` is the worker that claimed it, `since` the time of the claim,
    `attempt` its fencing number. Of a delayed task, `due` is when it becomes runnable. `waits_for`
    counts the results that have not arrived, `arrived` those that have, `feeds` the tasks that take
    this task's result. `last_error` is the text of the last failure that is kept, empty if there is
    none. `failed`: a finished or dead task has failed for good. `skipped`: a finished task was
    skipped. `retry_delay`, `timeout`, `priority`, `pure`, `queue`, `isolation`, `memory_limit` (in
    bytes), `not_before`, `deadline` and `run_if` are its options. `is_code_sent`: the code of its
    function was sent with its plan, not only the name of the function.

    If the task has finished, `since` is when it ended and `worker` who ended it. Then these two,
    `name`, `attempts_used`, `queue`, `priority` and `limits` come from the history of its plan, and
    are None if the history does not have them. All other options are None. `doubt` says why the
    task may never have existed, if neither a kept outcome nor the history proves that it did.
    """

    number: str
    name: str | None
    function: str | None
    state: str
    attempts: int | None = None
    attempts_used: int | None = 0
    worker: str | None = ""
    since: float | None = None
    due: float | None = None
    waits_for: int = 0
    feeds: int = 0
    last_error: str = ""
    failed: bool = False
    attempt: int | None = None
    arrived: int | None = 0
    retry_delay: float | None = 0.0
    timeout: float | None = None
    priority: int | None = 0
    pure: bool | None = False
    queue: str | None = DEFAULT_QUEUE
    isolation: str | None = None
    memory_limit: int | None = None
    not_before: float | None = None
    deadline: float | None = None
    limits: tuple[str, ...] | None = ()
    run_if: str | None = "all_succeeded"
    skipped: bool = False
    is_code_sent: bool = False
    doubt: str = ""
    _last_failure: Failure | None = None
    _was_cancelled: bool = False
    _notes: tuple[bytes, ...] = ()
    _is_json_only: bool = False

    def progress(self) -> list[Any]:
        """What the running task has logged with `current().log`, oldest first.

        It decodes the values, which runs code of their writers, unless the client decodes only
        JSON. Raises PayloadUndecodable.
        """
        decode = load_json if self._is_json_only else load
        return [decode(note) for note in self._notes]


class TaskRead(NamedTuple):
    """The znodes of one task at one moment. Only an unfinished task has a `definition`, `names`
    (its children) and a `summary`; only a finished one has a `past`."""

    outcome: Node | None
    definition: bytes = b""
    names: tuple[str, ...] = ()
    summary: TaskSummary | None = None
    owner: Node | None = None
    logs: tuple[Node, ...] = ()
    past: Past = Past()

    def count(self, prefix: str) -> int:
        return sum(name.startswith(prefix) for name in self.names)


def task_info(client: Connection, plan_path: str, number: str) -> TaskInfo:
    """See Task.info."""
    return info_of(client.codec, number, read_task(client, plan_path, number))


def task_state(client: Connection, plan_path: str, number: str, is_task: bool) -> str:
    """See Task.state. `is_task`: there was such a task, so no history is read to prove that."""
    read = _read_znodes(client, plan_path, number)
    if read.summary is not None:
        return read.summary.state
    if read.outcome is None and not is_task:
        _past(client, plan_path, number, read)
    return "finished"


def require_task(client: Connection, plan_path: str, number: str) -> None:
    """Raises InvalidTask if no task of the plan ever had that number, and PlanNotFound."""
    if never_tasks(client, plan_path, [number]):
        raise never_was(plan_path, number)


def never_tasks(client: Connection, plan_path: str, numbers: Collection[str]) -> set[str]:
    """The `numbers` that certainly no task of the plan ever had. Raises PlanNotFound."""
    gone = list(numbers)
    # These znodes are smaller than that of the task, which holds its arguments.
    for below in ("task-{}/ready", "task-{}/incomplete", "results/{}"):
        reads = [ReadData(f"{plan_path}/{below.format(each)}") for each in gone]
        nodes = client.transport.run(read_all(reads)) if reads else []
        gone = [each for each, node in zip(gone, nodes, strict=True) if node is None]
    past = past_of(client.values, plan_path, gone) if gone else {}
    return {number for number, found in past.items() if found.never}


def read_task(client: Connection, plan_path: str, number: str) -> TaskRead:
    """Raises PlanNotFound, and InvalidTask if the task never existed."""
    read = _read_znodes(client, plan_path, number)
    if read.summary is not None:
        return read
    return read._replace(past=_past(client, plan_path, number, read))


def _past(client: Connection, plan_path: str, number: str, read: TaskRead) -> Past:
    past = past_of(client.values, plan_path, [number])[number]
    if read.outcome is not None:
        return Past(past.task)
    if past.never:
        raise never_was(plan_path, number)
    return past


def _read_znodes(client: Connection, plan_path: str, number: str) -> TaskRead:
    path = f"{plan_path}/task-{number}"
    while True:
        plan, node, names, owner, outcome = client.transport.ask(
            ReadMany(
                [
                    ReadData(plan_path),
                    ReadData(path),
                    ReadChildren(path),
                    ReadData(f"{path}/owner"),
                    ReadData(f"{plan_path}/results/{number}"),
                ]
            )
        )
        if plan is None:
            raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
        if node is None or names is None:
            return TaskRead(outcome)
        found = next(summaries(client, plan_path, [number]), None)
        if found is not None:
            break  # else it has finished meanwhile
    logs = [f"{path}/{name}" for name in sorted(names) if name.startswith("log-")]
    nodes = client.transport.run(read_all([ReadData(log) for log in logs]))
    shown = tuple(each for each in nodes if each is not None)
    return TaskRead(outcome, node.data, tuple(names), found, owner, shown)


def info_of(codec: Codec, number: str, read: TaskRead) -> TaskInfo:
    found = read.summary
    if found is None:
        return _finished(codec, number, read)
    failures, notes = read_log(codec, read.logs)
    last = None
    if found.state == "dead" and read.outcome is not None:
        last = open_kept(codec, read.outcome.data).failure
    if last is not None:
        failures.append(last)  # the failure of a cancel is in no log
    function, options = _definition(codec, read.definition)
    worker, attempt, since = found.worker, None, None
    if read.owner is not None and found.state == "running":
        named, _, n = read.owner.data.decode(errors="replace").partition(" ")
        worker, attempt = worker or named, int(n) if n.isdecimal() else None
        since = read.owner.created_ms / 1000
    return TaskInfo(
        number,
        found.name,
        function,
        found.state,
        attempts_used=found.attempts,
        worker=worker,
        since=since,
        due=found.due,
        waits_for=read.count("dep-"),
        feeds=read.count("prov-"),
        last_error=failures[-1].summary if failures else "",
        _last_failure=failures[-1] if failures else None,
        failed=found.state == "dead",
        attempt=attempt,
        arrived=read.count("arg-"),
        **options,
        _was_cancelled=last is not None and last.is_of_operator,
        _notes=tuple(notes),
        _is_json_only=codec.is_json_only,
    )


def _finished(codec: Codec, number: str, read: TaskRead) -> TaskInfo:
    """The facts in the kept outcome and the history; a field that neither has is None."""
    known = TaskInfo(
        number,
        None,
        None,
        "finished",
        attempts_used=None,
        worker=None,
        arrived=None,
        retry_delay=None,
        priority=None,
        pure=None,
        queue=None,
        limits=None,
        run_if=None,
        doubt=read.past.doubt,
    )
    task = read.past.task
    if task is not None:
        known = replace(
            known,
            name=task.name or None,
            attempts_used=task.used if task.used >= 0 else None,
            worker=task.worker or None,
            since=task.ended_ms / 1000 if task.gone else None,
            queue=task.queue if task.is_known else None,
            priority=task.priority,
            limits=tuple(limits_in(task.lane)) if task.is_known else None,
            last_error=task.error if task.state == "failed" else "",
            failed=task.state == "failed",
            skipped=task.state == "skipped",
        )
    return known if read.outcome is None else replace(known, **_kept(codec, read.outcome))


def _kept(codec: Codec, outcome: Node) -> dict[str, Any]:
    """The facts in the kept outcome, which may say more than the history."""
    kept = open_kept(codec, outcome.data)
    if kept.kind == "undecodable":
        return {}
    if kept.failure is not None:
        return {"last_error": kept.failure.summary, "failed": True, "skipped": False}
    name = split_name(kept.body)[0]
    found = {"last_error": "", "failed": False, "skipped": kept.kind == "skipped"}
    return found | ({"name": name} if name else {})


def _definition(codec: Codec, sealed: bytes) -> tuple[str, dict[str, Any]]:
    """The description of the function, and the options, or none if they cannot be read here."""
    try:
        record = codec.open_definition(sealed)
        options = task_options(record)
    except PayloadUndecodable as error:
        return f"(undecodable: {error})", {}
    found = {name: getattr(options, name) for name in _OPTIONS}
    found["is_code_sent"] = sends_code(record.function)
    return describe_function(record.function), found


def read_log(codec: Codec, nodes: Sequence[Node]) -> tuple[list[Failure], list[bytes]]:
    """The failures and the bodies of the progress notes in the log of a task, oldest first.

    Entries that cannot be read here are left out: they are damaged, or sealed with another secret.
    """
    failures, notes = list[Failure](), list[bytes]()
    for node in nodes:
        with suppress(PayloadUndecodable):
            kind, body = codec.open(FAILURE + LOG, node.data)
            if kind == LOG:
                notes.append(body)
            else:
                failures.append(Failure.from_bytes(body))
    return failures, notes
