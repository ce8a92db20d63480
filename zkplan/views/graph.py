"""Reduce the unfinished part of a plan to a graph of boxes and edges."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..protocol.core.load import read_all
from ..protocol.features.task_place import NOWHERE, read_places, state_of
from ..protocol.layout import number_of
from ..protocol.records import TaskRecord
from ..protocol.requests import ReadChildren, ReadData
from ..values.codec import Codec, task_options
from ..values.connection import Connection
from ..values.function_codec import describe_function
from .dependencies import sources_of
from .unfinished import FreshPlaces, unfinished_numbers

#: With more boxes, alike tasks of all levels share one; with still more, rare functions do too.
BOXES_MAX = 50
OTHERS = "(other functions)"
UNREADABLE = "(cannot be read here)"
#: The states in the order of boxes: first what needs a person, then what goes on by itself.
STATES = ("dead", "delayed", "running", "decided", "runnable", "gated", "being defined", "waiting")
#: How many edges of one task a sample reads.
EDGES_SAMPLED = 20
#: With more edges a graph is not given task by task.
EDGES_SINGLE_MAX = 100_000
#: How many tasks are read together, so that not all definitions are in memory at once.
TASKS_PER_READ = 1000
#: How many threads read.
READ_AHEAD = 2


class Box(NamedTuple):
    """Tasks of one function in one state. `level` counts the edges before them, along the longest
    way; it is None if tasks of several levels share the box. `tasks` are their numbers."""

    level: int | None
    function: str
    state: str
    tasks: list[str]


class PlanGraph(NamedTuple):
    """The boxes, and how many edges lead from one to another, by their places in `boxes`.

    For a sample, the numbers of edges are estimates, and `scale` is how many tasks each task that
    was read stands for. `longest` counts the tasks on the longest way through the graph, which have
    to run one after the other; it is 0 if that is unknown, as for a sample.
    """

    boxes: list[Box]
    edges: dict[tuple[int, int], int]
    scale: float = 1.0
    longest: int = 0

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
    _read(client, plan_path, numbers, kinds, edges)
    # Leave out the edges from dependencies that have finished meanwhile.
    edges = [(source, task) for source, task in edges if source in kinds]
    return _grouped(kinds, edges)


class TaskNode(NamedTuple):
    """An unfinished task in a graph of single tasks. `name` is None where it cannot be read."""

    number: str
    name: str | None
    function: str
    state: str
    level: int


class TaskGraph(NamedTuple):
    """The unfinished tasks one by one, and the edges whose results have not arrived, by numbers."""

    tasks: list[TaskNode]
    edges: list[tuple[str, str]]


def task_graph(client: Connection, plan_path: str, most: int, sample: int) -> TaskGraph | PlanGraph:
    """The graph that is left, task by task.

    With more than `most` tasks or EDGES_SINGLE_MAX edges, alike tasks share a box. If there are
    more than `most` tasks, at most `sample` of them are read. Raises PlanNotFound.
    """
    numbers = unfinished_numbers(client, plan_path)
    if len(numbers) > most:
        return plan_graph(client, plan_path, sample)
    kinds: dict[str, tuple[str, str]] = {}
    edges: list[tuple[str, str]] = []
    names: dict[str, str | None] = {}
    _read(client, plan_path, numbers, kinds, edges, names=names)
    edges = [(source, task) for source, task in edges if source in kinds]
    if len(edges) > EDGES_SINGLE_MAX:
        return _grouped(kinds, edges)
    levels = levels_of(kinds, edges)
    nodes = [TaskNode(each, names[each], *kind, levels[each]) for each, kind in kinds.items()]
    return TaskGraph(nodes, edges)


def _sampled(client: Connection, plan_path: str, numbers: list[str], sample: int) -> PlanGraph:
    """The graph of `sample` tasks that are spread evenly over the plan, without levels."""
    chosen = [numbers[at * len(numbers) // sample] for at in range(sample)]
    kinds: dict[str, tuple[str, str]] = {}
    edges: list[tuple[str, str]] = []
    weights = _read(client, plan_path, chosen, kinds, edges, EDGES_SAMPLED)
    behind = dict(kinds)
    sources = sorted({source for source, _ in edges} - kinds.keys())
    _read(client, plan_path, sources, behind, [], 0)
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for number, kind in _few(kinds).items():
        found[kind].append(number)
    few = _few(behind)
    for number in few:
        found.setdefault(few[number], [])  # a kind that only a dependency has
    members = {kind: found[kind] for kind in sorted(found, key=lambda kind: _rank(kind[1]))}
    place = {kind: index for index, kind in enumerate(members)}
    scale = len(numbers) / max(1, len(kinds))
    counted: dict[tuple[int, int], float] = defaultdict(float)
    for source, task in edges:
        if source in few:
            counted[place[few[source]], place[few[task]]] += weights[task] * scale
    boxes = [Box(None, *kind, theirs) for kind, theirs in members.items()]
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

    At most `edges_max` edges of each task are read. The names of the tasks are added to `names`.
    Returns, by task, how many of its edges each edge that was read stands for.
    """
    fetch = partial(_fetch, client, plan_path, edges_max)
    starts = range(0, len(numbers), TASKS_PER_READ)
    plan = number_of(plan_path)
    places = FreshPlaces(lambda: client.transport.run(read_places(client.paths, [plan])))
    weights: dict[str, float] = {}
    # While this thread decodes one batch, the server answers for the next ones.
    with ThreadPoolExecutor(READ_AHEAD, "zkplan-graph") as ahead:
        for fetched in ahead.map(fetch, (numbers[at : at + TASKS_PER_READ] for at in starts)):
            seen = places.now()
            for number, sealed, below, many in fetched.tasks:
                record = _record(client.codec, sealed)
                state = seen.get((plan, number), NOWHERE).state or below
                if state == "runnable" and below == "decided":
                    state = below
                kinds[number] = _function(record), state
                if names is not None:
                    names[number] = _name(record)
                weights[number] = many / min(many, edges_max or many) if many else 0.0
            edges += fetched.edges
    return weights


class _Fetched(NamedTuple):
    """Some tasks as they were read: number, definition, state by the children, number of edges. And
    their edges."""

    tasks: list[tuple[str, bytes, str, int]]
    edges: list[tuple[str, str]]


def _fetch(
    client: Connection, plan_path: str, edges_max: int | None, numbers: list[str]
) -> _Fetched:
    paths = [f"{plan_path}/task-{number}" for number in numbers]
    reads = [read(path) for path in paths for read in (ReadData, ReadChildren)]
    answers = client.transport.run(read_all(reads, strict=False))
    tasks: list[tuple[str, bytes, str, int]] = []
    deps: list[str] = []
    for at, number in enumerate(numbers):
        node, children = answers[2 * at : 2 * at + 2]
        if node is None or children is None:
            continue  # finished meanwhile
        theirs = [f"task-{number}/{name}" for name in children if name.startswith("dep-")]
        tasks.append((number, node.data, state_of(NOWHERE, children), len(theirs)))
        deps += theirs[:edges_max]
    sources = sources_of(client.transport, plan_path, deps)
    return _Fetched(tasks, [(source, dep[5:15]) for dep, source in sources.items() if source])


def _record(codec: Codec, sealed: bytes) -> TaskRecord | None:
    try:
        return codec.open_definition(sealed)
    except PayloadUndecodable:
        return None


def _function(record: TaskRecord | None) -> str:
    return UNREADABLE if record is None else describe_function(record.function)


def _name(record: TaskRecord | None) -> str | None:
    try:
        return None if record is None else task_options(record).name
    except PayloadUndecodable:
        return None


def _grouped(kinds: Mapping[str, tuple[str, str]], edges: list[tuple[str, str]]) -> PlanGraph:
    levels = levels_of(kinds, edges)
    keys: dict[str, tuple[int | None, str, str]]
    keys = {number: (levels[number], *kind) for number, kind in kinds.items()}
    if len(set(keys.values())) > BOXES_MAX:
        keys = {number: (None, *kind) for number, kind in _few(kinds).items()}
    members: dict[tuple[int | None, str, str], list[str]] = defaultdict(list)
    for number, key in keys.items():
        members[key].append(number)
    order = sorted(members, key=lambda key: (key[0] or 0, _rank(key[2]), members[key][0]))
    place = {key: index for index, key in enumerate(order)}
    counted = Counter((place[keys[source]], place[keys[task]]) for source, task in edges)
    boxes = [Box(*key, members[key]) for key in order]
    return PlanGraph(boxes, dict(counted), longest=max(levels.values(), default=-1) + 1)


def _rank(state: str) -> int:
    return STATES.index(state) if state in STATES else len(STATES)


def _few(kinds: Mapping[str, tuple[str, str]]) -> Mapping[str, tuple[str, str]]:
    """The same kinds, but rare functions share one name if there are too many to read."""
    found = Counter(kinds.values())
    if len(found) <= BOXES_MAX:
        return kinds
    often = {kind for kind, _ in found.most_common(BOXES_MAX // 2)}
    return {number: kind if kind in often else (OTHERS, kind[1]) for number, kind in kinds.items()}


def levels_of(tasks: Iterable[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The level of each task. Tasks of a cycle, and all after it, are on one level after the last.

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
