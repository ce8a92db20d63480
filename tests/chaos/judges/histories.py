"""What was recorded of one plan: what its author added, and each execution of its tasks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from ..actors.workloads import Workload

Line = dict[str, Any]


@dataclass(slots=True)
class Execution:
    """One run of a task's function. `ended` is None where nobody told how it ended."""

    key: str
    n: int
    a: int
    uid: str
    worker: str
    pid: int
    by: str
    began: float
    digest: str
    got: list[str]
    keys: int
    damaged: list[str]
    ended: float | None = None
    raised: str = ""
    planned: bool = False
    #: The number of the task that it ran as.
    number: str = ""

    @property
    def returned(self) -> bool:
        return self.ended is not None and not self.raised

    def __str__(self) -> str:
        return f"{self.key} attempt {self.n} ({self.uid} on {self.worker})"


@dataclass
class Batch:
    """One add: `begun` has an unknown outcome until it is `done` or `refused`, maybe for ever.

    One of several transactions may be refused after some of them: `added` tasks were told added.
    """

    keys: list[str]
    atomic: bool
    state: str = "begun"
    error: str = ""
    added: int = 0
    numbers: list[str] = field(default_factory=list)
    begun: float = 0.0
    answered: float = 0.0

    @property
    def certain(self) -> list[str]:
        """The tasks that were acknowledged."""
        return {"done": self.keys, "refused": self.keys[: self.added]}.get(self.state, [])

    @property
    def possible(self) -> list[str]:
        """The tasks that may be in the plan."""
        return self.keys if self.state == "begun" else self.certain


@dataclass
class PlanHistory:
    """What was recorded of one plan."""

    seed: int
    workload: Workload
    author_pid: int = 0
    begun: float = 0.0
    path: str = ""
    closed: bool = False
    #: What its author was told, who gave it up: that it is cancelled, or gone.
    cut_short: str = ""
    batches: dict[int, Batch] = field(default_factory=dict)
    executions: defaultdict[str, list[Execution]] = field(default_factory=lambda: defaultdict(list))
    waited: list[Line] = field(default_factory=list)
    #: Once it was checked: the attempt number under which each task was committed, and the number
    #: of the last claim of each that is dead.
    committed: dict[str, int] | None = None
    buried: dict[str, int] = field(default_factory=dict)
