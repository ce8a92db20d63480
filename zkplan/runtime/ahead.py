"""Work ahead of a commit: read the dependents of running tasks, and run pure ones on the same slot.

The commit of a task delivers the last argument to its dependents, and claims them in the same
transaction. If their definitions have been read by then, each hop of a chain costs one round trip.
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

#: The most dependents of one task to prefetch. All workers share a wide fan-out.
PREFETCH_MAX = 32
#: The same for the dependents of a task that is not claimed yet. Enough for chains side by side.
PREFETCH_FURTHER_MAX = 2

_Arrived = Callable[[Loaded | None, Claim], None]


class _Batch:
    """The prefetched dependents of one task, and the claims that wait for the answer."""

    __slots__ = ("arrived", "further", "readings", "waiting")

    def __init__(self) -> None:
        self.readings: dict[str, Reading] = {}
        self.arrived = False
        #: The task is being committed, so prefetch the dependents of its dependents, too.
        self.further = False
        self.waiting: list[tuple[Claim, str, bytes, _Arrived]] = []


class Prefetch:
    """All prefetched tasks of one worker, in batches: the dependents of one task."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._batches: dict[str, _Batch] = {}

    def begin(self, loaded: Loaded, most: Callable[[], int]) -> None:
        """Prefetch up to `most()` dependents of a task that starts: its commit may claim them."""
        if loaded.claim.task_path in self._batches:
            return
        for _, edge in loaded.edges:
            if edge.k == 1:  # without such an edge, do not spend time on `most()`
                self._read(loaded.claim.task_path, loaded.edges, min(PREFETCH_MAX, most()))
                return

    def committing(self, parts: Iterable[Part]) -> None:
        """Prefetch one hop further, now that the commit of `parts` was sent.

        The server answers these reads after the commit. If they were sent earlier, the commit would
        wait for them.
        """
        for part in parts:
            task_path = part.loaded.claim.task_path
            if part.run:
                # Its dependents ran ahead, and are committed with it. Next the commit claims the
                # dependents of the last of them.
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
        """Sort the claims that a commit made: tasks ready to run, claims to load, and the number of
        claims whose tasks are still being read.

        For each of the latter, `arrived` later gets the task (None: read it again) and the claim.
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
        """Drop the batches after the tasks left in `batch`, which other workers claim now."""
        for reading in batch.readings.values():
            self._batches.pop(reading.task_path, None)

    def forget(self, claim: Claim) -> None:
        """Drop the prefetched dependents of a task that ended without a commit here."""
        batch = self._batches.pop(claim.task_path, None)
        if batch is not None:
            self._drop_further(batch)


# ---- Run ahead: run the pure tasks after a claimed pure one on its slot, before any is committed.
#
# The claimed task, the leader, waits for the run, but only for a moment. One transaction commits
# the leader with the tasks that ran after it, or the leader alone; then the results of the others
# are dropped, and they run again.


#: The most tasks that run after a leader, and the most bytes of their results and output.
RUN_MAX = 50
RUN_BYTES_MAX = GROUP_BYTES_MAX // 2
#: A run may hold its leader back for this many seconds, by the usual times of its tasks.
HELD_S = 0.02
#: After this many seconds the leader is committed, even if a task of the run still runs.
HELD_MAX_S = 0.25
#: The most dependents of the last task of a run: their deliveries share its transaction.
EDGES_MAX = 32
#: How many tasks the first read of a run asks for.
GUESSES_FIRST = 8
#: The most functions whose usual times, and plans whose numbers of guesses, are remembered.
KNOWN_MAX = 1000
#: After each leader in a row that led no run, twice as many tasks do not try to lead one: at most 2
#: to this power.
VAIN_MAX = 5

logger = get_logger("zkplan.worker")


class RunAhead:
    """Runs pure tasks ahead for one worker. Thread-safe: each slot calls `run`.

    `run_once` runs the function of a job once, and never raises. While tasks wait for a slot
    (`is_busy`), nothing runs ahead: many short chains side by side need throughput, and their
    commits share transactions anyway. With runs, 300 chains of 5 tasks took half as long again.
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
        #: By function: its usual seconds, infinite if its results are large. By plan: how many
        #: tasks to read. Each access is one atomic operation of a dict.
        self._seconds: dict[bytes, float] = {}
        self._guesses: dict[str, int] = {}
        #: By plan: how many tasks must still not try to lead a run, and how many in a row led none.
        self._rests: dict[str, tuple[int, int]] = {}

    def run(self, ended: Ended) -> None:
        """Run the tasks after the task of `ended`, and add them to `ended.run`."""
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
        # The leader has ended, so its time-out no longer counts.
        job.deadline = float("inf")
        job.held, job.held_until = ended, now + HELD_MAX_S
        ahead = _Ahead(self._transport, plan_path, self._guesses)
        try:
            self._run(ended, ahead, now + HELD_S)
        except ZkplanError as error:
            # Nothing is lost: the next task will be claimed, and meet the error again.
            logger.debug("nothing runs ahead after %s: %s", job.name, error)
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
                return  # only a task with its own claim may fail, or keep a blob
            before, outcome = loaded, next_ended.outcome
            size += len(outcome)
            next_job.claim.fact = next_ended.fact
            note_printed(next_job, RUN_BYTES_MAX)
            printed = next_job.claim.fact.printed
            size += printed.end - printed.at if printed is not None else 0
            ended.run += (Part(loaded, outcome, next_job.options.keep),)

    def _is_worth(self, loaded: Loaded, until: float) -> bool:
        """Whether the task is pure, and short enough for the leader to wait for it."""
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
            # A run has no room for a large result, so this function would run ahead in vain.
            is_large = ended.needs_claim or _is_large(ended.outcome)
            self._seconds[job.function] = float("inf") if is_large else ended.seconds


def _is_large(outcome: bytes) -> bool:
    if len(outcome) >= RUN_BYTES_MAX:
        return True
    return is_stored(split_name(unsealed(outcome)[1])[1])


def _may_lead(ended: Ended) -> bool:
    job = ended.job
    # A task whose earlier claim ended without an outcome runs alone. If the task after it kills
    # workers, the loss must not count for this task again.
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
    """The tasks that one run has read ahead: the next task, and others that likely follow it."""

    transport: Transport
    plan_path: str
    guesses: dict[str, int]

    def __post_init__(self) -> None:
        self._found: dict[str, Reading] = {}
        self._asked = self._used = 0

    def read(self, before: str, task: str) -> Reading | None:
        """The reading of `task`, which follows the task `before`. Raises ZkplanError.

        Chains are often added in one go, with even steps between their numbers. So this also reads
        tasks at the same distance: the more, the more of these guesses were right before.
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
        """Note how many of the tasks in the last read were used."""
        if self._asked:
            if len(self.guesses) >= KNOWN_MAX:
                self.guesses.clear()
            all_used = self._used == self._asked
            most = 2 * self._used if all_used else max(1, self._used)
            self.guesses[self.plan_path] = min(RUN_MAX, most)
