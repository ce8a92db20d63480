"""The other side of a task's edges: which tasks it waits for, and which wait for it."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..protocol.layout import parse_task
from ..protocol.load import ANSWER_BYTES_MAX
from ..protocol.records import Edge
from ..protocol.requests import ReadChildren, ReadData, ReadMany
from ..protocol.shared import READS_PER_REQUEST
from ..transport import Transport

#: Tasks named on either side: a wide join has up to 50 000.
NAMED = 20
#: Znodes that one search reads. A `dep-` does not say whose result it waits for: that stands in a
#: `prov-` of the other task, which has to be found among all unfinished ones.
SEARCH_READS_MAX = 100_000
#: Tasks whose children are listed in one request: at first, while their numbers of edges are
#: unknown, and at most.
TASKS_FIRST, TASKS_PER_READ = 50, 300
_NAME_BYTES = 19  # of a `prov-` in an answer


class Edges(NamedTuple):
    """One side of a task: the numbers of some tasks there, and how many edges lead elsewhere.

    `why` says, where fewer are named than could be, why that is so.
    """

    tasks: list[str]
    more: int = 0
    why: str = ""


def dependents(transport: Transport, task_path: str, provs: list[str]) -> Edges:
    """Who gets the result, by the first of the task's `prov-`."""
    shown = sorted(provs)[:NAMED]
    reads = [ReadData(f"{task_path}/{name}") for name in shown]
    nodes = transport.ask(ReadMany(reads)) if reads else []
    edges = [_edge(node.data) for node in nodes if node is not None]
    numbers = dict.fromkeys(edge.task for edge in edges if edge is not None)
    return Edges(list(numbers), len(provs) - len(shown))


def dependencies(transport: Transport, plan_path: str, number: str, deps: list[str]) -> Edges:
    """Whose results are missing: the other ends of the `dep-` of task `number`.

    Dead tasks are looked at first, since they are what keeps a task waiting, then those added
    before it, the last ones first: a task is added after what it waits for, mostly not long after.
    """
    if not deps:
        return Edges([])
    search = _Search(transport, plan_path, number, set(deps))
    names, dead = transport.ask(
        ReadMany([ReadChildren(plan_path), ReadChildren(f"{plan_path}/dead")])
    )
    tasks = {found for name in names or () if (found := parse_task(name)) is not None}
    search.look_at(_in_order(number, tasks, set(dead or ())))
    missing = min(NAMED, len(deps)) - len(search.found)
    why = ""
    if missing > 0 and search.ended_early:
        why = f"not found among the first {search.reads:,} znodes read"
    elif missing > 0:
        # Those delivered since then have no `dep-` any more. An edge is made as a whole, so one
        # that still stands here, and had no other end then, has none.
        still = transport.ask(ReadChildren(f"{plan_path}/task-{number}")) or ()
        if set(deps).difference(search.found).intersection(still):
            why = "that no unfinished task provides"
    numbers = list(dict.fromkeys(search.found.values()))
    return Edges(numbers, len(deps) - len(search.found), why)


def _in_order(number: str, tasks: set[str], dead: set[str]) -> list[str]:
    """
    >>> _in_order("3", {"1", "2", "3", "4", "5"}, {"1", "9"})
    ['1', '2', '3', '4', '5']
    """
    here = int(number)
    return sorted(tasks, key=lambda task: (task not in dead, task >= number, abs(int(task) - here)))


class _Search:
    """Looks for the other ends of `wanted`, the `dep-` of one task; `found` maps them to tasks."""

    def __init__(self, transport: Transport, plan_path: str, number: str, wanted: set[str]) -> None:
        self._transport, self._plan = transport, plan_path
        self._number, self._wanted = number, wanted
        self.found: dict[str, str] = {}
        self.reads = 0
        self.ended_early = False

    def look_at(self, tasks: list[str]) -> None:
        """Read the edges of `tasks` until enough ends are found, or enough znodes were read."""
        start, count = 0, TASKS_FIRST
        while start < len(tasks) and not self._enough():
            batch = tasks[start : start + count]
            start += count
            self.reads += len(batch)
            listed = self._transport.ask(
                ReadMany([ReadChildren(f"{self._plan}/task-{task}") for task in batch])
            )
            provs = [
                (task, name)
                for task, names in zip(batch, listed, strict=True)
                for name in names or ()
                if name.startswith("prov-")
            ]
            self._read(provs)
            # Nothing else limits the answer: each of the next tasks may have as many edges.
            largest = max(len(names or ()) for names in listed)
            count = ANSWER_BYTES_MAX // (_NAME_BYTES * max(1, largest))
            count = max(1, min(TASKS_PER_READ, count))

    def _read(self, provs: list[tuple[str, str]]) -> None:
        for start in range(0, len(provs), READS_PER_REQUEST):
            if self._enough():
                return
            batch = provs[start : start + READS_PER_REQUEST]
            self.reads += len(batch)
            nodes = self._transport.ask(
                ReadMany([ReadData(f"{self._plan}/task-{task}/{name}") for task, name in batch])
            )
            for (task, _), node in zip(batch, nodes, strict=True):
                edge = _edge(node.data) if node is not None else None
                if edge is not None and edge.task == self._number:
                    dep = f"dep-{edge.position}"
                    if dep in self._wanted and len(self.found) < NAMED:
                        self.found.setdefault(dep, task)

    def _enough(self) -> bool:
        if len(self.found) >= min(NAMED, len(self._wanted)):
            return True
        self.ended_early = self.ended_early or self.reads >= SEARCH_READS_MAX
        return self.ended_early


def _edge(data: bytes) -> Edge | None:
    try:
        return Edge.from_bytes(data)
    except PayloadUndecodable:
        return None  # of another client, or damaged: `zkplan plan check` tells of it
