"""Work ahead of a commit: read the dependents of running tasks, and run pure ones on the same slot.

The commit of such a task delivers the last argument to its dependents and claims them in the same
transaction. If their definitions are read by then, each hop of a chain costs one round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..basics.log import get_logger
from ..errors import ZkplanError
from ..protocol import failpoints
from ..protocol.core.commit import Committed
from ..protocol.core.commit_part import Part
from ..protocol.core.edges import Edge, argument_of
from ..protocol.core.load import Loaded, Reading, following, load_ahead
from ..protocol.task_options import TaskOptions
from ..protocol.transactions import GROUP_BYTES_MAX, Claim
from ..transport import Transport
from ..transport.server_clock import Clock
from ..values.blobs import is_stored
from ..values.codec import Codec, task_options, unsealed
from ..values.function_codec import split_name
from .job import Ended, Job
from .output import note_printed
from .steps import Steps

#: The most dependents of one task that are prefetched. A wide fan-out is left to all workers.
PREFETCH_MAX = 32
#: The same for a dependent that is not claimed yet. This is enough for chains that run side by
#: side.
PREFETCH_FURTHER_MAX = 2

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
                self._read(loaded.claim.task_path, loaded.edges, min(PREFETCH_MAX, most()))
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
                self._read(task_path, part.last.loaded.edges, PREFETCH_FURTHER_MAX)
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
                self._read(reading.task_path, reading.edges, PREFETCH_FURTHER_MAX)

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


# ---- Run ahead: run the pure tasks that follow a pure one on its slot, before any is committed.
#
# The task that was claimed is held back for it, for a moment at most. One transaction commits it
# and those that ran behind it, or it alone; then their results are dropped, and they run again.


#: The most tasks that run behind a claimed one, and the most bytes of all their results, and of
#: what they have printed.
RUN_MAX = 50
RUN_BYTES_MAX = GROUP_BYTES_MAX // 2
#: For so many seconds a task may be held back by those behind it, judged by their usual times.
HELD_S = 0.02
#: After so many seconds it is committed although one of them still runs.
HELD_MAX_S = 0.25
#: The most dependents of the last task of a run: their deliveries share its transaction.
EDGES_MAX = 32
#: How many tasks the first read of a run asks for.
GUESSES_FIRST = 8
#: Functions whose usual time is remembered, and plans whose guesses were right.
KNOWN_MAX = 1000
#: Twice as many tasks lead no run each time that nothing could run, but at most 2 to that power.
VAIN_MAX = 5

logger = get_logger("zkplan.worker")


class RunAhead:
    """Runs pure tasks ahead for one worker. Thread-safe: each slot calls `run`.

    `run_once` runs the function of a job once, and never raises. While tasks wait for a slot
    (`is_busy`), nothing runs ahead: many short chains side by side are about throughput, and their
    commits share transactions anyhow. With runs, 300 chains of 5 tasks took half as long again.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        codec: Codec,
        queues: Sequence[str],
        run_once: Callable[[Job], Ended],
        is_busy: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._is_busy, self._queues, self._clock = is_busy, queues, clock
        self._transport, self._codec, self._run_once = transport, codec, run_once
        #: Seconds by function, infinite where it gives large results; guesses by plan. Each access
        #: is one atomic operation of a dict.
        self._seconds: dict[bytes, float] = {}
        self._guesses: dict[str, int] = {}
        #: By plan: how many tasks lead no run from now on, after so many that led none in a row.
        self._rests: dict[str, tuple[int, int]] = {}

    def run(self, ended: Ended) -> None:
        """Run what follows the task of `ended`, and add it to its `run`."""
        job = ended.job
        self._note(job, ended)
        if self._is_busy() or not _may_lead(ended):
            return
        plan_path = job.claim.plan_path
        rest, vain = self._rests.get(plan_path, (0, 0))
        if rest:
            self._rests[plan_path] = rest - 1, vain
            return
        now = self._clock.monotonic()
        # It has ended, so its time-out is over.
        job.deadline = float("inf")
        job.held, job.held_until = ended, now + HELD_MAX_S
        ahead = _Ahead(self._transport, plan_path, self._guesses)
        try:
            self._run(ended, ahead, now + HELD_S)
        except ZkplanError as error:
            # Nothing is lost: what cannot be read here is claimed, and meets the error again.
            logger.debug("nothing runs ahead behind %s: %s", job.name, error)
        ahead.learn()
        if ended.run:
            self._rests.pop(plan_path, None)
        else:
            if len(self._rests) >= KNOWN_MAX:
                self._rests.clear()
            self._rests[plan_path] = 2 ** min(vain + 1, VAIN_MAX), vain + 1

    def _run(self, ended: Ended, ahead: _Ahead, until: float) -> None:
        job, before, outcome = ended.job, ended.job.loaded, ended.outcome
        size = len(outcome)
        while len(ended.run) < RUN_MAX and size < RUN_BYTES_MAX:
            if len(before.edges) != 1:
                return
            edge = before.edges[0][1]
            if edge.k != 1 or edge.queue not in self._queues:
                return
            reading = ahead.read(before.claim.task, edge.task)
            if reading is None:
                return
            argument = argument_of(before.claim.task, outcome)
            loaded = reading.run_ahead(following(job.claim, edge), edge.position, argument)
            if loaded is None or not self._is_worth(loaded, until) or job.is_unwanted():
                return
            failpoints.reach("ahead.before")
            next_job = Job(loaded, plan=job.plan, leader=job)
            next_ended = self._run_once(next_job)
            self._note(next_job, next_ended)
            if not next_ended.outcome or job.abandoned:
                return  # a failure counts, and a blob is kept, only under a claim of its own
            before, outcome = loaded, next_ended.outcome
            size += len(outcome)
            next_job.claim.fact = next_ended.fact
            note_printed(next_job, RUN_BYTES_MAX)
            printed = next_job.claim.fact.printed
            size += printed.end - printed.at if printed is not None else 0
            ended.run += (Part(loaded, outcome, next_job.options.keep),)

    def _is_worth(self, loaded: Loaded, until: float) -> bool:
        """Whether it is pure, and so short that the one before it can wait for it."""
        record = self._codec.open_definition(loaded.record)
        options: TaskOptions = task_options(record)
        if not options.pure or options.timeout is not None or len(loaded.edges) > EDGES_MAX:
            return False
        if options.not_before is not None or options.deadline is not None:
            return False
        usual_s = self._seconds.get(record.function)
        return usual_s is not None and self._clock.monotonic() + usual_s <= until

    def _note(self, job: Job, ended: Ended) -> None:
        if job.options.pure and job.function and (ended.outcome or ended.needs_claim):
            if len(self._seconds) >= KNOWN_MAX:
                self._seconds.clear()
            # Behind another task it would run in vain: a run has no room for such a result.
            is_large = ended.needs_claim or _is_large(ended.outcome)
            self._seconds[job.function] = float("inf") if is_large else ended.seconds


def _is_large(outcome: bytes) -> bool:
    if len(outcome) >= RUN_BYTES_MAX:
        return True
    return is_stored(split_name(unsealed(outcome)[1])[1])


def _may_lead(ended: Ended) -> bool:
    job = ended.job
    # A task whose earlier claim ended without an outcome runs alone: if the one behind it kills
    # workers, this one must not be blamed for it again.
    return (
        job.options.pure
        and bool(ended.outcome)
        and job.loaded.result is None
        and job.claim.n <= job.claim.a
        and not job.abandoned
        and [edge.k for _, edge in job.loaded.edges] == [1]
    )


@dataclass
class _Ahead:
    """What one run has read ahead: the next task, and others that are likely to follow it."""

    transport: Transport
    plan_path: str
    guesses: dict[str, int]

    def __post_init__(self) -> None:
        self._found: dict[str, Reading] = {}
        self._asked = self._used = 0

    def read(self, before: str, task: str) -> Reading | None:
        """The task after `before`. Raises ZkplanError.

        Chains are often added in one go, with even steps between their numbers. So the tasks at
        the same distance are read with it, the more of them, the more often that was right.
        """
        reading = self._found.pop(task, None)
        if reading is None:
            self.learn()
            step = int(task) - int(before)
            count = max(1, self.guesses.get(self.plan_path, GUESSES_FIRST)) if step > 0 else 1
            tasks = [f"{int(task) + step * index:010d}" for index in range(count)]
            self._found = self.transport.run(load_ahead(self.plan_path, tasks))
            self._asked, self._used = count, 0
            reading = self._found.pop(task, None)
        self._used += 1
        return reading

    def learn(self) -> None:
        """Note how many of the tasks that were read were of use."""
        if self._asked:
            if len(self.guesses) >= KNOWN_MAX:
                self.guesses.clear()
            all_used = self._used == self._asked
            most = 2 * self._used if all_used else max(1, self._used)
            self.guesses[self.plan_path] = min(RUN_MAX, most)
