"""Find what is not sealed for its place in a plan, and seal a root anew after a change of keys.

It reads all that keys cover (the plan's record and state, definitions, arguments, results, dead
letters, logs, history) and edges. It keeps only one batch in memory.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..protocol.core.edges import Edge
from ..protocol.core.load import VALUES_FIRST, read_all, values_next
from ..protocol.fields import Unproven
from ..protocol.layout import Paths, parse_task
from ..protocol.records import SOURCE_BYTES, sources_in
from ..protocol.requests import (
    Applied,
    Multi,
    Node,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    SetData,
    Step,
)
from ..protocol.transactions import GROUP_BYTES_MAX, READS_PER_REQUEST, rejected
from .guard import Guard

#: How many znodes have their children listed at a time.
LISTED_PER_BATCH = 300
#: The maximum of values in one request, as their sizes are unknown before.
READS_MAX = 100
#: After that many problems the search ends: with a wrong key nothing can be opened.
PROBLEMS_MAX = 1000

_FORGED = (
    "put back what its author or a worker wrote there, or remove the plan and create it anew; "
    "`zkplan root show` shows who else may write here"
)
_FORGED_END = "delete it: the next worker that finds no task left writes it again, sealed"


def find_unsealed(guard: Guard, paths: Paths, plan: str) -> Step[list[str]]:
    """Say what is wrong, and what to do, for each znode that is not sealed for its place."""
    plan_path = paths.plan(plan)
    problems: list[str] = []
    directions = Directions(plan_path)
    names = (yield ReadChildren(plan_path)) or []
    yield from _look(guard, [plan_path], problems, directions)
    for start in range(0, len(names), LISTED_PER_BATCH):
        batch = [f"{plan_path}/{name}" for name in names[start : start + LISTED_PER_BATCH]]
        listed = yield ReadMany([ReadChildren(path) for path in batch])
        inside = [
            f"{path}/{name}"
            for path, found in zip(batch, listed, strict=True)
            for name in found or ()
        ]
        yield from _look(guard, sorted([*batch, *inside], key=_kind), problems, directions)
        if len(problems) >= PROBLEMS_MAX:
            break
    problems += [f"{problem}; {_FORGED}" for problem in directions.wrong()]
    if len(problems) >= PROBLEMS_MAX:
        del problems[PROBLEMS_MAX:]
        problems.append(f"the search ended after {PROBLEMS_MAX} problems: there may be more")
    return problems


def _kind(path: str) -> tuple[int, str]:
    """A sort key: data of one kind have similar sizes, which decide how many are read at once."""
    depth, name = path.count("/"), path.rpartition("/")[2]
    return depth, "task" if parse_task(name) else name.partition("-")[0]


def _look(
    guard: Guard, wanted: Sequence[str], problems: list[str], directions: Directions
) -> Step[None]:
    covered = [path for path in wanted if guard.covers(path) or "/prov-" in path]
    at, values = 0, VALUES_FIRST
    while at < len(covered) and len(problems) < PROBLEMS_MAX:
        batch = covered[at : at + values]
        nodes = yield ReadMany([ReadData(path) for path in batch])
        at, values = at + len(batch), min(values_next(nodes), READS_MAX)
        for path, node in zip(batch, nodes, strict=True):
            if node is None:
                continue
            if isinstance(node.data, Unproven):
                problems.append(_problem(path, node.data))
            elif problem := directions.see(path, node.data):
                problems.append(f"{problem}; {_FORGED}")


def _problem(path: str, refused: Unproven) -> str:
    if not refused.is_forged:
        return str(refused.error)  # its key is unknown here; the error says what to do
    return f"{refused.error}; {_FORGED_END if path.endswith('/done') else _FORGED}"


# ---- Find edges and arguments that bring a task another result than its definition names.
#
# An edge has no seal, so a writer of the tree can redirect it. The definition of the dependent,
# which has a seal, says what goes where.


_TASK = re.compile(r"task-([0-9]{10})(?:/(prov|arg)-([0-9]{10}))?")
#: In place of the number of an edge.
_ARGUMENT = 2**32 - 1


class Directions:
    """The sources that the definitions of tasks name, and those that edges and arguments name."""

    def __init__(self, plan_path: str) -> None:
        self._plan_path = plan_path
        #: By number of a task: the sources in its definition. A plan may have 100 000 tasks.
        self._named: dict[int, bytes] = {}
        #: Four numbers for each edge and argument: the task that it comes from, the task that it
        #: goes to, the position there, and the number of the edge.
        self._led = array("Q")

    def see(self, path: str, data: bytes) -> str:
        """Note the content of a znode whose seal, if it has one, is right. Ignores znodes that are
        not of tasks. Returns the problem of this znode itself, or an empty text."""
        found = _TASK.fullmatch(path, len(self._plan_path) + 1)
        if found is None:
            return ""
        task, name, number = found.groups()
        if name is None:
            self._named[int(task)] = sources_in(data)
        elif name == "arg":
            if data[:10].isdigit():
                self._led.extend((int(data[:10]), int(task), int(number), _ARGUMENT))
        else:
            try:
                edge = Edge.from_bytes(data)
            except PayloadUndecodable as error:
                return f"{path} is not used: {error}"
            self._led.extend((int(task), int(edge.task), int(edge.position), int(number)))
        return ""

    def wrong(self) -> Iterator[str]:
        """Yield each edge or argument that contradicts the definition of its task, if seen."""
        led = iter(self._led)
        for source, task, position, number in zip(led, led, led, led, strict=True):
            named = self._named.get(task)
            if named is None:
                continue
            here = named[position * SOURCE_BYTES :][:SOURCE_BYTES]
            if here and int.from_bytes(here, "big") == source:
                continue
            where = f"task-{source:010d}/prov-{number:010d}"
            if number == _ARGUMENT:
                where = f"task-{task:010d}/arg-{position:010d}"
            yield (
                f"{self._plan_path}/{where} is not used: it leads the result of task {source:010d} "
                f"to position {position} of task {task:010d}, whose definition names another source"
            )


# ---- Seal with the current key what is sealed with an older one.
#
# Plans go on meanwhile. A znode that changes between the read and the write is left to the next
# round: its writer has sealed it, perhaps already with the new key.


#: After that many rounds, znodes that an older key still seals count as left.
ROUNDS_MAX = 5
#: The maximum of znodes in one transaction.
WRITES_MAX = 100
_PASSES = (Reason.NO_NODE, Reason.BAD_VERSION)


class Resealed(NamedTuple):
    """How many znodes were sealed anew, how many are left, and why others cannot be opened."""

    resealed: int
    left: int
    refused: list[PayloadUndecodable]


def reseal(guard: Guard, paths: Paths) -> Step[Resealed]:
    """Seal everything with the current key. Raises AccessDenied, TransactionRejected."""
    done = 0
    refused: list[PayloadUndecodable] = []
    for _ in range(ROUNDS_MAX):
        refused, left = [], 0
        waiting = [paths.root]
        while waiting:
            batch, waiting = waiting[-READS_PER_REQUEST:], waiting[:-READS_PER_REQUEST]
            listed = yield ReadMany([ReadChildren(path) for path in batch])
            found = [
                f"{path}/{name}"
                for path, names in zip(batch, listed, strict=True)
                for name in names or ()
            ]
            wrote, missed = yield from _reseal(guard, list(filter(guard.covers, found)), refused)
            done, left = done + wrote, left + missed
            waiting += [path for path in found if path.count("/") <= paths.root.count("/") + 2]
        if not left:
            break
    return Resealed(done, left, refused)


def _reseal(
    guard: Guard, paths: Sequence[str], refused: list[PayloadUndecodable]
) -> Step[tuple[int, int]]:
    """Seal these znodes. Returns how many were sealed, and how many changed meanwhile."""
    guard.older = []
    try:
        nodes = yield from read_all([ReadData(path) for path in paths])
        older = set(guard.older)
    finally:
        guard.older = None
    found: list[tuple[str, Node]] = []
    for path, node in zip(paths, nodes, strict=True):
        if node is not None and isinstance(node.data, Unproven):
            refused.append(node.data.error)
        elif node is not None and path in older:
            found.append((path, node))
    missed = 0
    for group in _groups(found):
        while group:
            writes = [SetData(path, node.data, node.version) for path, node in group]
            answer = yield Multi(writes)
            if isinstance(answer, Applied) or answer.repeated:
                break
            if answer.reason not in _PASSES:
                raise rejected("sealing anew", answer)
            missed += answer.reason is Reason.BAD_VERSION
            del group[answer.at]
    return len(found) - missed, missed


def _groups(found: Sequence[tuple[str, Node]]) -> Iterator[list[tuple[str, Node]]]:
    group: list[tuple[str, Node]] = []
    size = 0
    for path, node in found:
        if group and (len(group) == WRITES_MAX or size + len(node.data) > GROUP_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append((path, node))
        size += len(node.data)
    if group:
        yield group
