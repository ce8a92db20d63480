"""Schedules: add, change and fire them, and compute their due times.

A schedule fires at most once for each due time (S16): the transaction that creates the plan moves
the next due time, at the version that was read.
"""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Literal, NamedTuple

from ...basics.cron import Cron
from ...errors import PayloadUndecodable, ScheduleNotFound
from ..core.add import NewTask, task_ops
from ..fields import from_json, to_json
from ..layout import PLAN_FIXED, Paths, active_entry, parse_number
from ..records import PlanRecord, control_to_bytes
from ..requests import (
    Create,
    Delete,
    Fact,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    SetData,
    Step,
)
from ..transactions import REFUSALS_MAX, ensure, is_applied, rejected
from .author import create_plan_with, ensure_root
from .keys import find_key, key_ops, mend_keys

Overlap = Literal["skip", "queue", "cancel_previous", "allow"]
CatchUp = Literal["latest", "all", "none"]
OVERLAPS: tuple[Overlap, ...] = ("skip", "queue", "cancel_previous", "allow")
CATCH_UPS: tuple[CatchUp, ...] = ("latest", "all", "none")
#: The latest time that a date can hold.
TIME_MS_MAX = 250_000_000_000_000
#: How many of the last firings a schedule remembers.
FIRED_MAX = 20


class Firing(NamedTuple):
    """The outcome of one due time. Times are wall-clock milliseconds of the server.

    `plan` is the number of its plan, or empty. `how` is `fired`, `triggered`, or why it was
    skipped. `worker` is the worker that handled it, or `hand` for a person.
    """

    due_ms: int
    plan: str
    worker: str
    when_ms: int
    how: str


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a schedule. `uid` is new with each change.

    `plan` has the options of its plans: defaults, policy, retention. `task` is the sealed
    definition of the builder's task, `builder` the name of its function.
    """

    name: str
    uid: str
    cron: str
    timezone: str
    overlap: Overlap
    catch_up: CatchUp
    jitter: float
    plan: PlanRecord
    task: bytes
    rank: str
    builder: str

    def to_bytes(self) -> bytes:
        value = {name: getattr(self, name) for name in self.__slots__}
        value["plan"] = self.plan.to_bytes().decode()
        value["task"] = base64.b64encode(self.task).decode()
        return to_json(value)

    @classmethod
    def from_bytes(cls, data: bytes) -> Definition:
        """Raises PayloadUndecodable."""
        value = from_json(data, "a schedule")
        try:
            texts = {name: str(value[name]) for name in ("name", "uid", "cron", "timezone")}
            return cls(
                **texts,
                overlap=OVERLAPS[OVERLAPS.index(value["overlap"])],
                catch_up=CATCH_UPS[CATCH_UPS.index(value["catch_up"])],
                jitter=float(value["jitter"]),
                plan=PlanRecord.from_bytes(value["plan"].encode()),
                task=base64.b64decode(value["task"]),
                rank=str(value["rank"]),
                builder=str(value["builder"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise PayloadUndecodable(f"the record of a schedule is damaged: {error!r}") from None


class Upcoming(NamedTuple):
    """The next due time in milliseconds, and the last firings, the newest last."""

    due_ms: int
    paused: bool = False
    fired: tuple[Firing, ...] = ()

    def to_bytes(self) -> bytes:
        return to_json(self._asdict() | {"fired": [list(each) for each in self.fired]})

    @classmethod
    def from_bytes(cls, data: bytes) -> Upcoming:
        """Raises PayloadUndecodable."""
        value = from_json(data, "the next time of a schedule")
        try:
            fired = tuple(_firing(each) for each in value["fired"])
            return cls(_time_ms(value["due_ms"]), value["paused"] is not False, fired)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PayloadUndecodable(f"the next time of a schedule: {error!r}") from None

    def after(self, firing: Firing, due_ms: int) -> Upcoming:
        return self._replace(due_ms=due_ms, fired=(*self.fired, firing)[-FIRED_MAX:])


def _firing(value: Sequence[Any]) -> Firing:
    due_ms, plan, worker, when_ms, how = value
    if plan and parse_number(plan) is None:
        raise ValueError(plan)
    return Firing(_time_ms(due_ms), str(plan), str(worker), _time_ms(when_ms), str(how))


def _time_ms(value: Any) -> int:
    """Wall-clock milliseconds that a date can hold. Raises ValueError for others."""
    if not 0 <= value < TIME_MS_MAX:
        raise ValueError(f"no time: {value!r:.50}")
    return int(value)


class Schedule(NamedTuple):
    """A schedule as it was read, with the version and the last change of its next time."""

    path: str
    definition: Definition
    next: Upcoming
    version: int
    modified_ms: int = 0

    @property
    def next_path(self) -> str:
        return f"{self.path}/next-{self.definition.uid}"


# ---- Read schedules.


def list_schedules(paths: Paths) -> Step[list[str]]:
    return sorted((yield ReadChildren(paths.schedules)) or ())


def read_schedule(paths: Paths, name: str) -> Step[Schedule]:
    """Raises ScheduleNotFound, PayloadUndecodable."""
    path = f"{paths.schedules}/{name}"
    for _ in range(REFUSALS_MAX):
        node = yield ReadData(path)
        if node is None:
            break
        with _named(path):
            definition = Definition.from_bytes(node.data)
        following = f"{path}/next-{definition.uid}"
        upcoming = yield ReadData(following)
        if upcoming is not None:  # it was not changed in between
            with _named(following):
                return _schedule(path, definition, upcoming)
    else:
        raise ScheduleNotFound(
            name,
            f"the schedule {name!r} ({path}) does not fire: its `next-` was deleted by hand; add "
            "it again (`zkplan schedule add`)",
        )
    raise ScheduleNotFound(name, f"there is no schedule {name!r} under {paths.root}")


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Let errors of the block name the znode at `path`."""
    try:
        yield
    except PayloadUndecodable as error:
        if path in str(error):
            raise
        raise type(error)(f"{path} is not used: {error}") from None


def _schedule(path: str, definition: Definition, node: Node) -> Schedule:
    upcoming = Upcoming.from_bytes(node.data)
    return Schedule(path, definition, upcoming, node.version, node.modified_ms)


def reread(schedule: Schedule) -> Step[Schedule | None]:
    """The schedule with its current next time; None if it was changed or removed."""
    node = yield ReadData(schedule.next_path)
    return None if node is None else _schedule(schedule.path, schedule.definition, node)


# ---- Change schedules: each change but a firing raises the version of `schedules`, which workers
# watch.


def ensure_schedules(paths: Paths) -> Step[None]:
    """Create `ROOT/schedules` before the first schedule of a root."""
    if (yield ReadData(paths.schedules)) is None:
        yield from ensure_root(paths)
        yield from ensure(paths.schedules)


def put_schedule(
    paths: Paths, definition: Definition, due_ms: int, old: Schedule | None
) -> Step[bool]:
    """Add a schedule, or change the `old` one and keep its last firings. Returns False if somebody
    else has changed it since.

    The next time is created paused, and a second write resumes the schedule: with sealing keys, a
    first version or an earlier time that somebody puts back fires nothing.
    """
    path = f"{paths.schedules}/{definition.name}"
    upcoming = Upcoming(due_ms)
    ops: list[Op] = [SetData(paths.schedules)]
    if old is None:
        torn = yield ReadData(path)
        if torn is not None and not torn.child_count:  # its `next-` was deleted by hand
            ops.append(SetData(path, definition.to_bytes(), torn.version))
        else:
            ops.append(Create(path, definition.to_bytes()))
    else:
        upcoming = old.next._replace(due_ms=due_ms)
        ops += [SetData(path, definition.to_bytes()), Delete(old.next_path, old.version)]
    mine = f"{path}/next-{definition.uid}"
    paused = upcoming._replace(paused=True)
    ops.append(Create(mine, paused.to_bytes()))
    made = yield from _applied(f"changing the schedule {definition.name}", ops, mine)
    if not made or upcoming.paused:
        return made
    yield from set_next(paths, Schedule(path, definition, paused, 0), upcoming)
    return True  # if that was refused, somebody else has paused, resumed or changed it


def set_next(paths: Paths, schedule: Schedule, upcoming: Upcoming) -> Step[bool]:
    """Pause or resume a schedule. Returns False if its next time has changed since."""
    ops = [
        SetData(paths.schedules),
        SetData(schedule.next_path, upcoming.to_bytes(), schedule.version),
    ]
    return (yield from _applied(f"changing {schedule.path}", ops))


def remove_schedule(paths: Paths, schedule: Schedule) -> Step[bool]:
    """Delete a schedule. Its plans stay. Returns False if its next time has changed since."""
    ops: list[Op] = [SetData(paths.schedules), Delete(schedule.next_path, schedule.version)]
    return (yield from _applied(f"removing {schedule.path}", [*ops, Delete(schedule.path)]))


def _applied(what: str, ops: Sequence[Op], mine: str = "") -> Step[bool]:
    answer = yield Multi(ops)
    if answer.repeated and mine and (yield ReadData(mine)) is not None:
        return True  # an earlier copy made it: its name is new with each change
    return is_applied(answer, what)


# ---- Fire schedules.


def fire(
    paths: Paths, schedule: Schedule, record: PlanRecord, firing: Firing, due_ms: int
) -> Step[Schedule | None]:
    """Create the plan of a due time, ready, with the builder's task, and move the next time.

    The key of `record` names the due time: a plan that has this key already is the plan of the due
    time. Returns the schedule after the change; None if somebody else changed it since it was read.
    """
    definition = schedule.definition
    give_key = key_ops(paths, record.key, None)
    # The fixed children come first, so this is the number of the first task.
    first = len(PLAN_FIXED) + record.history

    def more(number: str) -> list[Op]:
        path = paths.plan(number)
        moved = schedule.next.after(firing._replace(plan=number), due_ms)
        task = NewTask(definition.name, definition.rank, definition.task, [])
        return [
            SetData(schedule.next_path, moved.to_bytes(), schedule.version),
            *give_key(number),
            SetData(f"{path}/add-count"),
            *task_ops(path, task, f"{first:010d}", {}),
            Create(f"{path}/ready", control_to_bytes("running")),
            Create(active_entry(path)),
        ]

    def facts(number: str) -> dict[str, Fact]:
        return {f"{paths.plan(number)}/task-{first:010d}": Fact(definition.name)}

    while True:
        made = yield from create_plan_with(paths, record, more, facts=facts)
        if isinstance(made, str):
            return _moved(schedule, firing._replace(plan=made), due_ms)
        if made.path == schedule.next_path:
            return None
        if made.path != paths.key(record.key):
            raise rejected(f"firing {schedule.path}", made)
        if made.reason is not Reason.NODE_EXISTS:
            yield from mend_keys(paths, made)
            continue
        held = yield from find_key(paths, record.key)
        if held is not None:
            known = firing._replace(plan=held.number)
            return (yield from pass_over(schedule, known, due_ms))


def pass_over(schedule: Schedule, firing: Firing, due_ms: int) -> Step[Schedule | None]:
    """Move the next time without a new plan. Returns as `fire`."""
    moved = schedule.next.after(firing, due_ms)
    answer = yield Multi([SetData(schedule.next_path, moved.to_bytes(), schedule.version)])
    moves = is_applied(answer, f"firing {schedule.path}")
    return _moved(schedule, firing, due_ms) if moves else None


def _moved(schedule: Schedule, firing: Firing, due_ms: int) -> Schedule:
    moved = schedule.next.after(firing, due_ms)
    return schedule._replace(next=moved, version=schedule.version + 1)


def goes_on(paths: Paths, number: str) -> Step[bool]:
    """Whether the plan exists and is active."""
    path = paths.plan(number)
    plan, entry = yield ReadMany([ReadData(path), ReadData(active_entry(path))])
    return plan is not None and entry is not None


# ---- Compute which due time is fired, and the record of its plan, without requests.


#: With catch_up="none", a due time is missed after this many seconds.
MISSED_S = 60.0


class Turn(NamedTuple):
    """The due time to fire, None if all were missed; the next due time; and the first skipped due
    time, if any."""

    fire_ms: int | None
    next_ms: int
    missed_ms: int | None


def turn(cron: Cron, definition: Definition, due_ms: int, now_ms: int) -> Turn:
    """Choose among `due_ms` and the due times since then."""
    fire_ms: int | None = due_ms
    if definition.catch_up != "all":
        fire_ms = max(due_ms, int(cron.latest(now_ms / 1000) * 1000))
    if definition.catch_up == "none" and now_ms - due_ms > MISSED_S * 1000:
        fire_ms = fire_ms if now_ms - (fire_ms or 0) <= MISSED_S * 1000 else None
    following = next_ms(cron, now_ms if fire_ms is None else fire_ms)
    return Turn(fire_ms, following, None if fire_ms == due_ms else due_ms)


def next_ms(cron: Cron, after_ms: int) -> int:
    return int(next(cron.after(after_ms / 1000)) * 1000)


def upcoming(cron: Cron, due_ms: int, count: int) -> Iterator[float]:
    """The next due times from `due_ms` on, in seconds."""
    return islice(cron.after(due_ms / 1000 - 1), count)


def jitter_s(definition: Definition, due_ms: int) -> float:
    """The delay of this due time, the same for each worker."""
    if not definition.jitter:
        return 0.0
    return definition.jitter * zlib.crc32(f"{definition.name} {due_ms}".encode()) / 2**32


def record_of(definition: Definition, cron: Cron, due_ms: int, now_s: float) -> PlanRecord:
    """The record of the plan for a due time. Its key names schedule and time."""
    due = datetime.fromtimestamp(due_ms / 1000, cron.zone)
    return replace(
        definition.plan,
        name=definition.name,
        uid=os.urandom(12).hex(),
        created=now_s,
        key=f"{definition.name}@{due.isoformat(timespec='auto')}",
        schedule=definition.name,
        due=due_ms / 1000,
        timezone=definition.timezone,
    )
