"""List the unfinished tasks of a plan: the state of each, and the worker that has claimed it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from ..connection import Connection
from ..errors import PayloadUndecodable, PlanNotFound
from ..protocol.layout import (
    DEFAULT_QUEUE,
    Paths,
    number_of,
    parse_claim,
    parse_delayed,
    parse_gate,
)
from ..protocol.load import read_all
from ..protocol.look import names_on_claims_nodes
from ..protocol.queues import read_entries
from ..protocol.records import Dead
from ..protocol.requests import ReadChildren, ReadData, ReadMany, Step
from ..protocol.shared import claim_facts
from ..serialization.codec import Codec, task_options

#: How many tasks are read together. Little time passes between reading them and the indexes.
TASKS_PER_READ = 100
#: Seconds after which the indexes are read again, because a caller may iterate slowly.
INDEXES_AGE_S = 1.0


class TaskSummary(NamedTuple):
    """An unfinished task, as it was when it was read.

    `state` is `being defined`, `waiting` (for other tasks), `gated` (it waits for a znode: see
    `zkplan.when`), `runnable`, `delayed`, `running`, `dead`, or `decided`: its outcome is fixed, as
    by a skip, and a worker is about to deliver it. `attempts` counts the attempts that are used up.
    `worker` is the worker that has claimed it, or empty. `due` is when a `delayed` task becomes
    runnable, in wall-clock seconds. `name` is the name given to the task, or the name of its
    function. It is None if it cannot be read here, because another client wrote the task or it is
    signed with another secret.
    """

    number: str
    name: str | None
    state: str
    attempts: int = 0
    worker: str = ""
    due: float | None = None


class Place(NamedTuple):
    """What an index says about a task. `claim` is the path of its claim, if it has one."""

    state: str = ""
    attempts: int = 0
    due: float | None = None
    worker: str = ""
    claim: str = ""
    queue: str = DEFAULT_QUEUE


def unfinished_tasks(client: Connection, plan_path: str) -> Iterator[TaskSummary]:
    """See Plan.tasks."""
    names = client.transport.ask(ReadChildren(plan_path))
    if names is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    return summaries(
        client, plan_path, sorted(name[5:] for name in names if name.startswith("task-"))
    )


def summaries(client: Connection, plan_path: str, numbers: list[str]) -> Iterator[TaskSummary]:
    """The tasks with these numbers, in this order. Finished tasks are left out."""
    places: dict[str, Place] = {}
    read_at = -INDEXES_AGE_S
    for start in range(0, len(numbers), TASKS_PER_READ):
        if time.monotonic() - read_at >= INDEXES_AGE_S:
            places = client.transport.run(places_of(client.paths, plan_path))
            read_at = time.monotonic()
        yield from _summaries(client, plan_path, places, numbers[start : start + TASKS_PER_READ])


def places_of(paths: Paths, plan_path: str) -> Step[dict[str, Place]]:
    """What the indexes say about the tasks of the plan, by task number."""
    plan = number_of(plan_path)
    indexes = ReadChildren(f"{plan_path}/dead"), ReadChildren(paths.delayed)
    dead, later, gates = yield ReadMany([*indexes, ReadChildren(paths.gates)])
    runnable = yield from read_entries(plan_path)
    places = dict.fromkeys(dead or (), Place("dead"))
    for queue, entry in runnable:
        places[entry.task] = Place("runnable", entry.a, queue=queue)
    for delayed in map(parse_delayed, later or ()):
        if delayed is not None and delayed.plan == plan:
            due = delayed.due_ms / 1000
            places[delayed.entry.task] = Place("delayed", delayed.entry.a, due, queue=delayed.queue)
    for gate in map(parse_gate, gates or ()):
        if gate is not None and gate.plan == plan:
            place = Place("gated", gate.entry.a, queue=gate.queue)
            places.setdefault(gate.entry.task, place)
    # Claims are read last: a task that is claimed after its entry was read counts as claimed.
    for worker, name in (yield from names_on_claims_nodes(paths)):
        claim = parse_claim(name)
        if claim is not None and claim.plan == plan:
            used = places.get(claim.task, Place()).attempts
            path = f"{paths.claims_of(worker)}/{name}"
            places[claim.task] = Place("running", used, worker=worker, claim=path)
    return places


def _summaries(
    client: Connection, plan_path: str, places: dict[str, Place], numbers: list[str]
) -> list[TaskSummary]:
    found = [places.get(number, Place()) for number in numbers]
    reads: list[ReadData | ReadChildren] = []
    for number, place in zip(numbers, found, strict=True):
        path = f"{plan_path}/task-{number}"
        index = place.claim or f"{plan_path}/dead/{number}"
        reads += (ReadData(path), ReadChildren(path), ReadData(index))
    # Each definition holds constant arguments of up to 1 MB, so they are never read in one answer.
    answers = client.transport.run(read_all(reads))
    shown = []
    for at, (number, place) in enumerate(zip(numbers, found, strict=True)):
        node, names, index = answers[3 * at : 3 * at + 3]
        if node is None or names is None:
            continue  # finished meanwhile
        if index is not None and place.claim:
            place = place._replace(attempts=claim_facts(index.data).a)
        elif index is not None:
            place = Place("dead", Dead.from_bytes(index.data).a)
        name, state = name_of(client.codec, node.data), place.state or state_of(names)
        if state == "runnable" and "result" in names:
            state = "decided"
        shown.append(TaskSummary(number, name, state, place.attempts, place.worker, place.due))
    return shown


def state_of(names: list[str]) -> str:
    """The state of a task that is in no index, from its children."""
    if "incomplete" in names or "ready" not in names:
        return "being defined"
    if "owner" in names:
        return "running"
    # It is in no index and has no `dep-`: a transaction is moving it just now.
    return "waiting" if any(name.startswith("dep-") for name in names) else "runnable"


def name_of(codec: Codec, sealed: bytes) -> str | None:
    try:
        return task_options(codec.open_definition(sealed)).name
    except PayloadUndecodable:
        return None
