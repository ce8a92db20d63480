"""Decide which due time of a schedule is fired, and what its plan is called. Pure."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from ..basics.cron import Cron
from ..protocol.records import PlanRecord
from ..protocol.schedules import Definition

#: With catch_up="none", a due time is missed if nobody has fired it for so many seconds.
MISSED_S = 60.0


class Turn(NamedTuple):
    """What is to be done now: the due time to fire, None if all were missed; the one after it; and
    the first one that is passed over, where there is one."""

    fire_ms: int | None
    next_ms: int
    missed_ms: int | None


def turn(cron: Cron, definition: Definition, due_ms: int, now_ms: int) -> Turn:
    """`due_ms` has come. Which times came since then, too, and which of them counts?"""
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
    """The due times from that one on, in seconds."""
    return islice(cron.after(due_ms / 1000 - 1), count)


def jitter_s(definition: Definition, due_ms: int) -> float:
    """By how much this due time is late. Each worker comes to the same."""
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
