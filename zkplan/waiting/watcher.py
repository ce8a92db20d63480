"""Call back when tasks complete: one thread for all tasks of a plan, while any is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from ..log import get_logger
from .group import Group, Waited
from .outcomes import with_outcomes
from .plan_tasks import Completed

logger = get_logger("zkplan.plan")

T = TypeVar("T", bound=Waited)
#: Gets what has completed, and the sealed outcome of it if that is kept. It must not block.
Callback = Callable[[Completed, "bytes | None"], None]


class Watcher(Generic[T]):
    """Waits for tasks in a thread of its own, and calls back from there. It is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._group: Group[T] | None = None
        self._fresh: list[T] = []
        self._callbacks: dict[str, list[Callback]] = {}

    def add(self, task: T, callback: Callback) -> None:
        """Call back once when `task` completes, at once if it has. Raises PlanError where a
        wait for it would never end."""
        _, _, number = task._waited_for()
        with self._lock:
            self._fresh.append(task)
            self._callbacks.setdefault(number, []).append(callback)
            if self._group is not None:
                self._group.hurry()
                return
            self._group = Group()
        threading.Thread(
            target=self._run, args=[self._group], name="zkplan-watcher", daemon=True
        ).start()

    def discard(self, task: T, callback: Callback) -> None:
        """Do not call back any more. Does nothing if it was called already."""
        _, _, number = task._waited_for()
        with self._lock:
            waiting = self._callbacks.get(number, [])
            if callback in waiting:
                waiting.remove(callback)
            if not waiting:
                self._callbacks.pop(number, None)
            if self._group is not None:
                self._group.woken.set()

    def _run(self, group: Group[T]) -> None:
        with group:
            while True:
                with self._lock:
                    if not self._callbacks:
                        self._group, self._fresh = None, []
                        return
                    fresh, self._fresh = self._fresh, []
                    group.woken.clear()
                try:
                    group.add(fresh)
                    for (_, completed), outcome in with_outcomes(group.look()):
                        self._tell(completed, outcome)
                except Exception as error:
                    self._tell_all(error)
                    continue
                group.pause()

    def _tell(self, completed: Completed, outcome: bytes | None) -> None:
        with self._lock:
            waiting = self._callbacks.pop(completed.number, [])
        for callback in waiting:
            try:
                callback(completed, outcome)
            except BaseException:  # SystemExit, too: the others still wait to be told
                logger.exception("a callback for task-%s failed", completed.number)

    def _tell_all(self, error: Exception) -> None:
        """ZooKeeper cannot be asked, so nobody would ever be told."""
        with self._lock:
            numbers = list(self._callbacks)
        for number in numbers:
            self._tell(Completed(number, False, error), None)
