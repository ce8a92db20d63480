"""Find a task by its number, its key or its name."""

from __future__ import annotations

from ..basics.text import count
from ..connection import Connection
from ..errors import InvalidTask
from ..history.reading import ended_tasks
from ..protocol.layout import number_of, task_key
from ..protocol.requests import ReadData
from ..protocol.unproven import require_proven
from .dead_letters import dead_letters
from .outcomes import kept_outcomes
from .unfinished import unfinished_tasks


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
        told = (
            f"{plan_path} has {len(found)} tasks named {name!r}; give the number of one:  "
            + ", ".join(sorted(found)[:5])
            + (", …" if len(found) > 5 else "")
        )
    elif unread:
        told = (
            f"{plan_path} has no task with the readable name {name!r}, and "
            f"{count(unread, 'task')} whose name cannot be read here: the secret "
            "(secret-files) may be missing or wrong; give the number of the task instead"
        )
    else:
        told = (
            f"{plan_path} has no unfinished task named {name!r}, no kept outcome of one, and none "
            "in its history, as far as that reaches (keep=True, or a key, stay)"
        )
    raise InvalidTask(name, told)
