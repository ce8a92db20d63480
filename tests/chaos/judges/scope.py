"""How much was judged: what a run without violations has stood for. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from .case import Case


@dataclass
class Scope:
    """Counts over all plans judged. `ran` tasks began, so each has a first execution.

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

    def add(self, case: Case) -> None:
        for runs in case.plan.executions.values():
            self.ran += bool(runs)
            ordered = sorted(runs, key=lambda each: each.n)
            self.retried += sum(first.planned for first, _ in pairwise(ordered))
            self.values += sum(len(each.got) for each in runs)
        self.kept += len(case.left.kept)
        self.waits += len(case.plan.waited)
        self.dead += len(case.left.dead)
