"""The tasks at the other ends of a task's edges: its dependencies and its dependents."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..protocol.edges import Edge
from ..protocol.layout import parse_number
from ..protocol.load import read_all
from ..protocol.requests import Node, ReadChildren, ReadData
from ..transport import Transport

#: The most tasks that are named on either side: a wide join has up to 50 000.
NAMED = 20


class Edges(NamedTuple):
    """One side of a task: the numbers of some tasks, and how many edges lead to other tasks.

    `why` says why fewer tasks are named than could be, if that is so.
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
    why = "unknown: another client made the edge" if len(shown) < min(NAMED, len(sources)) else ""
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
        return None  # another client's, or damaged: `zkplan plan check` reports it
