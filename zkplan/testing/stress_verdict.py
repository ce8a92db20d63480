"""The verdict on a stress run: every promise, checked on its whole history.

A worker that was killed, or lost its session, is *cut off*: others may take over its claims. Only
its executions may repeat, and only an execution of its own that goes on may overlap with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from .stress_promises import (
    Evidence,
    Expected,
    Remains,
    arguments_are_exact,
    attempts_are_unique,
    nothing_acknowledged_is_lost,
    nothing_is_left,
    only_losses_and_failures_repeat,
    results_are_fixed_once,
    results_are_the_oracles,
    the_history_agrees,
    the_last_claim_commits,
    values_come_from_executions,
)
from .stress_tasks import Execution, StressHistory, Workload, key_of


@dataclass(frozen=True)
class StressEvidence(Evidence[Execution]):
    """A stress run before the checks. Every task must finish."""

    workload: Workload
    history: StressHistory
    remains: Remains
    #: Whether the plan ended and its results were read.
    was_read: bool = True

    @cached_property
    def expected(self) -> Expected:
        keys = [key_of(task) for task in range(self.workload.tasks)]
        needs = ([key_of(other) for other in needed] for needed in self.workload.graph)
        return Expected(
            needs=dict(zip(keys, needs, strict=True)),
            digests=dict(zip(keys, self.workload.digests, strict=True)),
            results=dict(zip(keys, self.workload.values, strict=True)),
            fates=dict.fromkeys(keys, "finished"),
        )

    @cached_property
    def executions(self) -> dict[str, list[Execution]]:
        return self.history.by_task

    @property
    def acknowledged(self) -> Set[str]:
        return self.expected.fates.keys()

    @property
    def dead(self) -> Set[str]:
        return {*self.remains.dead}

    def may_be_lost(self, execution: Execution, until: float) -> bool:
        return self.history.cut_off(execution, until)


class Verdict(NamedTuple):
    """One promise, and its violations."""

    invariant: str
    promise: str
    violations: list[str]

    @property
    def passed(self) -> bool:
        return not self.violations


def sinks_are_kept(evidence: StressEvidence) -> Iterator[str]:
    """S4: the results of the tasks without dependents are kept."""
    if evidence.was_read:
        sinks = {key_of(task) for task in evidence.workload.sinks}
        missing = sinks - {each.key for each in evidence.remains.kept}
        yield from (f"the result of {key} is not kept" for key in sorted(missing))


def only_sinks_are_kept(evidence: StressEvidence) -> Iterator[str]:
    """S4: exactly the tasks without dependents have kept outcomes."""
    kept, sinks = len(evidence.remains.outcomes), len(evidence.workload.sinks)
    if kept != sinks:
        yield f"{kept} outcomes are kept, {sinks} tasks have no dependents"


def nobody_overlaps(evidence: StressEvidence) -> Iterator[str]:
    """S5, S8: no two executions of a task overlap, unless one of them was cut off before."""
    cut_off = evidence.history.cut_off
    for executions in evidence.executions.values():
        for index, second in enumerate(executions):
            at = second.began
            if cut_off(second, at):
                continue
            earlier = executions[:index]
            running = [other for other in earlier if other.ended is None or other.ended > at]
            for first in running:
                if not cut_off(first, at):
                    yield f"{second} began while {first} ran"
            if not second.alone and not any(cut_off(other, at) for other in earlier):
                yield f"{second} found another process running the task"


def attempts_grow(evidence: StressEvidence) -> Iterator[str]:
    """S8: an execution has a larger attempt number than all earlier executions of its task."""
    for executions in evidence.executions.values():
        largest = -1
        for execution in executions:
            # A worker that lost its session after its last look at the claim may begin late.
            late = evidence.history.cut_off(execution, execution.began)
            if execution.n < largest and not late:
                yield f"{execution} began after attempt {largest}"
            largest = max(largest, execution.n)


def every_execution_ends(evidence: StressEvidence) -> Iterator[str]:
    """L1: the last execution of a task ends, unless its worker was killed."""
    for executions in evidence.executions.values():
        last = max(executions, key=lambda execution: execution.n)
        if last.ended is None and evidence.history.killed_at(last) is None:
            yield f"{last} never ended, and its worker was not killed"


def losses_release_once(evidence: StressEvidence) -> Iterator[str]:
    """L1: only lost workers, failures and hand-backs use up attempt numbers, each at most one."""
    history = evidence.history
    losses, hand_backs = len(history.kills) + len(history.lost), history.hand_backs
    owed = 0
    for executions in evidence.executions.values():
        failures = sum(bool(execution.raised) for execution in executions)
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


def no_execution_failed(evidence: StressEvidence) -> Iterator[str]:
    """S3, S8: no execution raised, for example because it found wrong arguments."""
    for execution in evidence.everything:
        if execution.raised:
            yield f"{execution}: {execution.raised}"


def nothing_runs_when_done(evidence: StressEvidence) -> Iterator[str]:
    """S7: no execution begins after the plan is done."""
    history = evidence.history
    if history.done_at is None:
        yield "the plan was not done"
        return
    for execution in evidence.everything:
        at = execution.began
        if at > history.done_at and not history.cut_off(execution, at):
            yield f"{execution} began {at - history.done_at:.3f} s after the plan was done"


def workers_lived(evidence: StressEvidence) -> Iterator[str]:
    """Apart from the invariants: each worker process lived until it was killed or told to stop."""
    for kill in evidence.history.kills:
        if not kill.intended:
            yield f"the worker of pid {kill.pid} ended by itself. {kill.note}".rstrip()


CheckFunction = Callable[[StressEvidence], Iterator[str]]
CHECKS: tuple[tuple[str, str, tuple[CheckFunction, ...]], ...] = (
    ("L3", "every task completed", (nothing_acknowledged_is_lost,)),
    ("S3", "arguments were exactly the expected ones", (arguments_are_exact,)),
    ("S4", "values and results are the oracle's", (results_are_the_oracles, sinks_are_kept)),
    ("S4", "each result was committed once", (results_are_fixed_once,)),
    ("S5", "nobody else ran a task at the same time", (nobody_overlaps,)),
    ("S8", "attempt numbers of a task grow", (attempts_grow,)),
    ("S8", "no attempt number was used twice", (attempts_are_unique,)),
    (
        "S4",
        "only the tasks of lost workers ran again",
        (only_losses_and_failures_repeat, every_execution_ends),
    ),
    ("S4", "committed tasks never ran again", (the_last_claim_commits,)),
    ("L1", "claims were released once per lost worker or hand-back", (losses_release_once,)),
    ("S3", "dependents started after their dependencies", (values_come_from_executions,)),
    ("S3", "no task failed", (no_execution_failed,)),
    ("S7", "nothing ran after the plan was done", (nothing_runs_when_done,)),
    ("S13", "the history agrees with the tree and with the tasks", (the_history_agrees,)),
    ("S6", "nothing is left of the plan but outcomes", (nothing_is_left, only_sinks_are_kept)),
    ("-", "workers ended only when they were killed", (workers_lived,)),
)


def check(evidence: StressEvidence) -> list[Verdict]:
    """The verdict on each promise, in a fixed order."""
    return [
        Verdict(invariant, promise, [found for each in functions for found in each(evidence)])
        for invariant, promise, functions in CHECKS
    ]
