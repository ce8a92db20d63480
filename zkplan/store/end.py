"""The end of a plan in the store: what nobody needs goes when it is done, the rest with it. And the
thread that does this, and moves histories there.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence

from ..errors import PlanNotFound, ZkplanError
from ..log import get_logger
from ..protocol import removal
from ..protocol.control import failed_tasks
from ..protocol.requests import ReadChildren, ReadData, Step
from ..protocol.unproven import Unproven
from ..transport import Transport
from .parts import keep_oldest
from .reference import HISTORY, key_of
from .values import Values

#: How long the end of a client waits for its sweeps.
CLOSE_S = 5.0
#: How long the thread waits for another plan before it ends.
IDLE_S = 1.0
logger = get_logger("zkplan.store")


def remove(
    transport: Transport, values: Values, plan_path: str, end: int | None = None
) -> int | None:
    """Remove a plan, and then its folder in the store. Returns how many unfinished tasks it had;
    None where `end` (see `removal.remove`) lets it stay.

    A store that is away costs a warning: the plan is removed all the same.
    """
    folder = values.known_folder_of(plan_path)
    try:
        removed: int | None = transport.run(removal.remove(plan_path, end))
    except PlanNotFound:
        # The folder is known all the same: an earlier removal here had no answer.
        _delete_folder(values, plan_path, folder)
        raise
    if removed is not None:
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
    done has no task that could get another one. Where tasks have failed, all blobs stay as long as
    the plan: a retry may need them.
    """
    done = yield ReadData(f"{plan_path}/done")
    if done is None or isinstance(done.data, Unproven) or failed_tasks(done.data):
        return []
    kept = yield ReadChildren(f"{plan_path}/results")
    return [] if kept is None else swept(names, set(kept))


def swept(names: Sequence[str], kept: Collection[str]) -> list[str]:
    """Those blobs of a plan that is done which go: `kept` are the tasks whose results stay. Its
    history stays, too.

    >>> swept(["0000000005.1-aa", "0000000006.1-bb", "add-cc", "history-dd"], {"0000000005"})
    ['0000000006.1-bb', 'add-cc']
    """
    stays = {HISTORY, *kept}
    return [name for name in names if key_of(name).partition(".")[0] not in stays]


class Sweeper:
    """Deletes what plans that are done have left in the store, and moves there what is too much of
    a history, on a thread of its own.

    One plan at a time. An error is only logged: `zkplan plan check` finds what is left, and
    `zkplan plan rm` deletes it. What could not be moved is told to `again`.
    """

    def __init__(
        self, transport: Transport, values: Values, again: Callable[[str], None] = lambda _: None
    ) -> None:
        self._transport, self._values, self._again = transport, values, again
        self._changed = threading.Condition()
        self._due: deque[tuple[Callable[[str], None], str]] = deque()
        self._is_running = self._is_closed = False
        #: The plans whose histories wait for the store.
        self._waiting = set[str]()

    @property
    def has_store(self) -> bool:
        return self._values.store is not None

    def plan_is_done(self, plan_path: str) -> None:
        """Sweep that plan soon. Any thread may call this; it never waits for the store."""
        self._put(self._sweep, plan_path)

    def history_is_merged(self, plan_path: str) -> None:
        """Move the oldest parts of that history soon, if it is too long. As `plan_is_done`."""
        self._put(self._keep, plan_path)

    def _put(self, job: Callable[[str], None], plan_path: str) -> None:
        if self._values.store is None:
            return
        with self._changed:
            if self._is_closed or (job, plan_path) in self._due:
                return
            self._due.append((job, plan_path))
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
                job, plan_path = self._due.popleft()
            job(plan_path)

    def _sweep(self, plan_path: str) -> None:
        try:
            store, folder = self._values.store, self._values.known_folder_of(plan_path)
            names = store.names(folder) if store is not None and folder else []
            if store is not None and names:
                store.delete(folder, self._transport.run(leftovers(plan_path, names)))
        except Exception as error:
            logger.warning(
                "%s is done, but what it left in the store is not deleted: %s", plan_path, error
            )

    def _keep(self, plan_path: str) -> None:
        try:
            keep_oldest(self._transport, self._values, plan_path)
            self._waiting.discard(plan_path)
        except Exception as error:
            if plan_path not in self._waiting:
                self._waiting.add(plan_path)
                logger.warning(
                    "the oldest history of %s stays in the tree, and goes to the store later: %s",
                    *(plan_path, error),
                )
            self._again(plan_path)
