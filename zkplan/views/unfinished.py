"""Read unfinished tasks in batches: the state, the name and the times of each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..errors import PayloadUndecodable, PlanNotFound
from ..protocol.core.load import read_all
from ..protocol.features.task_place import NOWHERE, Place, TaskPlaces, read_places, state_of
from ..protocol.layout import DEFAULT_QUEUE, number_of, parse_task, queue_in
from ..protocol.records import Dead
from ..protocol.requests import Node, ReadChildren, ReadData
from ..protocol.transactions import claim_facts
from ..values.codec import Codec, task_options
from ..values.connection import Connection

#: How many tasks are read together. Little time passes between reading them and the indexes.
TASKS_PER_READ = 100
#: Seconds after which the indexes are read again, because a caller may iterate slowly.
INDEXES_AGE_S = 1.0


class TaskSummary(NamedTuple):
    """An unfinished task, as it was when it was read.

    `state` is `being defined`, `waiting` (for other tasks), `gated` (it waits for a znode: see
    `zkplan.when`), `runnable`, `delayed`, `running`, `dead`, or `decided`: its outcome is fixed,
    for example by a skip, and a worker is about to deliver it. `attempts` counts the attempts that
    are used up. `worker` is the worker that has claimed it, or empty. `due` is when a `delayed`
    task becomes runnable, in wall-clock seconds. `name` is the name given to the task, or the name
    of its function; None if it cannot be read here, for example without its secret.
    """

    number: str
    name: str | None
    state: str
    attempts: int = 0
    worker: str = ""
    due: float | None = None


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


class FreshPlaces:
    """The places that `read` returns, read again once they are older than INDEXES_AGE_S."""

    def __init__(self, read: Callable[[], TaskPlaces]) -> None:
        self._read, self._read_at = read, -math.inf
        self._places: TaskPlaces = {}

    def now(self) -> TaskPlaces:
        if time.monotonic() - self._read_at >= INDEXES_AGE_S:
            self._places, self._read_at = self._read(), time.monotonic()
        return self._places


def unfinished_numbers(client: Connection, plan_path: str) -> list[str]:
    """The numbers of the unfinished tasks, sorted. Raises PlanNotFound."""
    names = client.transport.ask(ReadChildren(plan_path))
    if names is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    return sorted(number for name in names if (number := parse_task(name)) is not None)


def unfinished_tasks(client: Connection, plan_path: str) -> Iterator[TaskSummary]:
    """See Plan.tasks."""
    return summaries(client, plan_path, unfinished_numbers(client, plan_path))


def summaries(client: Connection, plan_path: str, numbers: list[str]) -> Iterator[TaskSummary]:
    """The tasks with these numbers, in this order. Finished tasks are left out."""
    plan = number_of(plan_path)
    places = FreshPlaces(lambda: client.transport.run(read_places(client.paths, [plan])))
    for start in range(0, len(numbers), TASKS_PER_READ):
        keys = [(plan, number) for number in numbers[start : start + TASKS_PER_READ]]
        for task in read_tasks(client, keys, places.now()):
            yield TaskSummary(
                task.number, task.name, task.state, task.attempts, task.worker, task.due
            )


def read_tasks(
    client: Connection, keys: Sequence[tuple[str, str]], places: TaskPlaces, strict: bool = True
) -> Iterator[FoundTask]:
    """The unfinished tasks among `keys` (numbers of plan and task), without their `plan_name`.

    `places` has the place of each task just before. If a place has the facts of its claim, the
    claim is not read again.
    """
    found = [places.get(key, NOWHERE) for key in keys]
    reads: list[ReadData | ReadChildren] = []
    for (plan, number), place in zip(keys, found, strict=True):
        path = client.paths.task(plan, number)
        reads += (ReadData(path), ReadChildren(path))
        if place.since is None:
            # A task that was in no index may have died since.
            reads.append(ReadData(place.path or f"{client.paths.plan(plan)}/dead/{number}"))
    # Each definition holds constant arguments of up to 1 MB, so they are never read in one answer.
    answers = iter(client.transport.run(read_all(reads, strict)))
    for (plan, number), place in zip(keys, found, strict=True):
        node, children = next(answers), next(answers)
        index = next(answers) if place.since is None else None
        if node is not None and children is not None:  # else it has finished meanwhile
            task = FoundTask(plan, "", number, name_of(client.codec, node.data), "", 0.0)
            yield _completed(task, place, node, children, index)


def _completed(
    task: FoundTask, place: Place, node: Node, children: list[str], index: Node | None
) -> FoundTask:
    """`task` with what its place and its znodes say. `index` is the znode of its place."""
    error = ""
    if index is not None and place.state in ("", "dead"):
        letter = Dead.from_bytes(index.data)
        place = place._replace(state="dead", a=letter.a, queue=letter.queue)
        error = letter.error
    elif index is not None and place.state == "running":
        claim = claim_facts(index.data)
        place = place._replace(a=claim.a, queue=claim.queue)
    return task._replace(
        state=state_of(place, children),
        since=place.since if place.since is not None else (index or node).created_ms / 1000,
        attempts=place.a,
        worker=place.worker,
        queue=queue_in(place.queue) or DEFAULT_QUEUE,
        due=place.due,
        error=error,
    )


def name_of(codec: Codec, sealed: bytes) -> str | None:
    """The name in the definition of a task; None if it cannot be read here."""
    try:
        return task_options(codec.open_definition(sealed)).name
    except PayloadUndecodable:
        return None


def task_names(
    client: Connection, tasks: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], str | None]:
    """The names of tasks, by the numbers of plan and task; None where a name cannot be read here.

    Finished tasks are left out.
    """
    reads = [ReadData(client.paths.task(*each)) for each in tasks]
    nodes = client.transport.run(read_all(reads, strict=False)) if reads else []
    return {
        each: name_of(client.codec, node.data)
        for each, node in zip(tasks, nodes, strict=True)
        if node is not None
    }
