"""Find a cycle among the tasks of a plan: in arrays of numbers, without an object for each task.

Pure. A plan may have hundreds of thousands of tasks, and the worker that checks it must stay small.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate


def place_of(tasks: array[int], number: int) -> int | None:
    """Where that number stands in the sorted numbers, or None."""
    at = bisect_left(tasks, number)
    return at if at < len(tasks) and tasks[at] == number else None


class Feeds:
    """Which task feeds which, among `tasks`, sorted numbers. Tasks are stored as places in them."""

    def __init__(self, tasks: array[int]) -> None:
        self.tasks = tasks
        self._sources, self._targets = array("I"), array("I")

    def add(self, source: int, target: int) -> None:
        """Note an edge. One from or to a task that is not among them is in no cycle."""
        first, second = place_of(self.tasks, source), place_of(self.tasks, target)
        if first is not None and second is not None:
            self._sources.append(first)
            self._targets.append(second)

    def cycle(self) -> list[int]:
        """The numbers of a cycle, each before what it feeds and the first again at its end; or
        none."""
        waits = self._left_waiting()
        # Almost always nothing is left: only what is in a cycle, or behind one.
        left: dict[int, list[int]] = {}
        for source, target in zip(self._sources, self._targets, strict=True):
            if waits[source] and waits[target]:
                left.setdefault(self.tasks[source], []).append(self.tasks[target])
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            # It takes what follows a task for what goes before it, so its cycle runs backwards.
            return list(reversed(error.args[1]))
        return []

    def _left_waiting(self) -> array[int]:
        """For how many edges each task would wait still, if all that can run had run."""
        count, zero = len(self.tasks), array("I", [0])
        waits, fed = zero * count, zero * (count + 1)
        for source, target in zip(self._sources, self._targets, strict=True):
            fed[source + 1] += 1
            waits[target] += 1
        # What a task feeds stands together: from its start to that of the next task.
        starts = array("I", accumulate(fed))
        free, targets = starts[:], zero * len(self._targets)
        for source, target in zip(self._sources, self._targets, strict=True):
            targets[free[source]] = target
            free[source] += 1
        can_run = array("I", (place for place in range(count) if not waits[place]))
        while can_run:
            source = can_run.pop()
            for target in targets[starts[source] : starts[source + 1]]:
                waits[target] -= 1
                if not waits[target]:
                    can_run.append(target)
        return waits
