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
from .unfinished import name_of, places_of, state_of

#: With more boxes, alike tasks of all levels share one; with still more, rare functions do.
BOXES_MAX = 200
OTHERS = "(other functions)"
#: How many edges of one task a sample reads.
EDGES_SAMPLED = 20
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
    """The boxes, and how many edges lead from one to another, by their places in `boxes`.

    Of a sample the numbers of edges are estimates. `scale` is then by how much more tasks there are
    than were read.
    """

    boxes: list[Box]
    edges: dict[tuple[int, int], int]
    scale: float = 1.0

    def tasks_of(self, box: Box) -> int:
        """How many tasks the box stands for; an estimate, if the graph is of a sample."""
        return round(len(box.tasks) * self.scale)


def plan_graph(client: Connection, plan_path: str, sample: int | None = None) -> PlanGraph:
    """See Plan.graph."""
    numbers = unfinished_numbers(client, plan_path)
    if sample is not None and sample < len(numbers):
        return _sampled(client, plan_path, numbers, sample)
    kinds: dict[str, tuple[str, str]] = {}
    edges: list[tuple[str, str]] = []
    for start in range(0, len(numbers), TASKS_PER_READ):
        _read(client, plan_path, numbers[start : start + TASKS_PER_READ], kinds, edges)
    # A dependency that has finished since is no box, and its edge is gone.
    edges = [(source, task) for source, task in edges if source in kinds]
    return _grouped(kinds, edges)


class TaskNode(NamedTuple):
    """An unfinished task in a graph of single tasks. `name` is None where it cannot be read."""

    number: str
    name: str | None
    function: str
    state: str
    level: int


def task_graph(
    client: Connection, plan_path: str, most: int
) -> tuple[list[TaskNode], list[tuple[str, str]]] | None:
    """The unfinished tasks, and the edges whose results have not arrived, by numbers.

    None if there are more than `most` tasks. Raises PlanNotFound.
    """
    numbers = unfinished_numbers(client, plan_path)
    if len(numbers) > most:
        return None
    kinds: dict[str, tuple[str, str]] = {}
    edges: list[tuple[str, str]] = []
    names: dict[str, str | None] = {}
    _read(client, plan_path, numbers, kinds, edges, names=names)
    edges = [(source, task) for source, task in edges if source in kinds]
    levels = levels_of(kinds, edges)
    nodes = [TaskNode(each, names[each], *kind, levels[each]) for each, kind in kinds.items()]
    return nodes, edges


def unfinished_numbers(client: Connection, plan_path: str) -> list[str]:
    """The numbers of the unfinished tasks, sorted. Raises PlanNotFound."""
    names = client.transport.ask(ReadChildren(plan_path))
    if names is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    return sorted(number for name in names if (number := parse_task(name)) is not None)


def _sampled(client: Connection, plan_path: str, numbers: list[str], sample: int) -> PlanGraph:
    """The graph as tasks spread evenly over the plan show it, without levels."""
    chosen = [numbers[at * len(numbers) // sample] for at in range(sample)]
    kinds: dict[str, tuple[str, str]] = {}
    edges: list[tuple[str, str]] = []
    weights = _read(client, plan_path, chosen, kinds, edges, EDGES_SAMPLED)
    behind = dict(kinds)
    sources = sorted({source for source, _ in edges} - kinds.keys())
    _read(client, plan_path, sources, behind, [], 0)
    members: dict[tuple[str, str], list[str]] = defaultdict(list)
    for number, kind in _few(kinds).items():
        members[kind].append(number)
    few = _few(behind)
    for number in few:
        members.setdefault(few[number], [])  # a kind that only a dependency has
    place = {kind: index for index, kind in enumerate(members)}
    scale = len(numbers) / max(1, len(kinds))
    counted: dict[tuple[int, int], float] = defaultdict(float)
    for source, task in edges:
        if source in few:
            counted[place[few[source]], place[few[task]]] += weights[task] * scale
    boxes = [Box(None, *kind, found) for kind, found in members.items()]
    return PlanGraph(boxes, {way: max(1, round(n)) for way, n in counted.items()}, scale)


def _read(
    client: Connection,
    plan_path: str,
    numbers: list[str],
    kinds: dict[str, tuple[str, str]],
    edges: list[tuple[str, str]],
    edges_max: int | None = None,
    names: dict[str, str | None] | None = None,
) -> dict[str, float]:
    """Add the function and the state of each task, and the edges to it whose result is missing.

    With `edges_max` at most so many of each task are read. `names` gets their names. Returns for
    how many tasks each of them stands, by task.
    """
    run = client.transport.run
    places = run(places_of(client.paths, plan_path))
    paths = [f"{plan_path}/task-{number}" for number in numbers]
    reads = [read(path) for path in paths for read in (ReadData, ReadChildren)]
    answers = run(read_all(reads, strict=False))
    deps: list[str] = []
    weights: dict[str, float] = {}
    for at, number in enumerate(numbers):
        node, children = answers[2 * at : 2 * at + 2]
        if node is None or children is None:
            continue  # finished meanwhile
        state = places[number].state if number in places else state_of(children)
        kinds[number] = _function(client.codec, node.data), state
        if names is not None:
            names[number] = name_of(client.codec, node.data)
        theirs = [f"task-{number}/{name}" for name in children if name.startswith("dep-")]
        some = theirs[:edges_max]
        deps += some
        weights[number] = len(theirs) / len(some) if some else 0.0
    sources = sources_of(client.transport, plan_path, deps)
    edges += [(source, dep[5:15]) for dep, source in sources.items() if source]
    return weights


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
        keys = {number: (None, *kind) for number, kind in _few(kinds).items()}
    members: dict[tuple[int | None, str, str], list[str]] = defaultdict(list)
    for number, key in keys.items():
        members[key].append(number)
    order = sorted(members, key=lambda key: (key[0] or 0, members[key][0]))
    place = {key: index for index, key in enumerate(order)}
    counted = Counter((place[keys[source]], place[keys[task]]) for source, task in edges)
    return PlanGraph([Box(*key, members[key]) for key in order], dict(counted))


def _few(kinds: Mapping[str, tuple[str, str]]) -> Mapping[str, tuple[str, str]]:
    """The same kinds, but rare functions share one name if there are too many to be read."""
    found = Counter(kinds.values())
    if len(found) <= BOXES_MAX:
        return kinds
    often = {kind for kind, _ in found.most_common(BOXES_MAX // 2)}
    return {number: kind if kind in often else (OTHERS, kind[1]) for number, kind in kinds.items()}


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
