"""Remove finished plans, and bound how many a root keeps.

Workers remove plans whose retention is over. Any number of them may do so at once, because only
plans that have ended for good are removed. A failed plan could be retried: so this proves once more
that nothing of it can run, and cancels it in a transaction that any change since then refuses.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from ..basics.log import get_logger
from ..basics.public_calls import Duration, in_seconds, told_to_caller
from ..basics.text import age, count, size_from
from ..errors import UNREACHABLE, PlanNotFound, ZkplanError
from ..protocol.core.load import read_all
from ..protocol.core.plan_life import cancel_as_read
from ..protocol.core.plans_and_queues import (
    ended_at,
    list_plans,
    names_on_claims_nodes,
    plan_records,
)
from ..protocol.features.author import ensure_root
from ..protocol.features.bounds import (
    RETENTION_S,
    Bounds,
    Used,
    change_bounds,
    count_plans,
    read_bounds,
)
from ..protocol.fields import NUMBER_MAX
from ..protocol.layout import Paths, active_entry, number_of, parse_claim
from ..protocol.records import control_from_bytes
from ..protocol.requests import Node, ReadChildren, ReadData, ReadMany, Step
from ..transport.server_clock import ServerClock
from ..values.connection import Connection
from ..values.store_maintenance import remove
from ..views.deadlock import dead_if_deadlocked, status_of
from .archives import Archived, archive_plan, archived_plans

Ended = Literal["done", "cancelled", "failed"]
STATES: tuple[Ended, ...] = ("done", "cancelled", "failed")
#: A failed plan with more dead tasks than one transaction checks is left to `zkplan plan rm`.
DEAD_MAX = 1000


class Expired(NamedTuple):
    """A finished plan that is to be removed. `ended` is in seconds since 1970 of the server.

    `reason` says why it goes. `outcome` is empty before the removal, then `removed`, or why the
    plan is still there. `znodes` is None unless they were counted. `archived` is the name of its
    archive in the store, if one was made. `holds`: it has failed and not ended, since its dead
    tasks hold back those that wait for them. `end` is which end that is: see `remove_plan.remove`.
    """

    path: str
    name: str
    state: str
    ended: float
    reason: str
    znodes: int | None = None
    outcome: str = ""
    archived: str = ""
    holds: bool = False
    end: int = 0


def expired(
    client: Connection,
    *,
    older_than: float | None = None,
    keep: int | None = None,
    max_znodes: int | None = None,
    states: Collection[str] = ("done", "cancelled"),
) -> list[Expired]:
    """The plans that these rules (see `Client.gc`) and their retention let go, oldest end first.

    Times are in seconds. Raises ZkplanError for a wrong rule.
    """
    rules = {"older_than": older_than, "keep": keep, "max_znodes": max_znodes}
    for name, value in rules.items():
        if value is not None and not value >= 0:  # NaN, too
            raise ZkplanError(f"{name} must be 0 or more, not {value!r}")
    if isinstance(states, str) or not set(states) <= set(STATES):
        raise ZkplanError(f"states are some of {', '.join(STATES)}, not {states!r}")
    default = client.transport.run(read_bounds(client.paths)).retention
    now = server_now(client)
    found, theirs = list[Expired](), list[Expired]()
    for plan, own in _ended_plans(client, states):
        retention = default if own is None else own
        # A plan that holds dead tasks stays until somebody asks for it by a rule.
        if now - plan.ended >= retention and (own is not None or not plan.holds):
            whose = "the root's" if own is None else "its"
            reason = f"{whose} retention of {age(retention).removesuffix(' ago')} is over"
            theirs.append(plan._replace(reason=reason))
        elif own is None:
            found.append(plan)
    found.sort(key=lambda plan: (plan.ended, plan.path))
    going = [*theirs, *_by_rules(client, found, now, older_than, keep, max_znodes)]
    return sorted(going, key=lambda plan: (plan.ended, plan.path))


def server_now(client: Connection) -> float:
    """Seconds since 1970, by the server's clock; by the clock here where nothing may be written."""
    clock = ServerClock()
    client.transport.run(clock.ask(client.paths.delayed))
    return clock.now()


def _by_rules(
    client: Connection,
    found: Sequence[Expired],
    now: float,
    older_than: float | None,
    keep: int | None,
    max_znodes: int | None,
) -> list[Expired]:
    """Those of `found`, oldest first, that each rule lets go."""
    reasons = []
    going = list(found)
    if older_than is not None:
        going = [plan for plan in going if now - plan.ended >= older_than]
        reasons.append(f"it ended more than {age(older_than).removesuffix(' ago')} ago")
    if keep is not None:
        newest = {plan.path for plan in found[max(0, len(found) - keep) :]}
        going = [plan for plan in going if plan.path not in newest]
        reasons.append(f"it is not among the newest {keep:,}")
    if max_znodes is not None:
        sizes = {plan.path: client.transport.run(znodes_of(plan.path)) for plan in found}
        going = _over_budget(going, sizes, max_znodes)
        reasons.append(f"finished plans have more than {count(max_znodes, 'znode')}")
    return [plan._replace(reason="; ".join(reasons)) for plan in going] if reasons else []


def _over_budget(going: Sequence[Expired], sizes: dict[str, int], budget: int) -> list[Expired]:
    """As many of `going`, oldest first, as have to go so that the others fit the budget."""
    total, chosen = sum(sizes.values()), []
    for plan in going:
        if total <= budget:
            break
        total -= sizes[plan.path]
        chosen.append(plan._replace(znodes=sizes[plan.path]))
    return chosen


def znodes_of(plan_path: str) -> Step[int]:
    """How many znodes a plan has, itself included."""
    names = (yield ReadChildren(plan_path)) or []
    lists = yield from read_all([ReadChildren(f"{plan_path}/{name}") for name in names])
    return 1 + len(names) + sum(len(each or ()) for each in lists)


def _ended_plans(
    client: Connection, states: Collection[str]
) -> Iterator[tuple[Expired, float | None]]:
    """The plans in these states, each with its own retention."""
    run = client.transport.run
    records = run(plan_records(client.paths))
    reads = [
        ReadData(f"{path}/{name}") for path, _ in records for name in ("ready", "done", "dead")
    ]
    nodes = run(read_all(reads, strict=False))
    # Read after the states: a plan that was cancelled before gets no claim any more (S9).
    claims = [parse_claim(name) for _, name in run(names_on_claims_nodes(client.paths, True))]
    claimed = {claim.plan for claim in claims if claim is not None}
    for at, (path, record) in enumerate(records):
        state, ended = _end(client, path, nodes[3 * at : 3 * at + 3], "failed" in states)
        found = nodes[3 * at : 3 * at + 3]
        holds = state == "failed"
        has_failed = state == "done" and found[2] is not None and bool(found[2].child_count)
        is_meant = state in states or (has_failed and "failed" in states)
        if record is not None and is_meant and number_of(path) not in claimed:
            shown = "failed" if has_failed else state
            end = found[1].czxid if found[1] is not None else 0
            expired = Expired(path, record.name, shown, ended, "", holds=holds, end=end)
            yield expired, record.retention


def _end(
    client: Connection, path: str, nodes: Sequence[Node | None], failed: bool
) -> tuple[str, float]:
    """The state of a plan that has ended, and when it did; an empty text for any other plan."""
    ready, done, dead = nodes
    state, ended = ended_at(ready, done)
    if state or ready is None:
        return state, ended
    if not (failed and dead is not None and dead.child_count):
        return "", 0.0
    try:
        state = status_of(client, path).state
    except PlanNotFound:
        return "", 0.0
    if state != "failed":
        return "", 0.0
    names = client.transport.ask(ReadChildren(f"{path}/dead")) or ()
    letters = client.transport.run(read_all([ReadData(f"{path}/dead/{name}") for name in names]))
    return "failed", max((node.created_ms for node in letters if node), default=0) / 1000


def remove_expired(
    client: Connection, plans: Sequence[Expired], archive: bool = False
) -> Iterator[Expired]:
    """Remove these plans. Yields each with its outcome; a plan that resists does not stop the rest.

    With `archive` each is archived first, and kept where that fails.

    Raises ZooKeeperUnavailable and the like. What was not removed then, the next run removes.
    """
    for plan in plans:
        try:
            if plan.holds and (why := _cancel_failed(client, plan.path)):
                yield plan._replace(outcome=f"kept: {why}")
                continue
            if archive:
                plan = plan._replace(archived=archive_plan(client, plan.path))
            if remove(client.transport, client.values, plan.path, plan.end) is None:
                yield plan._replace(outcome="kept: somebody has retried it")
                continue
        except PlanNotFound:
            yield plan._replace(outcome="removed")  # by another one, at the same time
        except UNREACHABLE:
            raise
        except ZkplanError as error:
            yield plan._replace(outcome=f"kept: {error}")
        else:
            yield plan._replace(outcome="removed")


def _cancel_failed(client: Connection, path: str) -> str:
    """Cancel a failed plan if nothing of it can run. Any change that lets it run refuses that.

    Returns why it is not cancelled; empty if it is.
    """
    changed = "it is not failed any more, or has changed"
    names = client.transport.ask(ReadChildren(f"{path}/dead")) or []
    ready, adds, entry = client.transport.ask(
        ReadMany(
            [ReadData(at) for at in (f"{path}/ready", f"{path}/add-count", active_entry(path))]
        )
    )
    if len(names) > DEAD_MAX:
        return f"it has {len(names):,} dead tasks, more than one transaction can check: `plan rm`"
    if ready is None or adds is None or not names or control_from_bytes(ready.data) != "running":
        return changed
    if client.transport.run(dead_if_deadlocked(client.paths, path)) != len(names):
        return changed
    step = cancel_as_read(path, ready, adds, entry is not None, names)
    return "" if client.transport.run(step) else changed


# ---- What a client says of the bounds of its root: retention, archives, the budget; and `gc`.


logger = get_logger("zkplan.client")


class Bounded(Connection):
    """The part of a client that keeps its root from growing without bound."""

    @told_to_caller
    def gc(
        self,
        *,
        older_than: Duration | None = None,
        keep: int | None = None,
        max_znodes: int | None = None,
        states: Collection[str] = ("done", "cancelled"),
        dry_run: bool = False,
        archive: bool = False,
    ) -> list[Expired]:
        """Remove finished plans. Returns them, oldest end first, each with its outcome.

        A plan goes if each rule that is given lets it go: it ended more than `older_than` seconds
        ago; it is not among the `keep` plans that ended last; it is one of the oldest, which have
        to go so that finished plans have at most `max_znodes` znodes. A plan with a `retention` of
        its own goes when that is over, and not before: the rules do not count. Any other goes when
        that of its root is over, too. Without any rule only such plans go. `states` says which
        plans count as finished; "failed" must be asked for. With `dry_run` nothing is removed. With
        `archive` each plan is archived in the store first, and kept where that fails.

        It never removes a plan that runs or has a running task. Several clients may call it at
        once. It does not promise exact ages where the clocks of servers differ. Raises ZkplanError
        for a wrong rule.
        """
        found = expired(
            self,
            older_than=in_seconds(older_than),
            keep=keep,
            max_znodes=max_znodes,
            states=states,
        )
        return found if dry_run else self.remove_finished(found, archive=archive)

    def remove_finished(self, plans: Sequence[Expired], *, archive: bool = False) -> list[Expired]:
        """Remove plans that `gc` has found with `dry_run`. Returns what it does, and does the
        rest."""
        ended = list(remove_expired(self, plans, archive))
        if ended and self.transport.run(read_bounds(self.paths)).has_budget:
            self.bounds(count=True)
        return ended

    @told_to_caller
    def bounds(self, *, count: bool = False) -> Bounds:
        """How long finished plans stay under this root, whether they are archived, the budget, and
        how much of it was used when it was counted last.

        With `count` the plans are counted now: exactly, but for plans of more than some thousand
        znodes, for which a sample stands. Raises PayloadUndecodable if it was changed by hand.
        """
        if not count:
            return self.transport.run(read_bounds(self.paths))
        return self._change({}, count=True)

    @told_to_caller
    def set_retention(self, seconds: Duration = RETENTION_S, *, archive: bool = False) -> Bounds:
        """Say how long finished plans stay under this root whose authors say nothing, and whether
        workers archive each plan in their store before they remove it. Infinite is for ever.

        Raises ZkplanError for a time out of range.
        """
        seconds = in_seconds(seconds)
        known = type(seconds) in (int, float) and (0 <= seconds < NUMBER_MAX or seconds == math.inf)
        if not known:
            raise ZkplanError(f"a retention is a number of seconds from 0, not {seconds!r:.50}")
        return self._change({"retention": float(seconds), "archive": bool(archive)}, anew=True)

    @told_to_caller
    def set_budget(
        self,
        *,
        znodes: int | None = None,
        bytes: int | str | None = None,  # noqa: A002 - as on the command line
    ) -> Bounds:
        """Bound what the plans under this root take: their znodes, and their bytes of data, as a
        number or a text ("500MB"). None: no bound; without any there is no budget.

        At the budget `create_plan` raises BudgetSpent; plans that are there go on, so it may be
        exceeded. A worker counts every five minutes or more rarely. Names, and what ZooKeeper takes
        besides, are not counted. Raises ZkplanError for a bound that is wrong.
        """
        if znodes is not None and (type(znodes) is not int or znodes < 0):
            raise ZkplanError(f"znodes is a whole number from 0, not {znodes!r:.50}")
        try:
            most = None if bytes is None else size_from(bytes)
        except ValueError as error:
            raise ZkplanError(f"bytes is {error}, not {bytes!r:.50}") from None
        changes = {"znodes": znodes, "bytes": most, "used": None}
        has_one = znodes is not None or most is not None
        return self._change(changes, count=has_one, anew=True)

    @told_to_caller
    def archived_plans(self) -> list[Archived]:
        """The archives in the store, of all roots that share it: `import_plan(file, archived=True)`
        makes a plan of one. Raises StoreUnavailable."""
        return archived_plans(self)

    def _change(self, changes: dict[str, Any], count: bool = False, anew: bool = False) -> Bounds:
        self.transport.run(ensure_root(self.paths))
        if count:
            now = server_now(self)
            changes = changes | {"used": self.transport.run(_counted(self.paths, now))}
        return self.transport.run(change_bounds(self.paths, changes, anew))

    def _warn(self, warning: str) -> None:
        """Log it, but each text once: an author may create thousands of plans."""
        if warning not in self._warned:
            self._warned.add(warning)
            logger.warning("%s", warning)


def _counted(paths: Paths, now: float) -> Step[Used]:
    plans = yield from list_plans(paths)
    room = yield from count_plans(paths, plans, {}, ())
    return Used(len(plans), round(room.znodes), round(room.bytes), now, room.exact)
