"""The graph that is left of a plan: its unfinished tasks, alike ones in one box, and the edges."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..connection import Connection
from ..errors import PayloadUndecodable, PlanNotFound
from ..protocol.layout import parse_task
from ..protocol.load import read_all
from ..protocol.records import TaskRecord
from ..protocol.requests import ReadChildren, ReadData
from ..serialization.codec import TASK, Codec
from ..serialization.functions import describe_function
from .neighbours import sources_of
from .unfinished import places_of, state_of

#: With more boxes, alike tasks of all levels share one.
BOXES_MAX = 200
#: How many tasks are read together, so that not all definitions are in memory at once.
TASKS_PER_READ = 1000


class Box(NamedTuple):
    """Tasks of one function in one state. `level` counts the edges before them, along the longest
    way; it is None if tasks of several levels share the box. `tasks` are their numbers."""

    level: int | None
    function: str
    state: str
    tasks: list[str]


class PlanGraph(NamedTuple):
    """The boxes, and how many edges lead from one to another, by their places in `boxes`."""

    boxes: list[Box]
    edges: dict[tuple[int, int], int]


def plan_graph(client: Connection, plan_path: str) -> PlanGraph:
    """See Plan.graph."""
    names = client.transport.ask(ReadChildren(plan_path))
    if names is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    numbers = sorted(number for name in names if (number := parse_task(name)) is not None)
    kinds: dict[str, tuple[str, str]] = {}
    edges: list[tuple[str, str]] = []
    for start in range(0, len(numbers), TASKS_PER_READ):
        _read(client, plan_path, numbers[start : start + TASKS_PER_READ], kinds, edges)
    # A dependency that has finished since is no box, and its edge is gone.
    edges = [(source, task) for source, task in edges if source in kinds]
    return _grouped(kinds, edges)


def _read(
    client: Connection,
    plan_path: str,
    numbers: list[str],
    kinds: dict[str, tuple[str, str]],
    edges: list[tuple[str, str]],
) -> None:
    """Add the function and the state of each task, and the edges to it whose result is missing."""
    run = client.transport.run
    places = run(places_of(client.paths, plan_path))
    paths = [f"{plan_path}/task-{number}" for number in numbers]
    reads = [read(path) for path in paths for read in (ReadData, ReadChildren)]
    answers = run(read_all(reads, strict=False))
    deps = []
    for at, number in enumerate(numbers):
        node, names = answers[2 * at : 2 * at + 2]
        if node is None or names is None:
            continue  # finished meanwhile
        state = places[number].state if number in places else state_of(names)
        kinds[number] = _function(client.codec, node.data), state
        deps += [f"task-{number}/{name}" for name in names if name.startswith("dep-")]
    sources = sources_of(client.transport, plan_path, deps)
    edges += [(source, dep[5:15]) for dep, source in sources.items() if source]


def _function(codec: Codec, sealed: bytes) -> str:
    try:
        return describe_function(TaskRecord.from_bytes(codec.open(TASK, sealed)[1]).function)
    except PayloadUndecodable:
        return "(cannot be read here)"


def _grouped(kinds: Mapping[str, tuple[str, str]], edges: list[tuple[str, str]]) -> PlanGraph:
    levels = levels_of(kinds, edges)
    keys: dict[str, tuple[int | None, str, str]]
    keys = {number: (levels[number], *kind) for number, kind in kinds.items()}
    if len(set(keys.values())) > BOXES_MAX:
        keys = {number: (None, *kind) for number, kind in kinds.items()}
    members: dict[tuple[int | None, str, str], list[str]] = defaultdict(list)
    for number, key in keys.items():
        members[key].append(number)
    order = sorted(members, key=lambda key: (key[0] or 0, members[key][0]))
    place = {key: index for index, key in enumerate(order)}
    counted = Counter((place[keys[source]], place[keys[task]]) for source, task in edges)
    return PlanGraph([Box(*key, members[key]) for key in order], dict(counted))


def levels_of(tasks: Iterable[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The level of each task. Those of a cycle, and all behind it, are on one level after the last.

    >>> levels_of("abcd", [("a", "b"), ("b", "c"), ("a", "c")])
    {'a': 0, 'b': 1, 'c': 2, 'd': 0}
    """
    levels = dict.fromkeys(tasks, 0)
    targets: dict[str, list[str]] = defaultdict(list)
    missing: Counter[str] = Counter()
    for source, task in edges:
        targets[source].append(task)
        missing[task] += 1
    ready = [task for task in levels if not missing[task]]
    for task in ready:  # it grows
        for target in targets[task]:
            levels[target] = max(levels[target], levels[task] + 1)
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    if len(ready) < len(levels):
        last = max((levels[task] for task in ready), default=-1) + 1
        levels |= dict.fromkeys(levels.keys() - set(ready), last)
    return levels
