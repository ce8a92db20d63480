"""Whether results will be kept: said before they are waited for, not after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ..basics.text import count
from ..connection import Connection
from ..errors import PayloadUndecodable, ResultNotKept
from ..protocol.control import status as read_status
from ..protocol.layout import parse_task
from ..protocol.load import read_all
from ..protocol.requests import ReadChildren, ReadData
from ..serialization.codec import Codec, task_options


class Keeps(Protocol):
    """What is needed of a task. Task implements it."""

    name: str

    def _is_kept(self) -> bool | None:
        """Whether its result will be kept, None if the handle does not know."""


#: Definitions that are read at once to find a task that keeps its result.
TASKS_PER_BATCH = 300


def refuse_unkept(
    client: Connection, plan_path: str, tasks: Mapping[str, Keeps], if_any: bool = True
) -> None:
    """Raise ResultNotKept for tasks that have no outcome yet and will not keep their results, as
    far as it can be known now: if it is so of any, or else only if it is so of all. `tasks` is by
    number."""
    asked = {number: task for number, task in tasks.items() if task._is_kept() is not True}
    reads: list[ReadData | ReadChildren] = []
    for number in asked:
        path = f"{plan_path}/task-{number}"
        # An outcome may be large, and only its existence counts.
        reads += (ReadChildren(f"{plan_path}/results/{number}"), ReadData(path), ReadChildren(path))
    answers = client.transport.run(read_all(reads))
    unkept = []
    for at, number in enumerate(asked):
        outcome, node, names = answers[3 * at : 3 * at + 3]
        if outcome is not None or node is None or names is None:
            continue  # it has finished: its outcome is there or not
        if is_kept(client.codec, asked[number], node.data, names) is False:
            unkept.append(number)
    if unkept and (if_any or len(unkept) == len(tasks)):
        raise will_not_be_kept(unkept[0], tasks[unkept[0]], len(unkept) - 1)


def refuse_if_nothing_is_kept(client: Connection, plan_path: str) -> None:
    """Raise ResultNotKept for a plan that goes on, has no kept outcome, and has no task that will
    keep its result, as far as it can be known now."""
    ask = client.transport.ask
    status = client.transport.run(read_status(plan_path))
    if status.outcomes or status.state not in ("running", "paused"):
        return
    names = sorted(name for name in ask(ReadChildren(plan_path)) or () if parse_task(name))
    # The last tasks of a plan are mostly those that nobody takes, so one batch tells.
    for end in range(len(names), 0, -TASKS_PER_BATCH):
        paths = [f"{plan_path}/{name}" for name in names[max(0, end - TASKS_PER_BATCH) : end]]
        reads = [read for path in paths for read in (ReadData(path), ReadChildren(path))]
        answers = client.transport.run(read_all(reads))
        for node, children in zip(answers[::2], answers[1::2], strict=True):
            if node is not None and _keeps(client.codec, node.data, children or ()) is not False:
                return
    if not names or ask(ReadChildren(f"{plan_path}/results")):
        return  # what has ended meanwhile may have kept its result
    raise ResultNotKept(
        plan_path,
        f"no result of {plan_path} is kept: {count(len(names), 'task')} of it, and all give theirs "
        "to their dependents alone. Add with keep=True what you ask for. If tasks add others that "
        "are kept, wait first (`plan.wait()`)",
    )


def is_kept(codec: Codec, task: Keeps, definition: bytes, names: Iterable[str]) -> bool | None:
    """Whether the result of an unfinished task will be kept. None if that cannot be known here.

    `definition` is the data of its znode, `names` are the children.
    """
    known = task._is_kept()
    return _keeps(codec, definition, names) if known is None else known


def _keeps(codec: Codec, definition: bytes, names: Iterable[str]) -> bool | None:
    try:
        keep = task_options(codec.open_definition(definition)).keep
    except PayloadUndecodable:
        return None  # signed with another secret, as its result will be
    return keep or (keep is None and not any(name.startswith("prov-") for name in names))


def will_not_be_kept(number: str, task: Keeps, more: int = 0) -> ResultNotKept:
    others = f" (and {more} more)" if more else ""
    return ResultNotKept(
        task.name or number,
        f"the result of {task!r}{others} goes to its dependents and is not kept: add it with "
        "keep=True",
    )
