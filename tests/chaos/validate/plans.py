"""What was recorded of one plan: what its author added, and each execution of its tasks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from zkplan.testing import stress_tasks as history
from zkplan.testing.stress_tasks import Line

from ..traffic.workloads import Workload


@dataclass
class Execution(history.Execution):
    """One run of a task's function, as tests/chaos/traffic/tasks.py records it.

    `a` attempts were used up when it was claimed. It ran as task `number`, which the execution `by`
    has added, or an author where that is empty. `damaged` names the arguments of which bytes were
    wrong. What it raised was `planned` by the workload, or the task is `handed_back` for it, which
    uses up no attempt: it could not use the store. One that ran `ahead` had no claim
    of its own, and tells N and A as those of the first. Its task is of the `queue`, and its worker
    serves those in `serves`.
    """

    a: int = 0
    number: str = ""
    by: str = ""
    damaged: list[str] = field(default_factory=list)
    planned: bool = False
    handed_back: bool = False
    ahead: bool = False
    queue: str = "default"
    serves: list[str] = field(default_factory=lambda: ["default"])


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
    checked_at: float = float("inf")
    died: dict[str, int] = field(default_factory=dict)

    @property
    def has_open_add(self) -> bool:
        return any(batch.state == "begun" for batch in self.batches.values())
