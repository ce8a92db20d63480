"""The checker: what zkplan promises, verified on a run's history and what is left of it. Pure.

The numbers are those of the invariants in docs/protocol.md. A worker that was killed, or whose
session was lost, is *cut off*: its claims may be taken over, so its executions may be repeated, and
one that lives on may overlap with its successor. Nothing else may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from .history import Execution, History
from .workload import Workload


@dataclass(frozen=True)
class Remains:
    """What stands in ZooKeeper after the run: names below the plan, and claims on claims nodes."""

    plan: list[str] = field(default_factory=list)
    runnable: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    delayed: list[str] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Evidence:
    """All that the checks look at. `results` holds the kept results, by task; None: not read."""

    workload: Workload
    history: History
    results: dict[int, object] | None = None
    remains: Remains | None = None


class Verdict(NamedTuple):
    """One promise, and how it was broken: `violations` is empty where it was kept."""

    invariant: str
    promise: str
    violations: list[str]

    @property
    def passed(self) -> bool:
        return not self.violations


def every_task_completed(evidence: Evidence) -> Iterator[str]:
    """L3: some execution of every task returned."""
    for task in range(evidence.workload.tasks):
        executions = evidence.history.by_task.get(task, [])
        if not executions:
            yield f"task {task} was never executed"
        elif all(execution.value is None for execution in executions):
            yield f"task {task} was executed {len(executions)} times and never returned"


def arguments_are_exact(evidence: Evidence) -> Iterator[str]:
    """S3: every execution, also one that was killed, had exactly the oracle's arguments."""
    for execution in evidence.history.executions:
        if execution.digest != evidence.workload.digests[execution.task]:
            yield f"{execution} had other arguments than the oracle"


def values_are_exact(evidence: Evidence) -> Iterator[str]:
    """S4: every value returned, and every kept result, is the oracle's."""
    values = evidence.workload.values
    for execution in evidence.history.executions:
        if execution.value not in (None, values[execution.task]):
            yield f"{execution} returned another value than the oracle"
    if evidence.results is not None:
        for sink in evidence.workload.sinks:
            if evidence.results.get(sink) != values[sink]:
                kept = evidence.results.get(sink)
                yield f"the result of task {sink} is {kept!r}, the oracle has {values[sink]!r}"


def attempts_grow(evidence: Evidence) -> Iterator[str]:
    """S8: of two executions of a task the later one has the larger attempt number."""
    history = evidence.history
    for executions in history.by_task.values():
        for first, second in pairwise(executions):
            # A worker that lost its session after its last look at the claim may start late.
            if second.n < first.n and not history.cut_off(second, second.started):
                yield f"{second} started after attempt {first.n}"


def attempts_are_unique(evidence: Evidence) -> Iterator[str]:
    """S8: no attempt number is had by two executions."""
    seen: dict[tuple[int, int], Execution] = {}
    for execution in evidence.history.executions:
        other = seen.setdefault((execution.task, execution.n), execution)
        if other is not execution:
            yield f"{execution} and {other} have the same attempt number"


def nobody_overlaps(evidence: Evidence) -> Iterator[str]:
    """S5, S8: no two executions of a task at one time, unless one of the two was cut off before."""
    history = evidence.history
    for executions in history.by_task.values():
        for index, second in enumerate(executions):
            at = second.started
            if history.cut_off(second, at):
                continue
            earlier = executions[:index]
            running = [other for other in earlier if other.ended is None or other.ended > at]
            for first in running:
                if not history.cut_off(first, at):
                    yield f"{second} started while {first} ran"
            if not second.alone and not any(history.cut_off(other, at) for other in earlier):
                yield f"{second} found another process running the task"


def only_losses_repeat(evidence: Evidence) -> Iterator[str]:
    """S4, L1: a task is executed again only after the worker that had it was cut off."""
    history = evidence.history
    for executions in history.by_task.values():
        by_attempt = sorted(executions, key=lambda execution: execution.n)
        for first, second in pairwise(by_attempt):
            if not first.error and not history.cut_off(first, second.started):
                yield f"{second} repeats {first}, whose worker was neither killed nor lost"
        last = by_attempt[-1]
        if last.ended is None and history.killed_at(last) is None:
            yield f"{last} never ended, and its worker was not killed"


def no_execution_failed(evidence: Evidence) -> Iterator[str]:
    """S3, S8: no task found something wrong while it ran."""
    for execution in evidence.history.executions:
        if execution.error:
            yield f"{execution}: {execution.error}"


def losses_release_once(evidence: Evidence) -> Iterator[str]:
    """L1: only lost workers, failures and hand-backs use up attempt numbers, each at most one."""
    history = evidence.history
    losses, hand_backs = len(history.kills) + len(history.lost), history.hand_backs
    owed = 0
    for executions in history.by_task.values():
        failures = sum(bool(execution.error) for execution in executions)
        last = max(executions, key=lambda execution: execution.n)
        owed += max(0, last.n - losses - failures)
        if last.n > losses + failures + hand_backs:
            yield (
                f"{last} came after {losses} losses of workers, {failures} failures and "
                f"{hand_backs} hand-backs"
            )
    if owed > history.handed_back:
        yield (
            f"{owed} attempt numbers were used up beyond losses and failures, but only "
            f"{history.handed_back} claims were handed back"
        )


def dependencies_come_first(evidence: Evidence) -> Iterator[str]:
    """S3: a task starts only after an execution of each of its dependencies returned."""
    by_task = evidence.history.by_task
    returned = {
        task: min((e.ended for e in executions if e.ended and e.value), default=None)
        for task, executions in by_task.items()
    }
    for task, needed in enumerate(evidence.workload.graph):
        for first in by_task.get(task, [])[:1]:
            for other in needed:
                end = returned.get(other)
                if end is None or end > first.started:
                    yield f"{first} started before task {other} had returned"


def committed_tasks_rest(evidence: Evidence) -> Iterator[str]:
    """S4, S5: a dependent starts after its dependencies were committed: they start no more."""
    history = evidence.history
    for task, needed in enumerate(evidence.workload.graph):
        for dependent in history.by_task.get(task, [])[:1]:
            for other in needed:
                for again in history.by_task.get(other, []):
                    late = again.started > dependent.started
                    if late and not history.cut_off(again, again.started):
                        yield f"{again} started after its dependent, {dependent}"


def nothing_runs_when_done(evidence: Evidence) -> Iterator[str]:
    """S7: no execution starts after the plan was done."""
    history = evidence.history
    if history.done_at is None:
        yield "the plan was not done"
        return
    for execution in history.executions:
        at = execution.started
        if at > history.done_at and not history.cut_off(execution, at):
            yield f"{execution} started {at - history.done_at:.3f} s after the plan was done"


def nothing_is_left(evidence: Evidence) -> Iterator[str]:
    """S6, S7: of a done plan nothing is left but the kept outcomes."""
    left = evidence.remains
    if left is None:
        return
    tasks = [name for name in left.plan if name.startswith("task-")]
    yield from (f"{name} is left" for name in tasks)
    if "done" not in left.plan:
        yield "`done` is missing"
    if "add-count" in left.plan:
        yield "`add-count` stands beside `done`"
    for kind in ("runnable", "dead", "delayed", "claims"):
        yield from (f"{kind}: {name} is left" for name in getattr(left, kind))
    sinks = len(evidence.workload.sinks)
    if len(left.outcomes) != sinks:
        yield f"{len(left.outcomes)} outcomes are kept, {sinks} tasks have no dependents"


def workers_lived(evidence: Evidence) -> Iterator[str]:
    """No invariant of the tree: every worker process lived until it was killed or told to stop."""
    for kill in evidence.history.kills:
        if not kill.intended:
            yield f"the worker of pid {kill.pid} ended by itself. {kill.note}".rstrip()


CheckFunction = Callable[[Evidence], Iterator[str]]
CHECKS: tuple[tuple[str, str, CheckFunction], ...] = (
    ("L3", "every task completed", every_task_completed),
    ("S3", "arguments were exactly the expected ones", arguments_are_exact),
    ("S4", "values and results are the oracle's", values_are_exact),
    ("S5", "nobody else ran a task at the same time", nobody_overlaps),
    ("S8", "attempt numbers of a task grow", attempts_grow),
    ("S8", "no attempt number was used twice", attempts_are_unique),
    ("S4", "only the tasks of lost workers ran again", only_losses_repeat),
    ("S4", "committed tasks never ran again", committed_tasks_rest),
    ("L1", "claims were released once per lost worker or hand-back", losses_release_once),
    ("S3", "dependents started after their dependencies", dependencies_come_first),
    ("S3", "no task failed", no_execution_failed),
    ("S7", "nothing ran after the plan was done", nothing_runs_when_done),
    ("S6", "nothing is left of the plan but outcomes", nothing_is_left),
    ("-", "workers ended only when they were killed", workers_lived),
)


def check(evidence: Evidence) -> list[Verdict]:
    """The verdict on each promise, in a fixed order."""
    return [
        Verdict(invariant, promise, list(function(evidence)))
        for invariant, promise, function in CHECKS
    ]
