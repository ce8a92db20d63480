"""Create or change a schedule, by the server's clock."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..basics.cron import Cron
from ..errors import InvalidTask, ScheduleNotFound, TransactionRejected
from ..protocol.features.schedules import (
    CATCH_UPS,
    OVERLAPS,
    CatchUp,
    Definition,
    Overlap,
    ensure_schedules,
    next_ms,
    put_schedule,
    read_schedule,
)
from ..protocol.features.schedules import Schedule as Found
from ..protocol.records import OnFailure, TaskRecord
from ..protocol.task_options import TaskOptions
from ..protocol.transactions import REFUSALS_MAX, REQUEST_BYTES_MAX
from ..transport.server_clock import ServerClock
from ..values.codec import TASK
from ..values.connection import Connection
from ..values.function_codec import describe_function
from ..values.plan_values import Values
from .definition import define_all
from .options import new_record
from .task_specs import TaskSpec

T = TypeVar("T")


def server_time(client: Connection) -> float:
    """Wall-clock seconds of the server, from a write: the clock here may be wrong by hours."""
    path = client.paths.schedules
    client.transport.run(ensure_schedules(client.paths))
    clock = ServerClock()
    client.transport.run(clock.ask(path))
    return clock.now()


def retried(name: str, attempt: Callable[[], T | None]) -> T:
    """What `attempt` gives, tried again where somebody else has changed the schedule meanwhile.

    Raises TransactionRejected.
    """
    for _ in range(REFUSALS_MAX):
        found = attempt()
        if found:
            return found
    raise TransactionRejected(f"the schedule {name} is changed by others all the time; try again")


# ---- Add a schedule, or change it: what its author says is checked, before anything is written.


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
JITTER_MAX_S = 24 * 3600.0


@dataclass(frozen=True)
class Wanted:
    """What `Client.schedule` is asked for, but the builder."""

    name: str
    cron: str
    timezone: str
    overlap: Overlap
    catch_up: CatchUp
    jitter: float
    on_failure: OnFailure
    retention: float | None

    def checked(self) -> Cron:
        """Raises InvalidTask."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidTask(
                "",
                "the name of a schedule has 1 to 80 letters, digits, dots, dashes and underscores, "
                f"unlike {self.name!r:.100}",
            )
        for what, value, known in (
            ("overlap", self.overlap, OVERLAPS),
            ("catch_up", self.catch_up, CATCH_UPS),
        ):
            if value not in known:
                raise InvalidTask("", f"{what} is one of {', '.join(known)}, not {value!r}")
        is_number = isinstance(self.jitter, (int, float)) and not isinstance(self.jitter, bool)
        if not is_number or not 0 <= self.jitter <= JITTER_MAX_S:
            raise InvalidTask("", f"jitter is 0 to 86400 seconds, not {self.jitter!r}")
        try:
            return Cron(self.cron, self.timezone)
        except ValueError as error:
            raise InvalidTask("", str(error)) from None


def new_schedule(
    client: Connection,
    wanted: Wanted,
    builder: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
) -> None:
    """See Client.schedule."""
    cron = wanted.checked()
    record = new_record(
        *(wanted.name, TaskOptions(), wanted.on_failure),
        retention=wanted.retention,
        serializer=client.codec.serializer,
    )
    # A store has folders for plans only, so the builder and its arguments lie in the tree.
    inline = Values(client.transport, client.codec)
    spec = TaskSpec(builder, args, kwargs, name=wanted.name)
    as_json = client.codec.is_json_only
    (task,), gates = define_all([spec], client.paths.root, inline, record.defaults, as_json)
    if gates or task.gate:
        told = "takes no gate (zkplan.when): let it add tasks that wait for one"
        raise InvalidTask("", f"the builder of {wanted.name} {told}")
    if len(task.record) > REQUEST_BYTES_MAX // 2:
        raise InvalidTask("", f"the builder of {wanted.name} and its arguments are too large")
    body = TaskRecord.from_bytes(client.codec.open(TASK, task.record)[1])
    definition = Definition(
        name=wanted.name,
        uid=os.urandom(6).hex(),
        cron=wanted.cron,
        timezone=wanted.timezone,
        overlap=wanted.overlap,
        catch_up=wanted.catch_up,
        jitter=float(wanted.jitter),
        plan=record,
        task=task.record,
        rank=task.rank,
        builder=describe_function(body.function),
    )
    due_ms = next_ms(cron, int(1000 * server_time(client)))
    retried(wanted.name, lambda: _put(client, definition, due_ms))


def _put(client: Connection, definition: Definition, due_ms: int) -> bool:
    old: Found | None = None
    try:
        old = client.transport.run(read_schedule(client.paths, definition.name))
        if _same_times(old.definition, definition):
            due_ms = old.next.due_ms  # one that has just come is not lost
    except ScheduleNotFound:
        pass
    return client.transport.run(put_schedule(client.paths, definition, due_ms, old))


def _same_times(old: Definition, new: Definition) -> bool:
    return (old.cron, old.timezone) == (new.cron, new.timezone)
