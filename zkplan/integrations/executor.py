"""Run calls of concurrent.futures as tasks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from functools import partial
from typing import Any

from ..author.completion import Completed
from ..author.results import open_outcome
from ..author.task_specs import TaskSpec
from ..basics.log import get_logger
from ..client import Client
from ..errors import ClientClosed, PlanDrained, PlanNotFound, ResultNotKept, ZkplanError
from ..plan import Plan
from ..tasks import Task

logger = get_logger("zkplan.plan")

#: The most calls that one add carries.
BATCH_MAX = 2000
#: Seconds between two looks of a cancelled executor for calls that were handed back.
_LOOK_S = 0.2


class Executor(futures.Executor):
    """Runs each call as a task, on the workers of the client's root.

        with zkplan.local() as client, zkplan.Executor(client) as executor:
            squares = list(executor.map(square, range(100)))

    The calls survive the death of any worker. Their futures end with this process: use a plan if
    the results must outlive it. `cancel` of a future also cancels its task: a running call sees
    `current().cancelled`. `running` of a future is never True. An executor is thread-safe.

    The calls are tasks of a plan. After the plan has drained, the next call begins another plan. A
    plan is removed when its last future is done.
    """

    def __init__(self, client: Client, name: str = "executor", **options: Any) -> None:
        """`options` are those of `Client.create_plan`; `attempts` is 1 by default."""
        self._client, self._name = client, name
        # With "cascade" a failed call counts as ended, so that the plan drains.
        self._options = {"attempts": 1, **options, "keep": True, "on_failure": "cascade"}
        #: Calls to send, tasks to cancel, and None after the last call.
        self._queue: queue.SimpleQueue[_Call | Task | None] = queue.SimpleQueue()
        self._lock = threading.Condition()
        #: Held while calls are added and noted, and while a plan is removed, so that no call is
        #: added to a plan that is being removed.
        self._plan_lock = threading.Lock()
        self._is_shut = self._is_all_sent = False
        #: The sent calls whose futures are not done, by plan, until the plan is removed.
        self._open: dict[Plan, dict[Task, _Call]] = {}
        self._plan: Plan | None = None
        self._sender = threading.Thread(target=self._send_all, name="zkplan-executor", daemon=True)
        self._sender.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """See `concurrent.futures.Executor.submit`. A future fails if its call cannot be sent."""
        call = _Call(TaskSpec(fn, args, kwargs))
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._queue.put(call)
        return call.future

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After Ctrl-C nobody waits for the calls.
        stopped = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.shutdown(wait=not stopped, cancel_futures=stopped)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `concurrent.futures.Executor.shutdown`.

        With `cancel_futures` and without `wait`, or after Ctrl-C, running calls are also cancelled:
        they see `current().cancelled`.
        """
        with self._lock:
            first, self._is_shut = not self._is_shut, True
        if first:
            if cancel_futures:
                self._cancel_queued()
            self._queue.put(None)
        try:
            if cancel_futures or wait:
                self._sender.join()
            if cancel_futures and wait:
                self._cancel_sent()
            if wait:
                with self._lock:
                    self._lock.wait_for(lambda: not self._open)
        except KeyboardInterrupt:
            self._give_up()
            raise
        if cancel_futures:
            self._give_up()

    # ---- sending, in a thread of its own, which adds calls that arrive together in one batch

    def _send_all(self) -> None:
        while self._send_batch():
            pass
        with self._lock:
            self._is_all_sent = True
            plans = list(self._open)
        for plan in plans:
            self._remove_unused(plan)

    def _send_batch(self) -> bool:
        """Wait for calls, and send all that have arrived. Returns whether more may come."""
        batch = [self._queue.get()]
        try:
            while len(batch) < BATCH_MAX:
                batch.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        calls = [each for each in batch if type(each) is _Call and not each.future.cancelled()]
        forgotten = [each for each in batch if isinstance(each, Task)]
        is_last = None in batch
        batch.clear()  # a reference to the future would keep its result in memory
        try:
            self._send(calls)
        except ZkplanError:
            for call in calls:  # one bad call must not fail the others
                try:
                    self._send([call])
                except Exception as error:
                    call.end(error=error)
        except Exception as error:
            for call in calls:
                call.end(error=error)
        for task in forgotten:
            with suppress(ZkplanError):  # the task has ended, or its plan was removed
                task.cancel()
        return not is_last

    def _send(self, calls: list[_Call]) -> None:
        if not calls:
            return
        specs = [call.spec for call in calls]
        with self._plan_lock:
            plan = self._plan
            try:
                if plan is None:
                    raise PlanDrained("", "there is no plan yet")
                tasks = plan.add_tasks(specs)
            except (PlanDrained, PlanNotFound):
                # Add the calls before the plan is ready, because an empty plan would drain at once.
                with self._client.create_plan(self._name, **self._options) as plan:
                    tasks = plan.add_tasks(specs)
                self._plan = plan
            with self._lock:
                self._open.setdefault(plan, {}).update(zip(tasks, calls, strict=True))
        for task, call in zip(tasks, calls, strict=True):
            call.future.add_done_callback(partial(self._forget, task))
        calls.clear()
        for task in tasks:
            task._watch(self._ended(plan, task))

    def _forget(self, task: Task, future: futures.Future[Any]) -> None:
        if future.cancelled() and not self._is_all_sent:
            self._queue.put(task)

    def _ended(self, plan: Plan, task: Task) -> Callable[[Completed, bytes | None], None]:
        def ended(completed: Completed, outcome: bytes | None) -> None:
            with self._lock:
                call = self._open.get(plan, {}).pop(task, None)
            if call is not None:
                try:
                    if completed.error is not None:
                        raise completed.error
                    if outcome is None:
                        raise ResultNotKept(task.name, f"the result of {task!r} was lost")
                    call.end(open_outcome(self._client.values, outcome, task.path, task.name))
                except Exception as error:
                    call.end(error=error)
            self._remove_unused(plan)

        return ended

    def _remove_unused(self, plan: Plan) -> None:
        """Remove a plan if all of its calls have ended and it gets no further ones, because it has
        drained or all calls were sent."""
        with self._plan_lock:
            if self._open.get(plan, True):
                return
            try:
                if not self._is_all_sent and not plan.is_drained():
                    return
                plan.remove()
            except ZkplanError as error:
                logger.warning("%s of an executor was not removed: %s", plan.path, error)
            with self._lock:
                self._open.pop(plan, None)
                self._lock.notify_all()

    # ---- cancelling

    def _give_up(self) -> None:
        """Cancel all calls, also running ones, and remove the plans."""
        self._cancel_queued()
        self._queue.put(None)  # again, because `_cancel_queued` took the first one
        with self._plan_lock:
            for plan in list(self._open):
                with self._lock:
                    calls = list(self._open.pop(plan, {}).values())
                try:
                    plan.remove()
                except ZkplanError as error:
                    logger.warning("%s of an executor was not removed: %s", plan.path, error)
                for call in calls:
                    call.future.cancel()
                    call.end()  # wake up the threads that wait for the future
            with self._lock:
                self._lock.notify_all()

    def _cancel_queued(self) -> None:
        try:
            while (call := self._queue.get_nowait()) is not None:
                if type(call) is _Call:
                    call.future.cancel()
        except queue.Empty:
            pass

    def _cancel_sent(self) -> None:
        """Let running calls end, and prevent all others from beginning."""
        with self._lock:
            plans = list(self._open)
        for plan in plans:
            try:
                plan.pause()
            except ZkplanError:
                continue  # the plan has drained meanwhile
            if self._cancel_waiting(plan):
                threading.Thread(target=self._cancel_handed_back, args=(plan,), daemon=True).start()

    def _cancel_waiting(self, plan: Plan) -> bool:
        """Cancel the unclaimed calls of a paused plan. Returns whether any call is claimed."""
        with self._lock:
            calls = dict(self._open.get(plan, {}))
        try:
            states = {task.number: task.state for task in plan.tasks()}
        except (PlanNotFound, ClientClosed):
            return False
        except ZkplanError:
            return True  # no server answers: try again
        for task, call in calls.items():
            # A task that is missing has ended, and its outcome will arrive.
            if states.get(task.number, "running") != "running":
                call.future.cancel()
                self._ended(plan, task)(Completed(task.number, False), None)
        return any(states.get(task.number) == "running" for task in calls)

    def _cancel_handed_back(self, plan: Plan) -> None:
        """Cancel calls that workers hand back before they began, because in a paused plan such
        calls never run, and their futures would never end."""
        with self._lock:
            self._lock.wait(_LOOK_S)
        while self._cancel_waiting(plan):
            with self._lock:
                self._lock.wait(_LOOK_S)


class _Call:
    """A submitted call and its future."""

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec
        self.future: futures.Future[Any] = futures.Future()

    def end(self, result: Any = None, error: BaseException | None = None) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)
