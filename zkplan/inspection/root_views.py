"""What a client shows of all plans under its root: tasks of any plan, and an overview."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ..basics.durations import Duration, in_seconds
from ..connection import Connection
from ..protocol.look import refuse_hidden
from .across import Filter, FoundTask, find_tasks
from .overview import Observer


class RootViews(Connection):
    """The views of a client that are of no single plan."""

    def tasks(
        self,
        *,
        state: str | None = None,
        worker: str | None = None,
        name: str | None = None,
        error: str | None = None,
        longer_than: Duration | None = None,
    ) -> Iterator[FoundTask]:
        """The unfinished tasks of all plans that match everything given, by plan and number.

        `state` is one that `Plan.tasks` gives, or more exactly for claimed tasks: "running",
        "claimed ahead" (its worker has no slot for it yet), "left behind" (its worker is gone).
        `worker` is an ID or its beginning. `name` and `error` are patterns as for file names:
        `error` for the type of the last exception, such as "Timeout*". `longer_than`: in that state
        for more than so many seconds, by the clock here.

        The tree has no record of what runs: the oldest claims of a worker, as many as it has slots,
        count as running, since they were claimed. If `state` is a claimed one, or `worker` is
        given, only claims and their tasks are read, and all unfinished tasks otherwise if `state`
        is "waiting", "being defined" or None. Raises InvalidTask for another state, and
        AccessDenied behind the last task if there are plans that may not be read.
        """
        found = find_tasks(self, Filter(state, worker, name, error, in_seconds(longer_than)))
        return chain(found, self._then_refuse_hidden())

    def _then_refuse_hidden(self) -> Iterator[FoundTask]:
        self.transport.run(refuse_hidden(self.paths))
        yield from ()

    def observer(self) -> Observer:
        """What looks at all active plans, queues and workers, as `zkplan top` does.

        Each `look()` returns an Overview. Its rates are those between the looks of one observer, so
        the first has none.
        """
        return Observer(self)
