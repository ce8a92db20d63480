"""Run ahead: run the pure tasks that follow a pure one on its slot, before any is committed.

The task that was claimed is held back for it, for a moment at most. One transaction commits it and
those that ran behind it, or it alone; then their results are dropped, and they run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import ZkplanError
from ..log import get_logger
from ..protocol import failpoints
from ..protocol.load import Loaded, Reading, following, load_ahead
from ..protocol.options import TaskOptions
from ..protocol.part import Part
from ..protocol.shared import GROUP_BYTES_MAX
from ..protocol.sources import argument_of
from ..serialization.codec import Codec, task_options, unsealed
from ..serialization.functions import split_name
from ..store.reference import is_stored
from ..transport import Transport
from .job import Ended, Job
from .output import note_printed

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
        transport: Transport,
        codec: Codec,
        queues: Sequence[str],
        run_once: Callable[[Job], Ended],
        is_busy: Callable[[], bool],
    ) -> None:
        self._is_busy, self._queues = is_busy, queues
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
        now = time.monotonic()
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
        return usual_s is not None and time.monotonic() + usual_s <= until

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
