"""What a run has shown beside its violations: how much was checked, what faults have cost. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from .evidence import COMMITTED_S, PlanEvidence
from .history import RunHistory
from .plans import Execution

#: A process may end by itself, and a claim be released.
NO_FAULT = "no fault"


@dataclass
class Coverage:
    """Counts over all plans that were checked. `ran` tasks began, so each has a first execution.

    Every further execution followed one that had failed as planned (`retried`), or is one of
    `Effects.repeated`. `values` are the arguments that executions got, each followed to the
    execution that had returned it; `kept` the results compared with the oracle; `waits` what
    waiters were told; `dead` the tasks that ended without a result; `at_rest` the cancelled plans
    that were looked at when nothing moved in them any more.
    """

    ran: int = 0
    retried: int = 0
    values: int = 0
    kept: int = 0
    waits: int = 0
    dead: int = 0
    at_rest: int = 0

    def add(self, evidence: PlanEvidence) -> None:
        for runs in evidence.executions.values():
            self.ran += bool(runs)
            ordered = sorted(runs, key=lambda each: each.n)
            self.retried += sum(first.planned for first, _ in pairwise(ordered))
            self.values += sum(len(each.got) for each in runs)
        self.kept += len(evidence.remains.kept)
        self.waits += len(evidence.plan.waited)
        self.dead += len(evidence.dead)
        self.at_rest += evidence.snapshot is not None


@dataclass
class Effects:
    """How often, by the faults that were under way; several at once are named together.

    `repeated` counts executions after which the task was executed again, though they had not failed
    as planned: the claim was lost, or handed back. `fenced` counts those that returned and were not
    committed. An execution may be both.
    """

    repeated: Counter[str] = field(default_factory=Counter)
    fenced: Counter[str] = field(default_factory=Counter)

    def add(self, evidence: PlanEvidence) -> None:
        """Those of a plan that nobody works on any more."""
        for key, runs in evidence.executions.items():
            ordered = sorted(runs, key=lambda each: each.n)
            for first, second in pairwise(ordered):
                if not first.planned:
                    self.repeated[cause(evidence, first, second.began)] += 1
            winners = evidence.committed.get(key, set())
            for run in ordered:
                # What nobody got may have been committed all the same, but not before a later one.
                refused = bool(winners) or run is not ordered[-1]
                if run.returned and run.uid not in winners and refused:
                    self.fenced[cause(evidence, run, float("inf"))] += 1


def cause(evidence: PlanEvidence, execution: Execution, end: float) -> str:
    """The faults that touched its process while it ran; else those until `end`, or of before."""
    ended = end
    if execution.ended is not None:
        ended, end = min(end, execution.ended), min(end, execution.ended + COMMITTED_S)
    before = execution.began - evidence.noticed_s
    # A pause that cost it the claim is not to be named together with a later kill.
    for since, until in ((execution.began, ended), (execution.began, end), (before, end)):
        names = evidence.history.faults_of(execution.pid, since, until)
        if names:
            return ", ".join(names)
    return NO_FAULT


class Takeover(NamedTuple):
    """A task went on `seconds` after the process that ran it had ended, for the reason `why`."""

    at: float
    seconds: float
    why: str


def takeovers(history: RunHistory, tasks: Iterable[list[Execution]]) -> list[Takeover]:
    """From the end of a process to the next attempt of what it ran."""
    found = []
    for runs in tasks:
        for first, second in pairwise(sorted(runs, key=lambda each: each.n)):
            at, why = history.ends.get(first.pid, (0.0, ""))
            ran = first.began <= at and (first.ended is None or first.ended >= at)
            if ran and second.began >= at:
                found.append(Takeover(at, second.began - at, why))
    return found
