"""Schedules, which make plans by the server's clock: add, change and inspect them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from .author.definition import Definer
from .author.new_plans import new_record
from .author.task_specs import TaskSpec
from .basics.cron import Cron
from .basics.public_calls import Duration
from .errors import (
    InvalidTask,
    PayloadUndecodable,
    ScheduleNotFound,
    TransactionRejected,
    ZkplanError,
)
from .plan import Plan
from .protocol.core.plan_life import status
from .protocol.features.schedules import (
    CATCH_UPS,
    OVERLAPS,
    CatchUp,
    Definition,
    Firing,
    Overlap,
    Upcoming,
    ensure_schedules,
    fire,
    list_schedules,
    next_ms,
    put_schedule,
    read_schedule,
    record_of,
    remove_schedule,
    set_next,
)
from .protocol.features.schedules import Schedule as Found
from .protocol.records import OnFailure, TaskRecord
from .protocol.transactions import REFUSALS_MAX, REQUEST_BYTES_MAX
from .transport.server_clock import ServerClock
from .values.codec import TASK
from .values.connection import Connection, together
from .values.function_codec import describe_function
from .values.plan_values import Values

T = TypeVar("T")
#: The `worker` of a `Firing` that a person has triggered.
BY_HAND = "hand"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
JITTER_MAX_S = 24 * 3600.0


class ScheduleInfo(NamedTuple):
    """A schedule at one moment. `next` is the next due time, None if the schedule is paused.

    `fired` has one entry for each of the last due times, oldest first: `due_ms` and `when_ms` are
    milliseconds since 1970 by the server's clock, `plan` is the number of the plan (empty if none
    was made), `worker` is the worker that fired the schedule, and `how` is `fired`, `triggered`, or
    the reason why the due time was passed over. `outcomes` has the present state of each of these
    plans, as `PlanStatus.state`, or an empty text if there is no plan (any more). `unread` is
    empty, or the reason why the schedule cannot be read here, such as a znode that is not sealed
    for its place. Then only `name` is known.
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
    """A handle on a schedule. Each call reads the schedule again, and raises ScheduleNotFound."""

    def __init__(self, client: Connection, name: str) -> None:
        self._client = client
        self.name = name

    def _found(self) -> Found:
        return self._client.transport.run(read_schedule(self._client.paths, self.name))

    def info(self) -> ScheduleInfo:
        """The definition of the schedule, its next due time, and the outcomes of the last ones."""
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
        """Ignore all due times until `resume`. Plans that were made already go on."""
        retried(self.name, self._pause)

    def _pause(self) -> bool:
        found = self._found()
        return found.next.paused or self._set(found, found.next._replace(paused=True))

    def resume(self) -> None:
        """Go on with the next due time after a pause. Due times during the pause are skipped."""
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
        """Make a plan now, even if the schedule is not due or is paused, or the previous plan still
        runs. Returns the plan."""
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
        """Delete the schedule. Its plans are kept, and go on."""
        run, paths = self._client.transport.run, self._client.paths
        retried(self.name, lambda: run(remove_schedule(paths, self._found())))

    def __repr__(self) -> str:
        return f"<Schedule {self.name} under {self._client.root}>"


def find(client: Connection, name: str) -> Schedule:
    """The schedule with this name. Raises ScheduleNotFound."""
    found = Schedule(client, name)
    found._found()
    return found


def infos(client: Connection) -> list[ScheduleInfo]:
    """The info of each schedule under the root, by name, also of those that cannot be read."""
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


# ---- Add a schedule, or change it. Everything is checked before the first write.


def new_schedule(
    client: Connection,
    name: str,
    cron: str,
    builder: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    *,
    timezone: str,
    overlap: Overlap,
    catch_up: CatchUp,
    jitter: float,
    on_failure: OnFailure,
    retention: Duration | None,
) -> None:
    """See Client.schedule."""
    times = _checked(name, cron, timezone, overlap, catch_up, jitter)
    record = new_record(
        name, on_failure=on_failure, retention=retention, serializer=client.codec.serializer
    )
    # A store has folders for plans only, so the builder and its arguments lie in the tree.
    inline = Values(client.transport, client.codec)
    definer = Definer(client.paths.root, inline, as_json=client.codec.is_json_only)
    task = definer.define(TaskSpec(builder, args, kwargs, name=name))
    if definer.gates or task.gate:
        raise InvalidTask(
            "",
            f"the builder of {name} cannot take a gate (zkplan.when): let the builder add tasks "
            "that wait for the gate",
        )
    if len(task.record) > REQUEST_BYTES_MAX // 2:
        raise InvalidTask("", f"the builder of {name} and its arguments are too large")
    body = TaskRecord.from_bytes(client.codec.open(TASK, task.record)[1])
    definition = Definition(
        name=name,
        uid=os.urandom(6).hex(),
        cron=cron,
        timezone=timezone,
        overlap=overlap,
        catch_up=catch_up,
        jitter=float(jitter),
        plan=record,
        task=task.record,
        rank=task.rank,
        builder=describe_function(body.function),
    )
    due_ms = next_ms(times, int(1000 * server_time(client)))
    retried(name, lambda: _put(client, definition, due_ms))


def _checked(
    name: str, cron: str, timezone: str, overlap: str, catch_up: str, jitter: float
) -> Cron:
    """The times of a schedule. Raises InvalidTask."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidTask(
            "",
            "the name of a schedule must have 1 to 80 letters, digits, dots, dashes and "
            f"underscores, and begin with a letter or digit, unlike {name!r:.100}",
        )
    if overlap not in OVERLAPS:
        raise InvalidTask("", f"overlap must be one of {', '.join(OVERLAPS)}, not {overlap!r}")
    if catch_up not in CATCH_UPS:
        raise InvalidTask("", f"catch_up must be one of {', '.join(CATCH_UPS)}, not {catch_up!r}")
    is_number = isinstance(jitter, (int, float)) and not isinstance(jitter, bool)
    if not is_number or not 0 <= jitter <= JITTER_MAX_S:
        raise InvalidTask("", f"jitter must be 0 to {JITTER_MAX_S:g} seconds, not {jitter!r}")
    try:
        return Cron(cron, timezone)
    except ValueError as error:
        raise InvalidTask("", str(error)) from None


def _put(client: Connection, definition: Definition, due_ms: int) -> bool:
    old: Found | None = None
    try:
        old = client.transport.run(read_schedule(client.paths, definition.name))
        was = old.definition
        if (was.cron, was.timezone) == (definition.cron, definition.timezone):
            due_ms = old.next.due_ms  # so that a due time that has just come is not lost
    except ScheduleNotFound:
        pass
    return client.transport.run(put_schedule(client.paths, definition, due_ms, old))


def server_time(client: Connection) -> float:
    """The server's wall-clock time in seconds, from a write: the local clock may be hours off."""
    path = client.paths.schedules
    client.transport.run(ensure_schedules(client.paths))
    clock = ServerClock()
    client.transport.run(clock.ask(path))
    return clock.now()


def retried(name: str, attempt: Callable[[], T | None]) -> T:
    """Call `attempt` again while others change the schedule, and return its result.

    Raises TransactionRejected after too many refusals.
    """
    for _ in range(REFUSALS_MAX):
        found = attempt()
        if found:
            return found
    raise TransactionRejected(f"others keep changing the schedule {name}: try again later")
