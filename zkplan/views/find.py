"""Find a plan or a task by its path, number, name or key, and tasks in all plans by state, worker,
name, error and age."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import NamedTuple

from ..basics.text import count
from ..errors import InvalidTask, PlanError, PlanNotFound
from ..protocol.core.plans_and_queues import (
    list_plans,
    plan_records,
    readable_record,
    refuse_hidden,
)
from ..protocol.features.keys import find_key
from ..protocol.features.task_place import STATES as PLAIN_STATES
from ..protocol.features.task_place import Place, TaskPlaces, read_unclaimed
from ..protocol.fields import require_proven
from ..protocol.layout import Paths, number_of, parse_task, task_key
from ..protocol.records import PlanRecord
from ..protocol.requests import ReadChildren, ReadData, ReadMany, Step
from ..values.connection import Connection
from .deadlock import dead_letters
from .history import ended_tasks
from .outcomes import kept_outcomes
from .root_access import hint_at_root
from .task_info import task_info
from .unfinished import FoundTask, FreshPlaces, read_tasks, unfinished_tasks
from .workers import AHEAD, LEFT, RUNNING, Known, held_tasks

#: The prefix of a key in a text that names a plan. No name of a plan begins with it.
KEY_PREFIX = "key:"
Found = tuple[str, PlanRecord | None]


def find_plan(client: Connection, which: str | int | None, key: str | None, only: bool) -> Found:
    """See Client.plan. Returns the path and the record, None if that is damaged or of a later
    format."""
    if (which is None) == (key is None):
        raise TypeError("plan() takes a path, a number or a name, or else key=…")
    if key is not None:
        return _by_key(client, key)
    text = str(which).removeprefix("plan-")
    if text.startswith(KEY_PREFIX):
        return _by_key(client, text.removeprefix(KEY_PREFIX))
    paths = client.paths
    path = path_given(paths, text)
    if not path:
        return _by_name(client, text, only)
    if not path.startswith(paths.root + "/plan-"):
        raise PlanNotFound(path, f"{path} is not a plan under {paths.root}")
    node = client.transport.ask(ReadData(path))
    if node is None:
        raise PlanNotFound(path, f"there is no plan {path}{hint_at_root(client)}")
    return path, readable_record(node.data)


def path_given(paths: Paths, which: str) -> str:
    """The path of the plan if `which` is its path or number; empty if it is a name or a key."""
    text = which.removeprefix("plan-")
    if text.startswith("/"):
        return text
    return paths.plan(f"{int(text):010d}") if text.isdecimal() and len(text) <= 10 else ""


def _by_key(client: Connection, key: str) -> Found:
    held = client.transport.run(find_key(client.paths, key))
    if held is None or held.plan is None:
        message = f"there is no plan with the key {key!r} under {client.root}"
        raise PlanNotFound(f"{KEY_PREFIX}{key}", message + hint_at_root(client))
    return client.paths.plan(held.number), readable_record(held.plan.data)


def _by_name(client: Connection, name: str, only: bool) -> Found:
    found = client.transport.run(plan_records(client.paths))
    named = [(path, record) for path, record in found if record and record.name == name]
    if not named:
        client.transport.run(refuse_hidden(client.paths))
        message = f"there is no plan named {name!r} under {client.root}"
        if unread := sum(record is None for _, record in found):
            message += f"; {count(unread, 'plan')} cannot be read here: "
            message += "a key (secret-files) may be missing"
        raise PlanNotFound(name, message + hint_at_root(client))
    if only and len(named) > 1:
        numbers = ", ".join(str(int(number_of(path))) for path, _ in named)
        raise PlanError(
            named[-1][0],
            f"{len(named)} plans are named {name!r}: give the number of one: {numbers}",
        )
    return named[-1]


# ---- Find a task by its number, its key or its name.


def find_task(client: Connection, plan_path: str, which: str | int) -> tuple[str, str]:
    """See Plan.task. Returns the number, and the key or name if `which` is one."""
    name = str(which)
    digits = name.removeprefix("task-")
    if digits.isdecimal() and len(digits) <= 10:
        return f"{int(digits):010d}", ""
    if not name:
        raise InvalidTask(name, "an empty text is neither the number nor the name of a task")
    keyed = client.transport.ask(ReadData(task_key(plan_path, name)))
    if keyed is not None:
        require_proven(keyed.data)
        return number_of(keyed.data[:10].decode(errors="replace")), name
    found, unread = set(), 0
    for task in unfinished_tasks(client, plan_path):
        unread += task.name is None
        if task.name == name:
            found.add(task.number)
    letters = dead_letters(client.transport, plan_path)
    found |= {number for number, letter in letters if letter.name == name}
    if not found:
        for kept in kept_outcomes(client, plan_path):
            unread += kept.kind == "undecodable"
            if kept.name == name:
                found.add(kept.number)
    if not found:
        ended = ended_tasks(client.values, plan_path)
        found = {f"{task.number:010d}" for task in ended or () if task.name == name}
    if len(found) == 1:
        return found.pop(), name
    if found:
        message = (
            f"{plan_path} has {len(found)} tasks named {name!r}; give the number of one:  "
            + ", ".join(sorted(found)[:5])
            + (", …" if len(found) > 5 else "")
        )
    elif unread:
        message = (
            f"{plan_path} has no task with the readable name {name!r}, and "
            f"{count(unread, 'task')} whose name cannot be read here: the secret "
            "(secret-files) may be missing or wrong; give the number of the task instead"
        )
    else:
        message = (
            f"{plan_path} has no unfinished task named {name!r}, no kept outcome of that name, and "
            "no such task in what is left of its history (tasks with keep=True or a key stay)"
        )
    raise InvalidTask(name, message)


# ---- Find unfinished tasks in all plans.


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

    It examines only tasks after `after`, the numbers of a plan and of a task. It leaves out plans
    that this client may not read: see `refuse_hidden`. Raises InvalidTask for an unknown state
    before it reads anything.
    """
    if wanted.state is not None and wanted.state not in STATES:
        raise InvalidTask("", f"state must be one of {', '.join(STATES)}, not {wanted.state!r:.50}")
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
    """The places of the tasks of these plans, with the states of `FoundTask` for claimed tasks.

    Claims in `known` are not read again. Plans that this client may not read are left out.
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
