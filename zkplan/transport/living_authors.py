"""The author of a plan with a key counts as living while the handle lives that he defines it by."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from ..errors import ZkplanError
from ..protocol.keys import create_keyed
from ..protocol.layout import Paths, author_mark
from ..protocol.records import PlanRecord
from ..protocol.requests import Delete, Multi
from .transport import Transport


class LivingAuthors:
    """Holds the marks of the plans that one client defines, and deletes each with its handle.

    A handle may be dropped by the garbage collector at any place of any thread, which may hold any
    lock. So that only notes the mark, and a thread deletes it, which runs while there are marks.
    Where the process or its session ends, ZooKeeper deletes them.
    """

    #: For how long an author counts as living after each add, where he has no session, as those of
    #: a service. 0 where he is this process.
    lease_ms = 0

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._handles: dict[str, weakref.finalize[[], Any]] = {}
        self._dropped: deque[str] = deque()
        self._woken: SimpleQueue[None] = SimpleQueue()
        self._is_running = False

    def create(
        self, paths: Paths, record: PlanRecord, replaces: bool, tell: Callable[[str], None]
    ) -> tuple[str, bool]:
        """Run `create_keyed`. Raises as that."""
        self.release()
        marks: list[str] = []
        step = create_keyed(
            *(paths, record, replaces, tell), lease_ms=self.lease_ms, marks=marks.append
        )
        try:
            return self._transport.run(step)
        except BaseException:
            # The plan may have been made all the same, and no handle holds its mark then.
            if marks:
                self._delete(marks[-1])
            raise

    def hold(self, handle: object, plan_path: str, uid: str) -> None:
        """The mark of that plan stands until the handle is dropped, or `let_go`."""
        if self.lease_ms:
            return
        mark, dropped, woken = author_mark(plan_path, uid), self._dropped, self._woken

        def drop() -> None:
            dropped.append(mark)
            woken.put(None)

        with self._lock:
            self._handles[mark] = held = weakref.finalize(handle, drop)
            held.atexit = False
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="zkplan-authors", daemon=True).start()

    def let_go(self, plan_path: str, uid: str) -> None:
        """The plan is defined: its mark is gone."""
        with self._lock:
            held = self._handles.pop(author_mark(plan_path, uid), None)
        if held is not None and held.detach():
            self._woken.put(None)

    def _delete(self, mark: str) -> None:
        """Delete a mark, without waiting for that."""
        with suppress(ZkplanError):  # the client is closed, and its session with it
            self._transport.submit(Multi([Delete(mark)]), lambda answer, error: None)

    def release(self) -> None:
        """Delete the marks of dropped handles. What this client asks behind it finds them gone."""
        with self._lock:
            while self._dropped:
                mark = self._dropped.popleft()
                self._handles.pop(mark, None)
                self._delete(mark)

    def close(self) -> None:
        """Nobody defines these plans any more: the session may be another one's, and go on."""
        if os.getpid() != self._pid:
            return  # a fork may have copied the lock while a thread of the parent held it
        with self._lock:
            for mark, held in self._handles.items():
                held.detach()
                self._delete(mark)
            self._handles.clear()
        self._woken.put(None)

    def _run(self) -> None:
        while True:
            self._woken.get()
            self.release()
            with self._lock:
                if not self._handles:
                    self._is_running = False
                    return
