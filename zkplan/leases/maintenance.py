"""What a service does beside its calls, so that tasks come back where no worker runs: it releases
leases and lost workers, makes delayed tasks runnable when they are due, delivers what was decided
about tasks under leases, and tidies histories up.
"""

from __future__ import annotations

import threading
import time

from ..basics.text import count
from ..connection import Connection
from ..errors import ZkplanError
from ..log import get_logger
from ..protocol.clearing import clear_claims, orphaned_claims
from ..protocol.compaction import compact
from ..protocol.layout import parse_delayed
from ..protocol.look import promote
from ..protocol.requests import ReadChildren, Step
from ..runtime.lapses import Lapses
from ..runtime.tidying import Written
from .decided import Decided
from .registered import Registered

#: How often it looks while there is something to wait for, and how long workers go first.
PERIOD_S, HEAD_START_S = 1.0, 2.0
#: Without anything to wait for it looks this often, since a watch can be lost.
IDLE_S = 60.0
#: Entries that are promoted at once.
PROMOTED_MAX = 200
logger = get_logger("zkplan.leases")


class Maintenance:
    """A thread that looks when a watch fires, and once a second while leases or delays stand."""

    def __init__(self, connection: Connection, registered: Registered, decided: Decided) -> None:
        self._transport, self._paths = connection.transport, connection.paths
        self._registered, self._decided = registered, decided
        self._lapses = Lapses(self._paths, registered.clock)
        self._written, self._sweeper = Written(connection.recorder), connection.sweeper
        self._first_seen: dict[str, float] = {}
        self._is_due, self._is_over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._loop, name="zkplan-leases", daemon=True)

    def start(self) -> None:
        self._transport.listen(self._touched)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._is_due.set()
        self._thread.join()
        self._transport.unlisten(self._touched)

    def _touched(self, path: str | None) -> None:
        paths = self._paths
        if path is None or path in (paths.workers, paths.claims, paths.delayed):
            self._is_due.set()

    def _loop(self) -> None:
        busy = True
        while not self._is_over.is_set():
            self._is_due.wait(PERIOD_S if busy else IDLE_S)
            self._is_due.clear()
            if self._is_over.is_set():
                return
            try:
                busy = self._look()
            except ZkplanError as error:
                logger.warning("leases cannot be looked after now: %s", error)
                busy = True
            # Claims come and go: their watches may not make this look all the time.
            self._is_over.wait(PERIOD_S)

    def _look(self) -> bool:
        """Returns whether there is something to wait for."""
        run, paths, now = self._transport.run, self._paths, time.monotonic()
        self._registered.measured()
        seen = run(orphaned_claims(paths, watch=True))
        for lease, done in run(self._lapses.release(seen.leases, lambda lease: not seen.living)):
            if done.released:
                logger.warning(
                    "%s has lapsed: %s runnable again", lease, count(len(done.released), "task")
                )
        # Workers claim what is decided, as they claim all else.
        waits = not seen.living and self._decided.deliver(seen.leases)
        for gone in self._first_seen.keys() - set(seen.vacant):
            del self._first_seen[gone]
        for worker in seen.vacant:
            if now - self._first_seen.setdefault(worker, now) >= HEAD_START_S or not seen.living:
                run(clear_claims(paths, worker))
        are_delayed = run(self._promote(not seen.living))
        if (plan := self._written.take(now)) is not None:
            run(compact(paths.plan(plan), has_store=self._sweeper.has_store))
            self._sweeper.history_is_merged(paths.plan(plan))
        return bool(waits or seen.leases or seen.vacant or are_delayed or self._written)

    def _promote(self, alone: bool) -> Step[bool]:
        """Workers see to it where there are some. Returns whether entries are left."""
        names = (yield ReadChildren(self._paths.delayed, watch=True)) or ()
        late_ms = 0 if alone else 1000 * HEAD_START_S
        now_ms = 1000 * self._registered.clock.now() - late_ms
        found = [(name, later) for name in sorted(names) if (later := parse_delayed(name))]
        due = [each for each in found if each[1].due_ms <= now_ms]
        if due:
            yield from promote(self._paths, due[:PROMOTED_MAX])
        return bool(found)
