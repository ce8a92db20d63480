"""A claimed task on its way through a worker, its output, and the end of its attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..basics.log import TASK_FIELDS
from ..basics.text import one_line
from ..basics.tracing import TaskSpan
from ..protocol.core.add import NewTask
from ..protocol.core.commit_part import Part
from ..protocol.core.load import Loaded
from ..protocol.records import Failure, PlanRecord
from ..protocol.requests import NO_FACT, Fact, Printed
from ..protocol.task_options import DEFAULT_OPTIONS, TaskOptions
from ..protocol.transactions import Claim

#: Why a function should stop. Only SILENCE may pass; for the others the worker gives it up.
SILENCE = "ZooKeeper does not answer: its claim may be lost"
CANCELLED, REMOVED = "its plan was cancelled", "its plan was removed"
TAKEN = "an operator has skipped or cancelled it"
LOST = "its claim was released"
#: Seconds that a function has to return after it was told to stop. Commands have as many.
STOP_GRACE_S = 5.0
#: A task's own process is killed after this part of STOP_GRACE_S, and its slot is free after that
#: part: other servers take a moment to notice that a process has died, and to free its resources.
KILLED_AFTER, SETTLED_AFTER = 0.7, 0.95


@dataclass(slots=True, eq=False)
class Job:
    """A claimed task. `adds` holds the tasks that its function has added so far."""

    #: May be replaced by a later read; the claim stays the same.
    loaded: Loaded
    claim: Claim = field(init=False)
    adds: list[NewTask] = field(default_factory=list)
    options: TaskOptions = DEFAULT_OPTIONS
    #: Why the function should stop; empty if it need not.
    stop_reason: str = ""
    #: The monotonic time at which it started; 0 until then.
    started: float = 0.0
    #: The monotonic time at which its grace is over, and it loses its slot.
    given_up_at: float = float("inf")
    #: The step before the call that the time-out limits now; empty while the function runs.
    preparing: str = ""
    #: The monotonic time at which it times out.
    deadline: float = float("inf")
    #: The monotonic time of the task's own deadline, after which no attempt counts.
    last_call: float = float("inf")
    #: The worker has written the job off, and drops what its function still returns.
    abandoned: bool = False
    log_count: int = 0
    #: `check` has raised TaskCancelled. The reason may have passed since: ZooKeeper answers again.
    heeded: bool = False
    #: Cancels its coroutine, or kills its process. A thread cannot be cancelled.
    cancel: Callable[[], object] = bool
    plan: PlanRecord | None = None
    #: The version of the plan's `ready` when the job was loaded.
    version: int = -1
    #: The encoded function of its definition: the key of its usual time.
    function: bytes = b""
    #: How it ended, while pure tasks run ahead after it on its slot. At `held_until` (monotonic)
    #: its result is committed even if one of them still runs.
    held: Ended | None = None
    held_until: float = float("inf")
    #: The claimed job after which this pure task runs ahead, without a claim of its own.
    leader: Job | None = None
    #: The span of this attempt, if tasks are traced, and the part that goes down the edges.
    span: TaskSpan | None = None
    traceparent: str = ""
    #: The end of its output; None if the output is not kept.
    output: Tail | None = None
    #: The lines that it has begun to print, and not ended.
    begun: Begun = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.claim = self.loaded.claim

    @property
    def name(self) -> str:
        """The name that the task's author gave it, or else the name of its znode."""
        return self.options.name or f"task-{self.claim.task}"

    @property
    def is_taken(self) -> bool:
        """Whether another task takes the result, or the author wants the result kept."""
        return bool(self.loaded.edges) or self.options.keep is True

    @property
    def kept_name(self) -> str:
        """The task's name for a kept result; empty if the result is not kept. The result of a task
        with edges is kept only on request."""
        keep = self.options.keep
        return self.options.name if keep or (keep is None and not self.loaded.edges) else ""

    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of each log record of this attempt: see `zkplan.basics.log`."""
        claim = self.claim
        numbers = int(claim.plan), int(claim.task), claim.n
        return dict(zip(TASK_FIELDS, (*numbers, self.worker), strict=True))

    def add_output(self, text: str) -> None:
        """Keep `text`, which the task has just printed."""
        if self.output is not None:
            self.output.add(text)

    def pass_on(self, out: Any, data: Any) -> int:
        """Write `data`, which the task prints, to the stream `out`, each line with its task."""
        return pass_on(self.begun, self._label, out, data)

    def end_lines(self) -> None:
        """Write the unfinished lines of the function, which has ended."""
        if self.begun:
            end_lines(self.begun, self._label)

    @property
    def _label(self) -> str:
        return label_of(self.claim.plan, self.claim.task, self.options.name)

    def stop(self, why: str, now: float) -> None:
        """Ask the function to stop, for good. Its grace ends STOP_GRACE_S seconds after the first
        call; `now` is monotonic. `why` replaces an earlier SILENCE or LOST, but no other reason."""
        if self.stop_reason in ("", SILENCE, LOST):
            self.stop_reason = why
        self.given_up_at = min(self.given_up_at, now + STOP_GRACE_S)

    @property
    def killed_at(self) -> float:
        """The monotonic time at which the job's process is killed, if it has its own."""
        return self.given_up_at - (1 - KILLED_AFTER) * STOP_GRACE_S

    @property
    def settled_at(self) -> float:
        """The monotonic time at which another task may follow the killed process."""
        return self.given_up_at - (1 - SETTLED_AFTER) * STOP_GRACE_S

    def is_unwanted(self) -> bool:
        """Whether the result is no longer wanted."""
        if self.stop_reason or self.heeded:
            return True
        leader = self.leader
        return leader is not None and (bool(leader.stop_reason) or leader.abandoned)

    @property
    def why_stop(self) -> str:
        """Why the function should stop; empty if it need not."""
        return self.stop_reason or (self.leader.stop_reason if self.leader is not None else "")

    @property
    def worker(self) -> str:
        """The worker's ID when it made the claim, which is the name of the claims node."""
        return self.claim.path.split("/")[-2]


@dataclass(slots=True)
class Ended:
    """How an attempt ended.

    Exactly one is set: `outcome` (sealed), `failure`, `cannot_run`, `server_full`, `store_away`,
    `needs_claim`, `fenced`, `not_before` or `stopped`. The other fields add details.
    """

    job: Job
    seconds: float = 0.0
    #: The entry of the attempt in the history. It is copied to the claim only when the claim is
    #: settled: an abandoned job, which ends later, must not change the entry.
    fact: Fact = NO_FACT
    outcome: bytes = b""
    #: The task was skipped. Its outcome is kept, to show that.
    skipped: bool = False
    #: The pure tasks that ran ahead after it.
    run: tuple[Part, ...] = ()
    failure: Failure | None = None
    #: Another attempt cannot help: for example, the failure came down an edge, no attempts are
    #: left, or the result is too large.
    final: bool = False
    #: Why this worker cannot run it; no attempt is used up.
    cannot_run: str = ""
    #: The text for the worker's log instead of `failure` or `cannot_run`, whose messages may hold
    #: user data. Empty: see `attempts.for_log`.
    shown: str = ""
    #: ZooKeeper has no room for the task's log entries; no attempt is used up.
    server_full: bool = False
    #: Why the store of large values cannot be used; no attempt is used up.
    store_away: str = ""
    #: The task ran ahead, and its result must go to the store: this needs a claim.
    needs_claim: bool = False
    #: The claim was lost before the function started.
    fenced: bool = False
    #: The task may not run before this wall-clock time; no attempt is used up.
    not_before: float = 0.0
    #: The function stopped because its result was not wanted: no attempt is used up.
    stopped: bool = False


# ---- The end of the output of one attempt: how much of it goes into the history, and when.


#: Output of a running task is recorded after PRINTED_FIRST_S seconds, and then each time that the
#: task has run PRINTED_EVERY_SHARE longer, but at least MIN and at most MAX seconds later.
PRINTED_FIRST_S, PRINTED_EVERY_MIN_S, PRINTED_EVERY_MAX_S, PRINTED_EVERY_SHARE = 2.0, 2.0, 15.0, 0.1
#: How many bytes a running task may record for each second, besides the most that is kept anyway.
PRINTED_BYTES_PER_S = 16
#: Fewer bytes than this are not worth a request.
PRINTED_BYTES_MIN = 64
#: How many characters to encode at a time, so that a text of 100 MB is not copied as a whole.
_TAIL_CHARS = 64 * 1024


class Tail:
    """The end of the output of one attempt, at most `most` bytes. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most, self._kept, self._lock = most, bytearray(), threading.Lock()
        #: How many bytes the task has printed.
        self._end = 0
        #: The history has the output up to this byte, but there may be gaps.
        self._told = 0
        #: From this byte to `_told`, the history has no gap.
        self._whole_from = 0
        #: How many bytes were recorded while the task ran.
        self._live_bytes = 0
        #: After how many seconds of the run the next record is due.
        self._due_s = PRINTED_FIRST_S
        #: Whether a record is under way.
        self._is_under_way = False

    def add(self, text: str) -> None:
        """Add `text`, which was just printed."""
        for start in range(0, len(text), _TAIL_CHARS):
            data = text[start : start + _TAIL_CHARS].encode(errors="backslashreplace")
            with self._lock:
                self._end += len(data)
                self._kept += data
                if len(self._kept) > 2 * self._most + len(data):
                    del self._kept[: -self._most]

    def rest(self, room: int) -> Printed | None:
        """The output to record at the end of the attempt: its last `room` bytes at most, without
        what the history has already; None if there is nothing to record."""
        with self._lock:
            start = max(0, self._end - min(room, self._most))
            if self._whole_from <= start:
                start = max(start, self._told)
            return self._from(start)

    def live(self, ran_s: float) -> Printed | None:
        """The output to record now that the task has run for `ran_s` seconds; None if nothing is
        due. The caller must report with `told` whether that worked; until then nothing is due."""
        with self._lock:
            room = int(self._most + PRINTED_BYTES_PER_S * ran_s) - self._live_bytes
            is_due = ran_s >= self._due_s and not self._is_under_way
            if not is_due or self._told == self._end or room < PRINTED_BYTES_MIN:
                return None
            self._due_s = ran_s + min(
                PRINTED_EVERY_MAX_S, max(PRINTED_EVERY_MIN_S, PRINTED_EVERY_SHARE * ran_s)
            )
            printed = self._from(max(self._told, self._end - min(room, self._most)))
            self._is_under_way = printed is not None
            return printed

    def told(self, printed: Printed, is_told: bool | None) -> None:
        """Note whether `printed`, which `live` returned, is in the history now."""
        with self._lock:
            self._is_under_way = False
            if is_told:
                if printed.at > self._told:
                    self._whole_from = printed.at
                self._told = printed.end
                self._live_bytes += self._told - printed.at

    def _from(self, start: int) -> Printed | None:
        data = self._kept[len(self._kept) - (self._end - start) :] if start < self._end else b""
        cut = 0
        while cut < len(data) and data[cut] & 0xC0 == 0x80:
            cut += 1  # skip the rest of a character that began before `start`
        return Printed(start + cut, data[cut:].decode()) if data[cut:] else None


# ---- Pass on what tasks print to the terminal of their worker: whole lines, each with its task.


#: How many characters of a line to hold until it ends: a progress bar may never end its line.
PRINTED_LINE_MAX = 8192
_terminal_lock = threading.Lock()

#: By the `id` of each stream that a task writes to: the stream, and its unfinished line.
Begun = dict[int, tuple[Any, Any]]


def label_of(plan: str, task: str, name: str) -> str:
    """The prefix of each line that a task prints.

    >>> label_of("0000000004", "0000000007", "load")
    '[plan-0000000004/task-0000000007 load] '
    """
    path = f"plan-{plan}/task-{task}"
    return f"[{path} {one_line(name)}] " if name and name != f"task-{task}" else f"[{path}] "


def pass_on(begun: Begun, label: str, out: Any, data: Any) -> int:
    """Write to `out` the lines that `data` (str or bytes) completes. Returns the length of `data`.

    One write has only whole lines, so that lines of tasks that run at the same time never mix.
    """
    given: Any = data if isinstance(data, str) else bytes(data)
    end: Any = "\n" if isinstance(given, str) else b"\n"
    with _terminal_lock:
        before = begun[id(out)][1] if id(out) in begun else given[:0]
        whole, found, rest = (before + given).rpartition(end)
        if len(rest) > PRINTED_LINE_MAX:
            whole, found, rest = before + given, end, rest[:0]
        begun[id(out)] = out, rest
    if found:
        out.write(_labelled(label, whole, end))
    return len(data)


def end_lines(begun: Begun, label: str) -> None:
    """Write the unfinished lines of an attempt that has ended."""
    with _terminal_lock:
        left = [(out, rest) for out, rest in begun.values() if rest]
        begun.clear()
    for out, rest in left:
        with suppress(OSError, ValueError):  # the stream is closed
            out.write(_labelled(label, rest, "\n" if isinstance(rest, str) else b"\n"))


def _labelled(label: str, whole: Any, end: Any) -> Any:
    before: Any = label if isinstance(whole, str) else label.encode()
    return end.join(before + line for line in whole.split(end)) + end
