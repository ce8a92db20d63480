"""Carry out an operator's decisions about tasks, workers, queues and limits."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..basics.public_calls import Duration, in_seconds, told_to_caller
from ..errors import (
    InvalidTask,
    PayloadTooLarge,
    PayloadUndecodable,
    PlanCancelled,
    PlanNotFound,
    TaskCancelled,
    TaskError,
    WaitTimeout,
    WorkerNotFound,
    ZkplanError,
)
from ..protocol.core.plan_life import cascades
from ..protocol.core.plan_life import status as read_status
from ..protocol.core.plans_and_queues import index_names
from ..protocol.core.workers import WorkerRecord, WorkerState, order
from ..protocol.features.author import ensure_root
from ..protocol.features.decisions import decide, set_priority
from ..protocol.features.limits import (
    LimitStatus,
    Per,
    check_limit,
    list_limits,
    remove_limit,
    set_limit,
)
from ..protocol.features.retry import reopen, retry, run_now
from ..protocol.features.task_place import Place, find_place, placed
from ..protocol.layout import PRIORITY_MAX, PRIORITY_MIN, number_of
from ..protocol.records import OPERATOR, Failure
from ..protocol.requests import ReadData
from ..protocol.transactions import REQUEST_BYTES_MAX
from ..transport import Transport
from ..values.codec import FAILURE, JSON_ONLY
from ..values.connection import Connection
from ..views.find import Filter, find_tasks
from ..views.queues import QueueStatus, queue_statuses
from ..views.task_info import require_task
from ..views.unfinished import FoundTask
from ..views.why_facts import LOOKED_AT, CodeNote, log_code_notes, notes_before_retry
from ..views.workers import keys_fit, living_workers
from .plan_reader import PlanReader

#: The most bytes of the value of a skipped task, which does not go to the store.
VALUE_BYTES_MAX = REQUEST_BYTES_MAX - 64 * 1024


def select(
    client: Connection, plan_path: str, state: str | None, error: str | None, name: str | None
) -> Iterator[FoundTask]:
    """See Plan.select."""
    found = find_tasks(client, Filter(state, None, name, error), [number_of(plan_path)])
    if client.transport.ask(ReadData(plan_path)) is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    return found


def check_priority(priority: int, task: str, where: str = "") -> None:
    """Raises InvalidTask."""
    if type(priority) is not int or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        raise InvalidTask(
            task,
            f"task {task}{where}: priority must be {PRIORITY_MIN} to {PRIORITY_MAX}, not "
            f"{priority!r:.50}",
        )


def retry_all(transport: Transport, plan_path: str) -> int:
    """See Plan.retry."""
    _refuse_if_cancelled(transport, plan_path)
    plan = transport.ask(ReadData(plan_path))
    if plan is not None and cascades(plan):
        return int(transport.run(reopen(plan_path, time.time())))
    retried, damaged = 0, None
    for number in transport.run(index_names(plan_path, "dead")):
        try:
            retried += transport.run(retry(plan_path, number))
        except PayloadUndecodable as error:
            damaged = damaged or error
        except TaskError:
            continue  # the task was cancelled before it had all its arguments
    if damaged is not None:
        raise damaged
    return retried


def retry_task(transport: Transport, plan_path: str, number: str) -> bool:
    """See Plan.retry_task."""
    _refuse_if_cancelled(transport, plan_path)
    return transport.run(retry(plan_path, number))


def _refuse_if_cancelled(transport: Transport, plan_path: str) -> None:
    if transport.run(read_status(plan_path)).state == "cancelled":
        raise PlanCancelled(
            plan_path, f"{plan_path} was cancelled, so none of its tasks can run again"
        )


class Decisions:
    """An operator's decisions about the tasks of one plan.

    Each method returns the state that the task was in, or an empty text if there was nothing to do.
    It raises InvalidTask for a number that never was a task. Before decisions about many tasks,
    `look` reads the places of all tasks together.
    """

    def __init__(self, plan: PlanReader) -> None:
        self._of, self._path, self._plan = plan, plan.path, number_of(plan.path)
        self._client: Connection = plan.client
        self._places: dict[str, Place] = {}
        #: The logged notes on the code of retried tasks. Only the first tasks are examined.
        self._logged: set[CodeNote] = set()
        self._retries = 0

    def look(self) -> None:
        self._places = self._client.transport.run(placed(self._client.paths, self._plan))

    def skip(self, task: str, value: Any, name: str = "") -> str:
        """Raises as Task.skip."""
        return self._decide(task, self.skipped(task, value, name), skips=True)

    def skipped(self, task: str, value: Any, name: str = "") -> bytes:
        """The outcome of a skipped task. Raises NotSerialisable, PayloadTooLarge."""
        # Eight random bytes make the outcome unique to this call.
        mark = os.urandom(8)
        sealed = self._client.codec.seal_skipped(value, name, self._is_json(), mark)
        if len(sealed) > VALUE_BYTES_MAX:
            raise PayloadTooLarge(f"the value of task {task}", len(sealed), VALUE_BYTES_MAX)
        return sealed

    def cancel(self, task: str, name: str = "") -> str:
        """Raises as Task.cancel."""
        return self._decide(task, self.cancelled(task, name), skips=False)

    def cancelled(self, task: str, name: str = "") -> bytes:
        """The outcome of a cancelled task."""
        host = socket.gethostname()
        who = f"{OPERATOR}{host.split('.')[0][:20]}-{os.getpid()}-{os.urandom(4).hex()}"
        message = f"cancelled by an operator on {host}"
        error = TaskCancelled(name or task, f"task {name or task} of {self._path} was {message}")
        codec = self._client.codec
        dumped = codec.dump_exception(error, self._is_json())
        failure = Failure("TaskCancelled", message, "", who, 0, time.time(), dumped)
        return codec.seal(FAILURE, failure.to_bytes())

    def _is_json(self) -> bool:
        """Whether the tasks that take the outcome decode only JSON."""
        return self._of.record.serializer == JSON_ONLY

    def _decide(self, task: str, sealed: bytes, *, skips: bool) -> str:
        step = decide(
            self._client.paths, self._plan, task, sealed, skips=skips, hint=self._places.get(task)
        )
        return self._stood(task, self._client.transport.run(step))

    def _stood(self, task: str, stood: str) -> str:
        if not stood:
            require_task(self._client, self._path, task)
        return stood

    def retry(self, task: str) -> str:
        """Raises as Task.retry."""
        self._retries += 1
        first = [task] if self._retries <= LOOKED_AT else ()
        notes = {*notes_before_retry(self._client, self._path, first)}
        stood = self._retry(task)
        if stood:
            log_code_notes(notes - self._logged)
            self._logged |= notes
        return stood

    def _retry(self, task: str) -> str:
        transport = self._client.transport
        if retry_task(transport, self._path, task):
            return "dead"
        place = transport.run(find_place(self._client.paths, self._plan, task))
        if place is None or place.state != "delayed":
            return self._stood(task, "")
        return "delayed" if transport.run(run_now(self._path, place)) else ""

    def set_priority(self, task: str, priority: int) -> str:
        """Raises as Task.set_priority."""
        check_priority(priority, task, f" of {self._path}")
        hint = self._places.get(task)
        step = set_priority(self._client.paths, self._plan, task, priority, hint)
        return self._stood(task, self._client.transport.run(step))


# ---- Drain, pause and resume workers from another machine.


#: Seconds between two looks at the awaited workers.
LOOK_S = 0.2
_NAMED = 10


def find_worker(client: Connection, which: str) -> WorkerRecord:
    """The living worker with the ID `which`, or the only one whose ID begins with `which`. Raises
    WorkerNotFound."""
    living = living_workers(client)
    found = [each for each in living if each.id == which]
    found = found or [each for each in living if which and each.id.startswith(which)]
    if len(found) == 1:
        return found[0]
    if found:
        raise WorkerNotFound(
            which,
            f"{len(found)} workers have an ID that begins with {which!r}: {_named(found)}; give "
            "more of the ID",
        )
    raise WorkerNotFound(which, f"there is no worker {which!r:.100}; {_there(client, living)}")


def workers_of(client: Connection, host: str) -> list[WorkerRecord]:
    """The living workers on `host`. Raises WorkerNotFound if there are none."""
    living = living_workers(client)
    found = [each for each in living if host in (each.host, each.host.partition(".")[0])]
    if not found:
        hosts = ", ".join(sorted({each.host for each in living})) or "none"
        raise WorkerNotFound(
            host, f"there is no worker on host {host!r:.100}; there are workers on: {hosts}"
        )
    return found


def order_worker(client: Connection, which: str, state: WorkerState) -> WorkerRecord:
    """Order a worker into `state`, and return the worker as it was before.

    Raises as `find_worker` and `order`, and ZkplanError if the worker's keys differ from this
    client's, because the worker would ignore the order.
    """
    worker = find_worker(client, which)
    if not keys_fit(client, worker):
        ours = client.keys[0].name if client.keys else "none"
        theirs = worker.keys or "none, or unknown here"
        raise ZkplanError(
            f"worker {worker.id} takes no order of this client: its keys are {theirs}, and the key "
            f"of this client is {ours}. Give this client the worker's keys (secret-files)"
        )
    client.transport.run(order(client.paths, worker.id, state))
    return worker


def wait_until_gone(
    client: Connection,
    workers: list[str],
    timeout_s: float | None,
    report: Callable[[int, int], None] = lambda workers, tasks: None,
) -> None:
    """Wait until `workers` have signed off. Raises WaitTimeout.

    `report` gets the number of workers that are left, and of their tasks.
    """
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left = [each for each in living_workers(client) if each.id in workers]
        if not left:
            return
        tasks = sum(each.claims for each in left)
        report(len(left), tasks)
        if end is not None and time.monotonic() >= end:
            raise WaitTimeout(
                f"after {timeout_s:g} s these workers still drain, with {tasks} tasks: "
                f"{_named(left)}"
            )
        time.sleep(LOOK_S)


def _named(workers: list[WorkerRecord]) -> str:
    more = len(workers) - _NAMED
    named = ", ".join(each.id for each in workers[:_NAMED])
    return f"{named} and {more} more" if more > 0 else named


def _there(client: Connection, living: list[WorkerRecord]) -> str:
    where = f"under {client.root}"
    return f"workers {where}: {_named(living)}" if living else f"there is none {where}"


class WorkerOrders(Connection):
    """The calls of a client about workers: list the living ones, and give them orders."""

    def workers(self) -> list[WorkerRecord]:
        """The workers that are registered under the root."""
        return living_workers(self)

    @told_to_caller
    def drain_worker(
        self, worker: str, *, wait: bool = False, timeout: Duration | None = None
    ) -> WorkerRecord:
        """Make a worker finish its running tasks, hand back those claimed ahead, and end.

        `worker` is its ID, or a beginning that no other worker's ID has. The worker gets the order
        within a sixth of its session time-out. With `wait` this returns when the worker has signed
        off, or raises WaitTimeout after `timeout` seconds. Repeating the call does no harm. Returns
        the worker as it was before. Raises WorkerNotFound, AccessDenied and WaitTimeout.
        """
        found = order_worker(self, worker, "draining")
        if wait:
            wait_until_gone(self, [found.id], in_seconds(timeout))
        return found

    @told_to_caller
    def pause_worker(self, worker: str) -> WorkerRecord:
        """Stop a worker from claiming tasks until `resume_worker`. Its running tasks go on.

        Otherwise as `drain_worker`. Raises ZkplanError if the worker drains.
        """
        return order_worker(self, worker, "paused")

    @told_to_caller
    def resume_worker(self, worker: str) -> WorkerRecord:
        """Let a paused worker claim again. Otherwise as `pause_worker`."""
        return order_worker(self, worker, "running")


# ---- What tasks wait for besides their arguments: list the queues, list and set the limits.


class QueuesAndLimits(Connection):
    """The calls of a client about queues and limits."""

    def queues(self) -> list[QueueStatus]:
        """The queues of all active plans and of all workers, by name.

        Reads one znode for each unfinished task of the plans that use other queues than "default".
        """
        return queue_statuses(self)

    def limits(self) -> list[LimitStatus]:
        """All limits under the root, by name, each with its permits in use."""
        return self.transport.run(list_limits(self.paths, time.time()))

    def set_limit(self, name: str, size: int, *, per: Per | None = None) -> None:
        """Let at most `size` tasks that name this limit run at the same time.

        With `per`, a "second", "minute", "hour" or "day", the limit is a rate instead: at most
        `size` attempts start within any such time, by the server's clock. Makes the limit, or
        changes its size; a lower size stops no running task. Raises ZkplanError for a wrong name,
        size or `per`, and if the call would turn a rate into a limit without `per`, or the other
        way.
        """
        check_limit(name, size, per)
        self.transport.run(ensure_root(self.paths))
        self.transport.run(set_limit(self.paths, name, size, per))

    def remove_limit(self, name: str) -> bool:
        """Remove a limit. Returns whether it existed. Tasks that name it wait until it is set
        again.

        Raises ZkplanError while running tasks hold its permits.
        """
        check_limit(name, 0)
        return self.transport.run(remove_limit(self.paths, name))
