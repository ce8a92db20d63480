"""A claimed task on its way through a worker, and how an attempt at it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..basics.tracing import TaskSpan
from ..log import TASK_FIELDS
from ..protocol.adding import NewTask
from ..protocol.load import Loaded
from ..protocol.options import DEFAULT_OPTIONS, TaskOptions
from ..protocol.part import Part
from ..protocol.records import Failure, PlanRecord
from ..protocol.requests import NO_FACT, Fact
from ..protocol.shared import Claim
from .passing import Begun, end_lines, label_of, pass_on
from .tail import Tail

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
        """What each record of this attempt has: see `zkplan.log`."""
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

    def stop(self, why: str) -> None:
        """Tell its function to stop, for good. What is known better replaces the first reason, and
        the grace counts from that one."""
        if self.stop_reason in ("", SILENCE, LOST):
            self.stop_reason = why
        self.given_up_at = min(self.given_up_at, time.monotonic() + STOP_GRACE_S)

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
    #: Empty: see `failures.for_log`.
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
