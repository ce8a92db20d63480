"""Records of leases: leased tasks, outcomes, the IDs of claims, and why a claim no longer stands.

The dataclasses are answers of the contract as well: their fields and docstrings are part of it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ..protocol.core.load import read_all
from ..protocol.layout import ClaimName, Paths, parse_claim, parse_lease
from ..protocol.requests import Node, ReadData, Step
from ..runtime.job import Job

#: Why a claim is refused: the lease has lapsed (or an operator has decided about the task), the
#: task has ended, its plan was removed, the value is not accepted, or ZooKeeper has no room now.
Refusal = Literal["", "lapsed", "ended", "removed", "invalid", "full"]
#: How many tasks one call claims, settles or renews.
BATCH_MAX = 500


@dataclass(frozen=True)
class LeasedOut:
    """A task under a lease. `due`: when the lease lapses, in seconds since 1970, by the clock of
    ZooKeeper. `lease`: for how many seconds it counts. `attempt` grows with every claim of the
    task. A task that failed is `{"failed": {"kind", "message"}}` among the arguments. `logs` are
    the log entries of earlier attempts."""

    id: str
    plan: int
    task: int
    name: str
    kind: str
    queue: str
    attempt: int
    due: float
    lease: float
    args: list[Any]
    kwargs: dict[str, Any]
    logs: list[Any]


@dataclass(frozen=True)
class RenewalOut:
    """`ok`: the claim stands, until `due`. Otherwise `refused` and `why` say what ended it."""

    id: str
    ok: bool
    due: float
    refused: Refusal
    why: str


@dataclass(frozen=True)
class ClaimOutcomeOut:
    """`ok`: the outcome counts. Otherwise `refused` and `why` say why not. The claim then stands
    only if `refused` is `invalid` or `full`."""

    id: str
    ok: bool
    refused: Refusal
    why: str


def accepted(text: str) -> ClaimOutcomeOut:
    """The answer for an outcome that counts."""
    return ClaimOutcomeOut(text, True, "", "")


def refused(text: str, refusal: Refusal, why: str) -> ClaimOutcomeOut:
    """The answer for an outcome that does not count."""
    return ClaimOutcomeOut(text, False, refusal, why)


class Failed(NamedTuple):
    """How an attempt failed, as its program reports it.

    `kind` names the sort of failure, as the type of an exception does. With `retry` False no
    further attempt is made.
    """

    id: str
    message: str
    kind: str = "Error"
    retry: bool = True
    traceback: str = ""


class ClaimId(NamedTuple):
    """The parts of an ID: the name of the lease, and that of the claim below it."""

    lease: str
    name: str
    parsed: ClaimName


#: How many digits of a lease's name are random, and how many after them name its holder.
_RANDOM_DIGITS = _HOLDER_DIGITS = 16


def holder_digits(holder: str) -> str:
    """The digits at the end of the name of a lease of that holder; empty without a holder.

    >>> len(holder_digits("name resizer")), holder_digits("")
    (16, '')
    """
    return hashlib.sha256(holder.encode()).hexdigest()[:_HOLDER_DIGITS] if holder else ""


def is_held_by(text: str, holder: str) -> bool:
    """Whether `holder` got the claim with the ID `text`. True if `text` is not an ID.

    The name of the lease has the digits of its holder, so a service also knows the holders of
    claims that another service made.

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
    parsed = parse_claim(name)
    return ClaimId(lease, name, parsed) if parsed and parse_lease(lease) is not None else None


def lease_of(text: str) -> str:
    """The lease of a claim, by the ID of the claim."""
    return text.partition("/")[0]


class HeldJobs:
    """The loaded tasks that this process has given out, by the IDs of their claims.

    This is a cache: dropped tasks are read again. It drops the tasks that were given out first.
    Thread-safe.
    """

    JOBS_MAX, BYTES_MAX = 20_000, 64 * 1024 * 1024

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Each job with its size in bytes.
        self._jobs: dict[str, tuple[Job, int]] = {}
        self._of_lease: Counter[str] = Counter()
        self._bytes = 0

    def put(self, text: str, job: Job) -> None:
        loaded = job.loaded
        size = len(loaded.record) + sum(map(len, loaded.arguments)) + 1000
        with self._lock:
            self._drop(text)
            self._jobs[text] = job, size
            self._of_lease[lease_of(text)] += 1
            self._bytes += size
            while len(self._jobs) > self.JOBS_MAX or self._bytes > self.BYTES_MAX:
                self._drop(next(iter(self._jobs)))

    def take(self, text: str) -> Job | None:
        """Remove and return a job: two calls must not settle one claim at the same time."""
        with self._lock:
            return self._drop(text)

    def find(self, text: str) -> Job | None:
        job, _ = self._jobs.get(text, (None, 0))
        return job

    def emptied(self, ids: Iterable[str]) -> list[str]:
        """The leases of the claims `ids` of which no job is held any more."""
        with self._lock:
            return sorted({lease_of(text) for text in ids} - self._of_lease.keys())

    def _drop(self, text: str) -> Job | None:
        if text not in self._jobs:
            return None
        job, size = self._jobs.pop(text)
        self._bytes -= size
        lease = lease_of(text)
        self._of_lease[lease] -= 1
        if not self._of_lease[lease]:
            del self._of_lease[lease]
        return job


UNKNOWN = "this is not the ID of a claim: send the `id` that a claim call has answered"


def why_lost(paths: Paths, ids: Iterable[str]) -> Step[dict[str, ClaimOutcomeOut]]:
    """Why each of these claims does not stand, for the program that relied on it."""
    known = {text: parse_id(text) for text in ids}
    reads: list[ReadData] = []
    for each in known.values():
        if each is not None:
            plan, task = (
                paths.plan(each.parsed.plan),
                paths.task(each.parsed.plan, each.parsed.task),
            )
            letter = f"{plan}/dead/{each.parsed.task}"
            reads += map(ReadData, (plan, task, f"{task}/result", letter))
    nodes = iter((yield from read_all(reads)))
    found: dict[str, ClaimOutcomeOut] = {}
    for text, each in known.items():
        if each is None:
            found[text] = refused(text, "lapsed", UNKNOWN)
        else:
            found[text] = refused(text, *_why_lost(each, [next(nodes) for _ in range(4)]))
    return found


def _why_lost(claim: ClaimId, nodes: Sequence[Node | None]) -> tuple[Refusal, str]:
    plan, task, result, letter = nodes
    number = int(claim.parsed.plan)
    named = f"task {int(claim.parsed.task)} of plan {number}"
    if plan is None:
        return "removed", f"plan {number} was removed"
    if task is None:
        why = "has ended: this claim completed it before, or another claim or an operator did"
        return "ended", f"{named} {why}"
    if result is not None:
        return "ended", f"an operator has decided the outcome of {named}"
    if letter is not None:
        return "ended", f"{named} has failed for good"
    why = f"no longer stands ({claim.lease} has lapsed, or this claim has ended)"
    return "lapsed", f"claim {claim.parsed.n} of {named} {why}: the task was given back"
