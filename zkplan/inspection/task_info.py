"""What is known of one task, for programs and for `zkplan task show`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..connection import Connection
from ..errors import InvalidTask, PayloadUndecodable, PlanNotFound
from ..protocol.layout import DEFAULT_QUEUE
from ..protocol.load import read_all
from ..protocol.records import Failure
from ..protocol.requests import Node, ReadChildren, ReadData, ReadMany
from ..serialization.codec import FAILURE, LOG, VALUE, Codec, load, task_options
from ..serialization.functions import describe_function, is_skipped, sends_code, split_name
from ..serialization.json_values import load_json
from .unfinished import TaskSummary, summaries

_OPTIONS = (
    *("attempts", "retry_delay", "timeout", "priority", "pure", "queue"),
    *("isolation", "memory_limit", "not_before", "deadline", "limits", "run_if"),
)


@dataclass(frozen=True)
class TaskInfo:
    """A task at one moment. Times are in wall-clock seconds since 1970.

    `state` is `finished` or one of the states of `Plan.tasks`. `name` is None if it cannot be read
    here. `attempts` is how often the task may run (None for a finished task), `attempts_used` how
    many of these are used up. A claimed task has the `worker` that claimed it, `since` when, and
    `attempt`, its fencing number; a delayed one has `due`, when it becomes runnable. `waits_for`
    counts the results that have not arrived, `arrived` those that have, `feeds` the tasks that take
    its own. `last_error` is the text of the last failure that is kept, empty if there is none.
    `failed` says that a finished or dead task has failed for good. `retry_delay`, `timeout`,
    `priority`, `pure`, `queue`, `isolation`, `memory_limit` (in bytes), `not_before`, `deadline`
    and `run_if` are its options. `skipped` says that a finished task was skipped. `is_code_sent`
    says that the code of its function was sent with its plan, and not only its name.
    """

    number: str
    name: str | None
    function: str
    state: str
    attempts: int | None = None
    attempts_used: int = 0
    worker: str = ""
    since: float | None = None
    due: float | None = None
    waits_for: int = 0
    feeds: int = 0
    last_error: str = ""
    failed: bool = False
    attempt: int | None = None
    arrived: int = 0
    retry_delay: float = 0.0
    timeout: float | None = None
    priority: int = 0
    pure: bool = False
    queue: str = DEFAULT_QUEUE
    isolation: str | None = None
    memory_limit: int | None = None
    not_before: float | None = None
    deadline: float | None = None
    limits: tuple[str, ...] = ()
    run_if: str = "all_succeeded"
    skipped: bool = False
    is_code_sent: bool = False
    _last_failure: Failure | None = None
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
    (its children) and a `summary`."""

    outcome: Node | None
    definition: bytes = b""
    names: tuple[str, ...] = ()
    summary: TaskSummary | None = None
    owner: Node | None = None
    logs: tuple[Node, ...] = ()

    def count(self, prefix: str) -> int:
        return sum(name.startswith(prefix) for name in self.names)


def task_info(client: Connection, plan_path: str, number: str) -> TaskInfo:
    """See Task.info."""
    return info_of(client.codec, number, read_task(client, plan_path, number))


def read_task(client: Connection, plan_path: str, number: str) -> TaskRead:
    """Raises PlanNotFound, and InvalidTask if the task never existed."""
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
            if int(number) >= (plan.cversion + plan.child_count) // 2:
                raise InvalidTask(number, f"{path} does not exist: it was never added")
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
        return _finished(codec, number, read.outcome)
    failures, notes = failures_in(codec, read.logs), _notes(codec, read.logs)
    function, options = _definition(codec, read.definition)
    worker, attempt, since = found.worker, None, None
    if read.owner is not None and found.state == "claimed":
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
        _notes=notes,
        _is_json_only=codec.is_json_only,
    )


def _finished(codec: Codec, number: str, outcome: Node | None) -> TaskInfo:
    if outcome is None:
        return TaskInfo(number, None, "", "finished")
    error, name, failed, was_skipped = "", "", False, False
    try:
        kind, body = codec.open(VALUE + FAILURE, outcome.data)
        if kind == FAILURE:
            error, failed = Failure.from_bytes(body).summary, True
        else:
            name, was_skipped = split_name(body)[0], is_skipped(body)
    except PayloadUndecodable:
        pass  # the name stays unknown: damaged, or signed with another secret
    return TaskInfo(
        number, name or None, "", "finished", last_error=error, failed=failed, skipped=was_skipped
    )


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
