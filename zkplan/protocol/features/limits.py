"""Limits: how many tasks run at once, or start within a period.

S11: a permit is a znode with a number below the size of its limit. The transaction that claims a
task makes the permit, and the transaction that ends the claim deletes it. A permit of a rate stays:
when its period is over, by the server's clock, another claim takes it over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from ...errors import PayloadUndecodable, ZkplanError
from ..core.load import read_all
from ..fields import require_opened
from ..layout import OWN_LIMIT, PERMIT, Paths, limit_path, limits_in, parse_plan, parse_queue
from ..requests import (
    Applied,
    Create,
    Delete,
    Multi,
    Op,
    ReadChildren,
    ReadData,
    Reason,
    SetData,
    Step,
)
from ..transactions import REFUSALS_MAX, ensure, rejected

SIZE_MAX = 10_000
#: Each permit of a rate is read to know when it is free.
RATE_MAX = 1000
Per = Literal["second", "minute", "hour", "day"]
PERIODS_S: dict[str, int] = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}


class Limit(NamedTuple):
    """A limit as it was read: the version of its znode, its size, and the numbers of its permits.

    A rate has a `period_ms`: then `held` are the permits whose period is not over, `until_ms` is
    when the first of these is free, and `versions` has the versions of all permits.
    """

    version: int
    size: int
    held: frozenset[int]
    period_ms: int = 0
    until_ms: float = float("inf")
    versions: Mapping[int, int] = MappingProxyType({})

    @property
    def free(self) -> list[int]:
        """The numbers that a claim may take.

        After the size was lowered, permits above it remain until their claims end. So claims take
        only numbers below `end`: these numbers and the permits from `end` on are together at most
        the size. Every claim checks the version of the size, so no permit is made above the largest
        `end` at that version, and the permits above it only become fewer.
        """
        end, above = self.size, sum(number >= self.size for number in self.held)
        while end > 0 and end + above > self.size:
            end -= 1
            above += end in self.held
        return [number for number in range(end) if number not in self.held]


class Permit(NamedTuple):
    """A permit, and when its task was claimed, in wall-clock seconds."""

    number: int
    worker: str
    plan: str
    task: str
    since: float


class LimitStatus(NamedTuple):
    """A limit: its size, and the permits that are held.

    The name of a plan's own limit (`max_running`) is `plan-NUMBER`. For a rate, `period` is its
    length in seconds, and `held` are the permits taken within that time. If the size is not known
    here, `unread` says why, and no task under the limit is claimed; otherwise it is empty.
    """

    name: str
    size: int
    held: list[Permit]
    period: float | None = None
    unread: str = ""


def check_limit(name: str, size: int, per: Per | None = None) -> None:
    """Raises ZkplanError for a name, a size or a period that no limit can have."""
    if type(name) is not str or not parse_queue(name) or name == OWN_LIMIT or parse_plan(name):
        raise ZkplanError(
            f"{name!r:.60} is not a name for a limit: use 1 to 40 of the characters a-z 0-9 . _ -, "
            "but neither `plan` nor `plan-NUMBER`"
        )
    if per is not None and per not in PERIODS_S:
        raise ZkplanError(f"per must be one of {', '.join(PERIODS_S)}, not {per!r:.60}")
    most, what = (SIZE_MAX, "a limit") if per is None else (RATE_MAX, "a rate")
    if type(size) is not int or not 0 <= size <= most:
        raise ZkplanError(f"the size of {what} must be 0 to {most}, not {size!r}")


def size_from_bytes(data: bytes) -> int:
    """The size of a limit; 0 if it cannot be read, so that nothing is claimed."""
    digits = data.partition(b" ")[0]
    return min(int(digits), SIZE_MAX) if digits.isdigit() and len(digits) <= 10 else 0


def size_problem(data: bytes) -> str:
    """Why the size of a limit is not known; empty if it is."""
    try:
        require_opened("its size", data)
    except PayloadUndecodable as error:
        return str(error)
    if not data:
        return "it has no size yet: set it"
    return "" if data.partition(b" ")[0].isdigit() else "its size is not a number: set it again"


def period_from_bytes(data: bytes) -> int:
    """The period of a rate in milliseconds; 0 for a limit of concurrent tasks."""
    _, is_rate, digits = data.partition(b" ")
    known = digits.isdigit() and len(digits) <= 12
    return max(1, int(digits)) if known else PERIODS_S["day"] * 1000 * bool(is_rate)


def set_limit(paths: Paths, name: str, size: int, per: Per | None = None) -> Step[None]:
    """Create the limit, or change its size. No running task is stopped.

    A limit is created without a size, so nothing runs under it; a second write sets the size. With
    sealing keys, a first version or an earlier size that somebody puts back does not count. Raises
    TransactionRejected, and ZkplanError if a rate would become a limit of concurrent tasks, or the
    reverse, because its permits would mean something else.
    """
    path = f"{paths.root}/limits/{name}"
    yield from ensure(f"{paths.root}/limits")
    data = b"%d" % size if per is None else b"%d %d" % (size, 1000 * PERIODS_S[per])
    for _ in range(REFUSALS_MAX):
        node = yield ReadData(path)
        is_set = node is not None and size_problem(node.data) == ""
        if is_set and (per is None) is not (period_from_bytes(node.data) == 0):
            kind = "not a rate" if per else "a rate"
            raise ZkplanError(f"{name} is {kind}: remove it first, and then set it again")
        # At this version: a late copy must not set an earlier size again.
        op: Op = Create(path) if node is None else SetData(path, data, node.version)
        answer = yield Multi([op])
        if isinstance(answer, Applied) and node is not None:
            return
        if isinstance(answer, Applied):
            continue
        if answer.repeated and (node := (yield ReadData(path))) is not None and node.data == data:
            return
        if not answer.is_race:
            break
    raise rejected(f"setting the limit {name}", answer)


def remove_limit(paths: Paths, name: str) -> Step[bool]:
    """Delete the limit. Returns whether it existed. Tasks that name it wait until it is set again.
    Raises ZkplanError while a permit is held."""
    path = f"{paths.root}/limits/{name}"
    for _ in range(REFUSALS_MAX):
        node = yield ReadData(path)
        # Permits of a rate belong to no claim.
        is_rate = node is not None and period_from_bytes(node.data) > 0
        used = ((yield ReadChildren(path)) or ()) if is_rate else ()
        answer = yield Multi([*(Delete(f"{path}/{each}") for each in used), Delete(path)])
        if isinstance(answer, Applied):
            return True
        if answer.reason is Reason.NO_NODE and answer.path == path:
            return bool(answer.repeated)
        if not is_rate:
            break
    if answer.reason is Reason.NOT_EMPTY:
        raise ZkplanError(
            f"tasks that hold permits of the limit {name} are running, so it stays: set it to 0, "
            "and remove it when they have ended"
        )
    raise rejected(f"removing the limit {name}", answer)


def remove_own_limit(plan_path: str) -> Step[None]:
    """Delete the limit of a plan whose tasks are gone, with its permits."""
    node = yield ReadData(plan_path)
    if node is None or b'"max_running"' not in node.data:
        return
    root, _, name = plan_path.rpartition("/")
    path = limit_path(root, parse_plan(name) or "", OWN_LIMIT)
    for _ in range(REFUSALS_MAX):
        names = yield ReadChildren(path)
        if names is None:
            return
        answer = yield Multi([*(Delete(f"{path}/{name}") for name in names), Delete(path)])
        if isinstance(answer, Applied):
            return
        if answer.reason not in (Reason.NO_NODE, Reason.NOT_EMPTY):
            raise rejected(f"removing {path}", answer)


def read_limit(
    path: str, server_ms: Callable[[], Step[float]], watch: bool = False
) -> Step[Limit | None]:
    """The limit at `path`; None if there is none. With `watch`, a change wakes the worker.

    The permits are read after the size: permits above the size only become fewer. The time from
    `server_ms` is never ahead of the server's clock.
    """
    node = yield ReadData(path, watch=watch)
    names = (yield ReadChildren(path, watch=watch)) if node is not None else None
    if node is None or names is None:
        return None
    limit = Limit(node.version, size_from_bytes(node.data), frozenset(_numbers(names)))
    period_ms = period_from_bytes(node.data)
    if not period_ms:
        return limit
    now, numbers = (yield from server_ms()), sorted(limit.held)
    nodes = yield from read_all([ReadData(f"{path}/{PERMIT}{number}") for number in numbers])
    known = {n: each for n, each in zip(numbers, nodes, strict=True) if each is not None}
    ends = {n: each.modified_ms + period_ms for n, each in known.items()}
    held = frozenset(n for n, end in ends.items() if end > now)
    return limit._replace(
        held=held,
        period_ms=period_ms,
        until_ms=min((ends[n] for n in held), default=float("inf")),
        versions={n: each.version for n, each in known.items()},
    )


def left_permits(paths: Paths, plan: str, task: str, lane: str) -> Step[list[str]]:
    """The permits that earlier claims of a task have left behind. The task must not be claimed now.
    Permits of a rate end by themselves."""
    left: list[str] = []
    for name in limits_in(lane):
        path = limit_path(paths.root, plan, name)
        node = yield ReadData(path)
        if node is None or period_from_bytes(node.data):
            continue
        permits = [f"{path}/{each}" for each in (yield ReadChildren(path)) or ()]
        nodes = yield from read_all([ReadData(permit) for permit in permits])
        claim = f"/{plan}-{task}.".encode()
        found = zip(permits, nodes, strict=True)
        left += [permit for permit, held in found if held is not None and claim in held.data]
    return left


def missing_limits(paths: Paths, names: Collection[str]) -> Step[list[str]]:
    """The limits in `names` that do not exist."""
    wanted = sorted(names)
    nodes = yield from read_all([ReadData(f"{paths.root}/limits/{name}") for name in wanted])
    return [name for name, node in zip(wanted, nodes, strict=True) if node is None]


def list_limits(paths: Paths, now: float) -> Step[list[LimitStatus]]:
    """All limits by name, with their permits; for a rate, the permits that count at `now`."""
    above = f"{paths.root}/limits"
    names = sorted(filter(parse_queue, (yield ReadChildren(above)) or ()))
    found = []
    for name in names:
        node = yield ReadData(f"{above}/{name}")
        held = (yield ReadChildren(f"{above}/{name}")) or ()
        if node is None:
            continue
        numbers = sorted(_numbers(held))
        nodes = yield from read_all([ReadData(f"{above}/{name}/{PERMIT}{n}") for n in numbers])
        permits, period = [], period_from_bytes(node.data) / 1000 or None
        for number, permit in zip(numbers, nodes, strict=True):
            if permit is not None:
                worker, _, claim = permit.data.decode(errors="replace").partition("/")
                plan, _, task = claim.partition(".")[0].partition("-")
                since = permit.modified_ms / 1000  # a permit of a rate is taken over by writes
                if period is None or since + period > now:
                    permits.append(Permit(number, worker, plan, task, since))
        size, unread = size_from_bytes(node.data), size_problem(node.data)
        found.append(LimitStatus(name, size, permits, period, unread))
    return found


def _numbers(names: Collection[str]) -> list[int]:
    found = (name[len(PERMIT) :] for name in names if name.startswith(PERMIT))
    return [int(number) for number in found if number.isdecimal() and len(number) < 10]
