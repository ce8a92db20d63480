"""The records of leases: what a program gets, what it hears, and why its claim no longer stands."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..protocol.core.load import read_all
from ..protocol.layout import Paths, parse_claim, parse_lease
from ..protocol.requests import ReadData, Step
from ..runtime.job import Job

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


# ---- The claims that this process has given out, as far as it remembers; others are read again.


#: What is remembered at most; what goes first was given out first.
HELD_MAX, HELD_BYTES_MAX = 20_000, 64 * 1024 * 1024


class _Held(NamedTuple):
    job: Job
    size: int


class Held:
    """By claim, what was read of its task. Thread-safe; it may forget anything at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[ClaimId, _Held] = {}
        self._of_lease: dict[str, set[str]] = {}
        self._bytes = 0

    def put(self, claim: ClaimId, job: Job) -> None:
        loaded = job.loaded
        size = len(loaded.record) + sum(map(len, loaded.arguments)) + 1000
        with self._lock:
            self._drop(claim)
            self._jobs[claim] = _Held(job, size)
            self._of_lease.setdefault(claim.lease, set()).add(claim.name)
            self._bytes += size
            while len(self._jobs) > HELD_MAX or self._bytes > HELD_BYTES_MAX:
                self._drop(next(iter(self._jobs)))

    def take(self, claim: ClaimId) -> Job | None:
        """What is known, and forgotten now: two calls must not settle one claim at a time."""
        with self._lock:
            return self._drop(claim)

    def find(self, claim: ClaimId) -> Job | None:
        held = self._jobs.get(claim)
        return None if held is None else held.job

    def emptied(self, leases: Iterable[str]) -> list[str]:
        """Those of these leases of which this process knows no claim any more."""
        with self._lock:
            return sorted({lease for lease in leases if not self._of_lease.get(lease)})

    def _drop(self, claim: ClaimId) -> Job | None:
        held = self._jobs.pop(claim, None)
        if held is None:
            return None
        self._bytes -= held.size
        names = self._of_lease.get(claim.lease)
        if names is not None:
            names.discard(claim.name)
            if not names:
                del self._of_lease[claim.lease]
        return held.job


# ---- Why a claim does not stand any more, for the program that believed in it.


UNKNOWN = "it is no ID of a claim: such an ID is what a claim call has answered"


def why_lost(paths: Paths, ids: Sequence[ClaimId]) -> Step[list[tuple[Refusal, str]]]:
    """For each claim that does not stand: in short, and for people."""
    claims = [parse_claim(each.name) for each in ids]
    reads = []
    for claim in claims:
        if claim is not None:
            plan, task = paths.plan(claim.plan), paths.task(claim.plan, claim.task)
            letter = f"{plan}/dead/{claim.task}"
            reads += [ReadData(path) for path in (plan, task, f"{task}/result", letter)]
    nodes = iter((yield from read_all(reads)))
    found: list[tuple[Refusal, str]] = []
    for each, claim in zip(ids, claims, strict=True):
        if claim is None:
            found.append(("lapsed", UNKNOWN))
            continue
        plan, task, result, letter = (next(nodes) for _ in range(4))
        named = f"task {int(claim.task)} of plan {int(claim.plan)}"
        if plan is None:
            found.append(("removed", f"plan {int(claim.plan)} was removed"))
        elif task is None:
            told = "has ended: this claim has completed it before, or another or an operator has"
            found.append(("ended", f"{named} {told}"))
        elif result is not None:
            found.append(("ended", f"an operator has decided the outcome of {named}"))
        elif letter is not None:
            found.append(("ended", f"{named} has failed for good"))
        else:
            told = f"does not stand any more ({each.lease} has lapsed, or this claim has ended)"
            text = f"claim {claim.n} of {named} {told}: the task was given back, and runs again"
            found.append(("lapsed", text))
    return found
