"""The parts of transactions: registrations, claims, dependents, drafts, size limits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import UNREACHABLE, AccessDenied, ServerFull, TransactionRejected, ZkplanError
from .layout import DEFAULT_QUEUE, PERMIT, Entry, Paths, limit_path, limits_in, parse_lane
from .requests import (
    NO_FACT,
    Applied,
    Check,
    Create,
    Delete,
    Fact,
    Multi,
    Op,
    ReadChildren,
    ReadData,
    Reason,
    Refused,
    Request,
    Step,
    T,
)

#: ZooKeeper closes the connection at 1 048 575 bytes (jute.maxbuffer); the rest is headers.
REQUEST_BYTES_MAX = 1_040_000
#: The size of a grouped transaction: so small that one slow commit does not delay the others.
GROUP_BYTES_MAX = 384 * 1024
GROUP_OPS_MAX = 1500
#: Reads in one multiRead. This bounds the answer, which neither side limits by itself.
READS_PER_REQUEST = 1000
#: After this many refusals without progress, the tree is in a state that the protocol never leaves.
REFUSALS_MAX = 50
#: Bytes of an operation besides its path and data: type, lengths, flags, access list.
OP_OVERHEAD = 64


class Registration(NamedTuple):
    """The registration of a worker: its ID, and in `uids` names that are unique on its claims
    node."""

    paths: Paths
    worker: str
    uids: Iterator[str]

    @property
    def worker_path(self) -> str:
        return self.paths.worker(self.worker)

    @property
    def claims_path(self) -> str:
        return self.paths.claims_of(self.worker)

    @property
    def has_session(self) -> bool:
        """Whether the `owner` marks of its claims vanish when its session ends."""
        return True

    @property
    def proof(self) -> Op:
        """The first operation of a transaction that makes claims: it proves that it may."""
        return Check(self.worker_path)


@dataclass(slots=True)
class Claim:
    """One worker's hold on one attempt of one task. `path` is the fence: the commit deletes it.

    `n` counts the earlier claims of the task, `a` the attempts that are used up. If `n` is above
    `a`, an earlier claim ended without an outcome.
    """

    plan: str
    task: str
    rank: str
    n: int
    a: int
    path: str
    plan_path: str
    task_path: str
    queue: str = DEFAULT_QUEUE
    #: The path of its permit for each limit in its lane, in order; empty if the limit is a rate.
    #: The end of the claim deletes these permits.
    permits: tuple[str, ...] = ()
    #: Its permits of rates: the path, and the version that it takes over; -1 for a new znode.
    starts: tuple[tuple[str, int], ...] = ()
    #: What the history records of its attempt, once the attempt has ended.
    fact: Fact = NO_FACT

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def next_entry(self) -> Entry:
        """The entry after a hand-back: another N, the same attempts used up."""
        return Entry(self.rank, self.task, self.n + 1, self.a)

    @property
    def data(self) -> bytes:
        """The data of its znode: what another worker needs to release the claim."""
        data = f"{self.rank}.{self.a}"
        if self.queue != DEFAULT_QUEUE:
            data += f".{self.queue}"
        if self.permits:
            data += ":" + ",".join(path.rpartition("-")[2] or "-" for path in self.permits)
        return data.encode()

    def lacks(self, answer: Refused) -> bool:
        """Whether a permit was missing, because somebody deleted it by hand. Drops that permit."""
        if answer.reason is not Reason.NO_NODE or answer.path not in self.permits:
            return False
        self.permits = tuple(path for path in self.permits if path != answer.path)
        return True

    @property
    def permit_ops(self) -> list[Op]:
        """The operations that give its permits back."""
        return [Delete(path) for path in self.permits if path] if self.permits else []

    @property
    def taken(self) -> list[str]:
        """The paths of all permits that the claim takes."""
        return [*filter(None, self.permits), *(path for path, _ in self.starts)]


class ClaimFacts(NamedTuple):
    """The facts in the data of a claim's znode."""

    rank: str
    a: int
    queue: str
    #: The numbers of its permits, in the order of the limits in its lane; -1 for a rate.
    permits: tuple[int, ...] = ()

    def permit_paths(self, paths: Paths, plan: str) -> list[str]:
        return [path for path in self.all_permits(paths, plan) if path]

    def all_permits(self, paths: Paths, plan: str) -> list[str]:
        """The path for each limit in its lane, in order; empty if the limit is a rate."""
        limits = limits_in(self.queue)
        return [
            f"{limit_path(paths.root, plan, limit)}/{PERMIT}{number}" if number >= 0 else ""
            for limit, number in zip(limits, self.permits, strict=False)
        ]


def claim_facts(data: bytes) -> ClaimFacts:
    """Never raises. Damaged parts become the middle rank, no used attempts, the default queue."""
    text, _, numbers = data.decode("ascii", errors="replace").partition(":")
    rank, used, queue = [*text.split(".", 2), "", ""][:3]
    permits = [
        int(each) if each.isdecimal() and len(each) < 10 else -1 for each in numbers.split(",")
    ]
    return ClaimFacts(
        rank if rank.isdecimal() and len(rank) == 4 else "5000",
        int(used) if used.isdecimal() and len(used) < 10 else 0,
        parse_lane(queue) or DEFAULT_QUEUE,
        tuple(permits) if numbers else (),
    )


class Dependent(NamedTuple):
    """A task that an edge leads to, with all that its publication needs.

    `n` is the number of its next claim: above 0 if the task has run before, see `reopen`.
    """

    plan: str
    task: str
    k: int
    rank: str
    queue: str = DEFAULT_QUEUE
    n: int = 0

    @property
    def entry(self) -> Entry:
        return Entry(self.rank, self.task, self.n, 0)


class Allowance(NamedTuple):
    """What a worker may claim while it commits or publishes: at most `claims` tasks of `queues`.

    `versions` maps the paths of running plans to the versions of their `ready` as last read.
    """

    claims: int
    versions: dict[str, int]
    queues: Collection[str] = (DEFAULT_QUEUE,)

    def takes(self, plan_path: str, queue: str, made: int) -> bool:
        """Whether the worker may claim a task of `queue` after it has claimed `made` tasks."""
        return plan_path in self.versions and made < self.claims and queue in self.queues


NO_ALLOWANCE = Allowance(0, {})
#: The owner of an operation that guards a whole transaction.
GUARD = -1


class Draft:
    """A transaction that is being built, with an owner for each of its operations."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.owners: list[int] = []
        self.facts: dict[str, Fact] = {}

    @property
    def multi(self) -> Multi:
        return Multi(self.ops, self.facts)

    def own(self, owner: int) -> None:
        """Let `owner` own all operations that have no owner yet."""
        self.owners += [owner] * (len(self.ops) - len(self.owners))

    def guard(self, me: Registration, versions: dict[str, int]) -> int:
        """Prepend the checks that claims of these plans need (S9, L1). Returns how many."""
        if not versions:
            return 0
        checks: list[Op] = [me.proof]
        checks += [Check(f"{path}/ready", version) for path, version in sorted(versions.items())]
        self.ops[:0] = checks
        self.owners[:0] = [GUARD] * len(checks)
        return len(checks)


def ask(request: Request) -> Step[Any]:
    """Send one request as a step of its own."""
    return (yield request)


def or_error(step: Step[T]) -> Step[T | ZkplanError]:
    """Run `step`, and return its result or error. Raises only UNREACHABLE errors."""
    try:
        return (yield from step)
    except UNREACHABLE:
        raise
    except ZkplanError as error:
        return error


def rejected(doing: str, answer: Refused) -> TransactionRejected:
    """The error for a transaction that was refused for good."""
    what = f"{doing} was refused: {answer.path}: {answer.reason.value}"
    if answer.right:
        return AccessDenied(answer.place, answer.right, what)
    if answer.reason is Reason.FULL:
        return ServerFull(
            f"{what} (a quota, or --max-znodes or --max-bytes of `zkplan server`): remove plans "
            "that are not needed any more, or raise the limit"
        )
    if answer.reason is Reason.INVALID_ACL:
        what += ": `creator` needs a login that the server knows; `zkplan config check` checks it"
    return TransactionRejected(what)


def is_applied(answer: Applied | Refused, doing: str) -> bool:
    """Returns False if a race refused the transaction. Raises TransactionRejected for any other
    refusal; `doing` says what was refused."""
    if isinstance(answer, Refused):
        require_race(answer, doing)
    return isinstance(answer, Applied)


def require_race(refused: Refused, doing: str) -> None:
    """Raises TransactionRejected unless a race refused the transaction."""
    if not refused.is_race:
        raise rejected(doing, refused)


def children_watched(path: str) -> Step[Sequence[str] | None]:
    """The names of the children. A watch announces their next change, or the creation of `path`."""
    names = yield ReadChildren(path, watch=True)
    if names is None and (yield ReadData(path, watch=True)) is not None:
        names = yield ReadChildren(path, watch=True)  # it was made between these reads
    return names  # type: ignore[no-any-return]


def ensure(path: str) -> Step[None]:
    """Create a znode that is never deleted, unless it exists. Raises TransactionRejected."""
    if (yield ReadData(path)) is None:
        answer = yield Multi([Create(path)])
        if isinstance(answer, Refused) and answer.reason is not Reason.NODE_EXISTS:
            raise rejected(f"creating {path}", answer)


def pending_bytes(dependents: list[Dependent]) -> bytes:
    lines = []
    for d in dependents:
        line = f"{d.plan} {d.task} {d.k} {d.rank}" + (f".{d.n}" if d.n else "")
        lines.append(line if d.queue == DEFAULT_QUEUE else f"{line} {d.queue}")
    return "\n".join(lines).encode()


def pending_dependents(data: bytes) -> list[Dependent]:
    """The dependents in a pending record. A check of the plan finds tasks of damaged lines."""
    found = []
    for line in data.decode(errors="replace").splitlines():
        parts = line.split(" ")
        # No worker claims an entry whose rank has three digits.
        queue = parse_lane(parts.pop()) if len(parts) == 5 else DEFAULT_QUEUE
        rank, _, n = parts.pop().partition(".") if len(parts) == 4 else ("", "", "")
        numbers = [*parts, rank, n or "0"]
        lengths = [len(part) for part in numbers if part.isascii() and part.isdecimal()]
        known = len(lengths) == 5 and lengths[:2] == [10, 10] and lengths[3] == 4
        if known and max(lengths[2], lengths[4]) <= 10 and queue is not None:
            plan, task, k = parts
            found.append(Dependent(plan, task, int(k), rank, queue, int(n or "0")))
    return found


def too_busy(what: str) -> TransactionRejected:
    """The error if a transaction is refused again and again."""
    return TransactionRejected(
        f"{what}: others change it all the time; try again. If it is always refused, this client's "
        "ZooKeeper server has diverged from the others (docs/operate/operating.md)"
    )
