"""Find unfinished tasks in all plans by state, worker, name, error and age."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import NamedTuple

from ..errors import InvalidTask
from ..protocol.core.plans_and_queues import list_plans, readable_record
from ..protocol.features.task_place import STATES as PLAIN_STATES
from ..protocol.features.task_place import Place, TaskPlaces, read_unclaimed
from ..protocol.layout import Paths, parse_task
from ..protocol.requests import ReadChildren, ReadData, ReadMany, Step
from ..values.connection import Connection
from .task_info import task_info
from .unfinished import FoundTask, FreshPlaces, read_tasks
from .workers import AHEAD, LEFT, RUNNING, Known, held_tasks

_CLAIMED = (RUNNING, AHEAD, LEFT)
#: What `FoundTask.state` may be.
STATES = (*(state for state in PLAIN_STATES if state != RUNNING), *_CLAIMED)
#: Tasks in these states are in no index, so every unfinished task is read.
_UNLISTED = (None, "being defined", "waiting")
_TASKS_PER_READ = 200


class Filter(NamedTuple):
    """Which tasks are meant; None means any. `name` and `error` are patterns as for file names,
    `error` for the type of the last exception. `longer_than` is in seconds."""

    state: str | None = None
    worker: str | None = None
    name: str | None = None
    error: str | None = None
    longer_than: float | None = None

    def takes_state(self, state: str) -> bool:
        """Whether a task in that state is meant."""
        return self.state in (None, state)

    def takes_place(self, state: str) -> bool:
        """Whether a task whose place has that state may be meant."""
        # A decided task is still in the index of runnable ones; only its children show the outcome.
        return self.takes_state(state) or (self.state == "decided" and state == "runnable")


def find_tasks(
    client: Connection,
    wanted: Filter,
    plans: Sequence[str] | None = None,
    after: tuple[str, str] = ("", ""),
) -> Iterator[FoundTask]:
    """The unfinished tasks that match, by plan and number; `plans` are the numbers of some plans.

    Only those behind `after`, the numbers of a plan and of a task, are looked at. Plans that may
    not be read are left out: see `refuse_hidden`. Raises InvalidTask for a state that is none,
    before anything is read.
    """
    if wanted.state is not None and wanted.state not in STATES:
        raise InvalidTask("", f"state is one of {', '.join(STATES)}, not {wanted.state!r:.50}")
    return _found(client, wanted, plans, after)


def _found(
    client: Connection, wanted: Filter, plans: Sequence[str] | None, after: tuple[str, str]
) -> Iterator[FoundTask]:
    run, paths = client.transport.run, client.paths
    numbers = list(plans) if plans is not None else run(list_plans(paths))
    numbers = [number for number in numbers if number >= after[0]]
    is_of_claims = wanted.worker is not None or wanted.state in _CLAIMED
    places = FreshPlaces(lambda: run(places_with_claims(paths, numbers, is_of_claims)))
    seen = places.now()
    if wanted.state in _UNLISTED and not is_of_claims:
        keys = _all_tasks(client, numbers)
    else:
        mine = set(numbers)
        keys = iter(
            sorted(k for k, p in seen.items() if k[0] in mine and wanted.takes_place(p.state))
        )
    keys = (key for key in keys if key > after)
    names: dict[str, str] = {}
    while chunk := list(islice(keys, _TASKS_PER_READ)):
        for found in read_tasks(client, chunk, places.now(), strict=False):
            if _matches(client, wanted, found):
                if found.plan not in names:
                    names[found.plan] = _plan_name(client, found.plan)
                yield found._replace(plan_name=names[found.plan])


def _all_tasks(client: Connection, plans: Sequence[str]) -> Iterator[tuple[str, str]]:
    for plan in plans:
        (names,) = client.transport.ask(ReadMany([ReadChildren(client.paths.plan(plan))], False))
        found = (parse_task(name) for name in names or ())
        yield from sorted((plan, number) for number in found if number is not None)


def places_with_claims(
    paths: Paths, plans: Sequence[str], claims_only: bool = False, known: Known | None = None
) -> Step[TaskPlaces]:
    """Where the tasks of these plans stand; a claimed one as FoundTask.state says it.

    Claims that are `known` are not read again. Plans that may not be read are left out.
    """
    places = {} if claims_only else (yield from read_unclaimed(paths, plans, strict=False))
    # Claims are read last: a task that is claimed after its entry was read counts as claimed.
    for held in (yield from held_tasks(paths, known)).claims:
        places[held.plan, held.task] = Place(
            held.state,
            n=held.attempt,
            a=held.attempts,
            queue=held.queue,
            worker=held.worker,
            since=held.since,
        )
    return places


def _matches(client: Connection, wanted: Filter, found: FoundTask) -> bool:
    if not wanted.takes_state(found.state):
        return False  # it has moved on since the indexes were read
    if wanted.worker is not None and not found.worker.startswith(wanted.worker):
        return False
    if wanted.name is not None and not fnmatchcase(found.name or "", wanted.name):
        return False
    if wanted.longer_than is not None and time.time() - found.since <= wanted.longer_than:
        return False
    if wanted.error is None:
        return True
    told = found.error
    if not told and found.attempts:
        path = client.paths.plan(found.plan)
        told = task_info(client, path, found.number).last_error
    return fnmatchcase(told.partition(":")[0], wanted.error)


def _plan_name(client: Connection, plan: str) -> str:
    (node,) = client.transport.ask(ReadMany([ReadData(client.paths.plan(plan))], strict=False))
    record = readable_record(node.data) if node is not None else None
    return record.name if record is not None else ""
