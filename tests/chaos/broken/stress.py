"""Changes of a stress run: one row at least for each promise that it checks."""

from __future__ import annotations

from dataclasses import replace

from zkplan.stress.history import Execution, Kill
from zkplan.stress.validate.evidence import Kept

from .honest import StressRun, stressed
from .table import row

COMPLETED = "L3 every task completed"
ARGUMENTS = "S3 arguments were exactly the expected ones"
VALUES = "S4 values and results are the oracle's"
ONCE = "S4 each result was committed once"
ALONE = "S5 nobody else ran a task at the same time"
GROW = "S8 attempt numbers of a task grow"
UNIQUE = "S8 no attempt number was used twice"
REPEATED = "S4 only the tasks of lost workers ran again"
COMMITTED = "S4 committed tasks never ran again"
RELEASED = "L1 claims were released once per lost worker or hand-back"
ORDERED = "S3 dependents started after their dependencies"
FAILED = "S3 no task failed"
AFTER = "S7 nothing ran after the plan was done"
LEFT = "S6 nothing is left of the plan but outcomes"
LIVED = "- workers ended only when they were killed"


def execution(run: StressRun, task: int) -> Execution:
    return run.history.executions[task]


@row(stressed, killed=10.5)
@row(stressed, killed=11.5, ended=11.0)
@row(stressed, lost=12.0, ended=16.0)
@row(stressed, lost=12.0, ended=16.0, alone=False)
@row(stressed, ALONE, ended=16.0)
@row(stressed, ALONE, killed=15.5)
@row(stressed, ALONE, lost=15.5, ended=18.0)
@row(stressed, GROW, ended=11.0, first=1, second=0)
@row(stressed, UNIQUE, killed=10.5, second=0)
@row(
    stressed,
    f"{REPEATED}: t1 attempt 1 (1.1 on w11, pid 11) repeats t1 attempt 0 (1.0 on w10, pid 10)",
    ended=11.0,
)
@row(stressed, REPEATED, ended=11.0, killed=30.0)
@row(stressed, RELEASED, killed=10.5, second=2)
@row(stressed, ARGUMENTS, killed=10.5, digest="other")
@row(stressed, COMMITTED, killed=11.5, ended=11.0, taken=False)
def a_task_runs_again(
    run: StressRun,
    killed: float | None = None,
    lost: float | None = None,
    ended: float | None = None,
    first: int = 0,
    second: int = 1,
    alone: bool = True,
    digest: str = "",
    taken: bool = True,
) -> None:
    """The second task, from 15 s on: its dependent has `taken` that value, and not the first one.

    `first` and `second` are the numbers of the attempts. The first worker was killed, or lost.
    """
    one = execution(run, 1)
    again = replace(one, uid="1.1", n=second, worker="w11", pid=11, began=15.0, alone=alone)
    again.ended = 16.0
    one.n, one.ended, one.digest = first, ended, digest or one.digest
    one.value = one.value if ended else None
    run.history.executions.append(again)
    if taken:
        execution(run, 2).got[1] = again.uid
    if killed:
        run.history.kills.append(Kill(one.pid, killed, killed + 0.01))
    if lost:
        run.history.lost[one.worker] = lost


@row(stressed, COMMITTED, began=40.0)
def a_committed_task_runs_again_after_its_dependent(run: StressRun, began: float) -> None:
    one = execution(run, 1)
    run.history.kills.append(Kill(one.pid, 30.0, 30.1))
    late = replace(one, uid="1.1", n=1, worker="w11", pid=11, began=began, ended=began + 1.0)
    run.history.executions.append(late)


@row(stressed, f"{COMPLETED} … was acknowledged and never returned (0 executions)", task=2)
@row(stressed, f"{ORDERED} … which nobody made", task=1)
def a_task_was_never_executed(run: StressRun, task: int) -> None:
    del run.history.executions[task]


@row(stressed, COMPLETED)
@row(stressed, f"{REPEATED} … never ended, and its worker was not killed")
def a_task_never_ended(run: StressRun) -> None:
    execution(run, 2).ended = execution(run, 2).value = None


@row(stressed, f"{ARGUMENTS} … had other arguments than the oracle", digest="other")
@row(stressed, f"{VALUES} … returned another value than the oracle", value="other")
@row(stressed, f"{ALONE} … found another process running the task", alone=False)
@row(stressed, f"{FAILED} … StressViolation: x", raised="StressViolation: x")
@row(stressed, f"{RELEASED} … came after 0 losses of workers, 0 failures and 0 hand-backs", n=1)
def an_execution_has(run: StressRun, **facts: object) -> None:
    run.history.executions[1] = replace(execution(run, 1), **facts)  # type: ignore[arg-type]


@row(stressed, f"{ORDERED} … had ended", began=10.5)
def the_last_task_begins_early(run: StressRun, began: float) -> None:
    execution(run, 2).began = began


@row(stressed, f"{ORDERED} … as that of t0")
def values_come_from_the_wrong_tasks(run: StressRun) -> None:
    execution(run, 2).got.reverse()


@row(stressed, ONCE)
def dependents_get_values_of_two_executions(run: StressRun) -> None:
    again = replace(execution(run, 0), uid="0.1", n=1, began=1.5, ended=1.6)
    run.history.executions.append(again)
    execution(run, 2).got[0] = again.uid


@row(stressed, attempts=(0, 1, 0), times=1, claims=1)
@row(stressed, RELEASED, attempts=(0, 2, 0), times=1, claims=1)
@row(stressed, f"{RELEASED} … only 1 claims were", attempts=(1, 1, 1), times=1, claims=1)
def claims_are_handed_back(
    run: StressRun, attempts: tuple[int, ...], times: int, claims: int
) -> None:
    """Before they are started: each costs a task one number."""
    for each, n in zip(run.history.executions, attempts, strict=True):
        each.n = n
    run.history.hand_backs, run.history.handed_back = times, claims


@row(stressed, f"{AFTER} … s after the plan was done", at=15.0)
@row(stressed, f"{AFTER}: the plan was not done", at=None)
def the_plan_is_done(run: StressRun, at: float | None) -> None:
    run.history.done_at = at


@row(stressed, f"{VALUES} … the kept result of t2 is other, the oracle has", result="other")
@row(stressed, f"{ORDERED} … the kept result of t2 is of nobody", uid="nobody")
def the_kept_result_has(run: StressRun, **facts: str) -> None:
    run.remains.kept[0] = run.remains.kept[0]._replace(**facts)


@row(stressed, f"{VALUES} … the result of t2 is not kept")
@row(stressed, was_read=False)
def the_results_are_missing(run: StressRun, was_read: bool = True) -> None:
    """Where the plan did not come to its end nobody has read them."""
    run.remains.kept.clear()
    run.was_read = was_read


@row(stressed, f"{VALUES} … the kept result of t2 is ResultNotKept()")
def a_result_cannot_be_read(run: StressRun) -> None:
    run.remains.kept[0] = Kept("t2", "ResultNotKept()", "")


@row(stressed, f"{LEFT}: task-0000000001 is left", plan="task-0000000001")
@row(stressed, f"{LEFT}: adds is left", plan="add-count")
@row(stressed, f"{LEFT}: runnable: x is left", runnable="x")
@row(stressed, f"{LEFT}: claims: w1/x is left", claims="w1/x")
@row(stressed, f"{LEFT}: later: x is left", later="x")
@row(stressed, f"{LEFT}: task x has a dead letter", dead="x")
@row(stressed, f"{LEFT}: 2 outcomes are kept, 1 tasks have no dependents", outcomes="1")
def there_is_left(run: StressRun, **names: str) -> None:
    for kind, name in names.items():
        getattr(run.remains, kind).append(name)


@row(stressed, f"{LEFT}: `done` is missing", plan="done")
@row(stressed, f"{LEFT}: 0 outcomes are kept", outcomes="2")
def there_is_missing(run: StressRun, **names: str) -> None:
    for kind, name in names.items():
        getattr(run.remains, kind).remove(name)


@row(stressed, f"{LIVED}: the worker of pid 99 ended by itself. It crashed")
def a_worker_crashed(run: StressRun) -> None:
    run.history.kills.append(Kill(99, 1.0, 1.1, intended=False, note="It crashed"))
