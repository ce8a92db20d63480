"""Waiting for a plan or a result: woken by watches, at a fixed cost per look."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..connection import Connection
from ..errors import (
    UNREACHABLE,
    PlanCancelled,
    PlanNotFound,
    ResultNotKept,
    TaskFailed,
    WaitTimeout,
    ZkplanError,
    ZooKeeperError,
)
from ..protocol.control import PlanStatus, finish
from ..protocol.control import status as read_status
from ..protocol.layout import number_of
from ..protocol.records import Failure
from ..protocol.requests import ReadChildren, ReadData, ReadMany
from ..serialization.codec import FAILURE, VALUE, Codec, load
from ..text import count
from .deadlock import dead_at_standstill, failed, may_stand, no_worker, not_taken, raise_in_vain
from .progress import show_progress
from .slots import no_free_slot, waiting_in_slot
from .workers import living_workers

logger = logging.getLogger("zkplan.plan")

#: A look at the plan at least this often: for progress, and because a watch may be lost.
LOOK_S = 1.0
PROGRESS_LOOK_S = 0.2
#: Looks without any movement before the waiter finds out whether anything can still run.
STILL_LOOKS = 2
#: Up to so many dead tasks each further one wakes the waiter, for its list of them is read anew.
WATCHED_DEAD_MAX = 1000
#: Those after one of which nothing followed: this client may not see it, or not repair it.
UNPROVED_LOOKS = 30


@contextmanager
def _wake_up(client: Connection, plan_path: str) -> Iterator[threading.Event]:
    """An event that is set whenever something watched of the plan changes."""
    woken = threading.Event()

    def listener(path: str | None) -> None:
        if path is None or path.startswith(plan_path):
            woken.set()

    client.transport.listen(listener)
    try:
        with waiting_in_slot():
            yield woken
    finally:
        client.transport.unlisten(listener)


class _Patience:
    """How long to wait, and whether the plan moves meanwhile."""

    def __init__(
        self, client: Connection, plan_path: str, timeout: float | None, what: str
    ) -> None:
        if timeout is not None and not timeout >= 0:  # so that NaN is refused too
            raise ZkplanError(f"a time-out is 0 or more seconds, not {timeout!r}")
        self._client, self._plan = client, plan_path
        self._timeout, self._what = timeout, what
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._last: PlanStatus | None = None
        #: Tasks out of attempts at the last look.
        self.dead = 0
        self._still = 0
        self._late_looks = 0
        #: Nothing of the plan could run after the last look, and so many tasks were dead. It is in
        #: vain only if the next look finds nothing else: what came before the proof is found then.
        self._stands: int | None = None
        #: What keeps this client from finding out.
        self._unseen = ""
        self._warned: set[str] = set()

    def pause(self, woken: threading.Event, longest: float) -> None:
        """Wait for news; raises WaitTimeout."""
        if self._stands is not None and not self._late_looks:
            return
        if self._deadline is not None:
            longest = min(longest, self._deadline - time.monotonic())
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
        if self._late_looks == 2 and status is not None and may_stand(status):
            self._prove()
            if self._stands is not None:
                return
        raise WaitTimeout(f"{self._what} after {self._timeout:g} s; {self._why()}")

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
        if self._stands is not None:
            self._in_vain(status, self._stands, moved)
            return
        died = status.dead > self.dead
        self.dead = status.dead
        self._still = 0 if moved else self._still + 1
        if died and may_stand(status):
            self._still = STILL_LOOKS  # it was the last task that could run, perhaps
        if self._still >= STILL_LOOKS and status.state == "running":
            self._still = 0
            if told := no_free_slot(self._client):
                self._warn(f"{self._what}: {told}")
            if status.runnable:
                if not living_workers(self._client):
                    self._warn(no_worker(self._client))
            else:
                self._prove()

    def _prove(self) -> None:
        """Find out whether anything can run."""
        try:
            step = dead_at_standstill(self._client.paths, self._plan)
            self._stands = self._client.transport.run(step)
        except UNREACHABLE:
            raise
        except ZooKeeperError as error:
            self._still = -UNPROVED_LOOKS
            self._unseen = f"whether it can go on is not to be seen from here: {error}"
            self._warn(f"{self._plan}: {self._unseen}")

    def _in_vain(self, status: PlanStatus, dead: int, moved: bool) -> None:
        """Raise it, unless the plan has changed since before the proof."""
        if moved or not self._late_looks:
            self._stands = None
        if not moved:
            # At the end of the time no repairs: whoever builds it by plain creates may be at it.
            why = raise_in_vain(self._client, status, dead, repair=not self._late_looks)
            self._still = -UNPROVED_LOOKS
            if why:
                self._warn(why)

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
            if self._stands is not None:
                check = self._client.command(f"plan check {int(number_of(self._plan))}")
                return dead + (
                    f"nothing of it can run now (`{check}` tells why, and mends what it can)"
                )
            if told := no_free_slot(self._client):
                return dead + told
            if status is not None and status.state == "running" and status.tasks:
                workers = living_workers(self._client)
                if not workers:
                    return dead + no_worker(self._client)
                if status.runnable and not any(worker.claims for worker in workers):
                    return dead + not_taken(self._client, self._plan, status.runnable)
        except ZooKeeperError:
            return dead + "ZooKeeper does not answer now"
        return dead + (self._unseen or "it goes on")


def _watch_dead(client: Connection, plan_path: str) -> None:
    try:
        client.transport.ask(ReadChildren(f"{plan_path}/dead", watch=True))
    except UNREACHABLE:
        raise
    except ZooKeeperError:
        # Who may not read it learns of a failure by the next look, once a second.
        logger.debug("the failures of %s cannot be watched from here", plan_path, exc_info=True)


def wait_for_plan(
    client: Connection,
    plan_path: str,
    timeout: float | None,
    progress: bool = False,
    fail_fast: bool = False,
) -> PlanStatus:
    """See Plan.wait."""
    transport = client.transport
    patience = _Patience(client, plan_path, timeout, f"{plan_path} is not drained")
    name = transport.run(read_status(plan_path)).name if progress else ""
    with _wake_up(client, plan_path) as woken, show_progress(name or plan_path, progress) as show:
        while True:
            transport.ask(ReadData(f"{plan_path}/done", watch=True))
            transport.ask(ReadData(f"{plan_path}/ready", watch=True))
            if fail_fast or patience.dead < WATCHED_DEAD_MAX:
                _watch_dead(client, plan_path)
            status = transport.run(read_status(plan_path))
            show(status)
            if fail_fast and status.dead and status.state != "done":
                told = f"{count(status.dead, 'task')} of {plan_path} failed"
                raise failed(client, plan_path, f"{told}; the others go on")
            if status.state == "done":
                if status.dead:
                    told = f"{plan_path} is drained, {status.dead} of its tasks failed"
                    raise failed(client, plan_path, told)
                return status
            is_empty = status.state == "running" and not status.tasks
            if is_empty and transport.run(finish(plan_path, time.time())):
                continue
            patience.look(status)
            patience.pause(woken, PROGRESS_LOOK_S if show.visible else LOOK_S)


def wait_for_result(
    client: Connection, plan_path: str, number: str, name: str, timeout: float | None
) -> Any:
    """See Task.result."""
    transport = client.transport
    path, outcome_path = f"{plan_path}/task-{number}", f"{plan_path}/results/{number}"
    label = f"{name} ({path})" if name else path
    patience = _Patience(client, plan_path, timeout, f"there is no result of {label}")
    with _wake_up(client, plan_path) as woken:
        while True:
            outcome, live = transport.ask(ReadMany([ReadData(outcome_path), ReadData(path)]))
            if outcome is not None:
                return open_outcome(client.codec, outcome.data, name or path, label)
            if live is None:
                # The outcome comes with the deletion of the task, so now it is there or never.
                outcome, home = transport.ask(
                    ReadMany([ReadData(outcome_path), ReadData(plan_path)])
                )
                if outcome is not None:
                    return open_outcome(client.codec, outcome.data, name or path, label)
                if home is None:
                    raise PlanNotFound(plan_path, f"{plan_path} was removed")
                raise ResultNotKept(
                    name or path,
                    f"{label} has finished (or never existed); its result went to its dependents "
                    "and was not kept: add it with keep=True",
                )
            transport.ask(ReadData(path, watch=True))
            if transport.ask(ReadData(outcome_path, watch=True)) is None:
                patience.look(transport.run(read_status(plan_path)))
                patience.pause(woken, LOOK_S)


def open_outcome(codec: Codec, sealed: bytes, task: str, label: str) -> Any:
    """The value of an outcome, or the exception that it holds, raised."""
    kind, body = codec.open(VALUE + FAILURE, sealed)
    if kind == VALUE:
        return load(body)
    failure = Failure.from_bytes(body)
    remote = TaskFailed(
        task,
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
