"""Whether results will be kept: said before they are waited for, not after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ..connection import Connection
from ..errors import PayloadUndecodable, ResultNotKept
from ..protocol.load import read_all
from ..protocol.records import TaskRecord
from ..protocol.requests import ReadChildren, ReadData
from ..serialization.codec import TASK, Codec, task_options


class Keeps(Protocol):
    """What is needed of a task. Task implements it."""

    name: str

    def _is_kept(self) -> bool | None:
        """Whether its result will be kept, None if the handle does not know."""


def refuse_unkept(client: Connection, plan_path: str, tasks: Mapping[str, Keeps]) -> None:
    """Raise ResultNotKept for tasks that have no outcome yet and will not keep their results, as
    far as it can be known now. `tasks` is by number."""
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
    if unkept:
        raise will_not_be_kept(unkept[0], tasks[unkept[0]], len(unkept) - 1)


def is_kept(codec: Codec, task: Keeps, definition: bytes, names: Iterable[str]) -> bool | None:
    """Whether the result of an unfinished task will be kept. None if that cannot be known here.

    `definition` is the data of its znode, `names` are the children.
    """
    known = task._is_kept()
    if known is not None:
        return known
    try:
        keep = task_options(TaskRecord.from_bytes(codec.open(TASK, definition)[1])).keep
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
