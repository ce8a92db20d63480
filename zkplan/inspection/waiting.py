"""Wait for a plan or a result. Watches wake the waiter, and each look costs the same."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
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
from .deadlock import dead_if_deadlocked, failed, may_stand, no_worker, not_taken, raise_in_vain
from .progress import progress_bar
from .slots import no_free_slot, waiting_in_slot
from .workers import living_workers

logger = logging.getLogger("zkplan.plan")

#: One look: (True, what was waited for), or (False, the status of the plan).
Look = Callable[[], tuple[bool, Any]]

#: Seconds after which the plan is looked at without a watch: for progress, and because a watch may
#: be lost.
LOOK_S = 1.0
PROGRESS_LOOK_S = 0.2
#: After this many looks without a change, the waiter finds out whether anything can still run.
STILL_LOOKS = 2
#: Up to this many dead tasks, each new one wakes the waiter, because it reads the whole list again.
WATCHED_DEAD_MAX = 1000
#: Those after one of which nothing followed: this client may not see it, or not repair it.
UNPROVED_LOOKS = 30


@contextmanager
def _wake_up(client: Connection, plan_path: str) -> Iterator[threading.Event]:
    """An event that is set whenever a watched znode of the plan changes."""
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
    """Decides how long to wait, and notices whether the plan makes progress."""

    def __init__(
        self, client: Connection, plan_path: str, timeout: float | None, what: str
    ) -> None:
        if timeout is not None and not timeout >= 0:  # this refuses NaN, too
            raise ZkplanError(f"a time-out must be 0 or more seconds, not {timeout!r}")
        self._client, self._plan = client, plan_path
        self._timeout, self._what = timeout, what
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout
        self.last: PlanStatus | None = None
        self._still = 0
        #: Nothing could run at the last look, and yet it is unknown whether that will change.
        self._stands = False
        #: Why this client cannot find out whether the plan can go on.
        self._unseen = ""
        self._warned: set[str] = set()

    @property
    def dead(self) -> int:
        """The number of dead tasks at the last look."""
        return self.last.dead if self.last is not None else 0

    def wait(self, look: Look, longest: float) -> Any:
        """Look until something is found. Raises the error that says why the wait is in vain.

        When the time is over, the plan is looked at once more. Raises WaitTimeout if it can go on.
        """
        with _wake_up(self._client, self._plan) as woken:
            while True:
                is_over = time.monotonic() >= self._deadline
                found, seen = look()
                while not found and self._seems_in_vain(seen, is_over):
                    dead, before = self._prove(), seen
                    if dead is None:
                        break
                    # The wait is in vain only if this finds no change: it finds whatever happened
                    # before the proof.
                    found, seen = look()
                    self._stands = not found and seen[:-1] == before[:-1]
                    if self._stands:
                        self._in_vain(seen, dead, is_over)
                        break
                if found:
                    return seen
                if is_over:
                    raise WaitTimeout(f"{self._what} after {self._timeout:g} s; {self._why()}")
                woken.wait(min(longest, max(0.0, self._deadline - time.monotonic())))
                woken.clear()

    def _seems_in_vain(self, status: PlanStatus, is_over: bool) -> bool:
        """Whether it is to be proved that nothing can run. Warns of what keeps the plan waiting."""
        died = status.dead > self.dead
        moved = self.last is None or status[:-1] != self.last[:-1]
        self.last, self._stands = status, False
        self._still = 0 if moved else self._still + 1
        if status.state == "cancelled":
            raise PlanCancelled(status.path, f"{status.path} was cancelled")
        if status.state == "defining":
            self._warn(
                f"{status.path} is not marked ready, so nothing of it runs until `mark_ready` or "
                "the end of its `with` block"
            )
        if died or is_over:  # perhaps that was the last task that could run
            return may_stand(status)
        if self._still < STILL_LOOKS or status.state != "running":
            return False
        self._still = 0
        if told := no_free_slot(self._client):
            self._warn(f"{self._what}: {told}")
        if status.runnable and not living_workers(self._client):
            self._warn(no_worker(self._client))
        return not status.runnable

    def _prove(self) -> int | None:
        """The number of dead tasks if no task can run; None if one can, or if that is unknown."""
        try:
            return self._client.transport.run(dead_if_deadlocked(self._client.paths, self._plan))
        except UNREACHABLE:
            raise
        except ZooKeeperError as error:
            self._still = -UNPROVED_LOOKS
            self._unseen = f"this client cannot see whether the plan can go on: {error}"
            self._warn(f"{self._plan}: {self._unseen}")
            return None

    def _in_vain(self, status: PlanStatus, dead: int, is_over: bool) -> None:
        """Raise the error, if the reason is known."""
        # A late look repairs nothing: another client may just be building the plan.
        why = raise_in_vain(self._client, status, dead, repair=not is_over)
        self._still = -UNPROVED_LOOKS
        if why:
            self._warn(why)

    def _warn(self, message: str) -> None:
        """Log each message once, however long the wait is."""
        if message not in self._warned:
            self._warned.add(message)
            logger.warning("%s", message)

    def _why(self) -> str:
        """Why the plan has not ended, as far as this client knows."""
        status = self.last
        if status is not None and status.state == "defining":
            return "the plan is not marked ready, so nothing of it runs"
        if status is not None and status.state == "paused":
            return "the plan is paused until `resume`"
        dead = f"{status.dead} of its tasks out of attempts; " if status and status.dead else ""
        try:
            if self._stands:
                check = self._client.command(f"plan check {int(number_of(self._plan))}")
                return dead + (
                    f"nothing of it can run now (`{check}` tells why, and repairs what it can)"
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


@contextmanager
def _goes_on(client: Connection, patience: _Patience) -> Iterator[None]:
    """Say at Ctrl-C that only the wait has ended, and how to look at the plan."""
    try:
        yield
    except KeyboardInterrupt:
        if (seen := patience.last) is not None and not client.ends_with_process:
            name = f" ({seen.name})" if seen.name.isprintable() and seen.name else ""
            logger.warning(
                "%s%s goes on; only this wait has ended. To look at the plan:\n%s",
                seen.path, name, client.command(f"plan show {int(number_of(seen.path))}"),
            )  # fmt: skip
        raise


def _watch_dead(client: Connection, plan_path: str) -> None:
    try:
        client.transport.ask(ReadChildren(f"{plan_path}/dead", watch=True))
    except UNREACHABLE:
        raise
    except ZooKeeperError:
        # A client that may not read them sees a failure at its next look, once a second.
        logger.debug("this client cannot watch the failures of %s", plan_path, exc_info=True)


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
    with _goes_on(client, patience), progress_bar(name or plan_path, progress) as show:

        def look() -> tuple[bool, PlanStatus]:
            transport.ask(ReadData(f"{plan_path}/done", watch=True))
            transport.ask(ReadData(f"{plan_path}/ready", watch=True))
            if fail_fast or patience.dead < WATCHED_DEAD_MAX:
                _watch_dead(client, plan_path)
            status = transport.run(read_status(plan_path))
            if show is not None:
                dead = f", {status.dead} dead" if status.dead else ""
                show(status.finished, status.added, f"{status.runnable} runnable{dead}")
            if fail_fast and status.dead and status.state != "done":
                told = f"{count(status.dead, 'task')} of {plan_path} failed"
                raise failed(client, plan_path, f"{told}; the others go on")
            if status.state == "done" and status.dead:
                told = f"{plan_path} is drained, {status.dead} of its tasks failed"
                raise failed(client, plan_path, told)
            is_empty = status.state == "running" and not status.tasks
            if is_empty and transport.run(finish(plan_path, time.time())):
                return look()
            return status.state == "done", status

        ended: PlanStatus = patience.wait(look, LOOK_S if show is None else PROGRESS_LOOK_S)
        return ended


def wait_for_result(
    client: Connection, plan_path: str, number: str, name: str, timeout: float | None
) -> Any:
    """See Task.result."""
    transport = client.transport
    path, outcome_path = f"{plan_path}/task-{number}", f"{plan_path}/results/{number}"
    label = f"{name} ({path})" if name else path
    patience = _Patience(client, plan_path, timeout, f"there is no result of {label}")

    def look() -> tuple[bool, Any]:
        # In this order: the transaction that deletes the task writes the outcome. So if the task is
        # gone, its outcome is found after that, or never.
        live, outcome, home = transport.ask(
            ReadMany([ReadData(path), ReadData(outcome_path), ReadData(plan_path)])
        )
        if outcome is not None:
            return True, open_outcome(client.codec, outcome.data, name or path, label)
        if home is None:
            raise PlanNotFound(plan_path, f"{plan_path} was removed")
        if live is None:
            raise ResultNotKept(
                name or path,
                f"{label} has finished (or never existed); its result went to its dependents "
                "and was not kept: add it with keep=True",
            )
        transport.ask(ReadData(path, watch=True))
        if transport.ask(ReadData(outcome_path, watch=True)) is not None:
            return look()
        return False, transport.run(read_status(plan_path))

    return patience.wait(look, LOOK_S)


def open_outcome(codec: Codec, sealed: bytes, task: str, label: str) -> Any:
    """Return the value of an outcome, or raise the exception that it holds."""
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
