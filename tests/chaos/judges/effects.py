"""What faults have cost: executions that were repeated, and executions that were fenced. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from .case import COMMITTED_S, Case
from .histories import Execution

#: A process may end by itself, and a claim be released.
NO_FAULT = "no fault"


@dataclass
class Effects:
    """How often, by the faults that were under way; several at once are named together.

    `repeated` counts executions after which the task was executed again, though they had not failed
    as planned: the claim was lost, or handed back. `fenced` counts those that returned and were not
    committed. An execution may be both.
    """

    repeated: Counter[str] = field(default_factory=Counter)
    fenced: Counter[str] = field(default_factory=Counter)

    def add(self, case: Case) -> None:
        """Those of a plan that nobody works on any more."""
        for key, runs in case.plan.executions.items():
            ordered = sorted(runs, key=lambda each: each.n)
            for first, second in pairwise(ordered):
                if not first.planned:
                    self.repeated[cause(case, first, second.began)] += 1
            winners = case.committed.get(key, set())
            for run in ordered:
                # What nobody got may have been committed all the same, but not before a later one.
                refused = bool(winners) or run is not ordered[-1]
                if run.returned and run.uid not in winners and refused:
                    self.fenced[cause(case, run, float("inf"))] += 1


def cause(case: Case, execution: Execution, end: float) -> str:
    """The faults that touched its process while it ran; else those until `end`, or of before."""
    ended = end
    if execution.ended is not None:
        ended, end = min(end, execution.ended), min(end, execution.ended + COMMITTED_S)
    before = execution.began - case.noticed_s
    # A pause that cost it the claim is not to be named together with a later kill.
    for since, until in ((execution.began, ended), (execution.began, end), (before, end)):
        names = case.ledger.faults_of(execution.pid, since, until)
        if names:
            return ", ".join(names)
    return NO_FAULT
