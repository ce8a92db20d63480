"""One plan of a chaos run before the checks: its history, and the faults of its time. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from zkplan.testing.stress_promises import Evidence, Expected
from zkplan.testing.stress_tasks import Execution as AnyExecution

from ..traffic.workloads import Workload, parent_of
from .history import RunHistory
from .operations import Ending, Operation
from .plans import Execution, PlanHistory
from .runs import without_dropped
from .snapshot import PlanRemains, PlanSnapshot

#: A commit is sent when its function has ended, and again until it is answered. A fault that begins
#: so long afterwards finds nothing of the execution any more.
COMMITTED_S = 10.0
#: What the ticks of a server add to a session (two of 250 ms, for it ends at a multiple of it),
#: and the longest wait of a client between two attempts to connect, after which it is told (1 s).
_TOLD_S = 1.5
#: A function that ended so shortly before the grace was over may be handed back all the same.
_RACE_S = 1.0
#: The attempt number of a decision: nothing comes behind it.
LAST = 2**31


def noticed_s(session_s: float) -> float:
    """How long a claim may be lost by a fault that is healed, until its worker knows.

    The server may have heard of the worker last when the fault ended. It ends the session one
    time-out later; until the worker is connected again, and told, it begins what it had claimed.
    What it claims from then on is another worker's claim. So nothing longer is excused.
    """
    return session_s + _TOLD_S


def expected_of(workload: Workload) -> Expected:
    """What its oracle says; a task returns the digest of its arguments."""
    needs = {item.key: item.needs for item in workload.items.values()}
    return Expected(needs, workload.digests, workload.digests, workload.fates)


@dataclass(frozen=True)
class PlanEvidence(Evidence[Execution]):
    """One plan of a chaos run before the checks.

    One that is not done has come to no end of its own: an operator ended it, or its author half
    defined it. `standing` are the keys of the tasks that were left. Those that are `unready` still
    wait for an edge, or for their author. The `snapshot` is that of a cancelled plan at rest.
    """

    plan: PlanHistory
    remains: PlanRemains
    history: RunHistory
    session_s: float
    #: Slots are always free: a task starts so soon after the last that it needs has ended.
    soon_s: float = float("inf")
    ending: Literal["done"] | Ending = "done"
    standing: Set[str] = frozenset()
    unready: Set[str] = frozenset()
    snapshot: PlanSnapshot | None = None

    @cached_property
    def expected(self) -> Expected:
        return expected_of(self.plan.workload)

    def gains_dependents(self, run: Execution) -> bool:
        """Whether tasks that depend on it may have been added since it began: they get its failure
        by a further claim."""
        items = self.plan.workload.items
        late = [each for each in self.plan.batches.values() if not 0 < each.answered < run.began]
        keys = [key for each in late for key in each.keys if key in items]
        return any(run.key in items[key].needs for key in keys)

    @property
    def executions(self) -> Mapping[str, list[Execution]]:
        return self._accepted if self.plan.workload.has_pure else self.plan.executions

    @cached_property
    def _accepted(self) -> Mapping[str, list[Execution]]:
        kept = {each.uid for each in self.remains.kept}
        # Of a removed plan nobody knows what stood.
        unknown = self.plan.executions.keys() if self.ending == "removed" else self.standing
        return without_dropped(self.plan.executions, kept, unknown)

    @property
    def runs_ahead(self) -> bool:  # type: ignore[override]
        return self.plan.workload.has_pure

    @property
    def name(self) -> str:
        """For a violation."""
        how = "" if self.ending == "done" else f", {self.ending}"
        return f"{self.plan.workload.name} ({self.plan.workload.shape}{how})"

    @property
    def operations(self) -> list[Operation]:
        """What operators did to it."""
        return self.history.operations.of_plan.get(self.plan.workload.name, [])

    @property
    def numbers(self) -> dict[str, str]:
        """The numbers of its tasks, as far as their author was told, by their keys."""
        told = self.plan.batches.values()
        return {k: n for each in told for k, n in zip(each.keys, each.numbers, strict=False)}

    @property
    def dead(self) -> Set[str]:
        return self.remains.letters.keys()

    @cached_property
    def skips(self) -> Mapping[str, Execution]:
        """By its uid, each skip that may have happened, as if it were the task's last execution."""
        return {
            each.uid: Execution(
                *(each.uid, each.facts["key"], LAST, "an operator", 0, each.begun, ""),
                ended=each.begun,
            )
            for each in self.operations
            if each.what == "skip" and each.may_have_happened
        }

    @property
    def skipped(self) -> Set[str]:
        """The tasks that may have been skipped."""
        return {each.key for each in self.skips.values()}

    @cached_property
    def by_uid(self) -> dict[str, Execution]:
        return {**{execution.uid: execution for execution in self.everything}, **self.skips}

    @property
    def acknowledged(self) -> Set[str]:
        """The tasks that must run."""
        if self.ending == "removed":
            return frozenset()
        return self.certain - self.standing - self.skipped

    @cached_property
    def certain(self) -> Set[str]:
        """The tasks that were added for certain: told to their author, or by a committed task."""
        found = {key for batch in self.plan.batches.values() for key in batch.certain}
        for key in self.plan.workload.items:
            parent = parent_of(key)
            if parent in found - self.standing and self.fate(str(parent)) == "finished":
                found.add(key)
        return found

    # ---- whom a fault excuses

    @property
    def noticed_s(self) -> float:
        """How long after a fault a worker may begin what it claimed before, and is to lose."""
        return noticed_s(self.session_s)

    def may_be_lost(self, execution: AnyExecution, until: float) -> bool:
        return self.was_lost(execution, until) or self.was_handed_back(execution)

    def was_lost(self, execution: AnyExecution, until: float) -> bool:
        """Whether a fault may have cost that execution its claim, by then."""
        if execution.ended is not None:
            until = min(until, execution.ended + COMMITTED_S)
        return self.history.loses(execution.pid, execution.began - self.noticed_s, until)

    def was_handed_back(self, execution: AnyExecution) -> bool:
        """Whether its worker was told to stop, and did not wait for its end."""
        until = float("inf") if execution.ended is None else execution.ended + _RACE_S
        return self.history.stopped(execution.pid, execution.began, until)

    def was_refused(self, execution: AnyExecution) -> bool:
        """Whether the server may have refused to commit what that execution returned."""
        if not execution.returned or execution.ended is None:
            return False
        until = execution.ended + COMMITTED_S
        return self.history.refuses(execution.pid, execution.ended, until)

    def lost_without_a_line(self, claims: int, begin: float, end: float) -> int:
        """How many attempts at most were used up by executions of which nobody told, in that time.

        A worker notes in ZooKeeper that a function starts, and is lost before that function has
        written its first line. `claims` is the number of those under which nothing is known to
        have begun.
        """
        return min(claims, self.history.losses(begin - self.noticed_s, end))
