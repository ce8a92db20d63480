"""Find a cycle among the tasks of a plan: in arrays of numbers, without an object for each task.

Pure. A plan may have hundreds of thousands of tasks, and the worker that checks it must stay small.
"""

from __future__ import annotations

from array import array
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate

from .task_place import place_of


class Feeds:
    """Which of `tasks`, sorted numbers, feeds which. A task is stored as its index there."""

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
        """The numbers of a cycle, each before what it feeds, and the first again at the end; empty
        if there is none."""
        waits = self._left_waiting()
        # What is left is in a cycle or behind one: almost always nothing.
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
        """How many edges each task would still wait for, if all that can run had run."""
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
        can_run = array("I", (task for task in range(count) if not waits[task]))
        while can_run:
            source = can_run.pop()
            for target in targets[starts[source] : starts[source + 1]]:
                waits[target] -= 1
                if not waits[target]:
                    can_run.append(target)
        return waits
