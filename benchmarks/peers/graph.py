"""The graph of a shape as plain data, for processes that have no zkplan."""

from __future__ import annotations

from typing import Any

from zkplan import TaskSpec

from ..shapes import Shape


def plain_graph(shape: Shape) -> dict[str, Any]:
    """`calls` has for each task the name of its function, and the indexes of the tasks that are its
    arguments. `leaves` has the indexes of the tasks whose values are wanted."""
    specs = shape.build()
    places = {id(spec): index for index, spec in enumerate(specs)}
    calls = [
        [spec.fn.__name__, [places[id(needed)] for needed in _arguments(spec)]] for spec in specs
    ]
    return {"calls": calls, "leaves": list(shape.expected)}


def _arguments(spec: TaskSpec) -> list[object]:
    """The arguments one by one. Ray resolves the tasks in a list only if the list is spread."""
    found: list[object] = []
    for argument in spec.args:
        found += argument if isinstance(argument, list) else [argument]
    return found
