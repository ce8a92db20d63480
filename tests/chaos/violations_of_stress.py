"""The rows of the table of violations that are of stress runs, and what they change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zkplan.testing.stress_promises import Kept, Remains
from zkplan.testing.stress_tasks import Execution, Kill, StressHistory, Workload, key_of
from zkplan.testing.stress_verdict import StressEvidence, check

from .changes import change_kept, put
from .honest import DONE
from .violations import LOST, Row

_WORKLOAD = Workload([[], [0], [0, 1]])


@dataclass
class StressRun:
    """What a stress run left behind. The second task needs the first, the third both."""

    history: StressHistory
    remains: Remains
    was_read: bool = True

    def found(self) -> list[str]:
        """Everything that the checker says of it."""
        return [
            f"{verdict.invariant} {verdict.promise}: {text}"
            for verdict in check(
                StressEvidence(_WORKLOAD, self.history, self.remains, self.was_read)
            )
            for text in verdict.violations
        ]


def stressed(folder: Path) -> StressRun:
    """Each task ran for a second on a worker of its own; task T began at 10 T."""
    history = StressHistory(folder)
    history.done_at = 100.0
    for task, needed in enumerate(_WORKLOAD.graph):
        history.executions.append(
            Execution(
                uid=f"{task}.0",
                key=key_of(task),
                n=0,
                worker=f"w{task}0",
                pid=10 * task,
                began=10.0 * task,
                digest=_WORKLOAD.digests[task],
                got=[f"{other}.0" for other in needed],
                ended=10.0 * task + 1.0,
                value=_WORKLOAD.values[task],
            )
        )
    kept = [Kept("t2", _WORKLOAD.values[2], "2.0")]
    return StressRun(history, Remains(plan=[*DONE], outcomes=["2"], kept=kept))


def ran(run: StressRun, task: int) -> Execution:
    return run.history.executions[task]


def run_again(
    run: StressRun,
    task: int = 1,
    n: int = 1,
    ended: float | None = None,
    killed: float = 0.0,
    lost: float = 0.0,
    taken: bool = True,
    began: float = 15.0,
    **first: Any,
) -> Execution:
    """The task runs again, from 15 s on; the last task has `taken` that value.

    The first execution, which is given back, `ended` or not, and has those facts. Its worker was
    `killed`, or `lost`.
    """
    one = ran(run, task)
    again = replace(one, uid=f"{task}.1", n=n, worker="w11", pid=11, began=began, ended=began + 1.0)
    again.alone = first.pop("alone", True)
    put(one, ended=ended, value=one.value if ended else None, **first)
    run.history.executions.append(again)
    if taken:
        ran(run, 2).got[task] = again.uid
    if killed:
        run.history.kills.append(Kill(one.pid, killed, killed + 0.01))
    if lost:
        run.history.lost[one.worker] = lost
    return one


def hand_claims_back(run: StressRun, *attempts: int) -> None:
    """One claim was handed back; the three tasks have those attempts."""
    for each, n in zip(run.history.executions, attempts, strict=True):
        each.n = n
    run.history.hand_backs = run.history.handed_back = 1


TABLE: dict[str, list[Row]] = {
    "L3 every task completed": [
        (stressed, lambda s: s.history.executions.pop(), "never returned (0 executions)"),
        (stressed, lambda s: put(ran(s, 2), ended=None), "never returned (1 executions)"),
    ],
    "S3 arguments were exactly the expected ones": [
        (stressed, lambda s: put(ran(s, 1), digest="x"), "had other arguments than the oracle"),
        (stressed, lambda s: run_again(s, killed=10.5, digest="x"), "(1.0 on w10, pid 10) had"),
    ],
    "S4 values and results are the oracle's": [
        (stressed, lambda s: put(ran(s, 1), value="x"), "returned another value than the oracle"),
        (stressed, lambda s: change_kept(s.remains, result="x"), "the kept result of t2 is x, the"),
        (stressed, lambda s: s.remains.kept.clear(), "the result of t2 is not kept"),
        (stressed, lambda s: put(s, was_read=s.remains.kept.clear()), ""),
    ],
    "S4 each result was committed once": [
        (stressed, lambda s: run_again(s, 0, ended=1.0, began=1.5), "was committed 2 times")
    ],
    "S5 nobody else ran a task at the same time": [
        (stressed, lambda s: put(ran(s, 1), alone=False), "found another process running the"),
        (stressed, lambda s: run_again(s, ended=16.0), "began while"),
        (stressed, lambda s: run_again(s, killed=15.5), "began while"),
        (stressed, lambda s: run_again(s, ended=18.0, lost=15.5), "began while"),
        (stressed, lambda s: run_again(s, ended=16.0, lost=12.0), ""),
        (stressed, lambda s: run_again(s, ended=16.0, lost=12.0, alone=False), ""),
    ],
    "S8 attempt numbers of a task grow": [
        (stressed, lambda s: put(run_again(s, ended=11.0, n=0), n=1), "attempt 1")
    ],
    "S8 no attempt number was used twice": [
        (stressed, lambda s: run_again(s, killed=10.5, n=0), "2 times as attempt 0")
    ],
    "S4 only the tasks of lost workers ran again": [
        (stressed, lambda s: run_again(s, ended=11.0), "repeats t1 attempt 0 (1.0 on w10, pid"),
        (stressed, lambda s: run_again(s, ended=11.0, killed=30.0), LOST),
        # The id was used again: that kill ended an earlier process.
        (stressed, lambda s: run_again(s, ended=11.0, killed=5.0), LOST),
        (stressed, lambda s: put(ran(s, 2), ended=None), "and its worker was not killed"),
        (stressed, lambda s: run_again(s, killed=10.5), ""),
        (stressed, lambda s: run_again(s, ended=11.0, killed=11.5), ""),
    ],
    "S4 committed tasks never ran again": [
        (stressed, lambda s: run_again(s, ended=11.0, killed=11.5, taken=False), "later claim"),
        (stressed, lambda s: run_again(s, 1, 1, 11.0, 30.0, taken=False, began=40.0), "later"),
    ],
    "L1 claims were released once per lost worker or hand-back": [
        (stressed, lambda s: put(ran(s, 1), n=1), "came after 0 losses of workers, 0 failures"),
        (stressed, lambda s: run_again(s, killed=10.5, n=2), "came after 1 losses of workers"),
        (stressed, lambda s: hand_claims_back(s, 0, 1, 0), ""),
        (stressed, lambda s: hand_claims_back(s, 0, 2, 0), "0 failures and 1 hand-backs"),
        (stressed, lambda s: hand_claims_back(s, 1, 1, 1), "but only 1 claims were handed back"),
    ],
    "S3 dependents started after their dependencies": [
        (stressed, lambda s: put(ran(s, 2), began=10.5), "began before t1 attempt 0"),
        (stressed, lambda s: s.history.executions.pop(1), "got a value of 1.0, which nobody made"),
        (stressed, lambda s: ran(s, 2).got.reverse(), "in place of one of t0"),
        (stressed, lambda s: change_kept(s.remains, uid="x"), "the kept result of t2 is of x"),
    ],
    "S3 no task failed": [
        (stressed, lambda s: put(ran(s, 1), raised="StressViolation: x"), "StressViolation: x")
    ],
    "S7 nothing ran after the plan was done": [
        (stressed, lambda s: put(s.history, done_at=15.0), "5.000 s after the plan was done"),
        (stressed, lambda s: put(s.history, done_at=None), "the plan was not done"),
    ],
    "S6 nothing is left of the plan but outcomes": [
        (stressed, lambda s: s.remains.plan.append("task-0000000001"), "task-0000000001 is left"),
        (stressed, lambda s: s.remains.plan.append("add-count"), "add-count is left"),
        (stressed, lambda s: s.remains.plan.remove("done"), "`done` is missing"),
        (stressed, lambda s: s.remains.runnable.append("x"), "runnable: x is left"),
        (stressed, lambda s: s.remains.claims.append("w1/x"), "claims: w1/x is left"),
        (stressed, lambda s: s.remains.delayed.append("x"), "delayed: x is left"),
        (stressed, lambda s: s.remains.dead.append("x"), "task x has a dead letter"),
        (stressed, lambda s: s.remains.outcomes.clear(), "0 outcomes are kept, 1 tasks have no"),
        (stressed, lambda s: s.remains.outcomes.append("1"), "2 outcomes are kept"),
    ],
    "- workers ended only when they were killed": [
        (stressed, lambda s: s.history.kills.append(Kill(99, 1.0, 1.1, False, "no log")), "no log")
    ],
}
