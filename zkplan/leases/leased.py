"""What a program gets and hears: a task under a lease, and what became of what it told."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..protocol.layout import parse_claim, parse_lease

#: Why something was refused: its lease has lapsed (or somebody has decided about the task), the
#: task has ended, its plan is gone, the value cannot be taken, or ZooKeeper has no room now.
Refusal = Literal["", "lapsed", "ended", "removed", "invalid", "full"]


@dataclass(frozen=True)
class Leased:
    """A task that was claimed under a lease.

    `id` names this claim, for all that follows. `attempt` grows with every claim of the task.
    `due` is when the lease lapses unless it is renewed: wall-clock seconds of the server; `lease`
    are the seconds for which it counts. All tasks of one claim call share one lease. `args` and
    `kwargs` are JSON values; a task that has failed is `{"failed": {"kind": …, "message": …}}` in
    them. `logs` is what earlier attempts have logged.
    """

    id: str
    plan: int
    task: int
    name: str
    kind: str
    queue: str
    attempt: int
    due: float
    lease: float
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    logs: Sequence[Any] = ()


class Outcome(NamedTuple):
    """What became of a completion, a failure, a log entry or a hand-back. `ok`: it counts.

    Otherwise `refused` and `why` say what kept it, and the claim stands only where `refused` is
    `invalid` or `full`.
    """

    id: str
    ok: bool
    refused: Refusal = ""
    why: str = ""


class Renewal(NamedTuple):
    """Whether a claim still stands, and until when: see `Leased.due`."""

    id: str
    ok: bool
    due: float = 0.0
    refused: Refusal = ""
    why: str = ""


class Failed(NamedTuple):
    """How an attempt has failed, as its program tells it.

    `kind` names the sort of failure, as the type of an exception does. `retry` False: no further
    attempt can change it.
    """

    id: str
    message: str
    kind: str = "Error"
    retry: bool = True
    traceback: str = ""


class ClaimId(NamedTuple):
    """The parts of `Leased.id`: the name of the lease, and that of the claim below it."""

    lease: str
    name: str


#: How many digits of a lease's name are random, and how many behind them name its holder.
_RANDOM_DIGITS = _HOLDER_DIGITS = 16


def holder_digits(holder: str) -> str:
    """What the name of a lease ends with if that holder has claimed it; empty for nobody.

    >>> len(holder_digits("name resizer")), holder_digits("")
    (16, '')
    """
    return hashlib.sha256(holder.encode()).hexdigest()[:_HOLDER_DIGITS] if holder else ""


def is_held_by(text: str, holder: str) -> bool:
    """Whether the claim of that ID was given to that holder. True for what is no ID.

    The name of the lease says it, so a service knows it of the claims that another one gave.

    >>> is_held_by("lease-30000.7f/0000000004-0000000007.0.0", "name resizer")
    False
    """
    known = parse_id(text)
    digits = known.lease.rpartition(".")[2][_RANDOM_DIGITS:] if known is not None else ""
    return known is None or digits == holder_digits(holder)


def parse_id(text: str) -> ClaimId | None:
    """
    >>> parse_id("lease-30000.7f/0000000004-0000000007.0.0").lease
    'lease-30000.7f'
    """
    lease, _, name = text.partition("/")
    known = parse_lease(lease) is not None and parse_claim(name) is not None
    return ClaimId(lease, name) if known else None
