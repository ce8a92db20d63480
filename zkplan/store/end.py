"""The end of a plan in the store: what nobody needs goes when it is done, the rest with it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Sequence

from ..errors import PlanNotFound, ZkplanError
from ..log import get_logger
from ..protocol import control
from ..protocol.requests import ReadChildren, ReadData, Step
from ..transport import Transport
from .reference import key_of
from .values import Values

#: How long the end of a client waits for its sweeps.
CLOSE_S = 5.0
#: How long the thread waits for another plan before it ends.
IDLE_S = 1.0
logger = get_logger("zkplan.store")


def remove(transport: Transport, values: Values, plan_path: str) -> int:
    """Remove a plan, and then its folder in the store. Returns how many unfinished tasks it had.

    A store that is away costs a warning: the plan is removed all the same.
    """
    folder = values.known_folder_of(plan_path)
    try:
        removed = int(transport.run(control.remove(plan_path)))
    except PlanNotFound:
        # The folder is known all the same: an earlier removal here had no answer.
        _delete_folder(values, plan_path, folder)
        raise
    _delete_folder(values, plan_path, folder)
    return removed


def _delete_folder(values: Values, plan_path: str, folder: str) -> None:
    if values.store is None or not folder:
        return
    try:
        values.store.delete_folder(folder)
    except ZkplanError as error:
        logger.warning(
            "%s is removed, but not its folder %s, which may be deleted by hand: %s",
            *(plan_path, folder, error),
        )


def leftovers(plan_path: str, names: Sequence[str]) -> Step[list[str]]:
    """Those of the blobs that nothing refers to any more, if the plan is done; else none of them.

    The kept results are listed after `done` was seen. So the list shows all of them: a plan that is
    done has no task that could get another one.
    """
    if (yield ReadData(f"{plan_path}/done")) is None:
        return []
    kept = yield ReadChildren(f"{plan_path}/results")
    return [] if kept is None else swept(names, set(kept))


def swept(names: Sequence[str], kept: Collection[str]) -> list[str]:
    """Those blobs of a plan that is done which go: `kept` are the tasks whose results stay.

    >>> swept(["0000000005.1-aa", "0000000006.1-bb", "add-cc"], {"0000000005"})
    ['0000000006.1-bb', 'add-cc']
    """
    return [name for name in names if key_of(name).partition(".")[0] not in kept]


class Sweeper:
    """Deletes what plans that are done have left in the store, on a thread of its own.

    One plan at a time. An error is only logged: `zkplan plan check` finds what is left, and
    `zkplan plan rm` deletes it.
    """

    def __init__(self, transport: Transport, values: Values) -> None:
        self._transport, self._values = transport, values
        self._changed = threading.Condition()
        self._due: deque[str] = deque()
        self._is_running = self._is_closed = False

    def plan_is_done(self, plan_path: str) -> None:
        """Sweep that plan soon. Any thread may call this; it never waits for the store."""
        if self._values.store is None:
            return
        with self._changed:
            if self._is_closed or plan_path in self._due:
                return
            self._due.append(plan_path)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="zkplan-sweep", daemon=True).start()
            self._changed.notify_all()

    def close(self) -> None:
        """Wait for the sweeps that are due, a few seconds at most."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_running, CLOSE_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._is_closed, IDLE_S)
                if not self._due:
                    self._is_running = False
                    self._changed.notify_all()
                    return
                plan_path = self._due.popleft()
            try:
                self._sweep(plan_path)
            except Exception as error:
                logger.warning("%s is done, but its blobs are not swept: %s", plan_path, error)

    def _sweep(self, plan_path: str) -> None:
        store, folder = self._values.store, self._values.known_folder_of(plan_path)
        names = store.names(folder) if store is not None and folder else []
        if store is not None and names:
            store.delete(folder, self._transport.run(leftovers(plan_path, names)))
