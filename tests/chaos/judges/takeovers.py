"""How soon others go on with what a process ran that has ended. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from .histories import Execution
from .ledger import Ledger


class Takeover(NamedTuple):
    """A task went on `seconds` after the process that ran it had ended, for the reason `why`."""

    at: float
    seconds: float
    why: str


def takeovers(ledger: Ledger, tasks: object) -> list[Takeover]:
    """From the end of a process to the next attempt of what it ran."""
    found = []
    runs: list[Execution]
    for runs in tasks:  # type: ignore[attr-defined]
        for first, second in pairwise(sorted(runs, key=lambda each: each.n)):
            at, why = ledger.ends.get(first.pid, (0.0, ""))
            ran = first.began <= at and (first.ended is None or first.ended >= at)
            if ran and second.began >= at:
                found.append(Takeover(at, second.began - at, why))
    return found
