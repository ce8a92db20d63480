"""Follow edges: back to what a task waits for in the end, and on to all that it blocks."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

from ..protocol.load import read_all
from ..protocol.requests import ReadChildren
from ..transport import Transport
from .neighbours import sources_of, targets_of

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
        # It is in no index and waits for nothing: it is being defined or published.
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
    """How many tasks wait for that task, through any number of edges, and whether these are all."""

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
