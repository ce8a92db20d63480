"""See all active plans, queues and workers under a root at a glance, with rates and forecasts.

An Observer looks as often as it is asked. A rate is the difference of two looks; a forecast assumes
that the rate stays as it is and that all unfinished tasks will run.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from ..basics.public_calls import Duration, in_seconds
from ..errors import PlanNotFound, ZkplanError
from ..protocol.core.plan_life import PlanStatus, status
from ..protocol.core.plans_and_queues import read_queues, refuse_hidden
from ..protocol.core.workers import WorkerRecord
from ..protocol.features.schedules import Schedule, list_schedules, read_schedule
from ..protocol.layout import DEFAULT_QUEUE, parse_delayed, parse_gate, parse_plan
from ..protocol.requests import Node, ReadChildren, ReadData, ReadMany, Step
from ..values.connection import Connection, together
from .attention import (
    FailedPlans,
    Late,
    failed_plans,
    late_plans,
    late_things,
    left_by_authors,
    not_decoded,
)
from .deadlock import may_stand, status_of
from .find_tasks import Filter, FoundTask, find_tasks, task_names
from .workers import AHEAD, LEFT, RUNNING, Held, HeldTasks, Known, held_tasks

#: Rates are over the last so many seconds, as far as the observer has looked then.
WINDOW_S = 30.0
#: Of an index with more entries than this only the number is read, so that a look stays cheap.
LISTED_MAX = 2000


class PlanNow(NamedTuple):
    """An active plan. `delayed` and `gated` are None where too many stand there to be listed.

    `rate` is in finished tasks a second, and `left` the seconds until its end if the rate stays;
    None where it is unknown, as in the first look, or where nothing ends.
    """

    status: PlanStatus
    number: str
    running: int = 0
    ahead: int = 0
    delayed: int | None = 0
    gated: int | None = 0
    rate: float | None = None
    left: float | None = None


class QueueNow(NamedTuple):
    """A queue of active plans: `running` and `ahead` count claims, `workers` those that serve
    it."""

    name: str
    runnable: int
    running: int
    ahead: int
    workers: int


class WorkerNow(NamedTuple):
    """A living worker. `since` is when it claimed the task that it holds longest."""

    record: WorkerRecord
    running: int
    ahead: int
    since: float | None


class TaskNow(NamedTuple):
    """A task that a worker holds; `name` is None where it was not read or cannot be read here."""

    held: Held
    name: str | None


class Overview(NamedTuple):
    """What an Observer saw. `tasks` are claimed ones, held longest first; `held` counts all of
    them. `others` counts the plans that are not active, `failed` those of them that have failed,
    which also come first in `late`, and `failed_dead` their dead tasks. `unreadable` counts active
    ones that this client may not read. `when` is in wall-clock seconds."""

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


class _Seen(NamedTuple):
    """What one look has read."""

    statuses: dict[str, PlanStatus]
    queues: Counter[str]
    held: HeldTasks
    delayed: dict[str, list[float]] | None
    gated: Counter[str] | None
    schedules: list[Schedule]
    others: list[str]
    unreadable: int
    failed: FailedPlans


class Observer:
    """Looks at a root again and again. Not thread-safe."""

    def __init__(self, client: Connection) -> None:
        self._client = client
        self._claims: Known = {}
        self._names: dict[tuple[str, str], str | None] = {}
        #: Inactive plans that are marked ready, or were: done and cancelled ones.
        self._ready: set[str] = set()
        #: The plans that were proved to have failed, as they were read: as running ones.
        self._failed: dict[str, PlanStatus] = {}
        #: When it looked, and how many tasks of each plan had finished then.
        self._looks: deque[tuple[float, dict[str, int]]] = deque()

    def look(self, names: int = 20) -> Overview:
        """Look once. It reads the names of the `names` tasks that are held longest.

        The number of requests grows with plans and workers, by about one for each thousand znodes
        that it reads, and not with the number of tasks. A plan that may have failed takes a few
        more, in each look until that is proved.
        """
        seen = self._client.transport.run(_see(self._client, self._claims))
        seen = seen._replace(statuses=self._proved(seen.statuses))
        now = time.time()
        rates = self._rates({n: each.finished for n, each in seen.statuses.items()})
        plans = _plans(seen, rates)
        queues = _queues(seen)
        return Overview(
            now,
            plans,
            queues,
            [_worker(record, seen.held.claims) for record in seen.held.workers],
            self._named(seen.held.claims[:names]),
            len(seen.held.claims),
            [
                *late_plans(now, seen.failed),
                *late_things(
                    *(now, plans, queues, seen.held.claims, seen.delayed, seen.schedules),
                    seen.unreadable,
                ),
                *left_by_authors(self._client, now, seen.others, self._ready),
                *(not_decoded(self._client, plans) if seen.held.workers else ()),
            ],
            len(seen.others),
            seen.unreadable,
            sum(rates.values()) if rates is not None else None,
            len(seen.failed.numbers),
            sum(each.dead for each in seen.failed.shown),
        )

    def _proved(self, statuses: dict[str, PlanStatus]) -> dict[str, PlanStatus]:
        """The same, with `failed` as Plan.status says it: where it is proved that nothing can run.

        What was proved holds as long as the status stays the same: whatever lets a task run takes
        one from the dead ones, or adds one.
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
        """By plan, tasks a second; None in the first look. A new plan counts from its first
        look."""
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


def _see(client: Connection, known: Known) -> Step[_Seen]:
    paths = client.paths
    reads = [ReadChildren(paths.root), ReadChildren(paths.active)]
    sizes = [ReadData(paths.delayed), ReadData(paths.gates)]
    names, active, delayed, gates = yield ReadMany([*reads, *sizes])
    numbers = sorted(set(active or ()) & {parse_plan(name) for name in names or ()} - {None})
    statuses = yield from together([status(paths.plan(number)) for number in numbers])
    queues = yield from together([read_queues(paths.plan(number)) for number in numbers])
    found, runnable = {}, Counter[str]()
    for number, seen, theirs in zip(numbers, statuses, queues, strict=True):
        if not isinstance(seen, ZkplanError):
            found[number] = seen
        if not isinstance(theirs, ZkplanError):
            runnable.update({queue: node.child_count for queue, node in theirs.items()})
    later = yield from _listed(paths.delayed, delayed)
    gated = yield from _listed(paths.gates, gates)
    return _Seen(
        found,
        runnable,
        (yield from held_tasks(paths, known)),
        None if later is None else _due(later),
        None if gated is None else Counter(g.plan for g in map(parse_gate, gated) if g),
        (yield from _schedules(client)),
        sorted({n for name in names or () if (n := parse_plan(name))} - {*numbers}),
        sum(isinstance(each, ZkplanError) for each in statuses),
        (yield from failed_plans(paths)),
    )


def _listed(path: str, node: Node | None) -> Step[list[str] | None]:
    """The names there; None if they are too many."""
    if node is None or not node.child_count:
        return []
    return ((yield ReadChildren(path)) or []) if node.child_count <= LISTED_MAX else None


def _due(names: list[str]) -> dict[str, list[float]]:
    """When the delayed tasks of each plan are due, in wall-clock seconds."""
    due: dict[str, list[float]] = {}
    for delayed in map(parse_delayed, names):
        if delayed is not None:
            due.setdefault(delayed.plan, []).append(delayed.due_ms / 1000)
    return due


def _schedules(client: Connection) -> Step[list[Schedule]]:
    names = yield from list_schedules(client.paths)
    found = yield from together([read_schedule(client.paths, name) for name in names])
    return [each for each in found if not isinstance(each, ZkplanError)]


def _plans(seen: _Seen, rates: dict[str, float] | None) -> list[PlanNow]:
    states = Counter((held.plan, held.state) for held in seen.held.claims)
    found = []
    for number, each in seen.statuses.items():
        rate = rates.get(number) if rates is not None else None
        left = each.tasks / rate if rate and each.tasks and not each.dead else None
        found.append(
            PlanNow(
                each,
                number,
                states[number, RUNNING],
                states[number, AHEAD] + states[number, LEFT],
                None if seen.delayed is None else len(seen.delayed.get(number, ())),
                None if seen.gated is None else seen.gated[number],
                rate,
                left,
            )
        )
    return found


def _queues(seen: _Seen) -> list[QueueNow]:
    states = Counter((held.queue, held.state == RUNNING) for held in seen.held.claims)
    served = Counter(queue for worker in seen.held.workers for queue in worker.queues)
    names = {DEFAULT_QUEUE, *served, *seen.queues, *(queue for queue, _ in states)}
    return [
        QueueNow(name, seen.queues[name], states[name, True], states[name, False], served[name])
        for name in sorted(names)
    ]


def _worker(record: WorkerRecord, claims: list[Held]) -> WorkerNow:
    mine = [held for held in claims if held.worker == record.id]
    running = sum(held.state == RUNNING for held in mine)
    return WorkerNow(record, running, len(mine) - running, mine[0].since if mine else None)


# ---- What a client shows of all plans under its root: tasks of any plan, and an overview.


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
