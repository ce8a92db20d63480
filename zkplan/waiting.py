"""Waiting for a plan or a result: woken by watches, at a fixed cost per look."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .codec import FAILURE, VALUE, load
from .errors import (
    KeeperError,
    PlanCancelled,
    PlanFailed,
    PlanNotFound,
    PlanStuck,
    ResultNotKept,
    TaskFailed,
    WaitTimeout,
    ZkplanError,
)
from .layout import WAKE, parse_claim, parse_later
from .progress import show_progress
from .protocol.control import PlanStatus
from .protocol.shared import wake_dependents
from .records import Failure
from .requests import ReadChildren, ReadData, ReadMany, Step

if TYPE_CHECKING:
    from .plan import Plan
    from .task import Task

logger = logging.getLogger("zkplan.plan")

#: A look at the plan at least this often: for progress, and because a watch may be lost.
LOOK_S = 1.0
PROGRESS_LOOK_S = 0.2
#: Looks without any movement before the waiter finds out whether anything can still run.
STILL_LOOKS = 2
FAILURES_SHOWN = 20


@contextmanager
def _wake_up(plan: Plan) -> Iterator[threading.Event]:
    """An event that is set whenever something watched of the plan changes."""
    woken = threading.Event()

    def listener(path: str | None) -> None:
        if path is None or path.startswith(plan.path):
            woken.set()

    plan.client.keeper.listen(listener)
    try:
        yield woken
    finally:
        plan.client.keeper.unlisten(listener)


class _Patience:
    """How long to wait, and whether the plan moves meanwhile."""

    def __init__(self, plan: Plan, timeout: float | None, what: str) -> None:
        if timeout is not None and not timeout >= 0:  # so that NaN is refused too
            raise ZkplanError(f"a time-out is 0 or more seconds, not {timeout!r}")
        self.plan, self.timeout, self.what = plan, timeout, what
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self._last: PlanStatus | None = None
        self._still = 0
        self._late_looks = 0
        #: At the end of the time: nothing of the plan could run after the last look.
        self._stands = False
        self._warned: set[str] = set()

    def pause(self, woken: threading.Event, longest: float) -> None:
        """Wait for news; raises WaitTimeout."""
        if self.deadline is not None:
            longest = min(longest, self.deadline - time.monotonic())
            if longest <= 0:
                self._last_looks()
                return
        woken.wait(longest)
        woken.clear()

    def _last_looks(self) -> None:
        """When the time is over: return for one more look, or raise WaitTimeout.

        The first such look is of now, not of up to a second ago. Where it leaves nothing that could
        run, that is proved, and a second look follows: a result that came before the proof is found
        by it, and a plan that looks the same on both sides of the proof is in vain.
        """
        self._late_looks += 1
        if self._late_looks == 1:
            return
        status = self._last
        if self._late_looks == 2 and status is not None and _may_stand(status):
            self._stands = self.plan.client.keeper.run(_stands_still(self.plan))
            if self._stands:
                return
        raise WaitTimeout(f"{self.what} after {self.timeout:g} s; {self._why()}")

    def look(self, status: PlanStatus) -> None:
        """Raises what says that the waiting is in vain."""
        if status.state == "cancelled":
            raise PlanCancelled(status.path, f"{status.path} was cancelled")
        if status.state == "defining":
            self._warn(
                f"{status.path} is not marked ready, so nothing of it runs until `mark_ready` or "
                "the end of its `with` block"
            )
        moved = self._last is None or status[:-1] != self._last[:-1]
        self._last = status
        if self._stands:
            self._stands = not moved
            if self._stands:
                # Without a dead task no repairs: whoever builds it by plain creates may be at it.
                raise_in_vain(self.plan, status, repair=False)
            return
        self._still = 0 if moved else self._still + 1
        if self._still >= STILL_LOOKS and status.state == "running":
            self._still = 0
            if status.runnable:
                if not self.plan.client.workers():
                    self._warn(_no_worker(self.plan))
            elif self.plan.client.keeper.run(_stands_still(self.plan)):
                raise_in_vain(self.plan, status)

    def _warn(self, message: str) -> None:
        """Once for each message, however long the wait."""
        if message not in self._warned:
            self._warned.add(message)
            logger.warning("%s", message)

    def _why(self) -> str:
        """What keeps the plan from ending, as far as it is known."""
        status = self._last
        if status is not None and status.state == "defining":
            return "the plan is not marked ready, so nothing of it runs"
        if status is not None and status.state == "paused":
            return "the plan is paused, until `resume`"
        dead = f"{status.dead} of its tasks out of attempts; " if status and status.dead else ""
        try:
            if self._stands:
                return dead + (
                    "nothing of it can run now (`zkplan plan check` tells why, and mends what it "
                    "can)"
                )
            if status is not None and status.state == "running" and status.tasks:
                workers = self.plan.client.workers()
                if not workers:
                    return dead + _no_worker(self.plan)
                if status.runnable and not any(worker.claims for worker in workers):
                    return dead + (
                        f"{status.runnable} of its tasks runnable, and none of the workers takes "
                        "them: they cannot decode them, or are only starting (`zkplan task show` "
                        "tells which)"
                    )
        except KeeperError:
            return dead + "ZooKeeper does not answer now"
        return dead + "it goes on"


def _may_stand(status: PlanStatus) -> bool:
    return status.state == "running" and not status.runnable and status.tasks > 0


def _no_worker(plan: Plan) -> str:
    keeper, root = plan.client.keeper, plan.client.paths.root
    return (
        f"no worker is registered under {root}; start one: "
        f"zkplan worker --hosts {keeper.hosts}{keeper.client.chroot} --root {root}"
    )


def wait_for_plan(plan: Plan, timeout: float | None, progress: bool) -> PlanStatus:
    """See Plan.wait."""
    keeper = plan.client.keeper
    patience = _Patience(plan, timeout, f"{plan.path} is not drained")
    with _wake_up(plan) as woken, show_progress(plan.name or plan.path, progress) as show:
        while True:
            keeper.ask(ReadData(f"{plan.path}/done", watch=True))
            keeper.ask(ReadData(f"{plan.path}/ready", watch=True))
            status = plan.status()
            show(status)
            if status.state == "done":
                if status.dead:
                    raise _failed(
                        plan, f"{plan.path} is drained, {status.dead} of its tasks failed"
                    )
                return status
            if status.state == "running" and not status.tasks and plan.is_drained():
                continue
            patience.look(status)
            patience.pause(woken, PROGRESS_LOOK_S if show.visible else LOOK_S)


def wait_for_result(task: Task, timeout: float | None) -> Any:
    """See Task.result."""
    plan, keeper = task.plan, task.plan.client.keeper
    label = task.name or task.path
    patience = _Patience(plan, timeout, f"there is no result of {label}")
    outcome_path = f"{plan.path}/outcomes/{task.number}"
    with _wake_up(plan) as woken:
        while True:
            outcome, live = keeper.ask(ReadMany([ReadData(outcome_path), ReadData(task.path)]))
            if outcome is not None:
                return open_outcome(task, outcome.data)
            if live is None:
                # The outcome comes with the deletion of the task, so now it is there or never.
                outcome, home = keeper.ask(ReadMany([ReadData(outcome_path), ReadData(plan.path)]))
                if outcome is not None:
                    return open_outcome(task, outcome.data)
                if home is None:
                    raise PlanNotFound(plan.path, f"{plan.path} was removed")
                raise ResultNotKept(
                    label,
                    f"{label} has finished (or never existed); its result went to its dependents "
                    "and was not kept: add it with keep=True",
                )
            keeper.ask(ReadData(task.path, watch=True))
            if keeper.ask(ReadData(outcome_path, watch=True)) is None:
                patience.look(plan.status())
                patience.pause(woken, LOOK_S)


def open_outcome(task: Task, sealed: bytes) -> Any:
    """The value of an outcome, or the exception that it holds, raised."""
    kind, body = task.plan.client.codec.open(VALUE + FAILURE, sealed)
    if kind == VALUE:
        return load(body)
    failure = Failure.from_bytes(body)
    label = task.name or f"task-{task.number} of {task.plan.path}"
    remote = TaskFailed(
        label,
        f"{label} is out of attempts: {failure.summary}\n\n{failure.traceback}",
        failure.traceback,
    )
    original = None
    if failure.exception:
        try:
            original = load(failure.exception)
        except Exception:
            logger.debug("the exception of %s cannot be restored here", label, exc_info=True)
    if isinstance(original, BaseException) and isinstance(original, Exception):
        raise original from remote
    raise remote


def _stands_still(plan: Plan) -> Step[bool]:
    """Whether nothing of the plan is runnable, claimed, delayed or about to be published.

    Between two reads of `runnable` that show the same last change, no task entered or left it; so a
    task that was claimed in between stood on a desk all the time, and is seen there.
    """
    runnable = f"{plan.path}/runnable"
    first = yield ReadData(runnable)
    desks = (yield ReadChildren(plan.client.paths.desks)) or []
    later, *held = yield ReadMany(
        [
            ReadChildren(plan.client.paths.later),
            *(ReadChildren(plan.client.paths.desk(desk)) for desk in desks),
        ]
    )
    wakes = [
        f"{plan.client.paths.desk(desk)}/{name}"
        for desk, names in zip(desks, held, strict=True)
        for name in names or ()
        if name.startswith(WAKE)
    ]
    second = yield ReadData(runnable)
    if first is None or second is None or first.pzxid != second.pzxid or second.child_count:
        return False
    for name in later or ():
        delayed = parse_later(name)
        if delayed is not None and delayed.plan == plan.number:
            return False
    for names in held:
        for name in names or ():
            claim = parse_claim(name)
            if claim is not None and claim.plan == plan.number:
                return False
    return (yield from _nothing_owed(plan, wakes))


def _nothing_owed(plan: Plan, wakes: list[str]) -> Step[bool]:
    """Whether none of `wakes` names a task of the plan that is complete and not published.

    A wake that was settled says nothing: its worker leaves it until its next commit.
    """
    if not wakes:
        return True
    nodes = yield ReadMany([ReadData(path) for path in wakes])
    if None in nodes:
        return False  # settled since it was listed: what it named may be claimed now
    named = [d for node in nodes for d in wake_dependents(node.data) if d.plan == plan.number]
    if not named:
        return True
    ready = yield ReadMany([ReadData(f"{plan.path}/task-{d.task}/ready") for d in named])
    return all(node is None or node.version != d.k for d, node in zip(named, ready, strict=True))


def raise_in_vain(plan: Plan, status: PlanStatus, repair: bool = True) -> None:
    """Nothing of the plan can run: say why. Returns where a repair lets it run, or would."""
    if status.dead:
        raise _failed(
            plan,
            f"{plan.path} cannot go on: {_standstill(status.dead, status.tasks)} "
            "(`retry` gives another chance)",
        )
    report = plan.check(repair)
    if report.published or report.created:
        return  # it was built by plain creates; now it runs
    if report.problems or report.waiting:
        reasons = report.problems or [
            f"{name} waits for {', '.join(deps)}" for name, deps in report.waiting.items()
        ]
        raise PlanStuck(
            plan.path,
            f"{plan.path} can never drain: {_remain(status.tasks)}; " + "; ".join(reasons[:5]),
        )


def _remain(tasks: int) -> str:
    return (
        "one task remains and cannot run" if tasks == 1 else f"{tasks} tasks remain, none can run"
    )


def _standstill(dead: int, tasks: int) -> str:
    """
    >>> _standstill(1, 1), _standstill(2, 2)
    ('its only unfinished task is out of attempts', 'all 2 unfinished tasks are out of attempts')
    >>> _standstill(1, 3)
    '1 of its 3 unfinished tasks is out of attempts, the others depend on it'
    """
    if tasks <= 1:
        return "its only unfinished task is out of attempts"
    if dead >= tasks:
        return f"all {tasks} unfinished tasks are out of attempts"
    verb, them = ("is", "it") if dead == 1 else ("are", "them")
    rest = "the other depends" if tasks - dead == 1 else "the others depend"
    return f"{dead} of its {tasks} unfinished tasks {verb} out of attempts, {rest} on {them}"


def _failed(plan: Plan, message: str) -> PlanFailed:
    dead = plan.dead(FAILURES_SHOWN)
    failures = {letter.name or f"task-{number}": letter.error for number, letter in dead.items()}
    shown = "; ".join(f"{name}: {error}" for name, error in list(failures.items())[:3])
    return PlanFailed(plan.path, f"{message}: {shown}" if shown else message, failures)
