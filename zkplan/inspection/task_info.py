"""What is known of one task, for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..connection import Connection
from ..errors import InvalidTask, PayloadUndecodable, PlanNotFound
from ..protocol.load import read_all
from ..protocol.records import Failure, TaskRecord
from ..protocol.requests import Node, ReadChildren, ReadData, ReadMany
from ..serialization.codec import (
    FAILURE,
    LOG,
    TASK,
    VALUE,
    Codec,
    describe_function,
    load,
    split_name,
    task_options,
)
from .unfinished import summaries


@dataclass(frozen=True)
class TaskInfo:
    """A task at one moment. Times are in wall-clock seconds since 1970.

    `state` is `finished` or one of the states of `Plan.tasks`. `name` is None if it cannot be read
    here. `attempts` is how often the task may run (None for a finished task), `attempts_used` how
    many of these are used up. A claimed task has the `worker` that claimed it and `since` when; a
    delayed one has `due`, when it becomes runnable. `waits_for` counts the results that have not
    arrived, `feeds` the tasks that take its own. `last_error` is the text of the last failure that
    is kept, empty if there is none. `failed` says that a finished or dead task has failed for good.
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
    _notes: tuple[bytes, ...] = ()

    def progress(self) -> list[Any]:
        """What the running task has told with `current().log`, oldest first.

        It decodes the values, which runs code of whoever wrote them. Raises PayloadUndecodable.
        """
        return [load(note) for note in self._notes]


def task_info(client: Connection, plan_path: str, number: str) -> TaskInfo:
    """See Task.info."""
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
            return _finished(client.codec, number, outcome)
        found = next(summaries(client, plan_path, [number]), None)
        if found is not None:
            break  # else it has finished meanwhile
    logs = [f"{path}/{name}" for name in sorted(names) if name.startswith("log-")]
    nodes = client.transport.run(read_all([ReadData(log) for log in logs]))
    errors, notes = _logs(client.codec, [each for each in nodes if each is not None])
    function, attempts = _definition(client.codec, node.data)
    return TaskInfo(
        number,
        found.name,
        function,
        found.state,
        attempts,
        found.attempts,
        found.worker,
        owner.created_ms / 1000 if owner is not None and found.state == "claimed" else None,
        found.due,
        sum(name.startswith("dep-") for name in names),
        sum(name.startswith("prov-") for name in names),
        errors[-1] if errors else "",
        found.state == "dead",
        notes,
    )


def _finished(codec: Codec, number: str, outcome: Node | None) -> TaskInfo:
    if outcome is None:
        return TaskInfo(number, None, "", "finished")
    error, name, failed = "", "", False
    try:
        kind, body = codec.open(VALUE + FAILURE, outcome.data)
        if kind == FAILURE:
            error, failed = Failure.from_bytes(body).summary, True
        else:
            name = split_name(body)[0]
    except PayloadUndecodable:
        pass  # the name stays unknown: damaged, or signed with another secret
    return TaskInfo(number, name or None, "", "finished", last_error=error, failed=failed)


def _definition(codec: Codec, sealed: bytes) -> tuple[str, int | None]:
    try:
        record = TaskRecord.from_bytes(codec.open(TASK, sealed)[1])
        return describe_function(record.function), task_options(record).attempts
    except PayloadUndecodable:
        return "", None


def _logs(codec: Codec, nodes: list[Node]) -> tuple[list[str], tuple[bytes, ...]]:
    """The texts of failures, and the bodies of progress notes."""
    errors, notes = [], []
    for node in nodes:
        try:
            kind, body = codec.open(FAILURE + LOG, node.data)
            if kind == LOG:
                notes.append(body)
            else:
                errors.append(Failure.from_bytes(body).summary)
        except PayloadUndecodable:
            continue  # damaged, or signed with another secret: `zkplan task show` says so
    return errors, tuple(notes)
