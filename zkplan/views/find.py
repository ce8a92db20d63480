"""Find a plan or a task by its path, number, name or key."""

from __future__ import annotations

from ..basics.text import count
from ..errors import InvalidTask, PlanError, PlanNotFound
from ..protocol.core.plans_and_queues import plan_records, readable_record, refuse_hidden
from ..protocol.features.keys import find_key
from ..protocol.fields import require_proven
from ..protocol.layout import Paths, number_of, task_key
from ..protocol.records import PlanRecord
from ..protocol.requests import ReadData
from ..values.connection import Connection
from .deadlock import dead_letters
from .history import ended_tasks
from .outcomes import kept_outcomes
from .root_access import hint_at_root
from .unfinished import unfinished_tasks

#: What stands before a key where a plan is named by a text. No name begins with it.
KEY_PREFIX = "key:"
Found = tuple[str, PlanRecord | None]


def find_plan(client: Connection, which: str | int | None, key: str | None, only: bool) -> Found:
    """See Client.plan. Returns the path, and the record unless it is damaged or of a later
    format."""
    if (which is None) == (key is None):
        raise TypeError("plan() takes a path, a number or a name, or else key=…")
    if key is not None:
        return _by_key(client, key)
    text = str(which).removeprefix("plan-")
    if text.startswith(KEY_PREFIX):
        return _by_key(client, text.removeprefix(KEY_PREFIX))
    paths = client.paths
    path = path_given(paths, text)
    if not path:
        return _by_name(client, text, only)
    if not path.startswith(paths.root + "/plan-"):
        raise PlanNotFound(path, f"{path} is not a plan under {paths.root}")
    node = client.transport.ask(ReadData(path))
    if node is None:
        raise PlanNotFound(path, f"there is no plan {path}{hint_at_root(client)}")
    return path, readable_record(node.data)


def path_given(paths: Paths, which: str) -> str:
    """The path of a plan that is given by its path or its number; empty if by its name or key."""
    text = which.removeprefix("plan-")
    if text.startswith("/"):
        return text
    return paths.plan(f"{int(text):010d}") if text.isdecimal() and len(text) <= 10 else ""


def _by_key(client: Connection, key: str) -> Found:
    held = client.transport.run(find_key(client.paths, key))
    if held is None or held.plan is None:
        message = f"there is no plan with the key {key!r} under {client.root}"
        raise PlanNotFound(f"{KEY_PREFIX}{key}", message + hint_at_root(client))
    return client.paths.plan(held.number), readable_record(held.plan.data)


def _by_name(client: Connection, name: str, only: bool) -> Found:
    found = client.transport.run(plan_records(client.paths))
    named = [(path, record) for path, record in found if record and record.name == name]
    if not named:
        client.transport.run(refuse_hidden(client.paths))
        message = f"there is no plan named {name!r} under {client.root}"
        if unread := sum(record is None for _, record in found):
            message += f"; {count(unread, 'plan')} cannot be read here: "
            message += "a key (secret-files) may be missing"
        raise PlanNotFound(name, message + hint_at_root(client))
    if only and len(named) > 1:
        numbers = ", ".join(str(int(number_of(path))) for path, _ in named)
        raise PlanError(
            named[-1][0],
            f"{len(named)} plans are named {name!r}: give the number of one: {numbers}",
        )
    return named[-1]


# ---- Find a task by its number, its key or its name.


def find_task(client: Connection, plan_path: str, which: str | int) -> tuple[str, str]:
    """See Plan.task. Returns the number, and the key or name if `which` is one."""
    name = str(which)
    digits = name.removeprefix("task-")
    if digits.isdecimal() and len(digits) <= 10:
        return f"{int(digits):010d}", ""
    if not name:
        raise InvalidTask(name, "an empty text is neither the number nor the name of a task")
    keyed = client.transport.ask(ReadData(task_key(plan_path, name)))
    if keyed is not None:
        require_proven(keyed.data)
        return number_of(keyed.data[:10].decode(errors="replace")), name
    found, unread = set(), 0
    for task in unfinished_tasks(client, plan_path):
        unread += task.name is None
        if task.name == name:
            found.add(task.number)
    letters = dead_letters(client.transport, plan_path)
    found |= {number for number, letter in letters if letter.name == name}
    if not found:
        for kept in kept_outcomes(client, plan_path):
            unread += kept.kind == "undecodable"
            if kept.name == name:
                found.add(kept.number)
    if not found:
        ended = ended_tasks(client.values, plan_path)
        found = {f"{task.number:010d}" for task in ended or () if task.name == name}
    if len(found) == 1:
        return found.pop(), name
    if found:
        message = (
            f"{plan_path} has {len(found)} tasks named {name!r}; give the number of one:  "
            + ", ".join(sorted(found)[:5])
            + (", …" if len(found) > 5 else "")
        )
    elif unread:
        message = (
            f"{plan_path} has no task with the readable name {name!r}, and "
            f"{count(unread, 'task')} whose name cannot be read here: the secret "
            "(secret-files) may be missing or wrong; give the number of the task instead"
        )
    else:
        message = (
            f"{plan_path} has no unfinished task named {name!r}, no kept outcome of one, and none "
            "in its history, as far as that reaches (keep=True, or a key, stay)"
        )
    raise InvalidTask(name, message)
