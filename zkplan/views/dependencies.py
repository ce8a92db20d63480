"""Follow the edges of tasks, to the tasks that they wait for and to those that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..protocol.core.edges import Edge
from ..protocol.core.load import read_all
from ..protocol.layout import parse_number
from ..protocol.requests import Node, ReadChildren, ReadData
from ..transport import Transport

#: The most tasks that are named on either side: a wide join has up to 50 000.
NAMED = 20


class Edges(NamedTuple):
    """One side of a task: the numbers of some tasks, and how many edges lead to other tasks.

    `why` ends a sentence: why some of these are not named; empty if they are only too many.
    """

    tasks: list[str]
    more: int = 0
    why: str = ""


def dependents(transport: Transport, task_path: str, provs: list[str]) -> Edges:
    """The tasks that get the result, from the first `prov-` of this task."""
    shown = sorted(provs)[:NAMED]
    return Edges(targets_of(transport, task_path, shown), len(provs) - len(shown))


def dependencies(transport: Transport, plan_path: str, number: str, deps: list[str]) -> Edges:
    """The tasks whose results are missing, from the `dep-` of task `number`.

    Dead tasks come first, because they keep the task waiting. Then come the tasks that were added
    before it, newest first, because they usually end last.
    """
    path = f"{plan_path}/task-{number}"
    sources = sources_of(transport, path, deps)
    dead = set(transport.ask(ReadChildren(f"{plan_path}/dead")) or ()) if sources else set()
    here = int(number)
    known = sorted(
        (task not in dead, task >= number, abs(int(task) - here), dep)
        for dep, task in sources.items()
        if task
    )
    shown = {dep: sources[dep] for *_, dep in known[:NAMED]}
    numbers = list(dict.fromkeys(shown.values()))
    nodes = _read(transport, [f"{plan_path}/task-{task}" for task in numbers])
    gone = {task for task, node in zip(numbers, nodes, strict=True) if node is None}
    why = (
        "unknown: somebody changed the edge by hand"
        if len(shown) < min(NAMED, len(sources))
        else ""
    )
    if gone:
        # The result was most likely delivered since then: such an edge has no `dep-` any more.
        still = set(transport.ask(ReadChildren(path)) or ())
        for dep in [dep for dep, task in shown.items() if task in gone]:
            del shown[dep]
            if dep in still:
                why = "whose task does not exist"
            else:
                del sources[dep]
    left = [task for task in numbers if task not in gone]
    return Edges(left, len(sources) - len(shown), why)


def sources_of(transport: Transport, path: str, deps: list[str]) -> dict[str, str]:
    """The task that each of `deps` names, or an empty text. A `dep-` that is gone is left out.

    `deps` are relative to `path`.
    """
    nodes = _read(transport, [f"{path}/{dep}" for dep in deps])
    return {
        dep: parse_number(node.data.decode(errors="replace")) or ""
        for dep, node in zip(deps, nodes, strict=True)
        if node is not None
    }


def targets_of(transport: Transport, path: str, provs: list[str]) -> list[str]:
    """The tasks that these edges lead to, each once. `provs` are relative to `path`."""
    nodes = _read(transport, [f"{path}/{name}" for name in provs])
    edges = [_edge(node.data) for node in nodes if node is not None]
    return list(dict.fromkeys(edge.task for edge in edges if edge is not None))


def _read(transport: Transport, paths: list[str]) -> list[Node | None]:
    return transport.run(read_all([ReadData(path) for path in paths], strict=False))


def _edge(data: bytes) -> Edge | None:
    try:
        return Edge.from_bytes(data)
    except PayloadUndecodable:
        return None  # damaged: `zkplan plan check` reports it


# ---- Follow edges: back to what a task waits for in the end, and on to all that it blocks.


#: How far edges are followed: levels, tasks whose children are listed, and edges that are read.
#: A join may have 50 000 edges, which are read in 50 requests.
LEVELS_MAX, TASKS_MAX, EDGES_MAX = 100, 2_000, 60_000


class Chain(NamedTuple):
    """What a task waits for.

    `direct` are the tasks whose results are missing. `roots` are the tasks at the ends of the
    chains: they do not wait for others. `edges` counts the missing edges of the task itself, and
    `unnamed` those along all chains that name no existing task. `whole` is False if the chains are
    longer than the bounds: then some roots may be missing.
    """

    direct: list[str]
    roots: list[str]
    edges: int
    unnamed: int
    whole: bool


def roots_of(transport: Transport, plan_path: str, number: str, placed: Container[str]) -> Chain:
    """Follow the missing edges of a task back. The tasks in `placed` do not wait."""
    direct: list[str] = []
    roots: list[str] = []
    edges, unnamed = 0, 0

    def back(children: dict[str, list[str]]) -> tuple[list[str], int]:
        nonlocal direct, edges, unnamed
        deps = [
            f"task-{task}/{name}"
            for task, names in children.items()
            for name in names
            if name.startswith("dep-")
        ]
        waiting = {dep[5:15] for dep in deps}
        # A task that is in no index and waits for nothing is being defined or published.
        roots.extend(task for task in children if task not in waiting and task != number)
        sources = sources_of(transport, plan_path, deps[:EDGES_MAX])
        unnamed += sum(not source for source in sources.values())
        found = list(dict.fromkeys(filter(None, sources.values())))
        if number in children:
            direct, edges = found, len(deps)
        roots.extend(task for task in found if task in placed and task not in roots)
        return [task for task in found if task not in placed], len(deps)

    _, gone, whole = _walk(transport, plan_path, number, back)
    return Chain(direct, list(dict.fromkeys(roots)), edges, unnamed + len(gone), whole)


def blocked_by(transport: Transport, plan_path: str, number: str) -> tuple[int, bool]:
    """How many tasks wait for that task through any number of edges, and whether that is all."""

    def forth(children: dict[str, list[str]]) -> tuple[list[str], int]:
        provs = [
            f"task-{task}/{name}"
            for task, names in children.items()
            for name in names
            if name.startswith("prov-")
        ]
        return targets_of(transport, plan_path, provs[:EDGES_MAX]), len(provs)

    seen, gone, whole = _walk(transport, plan_path, number, forth)
    return len(seen) - len(gone) - 1, whole


def _walk(
    transport: Transport,
    plan_path: str,
    number: str,
    follow: Callable[[dict[str, list[str]]], tuple[list[str], int]],
) -> tuple[set[str], set[str], bool]:
    """Visit tasks level by level. `follow` gets the children of one level, and returns the tasks of
    the next one and how many edges it has read. Returns the tasks seen, those of them that do not
    exist, and whether no bound was reached."""
    seen, gone, level, edges = {number}, set[str](), [number], 0
    for _ in range(LEVELS_MAX):
        listed = transport.run(
            read_all([ReadChildren(f"{plan_path}/task-{task}") for task in level], strict=False)
        )
        there = {t: names for t, names in zip(level, listed, strict=True) if names is not None}
        gone |= set(level) - set(there)
        found, read = follow(there)
        edges += read
        level = [task for task in found if task not in seen]
        room = TASKS_MAX - len(seen)
        seen |= set(level)
        if not level:
            return seen, gone, edges <= EDGES_MAX
        if edges >= EDGES_MAX or len(level) > room:
            break
    return seen, gone, False
