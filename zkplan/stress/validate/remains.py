"""Check what is left of a plan that is done: S6 and S7. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...protocol.layout import HISTORY, PLAN_FIXED, QUEUES
from ..history import Execution
from .evidence import Evidence


def nothing_is_left(evidence: Evidence[Execution]) -> Iterator[str]:
    """S6, S7: of a done plan nothing is left but its fixed children, outcomes and dead tasks."""
    left = evidence.remains
    dead = {f"task-{number}" for number in left.dead}
    yield from strangers([name for name in left.plan if name not in dead], "done")
    yield from (f"{name} is dead, and gone" for name in sorted(dead - {*left.plan}))
    if "done" not in left.plan:
        yield "`done` is missing"
    for kind in ("runnable", "delayed", "claims"):
        yield from (f"{kind}: {name} is left" for name in getattr(left, kind))
    for key in sorted(evidence.dead):
        if evidence.fate(key) not in ("dead", "cut"):
            yield f"task {key} has a dead letter, the oracle says: {evidence.fate(key)}"


def strangers(names: Iterable[str], besides: str) -> Iterator[str]:
    """The children of a plan that zkplan has not made, or has not removed.

    The queues of a plan stay as long as the plan; what stands in them is runnable.
    """
    expected = {*PLAN_FIXED, "ready"} - {"add-count"}
    known = {*expected, besides, QUEUES, HISTORY}
    yield from (f"{name} is left" for name in names if name not in known)
    yield from (f"`{name}` is missing" for name in sorted(expected - {*names}))
