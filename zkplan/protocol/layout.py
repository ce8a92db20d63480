"""Names and paths of znodes: built and parsed here, and nowhere else.

Fixed names, such as `ready` below a plan or a task, are written where they are used. Most plans
have these znodes (docs/internals/protocol.md has the whole tree):

    ROOT/plan-NUMBER/ready                 running, paused or cancelled
    …/add-count, add-ids/                  let an add be repeated without adding twice
    …/runnable/RANK-TASK.N.A               complete tasks, which workers claim
    …/task-NUMBER                          the definition, until the outcome is delivered
    …/task-NUMBER/ready                    its version counts the edges that have arrived
    …/task-NUMBER/dep-I, arg-I             an edge: first the task it waits for, then the outcome
    …/task-NUMBER/prov-I                   the other end: the dependent that gets this outcome
    …/task-NUMBER/owner                    ephemeral: a worker has claimed the task
    …/results/TASK, dead/TASK              outcomes that stay
    …/history/seg-NUMBER                   the events of one transaction
    ROOT/workers/ID                        ephemeral: the worker's session
    ROOT/claims/ID/PLAN-TASK.N.UID         a claim of that worker: the fence of one attempt
    ROOT/claims/ID/pending-UID             dependents that may be complete, and are to be published
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from ..errors import InvariantViolated

#: The children of a plan from its creation to its removal; the end deletes `add-count`.
PLAN_FIXED = ("add-count", "add-ids", "runnable", "dead", "results")
#: Ranks have four digits so that entries sort by priority as text; priority 0 is rank 5000.
RANK_MIDDLE = 5000
PRIORITY_MIN, PRIORITY_MAX = -4999, 5000
PENDING = "pending-"
#: Under `add-ids`: the task of a key, the mark of an applied update, the mark of a living author.
TASK_KEY, UPDATE, AUTHOR, SHARED = "key-", "update-", "author-", "shared-"
#: The queue of a task whose author names none. Its entries are under `runnable`.
DEFAULT_QUEUE = "default"
#: The parents of a plan's other queues, and of its history. Not every plan has them.
QUEUES, HISTORY = "queues", "history"
#: In a history: the events of one transaction; and of many, with their first and last number.
SEGMENT, MERGED = "seg-", "merged-"
#: In a history: its version counts transactions without events.
UNTOLD = "untold"
#: The name by which tasks use the limit of their own plan. Its znode is `plan-NUMBER`.
OWN_LIMIT = "plan"
PERMIT = "permit-"
#: How the ID of a service begins, and the claims node of a lease (`lease-MILLISECONDS.RANDOM`).
#: IDs of workers have no dot at that place.
SERVICE, LEASE = "service.", "lease-"
#: Children of a task: its outcome was delivered along an edge; the task is not fully defined or
#: may not run yet; the task runs even if tasks that it waits for have failed for good.
DELIVERED, INCOMPLETE, TAKES_FAILURES = "delivered", "incomplete", "takes-failures"
#: Children of a task whose function adds more tasks than one transaction carries: the chunks of
#: their definitions, the mark that makes the chunks count, and the numbers of the added tasks.
STAGED, ADDS, ADDED = "adds-", "adds", "added-"

# Neither leading zeros nor digits of other scripts, so that each N has one name. At most ten
# digits, because int() refuses thousands of digits.
_COUNT = "(0|[1-9][0-9]{0,9})"
_KIND = r"(?:\+[a-z0-9._-]{1,40})?"
_LIMITS = "(?:~[a-z0-9._-]{1,40}){0,8}"
_ENTRY = re.compile(rf"([0-9]{{4}})-([0-9]{{10}})\.{_COUNT}\.{_COUNT}{_KIND}{_LIMITS}")
_CLAIM = re.compile(rf"([0-9]{{10}})-([0-9]{{10}})\.{_COUNT}\.([^./]+)")
_PLAN, _TASK = re.compile("plan-([0-9]{10})"), re.compile("task-([0-9]{10})")
_NUMBER = re.compile("[0-9]{10}")
_LEASE = re.compile(rf"{LEASE}([1-9][0-9]{{0,9}})\.[0-9a-f]+")
_DELAYED = re.compile(r"([0-9]{13})-([0-9]{10})-")
_GATE = re.compile("([0-9]{10})-")
_QUEUE = re.compile(r"[a-z0-9._-]{1,40}")
_LANE = re.compile(rf"([a-z0-9._-]{{1,40}}){_KIND}{_LIMITS}")


class Entry(NamedTuple):
    """A runnable name, parsed: RANK-TASK.N.A. No name is used twice, because N grows with every
    claim. In the tree, +KIND follows if the task has a kind, and ~LIMIT for each of its limits."""

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


class Delayed(NamedTuple):
    """A delayed entry, parsed: DUE-PLAN-ENTRY, and .QUEUE unless it is the default. `due_ms` is in
    wall-clock milliseconds."""

    due_ms: int
    plan: str
    entry: Entry
    queue: str = DEFAULT_QUEUE


class GateEntry(NamedTuple):
    """The entry of a gate, parsed: PLAN-ENTRY, and .QUEUE unless it is the default."""

    plan: str
    entry: Entry
    queue: str = DEFAULT_QUEUE


def rank_of(priority: int) -> str:
    """
    >>> rank_of(0), rank_of(10)
    ('5000', '4990')
    """
    return f"{RANK_MIDDLE - priority:04d}"


def number_of(name: str) -> str:
    """The ten digits at the end of a sequential name or path.

    >>> number_of("/zkplan/plan-0000000004")
    '0000000004'
    """
    number = name[-10:]
    if len(number) != 10 or not (number.isascii() and number.isdecimal()):
        raise InvariantViolated(f"{name!r:.200} does not end in a sequence number of ten digits")
    return number


def parse_number(name: str) -> str | None:
    """`name` if it is the number of a plan, as under `active`.

    >>> parse_number("0000000004"), parse_number("4")
    ('0000000004', None)
    """
    return name if _NUMBER.fullmatch(name) else None


def parse_plan(name: str) -> str | None:
    """The number of a plan's znode, or None.

    >>> parse_plan("plan-0000000003"), parse_plan("plan-other")
    ('0000000003', None)
    """
    found = _PLAN.fullmatch(name)
    return found[1] if found else None


def parse_task(name: str) -> str | None:
    """The number of a task's znode, or None.

    >>> parse_task("task-0000000012"), parse_task("task-x")
    ('0000000012', None)
    """
    found = _TASK.fullmatch(name)
    return found[1] if found else None


# Called when an entry is chosen, and again when it is claimed.
@lru_cache(maxsize=1024)
def parse_entry(name: str) -> Entry | None:
    """The parts of a runnable name, or None.

    >>> parse_entry("5000-0000000012.1.0")
    Entry(rank='5000', task='0000000012', n=1, a=0)
    """
    found = _ENTRY.fullmatch(name)
    return Entry(found[1], found[2], int(found[3]), int(found[4])) if found else None


def parse_claim(name: str) -> ClaimName | None:
    """
    >>> parse_claim("0000000003-0000000012.1.7f")
    ClaimName(plan='0000000003', task='0000000012', n=1, uid='7f')
    """
    found = _CLAIM.fullmatch(name)
    return ClaimName(found[1], found[2], int(found[3]), found[4]) if found else None


def lease_name(lease_ms: int, random: str) -> str:
    """
    >>> lease_name(30_000, "7f")
    'lease-30000.7f'
    """
    return f"{LEASE}{lease_ms}.{random}"


def parse_lease(name: str) -> int | None:
    """How many milliseconds a renewal of the lease lasts; None if `name` is not a lease.

    >>> parse_lease("lease-30000.7f"), parse_lease("lease-30000-7f")
    (30000, None)
    """
    found = _LEASE.fullmatch(name)
    return int(found[1]) if found else None


def delayed_name(due_ms: int, plan: str, entry: Entry, queue: str = DEFAULT_QUEUE) -> str:
    name = f"{due_ms:013d}-{plan}-{entry.name}"
    return name if queue == DEFAULT_QUEUE else f"{name}.{queue}"


def parse_delayed(name: str) -> Delayed | None:
    """
    >>> parse_delayed("0000000001000-0000000003-5000-0000000012.1.1").due_ms
    1000
    """
    head, found = _DELAYED.match(name), _queued(name[25:])
    return Delayed(int(head[1]), head[2], *found) if head and found else None


def _queued(name: str) -> tuple[Entry, str] | None:
    """The entry and the queue in ENTRY or ENTRY.QUEUE."""
    parts = name.split(".", 3)
    entry, queue = parse_entry(".".join(parts[:3])), DEFAULT_QUEUE
    if len(parts) > 3:
        queue = parse_lane(parts[3]) or DEFAULT_QUEUE
        if queue == DEFAULT_QUEUE:
            return None  # no queue, or the default, which is not named
    return (entry, queue) if entry else None


#: For errors about names of queues.
QUEUE_NAMES = "1 to 40 of the characters a-z 0-9 . _ -"


def parse_queue(name: str) -> str | None:
    """`name` if it is a valid name of a queue, else None.

    >>> parse_queue("gpu-a100"), parse_queue("GPU"), parse_queue("..")
    ('gpu-a100', None, None)
    """
    # ZooKeeper refuses `.` and `..` as names of znodes.
    return name if _QUEUE.fullmatch(name) and name not in (".", "..") else None


def lane_of(queue: str, limits: Iterable[str], kind: str = "") -> str:
    """The lane of a task: its queue, +KIND if it has one, and ~LIMIT for each of its limits.

    >>> lane_of("gpu", []), lane_of("default", ["db", "api"]), lane_of("gpu", [], "resize")
    ('gpu', 'default~api~db', 'gpu+resize')
    """
    return "~".join((f"{queue}+{kind}" if kind else queue, *sorted(set(limits))))


def parse_lane(text: str) -> str | None:
    """`text` if it is a lane, else None.

    >>> parse_lane("default~db"), parse_lane("gpu"), parse_lane("~db")
    ('default~db', 'gpu', None)
    """
    if not _LANE.fullmatch(text):
        return None
    head, *limits = text.split("~")
    # The queue, the kind and the limits follow the same rule for names.
    named = None not in map(parse_queue, (*head.split("+"), *limits))
    return text if named and limits == sorted(set(limits)) else None


def queue_in(lane: str) -> str:
    return lane.partition("~")[0].partition("+")[0]


def kind_in(lane: str) -> str:
    """The kind in a lane or in the name of an entry; empty if it has none.

    >>> kind_in("default+resize~db"), kind_in("gpu"), kind_in("5000-0000000012.0.0+resize")
    ('resize', '', 'resize')
    """
    return lane.partition("~")[0].partition("+")[2]


def limits_in(lane: str) -> list[str]:
    """
    >>> limits_in("default~api~db"), limits_in("gpu")
    (['api', 'db'], [])
    """
    return lane.split("~")[1:]


def limit_path(root: str, plan: str, limit: str) -> str:
    """The znode of the limit that a task of `plan` calls `limit`.

    >>> limit_path("/z", "0000000004", "db"), limit_path("/z", "0000000004", "plan")
    ('/z/limits/db', '/z/limits/plan-0000000004')
    """
    return f"{root}/limits/{f'plan-{plan}' if limit == OWN_LIMIT else limit}"


def queue_path(plan_path: str, lane: str) -> str:
    """The parent of the runnable entries of that lane.

    >>> queue_path("/z/plan-0000000004", "default"), queue_path("/z/plan-0000000004", "gpu")
    ('/z/plan-0000000004/runnable', '/z/plan-0000000004/queues/gpu')
    """
    queue = queue_in(lane)
    return f"{plan_path}/runnable" if queue == DEFAULT_QUEUE else f"{plan_path}/{QUEUES}/{queue}"


def entry_path(plan_path: str, lane: str, entry: Entry) -> str:
    return f"{queue_path(plan_path, lane)}/{entry.name}{lane[len(queue_in(lane)) :]}"


def gate_name(plan: str, entry: Entry, queue: str = DEFAULT_QUEUE) -> str:
    name = f"{plan}-{entry.name}"
    return name if queue == DEFAULT_QUEUE else f"{name}.{queue}"


def parse_gate(name: str) -> GateEntry | None:
    """
    >>> parse_gate("0000000003-5000-0000000012.0.0.gpu").queue
    'gpu'
    """
    head, found = _GATE.match(name), _queued(name[11:])
    return GateEntry(head[1], *found) if head and found else None


def active_entry(plan_path: str) -> str:
    """The entry of a plan in the index of active plans.

    >>> active_entry("/zkplan/plan-0000000004")
    '/zkplan/active/0000000004'
    """
    root, _, name = plan_path.rpartition("/")
    return f"{root}/active/{parse_plan(name) or name}"  # workers skip other names


def failed_entry(plan_path: str) -> str:
    """The entry of a plan in the index of plans that have failed.

    >>> failed_entry("/zkplan/plan-0000000004")
    '/zkplan/failed/0000000004'
    """
    root, _, name = plan_path.rpartition("/")
    return f"{root}/failed/{parse_plan(name) or name}"


def key_digest(key: str) -> str:
    """The name of a key's znode.

    >>> len(key_digest("report-2026-11-23"))
    32
    """
    return blake2b(key.encode(), digest_size=16).hexdigest()


def task_key(plan_path: str, key: str) -> str:
    """The znode that names the task of that key."""
    return f"{plan_path}/add-ids/{TASK_KEY}{key_digest(key)}"


def update_mark(plan_path: str, key: str) -> str:
    """The mark of the update of that key."""
    return f"{plan_path}/add-ids/{UPDATE}{key_digest(key)}"


def shared_part(plan_path: str, name: str, part: int) -> str:
    """A part of what tasks share.

    >>> shared_part("/z/plan-0000000004", "00ff", 0)
    '/z/plan-0000000004/add-ids/shared-00ff.0'
    """
    return f"{plan_path}/add-ids/{SHARED}{name}.{part}"


def author_mark(plan_path: str, uid: str) -> str:
    """The mark of the living author of a plan. No other plan has this `uid`, so the author may
    delete the mark without having read the plan."""
    return f"{plan_path}/add-ids/{AUTHOR}{uid}"


class Paths:
    """Full paths below one root. Numbers are the ten digits of sequential names, as text."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.workers = f"{root}/workers"
        self.claims = f"{root}/claims"
        self.delayed = f"{root}/delayed"
        self.active = f"{root}/active"
        self.failed = f"{root}/failed"
        self.keys = f"{root}/keys"
        self.schedules = f"{root}/schedules"
        self.gates = f"{root}/gates"
        self.bounds = f"{root}/bounds"
        self.idle = f"{root}/idle"

    def plan(self, plan: str) -> str:
        return f"{self.root}/plan-{plan}"

    def key(self, key: str) -> str:
        return f"{self.root}/keys/{key_digest(key)}"

    def task(self, plan: str, task: str) -> str:
        return f"{self.root}/plan-{plan}/task-{task}"

    def worker(self, worker: str) -> str:
        return f"{self.root}/workers/{worker}"

    def idle_place(self, group: str, worker: str) -> str:
        return f"{self.root}/idle/{group}-{worker}"

    def claims_of(self, worker: str) -> str:
        return f"{self.root}/claims/{worker}"

    def claim(self, worker: str, plan: str, task: str, n: int, uid: str) -> str:
        return f"{self.root}/claims/{worker}/{plan}-{task}.{n}.{uid}"


def is_gate_entry(path: str, plan_path: str) -> bool:
    """Whether `path` is an entry under the `gates` of the plan's root."""
    return path.startswith(f"{plan_path.rpartition('/')[0]}/gates/")
