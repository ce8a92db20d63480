"""A claimed task on its way through a worker, what it prints, and how its attempt ended."""

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

#: Why a function should stop. Only silence may pass; after the others its worker gives it up.
SILENCE = "ZooKeeper does not answer: its claim may be lost"
CANCELLED, REMOVED = "its plan was cancelled", "its plan was removed"
TAKEN = "an operator has skipped or cancelled it"
LOST = "its claim was released"
#: Seconds that a function has to return after it was told to stop. Commands have as many.
STOP_GRACE_S = 5.0
#: After which parts of that a process of its own is killed, and its slot is free: a server takes a
#: moment to notice that a process is gone, and to free what it held there.
KILLED_AFTER, SETTLED_AFTER = 0.7, 0.95


@dataclass(slots=True, eq=False)
class Job:
    """A claimed task. `adds` holds the tasks that its function has added so far."""

    #: May be read again; its claim stays.
    loaded: Loaded
    claim: Claim = field(init=False)
    adds: list[NewTask] = field(default_factory=list)
    options: TaskOptions = DEFAULT_OPTIONS
    #: Why the function should stop; empty if it need not.
    stop_reason: str = ""
    #: Monotonic times at which it started and at which it must end; 0 and infinity until known.
    started: float = 0.0
    #: The monotonic time at which it has had its grace, and its slot is taken from it.
    given_up_at: float = float("inf")
    #: What its time-out ends now, before its function runs; empty while the function runs.
    preparing: str = ""
    deadline: float = float("inf")
    #: The monotonic time after which no attempt of it counts.
    last_call: float = float("inf")
    #: The worker has given the claim away: what the function still returns is dropped.
    abandoned: bool = False
    log_count: int = 0
    #: The function was told to stop. The reason may have passed since, if ZooKeeper answered again.
    heeded: bool = False
    #: Cancels a coroutine whose result is not needed any more. A thread cannot be cancelled.
    cancel: Callable[[], object] = bool
    plan: PlanRecord | None = None
    #: The version of the plan's `ready` under which it started.
    version: int = -1
    #: The definition's function, by which its usual time is known.
    function: bytes = b""
    #: Set while pure tasks run behind it on its slot: how it ended, and when that is committed
    #: even if one of them still runs.
    held: Ended | None = None
    held_until: float = float("inf")
    #: The claimed task behind which this pure one runs, without a claim of its own.
    leader: Job | None = None
    #: The span of this attempt where tasks are traced, and what of it goes down the edges.
    span: TaskSpan | None = None
    traceparent: str = ""
    #: The last of what it prints; None where that is not kept.
    output: Tail | None = None
    #: The lines that it has begun to print.
    begun: Begun = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.claim = self.loaded.claim

    @property
    def name(self) -> str:
        """The name that its author gave it, or the name of its znode."""
        return self.options.name or f"task-{self.claim.task}"

    @property
    def is_taken(self) -> bool:
        """Whether a task takes its result, or its author wants that kept."""
        return bool(self.loaded.edges) or self.options.keep is True

    @property
    def kept_name(self) -> str:
        """What a kept result holds: the name of its task. A result with edges is kept only on
        request."""
        keep = self.options.keep
        return self.options.name if keep or (keep is None and not self.loaded.edges) else ""

    @property
    def log_fields(self) -> dict[str, Any]:
        """What each record of this attempt has: see `zkplan.basics.log`."""
        claim = self.claim
        numbers = int(claim.plan), int(claim.task), claim.n
        return dict(zip(TASK_FIELDS, (*numbers, self.worker), strict=True))

    def add_output(self, text: str) -> None:
        """Keep what it has just printed."""
        if self.output is not None:
            self.output.add(text)

    def pass_on(self, out: Any, data: Any) -> int:
        """Write what it prints to the stream `out`, each line with the name of the task."""
        return pass_on(self.begun, self._label, out, data)

    def end_lines(self) -> None:
        """Its function has ended: write the lines that it has begun."""
        if self.begun:
            end_lines(self.begun, self._label)

    @property
    def _label(self) -> str:
        return label_of(self.claim.plan, self.claim.task, self.options.name)

    def stop(self, why: str, now: float) -> None:
        """Ask its function to stop, for good. Its grace ends STOP_GRACE_S after the first of these
        calls, at the monotonic time `now`. A better known reason replaces an earlier one."""
        if self.stop_reason in ("", SILENCE, LOST):
            self.stop_reason = why
        self.given_up_at = min(self.given_up_at, now + STOP_GRACE_S)

    @property
    def killed_at(self) -> float:
        """The monotonic time at which its process is killed, where it has one of its own."""
        return self.given_up_at - (1 - KILLED_AFTER) * STOP_GRACE_S

    @property
    def settled_at(self) -> float:
        """The monotonic time at which the next task may follow a process that was killed."""
        return self.given_up_at - (1 - SETTLED_AFTER) * STOP_GRACE_S

    def is_unwanted(self) -> bool:
        """Whether the result is not wanted any more."""
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
        """The ID under which the claim was made, which names the claims node."""
        return self.claim.path.split("/")[-2]


@dataclass(slots=True)
class Ended:
    """How an attempt ended.

    One of `outcome` (sealed), `failure`, `cannot_run`, `server_full`, `store_away`, `needs_claim`,
    `fenced`, `not_before` and `stopped` says how. The other fields say more about that one.
    """

    job: Job
    seconds: float = 0.0
    #: What the history tells of it. It goes to the claim where the claim is settled: the end of an
    #: abandoned job, which comes later, must not change that.
    fact: Fact = NO_FACT
    outcome: bytes = b""
    #: The task was skipped: its outcome is kept, so that one can see it.
    skipped: bool = False
    #: The pure tasks that ran behind it.
    run: tuple[Part, ...] = ()
    failure: Failure | None = None
    #: No further attempt can change the failure: it came down an edge, no attempts are left, or the
    #: result is too large.
    final: bool = False
    #: Why this worker cannot run it; no attempt is used up.
    cannot_run: str = ""
    #: What the worker's log may say of the failure, or of why it cannot run.
    #: Empty: see `attempts.for_log`.
    shown: str = ""
    #: ZooKeeper has no room for what it logs; no attempt is used up.
    server_full: bool = False
    #: Why the store of large values cannot be used; no attempt is used up.
    store_away: str = ""
    #: It was run ahead, and has a result for the store: only a task with a claim writes there.
    needs_claim: bool = False
    #: The claim was gone before the function started.
    fenced: bool = False
    #: It may not run before this wall-clock time; no attempt is used up.
    not_before: float = 0.0
    #: The function stopped because its result was not wanted: no attempt is used up.
    stopped: bool = False


# ---- The last of what one attempt has printed: how much of it is told, and when.


#: A running task is told of after so many seconds; then each time that it has run a tenth longer,
#: within these bounds.
PRINTED_FIRST_S, PRINTED_EVERY_MIN_S, PRINTED_EVERY_MAX_S, PRINTED_EVERY_SHARE = 2.0, 2.0, 15.0, 0.1
#: While it runs, besides what is kept of an attempt anyway: so many bytes for each second.
PRINTED_BYTES_PER_S = 16
#: Less room than that is not worth a request.
PRINTED_BYTES_MIN = 64
#: Characters that are encoded at a time: a text of 100 MB is not copied as a whole.
_TAIL_CHARS = 64 * 1024


class Tail:
    """The last bytes of what one attempt has printed, at most `most`. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most, self._kept, self._lock = most, bytearray(), threading.Lock()
        #: How many bytes were printed.
        self._end = 0
        #: Up to this byte they are told.
        self._told = 0
        #: From this byte on they are told without a gap.
        self._whole_from = 0
        #: How many bytes were told while the task ran.
        self._live_bytes = 0
        #: After so many seconds of its run it is told of again.
        self._due_s = PRINTED_FIRST_S
        #: Whether that is under way.
        self._is_under_way = False

    def add(self, text: str) -> None:
        """What was just printed."""
        for start in range(0, len(text), _TAIL_CHARS):
            data = text[start : start + _TAIL_CHARS].encode(errors="backslashreplace")
            with self._lock:
                self._end += len(data)
                self._kept += data
                if len(self._kept) > 2 * self._most + len(data):
                    del self._kept[: -self._most]

    def rest(self, room: int) -> Printed | None:
        """What the end of the attempt tells, at most `room` bytes: the last of it, as far as that
        was not told; None if there is nothing."""
        with self._lock:
            start = max(0, self._end - min(room, self._most))
            if self._whole_from <= start:
                start = max(start, self._told)
            return self._from(start)

    def live(self, ran_s: float) -> Printed | None:
        """What is told now that the task has run for so long; None if nothing is. `told` says what
        came of it, and until then nothing more is."""
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
        """Whether what `live` gave is in the history."""
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
            cut += 1  # the rest of a character
        return Printed(start + cut, data[cut:].decode()) if data[cut:] else None


# ---- What tasks print goes on to the terminal of their worker in whole lines, each with its task.


#: Characters after which a line without an end is passed on, such as that of a progress bar.
PRINTED_LINE_MAX = 8192
_terminal_lock = threading.Lock()

#: The streams that a task writes to, by their `id`, and the line that it has begun in each.
Begun = dict[int, tuple[Any, Any]]


def label_of(plan: str, task: str, name: str) -> str:
    """What stands before each line.

    >>> label_of("0000000004", "0000000007", "load")
    '[plan-0000000004/task-0000000007 load] '
    """
    path = f"plan-{plan}/task-{task}"
    return f"[{path} {one_line(name)}] " if name and name != f"task-{task}" else f"[{path}] "


def pass_on(begun: Begun, label: str, out: Any, data: Any) -> int:
    """Write the lines to `out` that `data`, text or bytes, completes. Returns its length.

    Each goes in one write: lines of tasks that run at the same time are never mixed.
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
    """The attempt has ended: write the lines that it has begun."""
    with _terminal_lock:
        left = [(out, rest) for out, rest in begun.values() if rest]
        begun.clear()
    for out, rest in left:
        with suppress(OSError, ValueError):  # nobody reads it any more
            out.write(_labelled(label, rest, "\n" if isinstance(rest, str) else b"\n"))


def _labelled(label: str, whole: Any, end: Any) -> Any:
    before: Any = label if isinstance(whole, str) else label.encode()
    return end.join(before + line for line in whole.split(end)) + end
