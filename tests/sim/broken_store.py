"""What broken variants of stores do: the simulation must find each (`mutants.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkplan.protocol.commit import commit

from . import store
from .broken_runs import Answers
from .story import STORED


def send_first(write: Answers, send: Callable[[], None]) -> Answers:
    """The reference is sent before the blob is written."""
    send()
    yield from write


def delete_with_the_first_consumer(*arguments: Any) -> Answers:
    """Whoever commits a task deletes the blobs of its arguments."""
    report = yield from commit(*arguments)
    for part in report.done:
        names = [data[1:].decode() for data in part.loaded.arguments if data[:1] == STORED]
        yield store.DeleteBlobs(part.loaded.claim.plan, names)
    return report


def sweep_all(names: Any, _kept: object) -> list[str]:
    return list(names)


def no_claims(*_: Any, **__: Any) -> Answers:
    yield from ()
    return []
