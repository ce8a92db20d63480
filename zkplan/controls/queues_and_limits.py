"""What tasks wait for besides their arguments: see the queues, see and set the limits."""

from __future__ import annotations

import time

from ..connection import Connection
from ..inspection.queues import QueueStatus, queue_statuses
from ..protocol.author import ensure_root
from ..protocol.limits import LimitStatus, Per, check_limit, list_limits, remove_limit, set_limit


class QueuesAndLimits(Connection):
    """What a client does with queues and limits."""

    def queues(self) -> list[QueueStatus]:
        """The queues of all active plans and of all workers, by name.

        Reads one znode for each unfinished task of a plan that uses other queues than the default
        one.
        """
        return queue_statuses(self)

    def limits(self) -> list[LimitStatus]:
        """All limits under the root, by name, each with the permits that are held."""
        return self.transport.run(list_limits(self.paths, time.time()))

    def set_limit(self, name: str, size: int, *, per: Per | None = None) -> None:
        """Let at most `size` tasks that name this limit run at the same time.

        With `per`, a "second", "minute", "hour" or "day", let at most `size` of them start within
        any such time, by the server's clock; each attempt counts. Makes the limit, or changes its
        size; a lower size stops no task that runs. Raises ZkplanError for a wrong name, size or
        `per`, and if a rate is to become none, or the other way.
        """
        check_limit(name, size, per)
        self.transport.run(ensure_root(self.paths))
        self.transport.run(set_limit(self.paths, name, size, per))

    def remove_limit(self, name: str) -> bool:
        """Remove a limit. Returns whether it existed. Tasks that name it wait until it is set
        again.

        Raises ZkplanError while tasks that hold permits of it run.
        """
        check_limit(name, 0)
        return self.transport.run(remove_limit(self.paths, name))
