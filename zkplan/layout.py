"""Names and paths of znodes: the one place that knows how the tree is spelled."""

from __future__ import annotations

from typing import NamedTuple

from .errors import InvariantViolated

#: Children of a plan that exist from its creation to its removal, `adds` until `done` replaces it.
PLAN_FIXED = ("adds", "authors", "runnable", "dead", "outcomes")
#: Ranks have four digits so that entries sort by priority as text; priority 0 is rank 5000.
RANK_MIDDLE = 5000
PRIORITY_MIN, PRIORITY_MAX = -4999, 5000
WAKE = "wake-"


class Entry(NamedTuple):
    """A runnable name, parsed: ENTRY.N.A. It never comes back, because N grows with every claim."""

    rank: str
    task: str
    n: int
    a: int

    @property
    def name(self) -> str:
        return f"{self.rank}-{self.task}.{self.n}.{self.a}"


class ClaimName(NamedTuple):
    """The name of a claim, parsed: PLAN-TASK.N.UID, the fence of one attempt."""

    plan: str
    task: str
    n: int
    uid: str


class Later(NamedTuple):
    """A delayed entry, parsed: DUE-PLAN-ENTRY.N.A; `due_ms` is wall-clock milliseconds."""

    due_ms: int
    plan: str
    entry: Entry


def rank_of(priority: int) -> str:
    """
    >>> rank_of(0), rank_of(10)
    ('5000', '4990')
    """
    return f"{RANK_MIDDLE - priority:04d}"


def number_of(name: str) -> str:
    """The ten digits that end a sequential name or path.

    >>> number_of("/zkplan/plan-0000000003")
    '0000000003'
    """
    number = name[-10:]
    if len(number) != 10 or not number.isdecimal():
        raise InvariantViolated(f"{name!r} does not end in a sequence number of ten digits")
    return number


def parse_entry(name: str) -> Entry | None:
    """The parts of a runnable name, or None where it is not one (made by somebody else).

    >>> parse_entry("5000-0000000012.1.0")
    Entry(rank='5000', task='0000000012', n=1, a=0)
    """
    if len(name) < 19 or name[4] != "-" or name[15] != ".":
        return None
    rank, task = name[:4], name[5:15]
    n, dot, a = name[16:].partition(".")
    if not (rank + task + n).isdecimal() or not dot or not a.isdecimal():
        return None
    return Entry(rank, task, int(n), int(a))


def parse_claim(name: str) -> ClaimName | None:
    """
    >>> parse_claim("0000000003-0000000012.1.7f")
    ClaimName(plan='0000000003', task='0000000012', n=1, uid='7f')
    """
    plan, dash, rest = name.partition("-")
    parts = rest.split(".")
    if not dash or len(parts) != 3 or len(plan) != 10 or len(parts[0]) != 10:
        return None
    if not (plan + parts[0] + parts[1]).isdecimal():
        return None
    return ClaimName(plan, parts[0], int(parts[1]), parts[2])


def later_name(due_ms: int, plan: str, entry: Entry) -> str:
    return f"{due_ms:013d}-{plan}-{entry.name}"


def parse_later(name: str) -> Later | None:
    """
    >>> parse_later("0000000001000-0000000003-5000-0000000012.1.1").due_ms
    1000
    """
    entry = parse_entry(name[25:])
    if entry is None or name[13] != "-" or name[24] != "-":
        return None
    if not (name[:13] + name[14:24]).isdecimal():
        return None
    return Later(int(name[:13]), name[14:24], entry)


class Paths:
    """Full paths below one root. Numbers are the ten digits of sequential names, as text."""

    __slots__ = ("desks", "later", "root", "workers")

    def __init__(self, root: str) -> None:
        self.root = root
        self.workers = f"{root}/worker"
        self.desks = f"{root}/desk"
        self.later = f"{root}/later"

    def plan(self, plan: str) -> str:
        return f"{self.root}/plan-{plan}"

    def task(self, plan: str, task: str) -> str:
        return f"{self.root}/plan-{plan}/task-{task}"

    def worker(self, worker: str) -> str:
        return f"{self.root}/worker/{worker}"

    def desk(self, worker: str) -> str:
        return f"{self.root}/desk/{worker}"

    def claim(self, worker: str, plan: str, task: str, n: int, uid: str) -> str:
        return f"{self.root}/desk/{worker}/{plan}-{task}.{n}.{uid}"
