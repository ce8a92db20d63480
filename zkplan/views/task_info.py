"""Collect what is known of one task, as data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import PayloadUndecodable, PlanNotFound
from ..protocol.core.load import read_all
from ..protocol.features.task_place import never_was
from ..protocol.layout import DEFAULT_QUEUE, limits_in
from ..protocol.records import Failure
from ..protocol.requests import Node, ReadChildren, ReadData, ReadMany
from ..values.codec import FAILURE, LOG, VALUE, Codec, load, task_options
from ..values.connection import Connection
from ..values.function_codec import describe_function, is_skipped, sends_code, split_name
from ..values.json_values import load_json
from .history_search import Past, past_of
from .history_state import TaskState
from .task_lists import TaskSummary, summaries

_OPTIONS = (
    *("attempts", "retry_delay", "timeout", "priority", "pure", "queue"),
    *("isolation", "memory_limit", "not_before", "deadline", "limits", "run_if"),
)


@dataclass(frozen=True)
class TaskInfo:
    """A task at one moment. Times are in wall-clock seconds since 1970.

    `state` is `finished` or one of the states of `Plan.tasks`. `name` is None if it cannot be read
    here. `attempts` is how often the task may run, `attempts_used` how many of these are used up. A
    claimed task has the `worker` that claimed it, `since` when, and `attempt`, its fencing number;
    a delayed one has `due`, when it becomes runnable. `waits_for` counts the results that have not
    arrived, `arrived` those that have, `feeds` the tasks that take its own. `last_error` is the
    text of the last failure that is kept, empty if there is none. `failed` says that a finished or
    dead task has failed for good. `retry_delay`, `timeout`, `priority`, `pure`, `queue`,
    `isolation`, `memory_limit` (in bytes), `not_before`, `deadline` and `run_if` are its options.
    `skipped` says that a finished task was skipped. `is_code_sent` says that the code of its
    function was sent with its plan, and not only its name.

    Of a finished task, `since` is when it ended and `worker` the one that ended it. These, `name`,
    `attempts_used`, `queue`, `priority` and `limits` come from the history of its plan. What that
    does not tell is None, and so are all other options. `doubt` says why a number may never have
    been a task, where neither a kept outcome nor the history can tell; else it is empty.
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
        """What the running task has told with `current().log`, oldest first.

        It decodes the values, which runs code of whoever wrote them, unless the client decodes
        JSON alone. Raises PayloadUndecodable.
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
    """See Task.state. Of what is known to be a task no history is read."""
    read = _read_znodes(client, plan_path, number)
    if read.summary is not None:
        return read.summary.state
    if read.outcome is None and not is_task:
        _past(client, plan_path, number, read)
    return "finished"


def require_task(client: Connection, plan_path: str, number: str) -> None:
    """Raises InvalidTask for a number that never was a task of the plan, and PlanNotFound."""
    if never_tasks(client, plan_path, [number]):
        raise never_was(plan_path, number)


def never_tasks(client: Connection, plan_path: str, numbers: Collection[str]) -> set[str]:
    """Those of the numbers that certainly never were tasks of the plan. Raises PlanNotFound."""
    gone = list(numbers)
    # What a task has is smaller than its own znode, which holds its arguments.
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
    failures, notes = failures_in(codec, read.logs), _notes(codec, read.logs)
    last = _last_failure(codec, read.outcome) if found.state == "dead" else None
    if last is not None:
        failures.append(last)  # that of a cancel is in no log
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
        _notes=notes,
        _is_json_only=codec.is_json_only,
    )


def _finished(codec: Codec, number: str, read: TaskRead) -> TaskInfo:
    """What the kept outcome and the history say; None for what neither knows."""
    told, outcome = read.past.task, read.outcome
    known = _told(told) if told is not None else _UNKNOWN
    if outcome is not None:
        known = known | _kept(codec, outcome)
    return TaskInfo(
        number,
        known["name"],
        None,
        "finished",
        attempts_used=known["attempts_used"],
        worker=known["worker"],
        since=known["since"],
        last_error=known["last_error"],
        failed=known["failed"],
        skipped=known["skipped"],
        queue=known["queue"],
        priority=known["priority"],
        limits=known["limits"],
        arrived=None,
        retry_delay=None,
        pure=None,
        run_if=None,
        doubt=read.past.doubt,
    )


_UNKNOWN: dict[str, Any] = {
    **dict.fromkeys(("name", "attempts_used", "worker", "since", "queue", "priority", "limits")),
    "last_error": "",
    "failed": False,
    "skipped": False,
}


def _told(task: TaskState) -> dict[str, Any]:
    """What the history says of a task that has ended."""
    return {
        "name": task.name or None,
        "attempts_used": task.used if task.used >= 0 else None,
        "worker": task.worker or None,
        "since": task.ended_ms / 1000 if task.gone else None,
        "queue": task.queue if task.is_known else None,
        "priority": task.priority,
        "limits": tuple(limits_in(task.lane)) if task.is_known else None,
        "last_error": task.error if task.state == "failed" else "",
        "failed": task.state == "failed",
        "skipped": task.state == "skipped",
    }


def _kept(codec: Codec, outcome: Node) -> dict[str, Any]:
    """What the kept outcome says, which may be more than the history."""
    try:
        kind, body = codec.open(VALUE + FAILURE, outcome.data)
        if kind == FAILURE:
            failure = Failure.from_bytes(body)
            return {"last_error": failure.summary, "failed": True, "skipped": False}
    except PayloadUndecodable:
        return {}  # damaged, or signed with another secret
    name = split_name(body)[0]
    found = {"last_error": "", "failed": False, "skipped": is_skipped(body)}
    return found | ({"name": name} if name else {})


def _last_failure(codec: Codec, outcome: Node | None) -> Failure | None:
    """The final failure of a dead task, if it is kept and can be read here."""
    if outcome is None:
        return None
    try:
        return Failure.from_bytes(codec.open(FAILURE, outcome.data)[1])
    except PayloadUndecodable:
        return None  # damaged, or signed with another secret


def _definition(codec: Codec, sealed: bytes) -> tuple[str, dict[str, Any]]:
    """The text for its function, and its options; none if they cannot be read here."""
    try:
        record = codec.open_definition(sealed)
        options = task_options(record)
    except PayloadUndecodable as error:
        return f"(undecodable: {error})", {}
    found = {name: getattr(options, name) for name in _OPTIONS}
    found["is_code_sent"] = sends_code(record.function)
    return describe_function(record.function), found


def failures_in(codec: Codec, nodes: Sequence[Node]) -> list[Failure]:
    """The failures among the log of a task, as far as they can be read here, the oldest first."""
    found = []
    for node in nodes:
        try:
            kind, body = codec.open(FAILURE + LOG, node.data)
            if kind == FAILURE:
                found.append(Failure.from_bytes(body))
        except PayloadUndecodable:
            continue  # damaged, or signed with another secret
    return found


def _notes(codec: Codec, nodes: Sequence[Node]) -> tuple[bytes, ...]:
    """The bodies of progress notes."""
    notes = []
    for node in nodes:
        try:
            kind, body = codec.open(FAILURE + LOG, node.data)
        except PayloadUndecodable:
            continue  # damaged, or signed with another secret: `zkplan task show` says so
        if kind == LOG:
            notes.append(body)
    return tuple(notes)
