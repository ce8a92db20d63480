"""How late the schedules of a root are: what is due, and when each was fired last."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..protocol.layout import Paths
from ..protocol.load import read_all
from ..protocol.requests import ReadData, Step
from ..protocol.schedules import Definition, Upcoming, list_schedules
from ..schedules.due import jitter_s


class ScheduleTime(NamedTuple):
    """A schedule. `state` is `active`, `paused`, or `unreadable`. `due` is when it is to be fired
    next, and `fired` when that was done last, if ever: seconds since 1970, by the server's clock.
    """

    name: str
    state: str
    due: float | None = None
    fired: float | None = None


def read_schedules(paths: Paths) -> Step[list[ScheduleTime]]:
    """All schedules under the root, by name."""
    names = yield from list_schedules(paths)
    nodes = yield from read_all([ReadData(f"{paths.schedules}/{name}") for name in names])
    found: list[ScheduleTime] = []
    known: list[tuple[str, Definition]] = []
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            continue  # removed meanwhile
        try:
            known.append((name, Definition.from_bytes(node.data)))
        except PayloadUndecodable:
            found.append(ScheduleTime(name, "unreadable"))
    nexts = [f"{paths.schedules}/{name}/next-{each.uid}" for name, each in known]
    nodes = yield from read_all([ReadData(path) for path in nexts])
    for (name, definition), node in zip(known, nodes, strict=True):
        if node is not None:  # else changed or removed meanwhile
            found.append(_time_of(name, definition, node.data))
    return sorted(found)


def _time_of(name: str, definition: Definition, data: bytes) -> ScheduleTime:
    try:
        upcoming = Upcoming.from_bytes(data)
    except PayloadUndecodable:
        return ScheduleTime(name, "unreadable")
    last = next((each for each in reversed(upcoming.fired) if each.plan), None)
    fired = None if last is None else last.when_ms / 1000
    if upcoming.paused:
        return ScheduleTime(name, "paused", None, fired)
    due = upcoming.due_ms / 1000 + jitter_s(definition, upcoming.due_ms)
    return ScheduleTime(name, "active", due, fired)
