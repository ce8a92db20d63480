"""What the auditor knows of one accepted transaction."""

from __future__ import annotations

from typing import NamedTuple

from .network import Fiber
from .story import Meant

#: The kind of fibers whose deletions of claims are releases, of a lost worker or a lapsed lease.
CLEARS = "clear"


class Transaction(NamedTuple):
    """One accepted transaction: who sent it, and what it touched, as far as that is known.

    `claims` are those that it deletes, by task: they were current. `ended` are finished so far.
    """

    fiber: Fiber
    claims: dict[str, str]
    touched: dict[str, Meant]
    edges: list[str]
    ended: list[Meant]
    #: The tasks whose dead letters it deletes, and the attempts that these say are used up.
    letters: dict[str, int]
    #: The plans in which it makes `done` or `add-count`.
    opened: set[str]
