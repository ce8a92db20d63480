"""A handle on one schedule: show, pause, resume, trigger or remove it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from .author.schedules import retried, server_time
from .basics.cron import Cron
from .errors import PayloadUndecodable, ScheduleNotFound, ZkplanError
from .plan import Plan
from .protocol.core.plan_life import status
from .protocol.features.schedules import (
    CatchUp,
    Firing,
    Overlap,
    Upcoming,
    fire,
    list_schedules,
    next_ms,
    read_schedule,
    record_of,
    remove_schedule,
    set_next,
)
from .protocol.features.schedules import Schedule as Found
from .values.connection import Connection, together

#: As `worker`, where a person has triggered it.
BY_HAND = "hand"


class ScheduleInfo(NamedTuple):
    """A schedule at one moment. `next` is the time that is due next, None if it is paused.

    `fired` has what became of the last due times, the oldest first: `due_ms` and `when_ms` are
    milliseconds since 1970 by the server's clock, `plan` is the number of the plan, empty if there
    is none, `worker` is who did it, and `how` is `fired`, `triggered`, or why it was passed over.
    `outcomes` has the state of each of these plans now, as `PlanStatus.state`; empty where there is
    none, or it was removed. `unread` says why the schedule cannot be read here, such as a znode
    that is not sealed for its place, and is empty where it can: else only its name is known.
    """

    name: str
    cron: str
    timezone: str
    builder: str
    overlap: Overlap
    catch_up: CatchUp
    jitter: float
    paused: bool
    next: datetime | None
    fired: list[Firing]
    outcomes: list[str]
    unread: str = ""


class Schedule:
    """A handle on a schedule. Each call reads it anew. All of them raise ScheduleNotFound."""

    def __init__(self, client: Connection, name: str) -> None:
        self._client = client
        self.name = name

    def _found(self) -> Found:
        return self._client.transport.run(read_schedule(self._client.paths, self.name))

    def info(self) -> ScheduleInfo:
        """What it does, when it is due next, and what became of the last due times."""
        found = self._found()
        definition, upcoming = found.definition, found.next
        due = datetime.fromtimestamp(upcoming.due_ms / 1000, _cron(found).zone)
        return ScheduleInfo(
            *(definition.name, definition.cron, definition.timezone, definition.builder),
            *(definition.overlap, definition.catch_up, definition.jitter, upcoming.paused),
            None if upcoming.paused else due,
            list(upcoming.fired),
            self._outcomes(upcoming.fired),
        )

    def _outcomes(self, fired: Sequence[Firing]) -> list[str]:
        plans = list(dict.fromkeys(each.plan for each in fired if each.plan.isdecimal()))
        paths = self._client.paths
        seen = self._client.transport.run(together([status(paths.plan(each)) for each in plans]))
        states = {
            plan: each.state
            for plan, each in zip(plans, seen, strict=True)
            if not isinstance(each, ZkplanError)
        }
        return [states.get(each.plan, "") for each in fired]

    def next(self, count: int = 1) -> list[datetime]:
        """The next due times, also of a paused schedule, in its time zone."""
        found = self._found()
        cron = _cron(found)
        times = islice(cron.after(found.next.due_ms / 1000 - 1), count)
        return [datetime.fromtimestamp(each, cron.zone) for each in times]

    def pause(self) -> None:
        """No due time counts until `resume`. Its plans go on."""
        retried(self.name, self._pause)

    def _pause(self) -> bool:
        found = self._found()
        return found.next.paused or self._set(found, found.next._replace(paused=True))

    def resume(self) -> None:
        """Let a paused schedule go on with the next due time. Those meanwhile are not made up
        for."""
        retried(self.name, self._resume)

    def _resume(self) -> bool:
        found = self._found()
        if not found.next.paused:
            return True
        due_ms = next_ms(_cron(found), int(1000 * server_time(self._client)))
        return self._set(found, found.next._replace(paused=False, due_ms=due_ms))

    def _set(self, found: Found, upcoming: Upcoming) -> bool:
        return self._client.transport.run(set_next(self._client.paths, found, upcoming))

    def trigger(self) -> Plan:
        """Make a plan now, whether it is due, paused, or overlaps. Returns the plan."""
        after = retried(self.name, self._trigger)
        return Plan(self._client, self._client.paths.plan(after.next.fired[-1].plan))

    def _trigger(self) -> Found | None:
        client, found = self._client, self._found()
        now_ms = int(1000 * server_time(client))
        record = record_of(found.definition, _cron(found), now_ms, now_ms / 1000)
        firing = Firing(now_ms, "", BY_HAND, now_ms, "triggered")
        step = fire(client.paths, found, record, firing, found.next.due_ms)
        return client.transport.run(step)

    def remove(self) -> None:
        """Delete the schedule. Its plans stay, and go on."""
        run, paths = self._client.transport.run, self._client.paths
        retried(self.name, lambda: run(remove_schedule(paths, self._found())))

    def __repr__(self) -> str:
        return f"<Schedule {self.name} under {self._client.root}>"


def find(client: Connection, name: str) -> Schedule:
    """The schedule of that name. Raises ScheduleNotFound."""
    found = Schedule(client, name)
    found._found()
    return found


def infos(client: Connection) -> list[ScheduleInfo]:
    """What each schedule under the root does, by name. One that cannot be read hides no other."""
    found = []
    for schedule in find_all(client):
        try:
            found.append(schedule.info())
        except ScheduleNotFound:
            continue  # removed meanwhile
        except PayloadUndecodable as error:
            found.append(_unread(schedule.name, str(error)))
    return found


def _unread(name: str, why: str) -> ScheduleInfo:
    return ScheduleInfo(name, "", "", "", "skip", "none", 0.0, True, None, [], [], why)


def find_all(client: Connection) -> list[Schedule]:
    """All schedules under the root, by name."""
    return [Schedule(client, name) for name in client.transport.run(list_schedules(client.paths))]


def _cron(found: Found) -> Cron:
    return Cron(found.definition.cron, found.definition.timezone)
