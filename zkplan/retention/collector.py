"""Remove plans whose retention is over, for a worker: one at a time, on a thread of its own.

Any number of workers may do it at once. Who dies midway leaves a plan that is done or cancelled
still, so that another one finds it, and removes the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ..basics.text import age
from ..connection import Connection
from ..errors import UNREACHABLE, PlanNotFound, ZkplanError
from ..log import get_logger
from ..protocol import failpoints
from ..protocol.bounds import Over, is_over, read_bounds
from ..protocol.layout import Paths
from ..protocol.requests import Step
from ..store.end import remove
from .archived import archive_plan

logger = get_logger("zkplan.worker")


class Collector:
    """Removes plans for one worker."""

    def __init__(self, client: Connection) -> None:
        self._client = client
        #: What was logged, so that a store that is away is told of once.
        self._told: set[str] = set()
        #: How many tries to archive and remove a plan have failed.
        self.failures = 0

    def start(
        self,
        plans: Sequence[str],
        now: Callable[[], float],
        goes_on: Callable[[], bool],
        ended: Callable[[list[str]], None],
    ) -> None:
        """Remove these plans, as far as their retention is over at `now()`, which is the server's
        time, and while `goes_on()`. Returns at once.

        `ended` gets those that still stand, on the thread of the removals. Each plan is read anew
        before.
        """

        def run() -> None:
            left = list[str]()
            for plan in plans:
                if not (goes_on() and self._removed(plan, now)):
                    left.append(plan)
            ended(left)

        threading.Thread(target=run, name="zkplan-retention", daemon=True).start()

    def _removed(self, plan: str, now: Callable[[], float]) -> bool:
        client = self._client
        path = client.paths.plan(plan)
        try:
            found, archives = client.transport.run(_decide(client.paths, plan, now()))
            if found is None:
                return False
            failpoints.reach("retention.before")
            archive = archive_plan(client, path) if archives else ""
            if remove(client.transport, client.values, path, found.end) is None:
                return False  # somebody has retried it
        except PlanNotFound:
            return True  # another worker was faster
        except UNREACHABLE:
            return False
        except Exception as error:
            # A store, or a znode that somebody else has made: it must not end the worker.
            self.failures += 1
            self._tell(path, error)
            return False
        name = found.record.name if found.record is not None else ""
        ago = age(now() - found.ended)
        kept = f", its archive is {archive}" if archive else ""
        logger.info("%s %r is removed: it was %s %s%s", path, name, found.state, ago, kept)
        return True

    def _tell(self, path: str, error: Exception) -> None:
        why = str(error) if isinstance(error, ZkplanError) else repr(error)
        if why not in self._told:
            self._told.add(why)
            logger.warning("the retention of %s is over, but it stays: %s", path, why)


def _decide(paths: Paths, plan: str, now: float) -> Step[tuple[Over | None, bool]]:
    """Whether the plan may go, and is archived before."""
    found = yield from is_over(paths, plan, now)
    archives = found is not None and (yield from read_bounds(paths)).archive
    return found, archives
