"""The operations of an update of several tasks, and what is said of those that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..functions.task_spec import TaskSpec
from ..protocol.update_parts import DECIDED, FINISHED, UNDEFINED, UNKNOWN, Verb
from .leased import Refusal


@dataclass(frozen=True)
class Add:
    """Add a task. Its arguments may be tasks that are added before it in the same update."""

    spec: TaskSpec


@dataclass(frozen=True)
class Complete:
    """Commit a result under a claim."""

    id: str
    value: Any = None


@dataclass(frozen=True)
class Decide:
    """Skip (with `value`), cancel, retry or move (to `priority`) a task, or only check it.

    `expect` is a version of the task, or the beginning of one, which it must have.
    """

    task: int
    verb: Verb
    expect: str = ""
    value: Any = None
    priority: int = 0


Operation = Add | Complete | Decide


class Refused(NamedTuple):
    """Why an operation does not fit: `at` is its place in the update.

    `expected` and `found` are versions of the task, or states; `task` is None for an added one.
    `refused` is that of a completion, as in `Outcome`.
    """

    at: int
    task: int | None
    expected: str
    found: str
    why: str
    todo: str
    refused: Refusal = ""


class Updated(NamedTuple):
    """An update that was applied. `tasks` are the numbers of the added ones, in order; `existed`
    says which of them the plan had by their keys. `repeated`: an earlier request of the same key
    has applied it."""

    tasks: Sequence[int]
    existed: Sequence[bool]
    repeated: bool


_EXPECTED: dict[Verb, str] = {
    "skip": "a task that has not ended",
    "cancel": "a task that has not ended, and is not dead",
    "retry": "a dead or delayed task",
    "move": "a task that is neither running, gated nor dead",
    "check": "a task that has not ended",
}
_READ_AGAIN = "Read the task again, and decide anew."
_TODO = {
    UNKNOWN: "Name a task that was added.",
    UNDEFINED: "Wait until its author has defined it.",
    FINISHED: "Leave this operation out: the task has ended.",
    DECIDED: "Leave this operation out: its outcome is fixed.",
}


def refused_decision(index: int, wanted: Decide, found: str, why: str) -> Refused:
    """What is said of a decision, a retry, a move or a check that does not fit."""
    expected = wanted.expect or _EXPECTED[wanted.verb]
    told = why or f"task {wanted.task} was found as {found}"
    todo = _TODO.get(found, _READ_AGAIN)
    return Refused(index, wanted.task, expected, found, told, todo)
