"""Prefetch: read dependents with a single edge while the tasks before them still run.

The commit of such a task delivers the last argument to its dependents and claims them in the same
transaction. If their definitions are read by then, each hop of a chain costs one round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..protocol.commit import Committed
from ..protocol.edges import Edge
from ..protocol.load import Loaded, Reading, load_ahead
from ..protocol.part import Part
from ..protocol.shared import Claim
from .steps import Steps

#: The most dependents of one task that are prefetched. A wide fan-out is left to all workers.
AHEAD_MAX = 32
#: The same for a dependent that is not claimed yet. This is enough for chains that run side by
#: side.
FURTHER_MAX = 2

_Arrived = Callable[[Loaded | None, Claim], None]


class _Batch:
    """The prefetched dependents of one task, and the claims that wait for the answer."""

    __slots__ = ("arrived", "further", "readings", "waiting")

    def __init__(self) -> None:
        self.readings: dict[str, Reading] = {}
        self.arrived = False
        #: The task is being committed, so the dependents of its dependents are worth reading.
        self.further = False
        self.waiting: list[tuple[Claim, str, bytes, _Arrived]] = []


class Prefetch:
    """All prefetched tasks of one worker, in a batch for each task before them."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._batches: dict[str, _Batch] = {}

    def begin(self, loaded: Loaded, most: Callable[[], int]) -> None:
        """A task starts: prefetch up to `most()` dependents that its commit may claim for this
        worker."""
        if loaded.claim.task_path in self._batches:
            return
        for _, edge in loaded.edges:
            if edge.k == 1:  # else there is nothing to prefetch, and nobody need count
                self._read(loaded.claim.task_path, loaded.edges, min(AHEAD_MAX, most()))
                return

    def committing(self, parts: Iterable[Part]) -> None:
        """The commit was sent: prefetch one hop further meanwhile.

        Not earlier, because the commit would wait behind these reads. Now they are answered after
        it.
        """
        for part in parts:
            task_path = part.loaded.claim.task_path
            if part.run:
                # Its dependents were run, and are committed with it. Theirs are claimed next.
                self.forget(part.loaded.claim)
                self._read(task_path, part.last.loaded.edges, FURTHER_MAX)
                continue
            batch = self._batches.get(task_path)
            if batch is not None:
                batch.further = True
                if batch.arrived:
                    self._read_further(batch)

    def _read(self, task_path: str, edges: Iterable[tuple[str, Edge]], most: int) -> _Batch | None:
        tasks = [edge.task for _, edge in edges if edge.k == 1][: max(0, most)]
        if not tasks:
            return None
        batch = self._batches[task_path] = _Batch()

        def arrived(readings: dict[str, Reading]) -> None:
            batch.readings, batch.arrived = readings, True
            for claim, position, argument, tell in batch.waiting:
                tell(self._use(batch, claim, position, argument), claim)
            if batch.further and task_path in self._batches:
                self._read_further(batch)

        step = load_ahead(task_path.rpartition("/")[0], tasks)
        nothing: dict[str, Reading] = {}
        self._steps.start_contained(step, arrived, f"dependents of {task_path}", instead=nothing)
        return batch

    def _read_further(self, batch: _Batch) -> None:
        for reading in batch.readings.values():
            if reading.task_path not in self._batches:
                self._read(reading.task_path, reading.edges, FURTHER_MAX)

    def take(self, report: Committed, arrived: _Arrived) -> tuple[list[Loaded], list[Claim], int]:
        """Sort the claims that a commit made: those ready to run, those to load, and how many are
        still being read.

        For each of the last, `arrived` gets what was read (None: it must be read again) and the
        claim.
        """
        sources: dict[str, tuple[_Batch | None, str, bytes]] = {}
        batches = []
        for part in report.done:
            batch = self._batches.pop(part.loaded.claim.task_path, None)
            if batch is not None:
                batches.append(batch)
            if not report.inherited:
                continue
            last = part.last
            argument = last.argument()
            for _, edge in last.loaded.edges:
                if edge.k == 1:
                    path = f"{part.loaded.claim.plan_path}/task-{edge.task}"
                    sources[path] = (batch, edge.position, argument)
        ready: list[Loaded] = []
        unread: list[Claim] = []
        on_the_way = 0
        for claim in report.inherited:
            batch, position, argument = sources[claim.task_path]
            if batch is not None and not batch.arrived:
                batch.waiting.append((claim, position, argument, arrived))
                on_the_way += 1
                continue
            loaded = self._use(batch, claim, position, argument) if batch is not None else None
            if loaded is not None:
                ready.append(loaded)
            else:
                unread.append(claim)
        for batch in batches:
            self._drop_further(batch)
        return ready, unread, on_the_way

    def _use(self, batch: _Batch, claim: Claim, position: str, argument: bytes) -> Loaded | None:
        reading = batch.readings.pop(claim.task, None)
        return reading.inherited(claim, position, argument) if reading is not None else None

    def _drop_further(self, batch: _Batch) -> None:
        """Drop what is left in a batch: other workers have it now, and what follows it."""
        for reading in batch.readings.values():
            self._batches.pop(reading.task_path, None)

    def forget(self, claim: Claim) -> None:
        """The job of `claim` ended without a commit."""
        batch = self._batches.pop(claim.task_path, None)
        if batch is not None:
            self._drop_further(batch)
