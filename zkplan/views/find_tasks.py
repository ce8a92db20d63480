"""Find unfinished tasks in all plans by state, worker, name, error and age."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, NamedTuple

from ..errors import InvalidTask, ZkplanError
from ..protocol.core.load import read_all
from ..protocol.core.plans_and_queues import list_plans, read_entries, readable_record
from ..protocol.layout import (
    DEFAULT_QUEUE,
    Paths,
    entry_path,
    parse_delayed,
    parse_gate,
    parse_task,
    queue_in,
)
from ..protocol.records import Dead
from ..protocol.requests import Node, ReadChildren, ReadData, ReadMany, Step
from ..values.connection import Connection, together
from .task_info import task_info
from .task_lists import INDEXES_AGE_S, name_of, state_of
from .workers import AHEAD, LEFT, RUNNING, Known, held_tasks

STATES = (
    *("being defined", "waiting", "gated", "runnable", "delayed", "dead", "decided"),
    *(RUNNING, AHEAD, LEFT),
)
_CLAIMED = (RUNNING, AHEAD, LEFT)
#: States that no index tells: every unfinished task has to be looked at.
_UNLISTED = (None, "being defined", "waiting")
_TASKS_PER_READ = 200


class FoundTask(NamedTuple):
    """An unfinished task of some plan, as it was when it was read.

    `plan` is the number of its plan, `plan_name` its name. `state` is one of `Plan.tasks`, but a
    claimed task is `running`, `claimed ahead` (its worker has no slot for it yet) or `left behind`
    (its worker is gone, and another one takes it over). `since` is when it came into that state, in
    wall-clock seconds of the server: for a claimed task when it was claimed; its function began
    then or later. `error` is the last error of a dead task. For the rest see `TaskSummary`.
    """

    plan: str
    plan_name: str
    number: str
    name: str | None
    state: str
    since: float
    attempts: int = 0
    worker: str = ""
    queue: str = ""
    due: float | None = None
    error: str = ""


class Filter(NamedTuple):
    """Which tasks are meant; None means any. `name` and `error` are patterns as for file names,
    `error` for the type of the last exception. `longer_than` is in seconds."""

    state: str | None = None
    worker: str | None = None
    name: str | None = None
    error: str | None = None
    longer_than: float | None = None

    def takes_state(self, state: str) -> bool:
        """Whether a task in that state is meant."""
        return self.state in (None, state)

    def takes_spot(self, state: str) -> bool:
        """Whether a task that an index shows in that state may be meant."""
        # What is decided stands among the runnable ones; its own znodes tell the two apart.
        return self.takes_state(state) or (self.state == "decided" and state == "runnable")

    @property
    def is_of_claims(self) -> bool:
        """Whether only claimed tasks can be meant, so that the claims alone are read."""
        return self.worker is not None or self.state in _CLAIMED


class Spot(NamedTuple):
    """Where an index shows a task. `shown_by` is the znode that says so; it was made at `since`."""

    state: str = ""
    shown_by: str = ""
    attempts: int = 0
    worker: str = ""
    queue: str = ""
    due: float | None = None
    since: float | None = None


Spots = dict[tuple[str, str], Spot]


def find_tasks(
    client: Connection,
    wanted: Filter,
    plans: Sequence[str] | None = None,
    after: tuple[str, str] = ("", ""),
) -> Iterator[FoundTask]:
    """The unfinished tasks that match, by plan and number; `plans` are the numbers of some plans.

    Only those behind `after`, the numbers of a plan and of a task, are looked at. Plans that may
    not be read are left out: see `refuse_hidden`. Raises InvalidTask for a state that is none,
    before anything is read.
    """
    if wanted.state is not None and wanted.state not in STATES:
        raise InvalidTask("", f"state is one of {', '.join(STATES)}, not {wanted.state!r:.50}")
    return _found(client, wanted, plans, after)


def _found(
    client: Connection, wanted: Filter, plans: Sequence[str] | None, after: tuple[str, str]
) -> Iterator[FoundTask]:
    run, paths = client.transport.run, client.paths
    numbers = list(plans) if plans is not None else run(list_plans(paths))
    numbers = [number for number in numbers if number >= after[0]]
    spots: Spots = {}
    read_at = -INDEXES_AGE_S

    def look() -> None:
        nonlocal spots, read_at
        if time.monotonic() - read_at >= INDEXES_AGE_S:
            spots = run(spots_of(paths, numbers, wanted.is_of_claims))
            read_at = time.monotonic()

    look()
    if wanted.state in _UNLISTED and not wanted.is_of_claims:
        keys = _all_tasks(client, numbers)
    else:
        mine = set(numbers)
        keys = iter(
            sorted(k for k, s in spots.items() if k[0] in mine and wanted.takes_spot(s.state))
        )
    keys = (key for key in keys if key > after)
    names: dict[str, str] = {}
    while chunk := list(islice(keys, _TASKS_PER_READ)):
        look()
        for found in _read(client, [(key, spots.get(key, Spot())) for key in chunk]):
            if _matches(client, wanted, found):
                if found.plan not in names:
                    names[found.plan] = _plan_name(client, found.plan)
                yield found._replace(plan_name=names[found.plan])


def _all_tasks(client: Connection, plans: Sequence[str]) -> Iterator[tuple[str, str]]:
    for plan in plans:
        (names,) = client.transport.ask(ReadMany([ReadChildren(client.paths.plan(plan))], False))
        found = (parse_task(name) for name in names or ())
        yield from sorted((plan, number) for number in found if number is not None)


def spots_of(
    paths: Paths, plans: Sequence[str], claims_only: bool = False, known: Known | None = None
) -> Step[Spots]:
    """What the indexes show of the tasks of these plans. Claims that are `known` are not read
    again."""
    spots: Spots = {}
    if not claims_only:
        yield from _indexed(paths, plans, spots)
    # Claims are read last: a task that is claimed after its entry was read counts as claimed.
    for held in (yield from held_tasks(paths, known)).claims:
        spots[held.plan, held.task] = Spot(
            held.state, "", held.attempts, held.worker, held.queue, since=held.since
        )
    return spots


def _indexed(paths: Paths, plans: Sequence[str], spots: Spots) -> Step[None]:
    later, gates = yield ReadMany([ReadChildren(paths.delayed), ReadChildren(paths.gates)])
    dead = yield from together([_names(f"{paths.plan(plan)}/dead") for plan in plans])
    runnable = yield from together([read_entries(paths.plan(plan)) for plan in plans])
    for plan, letters, entries in zip(plans, dead, runnable, strict=True):
        path = paths.plan(plan)
        for number in letters if not isinstance(letters, ZkplanError) else ():
            spots[plan, number] = Spot("dead", f"{path}/dead/{number}")
        for queue, entry in entries if not isinstance(entries, ZkplanError) else ():
            index = entry_path(path, queue, entry)
            spots[plan, entry.task] = Spot("runnable", index, entry.a, queue=queue)
    for name in gates or ():
        gate = parse_gate(name)
        if gate is not None:
            spot = Spot("gated", f"{paths.gates}/{name}", gate.entry.a, queue=gate.queue)
            spots.setdefault((gate.plan, gate.entry.task), spot)
    for name in later or ():
        delayed = parse_delayed(name)
        if delayed is not None:
            index, entry = f"{paths.delayed}/{name}", delayed.entry
            due = delayed.due_ms / 1000
            spots[delayed.plan, entry.task] = Spot(
                "delayed", index, entry.a, queue=delayed.queue, due=due
            )


def _names(path: str) -> Step[list[str]]:
    return (yield ReadChildren(path)) or []


def _read(client: Connection, chunk: list[tuple[tuple[str, str], Spot]]) -> Iterator[FoundTask]:
    reads: list[ReadData | ReadChildren] = []
    for (plan, number), spot in chunk:
        path = client.paths.task(plan, number)
        reads += (ReadData(path), ReadChildren(path))
        if spot.shown_by:
            reads.append(ReadData(spot.shown_by))
    # Each definition holds constant arguments of up to 1 MB, so they are never read in one answer.
    answers = iter(client.transport.run(read_all(reads, strict=False)))
    for (plan, number), spot in chunk:
        node, children = next(answers), next(answers)
        index = next(answers) if spot.shown_by else None
        if node is not None and children is not None:  # else it has finished meanwhile
            yield _task(client, plan, number, spot, node, children, index)


def _task(
    client: Connection,
    plan: str,
    number: str,
    spot: Spot,
    node: Node,
    children: list[str],
    index: Node | None,
) -> FoundTask:
    state, attempts, error, queue = spot.state or state_of(children), spot.attempts, "", spot.queue
    if state == "runnable" and "result" in children:
        state = "decided"
    since = spot.since if spot.since is not None else (index or node).created_ms / 1000
    if state == "dead" and index is not None:
        letter = Dead.from_bytes(index.data)
        attempts, error, queue = letter.a, letter.error, letter.queue
    name = name_of(client.codec, node.data)
    return FoundTask(
        *(plan, "", number, name, state, since, attempts, spot.worker),
        *(queue_in(queue) or DEFAULT_QUEUE, spot.due, error),
    )


def _matches(client: Connection, wanted: Filter, found: FoundTask) -> bool:
    if not wanted.takes_state(found.state):
        return False  # it has moved on since the indexes were read
    if wanted.worker is not None and not found.worker.startswith(wanted.worker):
        return False
    if wanted.name is not None and not fnmatchcase(found.name or "", wanted.name):
        return False
    if wanted.longer_than is not None and time.time() - found.since <= wanted.longer_than:
        return False
    if wanted.error is None:
        return True
    told = found.error
    if not told and found.attempts:
        path = client.paths.plan(found.plan)
        told = task_info(client, path, found.number).last_error
    return fnmatchcase(told.partition(":")[0], wanted.error)


def _plan_name(client: Connection, plan: str) -> str:
    node: Any = client.transport.ask(ReadMany([ReadData(client.paths.plan(plan))], False))[0]
    record = readable_record(node.data) if node is not None else None
    return record.name if record is not None else ""


def task_names(
    client: Connection, tasks: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], str | None]:
    """The names of tasks, each given by the numbers of its plan and its own; None where a name
    cannot be read here. Those that have finished are left out."""
    reads = [ReadData(client.paths.task(*each)) for each in tasks]
    nodes = client.transport.run(read_all(reads, strict=False)) if reads else []
    return {
        each: name_of(client.codec, node.data)
        for each, node in zip(tasks, nodes, strict=True)
        if node is not None
    }
