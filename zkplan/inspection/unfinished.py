"""List the unfinished tasks of a plan: the state of each, and the worker that has claimed it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from ..connection import Connection
from ..errors import PayloadUndecodable, PlanNotFound
from ..protocol.layout import number_of, parse_claim, parse_delayed, parse_entry
from ..protocol.load import read_all
from ..protocol.records import Dead, TaskRecord
from ..protocol.requests import ReadChildren, ReadData, ReadMany
from ..serialization.codec import TASK, Codec, task_options

#: How many tasks are read together. Little time passes between reading them and the indexes.
TASKS_PER_READ = 100
#: Seconds after which the indexes are read again, because a caller may iterate slowly.
INDEXES_AGE_S = 1.0


class TaskSummary(NamedTuple):
    """An unfinished task, as it was when it was read.

    `state` is `being defined`, `waiting` (for other tasks), `runnable`, `delayed`, `claimed` or
    `dead`. `attempts` counts the attempts that are used up. `worker` is the worker that has claimed
    it, or empty. `due` is when a `delayed` task becomes runnable, in wall-clock seconds. `name` is
    the name given to the task, or the name of its function. It is None if it cannot be read here,
    because another client wrote the task or it is signed with another secret.
    """

    number: str
    name: str | None
    state: str
    attempts: int = 0
    worker: str = ""
    due: float | None = None


class _Place(NamedTuple):
    """What an index says about a task."""

    state: str = ""
    attempts: int = 0
    due: float | None = None


class Listing:
    """Lists the tasks of one plan."""

    def __init__(self, client: Connection, plan_path: str) -> None:
        self._transport, self._paths = client.transport, client.paths
        self._codec = client.codec
        self._plan = plan_path
        self._number = number_of(plan_path)

    def tasks(self) -> Iterator[TaskSummary]:
        """See Plan.tasks."""
        names = self._transport.ask(ReadChildren(self._plan))
        if names is None:
            raise PlanNotFound(self._plan, f"there is no plan {self._plan}")
        return self.of(sorted(name[5:] for name in names if name.startswith("task-")))

    def of(self, numbers: list[str]) -> Iterator[TaskSummary]:
        """The tasks with these numbers, in this order. Finished tasks are left out."""
        places: dict[str, _Place] = {}
        claims: dict[str, tuple[str, str]] = {}
        read_at = -INDEXES_AGE_S
        for start in range(0, len(numbers), TASKS_PER_READ):
            if time.monotonic() - read_at >= INDEXES_AGE_S:
                places, claims = self._indexes()
                read_at = time.monotonic()
            yield from self._summaries(numbers[start : start + TASKS_PER_READ], places, claims)

    def _indexes(self) -> tuple[dict[str, _Place], dict[str, tuple[str, str]]]:
        """The state of each task, and the worker and path of each claim."""
        directories = [f"{self._plan}/{name}" for name in ("runnable", "dead")]
        runnable, dead, later, claims_nodes = self._transport.ask(
            ReadMany(
                [
                    ReadChildren(path)
                    for path in (*directories, self._paths.delayed, self._paths.claims)
                ]
            )
        )
        places = dict.fromkeys(dead or (), _Place("dead"))
        for entry in map(parse_entry, runnable or ()):
            if entry is not None:
                places[entry.task] = _Place("runnable", entry.a)
        for delayed in map(parse_delayed, later or ()):
            if delayed is not None and delayed.plan == self._number:
                places[delayed.entry.task] = _Place(
                    "delayed", delayed.entry.a, delayed.due_ms / 1000
                )
        # Claims nodes are read last: a task that is claimed after its entry was read counts as
        # claimed.
        return places, self._claims(claims_nodes or [])

    def _claims(self, claims_nodes: list[str]) -> dict[str, tuple[str, str]]:
        reads = [ReadChildren(self._paths.claims_of(claims_node)) for claims_node in claims_nodes]
        held = self._transport.ask(ReadMany(reads)) if reads else []
        return {
            claim.task: (claims_node, f"{self._paths.claims_of(claims_node)}/{name}")
            for claims_node, names in zip(claims_nodes, held, strict=True)
            for name in names or ()
            if (claim := parse_claim(name)) is not None and claim.plan == self._number
        }

    def _summaries(
        self,
        numbers: list[str],
        places: dict[str, _Place],
        claims: dict[str, tuple[str, str]],
    ) -> list[TaskSummary]:
        reads: list[ReadData | ReadChildren] = []
        for number in numbers:
            path = self._paths.task(self._number, number)
            index = claims[number][1] if number in claims else f"{self._plan}/dead/{number}"
            reads += (ReadData(path), ReadChildren(path), ReadData(index))
        # Each definition holds constant arguments of up to 1 MB, so they are never read in one
        # answer.
        answers = self._transport.run(read_all(reads))
        found = []
        for at, number in enumerate(numbers):
            node, names, index = answers[3 * at : 3 * at + 3]
            if node is None or names is None:
                continue  # finished meanwhile
            place, worker = places.get(number, _Place()), ""
            if number in claims:
                used = _used(index.data) if index is not None else place.attempts
                place, worker = _Place("claimed", used), claims[number][0]
            elif index is not None:
                place = _Place("dead", Dead.from_bytes(index.data).a)
            name = _name_of(self._codec, node.data)
            state = place.state or _place(names)
            found.append(TaskSummary(number, name, state, place.attempts, worker, place.due))
        return found


def _place(names: list[str]) -> str:
    """The state of a task that is in no index, from its children."""
    if "incomplete" in names or "ready" not in names:
        return "being defined"
    if "owner" in names:
        return "claimed"
    # It is in no index and has no `dep-`: a transaction is moving it just now.
    return "waiting" if any(name.startswith("dep-") for name in names) else "runnable"


def _used(claim: bytes) -> int:
    """The attempts used up, from the data of a claim: RANK.A."""
    used = claim.partition(b".")[2]
    return int(used) if used.isdigit() and len(used) <= 10 else 0


def _name_of(codec: Codec, sealed: bytes) -> str | None:
    try:
        return task_options(TaskRecord.from_bytes(codec.open(TASK, sealed)[1])).name
    except PayloadUndecodable:
        return None
