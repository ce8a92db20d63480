"""The stress checker bites: each promise has histories that break it, and legal ones pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zkplan.stress.checks import CHECKS, Evidence, Remains, Verdict, check
from zkplan.stress.history import Execution, History, Kill
from zkplan.stress.workload import Workload

WORKLOAD = Workload([[], [0], [0, 1]])
DONE_AT = 100.0
CLEAN = Remains(plan=["add-ids", "dead", "done", "results", "ready", "runnable"], outcomes=["2"])
RESULTS: dict[int, object] = {2: WORKLOAD.values[2]}


def execution(task: int, n: int = 0, *, started: float | None = None) -> Execution:
    """A correct execution, one second long, on a worker of its own; task T starts at 10 T."""
    at = 10.0 * task if started is None else started
    return Execution(
        uid=f"{task}.{n}",
        task=task,
        n=n,
        worker=f"w{task}{n}",
        pid=10 * task + n,
        started=at,
        digest=WORKLOAD.digests[task],
        ended=at + 1.0,
        value=WORKLOAD.values[task],
    )


RUN = [execution(0), execution(1), execution(2)]


def evidence(
    executions: list[Execution],
    kills: tuple[Kill, ...] = (),
    lost: dict[str, float] | None = None,
    done_at: float | None = DONE_AT,
    results: dict[int, object] | None = None,
    remains: Remains = CLEAN,
    hand_backs: int = 0,
    handed_back: int | None = None,
) -> Evidence:
    claims = hand_backs if handed_back is None else handed_back
    history = History(executions, list(kills), lost or {}, done_at, hand_backs, claims)
    return Evidence(WORKLOAD, history, RESULTS if results is None else results, remains)


def broken(found: list[Verdict]) -> set[str]:
    return {verdict.promise for verdict in found if not verdict.passed}


def killed(execution: Execution, at: float) -> Kill:
    return Kill(execution.pid, sent=at, reaped=at + 0.01)


def unfinished(execution: Execution) -> Execution:
    return replace(execution, ended=None, value=None)


CUT = unfinished(execution(1))
AGAIN = execution(1, 1, started=15.0)
COMPLETED = "every task completed"
ARGUMENTS = "arguments were exactly the expected ones"
VALUES = "values and results are the oracle's"
ALONE = "nobody else ran a task at the same time"
GROW = "attempt numbers of a task grow"
UNIQUE = "no attempt number was used twice"
REPEATED = "only the tasks of lost workers ran again"
RESTED = "committed tasks never ran again"
RELEASED = "claims were released once per lost worker or hand-back"
ORDERED = "dependents started after their dependencies"
FAILED = "no task failed"
AFTER = "nothing ran after the plan was done"
LEFT = "nothing is left of the plan but outcomes"
LIVED = "workers ended only when they were killed"


def test_a_run_without_faults_passes_every_check() -> None:
    assert broken(check(evidence(RUN))) == set()


@pytest.mark.parametrize(
    "legal",
    [
        pytest.param(
            evidence([RUN[0], CUT, AGAIN, RUN[2]], (killed(CUT, 10.5),)),
            id="taken over from killed",
        ),
        pytest.param(
            evidence([RUN[0], RUN[1], AGAIN, RUN[2]], (killed(RUN[1], 11.5),)),
            id="killed between return and commit",
        ),
        pytest.param(
            evidence([RUN[0], replace(RUN[1], ended=16.0), AGAIN, RUN[2]], lost={"w10": 12.0}),
            id="a worker without session goes on beside its successor",
        ),
        pytest.param(
            evidence(
                [RUN[0], replace(RUN[1], ended=16.0), replace(AGAIN, alone=False), RUN[2]],
                lost={"w10": 12.0},
            ),
            id="the successor meets the worker without session",
        ),
        pytest.param(
            evidence([RUN[0], execution(1, 1), RUN[2]], hand_backs=1),
            id="handed back before it was started",
        ),
    ],
)
def test_what_is_allowed_is_no_violation(legal: Evidence) -> None:
    assert broken(check(legal)) == set()


@pytest.mark.parametrize(
    ("promise", "planted"),
    [
        pytest.param(COMPLETED, evidence(RUN[:2]), id="a task never executed"),
        pytest.param(
            COMPLETED, evidence([RUN[0], RUN[1], unfinished(RUN[2])]), id="never returned"
        ),
        pytest.param(
            ARGUMENTS, evidence([RUN[0], replace(RUN[1], digest="other"), RUN[2]]), id="arguments"
        ),
        pytest.param(
            ARGUMENTS,
            evidence([RUN[0], replace(CUT, digest="other"), AGAIN, RUN[2]], (killed(CUT, 10.5),)),
            id="arguments of an execution that was killed",
        ),
        pytest.param(
            VALUES, evidence([RUN[0], replace(RUN[1], value="other"), RUN[2]]), id="value"
        ),
        pytest.param(VALUES, evidence(RUN, results={2: "other"}), id="result of another value"),
        pytest.param(VALUES, evidence(RUN, results={}), id="result missing"),
        pytest.param(
            ALONE,
            evidence([RUN[0], replace(RUN[1], ended=16.0), AGAIN, RUN[2]]),
            id="overlap in a run without faults",
        ),
        pytest.param(
            ALONE,
            evidence([RUN[0], CUT, AGAIN, RUN[2]], (killed(CUT, 15.5),)),
            id="taken over before the kill",
        ),
        pytest.param(
            ALONE,
            evidence([RUN[0], replace(RUN[1], ended=18.0), AGAIN, RUN[2]], lost={"w10": 15.5}),
            id="taken over before the session was lost",
        ),
        pytest.param(
            ALONE, evidence([RUN[0], replace(RUN[1], alone=False), RUN[2]]), id="the lock was held"
        ),
        pytest.param(
            GROW,
            evidence(
                [RUN[0], execution(1, 1, started=10.0), execution(1, 0, started=15.0), RUN[2]]
            ),
            id="an older attempt after a newer one",
        ),
        pytest.param(
            UNIQUE,
            evidence([RUN[0], CUT, replace(AGAIN, n=0), RUN[2]], (killed(CUT, 10.5),)),
            id="an attempt number that came back",
        ),
        pytest.param(
            REPEATED,
            evidence([RUN[0], RUN[1], AGAIN, RUN[2]]),
            id="repeated though nobody was lost",
        ),
        pytest.param(
            REPEATED,
            evidence([RUN[0], RUN[1], AGAIN, RUN[2]], (killed(RUN[1], 30.0),)),
            id="repeated before the kill",
        ),
        pytest.param(
            REPEATED, evidence([*RUN[:2], unfinished(RUN[2])]), id="never ended, nobody killed"
        ),
        pytest.param(
            RESTED,
            evidence([*RUN, execution(1, 1, started=40.0)], (killed(RUN[1], 30.0),)),
            id="run again after its dependent started",
        ),
        pytest.param(
            RELEASED,
            evidence([RUN[0], CUT, replace(AGAIN, n=2), RUN[2]], (killed(CUT, 10.5),)),
            id="one kill used up two attempts",
        ),
        pytest.param(
            RELEASED, evidence([RUN[0], execution(1, 1), RUN[2]]), id="a number used up by nobody"
        ),
        pytest.param(
            RELEASED,
            evidence([RUN[0], execution(1, 2), RUN[2]], hand_backs=1),
            id="one hand-back used up two attempts",
        ),
        pytest.param(
            RELEASED,
            evidence([execution(0, 1), execution(1, 1), execution(2, 1)], hand_backs=1),
            id="one claim was handed back, and three used up a number",
        ),
        pytest.param(
            ORDERED,
            evidence([RUN[0], RUN[1], execution(2, started=10.5)]),
            id="started before its dependency returned",
        ),
        pytest.param(ORDERED, evidence([RUN[0], RUN[2]]), id="started without its dependency"),
        pytest.param(
            FAILED,
            evidence([RUN[0], replace(RUN[1], error="StressViolation: x"), RUN[2]]),
            id="raised",
        ),
        pytest.param(AFTER, evidence(RUN, done_at=15.0), id="started after done"),
        pytest.param(AFTER, evidence(RUN, done_at=None), id="never done"),
        pytest.param(
            LEFT,
            evidence(RUN, remains=replace(CLEAN, plan=[*CLEAN.plan, "task-0000000001"])),
            id="task",
        ),
        pytest.param(
            LEFT, evidence(RUN, remains=replace(CLEAN, plan=["ready", "results"])), id="no done"
        ),
        pytest.param(
            LEFT,
            evidence(RUN, remains=replace(CLEAN, plan=[*CLEAN.plan, "add-count"])),
            id="add-count",
        ),
        pytest.param(LEFT, evidence(RUN, remains=replace(CLEAN, runnable=["x"])), id="entry"),
        pytest.param(LEFT, evidence(RUN, remains=replace(CLEAN, claims=["w1/x"])), id="claim"),
        pytest.param(LEFT, evidence(RUN, remains=replace(CLEAN, delayed=["x"])), id="delayed"),
        pytest.param(LEFT, evidence(RUN, remains=replace(CLEAN, dead=["x"])), id="dead letter"),
        pytest.param(LEFT, evidence(RUN, remains=replace(CLEAN, outcomes=[])), id="outcome lost"),
        pytest.param(
            LEFT,
            evidence(RUN, remains=replace(CLEAN, outcomes=["1", "2"])),
            id="outcome not asked for",
        ),
        pytest.param(
            LIVED, evidence(RUN, (Kill(99, 1.0, 1.1, intended=False),)), id="a worker crashed"
        ),
    ],
)
def test_each_broken_promise_is_found(promise: str, planted: Evidence) -> None:
    assert promise in broken(check(planted))


def test_every_check_has_a_planted_violation() -> None:
    marks = test_each_broken_promise_is_found.pytestmark  # type: ignore[attr-defined]
    planted = {parameters.values[0] for mark in marks for parameters in mark.args[1]}

    assert planted == {promise for _, promise, _ in CHECKS}


def test_a_violation_names_the_task_the_attempt_and_the_worker() -> None:
    (verdict,) = [
        verdict
        for verdict in check(evidence([RUN[0], RUN[1], AGAIN, RUN[2]]))
        if verdict.promise == REPEATED
    ]

    assert verdict.violations == [
        "task 1 attempt 1 on w11 (pid 11) repeats task 1 attempt 0 on w10 (pid 10), "
        "whose worker was neither killed nor lost"
    ]
