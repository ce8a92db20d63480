"""Reading ahead: dependents with a single edge are read while the task before them still runs.

Their commit hands them their last argument and claims them in the same transaction, so with their
definition at hand a chain costs one round trip a hop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..protocol.commit import Committed
from ..protocol.load import Loaded, Reading, load_ahead
from ..protocol.shared import Claim

if TYPE_CHECKING:
    from ..execution import Job
    from .engine import Engine

#: Dependents of one task that are read ahead; a fan-out is for all workers.
AHEAD_MAX = 32


@dataclass(slots=True)
class _Batch:
    """What was read ahead for one task, and the claims that wait for it to arrive."""

    readings: dict[str, Reading] = field(default_factory=dict)
    arrived: bool = False
    waiting: list[tuple[Claim, str, bytes]] = field(default_factory=list)


class ReadAhead:
    """The dependents being read ahead for the jobs of one engine, by the path of the job's claim."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._batches: dict[str, _Batch] = {}

    def begin(self, job: Job) -> None:
        """Read the dependents that this worker may inherit when `job` is committed."""
        most = min(AHEAD_MAX, self._engine.free)
        tasks = [edge.task for _, edge in job.loaded.edges if edge.k == 1][: max(0, most)]
        if not tasks:
            return
        batch = self._batches[job.claim.path] = _Batch()

        def arrived(readings: dict[str, Reading]) -> None:
            batch.readings, batch.arrived = readings, True
            for claim, position, value in batch.waiting:
                self._engine.inherited_arrived(self._use(batch, claim, position, value), claim)

        self._engine.go(load_ahead(job.claim.plan_path, tasks), arrived)

    def take(self, report: Committed) -> tuple[list[Loaded], list[Claim], int]:
        """Of the claims that a commit inherited: those ready to run, those to load, how many are on
        their way and come through `inherited_arrived`."""
        sources: dict[str, tuple[_Batch | None, str, bytes]] = {}
        for part in report.done:
            batch = self._batches.pop(part.loaded.claim.path, None)
            if not report.inherited:
                continue
            for _, edge in part.loaded.edges:
                if edge.k == 1:
                    path = f"{part.loaded.claim.plan_path}/task-{edge.task}"
                    sources[path] = (batch, edge.position, part.outcome)
        ready: list[Loaded] = []
        unread: list[Claim] = []
        on_the_way = 0
        for claim in report.inherited:
            batch, position, value = sources[claim.task_path]
            if batch is not None and not batch.arrived:
                batch.waiting.append((claim, position, value))
                on_the_way += 1
                continue
            loaded = self._use(batch, claim, position, value) if batch is not None else None
            if loaded is not None:
                ready.append(loaded)
            else:
                unread.append(claim)
        return ready, unread, on_the_way

    def _use(self, batch: _Batch, claim: Claim, position: str, value: bytes) -> Loaded | None:
        reading = batch.readings.pop(claim.task, None)
        return reading.inherited(claim, position, value) if reading is not None else None

    def forget(self, claim_path: str) -> None:
        """The job ended without a commit."""
        self._batches.pop(claim_path, None)
