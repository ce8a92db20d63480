"""Describe one task as text for `zkplan task show`. Values are decoded only on request."""

from __future__ import annotations

from typing import Any

from ..basics.text import date_time, summary_of
from ..errors import PayloadUndecodable
from ..protocol.layout import number_of
from ..protocol.records import Failure
from ..protocol.requests import Node
from ..values.blobs import value_size
from ..values.codec import FAILURE, LOG, Codec
from ..values.connection import Connection
from ..values.function_codec import split_name
from ..values.plan_values import Values
from .dependencies import dependencies, dependents
from .gates import gates_of
from .history import told_tasks
from .history_state import TaskState
from .outcomes import open_kept
from .task_info import TaskInfo, TaskRead, info_of, read_task
from .unfinished import TaskSummary, summaries

#: These facts are lines of text for people, and lists for programs.
_LISTS = ("waits_for", "feeds", "log")


def describe_task(
    client: Connection, task_path: str, people: bool = True, values: bool = False
) -> dict[str, Any]:
    """Return state, options, edges, attempts and outcome of a task.

    `people` joins lists into lines of text. `values` adds the `repr` of the result and of the
    progress notes, and the list `undecoded`: why some could not be decoded. Decoding runs code of
    their writers. Raises InvalidTask if there never was such a task.
    """
    codec = client.codec
    plan_path, number = task_path.rpartition("/")[0], number_of(task_path)
    read = read_task(client, plan_path, number)
    info, outcome, task = info_of(codec, number, read), read.outcome, read.past.task
    if info.state in ("running", "dead") or info.attempts_used:
        task = task or _in_history(client, plan_path, number)
    facts: dict[str, Any] = {"path": task_path}
    shown = _Values(client.values, plan_path) if values else None
    if read.summary is None:
        facts |= _finished(info, people) | _ended(task, people)
    else:
        neighbours = neighbours_of(client, task_path, read, people)
        if not neighbours:
            return describe_task(client, task_path, people, values)  # finished meanwhile
        facts |= _definition(info) | _state(info, people) | neighbours
        if info.state == "gated":
            facts |= _gate(client, plan_path, number, people)
        facts["arrived"] = info.arrived
        facts["log"] = [_entry(codec, found, people, shown) for found in read.logs]
    if outcome is not None:
        facts |= _outcome(codec, outcome.data, shown)
    if task is not None and task.printed:
        told = f"{task.printed:,} bytes, the last of them: `zkplan task logs`"
        facts["printed"] = told if people else task.printed
    if people:
        facts |= {name: "\n".join(facts[name]) for name in _LISTS if name in facts}
    if shown is not None:
        facts["undecoded"] = shown.failed
    return facts


def _in_history(client: Connection, plan_path: str, number: str) -> TaskState | None:
    """The task in the history; None if the history does not have it, or is damaged."""
    try:
        return (told_tasks(client.values, plan_path) or {}).get(int(number))
    except PayloadUndecodable:
        return None


def _finished(info: TaskInfo, people: bool) -> dict[str, Any]:
    """The known facts of a finished task. For people, unknown facts are left out."""
    facts = {"state": info.state, "doubt": info.doubt or None, "name": info.name}
    names = ("queue", "priority", "limits", "attempts_used", "worker")
    facts |= {name: getattr(info, name) for name in names}
    facts["finished"] = None if info.since is None else date_time(info.since, people)
    if people:
        facts["limits"] = ", ".join(info.limits or ()) or None
    return {name: value for name, value in facts.items() if value is not None or not people}


def _ended(task: TaskState | None, people: bool) -> dict[str, Any]:
    """More facts from the history, for a task that has ended."""
    if task is None or not task.gone:
        return {}
    facts: dict[str, Any] = {"ended": task.state, "size": task.size}
    moments = {"added": task.added_ms, "claimed": task.claimed_ms, "started": task.started_ms}
    for name, ms in moments.items():
        if ms:
            facts[name] = date_time(ms / 1000, people)
    facts["seconds"] = task.ran_ms / 1000 if task.ran_ms >= 0 else None
    if task.error:
        facts["error"] = task.error
    return facts


def _definition(info: TaskInfo) -> dict[str, Any]:
    if info.attempts is None:
        return {"function": info.function}
    names = ("name", "function", "attempts", "retry_delay", "timeout", "priority", "pure", "queue")
    facts = {name: getattr(info, name) for name in (*names, "run_if")}
    if info.isolation is not None or info.memory_limit is not None:
        facts |= {"isolation": info.isolation, "memory_limit": info.memory_limit}
    return facts


def _state(info: TaskInfo, people: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"state": info.state, "attempts_used": info.attempts_used}
    if info.due is not None:
        facts["due"] = date_time(info.due, people)
    if info.state == "running":
        # People count attempts from 1; for programs it is the fencing number.
        attempt = "" if info.attempt is None else str(info.attempt + people)
        facts |= {"worker": info.worker, "attempt": attempt}
    if info.since is not None:
        facts["since"] = date_time(info.since, people)
    return facts


def _gate(client: Connection, plan_path: str, number: str, people: bool) -> dict[str, Any]:
    """What a gate waits for, and what keeps workers from looking; empty if it has just opened."""
    found = next(iter(gates_of(client, plan_path, [number])), None)
    if found is None:
        return {}
    facts = {"gate": found.waits_for}
    if found.error and people:
        facts["gate_error"] = f"worker {found.worker}: {found.error}"
    elif found.error:
        facts |= {"gate_error": found.error, "gate_worker": found.worker}
    return facts


def neighbours_of(
    client: Connection, task_path: str, read: TaskRead, people: bool
) -> dict[str, Any]:
    """The tasks at the other ends of its edges; empty if the task has finished meanwhile."""
    plan_path, number = task_path.rpartition("/")[0], number_of(task_path)
    provs = [name for name in read.names if name.startswith("prov-")]
    deps = [name for name in read.names if name.startswith("dep-")]
    sides = {
        "waits_for": dependencies(client.transport, plan_path, number, deps),
        "feeds": dependents(client.transport, task_path, provs),
    }
    numbers = [each for side in sides.values() for each in side.tasks]
    found = {each.number: each for each in summaries(client, plan_path, [number, *numbers])}
    if number not in found:
        return {}
    facts: dict[str, Any] = {}
    for name, side in sides.items():
        facts[name] = [_named(found[each], people) for each in side.tasks if each in found]
        if not people:
            facts[f"{name}_count"] = len(deps if name == "waits_for" else provs)
        elif side.more:
            facts[name].append(f"… and {side.more:,} more" + (f", {side.why}" if side.why else ""))
    return facts


def _named(found: TaskSummary, people: bool) -> str | dict[str, Any]:
    due = "" if found.due is None else date_time(found.due, people)
    if not people:
        seen: dict[str, Any]
        seen = {"number": found.number, "name": found.name, "state": found.state}
        return seen | ({"due": due} if due else {})
    parts = [f"task-{found.number}", found.name or "", found.state, f"(due {due})" if due else ""]
    return " ".join(part for part in parts if part)


class _Values:
    """Returns the `repr` of values, and collects why some cannot be decoded here."""

    def __init__(self, values: Values, plan_path: str) -> None:
        self._values, self._plan = values, plan_path
        self.failed: list[str] = []

    def text(self, body: bytes) -> str:
        try:
            return repr(self._values.load(self._plan, body))
        except PayloadUndecodable as error:
            return self.refused(str(error))
        except Exception as error:  # a user's class may raise anything
            return self.refused(summary_of(error))

    def refused(self, why: str) -> str:
        self.failed.append(why)
        return f"(undecodable: {why})"


def _entry(codec: Codec, node: Node, people: bool = True, values: _Values | None = None) -> str:
    # A progress note holds only its value, so the time is that of its znode.
    noted = date_time(node.created_ms / 1000, people)
    try:
        kind, body = codec.open(FAILURE + LOG, node.data)
        if kind == LOG:
            said = f" of {len(body)} bytes" if values is None else f": {values.text(body)}"
            return f"{noted} progress note{said}"
        failure = Failure.from_bytes(body)
    except PayloadUndecodable as error:
        if values is not None:
            values.refused(str(error))
        return f"{noted} (undecodable: {error})"
    where = f" on {failure.worker}" if failure.worker else ""
    when = date_time(failure.when, people)
    return f"{when} attempt {failure.n + 1}{where}: {failure.summary}"


def _outcome(codec: Codec, sealed: bytes, values: _Values | None = None) -> dict[str, str]:
    """The outcome for people, and with `values` the value that it holds."""
    kept = open_kept(codec, sealed)
    if kept.failure is not None:
        return {"outcome": f"failed: {kept.failure.summary}\n{kept.failure.traceback}".rstrip()}
    if kept.kind == "undecodable":
        text = f"(undecodable: {kept.why})"
        return {"outcome": text} | ({"value": values.refused(kept.why)} if values else {})
    size = value_size(split_name(kept.body)[1])
    what = "skipped, with a value" if kept.kind == "skipped" else "a result"
    text = f"{what} of {size} bytes (Task.result() reads it, --values shows it)"
    return {"outcome": text} | ({"value": values.text(kept.body)} if values else {})
