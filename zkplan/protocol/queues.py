"""The queues of a plan: make those that tasks name, and read what is runnable in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .layout import DEFAULT_QUEUE, QUEUES, Entry, parse_entry, parse_queue, queue_in, queue_path
from .requests import (
    Applied,
    Check,
    Create,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Step,
)
from .shared import REFUSALS_MAX, rejected


def list_queues(plan_path: str) -> Step[list[str]]:
    """The queues of a plan, sorted, but the default one, which each plan has."""
    names = (yield ReadChildren(f"{plan_path}/{QUEUES}")) or ()
    return sorted(name for name in names if parse_queue(name) is not None)


def make_queues(plan_path: str, wanted: Iterable[str]) -> Step[bool | None]:
    """Make those of these queues that the plan lacks. Returns whether that took a task number.

    Returns None, and makes nothing, if the plan takes no tasks now: it has ended, or it is one of
    plain creates that a check has not completed yet. Raises TransactionRejected, ServerFull.
    """
    made = False
    missing = sorted({*map(queue_in, wanted)} - {DEFAULT_QUEUE})
    for _ in range(REFUSALS_MAX if missing else 0):
        names = yield ReadChildren(f"{plan_path}/{QUEUES}")
        missing = [queue for queue in missing if queue not in (names or ())]
        if not missing:
            break
        # A plan is open for adds as long as `add-count` stands.
        ops: list[Op] = [Check(f"{plan_path}/add-count")]
        if names is None:
            ops.append(Create(f"{plan_path}/{QUEUES}"))
        ops += [Create(f"{plan_path}/{QUEUES}/{queue}") for queue in missing]
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            return made or names is None
        if answer.at == 0:
            return None
        # The first copy of a repeated transaction may have taken the number.
        made = made or names is None
        if answer.reason not in (Reason.NODE_EXISTS, Reason.NO_NODE):
            raise rejected(f"making the queues {', '.join(missing)} of {plan_path}", answer)
    return made


def make_and_count(plan_path: str, queues: Iterable[str]) -> Step[tuple[Node | None, bool]]:
    """Make the queues of tasks that are about to be added. Returns the plan with its counters, and
    whether the queues stand.

    The counters are read first. If the plan begins to take tasks just after it has refused the
    queues, they are stale, and the add that goes by them is refused. It comes here again then, so
    no task is added to a queue that does not stand.
    """
    plan = yield ReadData(plan_path)
    took = yield from make_queues(plan_path, queues)
    if took:
        plan = yield ReadData(plan_path)
    return plan, took is not None


def read_names(plan_path: str) -> Step[list[tuple[str, Sequence[str]]]]:
    """The runnable names of each queue, as they are: there may be very many."""
    runnable, queues = yield ReadMany(
        [ReadChildren(f"{plan_path}/runnable"), ReadChildren(f"{plan_path}/{QUEUES}")]
    )
    listed: list[tuple[str, Sequence[str]]] = [(DEFAULT_QUEUE, runnable or ())]
    queues = [queue for queue in queues or () if parse_queue(queue) is not None]
    if queues:
        found = yield ReadMany([ReadChildren(queue_path(plan_path, queue)) for queue in queues])
        listed += [(queue, names or ()) for queue, names in zip(queues, found, strict=True)]
    return listed


def read_entries(plan_path: str) -> Step[list[tuple[str, Entry]]]:
    """The runnable entries of all queues, each with its lane."""
    return [
        (queue + name[len(entry.name) :], entry)
        for queue, names in (yield from read_names(plan_path))
        for name in names
        if (entry := parse_entry(name)) is not None
    ]


def read_queues(plan_path: str) -> Step[dict[str, Node]]:
    """The znode of each queue of the plan: how many entries it has, and when that last changed."""
    runnable, queues = yield ReadMany(
        [ReadData(f"{plan_path}/runnable"), ReadChildren(f"{plan_path}/{QUEUES}")], strict=True
    )
    found = {} if runnable is None else {DEFAULT_QUEUE: runnable}
    if queues:
        reads = [ReadData(queue_path(plan_path, queue)) for queue in queues]
        nodes = yield ReadMany(reads, strict=True)
        found |= {
            queue: node for queue, node in zip(queues, nodes, strict=True) if node is not None
        }
    return found
