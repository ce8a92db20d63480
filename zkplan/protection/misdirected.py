"""Find edges and arguments that lead a result to a task that does not wait for it there.

An edge has no proof: whoever may write the tree can turn it. The definition of the dependent, which
has one, says what goes where.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator

from ..errors import PayloadUndecodable
from ..protocol.edges import Edge
from ..protocol.records import SOURCE_BYTES, sources_in

_TASK = re.compile(r"task-([0-9]{10})(?:/(prov|arg)-([0-9]{10}))?")
#: In place of the number of an edge.
_ARGUMENT = 2**32 - 1


class Directions:
    """What the tasks of a plan wait for by their definitions, and what comes to them."""

    def __init__(self, plan_path: str) -> None:
        self._plan_path = plan_path
        #: By number of a task: what its definition names. A plan may have a hundred thousand.
        self._named: dict[int, bytes] = {}
        #: Of each edge and each argument four numbers: from which task it comes, to which it goes,
        #: to which of its positions, and the number of the edge.
        self._led = array("Q")

    def see(self, path: str, data: bytes) -> str:
        """Note what a znode says, whose proof fits if it has one. Others than those of tasks say
        nothing.

        Returns what is wrong with it by itself; empty if nothing is.
        """
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
        """What leads elsewhere than the definitions say, as far as these were seen."""
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
                f"to position {position} of task {task:010d}, whose definition names another there"
            )
