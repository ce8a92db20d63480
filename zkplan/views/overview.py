"""Look at a root again and again: an overview of its plans, queues and workers, with rates.

A rate is the difference of two looks. A forecast assumes that the rate stays as it is, and that all
unfinished tasks will run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from ..basics.public_calls import Duration, in_seconds
from ..errors import PlanNotFound
from ..protocol.core.plan_life import PlanStatus
from ..protocol.core.plans_and_queues import refuse_hidden
from ..values.connection import Connection
from .attention import Late, failed_plans, late_things, left_by_authors, not_decoded
from .deadlock import may_stand, status_of
from .find import Filter, find_tasks
from .root_look import PlanNow, QueueNow, WorkerNow, plans_now, queues_now, see, worker_now
from .unfinished import FoundTask, task_names
from .workers import Held, Known

#: How many seconds of the past a rate covers, or fewer while the observer is younger.
WINDOW_S = 30.0


class TaskNow(NamedTuple):
    """A task that a worker holds; `name` is None if it was not read or cannot be read here."""

    held: Held
    name: str | None


class Overview(NamedTuple):
    """What an Observer saw. `tasks` are claimed tasks, held longest first; `held` counts all of
    these. `others` counts the plans that are not active, `failed` the failed ones among them, which
    come first in `late`, and `failed_dead` the dead tasks of the latest FAILED_MAX. `unreadable`
    counts the active plans that this client may not read. `when` is in wall-clock seconds."""

    when: float
    plans: list[PlanNow]
    queues: list[QueueNow]
    workers: list[WorkerNow]
    tasks: list[TaskNow]
    held: int
    late: list[Late]
    others: int
    unreadable: int
    rate: float | None
    failed: int = 0
    failed_dead: int = 0


class Observer:
    """Looks at a root again and again. Not thread-safe."""

    def __init__(self, client: Connection) -> None:
        self._client = client
        self._claims: Known = {}
        self._names: dict[tuple[str, str], str | None] = {}
        #: Inactive plans that are marked ready, or were: done and cancelled ones.
        self._ready: set[str] = set()
        #: The statuses, as read (`running`), of the plans that were proved to have failed.
        self._failed: dict[str, PlanStatus] = {}
        #: When it looked, and how many tasks of each plan had finished then.
        self._looks: deque[tuple[float, dict[str, int]]] = deque()

    def look(self, names: int = 20) -> Overview:
        """Look once. It reads the names of the `names` tasks that are held longest.

        The number of requests grows with plans and workers, by about one for each thousand znodes
        that it reads, and not with the number of tasks. A plan that may have failed takes a few
        more, in each look until that is proved.
        """
        client = self._client
        seen = client.transport.run(see(client, self._claims))
        seen = seen._replace(statuses=self._proved(seen.statuses))
        now, claims = time.time(), seen.held.claims
        rates = self._rates({n: each.finished for n, each in seen.statuses.items()})
        plans, queues = plans_now(seen, rates), queues_now(seen)
        late = [
            *failed_plans(now, seen.failed_numbers, seen.failed),
            *late_things(now, plans, queues, claims, seen.delayed, seen.schedules, seen.unreadable),
            *left_by_authors(client, now, seen.others, self._ready),
            *(not_decoded(client, plans) if seen.held.workers else ()),
        ]
        return Overview(
            when=now,
            plans=plans,
            queues=queues,
            workers=[worker_now(record, claims) for record in seen.held.workers],
            tasks=self._named(claims[:names]),
            held=len(claims),
            late=late,
            others=len(seen.others),
            unreadable=seen.unreadable,
            rate=sum(rates.values()) if rates is not None else None,
            failed=len(seen.failed_numbers),
            failed_dead=sum(each.dead for each in seen.failed),
        )

    def _proved(self, statuses: dict[str, PlanStatus]) -> dict[str, PlanStatus]:
        """The statuses, with the state `failed` where it is proved that no task can run.

        A proof holds until the status changes: a task can run again only after a task is
        added, or stops being dead.
        """
        found = {}
        for number, seen in statuses.items():
            is_failed = seen == self._failed.get(number)
            if not is_failed and may_stand(seen) and seen.dead:
                with suppress(PlanNotFound):  # removed meanwhile
                    seen = status_of(self._client, seen.path)
                    is_failed = seen.state == "failed"
            found[number] = seen._replace(state="failed") if is_failed else seen
        failed = {number: each for number, each in found.items() if each.state == "failed"}
        self._failed = {number: each._replace(state="running") for number, each in failed.items()}
        return found

    def _named(self, held: list[Held]) -> list[TaskNow]:
        new = [(each.plan, each.task) for each in held]
        missing = [key for key in new if key not in self._names]
        found = task_names(self._client, missing)
        self._names = {key: found.get(key, self._names.get(key)) for key in new}
        return [TaskNow(each, self._names[each.plan, each.task]) for each in held]

    def _rates(self, finished: dict[str, int]) -> dict[str, float] | None:
        """How many tasks of each plan finish a second, measured from its first look; None in the
        first look of all."""
        now = time.monotonic()
        self._looks.append((now, finished))
        while len(self._looks) > 2 and now - self._looks[1][0] >= WINDOW_S:
            self._looks.popleft()
        if len(self._looks) < 2:
            return None
        rates = {}
        for plan, count in finished.items():
            since, then = next((at, seen[plan]) for at, seen in self._looks if plan in seen)
            if since < now:
                rates[plan] = max(0, count - then) / (now - since)
        return rates


# ---- What a client shows of all plans under its root: tasks of any plan, and an overview.


class RootViews(Connection):
    """The views of a client that concern all plans."""

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
        `error` for the type of the last exception, such as "Timeout*". `longer_than`: the task
        has been in its state for more than this time, by the clock of this machine.

        The tree does not record which tasks run: the oldest claims of a worker, as many as it has
        slots, count as running since they were made. With `worker`, or a state of claimed tasks,
        this reads only claims and their tasks. Otherwise, it reads all unfinished tasks if `state`
        is "waiting", "being defined" or None. Raises InvalidTask for an unknown state, and
        AccessDenied after the last task if this client may not read some plans.
        """
        found = find_tasks(self, Filter(state, worker, name, error, in_seconds(longer_than)))
        return chain(found, self._then_refuse_hidden())

    def _then_refuse_hidden(self) -> Iterator[FoundTask]:
        self.transport.run(refuse_hidden(self.paths))
        yield from ()

    def observer(self) -> Observer:
        """An observer of all active plans, queues and workers, such as `zkplan top` uses.

        Each `look()` returns an Overview. Rates are measured between the looks of one observer, so
        the first Overview has none.
        """
        return Observer(self)
