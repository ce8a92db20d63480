"""Plans that stand still because nobody attends to them: their author is gone, or no worker can
decode their tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, Protocol

from ..basics.text import duration
from ..connection import Connection
from ..errors import ZkplanError
from ..protocol.control import PlanStatus
from ..protocol.layout import Paths, author_mark
from ..protocol.load import read_all
from ..protocol.look import readable_record
from ..protocol.queues import read_entries
from ..protocol.records import PlanRecord
from ..protocol.requests import Node, ReadData, Step
from .deadlock import LOOKED_AT, refusal
from .late import GRACE_S, Late

#: The codes of what is told here.
UNATTENDED = ("left", "not_decoded")
#: Seconds without an add after which a plan without a key counts as left by its author: nobody
#: knows whether he lives.
IDLE_S = 3600.0
#: Of so many plans, the newest ones, one look reads whether they are marked ready.
LOOKED_MAX = 2000
#: Of so many plans one look asks why nobody takes their tasks.
ASKED_MAX = 20


class PlanSeen(Protocol):
    """What this module needs of an active plan."""

    @property
    def status(self) -> PlanStatus: ...
    @property
    def number(self) -> str: ...
    @property
    def running(self) -> int: ...
    @property
    def ahead(self) -> int: ...


class _Half(NamedTuple):
    """A plan that is not marked ready; `mark` is that of its author, if it stands."""

    number: str
    record: PlanRecord
    adds: Node
    mark: Node | None


def left_by_authors(
    client: Connection, now: float, plans: Sequence[str], known: set[str]
) -> list[Late]:
    """Those of `plans`, by their numbers, that are not marked ready and whose author is gone.

    `known` gets the others, which are not asked for again. `now` is as for `late_things`.
    """
    new = [number for number in plans if number not in known][-LOOKED_MAX:]
    halves = client.transport.run(_halves(client.paths, new, known))
    return [late for half in halves if (late := _left(half, now)) is not None]


def _halves(paths: Paths, plans: Sequence[str], known: set[str]) -> Step[list[_Half]]:
    ready = yield from read_all(
        [ReadData(f"{paths.plan(each)}/ready") for each in plans], strict=False
    )
    known.update(number for number, node in zip(plans, ready, strict=True) if node is not None)
    open_ones = [number for number in plans if number not in known]
    reads = [ReadData(paths.plan(n) + part) for n in open_ones for part in ("", "/add-count")]
    nodes = yield from read_all(reads, strict=False)
    found: list[_Half] = []
    for number, plan, adds in zip(open_ones, nodes[::2], nodes[1::2], strict=True):
        record = readable_record(plan.data) if plan is not None else None
        if record is not None and adds is not None:
            found.append(_Half(number, record, adds, None))
    marks = yield from read_all(
        [ReadData(author_mark(paths.plan(half.number), half.record.uid)) for half in found],
        strict=False,
    )
    return [half._replace(mark=mark) for half, mark in zip(found, marks, strict=True)]


def _left(half: _Half, now: float) -> Late | None:
    by, mark = now - half.adds.modified_ms / 1000, half.mark
    label = f"plan {int(half.number)} ({half.record.name}) is not marked ready, and"
    if not half.record.key:
        told = f"{label} got no task for {duration(by)}"
        return Late("left", told, by) if by > IDLE_S else None
    lives_s = GRACE_S
    if mark is not None:
        if not mark.data.isdigit():
            return None
        lives_s += int(mark.data) / 1000
    return Late("left", f"{label} its author is gone", by) if by > lives_s else None


def not_decoded(client: Connection, plans: Sequence[PlanSeen]) -> list[Late]:
    """Those of `plans` of which nothing runs, because no worker can decode their first tasks."""
    still = (
        plan
        for plan in plans
        if plan.status.state == "running" and plan.status.runnable and not plan.running + plan.ahead
    )
    found = []
    for plan in islice(still, ASKED_MAX):
        with suppress(ZkplanError):  # removed meanwhile, or hidden
            path = plan.status.path
            # A task that cannot be decoded was handed back: it has had claims, and no attempt more.
            entries = client.transport.run(read_entries(path))
            handed = sorted(entry.task for _, entry in entries if entry.n > entry.a)
            told = (refusal(client, f"{path}/task-{task}") for task in handed[:LOOKED_AT])
            if why := next(filter(None, told), ""):
                label = f"plan {int(plan.number)} ({plan.status.name})"
                found.append(Late("not_decoded", f"{label}: {why}"))
    return found
