"""A claimed task on its way through a worker, and how an attempt at it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..protocol.adding import NewTask
from ..protocol.load import Loaded
from ..protocol.records import Failure, PlanRecord, TaskOptions
from ..protocol.shared import Claim


@dataclass(slots=True, eq=False)
class Job:
    """A claimed task. `adds` are the tasks that its function added so far."""

    loaded: Loaded
    adds: list[NewTask] = field(default_factory=list)
    options: TaskOptions = field(default_factory=TaskOptions)
    #: Why the function should stop, empty while it need not.
    stop_reason: str = ""
    #: Monotonic time at which it started and must have ended; 0 and infinity while unknown.
    started: float = 0.0
    deadline: float = float("inf")
    #: Set by the worker when it gave the claim away: whatever the function still returns is
    #: dropped.
    abandoned: bool = False
    log_count: int = 0
    #: The function was told to stop; the reason may have passed since (an answer came after all).
    heeded: bool = False
    #: Ends a coroutine whose result is not waited for any more; a thread cannot be ended.
    cancel: Callable[[], object] = bool
    plan: PlanRecord | None = None

    @property
    def claim(self) -> Claim:
        return self.loaded.claim

    @property
    def name(self) -> str:
        """The name that its author gave it, else that of its znode."""
        return self.options.name or f"task-{self.claim.task}"

    def is_unwanted(self) -> bool:
        """Whether its result is not wanted any more."""
        return bool(self.stop_reason) or self.heeded

    @property
    def worker(self) -> str:
        """The ID under which the claim was made: that of the claims node it lies on."""
        return self.claim.path.split("/")[-2]


@dataclass(slots=True)
class Ended:
    """How an attempt ended. Exactly one of the fields from `outcome` (sealed) on says it."""

    job: Job
    seconds: float = 0.0
    outcome: bytes = b""
    failure: Failure | None = None
    #: No further attempt can change the failure: it came down an edge, no attempts are left, or the
    #: result is too large.
    final: bool = False
    #: Why it cannot run, or go on, here; no attempt is used up.
    cannot_run: str = ""
    #: ZooKeeper has no room for what it logs; no attempt is used up.
    server_full: bool = False
    #: The claim was gone before the function started.
    fenced: bool = False
    #: The function stopped because its result was not wanted: no attempt is used up.
    stopped: bool = False
